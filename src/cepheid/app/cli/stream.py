"""`cepheid stream`: finds matches in files that arrive in a directory."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from cepheid.app import report
from cepheid.app.cli import options as cli
from cepheid.engine.query_text import QueryText
from cepheid.errors import CepheidError, InputProblem, counted, shown

if TYPE_CHECKING:
    from cepheid.detection.acquired import Acquiring
    from cepheid.io.inputs import Columns, Input
    from cepheid.io.rejects import Reject
    from cepheid.io.source import Source
    from cepheid.spark.file_stream import FileStream, StreamPaths
    from cepheid.spark.stream import RunningStream, Trigger
    from cepheid.streaming.spool import Spool

AUTO = "auto"


def ignore(running: RunningStream) -> None:
    """Nothing is done every second."""


QueryFiles = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="The file with the query; may be repeated. All queries share one pass. Their matches have the name of the "
        "file in the column `query`.",
    ),
]


@cli.with_shared_options
def stream_command(
    checkpoint: Annotated[
        str, typer.Option(metavar="DIR", help="The checkpoint directory of the stream; a restart resumes from it.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="The directory for matches, one file per batch.")
    ],
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="DIR[,OPTION=VALUE...]",
            help="The directory where event files arrive; may be repeated. Each may have options as in `run`: "
            "'logins,type=Login,unit=s'.",
        ),
    ] = None,
    sources: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The file that names sources, as in `detect`, in place of --input: a plan asks them for events.",
        ),
    ] = None,
    plan: Annotated[str | None, typer.Option(metavar="PLAN", help="With --sources: the plan, as in `detect`.")] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="LENGTH", help="With --sources: the longest latency of the plan.")
    ] = None,
    allow_gaps: Annotated[
        bool,
        typer.Option(
            "--allow-gaps", help="With --sources: go on where no source answers whether an event spoils a match."
        ),
    ] = False,
    query_file: QueryFiles = None,
    query: Annotated[str | None, typer.Option(metavar="TEXT", help="The text of the query.")] = None,
    dialect: cli.Dialect = "auto",
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
    events: cli.EventOptions = cli.EVENT_OPTIONS,
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
    adaptive: cli.Adaptive = False,
    max_matches: cli.MaxMatches = None,
    drop_keys: Annotated[
        bool,
        typer.Option(
            "--drop-keys", help="Ignore the events of a key with too many matches from then on, instead of stopping."
        ),
    ] = False,
    output_shape: cli.OutputShape = "events",
    detected_at: cli.DetectedAt = False,
    match_id: cli.MatchId = False,
    id_column: cli.IdColumn = None,
    moved: Annotated[
        bool, typer.Option("--moved", help="Confirm that the input or the checkpoint was moved, with all files in it.")
    ] = False,
    master: Annotated[str, typer.Option(help="The Spark master.")] = "local[*]",
) -> None:
    """Find the matches of queries in a stream of files, exactly once, until stopped.

    Events are buffered until the watermark has passed them, so that their order of arrival does not matter. Later
    events go to the late output. After a stop or a crash the same command resumes the stream.

    \b
    Example:
      cepheid stream --query-file theft.sase --input incoming/ --checkpoint checkpoint/ --output matches/"""
    from cepheid.deploy.deployment import Written
    from cepheid.engine.shapes import OutputOptions
    from cepheid.io.inputs import Input
    from cepheid.spark.file_stream import FileStream, StreamPaths
    from cepheid.spark.stream import Trigger

    with quiet(), Signals() as signals, ExitStack() as stack:
        written = cli.named_queries(query_file, query, dialect)
        require: Callable[[], None] = _nothing_is_required
        watched: _Watched | None = None
        if sources is not None:
            if input:
                raise InputProblem("there are two inputs", expected="--input DIR or --sources FILE")
            acquiring = _acquiring(written, sources, checkpoint, events, allow_gaps, plan=plan, deadline=deadline)
            stack.callback(_end, acquiring)
            inputs, events = [Input(str(acquiring.files.path))], _as_sources(events, acquiring)
            require = watched = _Watched(acquiring)
            if available_now:
                acquiring.run()
                require()
            else:
                acquiring.start()
        elif not input or plan is not None or deadline is not None or allow_gaps:
            what = "there is no input" if not input else "--plan, --deadline and --allow-gaps are of sources"
            raise InputProblem(what, expected="--input DIR or --sources FILE")
        else:
            inputs = [Input.parse(text) for text in input]
        paths = StreamPaths(tuple(item.path for item in inputs), checkpoint, output, late_output, reject_output, format)
        with report.progress("starting Spark"):
            opened = FileStream.open(
                {name: Written(name, text.parse()) for name, text in written.items()},
                inputs,
                paths,
                events.columns,
                events.run_options(adaptive=adaptive, max_matches=max_matches),
                is_several=len(written) > 1,
                watermark=watermark,
                files_per_batch=files_per_batch,
                schema=schema,
                max_ahead=max_ahead,
                wait=not available_now,
                on_wait=_Waiting(inputs, require),
                is_moved=moved,
                drops_keys=drop_keys,
                output=OutputOptions(output_shape, detected_at, match_id, id_column),
                master=master,
            )
        if watched is not None and opened is not None:
            watched.spool = opened.spool
            stack.callback(watched.remove)
        run_stream(
            opened,
            paths,
            inputs,
            events.columns,
            Trigger(available_now, interval, end_of_time),
            signals,
            on_tick=lambda _: require(),
        )


class _Waiting:
    """Says once that the stream waits for the first events."""

    def __init__(self, inputs: Sequence[Input], require: Callable[[], None]) -> None:
        self.inputs, self.require, self.is_said = inputs, require, False

    def __call__(self) -> None:
        if not self.is_said:
            names = " and ".join(f"`{item.name}`" for item in self.inputs)
            report.note(f"waiting for the first event in {names}: it settles the columns")
            self.is_said = True
        self.require()


def _nothing_is_required() -> None:
    """There are no sources that could fail."""


def _acquiring(
    written: Mapping[str, QueryText],
    sources: str,
    checkpoint: str,
    events: cli.EventOptions,
    allows_gaps: bool,
    plan: str | None,
    deadline: str | None,
) -> Acquiring:
    """The acquisition of a stream over sources. Its files are beside the checkpoint."""
    from cepheid.detection.acquired import AcquiredFiles, Acquiring
    from cepheid.detection.api import detection
    from cepheid.streaming.checkpoint import Checkpoint
    from cepheid.streaming.storage import local_directory

    files = AcquiredFiles(Path(f"{checkpoint.rstrip('/')}.acquired"))
    files.open()
    if files.has_removed and not Checkpoint(local_directory(checkpoint), checkpoint).has_started:
        raise InputProblem(
            f"the checkpoint `{shown(checkpoint, 200)}` is new, and files that another one has read were removed from "
            f"`{shown(str(files.path), 200)}`",
            hint="remove that directory as well: the sources are asked from the beginning",
        )
    found = detection(
        written,
        sources,
        events.columns,
        events.time_unit,
        cli.read_params(events.param),
        deadline=deadline,
        plan=plan,
        state=files.state,
    )
    return Acquiring(found, files, allows_gaps)


def _as_sources(events: cli.EventOptions, acquiring: Acquiring) -> cli.EventOptions:
    """The columns and the unit of the files are those of the sources."""
    columns = acquiring.detection.programs[0].asked.columns
    unit = acquiring.detection.run_options.time_unit
    return replace(
        events,
        type=None,
        type_column=columns.type,
        time_column=columns.time,
        start_column=columns.start,
        time_unit=unit,
    )


_REMOVE_EVERY = 10.0
"""Seconds between removals of files that have been read."""


class _Watched:
    """Says which gaps and changes of plans there are, once, raises what has ended the acquisition, and removes files
    that have been read."""

    def __init__(self, acquiring: Acquiring) -> None:
        self.acquiring, self.known, self.switches = acquiring, 0, 0
        self.spool: Spool | None = None
        self.removed = time.monotonic()

    def remove(self) -> None:
        if self.spool is not None:
            self.acquiring.files.remove(self.spool.committed())
            self.removed = time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self.removed > _REMOVE_EVERY:
            self.remove()
        for switch in self.acquiring.running.switches[self.switches :]:
            self.switches += 1
            report.note(str(switch))
        gaps = self.acquiring.running.gaps
        for gap in gaps[self.known :]:
            self.known += 1
            report.note(f"gap at {gap}: {gap.reason}", "yellow")
        self.acquiring.require()


def _end(acquiring: Acquiring) -> None:
    """Stops the acquisition, and says what it has received."""
    acquiring.stop()
    counts = acquiring.running.counts
    report.note(f"{counts.events:,} events received in {counts.answers:,} answers to {counts.requests:,} requests")


def run_stream(
    opened: FileStream | None,
    paths: StreamPaths,
    inputs: Sequence[Input],
    columns: Columns,
    trigger: Trigger,
    signals: Signals,
    *,
    on_tick: Callable[[RunningStream], None] = ignore,
) -> None:
    """Runs a stream until it ends or is stopped. `on_tick` is called about every second."""
    from cepheid.app.stream_view import View
    from cepheid.streaming.spool import Watch

    console = Console(stderr=True, highlight=False)
    if opened is None:
        rejects = list(_rejected(inputs, columns))
        what = "nothing was read or written"
        if rejects:
            what = f"{counted(len(rejects), 'row')} would be rejected, and nothing was written"
        names = " or ".join(f"`{name}`" for name in _without_events(inputs, columns))
        report.say(console, f"there is no event in {names} yet: {what}")
        for line in report.reject_lines(rejects, is_all=True):
            report.say(console, line)
        return
    plan = opened.stream.plan
    for note in plan.notes():
        report.say(console, note)
    with View(console, plan.time.clock) as view, signals.gentle():
        running = opened.start(trigger, view.on_progress)
        on_tick(running)
        with nullcontext() if trigger.available_now else Watch(opened.spool) as watch:

            def require() -> None:
                if watch is not None:
                    watch.require()
                on_tick(running)

            is_stopped = _wait(running, signals.stopped, require)
    if is_stopped:
        lines = _summary(running, paths)
        report.say(console, f"stopped; {'; '.join(lines)}; the same command resumes the stream")
        return
    for line in _summary(running, paths):
        report.say(console, line)


def _rejected(inputs: Sequence[Input], columns: Columns) -> Iterator[Reject]:
    """The rows of directories without events."""
    for source in filter(None, _sources(inputs, columns)):
        yield from source.rejects()


def _without_events(inputs: Sequence[Input], columns: Columns) -> list[str]:
    sources = _sources(inputs, columns)
    return [item.name for item, source in zip(inputs, sources, strict=True) if source is None or not source.count]


def _sources(inputs: Sequence[Input], columns: Columns) -> Iterator[Source | None]:
    """The events of each directory; None of one without files."""
    from cepheid.io.formats import known_format
    from cepheid.io.merged import open_inputs

    for item in inputs:
        has_files = any(item.format or known_format(file) is not None for file in Path(item.path).rglob("*"))
        yield open_inputs([item], columns) if has_files else None


def _wait(running: RunningStream, stopped: threading.Event, require: Callable[[], None]) -> bool:
    """Waits until the stream ends; stops it at a signal, and at an error raised by `require`. Returns whether a signal
    stopped it."""
    try:
        while not running.wait(1):
            if stopped.is_set():
                break
            require()
    except CepheidError:
        if not stopped.is_set():  # the signal has reached Spark's workers too
            running.stop()
            raise
    if stopped.is_set():
        running.stop()
    return stopped.is_set()


class Signals:
    """What an interrupt, a SIGTERM or a SIGHUP does: ends the process at once, before the stream has started; sets an
    event while it runs. An exception in the middle of a call to Spark would leave traces of both sides."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.is_gentle = False

    def __enter__(self) -> Signals:
        is_main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if is_main else ()
        # A signal that is ignored stays so: nohup relies on it.
        self.before = {n: signal.signal(n, self._stop) for n in numbers if signal.getsignal(n) is not signal.SIG_IGN}
        return self

    def __exit__(self, *problem: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    @contextmanager
    def gentle(self) -> Iterator[None]:
        """While the stream runs; a second signal ends the process."""
        self.is_gentle = True
        yield
        self.is_gentle = False

    def _stop(self, number: int, frame: object) -> None:
        if self.is_gentle and not self.stopped.is_set():
            self.stopped.set()
            return
        os.write(2, b"stopped; the same command resumes the stream\n")
        os._exit(128 + number)


@contextmanager
def quiet() -> Iterator[None]:
    """Py4J logs the traces of errors that the stream reports in one line."""
    log = logging.getLogger("py4j")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    logging.root.addFilter(_nothing)  # of the root logger itself, which Py4J uses too
    try:
        yield
    finally:
        log.setLevel(before)
        logging.root.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    return False


_MOST_NAMED = 20
"""The queries of a stream whose matches are counted one by one."""


def _summary(running: RunningStream, paths: Any) -> list[str]:
    totals = running.totals
    lines = [f"{name}: {count} in {paths.output}" for name, count in _counted(totals.matches)]
    if running.at_end is not None:
        lines += [f"{name}: {count} more at the end of the input" for name, count in _counted(running.at_end)]
    rows = f"{totals.used:,} used, {totals.rejects:,} rejected, {totals.late:,} late"
    lines.append(f"{counted(totals.batches, 'batch', 'batches')}; {counted(totals.read, 'row')} read: {rows}")
    lines += [f"{name}: the plan of a bucket changed {switch}" for name, switch in totals.switches]
    lines += totals.dropped
    if totals.late:
        lines.append(f"late events: {paths.late}")
    if totals.rejects:
        lines.append(f"{counted(totals.rejects, 'row')} rejected: {paths.rejects}")
    return lines


def _counted(matches: Mapping[str, int]) -> list[tuple[str, str]]:
    """The matches of each query, or of all if there are many."""
    if len(matches) > _MOST_NAMED:
        matches = {counted(len(matches), "query", "queries"): sum(matches.values())}
    return [(name, counted(number, "match", "matches")) for name, number in matches.items()]
