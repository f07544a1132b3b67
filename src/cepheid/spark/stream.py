"""Queries over a Spark stream, exactly once from source to sink.

The rows of a micro-batch are packed into one block of Arrow bytes for each bucket of keys. A stateful operator keeps
one compressed state for each bucket in Spark's state store. Its output comes to the driver as blocks and goes to the
sinks under the name of the batch. Spark owns versions, recovery and the watermark; lateness is decided here, so that no
late event is lost.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

from cepheid.engine.shapes import EVENTS, FLAT
from cepheid.errors import CepheidError
from cepheid.spark.hadoop import open_directory
from cepheid.spark.progress import ProgressReporter, last_batch
from cepheid.spark.session import ARROW_BATCHES, UNCOMPARED, WITHOUT_COMMANDS
from cepheid.spark.shapes import flat, long
from cepheid.spark.stream_worker import NOW, OUTPUT, PACKED, STATE, Drain, Pack, Step, Unpack
from cepheid.spark.workers import require_integer_offsets
from cepheid.spark.writers import BatchDirectories
from cepheid.streaming.checkpoint import DIRECTORY, OUTPUTS, Checkpoint, Ownership
from cepheid.streaming.delivery import LATE, MATCHES, REJECTS, STATES, OutputRow, Sinks, count
from cepheid.streaming.failures import failure
from cepheid.streaming.inspection import StreamState, decoded
from cepheid.streaming.metrics import Metrics, Totals
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.sinks import END_OF_TIME_NAME, batch_name
from cepheid.streaming.storage import Directory, LocalDirectory

WATERMARK_DELAY = "spark.watermarkDelayMs"
"""The metadata that marks the column of event time. Internal to Spark, so held by a test."""

OBSERVED = "cepheid"
"""The name of Cepheid's figures among the observed metrics of a batch, for Spark's own listeners."""

Writer = Callable[[DataFrame, int], None]
"""Any Spark batch writer: called with the matches of a batch as a DataFrame, and the batch's number. After a crash it
may be called again with the same number and the same matches, and must then replace what it wrote."""

_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling collect: java.lang.InterruptedException"
"""The text by which Spark knows that a batch failed because its stream was stopped."""
_PLAIN = re.compile(r"[\w./:&+,;'$=@!~()*-]*", re.ASCII)
"""Paths whose characters no URI encodes."""

_SETTINGS: Mapping[str, str] = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.minBatchesToRetain": "5",
    **ARROW_BATCHES,
}


@dataclass(frozen=True, slots=True)
class Trigger:
    """When batches run: all available input once, or one batch every interval (`"10 seconds"`)."""

    available_now: bool = False
    interval: str | None = None

    def to_spark(self) -> dict[str, Any]:
        return {"availableNow": True} if self.available_now else {"processingTime": self.interval or "0 seconds"}


def tasks_of(session: SparkSession, partitions: int | None) -> int:
    return partitions or session.sparkContext.defaultParallelism


def buckets_of(checkpoint: Checkpoint, tasks: int) -> int:
    """One bucket for each task, and for an existing checkpoint as many as it has. More would cost each batch more calls
    and divide nothing further: Spark fixes the number of tasks for the lifetime of a checkpoint."""
    known = checkpoint.description()
    return tasks if known is None else int(known["stream"]["buckets"])


@dataclass(frozen=True, slots=True)
class SparkStream:
    """A planned stream over a streaming DataFrame, ready to start."""

    plan: StreamPlan
    frame: DataFrame
    checkpoint: Checkpoint
    sinks: Sinks
    writers: Mapping[str, Sequence[Writer]] = field(default_factory=dict)
    """Spark writers of the matches, by query name."""
    partitions: int | None = None
    is_moved: bool = False
    """Whether the user confirms that the checkpoint or the input was moved."""

    @property
    def session(self) -> SparkSession:
        return self.frame.sparkSession

    def start(
        self,
        trigger: Trigger,
        on_progress: Callable[[Metrics], None] | None = None,
        input: Mapping[str, Any] | None = None,
        prepare_input: Callable[[], None] = lambda: None,
    ) -> RunningStream:
        """`on_progress` is called with the metrics after every batch. `input` describes the input for the next start on
        this checkpoint; `prepare_input` is called once this process owns the checkpoint."""
        require_integer_offsets()
        ownership = self.checkpoint.take()
        try:
            self.checkpoint.require_intact()
            outputs, described = self._directories(), input or {}
            if not self.is_moved:
                self.checkpoint.require_outputs(outputs)
            more = {"input": described, OUTPUTS: [directory.name for directory in outputs]}
            self.checkpoint.settle(self.plan.description(), {**more, **self.plan.for_inspection()})
            prepare_input()
            self.checkpoint.record(described.get(DIRECTORY), outputs)
            self.sinks.forget_matches(END_OF_TIME_NAME)
            self._remove_partial_offsets()
            deliver_batch = _Deliver(self, ownership, Totals(matches={query.name: 0 for query in self.plan.queries}))
            with self._settings(), self.failures():
                query = (
                    self.outputs()
                    .writeStream.outputMode("append")
                    .option("checkpointLocation", self.checkpoint.location)
                    .foreachBatch(deliver_batch)
                    .trigger(**trigger.to_spark())
                    .start()
                )
        except BaseException:
            ownership.release()
            raise
        reporter = None if on_progress is None else ProgressReporter(query, deliver_batch.totals, on_progress)
        if reporter is not None:
            reporter.start()
        return RunningStream(self, query, deliver_batch, ownership, reporter)

    def _directories(self) -> list[Directory]:
        """The directories of all outputs."""
        writers = (writer for writers in self.writers.values() for writer in writers)
        return [*self.sinks.directories(), *(w.directory for w in writers if isinstance(w, BatchDirectories))]

    # --- the pipeline -------------------------------------------------------------------------------------------------

    def outputs(self) -> DataFrame:
        """The output of the buckets, as rows of (kind, query, number, block)."""
        plan = self.plan
        clock = [] if plan.ahead is None else [f"unix_micros(current_timestamp()) AS `{NOW}`"]
        packed = self.frame.selectExpr(*plan.reader.selected(), *clock).mapInArrow(Pack(plan), PACKED)
        marked = packed.withWatermark("at", f"{plan.delay} milliseconds")
        # Spark would drop blocks whose latest event is late. Without a time none is, and Spark still lets time pass.
        unseen = F.when(F.lit(False), F.col("at")).alias("at", metadata={WATERMARK_DELAY: plan.delay})
        blocks = marked.select("grouped", "kind", "ahead", "block", unseen)
        step = Step(plan, plan.fingerprint())
        # Every batch has a block for every bucket, so time passes in all of them. To wake buckets by a timeout, Spark
        # would call each task's Python a second time.
        outputs = blocks.groupBy("grouped").applyInPandasWithState(
            step, OUTPUT, STATE, "append", GroupStateTimeout.NoTimeout
        )
        return outputs.observe(OBSERVED, *_observed())

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """Spark reads these settings when a stream starts; afterwards the session has its own again."""
        conf = self.session.conf
        wanted = {**_SETTINGS, "spark.sql.shuffle.partitions": str(tasks_of(self.session, self.partitions))}
        if self.frame._jdf.queryExecution().analyzed().deterministic():
            wanted |= UNCOMPARED
        if isinstance(self.checkpoint.directory, LocalDirectory):
            wanted |= {name: value for name, value in WITHOUT_COMMANDS.items() if conf.get(name, None) is None}
        before = {name: conf.get(name, None) for name in wanted}
        for name, value in wanted.items():
            conf.set(name, value)
        try:
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    conf.unset(name)
                else:
                    conf.set(name, old)

    def _remove_partial_offsets(self) -> None:
        """A driver that is killed while it writes its first offset leaves a hidden file, which Spark would take for
        that of another stream. The checkpoint has been settled as ours before."""
        offsets = self.checkpoint.directory.inside("offsets")
        if not offsets.names():
            for name in offsets.hidden():
                offsets.remove(name)

    # --- the end of time ----------------------------------------------------------------------------------------------

    def end_time(self) -> dict[str, int]:
        """Writes the output that would follow if no event came any more, under a name of its own; returns the number of
        matches of each query. The state does not change, and when the stream resumes this output is removed."""
        with self.failures(), state_frame(self.checkpoint, self.session) as states:
            if states is None and not self.plan.summing:
                return {query.name: 0 for query in self.plan.queries}
            drain = Drain(self.plan, self.plan.fingerprint())
            rows = [] if states is None else _collected(states.mapInArrow(drain, OUTPUT))
            rows += drain.without_events({row.query for row in rows if row.kind == MATCHES})
        return self.sinks.deliver(self.plan, END_OF_TIME_NAME, rows)

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turns an error of Spark into one that says what to do."""
        with _failures(self.checkpoint, self.session):
            yield


@contextmanager
def _failures(checkpoint: Checkpoint, session: SparkSession) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as problem:
        raise failure(str(problem), checkpoint.path, lambda: _damaged_state(checkpoint.location, session)) from problem


@contextmanager
def state_frame(checkpoint: Checkpoint, session: SparkSession) -> Iterator[DataFrame | None]:
    """The state of each bucket after the last completed batch; None before the first."""
    if not checkpoint.directory.inside("commits").names():
        yield None
        return
    with ExitStack() as stack:
        location = checkpoint.location
        if isinstance(checkpoint.directory, LocalDirectory) and not _PLAIN.fullmatch(location):
            # Spark's reader of states encodes the characters of a path twice. It reads through a link.
            link = Path(stack.enter_context(TemporaryDirectory(prefix="cepheid-"))) / "checkpoint"
            link.symlink_to(location)
            location = str(link)
        yield session.read.format("statestore").load(location).select("value.groupState.s")


def read_state(path: str, session: SparkSession) -> StreamState:
    """The state of a stream after the last completed batch, read from its checkpoint."""
    checkpoint = Checkpoint(open_directory(path, session), path)
    checkpoint.require_intact()
    with _failures(checkpoint, session), state_frame(checkpoint, session) as states:
        return decoded(checkpoint, () if states is None else (bytes(row["s"]) for row in states.toLocalIterator()))


@dataclass(slots=True)
class RunningStream:
    """A stream that was started."""

    stream: SparkStream
    query: StreamingQuery
    delivery: _Deliver
    ownership: Ownership
    """The lock on the checkpoint."""
    reporter: ProgressReporter | None

    @property
    def totals(self) -> Totals:
        return self.delivery.totals

    def metrics(self) -> Metrics:
        """The metrics as of the last batch."""
        last = last_batch(self.query)
        return self.totals.metrics(0 if last is None else last.latency)

    def wait(self, timeout: int | None = None) -> bool:
        """Waits until the stream ends, or for some seconds; returns whether it has ended. A failure is raised as an
        error that says what to do."""
        with self._failures():
            ended = self.query.awaitTermination() if timeout is None else self.query.awaitTermination(timeout)
        if ended is not False:
            self._close()
        return ended is not False

    def process_all(self) -> None:
        """Waits until all available input has been processed."""
        with self._failures():
            self.query.processAllAvailable()

    def stop(self) -> None:
        """Stops the stream, in the middle of a batch if need be: the next start runs that batch again."""
        self.delivery.is_stopping = True
        log = logging.getLogger("py4j")  # reports the interrupted batch with the traces of both sides
        before = log.level
        log.setLevel(logging.CRITICAL + 1)
        try:
            with suppress(Py4JError, PySparkException, OSError):  # Spark itself has been stopped
                self.query.stop()
        finally:
            log.setLevel(before)
        self._close()

    def end_time(self) -> dict[str, int]:
        """See `SparkStream.end_time`; the stream must have ended."""
        return self.stream.end_time()

    def _close(self) -> None:
        self.ownership.release()
        if self.reporter is not None:
            self.reporter.close()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            with self.stream.failures():
                yield
        except CepheidError as problem:
            self._close()
            raise self.delivery.failure or problem from problem


class _Deliver:
    """Called by Spark with each batch."""

    def __init__(self, stream: SparkStream, ownership: Ownership, totals: Totals) -> None:
        self.stream, self.ownership, self.totals = stream, ownership, totals
        self.lock = threading.Lock()
        self.failure: CepheidError | None = None
        self.is_stopping = False

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        with self.lock:
            try:
                if any(self.stream.writers.values()):
                    self._deliver_with_writers(frame, batch_id)
                else:
                    self._deliver(batch_id, _collected(frame), {})
            except CepheidError as error:
                self.failure = error
                raise
            except (PySparkException, Py4JError) as problem:
                # Spark searches the text of the error with an expression that fails on long ones.
                if self.is_stopping:
                    raise InterruptedError(_INTERRUPTED) from None
                checkpoint, session = self.stream.checkpoint, self.stream.session
                self.failure = failure(
                    str(problem), checkpoint.path, lambda: _damaged_state(checkpoint.location, session)
                )
                raise self.failure from None

    def _deliver(self, batch_id: int, rows: Sequence[OutputRow], written: Mapping[str, int]) -> None:
        """`written` counts the matches that went to writers."""
        self.ownership.require()
        plan = self.stream.plan
        matches = self.stream.sinks.deliver(plan, batch_name(batch_id), rows)
        count(self.totals, plan, rows, {**matches, **written})

    def _deliver_with_writers(self, frame: DataFrame, batch_id: int) -> None:
        """Blocks of matches stay in Spark. Each use of a frame that is not persisted would run the batch again."""
        persisted = frame.persist()
        try:
            is_match = F.col("kind") == MATCHES
            rows = _collected(persisted if any(self.stream.sinks.matches.values()) else persisted.filter(~is_match))
            self.ownership.require()
            counted = persisted.filter(is_match).groupBy("query").agg(F.sum("number").alias("n")).collect()
            self._call_writers(persisted, batch_id, {row["query"] for row in counted})
            queries = self.stream.plan.queries
            self._deliver(batch_id, rows, {queries[row["query"]].name: row["n"] for row in counted})
        finally:
            persisted.unpersist()

    def _call_writers(self, frame: DataFrame, batch_id: int, with_matches: Collection[int]) -> None:
        """Only those of queries with matches: a job without rows costs as much as one with a few."""
        plan = self.stream.plan
        for number, query in enumerate(plan.queries):
            if number not in with_matches:
                continue
            schema = query.output_schema
            blocks = frame.filter((F.col("kind") == MATCHES) & (F.col("query") == number)).select("block")
            matches = blocks.mapInArrow(Unpack(schema), from_arrow_schema(schema))
            if query.shape != EVENTS:
                shape = flat if query.shape == FLAT else long
                matches = shape(matches, query.event_columns, is_numbered=False)
            for write in self.stream.writers.get(query.name, ()):
                write(matches, batch_id)


def _collected(frame: DataFrame) -> list[OutputRow]:
    return [OutputRow(*row) for row in frame.collect()]


def _observed() -> list[Column]:
    def of(kind: str, value: Column) -> Column:
        return F.coalesce(F.sum(F.when(F.col("kind") == kind, value)), F.lit(0)).cast("long")

    number, text = F.col("number"), F.col("block").cast("string")
    return [
        of(STATES, F.get_json_object(text, "$.events").cast("long")).alias("events"),
        of(MATCHES, number).alias("matches"),
        of(LATE, number).alias("late"),
        of(REJECTS, number).alias("rejects"),
        of(STATES, number).alias("state_bytes_touched"),
    ]


def _damaged_state(checkpoint: str, session: SparkSession) -> Iterator[str]:
    """The change logs of the state that cannot be decompressed."""
    jvm: Any = session._jvm
    root = jvm.org.apache.hadoop.fs.Path(checkpoint, "state")
    # A file system of our own: others must go on verifying checksums, which lie in files of their own.
    files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(root.toUri(), session._jsc.hadoopConfiguration())
    files.setVerifyChecksum(False)
    codec_name = session.conf.get("spark.sql.streaming.stateStore.compression.codec")
    codec = jvm.org.apache.spark.io.CompressionCodec.createCodec(session._jsc.sc().conf(), codec_name)
    listed = files.listFiles(root, True)
    while listed.hasNext():
        path = listed.next().getPath()
        if not path.getName().endswith(".changelog"):
            continue
        stream = files.open(path)
        try:
            jvm.org.apache.commons.io.IOUtils.consume(codec.compressedInputStream(stream))
        except Py4JJavaError:
            yield str(path.toUri().getPath())
        finally:
            stream.close()
