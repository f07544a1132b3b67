"""`cepheid stream`: finds matches in files that arrive in a directory."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from cepheid.app import report
from cepheid.app.cli.options import (
    DEFAULT_UNIT,
    Adaptive,
    Dialect,
    Params,
    TimeColumn,
    TimeUnit,
    TypeColumn,
    read_params,
    read_query,
)
from cepheid.engine.query_text import QueryText
from cepheid.errors import InputProblem, shown
from cepheid.io.inputs import Columns

if TYPE_CHECKING:
    from cepheid.spark.stream import RunningStream

AUTO = "auto"

QueryFiles = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="The file with the query; may be repeated. All queries share one pass. Each has an output directory "
        "named after its file.",
    ),
]


def stream_command(
    input: Annotated[str, typer.Option("--input", "-i", metavar="DIR", help="The directory where event files arrive.")],
    checkpoint: Annotated[
        str, typer.Option(metavar="DIR", help="The checkpoint directory of the stream; a restart resumes from it.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="The directory for matches, one file per batch.")
    ],
    query_file: QueryFiles = None,
    query: Annotated[str | None, typer.Option(metavar="TEXT", help="The text of the query.")] = None,
    dialect: Dialect = "auto",
    late_output: Annotated[
        str | None, typer.Option(metavar="DIR", help="The directory for late events; by default next to the output.")
    ] = None,
    reject_output: Annotated[
        str | None, typer.Option(metavar="DIR", help="The directory for rejected rows; by default next to the output.")
    ] = None,
    watermark: Annotated[
        str, typer.Option(help="The allowed lateness of an event behind the newest: 10min, or 500 ticks.")
    ] = "0",
    files_per_batch: Annotated[int | None, typer.Option(min=1, help="The maximum number of files in a batch.")] = None,
    available_now: Annotated[bool, typer.Option(help="Stop after the files that are present at the start.")] = False,
    end_of_time: Annotated[
        bool,
        typer.Option(
            help="With --available-now: also write the matches that become certain at the end of the input, in files "
            "named end-of-time. They are removed when the stream resumes."
        ),
    ] = True,
    format: Annotated[
        str, typer.Option(help="The output format: parquet, jsonl, or auto for the format of the input.")
    ] = AUTO,
    interval: Annotated[str | None, typer.Option(help="The interval between batches, such as '10 seconds'.")] = None,
    type_column: TypeColumn = "type",
    time_column: TimeColumn = "ts",
    time_unit: TimeUnit = None,
    max_ahead: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How far ahead of the wall clock the time of an event may be; one from the far future would make all "
            "others late. An event beyond it is rejected.",
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="The columns of the events and their types, such as 'ts long, price double'. Columns that are not "
            "declared get the type that they have in the files at the first start.",
        ),
    ] = None,
    param: Params = None,
    adaptive: Adaptive = False,
    moved: Annotated[
        bool, typer.Option("--moved", help="Confirm that the input or the checkpoint was moved, with all files in it.")
    ] = False,
    master: Annotated[str, typer.Option(help="The Spark master.")] = "local[*]",
) -> None:
    """Find the matches of queries in a stream of files, exactly once, until stopped.

    Events are buffered until the watermark has passed them, so that their order of arrival does not matter. Later
    events go to the late output. After a stop or a crash the same command resumes the stream."""
    from cepheid.app.stream_view import View
    from cepheid.engine.prepare import RunOptions
    from cepheid.optimize.adapt import policy_of
    from cepheid.spark.file_stream import FileStream, StreamPaths
    from cepheid.spark.stream import Trigger
    from cepheid.streaming.spool import Watch

    written = _queries(query_file, query, dialect)
    paths = StreamPaths(input, checkpoint, output, late_output, reject_output, format)
    opened = FileStream.open(
        {name: text.parse() for name, text in written.items()},
        paths,
        Columns(type_column, time_column),
        RunOptions(
            params=read_params(param), adaptive=policy_of(adaptive), time_unit=time_unit, default_unit=DEFAULT_UNIT
        ),
        watermark=watermark,
        files_per_batch=files_per_batch,
        schema=schema,
        max_ahead=max_ahead,
        wait=not available_now,
        is_moved=moved,
        master=master,
    )
    console = Console(stderr=True, highlight=False)
    if opened is None:
        report.say(console, f"there is no event in `{shown(input, 200)}` yet: nothing was read or written")
        return
    plan = opened.stream.plan
    for note in plan.notes():
        report.say(console, note)
    with View(console, plan.time.clock) as view:
        running = opened.start(Trigger(available_now, interval), view.on_progress)
        if available_now:
            _wait(running, lambda: None)
        else:
            with Watch(opened.spool) as watch:
                _wait(running, watch.require)
    for line in _summary(running, available_now and end_of_time, paths):
        report.say(console, line)


def _queries(files: list[str] | None, text: str | None, dialect: str) -> dict[str, QueryText]:
    if bool(files) == (text is not None):
        raise InputProblem(
            "there are two queries" if files else "there is no query", expected="--query-file FILE or --query TEXT"
        )
    if text is not None:
        return {"query": QueryText(text, "query", dialect)}
    named: dict[str, QueryText] = {}
    for path in files or ():
        name = Path(path).stem
        if name in named:
            raise InputProblem(f"two queries are named `{shown(name)}`", hint="rename one of the files")
        named[name] = read_query(path, dialect)
    return named


def _wait(running: RunningStream, require: Callable[[], None]) -> None:
    """Waits until the stream ends. An interrupt stops it, and so does an error raised by `require`."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        while not running.wait(1):
            require()
    except KeyboardInterrupt:
        running.stop()
    finally:
        signal.signal(signal.SIGTERM, before)


def _summary(running: RunningStream, to_the_end: bool, paths: Any) -> list[str]:
    totals = running.totals
    lines = [
        f"{name}: {report.count(number, 'match', 'matches')} in {paths.matches(name, len(totals.matches))}"
        for name, number in totals.matches.items()
    ]
    if to_the_end:
        lines += [
            f"{name}: {report.count(number, 'match', 'matches')} more at the end of the input"
            for name, number in running.end_time().items()
        ]
    rows = f"{totals.used:,} used, {totals.rejects:,} rejected, {totals.late:,} late"
    lines.append(f"{report.count(totals.batches, 'batch', 'batches')}; {report.count(totals.read, 'row')} read: {rows}")
    lines += [f"{name}: the plan of a bucket changed {switch}" for name, switch in totals.switches]
    if totals.late:
        lines.append(f"late events: {paths.late}")
    if totals.rejects:
        lines.append(f"{report.count(totals.rejects, 'row')} rejected: {paths.rejects}")
    return lines
