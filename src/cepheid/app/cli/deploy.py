"""`cepheid deploy`: finds the matches of a folder of queries in event files, in one pass."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from cepheid.app import report
from cepheid.app.cli import options as cli
from cepheid.errors import InputProblem

if TYPE_CHECKING:
    from cepheid.deploy.outputs import ShapeTable

_LINES = "jsonl"


@cli.with_shared_options
def deploy_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the query files, in any languages.")],
    input: cli.Inputs = None,
    output: cli.OutputPath = cli.STANDARD,
    output_shape: cli.OutputShape = "events",
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Show what the queries share, and do not run them.")
    ] = False,
    nodes: Annotated[
        int | None, typer.Option(help="With --plan-only: show the placement of the operators on this many nodes.")
    ] = None,
    placement: Annotated[
        str, typer.Option(help="The placement on nodes: greedy, greedy-without-reuse, round-robin or annealing.")
    ] = "greedy",
    format: Annotated[str, typer.Option(help="The format of the plan: text, mermaid, dot, svg or html.")] = "text",
    dialect: cli.Dialect = "auto",
    events: cli.EventOptions = cli.EVENT_OPTIONS,
) -> None:
    """Find the matches of all queries of a directory in event files, in one pass.

    Each file is a query; its name without the extension is the name of the query, in the column `query` of the output.
    A query may use the name of another one as an event type. A file that is refused is reported, and the others run."""
    if not input:
        raise InputProblem("there are no events", expected="--input [TYPE=]PATH, at least once")
    if nodes is not None and not plan_only:
        raise InputProblem("--nodes shows a placement and does not run it", expected="--plan-only --nodes N")
    from cepheid.app.file_run import require_distinct  # lazily: help and errors in options do not need pyarrow
    from cepheid.deploy.deployment import deploy, representatives
    from cepheid.deploy.description import explain_deployment
    from cepheid.deploy.folder import linked, read_folder
    from cepheid.deploy.placing import explain_placing, placing
    from cepheid.deploy.run import run
    from cepheid.engine.event_types import settled
    from cepheid.io.inputs import Input
    from cepheid.io.merged import open_inputs, without_rows
    from cepheid.io.sinks import output_format, replacing

    queries, refused = read_folder(folder, dialect)
    inputs, options = [Input.parse(text) for text in input], events.run_options()
    file_format = _LINES if output == cli.STANDARD else output_format(output)
    if output != cli.STANDARD:
        require_distinct(output, inputs)
    with report.progress("reading"):
        source = without_rows(open_inputs(inputs, settled(events.columns, representatives(queries)), options.time_unit))
    queries, more = linked(queries, list(source.attributes or ()))
    deployment = deploy(queries, source, options)
    refused |= more | dict(deployment.refused)
    for name, error in sorted(refused.items()):
        report.note(f"refused: {name}\n{error}", "yellow")
    if nodes is not None:
        placed = placing(deployment, queries, source, options, nodes, placement)
        typer.echo(explain_placing(placed, format), nl=False)
        return
    if plan_only:
        typer.echo(explain_deployment(deployment, format), nl=False)
        return
    with report.progress("matching", source.count) as progress:
        tables = run(deployment, source, shape=output_shape, progress=progress)
    if file_format != _LINES and len(tables) > 1:
        raise InputProblem(
            f"the queries have {len(tables)} sets of output columns, and a {file_format} file has one",
            expected="--output PATH.jsonl; without queries that use others, --output-shape long has one set of columns",
        )
    if output == cli.STANDARD:
        matches = _write(sys.stdout.buffer, file_format, tables)
        sys.stdout.buffer.flush()
    else:
        with replacing(Path(output)) as file:
            matches = _write(file, file_format, tables)
    report.note(
        f"{report.count(len(queries) - len(deployment.refused), 'query', 'queries')}, {len(refused)} refused: "
        f"{report.count(matches, 'row')} from {report.count(source.count or 0, 'event')}, "
        f"{source.rejected} rejected"
    )


def _write(file: IO[bytes], format: str, tables: list[ShapeTable]) -> int:
    from cepheid.io.sinks import write_batches

    return sum(write_batches(file, format, table.schema, table.batches, table.objects) for table in tables)
