"""A stream from a directory of files to directories of files, as the command line runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cepheid.engine.prepare import RunOptions
from cepheid.engine.query_text import declared_types
from cepheid.errors import InputProblem, listing, shown
from cepheid.events import Schema
from cepheid.io.inputs import Columns
from cepheid.io.sinks import make_directory
from cepheid.io.stream_files import StreamFiles
from cepheid.optimize.adapt import policy_of
from cepheid.pattern import Query
from cepheid.spark.hadoop import open_directory
from cepheid.spark.session import session
from cepheid.spark.stream import RunningStream, SparkStream, Trigger, buckets_of, tasks_of
from cepheid.streaming.checkpoint import Checkpoint
from cepheid.streaming.delivery import Sinks
from cepheid.streaming.metrics import Metrics
from cepheid.streaming.plan import StreamPlan, file_shape, plan_stream
from cepheid.streaming.sinks import FORMATS, FileSink
from cepheid.streaming.spool import Spool
from cepheid.streaming.storage import LocalDirectory

AUTO = "auto"

_SETTINGS = {
    # The workers read the files and do the work: what is left to the JVM is not worth its optimising compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    # Matches come to the driver, which writes them, whatever their number.
    "spark.driver.maxResultSize": "0",
}


@dataclass(frozen=True, slots=True)
class Directories:
    """Where everything is. What is not named lies beside the output."""

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

    def require_distinct(self) -> None:
        """A stream that read what it wrote would never end."""
        named = {"input": self.input, "checkpoint": self.checkpoint, "output": self.output, "late output": self.late}
        seen: dict[str, str] = {}
        for what, path in {**named, "reject output": self.rejects}.items():
            other = seen.setdefault(path.rstrip("/"), what)
            if other != what:
                raise InputProblem(f"`{shown(path, 200)}` is both the {other} and the {what}")


@dataclass(frozen=True, slots=True)
class DirectoryStream:
    plan: StreamPlan
    stream: SparkStream
    input: StreamFiles
    spool: Spool

    @classmethod
    def of(
        cls,
        queries: Mapping[str, Query],
        places: Directories,
        *,
        watermark: str,
        columns: tuple[str, str],
        time_unit: str | None,
        params: Mapping[str, Any],
        files_per_batch: int | None,
        master: str = "local[*]",
        adaptive: bool = False,
    ) -> DirectoryStream:
        places.require_distinct()
        if not Path(places.input).is_dir():
            raise InputProblem(
                f"`{shown(places.input, 200)}` is not a directory",
                expected="a directory in which files of events appear",
            )
        if places.format not in (AUTO, *FORMATS):
            raise InputProblem(f"`{shown(places.format)}` is no format", expected=f"one of {listing((AUTO, *FORMATS))}")
        spark = session(master, _SETTINGS)
        checkpoint = Checkpoint(open_directory(places.checkpoint, spark), places.checkpoint)
        found = _input(queries, places, checkpoint, Columns(*columns), time_unit)
        wishes = RunOptions(params, adaptive=policy_of(adaptive))
        buckets = buckets_of(checkpoint, tasks_of(spark, None))
        plan = plan_stream(queries, file_shape(found), watermark, wishes=wishes, order=found.order, buckets=buckets)
        format = ("jsonl" if found.raw else "parquet") if places.format == AUTO else places.format
        count = len(queries)
        sinks = Sinks(
            {name: [FileSink(open_directory(places.matches(name, count), spark), format)] for name in queries},
            [FileSink(open_directory(places.late, spark), format)],
            [FileSink(open_directory(places.rejects, spark), "jsonl")],
        )
        own = checkpoint.own
        if not isinstance(own, LocalDirectory):
            raise InputProblem("the checkpoint of a directory of files must be a directory as well")
        slips = (own.path / "slips").absolute()
        spool = Spool(Path(places.input).absolute(), slips, found.format)
        make_directory(slips)
        frame = _slip_frame(spark, slips, files_per_batch)
        return cls(plan, SparkStream(plan, frame, checkpoint, sinks), found, spool)

    def start(self, trigger: Trigger, on_progress: Callable[[Metrics], None] | None = None) -> RunningStream:
        def hand_over() -> None:
            """Only the owner of the checkpoint may write slips."""
            self.spool.open()
            self.spool.take_in()

        return self.stream.start(trigger, on_progress, self.input.description(), hand_over)


def _input(
    queries: Mapping[str, Query],
    places: Directories,
    checkpoint: Checkpoint,
    columns: Columns,
    time_unit: str | None,
) -> StreamFiles:
    known = checkpoint.description()
    if known is not None and known.get("input"):
        found = StreamFiles.described(places.input, columns, time_unit, known["input"])
        if found.raw and places.format == "parquet":
            raise InputProblem(
                "the stream of this checkpoint writes JSON Lines", hint="leave --format out, or use a new checkpoint"
            )
        return found
    raw = places.format != "parquet"
    declared = {name: of for query in queries.values() for name, of in declared_types(query).types.items()}
    return StreamFiles.first(places.input, columns, time_unit, Schema(declared), raw)


def _slip_frame(session: SparkSession, slips: Path, files_per_batch: int | None) -> DataFrame:
    """The stream of slips, each of which names a file."""
    reader = session.readStream.format("text")
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    return reader.load(str(slips))
