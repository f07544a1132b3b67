"""A topic of Kafka as a source that can be asked: a subscription reads on as events come, a pull reads the offsets
whose timestamps fit, and events are kept for as long as the topic keeps them.

The timestamp of a record is at most `lateness` from the time of its event, and so is the moment at which it is in the
topic. A topic that has been read to its end is therefore complete up to that long ago, also where nothing has come."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.acquire.intervals import BEGINNING, END
from cepheid.acquire.requests import Answer, Request
from cepheid.detection.source_filter import Filters
from cepheid.errors import CepheidError, InputProblem, SourceUnreachable, shown
from cepheid.io.asked_source import NO_FILTERS, SAMPLE, Deliver, Description, Failure, described, without_columns
from cepheid.io.decoding import widened
from cepheid.io.event_columns import in_stream_order, ticks_of
from cepheid.io.event_log import EventLog, Traffic, keys_of, of_keys
from cepheid.io.feeds import Gathered, Lines
from cepheid.io.inputs import Columns

_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_SECONDS = 10.0
"""How long a broker may take to answer."""
_BATCH = 5_000
_BEAT = 0.2
"""Seconds between answers of a subscription without events."""


@dataclass(frozen=True, slots=True)
class Topic:
    """Where the events are, and how they are read. `settings` are further ones of the client, such as those of TLS."""

    servers: str
    topic: str
    columns: Columns
    unit: str | None = None
    """The unit of an integer time column. Times that are strings count in microseconds."""
    type: str | None = None
    lateness: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class KafkaSource:
    name: str
    topic: Topic
    schema: pa.Schema | None = None
    sent: Traffic = field(default_factory=Traffic)
    rejected: int = 0
    """Records that are no events."""
    late: int = 0
    """Events that came after their time had been reported as complete, and were left out."""
    _filters: Filters | None = field(default=None, repr=False)
    _attributes: dict[str, set[str]] = field(default_factory=dict, repr=False)
    _idle: list[Any] = field(default_factory=list, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _cancelled: int = 0
    _closed: bool = False

    @classmethod
    def open(cls, name: str, topic: Topic) -> KafkaSource:
        try:
            import confluent_kafka  # noqa: F401
        except ImportError:
            raise InputProblem(
                f"`{shown(name)}` is a topic of Kafka, and the package `confluent-kafka` is not installed",
                hint="pip install 'cepheid[kafka]'",
            ) from None
        return cls(name, topic)

    # --- the protocol -------------------------------------------------------------------------------------------------

    def describe(self, filters: Mapping[str, str] = NO_FILTERS) -> Description:
        """By the most recent records of each partition."""
        consumer = self._consumer()
        try:
            now = time.time()
            marks = self._marks(consumer)
            share = max(SAMPLE // max(len(marks), 1), 1)
            ranges = {p: (max(low, high - share), high) for p, (low, high) in marks.items()}
            table, first = self._events(self._records(consumer, ranges), None)
            dropped = self._dropped(marks, first, now)
        except self._problem as problem:
            raise SourceUnreachable(
                f"`{shown(self.name)}`, the topic `{shown(self.topic.topic)}` at {self.topic.servers}, cannot be read: "
                f"{problem}",
                hint="is the broker running there, and is the topic there?",
            ) from None
        finally:
            self._release(consumer)
        if table is None:
            raise without_columns(self.name)
        self.schema = table.schema
        self._filters = Filters(self.schema, self.topic.columns)
        log = EventLog.of(self.name, table, self.topic.columns)
        complete = self._ticks(now - self.topic.lateness)
        kept = self._filters.kept(filters)
        return described(log, self.schema, self.topic.columns.time, complete, dropped, kept, self._attributes)

    def ask(self, request: Request, deliver: Deliver) -> None:
        threading.Thread(target=self._serve, args=(request, deliver), daemon=True).start()

    def cancel(self, last: int) -> None:
        self._cancelled = max(self._cancelled, last)

    def close(self) -> None:
        self._closed = True
        with self._lock:
            idle, self._idle = self._idle, []
        for consumer in idle:
            consumer.close()

    # --- answers ------------------------------------------------------------------------------------------------------

    def _is_wanted(self, request: Request) -> bool:
        return not self._closed and request.number > self._cancelled

    def _serve(self, request: Request, deliver: Deliver) -> None:
        try:
            if self.schema is None:
                self.describe()
            consumer = self._consumer()
            try:
                for answer in self._answers(consumer, request):
                    if not self._is_wanted(request):
                        return
                    deliver(answer)
            finally:
                self._release(consumer)
        except (CepheidError, pa.ArrowException, self._problem) as problem:
            if self._is_wanted(request):
                deliver(Failure(request, str(problem).splitlines()[0] if str(problem) else type(problem).__name__))

    def _answers(self, consumer: Any, request: Request) -> Iterator[Answer]:
        """The answer of a pull; those of a subscription until its end."""
        offsets = self._offsets(consumer, request.begin)
        waiting: pa.Table | None = None
        reported, is_first = request.begin - 1, True
        while self._is_wanted(request):
            now = time.time()
            marks = self._marks(consumer)
            ends = {p: high for p, (_, high) in marks.items()}
            if not request.follow:
                later = self._offsets(consumer, request.end + 1, after=True)
                ends = {p: min(end, later.get(p, end)) for p, end in ends.items()}
            ranges = {p: (max(offsets.get(p, low), low), ends[p]) for p, (low, _) in marks.items()}
            table, first = self._events(self._records(consumer, ranges), self.schema)
            dropped = self._dropped(marks, first, now, offsets)
            offsets = {p: max(end, begin) for p, (begin, end) in ranges.items()}
            parts = [part for part in (waiting, table) if part is not None]
            waiting = pa.concat_tables(parts, promote_options="permissive") if parts else None
            self._widen(waiting)
            complete = min(request.end, self._ticks(now - self.topic.lateness))
            if complete > reported or is_first:
                answer, waiting = self._answer(request, waiting, reported, complete)
                retained = BEGINNING if not is_first else dropped
                yield Answer(self.name, request.stream, reported + 1, complete, retained, answer, keys_of(request))
                reported, is_first = max(reported, complete), False
            if not request.follow or reported >= request.end:
                return
            time.sleep(_BEAT)

    def _widen(self, table: pa.Table | None) -> None:
        """Takes columns that no earlier record had."""
        with self._lock:
            assert self.schema is not None
            schema = self.schema if table is None else widened(self.schema, table.schema, self.name)
            if schema != self.schema:
                self.schema, self._filters = schema, Filters(schema, self.topic.columns)

    def _answer(
        self, request: Request, table: pa.Table | None, reported: int, complete: int
    ) -> tuple[pa.RecordBatch, pa.Table | None]:
        """The events of a request up to a time, and those that come later."""
        assert self.schema is not None and self._filters is not None
        whole = self.schema.empty_table() if table is None else table
        times = ticks_of(whole.column(self.topic.columns.time).combine_chunks(), self.topic.columns.time)
        kinds = whole.column(self.topic.columns.type).to_pylist()
        is_own = np.array([kind == request.stream for kind in kinds], bool)
        if reported >= request.begin:
            self.late += int((is_own & (times <= reported)).sum())
        ready = is_own & (times > reported) & (times <= complete)
        later = is_own & (times > complete)
        events = whole.filter(pa.array(ready)).combine_chunks()
        batch = events.to_batches()[0] if events.num_rows else pa.RecordBatch.from_pylist([], whole.schema)
        order = in_stream_order(times[ready], None)
        batch = batch if order is None else batch.take(pa.array(order))
        batch = of_keys(batch, request)
        keep = self._filters.keep(request)
        batch = batch if keep is None else keep(batch)
        if request.columns is not None:
            batch = batch.select([name for name in request.columns if name in batch.schema.names])
        self.sent.add(batch)
        return batch, whole.filter(pa.array(later)) if later.any() else None

    # --- records ------------------------------------------------------------------------------------------------------

    @property
    def _problem(self) -> type[Exception]:
        from confluent_kafka import KafkaException

        found: type[Exception] = KafkaException
        return found

    def _consumer(self) -> Any:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        from confluent_kafka import Consumer

        return Consumer(
            {
                "bootstrap.servers": self.topic.servers,
                "group.id": f"cepheid-{self.name}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "log_level": 0,
                **self.topic.settings,
            }
        )

    def _release(self, consumer: Any) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(consumer)
                return
        consumer.close()

    def _marks(self, consumer: Any) -> dict[int, tuple[int, int]]:
        """The first and the next offset of each partition."""
        from confluent_kafka import KafkaException, TopicPartition

        listed = consumer.list_topics(self.topic.topic, timeout=_SECONDS).topics[self.topic.topic]
        if listed.error is not None:
            raise KafkaException(listed.error)
        partitions = [TopicPartition(self.topic.topic, number) for number in listed.partitions]
        return {p.partition: consumer.get_watermark_offsets(p, timeout=_SECONDS) for p in partitions}

    def _offsets(self, consumer: Any, ticks: int, after: bool = False) -> dict[int, int]:
        """The first offset of each partition that may have an event of a time or, with `after`, the first after which
        there is none before it. Partitions without such records are left out."""
        if ticks <= BEGINNING or ticks >= END:
            return {}
        from confluent_kafka import TopicPartition

        seconds = ticks / self._per_second + (self.topic.lateness if after else -self.topic.lateness)
        moment = max(int(seconds * 1_000) + (1 if after else -1), 0)
        listed = consumer.list_topics(self.topic.topic, timeout=_SECONDS).topics[self.topic.topic]
        asked = [TopicPartition(self.topic.topic, number, moment) for number in listed.partitions]
        found = consumer.offsets_for_times(asked, timeout=_SECONDS)
        known = {p.partition: p.offset for p in found if p.offset >= 0}
        if after:
            return known
        marks = self._marks(consumer)
        return {p: known.get(p, high) for p, (_, high) in marks.items()}

    def _records(self, consumer: Any, ranges: Mapping[int, tuple[int, int]]) -> list[Any]:
        """The records of each partition from an offset up to another."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        left = {p: end for p, (begin, end) in ranges.items() if begin < end}
        if not left:
            return []
        consumer.assign([TopicPartition(self.topic.topic, p, ranges[p][0]) for p in left])
        found = []
        silent_until = time.monotonic() + _SECONDS
        while left:
            for message in consumer.consume(_BATCH, timeout=0.1):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                silent_until = time.monotonic() + _SECONDS
                end = left.get(message.partition())
                if end is None:
                    continue
                if error is None and message.offset() < end:
                    found.append(message)
                if error is not None or message.offset() + 1 >= end:
                    del left[message.partition()]
            if time.monotonic() > silent_until:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the broker sends no records"))
        consumer.unassign()
        return found

    def _events(
        self, records: Sequence[Any], schema: pa.Schema | None
    ) -> tuple[pa.Table | None, dict[int, tuple[int, float]]]:
        """Records as events, and the first of each partition: its offset and its timestamp in seconds."""
        first: dict[int, tuple[int, float]] = {}
        for record in records:
            if record.partition() not in first:
                first[record.partition()] = record.offset(), record.timestamp()[1] / 1_000
        gathered = Gathered(self.name, self.topic.columns, schema)
        lines = Lines(gathered, self.topic.type, self._reject)
        texts = (record.value() or b"" for record in records)
        lines.add([text.decode("utf-8", errors="replace") for text in texts])
        for kind, names in gathered.attributes.items():
            self._attributes.setdefault(kind, set()).update(names)
        return gathered.table(), first

    def _reject(self, line: str, reason: str) -> None:
        self.rejected += 1

    def _dropped(
        self,
        marks: Mapping[int, tuple[int, int]],
        first: Mapping[int, tuple[int, float]],
        now: float,
        offsets: Mapping[int, int] | None = None,
    ) -> int:
        """The time from which the topic still has its events: of a partition that has dropped some, that of the first
        record, if it was read."""
        found = BEGINNING
        for partition, (low, high) in marks.items():
            if low == 0 or (offsets is not None and offsets.get(partition, low) > low):
                continue
            if low == high:
                found = max(found, self._ticks(now))
            elif partition in first and first[partition][0] == low:
                found = max(found, self._ticks(first[partition][1] + self.topic.lateness))
        return found

    # --- times --------------------------------------------------------------------------------------------------------

    @property
    def _per_second(self) -> int:
        kind = None if self.schema is None else self.schema.field(self.topic.columns.time).type
        if kind is not None and pa.types.is_timestamp(kind):
            return 1_000_000
        return _TICKS_PER_SECOND[self.topic.unit or "ms"]

    def _ticks(self, seconds: float) -> int:
        return int(seconds * self._per_second)
