"""A stream from a directory of files to directories of files, as the command line runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cepheid.engine.prepare import RunOptions
from cepheid.engine.query_text import declared_types
from cepheid.errors import InputProblem, listing, shown
from cepheid.events import Schema
from cepheid.io.inputs import Columns
from cepheid.io.sinks import make_directory
from cepheid.io.stream_files import StreamFiles
from cepheid.pattern import Query
from cepheid.spark.hadoop import open_directory
from cepheid.spark.session import session
from cepheid.spark.stream import RunningStream, SparkStream, Trigger, buckets_of, tasks_of
from cepheid.streaming.checkpoint import Checkpoint
from cepheid.streaming.delivery import Sinks
from cepheid.streaming.metrics import Metrics
from cepheid.streaming.plan import StreamSource, plan_stream
from cepheid.streaming.sinks import FORMATS, FileSink
from cepheid.streaming.spool import PAUSE, Spool
from cepheid.streaming.storage import LocalDirectory

AUTO = "auto"

_SETTINGS = {
    # Workers read the files and evaluate the queries: the JVM has too little to do for its optimizing compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    # The driver writes the matches, whatever their number.
    "spark.driver.maxResultSize": "0",
}


@dataclass(frozen=True, slots=True)
class StreamPaths:
    """The directories of a stream. By default, late events and rejects go beside the output."""

    input: str
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

    def matches(self, name: str, queries: int) -> str:
        return self.output if queries == 1 else f"{self.output.rstrip('/')}/{name}"

    def sinks(self, queries: Sequence[str], as_lines: bool, session: SparkSession) -> Sinks:
        format = ("jsonl" if as_lines else "parquet") if self.format == AUTO else self.format
        matches = {name: open_directory(self.matches(name, len(queries)), session) for name in queries}
        return Sinks(
            {name: [FileSink(directory, format)] for name, directory in matches.items()},
            [FileSink(open_directory(self.late, session), format)],
            [FileSink(open_directory(self.rejects, session), "jsonl")],
        )

    def require_distinct(self) -> None:
        """A stream that reads its own output never ends."""
        named = {"input": self.input, "checkpoint": self.checkpoint, "output": self.output, "late output": self.late}
        seen: dict[str, str] = {}
        for what, path in {**named, "reject output": self.rejects}.items():
            other = seen.setdefault(path.rstrip("/"), what)
            if other != what:
                raise InputProblem(f"`{shown(path, 200)}` is both the {other} and the {what}")


@dataclass(frozen=True, slots=True)
class FileStream:
    """A stream over a directory in which files appear."""

    stream: SparkStream
    files: StreamFiles
    spool: Spool

    @classmethod
    def open(
        cls,
        queries: Mapping[str, Query],
        paths: StreamPaths,
        columns: Columns,
        options: RunOptions,
        *,
        watermark: str,
        files_per_batch: int | None,
        schema: str | None = None,
        max_ahead: str | None = None,
        wait: bool = True,
        master: str = "local[*]",
    ) -> FileStream | None:
        """`schema` declares columns (see `StreamFiles.first`). A directory without events settles no schema: the stream
        waits for the first one, or is None without `wait`."""
        paths.require_distinct()
        if not Path(paths.input).is_dir():
            raise InputProblem(
                f"`{shown(paths.input, 200)}` is not a directory",
                expected="a directory in which files of events appear",
            )
        if paths.format not in (AUTO, *FORMATS):
            raise InputProblem(
                f"`{shown(paths.format)}` is not a format", expected=f"one of {listing((AUTO, *FORMATS))}"
            )
        spark = session(master, _SETTINGS)
        checkpoint = Checkpoint(open_directory(paths.checkpoint, spark), paths.checkpoint)
        while (files := _files(queries, paths, checkpoint, columns, options.time_unit, schema)) is None:
            if not wait:
                return None
            time.sleep(PAUSE)
        buckets = buckets_of(checkpoint, tasks_of(spark, None))
        source = StreamSource.of_files(files, queries.values())
        plan = plan_stream(queries, source, watermark, options, order=files.order, buckets=buckets, max_ahead=max_ahead)
        own = checkpoint.own
        if not isinstance(own, LocalDirectory):
            raise InputProblem("the checkpoint of a directory of files must be a directory as well")
        slips = (own.path / "slips").absolute()
        make_directory(slips)
        frame = _slip_frame(spark, slips, files_per_batch)
        stream = SparkStream(plan, frame, checkpoint, paths.sinks(list(queries), files.raw, spark))
        return cls(stream, files, Spool(Path(paths.input).absolute(), slips, files.format))

    def start(self, trigger: Trigger, on_progress: Callable[[Metrics], None] | None = None) -> RunningStream:
        def prepare_input() -> None:
            """Only the owner of the checkpoint may write slips."""
            self.spool.open()
            self.spool.take_in()

        return self.stream.start(trigger, on_progress, self.files.description(), prepare_input)


def _files(
    queries: Mapping[str, Query],
    paths: StreamPaths,
    checkpoint: Checkpoint,
    columns: Columns,
    time_unit: str | None,
    schema: str | None,
) -> StreamFiles | None:
    known = checkpoint.description()
    if known is not None and known.get("input"):
        files = StreamFiles.described(paths.input, columns, time_unit, known["input"])
        if files.raw and paths.format == "parquet":
            raise InputProblem(
                "the stream of this checkpoint writes JSON Lines", hint="leave --format out, or use a new checkpoint"
            )
        return files
    declared = {name: of for query in queries.values() for name, of in declared_types(query).types.items()}
    return StreamFiles.first(
        paths.input,
        columns,
        time_unit,
        Schema(declared),
        raw=paths.format != "parquet",
        queries=list(queries.values()),
        schema=schema,
    )


def _slip_frame(session: SparkSession, slips: Path, files_per_batch: int | None) -> DataFrame:
    """The stream of slips, each of which names a file."""
    reader = session.readStream.format("text")
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    return reader.load(str(slips))
