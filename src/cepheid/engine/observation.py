"""Statistics of a running stream (ZStream §5.3, the sampling operators at the leaf buffers).

Rates are counted. Selectivities are estimated from a few hundred combinations of events within a window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import pyarrow as pa

from cepheid import expr as ex
from cepheid.codegen.columns import types_of
from cepheid.expr import Attr, Expr
from cepheid.io.rows import TYPE
from cepheid.optimize.stats import Stats, is_single
from cepheid.physical import Kind, Plan
from cepheid.runtime.arrays import NULL_CODE, NULL_INT
from cepheid.runtime.kernel import Array, Batch
from cepheid.types import Family

_COMBINATIONS, _MANY = 512, 4096
"""The number of combinations of events that a predicate is tested on: enough to notice a change, and enough to choose a
plan."""
_COUNTED = 1 << 13
"""The number of events of a batch that are counted, and that combinations are drawn from for a thorough sample."""
_STRETCH = 1 << 12
"""The number of events of a batch that combinations are drawn from otherwise."""
_UNSEEN = 0.5
"""The assumed count of a class or predicate without occurrence: rare, but not impossible."""
_FEW_BITS = 12
"""The most mask bits for which all masks are counted in one pass."""


@dataclass(frozen=True, slots=True)
class _Observed:
    """A predicate between events. `lacking` holds, by variable, the mask bit of events whose type lacks an attribute of
    the predicate, which makes the predicate true."""

    text: str
    predicate: Expr
    variables: tuple[str, ...]
    lacking: tuple[tuple[str, np.uint64], ...]

    @classmethod
    def of(cls, predicate: Expr, plan: Plan) -> _Observed:
        named = [node for node in ex.walk(predicate) if isinstance(node, Attr) and node.name in plan.lacking]
        lacking = tuple((node.var, np.uint64(1 << plan.lacking[node.name])) for node in named)
        return cls(ex.to_text(predicate), predicate, tuple(sorted(ex.variables(predicate))), lacking)


class Observer:
    """Samples the batches of one stream on their way to the kernel of a plan."""

    def __init__(self, plan: Plan, last: int | None = None) -> None:
        self.plan = plan
        self.last = last
        """The time of the last event before the current batch."""
        self.shares = np.random.default_rng(1).random((len(plan.steps), _MANY))
        """Random numbers that select an event in the window for each further variable."""
        self.column = {name: (number, kind) for number, (name, kind) in enumerate(plan.columns.items())}
        self.bit = {step.var: step.begin for step in plan.steps}

    @cached_property
    def predicates(self) -> list[_Observed]:
        between = [p for p in self.plan.predicates if len(ex.variables(p)) > 1 and is_single(p)]
        return [_Observed.of(p, self.plan) for p in between if _is_observable(p, self.plan.columns)]

    def pass_over(self, encoded: Batch) -> None:
        """Skips a batch."""
        self.last = int(encoded.time[-1])

    def observe(self, events: pa.RecordBatch, encoded: Batch, *, thoroughly: bool = False) -> Stats:
        """The statistics of the last, newest events of a batch that is not empty. A batch without types contains only
        events that pass the single-class predicates of their class, so its rates are those of the passing events."""
        before = len(encoded) - _COUNTED
        if before > 0:
            began = int(encoded.time[before - 1])
            events, encoded = events.slice(before), encoded.cut(before, len(encoded))
        else:
            began = int(encoded.time[0]) - 1 if self.last is None else self.last
        self.last = int(encoded.time[-1])
        duration = max(self.last - began, 1)
        passed = {var: max(count, _UNSEEN) for var, count in self.passing(encoded.mask).items()}
        counts = self.of_class(events, passed)
        rates = {var: count / duration for var, count in counts.items()}
        passing = {var: passed[var] / counts[var] for var in counts}
        return Stats(rates, passing, self._selectivities(encoded, thoroughly), {}, len(encoded) / duration)

    def passing(self, mask: Array) -> dict[str, int]:
        """The number of events that each variable can bind."""
        if len(self.plan.bits) > _FEW_BITS:
            return {var: int(np.count_nonzero(mask & np.uint64(1 << bit))) for var, bit in self.bit.items()}
        counts = np.bincount(mask.view(np.int64), minlength=1 << len(self.plan.bits))
        masks = np.arange(len(counts))
        return {var: int(counts[(masks >> bit & 1).astype(bool)].sum()) for var, bit in self.bit.items()}

    def of_class(self, events: pa.RecordBatch, passed: Mapping[str, float]) -> dict[str, float]:
        """The number of events of each class, including those that fail its single-class predicates."""
        totals = dict(passed)
        tested = [step for step in self.plan.steps if self.plan.bits[step.begin].tests]
        if tested and TYPE in events.schema.names:
            names, codes = types_of(events, TYPE)
            counts = dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True))
            for step in tested:
                types = self.plan.bits[step.begin].types or names
                totals[step.var] = max(sum(counts.get(name, 0) for name in types), passed[step.var])
        return totals

    # --- predicates between events ------------------------------------------------------------------------------------

    def _selectivities(self, encoded: Batch, thoroughly: bool) -> dict[str, float]:
        if not self.predicates:
            return {}
        size, number = (_COUNTED, _MANY) if thoroughly else (_STRETCH, _COMBINATIONS)
        stretch = encoded.cut(max(len(encoded) - size, 0), len(encoded))
        named = sorted({var for observed in self.predicates for var in observed.variables})
        can_be = {var: stretch.mask & np.uint64(1 << self.bit[var]) for var in named}
        members = {var: bits.astype(bool).nonzero()[0] for var, bits in can_be.items()}
        shares: dict[str, float] = {}
        for observed in self.predicates:
            names = sorted(observed.variables, key=lambda var: len(members[var]))
            if not len(members[names[0]]):
                continue
            chosen, usable = self._combinations(number, names, stretch.measure, members)
            tried = int(np.count_nonzero(usable))
            if tried:
                held = _truth(observed.predicate, lambda node: self._values(node, stretch, chosen))  # noqa: B023
                for var, bit in observed.lacking:
                    held = held | ((stretch.mask[chosen[var]] & bit) != 0)
                shares[observed.text] = max(int(np.count_nonzero(held & usable)), _UNSEEN) / tried
        return shares

    def _combinations(
        self, number: int, names: Sequence[str], offsets: Array, members: Mapping[str, Array]
    ) -> tuple[dict[str, Array], Array]:
        """Draws combinations of one event per variable within a window. Returns the events of each variable, and a mask
        of the usable combinations. The events of the first variable are evenly spread, so that the searches for the
        others go forwards."""
        first, *others = names
        chosen = {first: members[first][np.arange(number) * len(members[first]) // number]}
        around = offsets[chosen[first]]
        window = int(self.plan.window or 0)
        usable: Array = np.ones(number, bool)
        for var, shares in zip(others, self.shares, strict=False):
            own = offsets[members[var]]
            low, high = np.searchsorted(own, around - window), np.searchsorted(own, around + window, "right")
            at = low + (shares[:number] * (high - low)).astype(np.int64)
            usable &= high > low
            drawn = members[var][np.minimum(at, len(own) - 1)]
            for other in chosen.values():
                usable &= other != drawn
            chosen[var] = drawn
        return chosen, usable

    def _values(self, node: Attr, batch: Batch, chosen: Mapping[str, Array]) -> Array:
        """The values of an attribute as floats, NaN for null."""
        number, kind = self.column[node.name]
        values: Array = batch.columns[number][chosen[node.var]]
        if kind is Kind.FLOAT:
            return values
        return np.where(values == (NULL_CODE if kind is Kind.CODE else NULL_INT), np.nan, values)


# --- predicates over many combinations at once ------------------------------------------------------------------------


def _is_observable(predicate: Expr, columns: Mapping[str, Kind]) -> bool:
    """Whether a predicate consists of comparisons of numbers and equalities of strings."""
    match predicate:
        case ex.And() | ex.Or():
            return all(_is_observable(item, columns) for item in predicate.items)
        case ex.Not():
            return _is_observable(predicate.item, columns)
        case ex.Compare():
            sides = (predicate.left, predicate.right)
            if predicate.op in ("=", "!=") and all(isinstance(s, Attr) and columns[s.name] is Kind.CODE for s in sides):
                return True
            return all(_is_arithmetic(side) for side in sides)
        case _:
            return False


def _is_arithmetic(expr: Expr) -> bool:
    """Whether an expression computes integers, floats or times. (The arrays of a kernel hold decimals unscaled.)"""
    is_number = expr.type.is_number or expr.type.is_time
    if not is_number or expr.type.family in (Family.DECIMAL, Family.UNSIGNED):
        return False
    match expr:
        case Attr() | ex.Const():
            return True
        case ex.Negative() | ex.Arithmetic():
            return all(_is_arithmetic(part) for part in ex.children(expr))
        case _:
            return False


_COMPARISONS = {"=": np.equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
_OPERATIONS = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.mod}


def _truth(predicate: Expr, read: Callable[[Attr], Array]) -> Array:
    """One truth value for each combination, or a single one for a comparison of constants."""
    match predicate:
        case ex.And():
            return reduce(np.logical_and, [_truth(item, read) for item in predicate.items])
        case ex.Or():
            return reduce(np.logical_or, [_truth(item, read) for item in predicate.items])
        case ex.Not():
            return ~_truth(predicate.item, read)
        case ex.Compare():
            left, right = _number(predicate.left, read), _number(predicate.right, read)
            with np.errstate(invalid="ignore"):
                if predicate.op == "!=":
                    return np.asarray((left < right) | (left > right))
                return np.asarray(_COMPARISONS[predicate.op](left, right))
        case _:
            raise AssertionError("not arithmetic")


def _number(expr: Expr, read: Callable[[Attr], Array]) -> Array | float:
    match expr:
        case Attr():
            return read(expr)
        case ex.Const(value=int() | float() as value):
            return float(value)
        case ex.Negative():
            return -_number(expr.item, read)
        case ex.Arithmetic():
            with np.errstate(all="ignore"):
                return _OPERATIONS[expr.op](_number(expr.left, read), _number(expr.right, read))
        case _:
            raise AssertionError("not arithmetic")
