"""A stream from directories of files to directories of files, as the command line runs it."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import java_gateway
from pyspark.sql import DataFrame, SparkSession

from cepheid.deploy.deployment import Written, representatives
from cepheid.engine.prepare import RunOptions
from cepheid.engine.query_text import declared_types
from cepheid.engine.shapes import EVENTS, EVENTS_ONLY, OutputOptions
from cepheid.errors import CepheidError, InputProblem, NotAvailable, listing, shown
from cepheid.events import Schema
from cepheid.io.delta import is_delta
from cepheid.io.inputs import Columns, Input
from cepheid.io.sinks import make_directory
from cepheid.io.stream_files import StreamFiles
from cepheid.io.stream_inputs import StreamInputs, require_apart
from cepheid.pattern import Query
from cepheid.spark.hadoop import open_directory
from cepheid.spark.session import session
from cepheid.spark.stream import RunningStream, SparkStream, Trigger, Writer, buckets_of, tasks_of
from cepheid.spark.workers import require_jvm
from cepheid.streaming.checkpoint import DIRECTORY, OWN_DIRECTORY, Checkpoint
from cepheid.streaming.delivery import Sinks
from cepheid.streaming.metrics import Metrics
from cepheid.streaming.planning import StreamOptions, StreamSource
from cepheid.streaming.sinks import FORMATS, FileSink, Hook, HookSink
from cepheid.streaming.slots import GREEDY
from cepheid.streaming.source_log import SourceLog
from cepheid.streaming.spool import PAUSE, SLIPS, Spool, Watch, moved
from cepheid.streaming.storage import is_local, local_directory
from cepheid.streaming.versions import Planner

AUTO = "auto"
_WILDCARD = re.compile(r"[\\*?\[\]{}]")
"""Characters that Spark takes for patterns in the paths that it reads, of single files too."""

_SETTINGS = {
    # Workers read the files and evaluate the queries: the JVM has too little to do for its optimizing compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    # The driver writes the matches, whatever their number.
    "spark.driver.maxResultSize": "0",
    # The stream reports errors in one line. Spark would add its traces.
    "spark.log.level": "OFF",
}


@dataclass(frozen=True, slots=True)
class StreamPaths:
    """The directories of a stream. By default, late events and rejects go beside the output."""

    inputs: tuple[str, ...]
    checkpoint: str
    output: str
    late_output: str | None = None
    reject_output: str | None = None
    format: str = AUTO

    @property
    def late(self) -> str:
        return self.late_output or f"{self.output.rstrip('/')}.late"

    @property
    def rejects(self) -> str:
        return self.reject_output or f"{self.output.rstrip('/')}.rejects"

    def sinks(self, as_lines: bool, session: SparkSession) -> Sinks:
        format = ("jsonl" if as_lines else "parquet") if self.format == AUTO else self.format
        return Sinks(
            [FileSink(open_directory(self.output, session), format)],
            [FileSink(open_directory(self.late, session), format)],
            [FileSink(open_directory(self.rejects, session), "jsonl")],
        )

    def require_distinct(self) -> None:
        """A stream must not read its own output, nor write two outputs to one directory."""
        outputs = {"output": self.output, "late output": self.late, "reject output": self.rejects}
        require_apart(self.inputs)
        inputs = [Path(path).resolve() for path in self.inputs]
        seen = {str(input): "input" for input in inputs}
        for what, path in {"checkpoint": self.checkpoint, **outputs}.items():
            at = str(local_directory(path).path) if is_local(path) else path.rstrip("/")
            other = seen.setdefault(at, what)
            if other != what:
                raise InputProblem(f"`{shown(path, 200)}` is both the {other} and the {what}")
            if not is_local(path):
                continue
            nested = [(Path(at), input, what, "input") for input in inputs]
            nested += [(input, Path(at), "input", what) for input in inputs]
            for inner, outer, one, two in nested:
                if inner.is_relative_to(outer) and not (what == "checkpoint" and _is_hidden(inner, outer)):
                    raise InputProblem(
                        f"the {one} `{shown(str(inner), 200)}` is inside the {two} `{shown(str(outer), 200)}`",
                        expected="an input directory apart from the checkpoint and the outputs",
                    )


def _is_hidden(inner: Path, outer: Path) -> bool:
    """Whether a directory lies in one that a stream over `outer` does not read."""
    return any(part.startswith(("_", ".")) for part in inner.relative_to(outer).parts)


@dataclass(frozen=True, slots=True)
class FileStream:
    """A stream over directories in which files appear."""

    stream: SparkStream
    files: StreamFiles | StreamInputs
    spool: Spool
    refused: Mapping[str, CepheidError] = field(default_factory=dict)
    """The queries that do not run, each with the reason."""

    @classmethod
    def open(
        cls,
        queries: Mapping[str, Written],
        inputs: Sequence[Input],
        paths: StreamPaths,
        columns: Columns,
        options: RunOptions,
        *,
        is_several: bool = False,
        follows: bool = False,
        watermark: str | int,
        files_per_batch: int | None,
        schema: str | None = None,
        max_ahead: str | int | None = None,
        wait: bool = True,
        on_wait: Callable[[], None] = lambda: None,
        is_moved: bool = False,
        drops_keys: bool = False,
        output: OutputOptions = EVENTS_ONLY,
        placement: str = GREEDY,
        master: str = "local[*]",
    ) -> FileStream | None:
        """`inputs` are directories with options of their own; `columns` and `options` hold where they have none.
        `schema` declares columns (see `StreamFiles.first`). A directory without events settles no schema: the stream
        waits for the first one and calls `on_wait` meanwhile, or is None without `wait`. `is_moved` confirms that an
        input or the checkpoint was moved with its files since the last start. With `follows`, a query that is refused
        does not stop the others, and a checkpoint goes on with the queries that it has, whatever `queries` are now."""
        paths.require_distinct()
        for path in paths.inputs:
            _require_directory(path)
        if paths.format not in (AUTO, *FORMATS):
            raise InputProblem(
                f"`{shown(paths.format)}` is not a format", expected=f"one of {listing((AUTO, *FORMATS))}"
            )
        if not is_local(paths.checkpoint):
            raise InputProblem("the checkpoint of a directory of files must be a directory as well")
        checkpoint = Checkpoint(local_directory(paths.checkpoint), paths.checkpoint)
        wildcard = _WILDCARD.search(checkpoint.location)
        if wildcard is not None:
            raise InputProblem(
                f"the path `{shown(checkpoint.location, 200)}` of the checkpoint has `{wildcard[0]}`, "
                "which Spark takes for a wildcard",
                hint="use another path; a checkpoint that exists may be moved, which --moved confirms",
            )
        checkpoint.require_intact()
        log = SourceLog(checkpoint)
        own = local_directory(paths.checkpoint).path / OWN_DIRECTORY
        before = _require_place(paths, checkpoint, log, own / SLIPS, is_moved)
        with _shielded_gateway():
            spark = session(master, _SETTINGS)
        require_jvm(spark, "streams")
        # Rows of several queries have the name of theirs, so that they are not lines of the input.
        as_lines = paths.format != "parquet" and output.shape == EVENTS and not is_several
        examples = list(representatives(queries)) if is_several else [written.query for written in queries.values()]
        # Queries that are added later may read other columns.
        columns = replace(columns, read=None if is_several else output.names_read(examples))
        opening = partial(_files, examples, inputs, paths, checkpoint, columns, options.time_unit, schema, as_lines)
        while (files := opening()) is None:
            if not wait:
                return None
            on_wait()
            time.sleep(PAUSE)
        options = replace(options, time_unit=options.time_unit or files.layout.clock.unit)
        buckets = buckets_of(checkpoint, tasks_of(spark, None))
        source = StreamSource.of_files(files, examples)
        chosen = StreamOptions(
            watermark, options, tuple(files.order), buckets, max_ahead, drops_keys, output, placement
        )
        planner, saved = Planner(source, chosen), checkpoint.versions()
        refused: Mapping[str, CepheidError] = {}
        if is_several and saved and follows:
            versions = planner.resumed(saved)
        elif is_several:
            versions, refused = planner.started(queries, saved)
        else:
            versions = [(0, planner.plan(queries, is_several=False)[0])]
        for error in refused.values() if not follows else ():
            raise error
        spool = Spool(tuple(Path(path).resolve() for path in paths.inputs), own, log, before)
        make_directory(spool.directory)
        frame = _slip_frame(spark, spool.directory, files_per_batch)
        sinks = paths.sinks(files.raw or (files.is_text and not files.raw and paths.format == AUTO), spark)
        stream = SparkStream(versions[-1][1], frame, checkpoint, sinks, is_moved=is_moved)
        if is_several:
            stream = replace(stream, planner=planner).with_versions(versions)
        return cls(stream, files, spool, refused)

    def observed(
        self, on_match: Hook | None, on_late: Hook | None, writer: Writer | None, follows_rates: bool
    ) -> FileStream:
        """Calls functions and a writer of Spark with the matches, besides writing them to files."""
        sinks = self.stream.sinks
        matches = sinks.matches if on_match is None else [*sinks.matches, HookSink(on_match)]
        late = sinks.late if on_late is None else [*sinks.late, HookSink(on_late)]
        writers = [*self.stream.writers, *([] if writer is None else [writer])]
        moves = follows_rates and self.stream.planner is not None
        stream = replace(self.stream, sinks=Sinks(matches, late, sinks.rejects), writers=writers, moves=moves)
        return replace(self, stream=stream)

    def start(self, trigger: Trigger, on_progress: Callable[[Metrics], None] | None = None) -> RunningStream:
        checkpoint, spool = self.stream.checkpoint, self.spool

        def prepare_input() -> None:
            """Only the owner of the checkpoint may write slips."""
            spool.open(is_new=not checkpoint.has_started)
            if self.stream.is_moved:
                spool.move()
            spool.take_in()

        described = {**self.files.description(), DIRECTORY: _named(spool.inputs)}
        return self.stream.start(trigger, on_progress, described, prepare_input)

    def followed(self, trigger: Trigger, on_progress: Callable[[Metrics], None] | None = None) -> RunningStream:
        """Starts the stream, which looks for new files by itself until it ends."""
        running = self.start(trigger, on_progress)
        if not trigger.available_now:
            running.watch = Watch(self.spool).start()
        return running


@contextmanager
def _shielded_gateway() -> Iterator[None]:
    """Lets the JVM of a new session ignore the signals that stop a stream, which a terminal or a service manager sends
    to all processes: the stream stops by itself, and the JVM ends with this process. Keeps PySpark from handling an
    interrupt, which it does in the main thread."""
    gateway: Any = java_gateway
    launch, before = gateway.Popen, signal.getsignal(signal.SIGINT)

    def ignore_signals() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def launch_shielded(command: Any, **options: Any) -> Any:
        return launch(command, **{**options, "preexec_fn": ignore_signals})

    gateway.Popen = launch_shielded
    try:
        yield
    finally:
        gateway.Popen = launch
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _require_directory(path: str) -> None:
    if not Path(path).is_dir():
        raise InputProblem(
            f"`{shown(path, 200)}` is not a directory", expected="a directory in which files of events appear"
        )
    if is_delta(path):
        raise NotAvailable(
            f"the Delta table `{shown(path, 200)}` as a stream of files: it rewrites its files",
            hint="stream it with Spark: cepheid.stream over spark.readStream.format('delta').load(...)",
        )


def _named(inputs: Sequence[Path]) -> str | list[str]:
    """Where the inputs are, in the description: a path, or several."""
    paths = [str(path) for path in inputs]
    return paths[0] if len(paths) == 1 else paths


def _require_place(
    paths: StreamPaths, checkpoint: Checkpoint, log: SourceLog, slips: Path, is_moved: bool
) -> tuple[Path, ...]:
    """Refuses an input or a checkpoint that is not where it was, unless the user confirms it; returns where the inputs
    were, if one was elsewhere."""
    known = checkpoint.description()
    if known is None:
        return ()
    log.require_intact()
    written = log.location()
    if written is not None and written.resolve() != slips and not is_moved:
        raise moved("checkpoint", slips.parent.parent, written.parent.parent)
    inputs, named = [Path(path).resolve() for path in paths.inputs], (known.get("input") or {}).get(DIRECTORY)
    if named is None:
        return ()
    before = [Path(path).resolve() for path in ([named] if isinstance(named, str) else named)]
    if len(before) != len(inputs):
        raise InputProblem(
            f"the stream of this checkpoint reads {len(before)} input{'s' * (len(before) > 1)}: "
            f"{', '.join(f'`{shown(str(path), 200)}`' for path in before)}; now there are {len(inputs)}",
            expected="the same inputs in the same order",
            hint="another set of inputs is another stream: use a new checkpoint and a new output",
        )
    for now, then in zip(inputs, before, strict=True):
        if now != then and sorted(inputs) == sorted(before):
            raise InputProblem(
                "the inputs are in another order than at the last start",
                expected=", ".join(f"`{shown(str(path), 200)}`" for path in before),
            )
        if now != then and not is_moved:
            raise moved("input", now, then)
    return () if inputs == before else tuple(before)


def _files(
    queries: Sequence[Query],
    inputs: Sequence[Input],
    paths: StreamPaths,
    checkpoint: Checkpoint,
    columns: Columns,
    time_unit: str | None,
    schema: str | None,
    as_lines: bool,
) -> StreamFiles | StreamInputs | None:
    known = checkpoint.description()
    first = inputs[0].columns(columns)
    unit = first.unit or time_unit
    if known is not None and known.get("input"):
        try:
            files: StreamFiles | StreamInputs
            if len(inputs) > 1:
                return StreamInputs.described(inputs, columns, time_unit, known["input"])
            unit = unit or known["stream"].get("time unit")  # also one that was declared at the first start only
            files = StreamFiles.described(inputs[0].path, first, unit, known["input"], inputs[0].format)
        except (LookupError, TypeError, ValueError, pa.ArrowException) as problem:
            raise checkpoint.damaged_description("it does not describe the input") from problem
        if files.raw and paths.format == "parquet":
            raise InputProblem(
                "the stream of this checkpoint writes JSON Lines", hint="leave --format out, or use a new checkpoint"
            )
        return files
    declared = Schema({name: of for query in queries for name, of in declared_types(query).types.items()})
    if len(inputs) > 1:
        return StreamInputs.first(inputs, columns, time_unit, declared, queries=queries, schema=schema)
    return StreamFiles.first(
        inputs[0].path, first, unit, declared, raw=as_lines, queries=queries, schema=schema, named=inputs[0].format
    )


def _slip_frame(session: SparkSession, slips: Path, files_per_batch: int | None) -> DataFrame:
    """The stream of slips, each of which names a file. Slips have names of their own and ascending times, so Spark need
    not remember the older ones."""
    reader = session.readStream.format("text").option("fileNameOnly", True).option("maxFileAge", "1h")
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    return reader.load(str(slips))
