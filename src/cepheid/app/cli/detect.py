"""`cepheid detect`: detects complex events across sources, moving as few events as possible."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated, BinaryIO

import typer

from cepheid.app import report
from cepheid.app.cli import options as cli
from cepheid.errors import InputProblem, shown


def detect_command(
    query_file: Annotated[
        list[str],
        typer.Option(
            metavar="FILE",
            help="The file with the query (- for stdin); may be repeated. The queries are planned together, and an "
            "event is fetched once for all. Their matches have the name of the file in the column `query`.",
        ),
    ],
    sources: Annotated[str, typer.Option(metavar="FILE", help="The file that names the sources, as JSON.")],
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help="The longest time from an event to its detection, with its unit, such as 2s. "
            "A bare number is in the unit of the times: microseconds, if they are timestamps.",
        ),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(
            metavar="PLAN",
            help="The plan, such as 'a -> b', or push; by default the cheapest. Of several queries: push.",
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="The cost model: coverage or paper.")] = "coverage",
    explain: Annotated[bool, typer.Option("--explain", help="Show the plan and do not run it.")] = False,
    format: Annotated[str, typer.Option(help="The format of --explain: text, mermaid, dot, svg or html.")] = "text",
    timeout: Annotated[float, typer.Option(help="Seconds after which a request is repeated.")] = 10.0,
    attempts: Annotated[int, typer.Option(help="How often a request is sent before it is a gap.")] = 5,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after so many seconds; by default when all sources have ended.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Save the state there, and go on from it. With --output, no match is twice."),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where matches go, as JSON Lines; - for stdout.")
    ] = cli.STANDARD,
    gaps: Annotated[
        str, typer.Option(help="Whether matches that a gap could change are marked or held back: mark or hold.")
    ] = "mark",
    adapt: Annotated[
        bool, typer.Option("--adapt/--no-adapt", help="Change the plan when the rates of the sources drift.")
    ] = True,
    param: cli.Params = None,
) -> None:
    """Detect a complex event across sources that are asked for as few events as possible (CED's language).

    Matches are written as JSON Lines, as they are detected. An interval that a source could not answer is a line with
    "gap", and the matches that it could change have "uncertain": true.

    \b
    Example:
      cepheid detect --query-file intrusion.ced --sources sources.json"""
    written = cli.named_queries(query_file, None, "ced")
    for text in written.values():
        text.parse()
    from cepheid.deploy.deployment import QUERY
    from cepheid.detection.api import detection  # lazily: help and errors in queries do not need pyarrow
    from cepheid.detection.options import length_text
    from cepheid.detection.run import Running
    from cepheid.io.inputs import DEFAULT_COLUMNS
    from cepheid.io.rows import as_json

    with report.progress("planning"):
        found = detection(
            written,
            sources,
            DEFAULT_COLUMNS,
            params=cli.read_params(param),
            deadline=deadline,
            plan=plan,
            model=model,
            timeout=timeout,
            attempts=attempts,
            gaps=gaps,
            adapt_every=5.0 if adapt else None,
            state=state,
        )
    if explain:
        typer.echo(found.explain(format), nl=False)
        return
    running, count = Running(found), 0
    known = len(running.gaps)
    is_shown = output == cli.STANDARD and sys.stdout.isatty()  # the matches themselves are the progress
    detecting = nullcontext(report.unseen) if is_shown else report.progress("detecting")
    with _opened(output, running.offset) as file, detecting as progress:
        for matches in running.named_matches(wall_limit=seconds):
            lines = [
                as_json(row if len(written) == 1 else {QUERY: name, **row})
                for name, table in matches.items()
                for row in table.to_pylist()
            ]
            lines += [as_json({"gap": gap.to_data()}) for gap in running.gaps[known:]]
            known = len(running.gaps)
            file.write("".join(f"{line}\n" for line in lines).encode())
            file.flush()
            if output != cli.STANDARD:
                os.fsync(file.fileno())
                running.offset = file.tell()
            count += sum(table.num_rows for table in matches.values())
            progress(running.counts.events, count)
    counts = running.counts
    report.note(
        f"{count:,} matches; {counts.events:,} events and {counts.bytes:,} bytes received in {counts.answers:,} "
        f"answers to {counts.requests:,} requests"
    )
    for gap in running.gaps:
        report.note(f"gap at {gap}: {gap.reason}", "yellow")
    for switch in running.switches:
        report.note(str(switch))
    if running.held:
        report.note(f"{running.held:,} matches held back, which gaps could change", "yellow")
    for part in found.parts:
        where = "" if len(found.parts) == 1 else f"{part.label}: "
        expected = part.costs.by_stream(part.program.tree.root, part.choice.chosen.plan)
        for stream, share in expected.items():
            received = sum(counts.by_channel[source, stream] for source in part.program.sources[stream])
            report.note(f"{where}{stream}: {received:,} events (expected {share:.1%} of all)")
        report.note(f"{where}latency bound: {length_text(part.choice.chosen.latency, found.clock)}")


@contextmanager
def _opened(output: str, offset: int) -> Iterator[BinaryIO]:
    """The output, without what was written after the state was saved."""
    if output == cli.STANDARD:
        yield sys.stdout.buffer
        return
    try:
        with open(output, "r+b" if offset else "wb") as file:
            file.truncate(offset)
            file.seek(offset)
            yield file
    except OSError as problem:
        raise InputProblem(f"the output `{shown(output, 200)}` cannot be written: {problem}") from None
