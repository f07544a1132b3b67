"""Queries over a Spark stream, exactly once from source to sink.

The rows of a micro-batch are packed into one block of Arrow bytes for each bucket of keys; a stateful operator keeps
one compressed state for each bucket in Spark's state store; what it gives comes to the driver as blocks and goes to the
sinks under the batch's name. Spark owns versions, recovery and the watermark; lateness is decided here, so that no late
event vanishes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

from cepheid.engine.adaptation import told as told_switch
from cepheid.errors import CepheidError
from cepheid.optimize.adapt import Switch
from cepheid.spark.checkpoint import Checkpoint, Ownership
from cepheid.spark.failure import Failure
from cepheid.spark.metrics import Metrics, Tally, Teller, last_batch, metrics_of
from cepheid.spark.places import LocalPlace
from cepheid.spark.session import ARROW_BATCHES, UNCOMPARED, WITHOUT_COMMANDS
from cepheid.spark.stream_output import END_OF_TIME_NAME, Sink, batch_name
from cepheid.spark.stream_worker import (
    GIVEN,
    LATE,
    MATCHES,
    PACKED,
    REJECTS,
    STATE,
    STATES,
    SWITCHES,
    Drain,
    Pack,
    Step,
    Unpack,
)
from cepheid.streaming.pack import from_bytes
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.reader import REJECTS as REJECT_SCHEMA

WATERMARK_DELAY = "spark.watermarkDelayMs"
"""The metadata by which Spark knows the column of event time. Internal to Spark, so held by a test."""

OBSERVED = "cepheid"
"""What Spark's own listeners find among the observed metrics of a batch."""

Writer = Callable[[DataFrame, int], None]
"""Any Spark batch writer: given the matches of a batch as a DataFrame, and the batch's number. It may be called again
with the same number and the same matches, and must then replace what it wrote."""

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
class Outputs:
    """Where everything goes: for each query by name its sinks and writers; late events and rejects."""

    matches: Mapping[str, Sequence[Sink]]
    late: Sequence[Sink] = ()
    rejects: Sequence[Sink] = ()
    writers: Mapping[str, Sequence[Writer]] = field(default_factory=dict)


def tasks_of(session: SparkSession, partitions: int | None) -> int:
    return partitions or session.sparkContext.defaultParallelism


def buckets_of(checkpoint: Checkpoint, tasks: int) -> int:
    """One for each task. Spark keeps the number of tasks as long as there is the checkpoint, and Cepheid that of
    buckets; more of them would cost each batch more calls, and divide nothing further."""
    known = checkpoint.description()
    return tasks if known is None else int(known["stream"]["buckets"])


@dataclass(frozen=True, slots=True)
class SparkStream:
    """A planned stream over a streaming DataFrame, ready to start."""

    plan: StreamPlan
    frame: DataFrame
    checkpoint: Checkpoint
    checkpoint_path: str
    outputs: Outputs
    partitions: int | None = None

    @property
    def session(self) -> SparkSession:
        return self.frame.sparkSession

    def start(
        self,
        input: Mapping[str, Any],
        trigger: Mapping[str, Any],
        tell: Callable[[Metrics], None] | None = None,
        before: Callable[[], None] | None = None,
    ) -> RunningStream:
        """`input` describes the input for the next start on this checkpoint; `trigger` is Spark's; `tell` is told how
        the stream fares, after every batch; `before` is what to do once the checkpoint is ours."""
        ownership = self.checkpoint.take()
        try:
            self.checkpoint.settle(self.plan.description(), {"input": input, **self.plan.for_inspection()})
            if before is not None:
                before()
            self._forget_end_of_time()
            self._forget_half_written()
            tally = Tally(matches={query.name: 0 for query in self.plan.queries})
            deliver_batch = _Deliver(self, ownership, tally)
            with self._settings():
                query = (
                    self.given()
                    .writeStream.outputMode("append")
                    .option("checkpointLocation", self.checkpoint_path)
                    .foreachBatch(deliver_batch)
                    .trigger(**trigger)
                    .start()
                )
        except BaseException:
            ownership.release()
            raise
        teller = None if tell is None else Teller(query, tally, tell)
        if teller is not None:
            teller.start()
        return RunningStream(self, query, deliver_batch, ownership, teller)

    # --- the pipeline -------------------------------------------------------------------------------------------------

    def given(self) -> DataFrame:
        """What the buckets give, as rows of (kind, query, number, block)."""
        plan = self.plan
        packed = self.frame.selectExpr(*plan.reader.selected()).mapInArrow(Pack(plan), PACKED)
        marked = packed.withWatermark("at", f"{plan.delay} milliseconds")
        # Spark would drop blocks whose latest event is late. Without a time none is, and Spark still lets time pass.
        unseen = F.when(F.lit(False), F.col("at")).alias("at", metadata={WATERMARK_DELAY: plan.delay})
        blocks = marked.select("grouped", "rejected", "ahead", "block", unseen)
        step = Step(plan, plan.fingerprint())
        # Every batch has a block for every bucket, so time passes in all of them. To wake buckets by a timeout, Spark
        # would call each task's Python a second time.
        given = blocks.groupBy("grouped").applyInPandasWithState(
            step, GIVEN, STATE, "append", GroupStateTimeout.NoTimeout
        )
        return given.observe(OBSERVED, *_observed())

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """Spark reads these when a stream starts; the session has its own again afterwards."""
        conf = self.session.conf
        wanted = {**_SETTINGS, "spark.sql.shuffle.partitions": str(tasks_of(self.session, self.partitions))}
        if self.frame._jdf.queryExecution().analyzed().deterministic():
            wanted |= UNCOMPARED
        if isinstance(self.checkpoint.place, LocalPlace):
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

    # --- the end of time ----------------------------------------------------------------------------------------------

    def end_time(self) -> dict[str, int]:
        """What would still come out if no event came any more, under a name of its own; the state stays as it is, and
        when the stream goes on this output is taken back. Gives the number of matches of each query."""
        if not self._has_state():
            return {query.name: 0 for query in self.plan.queries}
        states = self.session.read.format("statestore").load(self.checkpoint_path).select("value.groupState.s")
        rows = states.mapInArrow(Drain(self.plan, self.plan.fingerprint()), GIVEN).collect()
        return deliver(self, END_OF_TIME_NAME, rows)[0]

    def _has_state(self) -> bool:
        return bool(self.checkpoint.place.inside("commits").names())

    def _forget_end_of_time(self) -> None:
        for sink in (sink for sinks in self.outputs.matches.values() for sink in sinks):
            sink.forget(END_OF_TIME_NAME)

    def _forget_half_written(self) -> None:
        """A driver that is killed while it writes its first entry leaves a hidden file, which Spark would take for
        another stream's. Whose checkpoint it is has been settled."""
        offsets = self.checkpoint.place.inside("offsets")
        if not offsets.names():
            for name in offsets.hidden():
                offsets.remove(name)

    def output_schema(self, number: int) -> pa.Schema:
        return self.plan.queries[number].output_schema(self.plan)


@dataclass(slots=True)
class RunningStream:
    """A stream that was started."""

    stream: SparkStream
    query: StreamingQuery
    delivery: _Deliver
    ownership: Ownership
    teller: Teller | None = None

    @property
    def tally(self) -> Tally:
        return self.delivery.tally

    def metrics(self) -> Metrics:
        """How the stream fares, as of its last batch."""
        return metrics_of(self.tally, last_batch(self.query))

    def wait(self, timeout: int | None = None) -> bool:
        """Until it ends, or for some seconds; tells whether it has ended. What made it fail is raised as an error that
        says what to do."""
        try:
            ended = self.query.awaitTermination() if timeout is None else self.query.awaitTermination(timeout)
        except PySparkException as problem:
            self._close()
            raise self._failure(problem) from problem
        if ended is not False:
            self._close()
        return ended is not False

    def process_all(self) -> None:
        """Until everything that is there has been processed."""
        try:
            self.query.processAllAvailable()
        except PySparkException as problem:
            self._close()
            raise self._failure(problem) from problem

    def stop(self) -> None:
        self.query.stop()
        self._close()

    def _close(self) -> None:
        self.ownership.release()
        if self.teller is not None:
            self.teller.close()

    def end_time(self) -> dict[str, int]:
        """See `SparkStream.end_time`; the stream must have ended."""
        return self.stream.end_time()

    def _failure(self, problem: PySparkException) -> CepheidError:
        if self.delivery.failure is not None:
            return self.delivery.failure
        return Failure(str(problem), self.stream.checkpoint_path, self.stream.session).problem()


class _Deliver:
    """What Spark calls with each batch."""

    def __init__(self, stream: SparkStream, ownership: Ownership, tally: Tally) -> None:
        self.stream, self.ownership, self.tally = stream, ownership, tally
        self.lock = threading.Lock()
        self.failure: CepheidError | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        with self.lock:
            try:
                self._deliver(frame, batch_id)
            except CepheidError as error:
                self.failure = error
                raise

    def _deliver(self, frame: DataFrame, batch_id: int) -> None:
        written = any(self.stream.outputs.writers.values())
        if not written:
            rows = frame.collect()
            self.ownership.require()
            self._count(rows, *deliver(self.stream, batch_name(batch_id), rows))
            return
        # Blocks of matches stay where they are; each use of an unkept frame would run the whole batch again.
        kept = frame.persist()
        try:
            needed = [] if any(self.stream.outputs.matches.values()) else [F.col("kind") != MATCHES]
            rows = kept.filter(needed[0]).collect() if needed else kept.collect()
            self.ownership.require()
            found = kept.filter(F.col("kind") == MATCHES).groupBy("query").agg(F.sum("number").alias("n")).collect()
            self._call_writers(kept, batch_id, {row["query"] for row in found})
            counted, late, rejects = deliver(self.stream, batch_name(batch_id), rows)
            for row in found:
                counted[self.stream.plan.queries[row["query"]].name] = row["n"]
            self._count(rows, counted, late, rejects)
        finally:
            kept.unpersist()

    def _count(self, rows: Sequence[Row], counted: Mapping[str, int], late: int, rejects: int) -> None:
        tally = self.tally
        tally.batches += 1
        tally.late += late
        tally.rejects += rejects
        for name, number in counted.items():
            tally.matches[name] = tally.matches.get(name, 0) + number
        tally.last_events = 0
        for row in rows:
            if row["kind"] == STATES:
                tally.states[row["query"]] = row["number"]
                told = json.loads(row["block"])
                tally.last_events += told["events"]
                # A bucket may know less of how far time has come than others.
                tally.watermark = max((m for m in (tally.watermark, told["watermark"]) if m is not None), default=None)
            elif row["kind"] == SWITCHES:
                switch = told_switch(Switch(**json.loads(row["block"])))
                tally.switches.append((self.stream.plan.queries[row["query"]].name, switch))
        tally.events += tally.last_events

    def _call_writers(self, kept: DataFrame, batch_id: int, found: Collection[int]) -> None:
        """Those of the queries that have found something: a job for nothing costs as much as one for a little."""
        for number, query in enumerate(self.stream.plan.queries):
            if number not in found:
                continue
            schema = self.stream.output_schema(number)
            blocks = kept.filter((F.col("kind") == MATCHES) & (F.col("query") == number)).select("block")
            matches = blocks.mapInArrow(Unpack(schema), from_arrow_schema(schema))
            for write in self.stream.outputs.writers.get(query.name, ()):
                write(matches, batch_id)


def _observed() -> list[Column]:
    def of(kind: str, value: Column) -> Column:
        return F.coalesce(F.sum(F.when(F.col("kind") == kind, value)), F.lit(0)).cast("long")

    number, told = F.col("number"), F.col("block").cast("string")
    return [
        of(STATES, F.get_json_object(told, "$.events").cast("long")).alias("events"),
        of(MATCHES, number).alias("matches"),
        of(LATE, number).alias("late"),
        of(REJECTS, number).alias("rejects"),
        of(STATES, number).alias("state_bytes_touched"),
    ]


def deliver(stream: SparkStream, batch: str, rows: Sequence[Row]) -> tuple[dict[str, int], int, int]:
    """Gives the rows of a batch to their sinks, and counts them: matches of each query, late events, rejects."""
    outputs, counted = stream.outputs, {}
    for number, query in enumerate(stream.plan.queries):
        blocks = [row["block"] for row in rows if row["kind"] == MATCHES and row["query"] == number]
        table = _table(blocks, stream.output_schema(number))
        counted[query.name] = table.num_rows
        for sink in outputs.matches.get(query.name, ()):
            sink.write(batch, table)
    late = _table([row["block"] for row in rows if row["kind"] == LATE], stream.plan.packed_schema())
    late = late.select(stream.plan.shown_names)
    rejects = _table([row["block"] for row in rows if row["kind"] == REJECTS], REJECT_SCHEMA)
    for sink in outputs.late:
        sink.write(batch, late)
    for sink in outputs.rejects:
        sink.write(batch, rejects)
    return counted, late.num_rows, rejects.num_rows


def _table(blocks: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([from_bytes(bytes(block), schema) for block in blocks], schema)
