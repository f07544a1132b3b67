"""`cepheid check`: validates a query."""

from __future__ import annotations

import typer

from cepheid.app import report
from cepheid.app.cli import options as cli
from cepheid.explanation import explosions, window_text
from cepheid.lang import to_text


@cli.with_shared_options
def check_command(
    query: cli.QueryOptions = cli.QUERY_OPTIONS, input: cli.Inputs = None, events: cli.EventOptions = cli.EVENT_OPTIONS
) -> None:
    """Validate a query. Prints its language, variables and canonical text, or an error with its position.

    With --input, also checks the query against the event types and attributes of the data.

    \b
    Example:
      cepheid check 'EVENT SEQ(login a, pay b) WITHIN 5 minutes' --input events.csv"""
    written = query.read()
    parsed = written.parse()
    if input:
        from cepheid.app.file_run import FileRun  # lazily: a check without data does not need pyarrow
        from cepheid.io.inputs import Input

        inputs = [Input.parse(text) for text in input]
        with report.progress("reading"):
            opened = FileRun.open(written, parsed, inputs, events.columns, events.run_options(), "reference")
        report.warn(opened.warnings)
        report.warn(report.reject_lines(list(opened.source.rejects())))
    report.warn(explosions(parsed))
    typer.echo(f"language: {parsed.dialect.title}")
    typer.echo("variables:")
    for line in report.variable_lines(parsed):
        typer.echo(line)
    typer.echo(f"window: {window_text(parsed)}")
    typer.echo("query:")
    for line in to_text(parsed).splitlines():
        typer.echo(f"  {line}")
