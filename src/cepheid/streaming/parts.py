"""A bucket in parts: queries that were moved to it with their state stay apart from the others.

A state holds rows by their position in the bucket that it was made in, so the state of a query that moves stays whole:
it is a bucket of its own inside of the one that the query moves to. Once it is empty, the query joins the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from cepheid.runtime.kernel import END_OF_TIME
from cepheid.streaming import bucket_state
from cepheid.streaming import state as stream_state
from cepheid.streaming.bucket import Bucket, BucketOutput
from cepheid.streaming.bucket_context import BucketContext, Moved
from cepheid.streaming.plan import ONE_BUCKET, StreamPlan

_IDS = "moved"


@dataclass(slots=True)
class BucketParts:
    """The state of a bucket during a batch."""

    main: Bucket
    apart: list[Bucket] = field(default_factory=list)
    """Of queries that were moved here."""
    arriving: list[Bucket] = field(default_factory=list)
    """Those of `apart` that no state of this bucket holds yet."""

    @classmethod
    def load(cls, context: BucketContext, number: int, data: bytes | None) -> BucketParts:
        """A saved state (None: a new one), with the queries that were moved to the bucket since it was saved."""
        saved = None if data is None else stream_state.read(data, context.fingerprint)
        older = [] if saved is None else [bucket_state.read(context, part) for part in bucket_state.apart(saved)]
        known = {context.plan.queries[n].id for n in context.plan.sharing(number)}
        version = -1 if saved is None else saved.header.get("version", 0)
        moved = context.moved.get(number, ()) if version < context.plan.moved else ()
        new = {name for ids, _ in moved for name in ids}
        apart = [(ids & known - new, one) for one in older if (ids := {*one.header["own"]}) & known - new]
        arriving = [({*ids} & known, bucket_state.read(context, part)) for ids, part in moved if {*ids} & known]
        own = frozenset(name for ids, _ in (*apart, *arriving) for name in ids)
        if saved is None:
            main = replace(Bucket.new(context, number), apart=own)
        else:
            main = bucket_state.loaded(context, saved, number, apart=own)
        came = [bucket_state.loaded(context, one, number, frozenset(ids)) for ids, one in arriving]
        held = [bucket_state.loaded(context, one, number, frozenset(ids)) for ids, one in apart]
        return cls(main, [*held, *came], came)

    def save(self) -> bytes:
        return bucket_state.save(self.main, [bucket_state.save(one) for one in self.apart])

    @property
    def number(self) -> int:
        return self.main.number

    @property
    def is_empty(self) -> bool:
        """Whether the state is that of a new bucket. One that queries were moved to remembers that they came."""
        return self.main.is_empty and not self.apart and self.number not in self.main.context.moved

    def step(self, arrived: Sequence[pa.RecordBatch], watermark: int, ahead: int = -END_OF_TIME) -> BucketOutput:
        outputs = [one.step(arrived, watermark, ahead) for one in (self.main, *self.apart)]
        self.apart = [one for one in self.apart if not one.is_empty]
        if len(outputs) == 1:
            return outputs[0]
        counts: Counter[str] = Counter()
        for output in outputs:
            counts.update(output.counts)
        return BucketOutput(
            outputs[0].late,
            [table for output in outputs for table in output.matches],
            dict(counts),
            [switch for output in outputs for switch in output.switches],
            [dropped for output in outputs for dropped in output.dropped],
            {name: cost for output in outputs for name, cost in output.costs.items()},
            sum(output.spent for output in outputs),
        )


# --- moving -----------------------------------------------------------------------------------------------------------


def moved_states(before: BucketContext, states: Mapping[int, bytes], after: StreamPlan) -> Moved:
    """What the buckets of a version get from those of the one before it: the states of the queries that move, and of
    those that were moved earlier to buckets that have had no batch since."""
    slots = {query.id: query.slot for query in after.queries if query.key == ONE_BUCKET}
    first = after.keys.index(ONE_BUCKET) * after.buckets if slots else 0
    found: dict[int, list[tuple[tuple[str, ...], bytes]]] = {}
    for number in sorted({*states, *before.moved}):
        parts = BucketParts.load(before, number, states.get(number))
        for bucket in (parts.main, *parts.apart):
            by_bucket: dict[int, list[str]] = {}
            for _, query in bucket.queries:
                to = first + slots[query.id] if query.id in slots else number
                if to != number or any(bucket is one for one in parts.arriving):
                    by_bucket.setdefault(to, []).append(query.id)
            for to, ids in by_bucket.items():
                own = _only(bucket, ids)
                if not own.is_empty:
                    found.setdefault(to, []).append((tuple(ids), bucket_state.save(own)))
    return {number: tuple(pieces) for number, pieces in found.items()}


def _only(bucket: Bucket, ids: Collection[str]) -> Bucket:
    """The state of some of the queries of a bucket."""
    numbers = {number for number, query in bucket.queries if query.id in ids}
    made = replace(
        bucket,
        own=frozenset(ids),
        apart=frozenset(),
        memory={n: of for n, of in bucket.memory.items() if n in numbers},
        adapted={n: of for n, of in bucket.adapted.items() if n in numbers},
        output_counts={n: of for n, of in bucket.output_counts.items() if n in numbers},
        dropped={n: of for n, of in bucket.dropped.items() if n in numbers},
        summaries={n: of for n, of in bucket.summaries.items() if n in numbers},
        stopped=bucket.stopped & numbers,
        families=b"",
    )
    made.inner = {name: bucket.inner[name] for name in made.used_inner()}
    made.forget_others()
    return made


def write_moved(moved: Moved, fingerprint: str) -> bytes:
    """The states that move, as a file of the checkpoint."""
    pieces = [(number, ids, data) for number, of in moved.items() for ids, data in of]
    header = {"fingerprint": fingerprint, _IDS: [[number, [*ids]] for number, ids, _ in pieces]}
    return stream_state.write(header, [data for *_, data in pieces])


def read_moved(data: bytes, fingerprint: str) -> Moved:
    saved = stream_state.read(data, fingerprint)
    found: dict[int, list[tuple[tuple[str, ...], bytes]]] = {}
    for (number, ids), part in zip(saved.header[_IDS], saved.parts, strict=True):
        found.setdefault(number, []).append((tuple(ids), part))
    return {number: tuple(pieces) for number, pieces in found.items()}
