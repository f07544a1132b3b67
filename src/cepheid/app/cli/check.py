"""`cepheid check`: validates a query."""

from __future__ import annotations

import typer

from cepheid.app import report
from cepheid.app.cli.options import (
    DEFAULT_UNIT,
    Dialect,
    Inputs,
    Params,
    QueryArgument,
    TimeColumn,
    TimeUnit,
    TypeColumn,
    query_argument,
    read_params,
)
from cepheid.explanation import EXPLOSION
from cepheid.lang import to_text


def check_command(
    query: QueryArgument,
    dialect: Dialect = "auto",
    input: Inputs = None,
    type_column: TypeColumn = "type",
    time_column: TimeColumn = "ts",
    time_unit: TimeUnit = None,
    param: Params = None,
) -> None:
    """Validate a query. Prints its language, variables and canonical text, or an error with its position.

    With --input, also checks the query against the event types and attributes of the data."""
    written = query_argument(query, dialect)
    parsed = written.parse()
    if input:
        from cepheid.app.file_run import FileRun  # lazily: a check without data does not need pyarrow
        from cepheid.engine.prepare import RunOptions
        from cepheid.io.inputs import Columns, Input

        inputs, columns = [Input.parse(text) for text in input], Columns(type_column, time_column)
        options = RunOptions(params=read_params(param), time_unit=time_unit, default_unit=DEFAULT_UNIT)
        opened = FileRun.open(written, parsed, inputs, columns, options, "reference")
        report.warn(opened.warnings)
        report.warn(report.reject_lines(list(opened.source.rejects())))
    if parsed.may_explode:
        report.warn([EXPLOSION])
    typer.echo(f"language: {parsed.dialect.title}")
    typer.echo("variables:")
    for line in report.variable_lines(parsed):
        typer.echo(line)
    typer.echo("query:")
    for line in to_text(parsed).splitlines():
        typer.echo(f"  {line}")
