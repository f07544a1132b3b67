"""`cepheid deploy`: finds the matches of a folder of queries in event files, in one pass."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from cepheid.app import report
from cepheid.app.cli import options as cli
from cepheid.app.cli.deployed import VERBS, Following, change_command, refuse
from cepheid.app.cli.stream import Signals, quiet, run_stream
from cepheid.errors import Explosion, InputProblem, counted, listing, shown

if TYPE_CHECKING:
    from cepheid.deploy.outputs import ShapeTable

_LINES = "jsonl"
_TEXTS = (_LINES, "csv")


@cli.with_shared_options
def deploy_command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR | add|replace CHECKPOINT FILE... | remove CHECKPOINT NAME... | move CHECKPOINT NAME=BUCKET... "
            "| list|status CHECKPOINT",
            help="The directory of the query files, in any languages; or what to do with the queries of a stream.",
        ),
    ],
    input: cli.Inputs = None,
    output: cli.OutputPath = cli.STANDARD,
    output_shape: cli.OutputShape = "events",
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A limit of queries, such as max_matches=1000 or max_memory='1 GB'."),
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Show what the queries share, and do not run them.")
    ] = False,
    nodes: Annotated[
        int | None, typer.Option(help="With --plan-only: show the placement of the operators on this many nodes.")
    ] = None,
    placement: Annotated[
        str,
        typer.Option(help="The placement on nodes or buckets: greedy, greedy-without-reuse, round-robin or annealing."),
    ] = "greedy",
    format: Annotated[str, typer.Option(help="The format of the plan: text, mermaid, dot, svg or html.")] = "text",
    dialect: cli.Dialect = "auto",
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Run a stream over the files that arrive in the input, with this checkpoint."),
    ] = None,
    watermark: Annotated[str, typer.Option(help="The allowed lateness of an event behind the newest: 10min.")] = "0",
    files_per_batch: Annotated[int | None, typer.Option(min=1, help="The maximum number of files in a batch.")] = None,
    available_now: Annotated[bool, typer.Option(help="Stop after the files that are present at the start.")] = False,
    interval: Annotated[str | None, typer.Option(help="The interval between batches, such as '10 seconds'.")] = None,
    master: Annotated[str, typer.Option(help="The Spark master.")] = "local[*]",
    events: cli.EventOptions = cli.EVENT_OPTIONS,
) -> None:
    """Find the matches of all queries of a directory in event files, in one pass, or with --checkpoint in a stream.

    Each file is a query; its name without the extension is the name of the query, in the column `query` of the output.
    A query may use the name of another one as an event type. A file that is refused is reported, and the others run.

    A stream follows the directory: a file that appears, changes or disappears is a query that is added, replaced or
    removed between two batches. `deploy add|remove|replace CHECKPOINT` does the same, and `deploy list|status` shows
    the queries and the changes that wait. Queries without a key move to other buckets when the rates drift; `deploy
    move CHECKPOINT NAME=BUCKET` moves one by hand.

    \b
    Example:
      cepheid deploy rules/ --input events.parquet --output alerts.jsonl"""
    if words[0] in VERBS and len(words) > 1:
        change_command(words, dialect)
        return
    if len(words) > 1:
        raise InputProblem(
            f"unexpected `{shown(words[1])}`", expected=f"one directory, or one of {listing(VERBS)} first"
        )
    folder = Path(words[0])
    if not input:
        raise InputProblem("there are no events", expected="--input [TYPE=]PATH, at least once")
    if nodes is not None and not plan_only:
        raise InputProblem("--nodes shows a placement and does not run it", expected="--plan-only --nodes N")
    from cepheid.app.file_run import require_distinct  # lazily: help and errors in options do not need pyarrow
    from cepheid.deploy.deployment import representatives
    from cepheid.deploy.description import explain_deployment
    from cepheid.deploy.folder import linked, read_folder
    from cepheid.deploy.outputs import stopped_text
    from cepheid.deploy.placing import explain_placing, placing
    from cepheid.deploy.run import run
    from cepheid.deploy.unions import deploy_together
    from cepheid.engine.event_types import settled
    from cepheid.engine.shapes import EVENTS
    from cepheid.io.inputs import Input
    from cepheid.io.merged import open_inputs, without_rows
    from cepheid.io.sinks import output_format, replacing
    from cepheid.limits import Limits

    queries, refused = read_folder(folder, dialect)
    if checkpoint is not None:
        if output == cli.STANDARD:
            raise InputProblem("a stream writes to a directory", expected="--input DIR --output DIR")
        from cepheid.engine.shapes import OutputOptions
        from cepheid.spark.file_stream import FileStream, StreamPaths
        from cepheid.spark.stream import Trigger

        with quiet(), Signals() as signals:
            inputs = [Input.parse(text) for text in input]
            paths = StreamPaths(tuple(item.path for item in inputs), checkpoint, output)
            with report.progress("starting Spark"):
                opened = FileStream.open(
                    queries,
                    inputs,
                    paths,
                    events.columns,
                    events.run_options(limits=limit or ()),
                    is_several=True,
                    follows=True,
                    watermark=watermark,
                    files_per_batch=files_per_batch,
                    wait=not available_now,
                    output=OutputOptions(output_shape),
                    placement=placement,
                    master=master,
                )
            every = {**refused, **({} if opened is None else opened.refused)}
            texts = {name: queries[name].text if name in queries else "" for name in every}
            following = Following(partial(read_folder, folder, dialect), refused=texts)
            for name, error in every.items():
                refuse(name, error)
            trigger = Trigger(available_now, interval)
            run_stream(opened, paths, inputs, events.columns, trigger, signals, on_tick=following)
        return
    inputs, options = [Input.parse(text) for text in input], events.run_options(limits=limit or ())
    file_format = _LINES if output == cli.STANDARD else output_format(output)
    if output != cli.STANDARD:
        require_distinct(output, inputs)
    with report.progress("reading"):
        source = open_inputs(inputs, settled(events.columns, representatives(queries)), options.time_unit)
        as_text = file_format in _TEXTS and output_shape == EVENTS
        source = source if as_text else without_rows(source)
    queries, more = linked(queries, list(source.attributes or ()), refused)
    deployment = deploy_together(queries, source, options)
    refused |= more | dict(deployment.refused)
    for name, error in sorted(refused.items()):
        report.note(f"refused: {name}\n{error}", "yellow")
    if nodes is not None:
        placed = placing(deployment, queries, source, options, nodes, placement)
        typer.echo(explain_placing(placed, queries.values(), format), nl=False)
        return
    if plan_only:
        typer.echo(explain_deployment(deployment, queries.values(), source, format), nl=False)
        return
    stopped: list[str] = []

    def stop(names: Sequence[str], problem: Explosion) -> None:
        stopped.extend(names)
        report.note(f"{stopped_text(names, problem)}; its matches are not complete", "yellow")

    with report.progress("matching", source.count) as progress:
        known = Limits.of(options.options)
        tables = run(
            deployment, source, shape=output_shape, as_text=as_text, progress=progress, on_stop=stop, limits=known
        )
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
    counts = f"{len(refused)} refused" + (f", {len(stopped)} stopped" if stopped else "")
    report.note(
        f"{counted(len(queries) - len(deployment.refused), 'query', 'queries')}, {counts}: "
        f"{counted(matches, 'row')} from {counted(source.count or 0, 'event')}, "
        f"{source.rejected} rejected"
    )
    if refused or stopped:
        raise typer.Exit(cli.USER_ERROR)


def _write(file: IO[bytes], format: str, tables: list[ShapeTable]) -> int:
    from cepheid.io.sinks import write_batches

    return sum(write_batches(file, format, table.schema, table.batches, table.objects) for table in tables)
