"""`cepheid run`: finds the matches of a query in event files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cepheid.app import report
from cepheid.app.cli import options as cli
from cepheid.errors import InputProblem
from cepheid.explanation import no_match_lines
from cepheid.physical import REFERENCE

if TYPE_CHECKING:
    from cepheid.app.file_run import FileRun
    from cepheid.io.rejects import Reject

_SHOWN_ROWS = 50
"""Rows of the table on a terminal."""


@cli.with_shared_options
def run_command(
    query: cli.QueryOptions = cli.QUERY_OPTIONS,
    input: cli.Inputs = None,
    output: cli.OutputPath = cli.STANDARD,
    output_shape: cli.OutputShape = "events",
    detected_at: cli.DetectedAt = False,
    match_id: cli.MatchId = False,
    id_column: cli.IdColumn = None,
    backend: cli.Backend = "local",
    events: cli.EventOptions = cli.EVENT_OPTIONS,
    stats: cli.Statistics = None,
    adaptive: cli.Adaptive = False,
    max_matches: cli.MaxMatches = None,
    rejects: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="The file for malformed rows and the reasons; by default next to the output."
        ),
    ] = None,
) -> None:
    """Find the matches of a query in event files.

    Rows may be in any order; they are sorted by time, then by arrival. Malformed rows do not stop the run. They are
    written to the reject output with the reason, and the summary reports their number.

    \b
    Example:
      cepheid run 'EVENT SEQ(login a, pay b) WHERE [user] WITHIN 5 minutes' --input events.csv"""
    written = query.read()
    if not input:
        raise InputProblem("there are no events", expected="--input PATH, at least once")
    parsed = written.parse()
    from cepheid.app.file_run import FileRun, require_distinct  # lazily: help and errors in queries do not need pyarrow
    from cepheid.engine.layout import column_names
    from cepheid.engine.shapes import OutputOptions
    from cepheid.io.inputs import Input
    from cepheid.io.sinks import output_format

    with written.located_errors():
        column_names(parsed)
    inputs = [Input.parse(text) for text in input]
    if stats is not None and backend == REFERENCE:
        raise InputProblem(
            "statistics choose between plans, and the backend `reference` has no plans",
            expected="--backend local or --backend spark with --stats",
        )
    options = events.run_options(stats=stats, adaptive=adaptive, max_matches=max_matches)
    format = "jsonl" if output == cli.STANDARD else output_format(output)
    for path in (output, rejects):
        if path is not None and path != cli.STANDARD:
            require_distinct(path, inputs)
    columns_asked = OutputOptions(output_shape, detected_at, match_id, id_column)
    with report.progress("reading"):
        opened = FileRun.open(written, parsed, inputs, events.columns, options, backend, columns_asked)
    with written.located_errors():
        matches = _write(opened, output, format)
    rejected = list(opened.source.rejects())
    rejects_at = _write_rejects(rejected, output, rejects)
    report.warn(opened.warnings)
    if rejects_at is None:
        report.warn(report.reject_lines(rejected))
    for line in report.summary(opened, matches, len(rejected), rejects_at):
        report.note(line)
    with report.progress("counting the partial matches"):
        analysis = None if matches else opened.analyze_empty()
    if analysis is not None:
        for line in no_match_lines(opened.prepared.query, opened.prepared.plan, analysis):
            report.note(line)
    if rejected and opened.source.count == 0:  # no row is an event
        raise typer.Exit(cli.USER_ERROR)


def _write(opened: FileRun, output: str, format: str) -> int:
    from cepheid.io.sinks import replacing

    with report.progress("matching", opened.source.count) as progress:
        if output != cli.STANDARD:
            with replacing(Path(output)) as file:
                return opened.write(file, format, progress)
        if not sys.stdout.isatty():
            matches = opened.write(sys.stdout.buffer, format, progress)
            sys.stdout.buffer.flush()
            return matches
        matches, rows, first = opened.first_rows(_SHOWN_ROWS, progress)
    if first:
        report.print_rows(first, rows)
    return matches


def _write_rejects(rejected: list[Reject], output: str, path: str | None) -> str | None:
    """Writes the rejects and returns the path, or None. Removes the file of an earlier run."""
    from cepheid.io.sinks import write_rejects

    if path is not None:
        write_rejects(path, rejected)
        return path
    if output == cli.STANDARD:
        return None
    beside = f"{output}.rejects.jsonl"
    if not rejected:
        Path(beside).unlink(missing_ok=True)
        return None
    write_rejects(beside, rejected)
    return beside
