"""Queries over a Spark stream, exactly once from source to sink.

The rows of a micro-batch are packed into one block of Arrow bytes for each bucket of keys. A stateful operator keeps
one compressed state for each bucket in Spark's state store. Its output comes to the driver as blocks and goes to the
sinks under the name of the batch. Spark owns versions, recovery and the watermark; lateness is decided here, so that no
late event is lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

from cepheid.deploy.changes import Change
from cepheid.deploy.deployment import Written
from cepheid.errors import CepheidError, NotAvailable, listing
from cepheid.lang import AUTO
from cepheid.pattern import Query
from cepheid.spark.deliver import LOOK, Deliver, collected
from cepheid.spark.progress import ProgressReporter, last_batch
from cepheid.spark.session import ARROW_BATCHES, UNCOMPARED, WITHOUT_COMMANDS
from cepheid.spark.stream_states import moved_between, spark_failures, state_frame
from cepheid.spark.stream_worker import NOW, OUTPUT, PACKED, STATE, Drain, Pack, Step, Version
from cepheid.spark.workers import require_integer_offsets
from cepheid.spark.writers import BatchDirectories
from cepheid.streaming.checkpoint import DIRECTORY, OUTPUTS, REQUESTS, VERSIONS, Checkpoint, Ownership
from cepheid.streaming.delivery import LATE, MATCHES, REJECTS, STATES, Sinks
from cepheid.streaming.metrics import Metrics, Totals
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.requests import Requests
from cepheid.streaming.sinks import END_OF_TIME_NAME
from cepheid.streaming.slots import Loads, moves
from cepheid.streaming.spool import Watch
from cepheid.streaming.storage import Directory, LocalDirectory
from cepheid.streaming.versions import Planner, SavedVersion

WATERMARK_DELAY = "spark.watermarkDelayMs"
"""The metadata that marks the column of event time. Internal to Spark, so held by a test."""

OBSERVED = "cepheid"
"""The name of Cepheid's figures among the observed metrics of a batch, for Spark's own listeners."""

Writer = Callable[..., None]
"""Any Spark batch writer: called with the matches of a batch as a DataFrame, and the batch's number; of several queries
also with the name of their table, which has a column `query`. After a crash it may be called again with the same
arguments, and must then replace what it wrote."""

_LOG = logging.getLogger("cepheid.stream")

_PATIENCE = 1.0
"""The seconds between two looks for requests to change the queries."""
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
    """When batches run: all available input once, or one batch every interval (`"10 seconds"`). At the end of the
    available input, the output that would follow without further events is written too, if `end_of_time`."""

    available_now: bool = False
    interval: str | None = None
    end_of_time: bool = True

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
    writers: Sequence[Writer] = ()
    """Spark writers of the matches."""
    partitions: int | None = None
    is_moved: bool = False
    """Whether the user confirms that the checkpoint or the input was moved."""
    first_batch: int = 0
    """The first batch of the plan."""
    earlier: tuple[tuple[int, StreamPlan], ...] = ()
    """The plans of batches before it that may be repeated, each with its first batch."""
    planner: Planner | None = None
    """Plans other versions of the stream; None: it has one."""
    moves: bool = True
    """Whether queries without a key move to other slots when the rates drift."""

    @property
    def versions(self) -> tuple[tuple[int, StreamPlan], ...]:
        return (*self.earlier, (self.first_batch, self.plan))

    def plan_of(self, batch_id: int) -> StreamPlan:
        return [plan for first, plan in self.versions if first <= batch_id][-1]

    def with_versions(self, versions: Sequence[tuple[int, StreamPlan]]) -> SparkStream:
        """With these plans, the newest last."""
        *earlier, (first_batch, plan) = versions
        return replace(self, plan=plan, first_batch=first_batch, earlier=tuple(earlier))

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
            more: dict[str, Any] = {"input": described, OUTPUTS: [directory.name for directory in outputs]}
            if self.plan.is_several:
                more[VERSIONS] = [SavedVersion.of(self.plan, 0).to_data()]
            self.checkpoint.settle(self.plan.description(), {**more, **self.plan.for_inspection()})
            prepare_input()
            self.checkpoint.record(described.get(DIRECTORY), outputs)
            self.sinks.forget_matches(END_OF_TIME_NAME)
            self._remove_partial_offsets()
            totals = Totals(matches=dict.fromkeys(self.plan.names, 0))
            deliver_batch = Deliver(self, ownership, totals, self.checkpoint.next_batch - 1)
            query = self.query(trigger, deliver_batch)
        except BaseException:
            ownership.release()
            raise
        reporter = None if on_progress is None else ProgressReporter(query, deliver_batch.totals, on_progress)
        if reporter is not None:
            reporter.start()
        return RunningStream(self, query, deliver_batch, ownership, reporter, trigger)

    def query(self, trigger: Trigger, deliver_batch: Deliver) -> StreamingQuery:
        """Starts Spark's query."""
        with self._settings(), self.failures():
            return (
                self.outputs()
                .writeStream.outputMode("append")
                .option("checkpointLocation", self.checkpoint.location)
                .foreachBatch(deliver_batch)
                .trigger(**trigger.to_spark())
                .start()
            )

    def _directories(self) -> list[Directory]:
        """The directories of all outputs."""
        by_spark = (writer.directory for writer in self.writers if isinstance(writer, BatchDirectories))
        return [*self.sinks.directories(), *by_spark]

    def _version(self, version: tuple[int, StreamPlan]) -> Version:
        first_batch, plan = version
        return Version.of(plan, first_batch, self.checkpoint.moved(plan))

    # --- the pipeline -------------------------------------------------------------------------------------------------

    def outputs(self) -> DataFrame:
        """The output of the buckets, as rows of (kind, query, number, block)."""
        plan, versions = self.plan, tuple(map(self._version, self.versions))
        clock = [] if plan.ahead is None else [f"unix_micros(current_timestamp()) AS `{NOW}`"]
        packed = self.frame.selectExpr(*plan.reader.selected(), *clock).mapInArrow(Pack(versions), PACKED)
        marked = packed.withWatermark("at", f"{plan.delay} milliseconds")
        # Spark would drop blocks whose latest event is late. Without a time none is, and Spark still lets time pass.
        unseen = F.when(F.lit(False), F.col("at")).alias("at", metadata={WATERMARK_DELAY: plan.delay})
        blocks = marked.select("grouped", "kind", "ahead", "block", unseen)
        # Every batch has a block for every bucket, so time passes in all of them. To wake buckets by a timeout, Spark
        # would call each task's Python a second time.
        outputs = blocks.groupBy("grouped").applyInPandasWithState(
            Step(versions), OUTPUT, STATE, "append", GroupStateTimeout.NoTimeout
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
                return dict.fromkeys(self.plan.names, 0)
            drain = Drain(self._version((0, self.plan)))
            rows = [] if states is None else collected(states.mapInArrow(drain, OUTPUT))
            rows += drain.without_events({row.query for row in rows if row.kind == STATES})
        matches = self.sinks.deliver(self.plan, END_OF_TIME_NAME, rows)
        if self.writers and any(matches.values()):
            # A writer knows batches by number, and could not take the matches back when the stream resumes.
            _LOG.warning(
                f"{sum(matches.values())} more matches at the end of the input are not passed to writers of Spark, "
                "which cannot take them back; `output` with the format parquet or jsonl has them"
            )
        return matches

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turns an error of Spark into one that says what to do."""
        with spark_failures(self.checkpoint, self.session):
            yield


@dataclass(slots=True)
class RunningStream:
    """A stream that was started."""

    stream: SparkStream
    query: StreamingQuery
    delivery: Deliver
    ownership: Ownership
    """The lock on the checkpoint."""
    reporter: ProgressReporter | None
    trigger: Trigger
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while the queries change."""
    at_end: dict[str, int] | None = None
    """The matches of each query that were written at the end of the input."""
    interrupted: int | None = None
    """The batch that the last change interrupted, if there was one."""
    watch: Watch | None = None
    """Looks for new files in the directories of the stream."""

    @property
    def totals(self) -> Totals:
        return self.delivery.totals

    def metrics(self) -> Metrics:
        """The metrics as of the last batch."""
        last = last_batch(self.query)
        return self.totals.metrics(0 if last is None else last.latency)

    def wait(self, timeout: int | None = None) -> bool:
        """Waits until the stream ends, or for some seconds; returns whether it has ended. A failure is raised as an
        error that says what to do. Requests to change the queries are taken meanwhile."""
        began = time.monotonic()
        try:
            while True:
                self._take_requests()
                self._require_watch()
                query = self._query
                patience = LOOK if self.delivery.is_held else _PATIENCE
                left = patience if timeout is None else min(patience, timeout - (time.monotonic() - began))
                with self._failures():
                    ended = query.awaitTermination(max(left, 0.001))  # type: ignore[arg-type]  # PySpark takes floats
                if ended and query is self._query:
                    if self.trigger.available_now and self.trigger.end_of_time and not self.delivery.is_stopping:
                        with self._failures():
                            self.end_time()
                    self._close()
                    return True
                if timeout is not None and time.monotonic() - began >= timeout:
                    return False
        finally:
            self._release()

    def _require_watch(self) -> None:
        """Stops the stream if new files can no longer be found, and raises the reason."""
        if self.watch is not None and self.watch.failure is not None:
            watch = self.watch
            self.stop()
            watch.require()

    @property
    def _query(self) -> StreamingQuery:
        """The query of Spark, after a change that is made at the moment."""
        with self.lock:
            return self.query

    # --- changes ------------------------------------------------------------------------------------------------------

    @property
    def queries(self) -> dict[str, str]:
        """The text of each query."""
        return {entry.name: entry.text for entry in self.stream.plan.entries}

    def add(self, queries: Mapping[str, str | Query], dialect: str = AUTO) -> None:
        """Adds queries. They see the events that arrive from then on."""
        self.change(Change(add=_written(queries, dialect)))

    def remove(self, *names: str) -> None:
        """Removes queries, and what only they remember."""
        self.change(Change(remove=names))

    def replace(self, queries: Mapping[str, str | Query], dialect: str = AUTO) -> None:
        """Replaces queries of these names. They see the events that arrive from then on."""
        self.change(Change(replace=_written(queries, dialect)))

    def move(self, slots: Mapping[str, int], timeout: float | None = None) -> bool:
        """Moves queries without a key to other slots, with their state, after the batch that has begun. Returns whether
        it ended within `timeout` seconds (None: waits for it)."""
        return self.change(Change(move=slots), timeout)

    def change(self, change: Change, timeout: float | None = None) -> bool:
        """Changes the queries between two batches; the others keep their state. If some part of the change is refused,
        nothing changes. Returns whether it is made (see `move`)."""
        self.planned(change)
        began = time.monotonic()
        try:
            while not self._changed(change):
                if timeout is not None and time.monotonic() - began >= timeout:
                    return False
                if not self.query.isActive:
                    with self._failures():
                        self.query.awaitTermination()
                    return False
                time.sleep(LOOK)
            return True
        finally:
            self._release()

    def _changed(self, change: Change) -> bool:
        """Makes a change if it can be made now. If not, no further batch begins until `_release`."""
        with self.lock:
            checkpoint = self.stream.checkpoint
            if change.move and not self.delivery.hold():
                return False
            before, plan = self.stream.plan, self.planned(change)
            was_active = self.query.isActive
            self._stop_query()
            with self._failures():
                if self.query.exception() is not None:
                    self.query.awaitTermination()
            first_batch, uncommitted = checkpoint.next_batch, checkpoint.first_uncommitted
            self.interrupted = uncommitted if uncommitted < first_batch else None
            if change.move:
                # No task of this batch has run, even if its events are settled.
                first_batch = uncommitted
                checkpoint.write_moved(plan, moved_between(before, plan, checkpoint, self.stream.session))
            checkpoint.record_version(plan, first_batch)
            self.delivery.totals.loads = Loads()
            needed = [one.lineage.version for one in checkpoint.versions()]
            kept = [(n, of) for n, of in self.stream.versions if of.version in needed and n < first_batch]
            self.stream = self.delivery.stream = self.stream.with_versions([*kept, (first_batch, plan)])
            self.delivery.is_stopping = False
            if was_active:
                self.query = self.stream.query(self.trigger, self.delivery)
            return True

    def _release(self) -> None:
        with self.lock:
            self.delivery.is_held = False

    @property
    def is_repeating(self) -> bool:
        """Whether a change has interrupted a batch that is not complete yet. Changes that others ask for wait until it
        is: they could otherwise interrupt it again and again, and it would never end."""
        return self.interrupted is not None and self.stream.checkpoint.first_uncommitted <= self.interrupted

    def _follow_rates(self) -> bool:
        """Moves queries if the measured loads of the slots have drifted apart. Returns whether that has to wait until a
        batch ends."""
        planner = self.stream.planner
        if planner is None or not self.stream.moves or not self.query.isActive:
            return False
        slots = moves(self.stream.plan, self.delivery.totals.loads, planner.options.placement)
        if not slots:
            return False
        if not self._changed(Change(move=slots)):
            return True
        _LOG.warning(f"the rates have drifted: moved {listing(slots)}")
        return False

    def planned(self, change: Change) -> StreamPlan:
        """The plan after a change, which is not made."""
        planner = self.stream.planner
        if planner is None:
            raise NotAvailable(
                "changing the query of a stream that has one", hint='start the stream with {"name": query, ...}'
            )
        return planner.changed(self.stream.plan, change)

    def _take_requests(self) -> None:
        """Makes the changes that other processes have asked for, and removes queries that buckets have stopped."""
        if not self.is_repeating and not self._requested():
            self._release()

    def _requested(self) -> bool:
        """Whether a change waits until a batch ends."""
        known = self.queries
        for name in [name for name in self.delivery.totals.stopped if name in known]:
            with suppress(CepheidError):  # another query uses it, or there is no other
                self.remove(name)
            self.delivery.totals.stopped.remove(name)
        requests = Requests(self.stream.checkpoint.own.inside(REQUESTS))
        for name in requests.waiting():
            try:
                if not self._changed(requests.change(name)):
                    return True
                requests.answer(name, self.stream.plan.version)
            except CepheidError as error:
                requests.answer(name, None, error)
        return self._follow_rates()

    def process_all(self) -> None:
        """Waits until all available input has been processed."""
        with self._failures():
            self.query.processAllAvailable()

    def stop(self) -> None:
        """Stops the stream, in the middle of a batch if need be: the next start runs that batch again."""
        with self.lock:
            self._stop_query()
            self._close()

    def _stop_query(self) -> None:
        self.delivery.is_stopping = True
        log = logging.getLogger("py4j")  # reports the interrupted batch with the traces of both sides
        before = log.level
        log.setLevel(logging.CRITICAL + 1)
        try:
            with suppress(Py4JError, PySparkException, OSError):  # Spark itself has been stopped
                self.query.stop()
        finally:
            log.setLevel(before)

    def end_time(self) -> dict[str, int]:
        """See `SparkStream.end_time`; the stream must have ended. Writes once, however often it is called."""
        with self.lock:
            if self.at_end is None:
                self.at_end = self.stream.end_time()
            return self.at_end

    def _close(self) -> None:
        if self.watch is not None:
            self.watch.end()
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


def _written(queries: Mapping[str, str | Query], dialect: str) -> dict[str, Written]:
    return {name: Written(name, query, dialect) for name, query in queries.items()}


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
