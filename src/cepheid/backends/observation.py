"""What passing events say about the stream (ZStream §5.3, the sampling operators at the leaf buffers): rates are
counted, selectivities are estimated from some hundred combinations of events that lie within a window."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cepheid import expr as ex
from cepheid.backends.stepping import TYPE
from cepheid.codegen.columns import types_of
from cepheid.codegen.masks import is_vectorisable, satisfied
from cepheid.expr import Attr, Expr
from cepheid.kernels import Array, Batch
from cepheid.optimize.stats import Stats, is_single
from cepheid.physical import Plan

_COMBINATIONS = 512
"""How many combinations of events a predicate is tried on."""
_STRETCH = 1 << 13
"""How many successive events combinations are drawn from: enough for some hundred, whatever the size of the batch."""
_UNSEEN = 0.5
"""What counts for a class or a selectivity of which nothing was seen: it is rare, but not impossible."""


@dataclass(slots=True)
class Observer:
    """Looks at the batches of one stream. `last` is the time of the last event before the batch at hand."""

    plan: Plan
    last: int | None = None
    chance: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    predicates: tuple[Expr, ...] = field(init=False)

    def __post_init__(self) -> None:
        between = (p for p in self.plan.predicates if len(ex.variables(p)) > 1)
        self.predicates = tuple(p for p in between if is_single(p) and is_vectorisable(p))

    def observe(self, events: pa.RecordBatch, encoded: Batch) -> Stats:
        """The statistics of a batch that is not empty. Where only masks came with it, an event that fails the
        single-class predicates of its class is not seen at all, and rates are those of the events that pass."""
        began = int(encoded.time[0]) - 1 if self.last is None else self.last
        self.last = int(encoded.time[-1])
        duration = max(self.last - began, 1)
        bits = {step.var: np.uint64(1 << step.begin) for step in self.plan.steps}
        passed = {var: max(int(np.count_nonzero(encoded.mask & bit)), _UNSEEN) for var, bit in bits.items()}
        found = self._of_class(events, passed)
        rates = {var: count / duration for var, count in found.items()}
        passing = {var: passed[var] / found[var] for var in found}
        return Stats(rates, passing, self._selectivities(events, encoded, bits), {}, len(encoded) / duration)

    def _of_class(self, events: pa.RecordBatch, passed: dict[str, float]) -> dict[str, float]:
        """The events of each class, whether they pass its single-class predicates or not."""
        tested = [step for step in self.plan.steps if self.plan.bits[step.begin].tests]
        if not tested or TYPE not in events.schema.names:
            return passed
        names, codes = types_of(events, TYPE)
        counts = dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True))
        found = dict(passed)
        for step in tested:
            types = self.plan.bits[step.begin].types or names
            found[step.var] = max(sum(counts.get(name, 0) for name in types), passed[step.var])
        return found

    # --- predicates between events ------------------------------------------------------------------------------------

    def _selectivities(self, events: pa.RecordBatch, encoded: Batch, bits: dict[str, np.uint64]) -> dict[str, float]:
        if not self.predicates:
            return {}
        start = int(self.chance.integers(0, max(len(encoded) - _STRETCH, 0) + 1))
        stretch = encoded.cut(start, start + _STRETCH)
        rows = events.slice(start, _STRETCH)
        named = dict.fromkeys(var for p in self.predicates for var in sorted(ex.variables(p)))
        members = {var: np.flatnonzero(stretch.mask & bits[var]) for var in named}
        shares = {}
        for predicate in self.predicates:
            combinations = self._combinations(predicate, stretch, members)
            if combinations is not None:
                shares[ex.to_text(predicate)] = self._share(predicate, rows, stretch, combinations)
        return shares

    def _combinations(self, predicate: Expr, batch: Batch, members: dict[str, Array]) -> dict[str, Array] | None:
        """Some events of each variable that the predicate names, those of one row within a window; None if there are
        none."""
        first, *others = sorted(ex.variables(predicate), key=lambda var: len(members[var]))
        if not len(members[first]):
            return None
        chosen = {first: members[first][self.chance.integers(0, len(members[first]), _COMBINATIONS)]}
        window = np.int64(self.plan.window or 0)
        place = batch.measure[chosen[first]]
        usable = np.ones(_COMBINATIONS, bool)
        for var in others:
            places = batch.measure[members[var]]
            low = np.searchsorted(places, place - window)
            high = np.searchsorted(places, place + window, "right")
            at = low + (self.chance.random(_COMBINATIONS) * (high - low)).astype(np.int64)
            usable &= high > low
            if not usable.any():
                return None
            chosen[var] = members[var][np.minimum(at, len(places) - 1)]
            for other in chosen:
                if other != var:
                    usable &= chosen[other] != chosen[var]
        return {var: at[usable] for var, at in chosen.items()} if usable.any() else None

    def _share(self, predicate: Expr, rows: pa.RecordBatch, batch: Batch, chosen: dict[str, Array]) -> float:
        tables = {var: rows.take(pa.array(at)) for var, at in chosen.items()}
        held = satisfied(predicate, tables) | self._lacking(predicate, batch, chosen)
        return max(int(np.count_nonzero(held)), _UNSEEN) / len(held)

    def _lacking(self, predicate: Expr, batch: Batch, chosen: dict[str, Array]) -> Array:
        """Where an event's type lacks an attribute that the predicate names, which makes it true."""
        size = len(next(iter(chosen.values())))
        lacking = np.zeros(size, bool)
        for node in ex.walk(predicate):
            if isinstance(node, Attr) and node.name in self.plan.lacking:
                bit = np.uint64(1 << self.plan.lacking[node.name])
                lacking |= (batch.mask[chosen[node.var]] & bit) != 0
        return lacking
