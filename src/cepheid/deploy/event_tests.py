"""One table for the tests of all rules on one event (see `kernels.family.event_bits`).

A comparison of an attribute with a constant is found by one search for the attribute; so are event types. Any other
test of one event is computed column-wise, once for all rules that have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cepheid import expr as ex
from cepheid.codegen.columns import attribute, types_of
from cepheid.codegen.masks import EventAttributes, no_aggregate
from cepheid.codegen.strings import dictionary_encoded
from cepheid.codegen.typed_columns import from_arrow
from cepheid.codegen.vector import Evaluation
from cepheid.expr import FLIPPED, Attr, Compare, Const, Expr, In
from cepheid.io.rows import TYPE
from cepheid.kernels.family.event_bits import NO_ROW, WORD, bucket_of, classes_of_floats, classes_of_integers
from cepheid.physical import mask_test
from cepheid.runtime.jit import WORTH_COMPILING, machine_code
from cepheid.runtime.kernel import Array
from cepheid.types import Family, Type

_EXACT = 1 << 53
"""Floats are exact integers up to it."""
_ROWS = 1 << 20
"""About so many words of rows for each attribute: with more, reading them takes longer than the changes."""
_FEWEST_BUCKETS = 1 << 11
"""Where there are not more, a table of buckets stays in the first cache."""


@dataclass(frozen=True, slots=True)
class EventTest:
    """The tests of one rule on one event: its types (none: any) and further conditions."""

    types: tuple[str, ...]
    conditions: tuple[Expr, ...]


# --- the tests on one attribute ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Numbers:
    """Comparisons of a number with constants. A bit holds from one class to another, except for some."""

    name: str
    is_float: bool
    comparisons: list[tuple[int, str, int | float]] = field(default_factory=list)
    """Bit, operator and constant."""


@dataclass(slots=True)
class _Texts:
    """Equalities of a string, or of the event type, with constants."""

    name: str
    is_type: bool
    allowed: dict[int, set[str]] = field(default_factory=dict)
    """Bit -> the strings that pass."""
    excluded: dict[int, set[str]] = field(default_factory=dict)
    """Bit -> the strings that do not pass."""


@dataclass(frozen=True, slots=True)
class _Classes:
    """The classes of one attribute: a row of bits for each, and the bits by which it differs from the row."""

    rows: Array
    """In units of rows."""
    row_of: Array
    changes_from: Array
    changes_to: Array
    changes: Array


@dataclass(frozen=True, slots=True)
class _Buckets:
    """Sorted floats in buckets of their highest bits: `before` has the number of constants before each bucket from
    `first` on, and before the end of the last one."""

    before: Array
    first: int
    shift: int

    @classmethod
    def of(cls, constants: Array) -> _Buckets:
        bits: list[int] = constants.view(np.int64).tolist()
        wanted, shift = max(_FEWEST_BUCKETS, 4 * len(bits)), 1
        while bucket_of(bits[-1], shift) - bucket_of(bits[0], shift) >= wanted:
            shift += 1
        buckets = [bucket_of(each, shift) for each in bits]
        edges = np.arange(buckets[0], buckets[-1] + 2)
        return cls(np.searchsorted(np.array(buckets, np.int64), edges).astype(np.int64), buckets[0], shift)


@dataclass(slots=True)
class EventTests:
    """The tests of all bits. `classes` turns a batch into the class of each event for each attribute."""

    words: int
    types: Mapping[str, Type]
    lacks: Mapping[str, tuple[str, ...]]
    numbers: dict[str, _Numbers] = field(default_factory=dict)
    texts: dict[str, _Texts] = field(default_factory=dict)
    conditions: dict[str, tuple[Expr, list[int]]] = field(default_factory=dict)
    """Other tests, by their text, with their bits."""
    full: Array = field(init=False)
    constants: dict[str, Array] = field(default_factory=dict)
    buckets: dict[str, _Buckets] = field(default_factory=dict)
    """Of the constants that are floats."""
    strings: dict[str, dict[str, int]] = field(default_factory=dict)
    first_class: Array = field(init=False)
    row_of: Array = field(init=False)
    changes_from: Array = field(init=False)
    changes_to: Array = field(init=False)
    changes: Array = field(init=False)
    rows: Array = field(init=False)

    def __post_init__(self) -> None:
        self.full = np.zeros(self.words, np.int64)

    # --- bits ---------------------------------------------------------------------------------------------------------

    def add(self, bit: int, test: EventTest) -> None:
        """The test that a bit stands for."""
        self.full[bit // WORD] |= 1 << (bit % WORD)
        if test.types:
            self._text(TYPE, True, bit, "=", test.types)
        for condition in test.conditions:
            self._add(bit, condition)

    def _add(self, bit: int, condition: Expr) -> None:
        match condition:
            case Compare(op=op, left=Attr(name=name), right=Const(value=value)) if self._is_simple(name, op, value):
                self._compare(bit, name, op, value)
            case Compare(op=op, left=Const(value=value), right=Attr(name=name)) if self._is_simple(
                name, FLIPPED[op], value
            ):
                self._compare(bit, name, FLIPPED[op], value)
            case In(item=Attr(name=name), values=values) if all(
                isinstance(v, Const) and isinstance(v.value, str) and self._is_simple(name, "=", v.value)
                for v in values
            ):
                self._text(name, False, bit, "=", [str(v.value) for v in values if isinstance(v, Const)])
            case _:
                test = mask_test(condition).predicate
                self.conditions.setdefault(repr(test), (test, []))[1].append(bit)

    def _is_simple(self, name: str, op: str, value: object) -> bool:
        """Whether a class decides the comparison exactly as the values do."""
        family = self.types[name].family if name in self.types else None
        if isinstance(value, bool):
            return False
        if family is Family.STRING:
            return isinstance(value, str) and op in ("=", "!=")
        if family is Family.FLOAT:
            return (isinstance(value, float) and value == value) or (isinstance(value, int) and abs(value) <= _EXACT)
        return family is Family.INTEGER and isinstance(value, int) and abs(value) < 1 << 62

    def _compare(self, bit: int, name: str, op: str, value: object) -> None:
        if isinstance(value, str):
            self._text(name, False, bit, op, [value])
            return
        assert isinstance(value, int | float)
        is_float = self.types[name].family is Family.FLOAT
        self.numbers.setdefault(name, _Numbers(name, is_float)).comparisons.append((bit, op, value))

    def _text(self, name: str, is_type: bool, bit: int, op: str, values: Iterable[str]) -> None:
        of = self.texts.setdefault(name, _Texts(name, is_type))
        if op == "!=":
            of.excluded.setdefault(bit, set()).update(values)
        else:
            known = of.allowed.get(bit)
            of.allowed[bit] = set(values) if known is None else known & set(values)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def build(self) -> None:
        """Computes the rows of all classes, after the last bit is added."""
        made = [self._number_classes(of) for of in self.numbers.values()]
        made += [self._text_classes(of) for of in self.texts.values()]
        made += [self._condition_classes(bits) for _, bits in self.conditions.values()]
        classes = np.cumsum([0, *(len(of.row_of) for of in made)])
        rows = np.cumsum([0, *(len(of.rows) for of in made)])
        changes = np.cumsum([0, *(len(of.changes) for of in made)])
        none = np.empty(0, np.int64)
        self.first_class = classes[:-1].astype(np.int64)
        numbers = [
            np.where(of.row_of == NO_ROW, NO_ROW, of.row_of + first) for of, first in zip(made, rows, strict=False)
        ]
        self.row_of = np.concatenate([none, *(np.where(n == NO_ROW, NO_ROW, n * self.words) for n in numbers)])
        self.changes_from = np.concatenate([none, *(of.changes_from + c for of, c in zip(made, changes, strict=False))])
        self.changes_to = np.concatenate([none, *(of.changes_to + c for of, c in zip(made, changes, strict=False))])
        self.changes = np.concatenate([none, *(of.changes for of in made)])
        self.rows = np.concatenate([none, *(of.rows.reshape(-1) for of in made)])

    def without(self, masks: Array) -> EventTests:
        """These tests, but none of the bits in `masks`, one for each word, holds for any event."""
        made = copy(self)
        made.full = self.full & ~masks
        made.rows = (self.rows.reshape(-1, self.words) & ~masks).reshape(-1)
        stays = masks[self.changes // WORD] >> (self.changes % WORD) & 1 == 0
        before = np.concatenate([[0], np.cumsum(stays)])
        made.changes = self.changes[stays]
        made.changes_from, made.changes_to = before[self.changes_from], before[self.changes_to]
        return made

    def _number_classes(self, of: _Numbers) -> _Classes:
        dtype = np.float64 if of.is_float else np.int64
        constants = np.unique(np.array([value for *_, value in of.comparisons], dtype)) + dtype(0)  # -0.0 is 0.0
        self.constants[of.name] = constants
        if of.is_float:
            self.buckets[of.name] = _Buckets.of(constants)
        last = 2 * len(constants)
        ranges: dict[int, tuple[int, int, set[int]]] = {}
        for bit, op, value in of.comparisons:
            at = 2 * int(np.searchsorted(constants, value)) + 1
            low, high, holes = ranges.get(bit, (0, last, set()))
            match op:
                case "<":
                    high = min(high, at - 1)
                case "<=":
                    high = min(high, at)
                case ">":
                    low = max(low, at + 1)
                case ">=":
                    low = max(low, at)
                case "=":
                    low, high = max(low, at), min(high, at)
                case _:
                    holes = {*holes, at}
            ranges[bit] = low, high, holes
        first = self.full.copy()
        changes: list[tuple[int, int]] = []
        for bit, (low, high, holes) in ranges.items():
            inside = [hole for hole in holes if low <= hole <= high]
            edges = {low, high + 1} if low <= high else set()
            for edge in [e for hole in inside for e in (hole, hole + 1)]:
                edges ^= {edge}
            if 0 not in edges:
                first[bit // WORD] &= ~(1 << (bit % WORD))
            changes += [(edge, bit) for edge in edges if 0 < edge <= last]
        changes.sort()
        null = self.full.copy()
        for bit in ranges:
            null[bit // WORD] &= ~(1 << (bit % WORD))
        return self._in_blocks(first, changes, last + 1, null)

    def _in_blocks(self, first: Array, changes: Sequence[tuple[int, int]], classes: int, null: Array) -> _Classes:
        """A row for every few classes, that of the middle one; the others differ from it by the changes between. The
        last two classes are null and absent."""
        size = max(1, -(-classes * self.words // _ROWS))
        at_class = np.array([edge for edge, _ in changes], np.int64)
        bits = np.array([bit for _, bit in changes], np.int64)
        ends = np.searchsorted(at_class, np.arange(classes), "right")
        middles = np.minimum(np.arange(0, classes, size) + size // 2, classes - 1)
        row, rows, done = first.copy(), [], 0
        for upto in ends[middles].tolist():
            of = bits[done:upto]
            np.bitwise_xor.at(row, of // WORD, np.int64(1) << (of % WORD))
            rows.append(row.copy())
            done = upto
        block = np.arange(classes) // size
        row_of = np.concatenate([block, [len(rows), NO_ROW]])
        own, of_row = ends, ends[middles][block]
        starts = np.concatenate([np.minimum(own, of_row), [0, 0]])
        return _Classes(
            np.array([*rows, null]), row_of, starts, np.concatenate([np.maximum(own, of_row), [0, 0]]), bits
        )

    def _text_classes(self, of: _Texts) -> _Classes:
        values = sorted(set().union(*of.allowed.values(), *of.excluded.values()))
        numbers = {value: number for number, value in enumerate(values)}
        self.strings[of.name] = numbers
        other, null = self.full.copy(), self.full.copy()
        for bit in of.allowed:
            other[bit // WORD] &= ~(1 << (bit % WORD))
        for bit in {*of.allowed, *of.excluded}:
            null[bit // WORD] &= ~(1 << (bit % WORD))
        differing: list[set[int]] = [set() for _ in values]
        for bit, allowed in of.allowed.items():
            for value in allowed - of.excluded.get(bit, set()):
                differing[numbers[value]].add(bit)
        for bit, excluded in of.excluded.items():
            for value in excluded if bit not in of.allowed else ():
                differing[numbers[value]].add(bit)
        rows = [other, null]
        row_of: list[int] = []
        starts: list[int] = []
        changes: list[int] = []
        is_dense = len(values) * self.words <= _ROWS
        for bits in differing:
            starts.append(len(changes))
            if not is_dense:
                row_of.append(0)
                changes += sorted(bits)
                continue
            row = other.copy()
            for bit in bits:
                row[bit // WORD] ^= 1 << (bit % WORD)
            is_full = bool(np.array_equal(row, self.full))
            row_of.append(NO_ROW if is_full else len(rows))
            rows += [] if is_full else [row]
        starts.append(len(changes))
        last = np.array([len(changes)] * 3)
        return _Classes(
            np.array(rows),
            np.array([*row_of, 0, 1, NO_ROW]),
            np.concatenate([np.array(starts[:-1], np.int64), last]).astype(np.int64),
            np.concatenate([np.array(starts[1:], np.int64), last]).astype(np.int64),
            np.array(changes, np.int64),
        )

    def _condition_classes(self, bits: Sequence[int]) -> _Classes:
        fails = self.full.copy()
        for bit in bits:
            fails[bit // WORD] &= ~(1 << (bit % WORD))
        none = np.zeros(2, np.int64)
        return _Classes(np.array([fails]), np.array([0, NO_ROW]), none, none, np.empty(0, np.int64))

    # --- events -------------------------------------------------------------------------------------------------------

    @property
    def attributes(self) -> list[str]:
        """The attributes that the tests read."""
        names = [*self.numbers, *(name for name, of in self.texts.items() if not of.is_type)]
        names += [n.name for test, _ in self.conditions.values() for n in ex.walk(test) if isinstance(n, Attr)]
        return list(dict.fromkeys(names))

    def classes(self, batch: pa.RecordBatch) -> Array:
        """The class of each event for each attribute, one attribute after the other."""
        rows = batch.num_rows
        attributes = len(self.numbers) + len(self.texts) + len(self.conditions)
        classes = np.empty(attributes * rows, np.int64)
        parts = iter(classes[at * rows : (at + 1) * rows] for at in range(attributes))
        names, codes = types_of(batch, TYPE)
        for name, of in self.numbers.items():
            part = next(parts)
            self._classify(attribute(batch, name), of, part)
            self._absent(name, names, codes, part, 2 * len(self.constants[name]) + 2)
        for name, texts in self.texts.items():
            part, known = next(parts), self.strings[name]
            if texts.is_type:
                part[:] = np.array([known.get(each, len(known)) for each in names], np.int64)[codes]
                continue
            column = attribute(batch, name)
            part[:] = len(known) + 1 if column is None else _numbered(column, known)
            self._absent(name, names, codes, part, len(known) + 2)
        read = EventAttributes(self.lacks, batch, names, codes)
        evaluation = Evaluation(rows, read.read, no_aggregate)
        for condition, _ in self.conditions.values():
            next(parts)[:] = evaluation.truth(condition)[1]
        return classes

    def _classify(self, column: pa.Array | None, of: _Numbers, classes: Array) -> None:
        constants = self.constants[of.name]
        null = 2 * len(constants) + 1
        if column is None:
            classes[:] = null
            return
        known = from_arrow(column)
        is_long = len(classes) >= WORTH_COMPILING
        if of.is_float:
            floats = np.array(known.values, np.float64)
            if known.valid is not None:
                floats = np.where(known.valid, floats, np.nan)
            find = machine_code(classes_of_floats) if is_long else classes_of_floats
            floats = np.ascontiguousarray(np.broadcast_to(floats, (len(classes),))) + 0.0  # -0.0 is 0.0
            buckets = self.buckets[of.name]
            before, first, shift = buckets.before, buckets.first, buckets.shift
            find(floats, floats.view(np.int64), constants, before, first, shift, null, classes)
            return
        nulls = np.zeros(0, bool) if known.valid is None else ~np.asarray(known.valid)
        integers = np.array(np.broadcast_to(known.values, (len(classes),)), np.int64)
        count = machine_code(classes_of_integers) if is_long else classes_of_integers
        count(integers, constants, nulls, null, classes)

    def _absent(self, name: str, names: Sequence[str], codes: Array, classes: Array, absent: int) -> None:
        """Tests on an attribute that the event's type lacks do not apply (ruling 4)."""
        lacking = self.lacks.get(name)
        if lacking:
            classes[np.array([each in lacking for each in names])[codes]] = absent


def _numbered(column: pa.Array, known: Mapping[str, int]) -> Array:
    """The number of each string; one that is not known has the next number, and null the one after it."""
    encoded = column if isinstance(column, pa.DictionaryArray) else dictionary_encoded(column)
    numbers = [len(known) + 1 if v is None else known.get(v, len(known)) for v in encoded.dictionary.to_pylist()]
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(len(numbers))
    chosen: Array = np.array([*numbers, len(known) + 1], np.int64)[indices.to_numpy(zero_copy_only=False)]
    return chosen
