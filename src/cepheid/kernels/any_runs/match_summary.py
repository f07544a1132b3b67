"""`RETURN count(*), sum(b.price), ...` over all matches, without enumerating them.

How many sequences a set of the compact store holds follows from how many the sets hold that it is made of, and so do
sums and extremes over them: one pass over the nodes that a window leaves, whatever the number of matches. Counts are
exact: machine integers where they fit, and Python's where there are too many matches.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from cepheid.events import START
from cepheid.expr import AGGREGATES, Aggregate, Expr, ResultType
from cepheid.kernels.aggregates import AGGREGATE_CODE, Merge
from cepheid.kernels.any_runs.amounts import (
    FITS_WHOLE,
    Infinite,
    exact_total,
    is_known,
    largest_finite,
    ranked,
    to_float,
)
from cepheid.kernels.any_runs.compact_store import BEFORE, LEFT, LOWEST, NODE_VALUES, RIGHT, STEP, TIME, is_alive
from cepheid.pattern import Column
from cepheid.physical import Kind, Plan
from cepheid.runtime.arrays import EMPTY, grown
from cepheid.runtime.jit import entry, jit_enabled, machine_code, njit
from cepheid.values import decimal_of

Array = np.ndarray

WORTH_COMPILING = 20_000
"""The number of nodes to visit from which machine code pays. Roots with different windows visit a node anew."""
_FITS_REAL = 4e15
"""What a float that holds integers exactly has room for."""
_MANY = 1e300
NO_ORDER = np.zeros(0, np.int64)


class Quantity(NamedTuple):
    """An attribute of the events of one component, or these events themselves."""

    component: int
    column: int | None
    """The attribute; None: the events."""
    kind: Kind
    scale: int = 0
    """The digits after the point of a decimal."""
    null: int | None = None
    """The word that says whether the attribute is null, if its kind has no null value."""


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """The one row of the output, and the times at which the first match starts and the last one ends, if there is one.
    A string (the `min` or `max` of some) is its code."""

    values: Mapping[str, Any]
    start: int | None
    end: int | None


@dataclass(slots=True)
class Totals:
    """Totals over the matches so far: their number, the earliest start and latest end, and for each quantity the number
    of its values, their sum, and the minimum and maximum (as 64-bit words)."""

    matches: int = 0
    start: int = 0
    end: int = 0
    known: list[int] = field(default_factory=list)
    sums: list[Any] = field(default_factory=list)
    least: list[int | None] = field(default_factory=list)
    most: list[int | None] = field(default_factory=list)

    def value(self, merge: Merge | None, at: int, kind: Kind) -> Any:
        """The total of the quantity at index `at` under this merge operation. At least one match has the quantity."""
        match merge:
            case Merge.COUNT:
                return self.known[at]
            case Merge.ADD:
                return self.sums[at]
            case _:
                word = self.least[at] if merge is Merge.LEAST else self.most[at]
                assert word is not None
                return _from_word(word, kind)


def _merges(column: Expr, plan: Plan) -> bool:
    """Whether the aggregate of some matches and that of others give the aggregate of both."""
    if not isinstance(column, Aggregate) or column.name is None:
        return True
    adds_codes = plan.columns[column.name] is Kind.CODE and AGGREGATES[column.fn].result is ResultType.NUMBER
    return not adds_codes and AGGREGATE_CODE[column.fn].merges


@dataclass(frozen=True, slots=True)
class Summary:
    """The columns of the output, each with the quantity that it aggregates (None: the matches themselves)."""

    asked: tuple[tuple[Column, Quantity | None], ...] = ()
    columns: tuple[str, ...] = ()
    """The attributes whose values the nodes carry."""
    nullable: tuple[str, ...] = ()
    """Those whose kind has no null value: after the values, the nodes carry whether each is null."""
    begins: int = TIME
    """The field of a node with the start of its event."""

    @classmethod
    def of(cls, plan: Plan, components: Mapping[str, int]) -> Summary:
        """What the store can add up without enumerating matches; nothing if one column needs them enumerated."""
        if not plan.query.summarizes or not all(_merges(column.expr, plan) for column in plan.query.output or ()):
            return cls()
        asked: list[tuple[Column, Quantity | None]] = []
        columns = [(column, column.expr) for column in plan.query.output or () if isinstance(column.expr, Aggregate)]
        summarised = [a.name for _, a in columns if a.var in components and a.name is not None]
        names = tuple(dict.fromkeys([*summarised, *([START] if plan.has_durations else [])]))
        nullable = tuple(name for name in names if name in plan.nulls)
        for column, aggregate in columns:
            name = aggregate.name
            if aggregate.var not in components:
                asked.append((column, None))
            elif name is None:
                asked.append((column, Quantity(components[aggregate.var], None, Kind.INT)))
            else:
                kind = plan.columns[name]
                scale = plan.types[name].scale if kind is Kind.INT else 0
                null = len(names) + nullable.index(name) if name in nullable else None
                asked.append((column, Quantity(components[aggregate.var], names.index(name), kind, scale, null)))
        begins = NODE_VALUES + names.index(START) if plan.has_durations else TIME
        return cls(tuple(asked), names, nullable, begins)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        return tuple(dict.fromkeys(quantity for _, quantity in self.asked if quantity is not None))

    @property
    def compared(self) -> frozenset[Quantity]:
        """The quantities of which a least or greatest value is asked for."""
        extremes = {Merge.LEAST, Merge.MOST}
        return frozenset(
            quantity
            for column, quantity in self.asked
            if quantity is not None
            and isinstance(column.expr, Aggregate)
            and extremes & set(AGGREGATE_CODE[column.expr.fn].merge)
        )

    @property
    def compares_texts(self) -> bool:
        return any(quantity.kind is Kind.CODE for quantity in self.compared)

    def row(self, packed_totals: Array) -> SummaryRow:
        totals = self.unpacked(packed_totals)
        values = {column.name: self._value(column, quantity, totals) for column, quantity in self.asked}
        return SummaryRow(values, totals.start if totals.matches else None, totals.end if totals.matches else None)

    def _value(self, column: Column, quantity: Quantity | None, totals: Totals) -> Any:
        if quantity is None:
            return totals.matches
        assert isinstance(column.expr, Aggregate)
        at = self.quantities.index(quantity)
        row = AGGREGATE_CODE[column.expr.fn]
        if not totals.known[at] and not row.is_count:
            return None
        values = {merge: totals.value(merge, at, quantity.kind) for merge in row.merge}
        if quantity.scale:
            values |= {merge: decimal_of(values[merge], quantity.scale) for merge in values if merge is not Merge.COUNT}
        return row.value(column.expr.type, list(values.values()))

    # --- totals of several kernels ------------------------------------------------------------------------------------

    def texts_of(self, packed_totals: Array, texts: Mapping[int, Any]) -> dict[int, Any]:
        """Of the texts by code, those that the totals contain."""
        totals = self.unpacked(packed_totals)
        codes = [word for at, words in self._extremes(totals) for word in (words[at],) if word is not None]
        return {code: texts[code] for code in codes}

    def merged(self, parts: Sequence[tuple[Array, Mapping[int, Any]]]) -> tuple[Array, dict[int, Any]]:
        """The totals of parts that different kernels computed, each with the texts of its own codes, and the texts of
        the codes in the result."""
        all_totals = [(self.unpacked(words), texts) for words, texts in parts]
        found = [
            (at, extremes, texts[word])
            for totals, texts in all_totals
            for at, extremes in self._extremes(totals)
            if (word := extremes[at]) is not None
        ]
        # Values of different quantities may be of types that have no order between them.
        ordered = [
            (at, text) for at in range(len(self.quantities)) for text in sorted({t for n, _, t in found if n == at})
        ]
        codes = {of: code for code, of in enumerate(ordered)}
        for at, extremes, text in found:
            extremes[at] = codes[at, text]
        merged = self.unpacked(np.zeros(1, np.int64))
        for totals, _ in all_totals:
            self._add(merged, totals)
        return self.packed(merged), {code: text for (_, text), code in codes.items()}

    def _extremes(self, totals: Totals) -> Iterator[tuple[int, list[int | None]]]:
        """Where the totals have the code of a text."""
        for at, quantity in enumerate(self.quantities):
            if quantity.kind is Kind.CODE:
                yield from ((at, totals.least), (at, totals.most))

    def _add(self, totals: Totals, others: Totals) -> None:
        if not others.matches:
            return
        totals.start = min(totals.start, others.start) if totals.matches else others.start
        totals.end = max(totals.end, others.end) if totals.matches else others.end
        totals.matches += others.matches
        for at, quantity in enumerate(self.quantities):
            totals.known[at] += others.known[at]
            totals.sums[at] += others.sums[at]
            for chosen, own, other in ((min, totals.least, others.least), (max, totals.most, others.most)):
                words = [word for word in (own[at], other[at]) if word is not None]
                own[at] = chosen(words, key=partial(_from_word, kind=quantity.kind), default=None)

    # --- totals as words ----------------------------------------------------------------------------------------------

    def unpacked(self, words: Array) -> Totals:
        """The totals; at first the words are a single zero."""
        count = len(self.quantities)
        if not words[0]:
            return Totals(0, 0, 0, [0] * count, [0] * count, [None] * count, [None] * count)
        numbers = _numbers(words)
        totals = Totals(next(numbers), next(numbers), next(numbers))
        for quantity in self.quantities:
            totals.known.append(next(numbers))
            total = next(numbers)
            totals.sums.append(_from_word(total, Kind.FLOAT) if quantity.kind is Kind.FLOAT else total)
            totals.least.append(next(numbers) if next(numbers) else None)
            totals.most.append(next(numbers) if next(numbers) else None)
        return totals

    def packed(self, totals: Totals) -> Array:
        numbers = [totals.matches, totals.start, totals.end]
        for at, quantity in enumerate(self.quantities):
            total = totals.sums[at]
            numbers += [totals.known[at], _to_word(float(total)) if quantity.kind is Kind.FLOAT else int(total)]
            for word in (totals.least[at], totals.most[at]):
                numbers += [0] if word is None else [1, word]
        words = [1]
        for number in numbers:
            length = number.bit_length() // 64 + 1
            data = number.to_bytes(8 * length, "little", signed=True)
            words += [length, *np.frombuffer(data, np.int64).tolist()]
        return np.array(words, np.int64)

    # --- the pass over the nodes --------------------------------------------------------------------------------------

    def added(self, packed_totals: Array, nodes: Array, stride: int, roots: Array, ranks: Array) -> Array:
        """The totals with the matches of more roots."""
        totals = self.unpacked(packed_totals)
        table = nodes.reshape(-1, stride)
        passes = len(np.unique(roots[1::2]))
        fast = jit_enabled() and len(table) * passes >= WORTH_COMPILING
        weights = _Weights.of(self, table, ranks, exact=not fast)
        exact: _Weights | None = None
        pairs = roots.reshape(-1, 2)
        while len(pairs):
            count = weights.add(totals, nodes, stride, pairs)
            if count < len(pairs):  # too many matches for machine numbers
                exact = exact or _Weights.of(self, table, ranks, exact=True)
                exact.add(totals, nodes, stride, pairs[count : count + 1])
            pairs = pairs[count + 1 :]
        return self.packed(totals)


def _numbers(words: Array) -> Iterator[int]:
    """The numbers of packed totals, each as the count of its words and then these."""
    at = 1
    while at < len(words):
        end = at + 1 + int(words[at])
        yield int.from_bytes(words[at + 1 : end].tobytes(), "little", signed=True)
        at = end


def _to_word(value: float) -> int:
    return int(np.float64(value).view(np.int64))


_HELD_AS: Mapping[Kind, type[np.generic]] = {Kind.FLOAT: np.float64, Kind.UNSIGNED: np.uint64}
"""The kinds of values whose words are not integers with a sign."""


def _from_word(word: int, kind: Kind) -> Any:
    return np.int64(word).view(_HELD_AS.get(kind, np.int64)).item()


class Weighed(NamedTuple):
    """The arrays of `weigh`: what it reads of each node and quantity, and what it finds out."""

    components: Array
    begins: Array
    """The start of the event of each node."""
    there: Array
    amounts: Array
    places: Array
    """The rank of each value among all values of its quantity."""
    floors: Array
    """The window for which a node is known."""
    counts: Array
    shadow: Array
    """As floats, which tell whether integers still fit, the number of matches and of their events."""
    times: Array
    known: Array
    """Whether a quantity has a value in any sequence of a node."""
    sums: Array
    extremes: Array


class Found(NamedTuple):
    """What `weigh` finds out about each of some roots."""

    counts: Array
    times: Array
    known: Array
    sums: Array
    extremes: Array


@dataclass(frozen=True, slots=True)
class _Weights:
    """What is known of the sets of a store: for each node and quantity, over all sequences that a window leaves."""

    quantities: tuple[Quantity, ...]
    ranks: Array
    exact: bool
    ordered: list[Array]
    """The words of each quantity's values, in order; `NO_ORDER` where nothing compares them."""
    fits: float
    """How many events the matches may have for machine numbers to be exact."""
    weighed: Weighed

    @classmethod
    def of(cls, summary: Summary, table: Array, ranks: Array, *, exact: bool) -> _Weights:
        quantities, compared = summary.quantities, summary.compared
        used, count = len(table), len(quantities)
        whole = all(quantity.kind is not Kind.FLOAT for quantity in quantities)
        number = object if exact else np.int64
        there = np.ones((used, count), np.bool_)
        amounts = np.zeros((used, count), number if exact or whole else np.float64)
        places = np.zeros((used, count), np.int64)
        ordered: list[Array] = []
        largest = 1.0
        for at, quantity in enumerate(quantities):
            if quantity.column is None:
                ordered.append(NO_ORDER)
                continue
            words = np.ascontiguousarray(table[:, NODE_VALUES + quantity.column])
            values = words.view(_HELD_AS.get(quantity.kind, np.int64))
            is_null = None if quantity.null is None else table[:, NODE_VALUES + quantity.null] != 0
            there[:, at] = is_known(words, quantity.kind) if is_null is None else ~is_null
            known = np.where(there[:, at], values, 0)
            if quantity in compared:
                own = values[there[:, at]]  # a null has no rank: that of 0 may be the rank of a value
                orderable = ranked(own, ranks) if quantity.kind is Kind.CODE else own
                _, first, places[there[:, at], at] = np.unique(orderable, return_index=True, return_inverse=True)
                ordered.append(np.ascontiguousarray(own).view(np.int64)[first])
            else:
                ordered.append(NO_ORDER)
            if exact and quantity.kind is Kind.FLOAT:
                amounts[:, at] = [Fraction(v) if math.isfinite(v) else Infinite(v) for v in known.tolist()]
            elif quantity.kind is not Kind.CODE:
                largest = max(largest, largest_finite(known))
                amounts[:, at] = known
        fits = math.inf if exact else (FITS_WHOLE if whole else _FITS_REAL) / largest
        weighed = Weighed(
            np.array([quantity.component for quantity in quantities], np.int64),
            np.ascontiguousarray(table[:, summary.begins]),
            there,
            amounts,
            places,
            np.full(used, LOWEST - 1, np.int64),
            np.zeros(used, number),
            np.zeros((used, 2), np.float64),
            np.zeros((used, 2), np.int64),
            np.zeros((used, count), number),
            np.zeros((used, count), amounts.dtype),
            np.zeros((used, 2 * count), np.int64),
        )
        return cls(quantities, ranks, exact, ordered, fits, weighed)

    def add(self, totals: Totals, nodes: Array, stride: int, roots: Array) -> int:
        """Adds the matches of roots, each with its window, and returns for how many. The next root, if there is one,
        has too many matches for machine numbers."""
        found = self._found(len(roots))
        function = weigh_roots if self.exact else machine_code(weigh_roots)
        count = int(function(nodes, stride, roots, self.fits, found, self.weighed))
        self._add_found(totals, Found(*(array[:count] for array in found)))
        return count

    def _found(self, roots: int) -> Found:
        """What is known of as many roots, for the arrays of `Weighed`."""
        of = self.weighed
        arrays = (of.counts, of.times, of.known, of.sums, of.extremes)
        return Found(*(np.zeros((roots, *array.shape[1:]), array.dtype) for array in arrays))

    def _add_found(self, totals: Totals, found: Found) -> None:
        if not len(found.counts):
            return
        start, end = int(found.times[:, 0].min()), int(found.times[:, 1].max())
        totals.start = start if totals.matches == 0 else min(totals.start, start)
        totals.end = end if totals.matches == 0 else max(totals.end, end)
        totals.matches += exact_total(found.counts)
        for at, quantity in enumerate(self.quantities):
            known = np.asarray(found.known[:, at] != 0, bool)
            if not known.any():
                continue
            totals.known[at] += exact_total(found.known[:, at])
            amounts = found.sums[known, at]
            if quantity.kind is Kind.FLOAT:
                totals.sums[at] = reduce(operator.add, map(to_float, amounts.tolist()), totals.sums[at])
            else:
                totals.sums[at] += exact_total(amounts)
            if self.ordered[at] is NO_ORDER:
                continue
            ranks = int(found.extremes[known, 2 * at].min()), int(found.extremes[known, 2 * at + 1].max())
            low, high = (int(self.ordered[at][rank]) for rank in ranks)
            least, most = totals.least[at], totals.most[at]
            totals.least[at] = low if least is None else min(least, low, key=self._order(quantity))
            totals.most[at] = high if most is None else max(most, high, key=self._order(quantity))

    def _order(self, quantity: Quantity) -> Callable[[int], Any]:
        """What the words of a quantity are compared by."""
        if quantity.kind is Kind.CODE:
            return lambda word: int(ranked(np.array([word]), self.ranks)[0])
        return lambda word: _from_word(word, quantity.kind)


@entry
def weigh_roots(nodes: Array, stride: int, roots: Array, fits: float, found: Found, weighed: Weighed) -> int:
    """Find out about roots, each with its window, up to the first with more matches than fit. Returns for how many."""
    for number in range(roots.shape[0]):
        root = roots[number, 0]
        weigh(nodes, stride, root, roots[number, 1], weighed)
        if not weighed.shadow[root, 1] < fits:
            return number
        found.counts[number] = weighed.counts[root]
        found.times[number, 0] = weighed.times[root, 0]
        found.times[number, 1] = weighed.times[root, 1]
        for q in range(weighed.components.shape[0]):
            found.known[number, q] = weighed.known[root, q]
            found.sums[number, q] = weighed.sums[root, q]
            found.extremes[number, 2 * q] = weighed.extremes[root, 2 * q]
            found.extremes[number, 2 * q + 1] = weighed.extremes[root, 2 * q + 1]
    return int(roots.shape[0])


@njit
def weigh(nodes: Array, stride: int, root: int, floor: int, weighed: Weighed) -> None:
    """Fill in what is known of a set within a window, and of all that it is made of."""
    components, begins, there, amounts, places, floors, counts, shadow, times, known, sums, extremes = weighed
    stack = np.empty(64, np.int64)
    stack[0] = root
    size = 1
    while size > 0:
        node = stack[size - 1]
        at = node * stride
        stack = grown(stack, size + 3)
        waiting = size
        for pointer in (BEFORE, LEFT, RIGHT):
            child = nodes[at + pointer]
            if floors[node] != floor and is_alive(nodes, stride, child, floor) and floors[child] != floor:
                stack[waiting] = child
                waiting += 1
        if waiting > size:
            size = waiting
            continue
        size -= 1
        if floors[node] == floor:
            continue
        floors[node] = floor
        before = nodes[at + BEFORE]
        first = before == EMPTY
        counts[node] = 1 if first else counts[before]
        shadow[node, 0] = 1.0 if first else shadow[before, 0]
        shadow[node, 1] = 1.0 if first else min(shadow[before, 1] + shadow[before, 0], _MANY)
        times[node, 0] = begins[node] if first else min(begins[node], times[before, 0])
        times[node, 1] = nodes[at + TIME]
        for q in range(components.shape[0]):
            known[node, q] = 0 if first else known[before, q]
            sums[node, q] = 0 if first else sums[before, q]
            if not first:
                extremes[node, 2 * q] = extremes[before, 2 * q]
                extremes[node, 2 * q + 1] = extremes[before, 2 * q + 1]
            if nodes[at + STEP] == components[q] and there[node, q]:
                widen(extremes, node, q, places[node, q], places[node, q], known[node, q] == 0)
                known[node, q] += counts[node]
                sums[node, q] += amounts[node, q] * counts[node]
        for pointer in (LEFT, RIGHT):
            child = nodes[at + pointer]
            if is_alive(nodes, stride, child, floor):
                for q in range(components.shape[0]):
                    if known[child, q] != 0:
                        low, high = extremes[child, 2 * q], extremes[child, 2 * q + 1]
                        widen(extremes, node, q, low, high, known[node, q] == 0)
                    known[node, q] += known[child, q]
                    sums[node, q] += sums[child, q]
                counts[node] += counts[child]
                shadow[node, 0] = min(shadow[node, 0] + shadow[child, 0], _MANY)
                shadow[node, 1] = min(shadow[node, 1] + shadow[child, 1], _MANY)
                times[node, 0] = min(times[node, 0], times[child, 0])
                times[node, 1] = max(times[node, 1], times[child, 1])


@njit
def widen(extremes: Array, node: int, quantity: int, low: int, high: int, first: bool) -> None:
    """Take a least and a greatest value into account."""
    extremes[node, 2 * quantity] = low if first else min(low, extremes[node, 2 * quantity])
    extremes[node, 2 * quantity + 1] = high if first else max(high, extremes[node, 2 * quantity + 1])


NO_SUMMARY = Summary()
