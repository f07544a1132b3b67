"""`cepheid explain`: shows the meaning of a query, its plan and its code."""

from __future__ import annotations

from typing import Annotated

import typer

from cepheid.app import report
from cepheid.app.cli import options as cli
from cepheid.errors import InputProblem
from cepheid.explanation import explain, require_text


@cli.with_shared_options
def explain_command(
    query: cli.QueryOptions = cli.QUERY_OPTIONS,
    input: cli.Inputs = None,
    format: Annotated[str, typer.Option(help="The output format: text, mermaid, dot, svg or html.")] = "text",
    code: Annotated[bool, typer.Option("--code", help="Show the generated code; needs --input.")] = False,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run the query and show the counters of each operator; needs --input.")
    ] = False,
    events: cli.EventOptions = cli.EVENT_OPTIONS,
    stats: cli.Statistics = None,
) -> None:
    """Explain a query: its pattern, window, selection and predicates; for SASE+ also its NFA^b automaton.

    With --input, also shows the plan of `run --backend local` for these events: the evaluator and the reason for the
    choice, the single-event predicates, and the columns that are read. With --analyze, runs the query and shows the
    counters of each operator beside the estimates.

    \b
    Example:
      cepheid explain --query-file theft.sase --input events.csv --analyze"""
    if code:
        require_text(format)
    written = query.read()
    parsed = written.parse()
    if not input:
        if code or analyze or stats is not None:
            raise InputProblem("the plan depends on the data's columns and types", expected="--input PATH")
        typer.echo(explain(parsed, format), nl=False)
        return
    from cepheid.app.file_run import FileRun  # lazily: an explanation without data does not need pyarrow
    from cepheid.engine.prepare import code_of, feeds_of
    from cepheid.engine.run import analyze as analyzed
    from cepheid.io.inputs import Input

    options = events.run_options(stats=stats)
    inputs, columns = [Input.parse(text) for text in input], events.columns
    with report.progress("reading"):
        opened = FileRun.open(written, parsed, inputs, columns, options)
    report.warn(opened.warnings)
    with written.located_errors(), report.progress("matching" if analyze else "planning", opened.source.count):
        prepared = opened.prepared
        analysis = analyzed(prepared, opened.source) if analyze else None
        plan, feeds = prepared.plan, feeds_of(prepared)
        text = code_of(prepared) if code else explain(prepared.written, format, plan, analysis, feeds)
    typer.echo(text, nl=False)
