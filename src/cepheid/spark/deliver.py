"""The delivery of a stream's batches to its sinks: Spark calls it with each batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from cepheid.errors import CepheidError
from cepheid.spark.stream_states import damaged_state
from cepheid.spark.stream_worker import Unpack
from cepheid.streaming.checkpoint import Checkpoint, Ownership
from cepheid.streaming.delivery import MATCHES, OutputRow, Sinks, count
from cepheid.streaming.failures import failure
from cepheid.streaming.metrics import Totals
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.sinks import batch_name

LOOK = 0.05
"""The seconds between two looks whether a batch has ended, or whether the next may begin."""
INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling collect: java.lang.InterruptedException"
"""The text by which Spark knows that a batch failed because its stream was stopped."""


class DeliveredStream(Protocol):
    """The stream that is delivered."""

    @property
    def checkpoint(self) -> Checkpoint: ...

    @property
    def session(self) -> SparkSession: ...

    @property
    def sinks(self) -> Sinks: ...

    @property
    def writers(self) -> Sequence[Callable[..., None]]:
        """Spark writers of the matches."""

    @property
    def first_batch(self) -> int:
        """The first batch of the newest plan."""

    def plan_of(self, batch_id: int) -> StreamPlan: ...


class Deliver:
    """Called by Spark with each batch."""

    def __init__(self, stream: DeliveredStream, ownership: Ownership, totals: Totals, begun: int) -> None:
        """`begun` is the last batch of which a task may have run, in this process or an earlier one."""
        self.stream, self.ownership, self.totals, self.begun = stream, ownership, totals, begun
        self.lock, self.gate = threading.Lock(), threading.Lock()
        self.failure: CepheidError | None = None
        self.is_stopping = self.is_held = False

    def hold(self) -> bool:
        """Holds back the batches that have not begun. Returns whether all that have begun are complete, so that queries
        can move. The state store may have kept something of a batch that has begun, such as a snapshot of a task
        that was killed: repeated with the queries elsewhere, it would not replace that."""
        with self.gate:
            self.is_held = True
        return self.stream.checkpoint.first_uncommitted >= max(self.begun + 1, self.stream.first_batch)

    def _begin(self, batch_id: int) -> None:
        """Waits until the batch may begin. Spark has settled its events, and evaluates none of them yet."""
        while True:
            with self.gate:
                if batch_id <= self.begun or batch_id < self.stream.first_batch or not self.is_held:
                    self.begun = max(self.begun, batch_id)
                    return
            if self.is_stopping:
                raise InterruptedError(INTERRUPTED)
            time.sleep(LOOK)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self._begin(batch_id)
        with self.lock:
            try:
                if self.stream.writers:
                    self._deliver_with_writers(frame, batch_id)
                else:
                    self._deliver(batch_id, collected(frame))
            except CepheidError as error:
                self.failure = error
                raise
            except (PySparkException, Py4JError) as problem:
                # Spark searches the text of the error with an expression that fails on long ones.
                if self.is_stopping:
                    raise InterruptedError(INTERRUPTED) from None
                checkpoint, session = self.stream.checkpoint, self.stream.session
                self.failure = failure(
                    str(problem), checkpoint.path, lambda: damaged_state(checkpoint.location, session)
                )
                raise self.failure from None

    def _deliver(self, batch_id: int, rows: Sequence[OutputRow]) -> None:
        self.ownership.require()
        plan = self.stream.plan_of(batch_id)
        matches = self.stream.sinks.deliver(plan, batch_name(batch_id), rows)
        count(self.totals, plan, rows, matches)

    def _deliver_with_writers(self, frame: DataFrame, batch_id: int) -> None:
        """Blocks of matches stay in Spark. Each use of a frame that is not persisted would run the batch again."""
        persisted = frame.persist()
        try:
            is_match = F.col("kind") == MATCHES
            rows = collected(persisted if self.stream.sinks.matches else persisted.filter(~is_match))
            self.ownership.require()
            found = persisted.filter(is_match).select("query").distinct().collect()
            self._call_writers(persisted, batch_id, sorted(row["query"] for row in found))
            self._deliver(batch_id, rows)
        finally:
            persisted.unpersist()

    def _call_writers(self, frame: DataFrame, batch_id: int, with_matches: Sequence[int]) -> None:
        """For the tables with matches only: a job without rows costs as much as one with a few."""
        for number in with_matches:
            table = self.stream.plan_of(batch_id).tables[number]
            blocks = frame.filter((F.col("kind") == MATCHES) & (F.col("query") == number)).select("block")
            matches = blocks.mapInArrow(Unpack(table.schema), from_arrow_schema(table.schema))
            for write in self.stream.writers:
                if table.name:
                    write(matches, batch_id, table.name)
                else:
                    write(matches, batch_id)


def collected(frame: DataFrame) -> list[OutputRow]:
    return [OutputRow(*row) for row in frame.collect()]
