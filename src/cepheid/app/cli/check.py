"""`cepheid check`: validates a query."""

from __future__ import annotations

import typer

from cepheid.app import report
from cepheid.app.cli import options as cli
from cepheid.explanation import explosions
from cepheid.lang import to_text


@cli.with_event_options
def check_command(
    argument: cli.QueryArgument = None,
    query: cli.QueryOption = None,
    query_file: cli.QueryFile = None,
    dialect: cli.Dialect = "auto",
    input: cli.Inputs = None,
    events: cli.EventOptions = cli.EVENT_OPTIONS,
) -> None:
    """Validate a query. Prints its language, variables and canonical text, or an error with its position.

    With --input, also checks the query against the event types and attributes of the data."""
    written = cli.the_query(argument, query, query_file, dialect)
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
    typer.echo("query:")
    for line in to_text(parsed).splitlines():
        typer.echo(f"  {line}")
