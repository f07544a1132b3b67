"""Expressions as kernel source.

Nothing of a query's text reaches the source: attributes are read through terms that the evaluator names, and constants
are passed in arrays (`integers`, `floats`, and `texts` for the codes of strings).

Three-valued truth (see `expr`) becomes two conditions: *certain*, the predicate is true, and *allowed*, it is not
false. They differ only where something the predicate names can be missing.

Numbers follow the rules of `types`: integers, times and short decimals are exact 64-bit integers, and a result that
does not fit is null (see `codegen.operands`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import reduce
from typing import Any, NamedTuple

from cepheid import expr as ex
from cepheid.codegen.operands import (
    NO_VALUE,
    Operand,
    arithmetic,
    called,
    chosen,
    compared,
    converted,
    joined,
    python_operator,
    where_known,
)
from cepheid.expr import Expr
from cepheid.functions import FUNCTIONS, kernels_compute
from cepheid.physical import Kind, kind_of
from cepheid.runtime.numbers import HIGHEST, LOWEST
from cepheid.types import SHORT_DIGITS, UNKNOWN, Family, Type, type_of
from cepheid.values import unscaled

NULL = {
    Kind.INT: "NULL_INT",
    Kind.UNSIGNED: "NULL_INT",
    Kind.CODE: "NULL_CODE",
    Kind.BOOL: "NULL_CODE",
    Kind.FLOAT: "np.nan",
}
"""How a null of each kind is written."""


def is_null(source: str, kind: Kind) -> str:
    """The test for a null: `x == NULL_INT`, or for floats `x != x`."""
    return f"{source} != {source}" if kind is Kind.FLOAT else f"{source} == {NULL[kind]}"


def is_known(source: str, kind: Kind) -> str:
    """The test for a value: `x != NULL_INT`, or for floats `x == x`."""
    return f"{source} == {source}" if kind is Kind.FLOAT else f"{source} != {NULL[kind]}"


def key_part(source: str, kind: Kind, as_float: bool = False) -> str:
    """A value as part of a key, `float_key(column0[e])`; as floats, integers equal floats."""
    if kind is Kind.FLOAT:
        return f"float_key({source})"
    return f"float_key(float({source}))" if as_float else source


@dataclass(frozen=True, slots=True)
class Term:
    """A value in the generated source. `missing` is a condition under which it is not there at all. `type` is needed of
    decimals. `known` is the condition that it is not null; None: its kind has a null value."""

    source: str
    kind: Kind
    missing: str | None = None
    type: Type = UNKNOWN
    known: str | None = None

    @property
    def is_known(self) -> str:
        """The condition that it is not null."""
        return is_known(self.source, self.kind) if self.known is None else self.known


def key_of(parts: Sequence[tuple[Term, bool]]) -> tuple[str, str]:
    """The key of values, `mixed_key(column0[e], column1[e])`, each as a float or not, and the condition that none of
    them is null, `column0[e] != NULL_INT and column1[e] != NULL_CODE`."""
    key = mixed([key_part(term.source, term.kind, as_float) for term, as_float in parts])
    return key, " and ".join(dict.fromkeys(term.is_known for term, _ in parts))


def mixed(parts: Sequence[str]) -> str:
    """One number of several: `mixed_key(key0, key1)`."""
    return reduce(lambda one, other: f"mixed_key({one}, {other})", parts)


@dataclass(frozen=True, slots=True)
class KeyFit:
    """How an equality of two attributes can be a key: with integers as floats or not, and whether the key decides it
    (integers that differ may be equal as floats)."""

    as_float: bool
    decides: bool


def key_fit(left: Type, right: Type) -> KeyFit | None:
    """How an equality of attributes of two types can be a key; None if it cannot."""
    kinds = {kind_of(left), kind_of(right)}
    if len(kinds) == 1 and left.scale == right.scale:
        return KeyFit(kinds == {Kind.FLOAT}, True)
    if kinds == {Kind.INT, Kind.FLOAT} and left.scale == right.scale == 0:
        return KeyFit(True, False)
    return None


Reader = Callable[[ex.Attr | ex.Aggregate], Term]


@dataclass(slots=True)
class Constants:
    """The constants of a kernel, in the order in which the source refers to them, and whether it compares strings by
    order, so that it needs the rank of each code, or by their characters, so that it needs those too."""

    integers: list[int] = field(default_factory=list)
    floats: list[float] = field(default_factory=list)
    texts: list[Any] = field(default_factory=list)
    needs_ranks: bool = False
    needs_characters: bool = False

    def integer(self, value: int) -> str:
        """`integers[1]`"""
        if value not in self.integers:
            self.integers.append(value)
        return f"integers[{self.integers.index(value)}]"

    def table(self, values: Sequence[int]) -> int:
        """The offset in `integers` from which the values follow one another."""
        self.integers += values
        return len(self.integers) - len(values)

    def float(self, value: int | float) -> str:
        """`floats[0]`"""
        number = float(value)
        if number not in self.floats:
            self.floats.append(number)
        return f"floats[{self.floats.index(number)}]"

    def text(self, value: object) -> str:
        """`texts[0]`, the code of a string, of a binary value or of a long decimal."""
        if value not in self.texts:
            self.texts.append(value)
        return f"texts[{self.texts.index(value)}]"

    @property
    def ranks(self) -> str:
        """The array with the rank of each code: `ranks`."""
        self.needs_ranks = True
        return "ranks"

    @property
    def characters(self) -> str:
        """The same array, as the table of the characters of each code (`runtime.texts`)."""
        self.needs_characters = True
        return self.ranks


class _Truth(NamedTuple):
    """The source of a predicate in three-valued logic."""

    certain: str
    """Whether it is true."""
    allowed: str
    """Whether it is not false: true, or it does not apply."""


def condition(predicate: Expr, read: Reader, constants: Constants) -> str:
    """Source that is true where the predicate is not false."""
    return _Scalars(read, constants).truth(predicate).allowed


def value(expr: Expr, read: Reader, constants: Constants) -> Operand:
    """The value of an expression none of whose attributes is missing."""
    return _Scalars(read, constants).value(expr, [])


# --- what can be compiled ---------------------------------------------------------------------------------------------


def uncompilable(predicates: Sequence[Expr], types: Mapping[str, Type]) -> list[Expr]:
    """The predicates between events that have no kernel source; `types` are those of the attributes."""
    nodes = list(map(ex.walk, predicates))
    pairs = zip(predicates, nodes, strict=True)
    return [predicate for predicate, own in pairs if not all(_node_is_compilable(node, types) for node in own)]


def _node_is_compilable(node: Expr, types: Mapping[str, Type]) -> bool:
    match node:
        case ex.Call(fn="length"):
            return _is_text(node.args[0], types)
        case ex.Call():
            return kernels_compute(node) and not any(_is_long(operand, types) for operand in (node, *node.args))
        case ex.Contains():
            return _is_text(node.item, types) and _is_text(node.text, types)
        case ex.Like():
            return _is_text(node.item, types) and _is_text(node.pattern, types)
        case ex.Arithmetic():
            return not (_is_long(node.left, types) or _is_long(node.right, types)) and node.type.scale <= SHORT_DIGITS
        case ex.Negative():
            return not _is_long(node.item, types)
        case ex.Compare():
            return _is_long(node.left, types) == _is_long(node.right, types)
        case ex.In():
            return len({_is_long(operand, types) for operand in (node.item, *node.values)}) == 1
        case ex.Aggregate():
            adds = ex.AGGREGATES[node.fn].result is ex.ResultType.NUMBER
            return not (adds and _is_long(node, types)) and (_counts(node) or not _is_list(node, types))
        case ex.Vector() | ex.Whole() | ex.OccursWithin() | ex.Param():
            return False
        case ex.Attr():
            return node.at is not ex.At.ALL and not _is_list(node, types)
        case _:
            return True


def _is_long(expr: Expr, types: Mapping[str, Type]) -> bool:
    """Whether values are decimals of more than 18 digits, which kernels compare by their ranks but do not compute."""
    kind = expr.type
    if isinstance(expr, ex.Attr) or (isinstance(expr, ex.Aggregate) and expr.name is not None and not _counts(expr)):
        kind = types.get(expr.name or "", UNKNOWN)
    return kind.family is Family.DECIMAL and not kind.is_short


def _is_text(expr: Expr, types: Mapping[str, Type]) -> bool:
    """Whether values are strings that have a code: those of events, constants, and choices between them."""
    if isinstance(expr, ex.Call) and FUNCTIONS[expr.fn].chooses and expr.type.family is Family.STRING:
        return kernels_compute(expr) and all(_is_text(a, types) for a in expr.args if a.type.family is Family.STRING)
    if not isinstance(expr, ex.Attr | ex.Aggregate | ex.Const) or (
        not isinstance(expr, ex.Const) and expr.name is None
    ):
        return False
    kind = expr.type if isinstance(expr, ex.Const) else types.get(expr.name or "", UNKNOWN)
    return kind.family is Family.STRING


def _is_list(expr: ex.Attr | ex.Aggregate, types: Mapping[str, Type]) -> bool:
    return expr.name is not None and types.get(expr.name, UNKNOWN).family is Family.LIST


def _counts(expr: ex.Aggregate) -> bool:
    return ex.AGGREGATES[expr.fn].result is ex.ResultType.COUNT


# --- source -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scalars:
    read: Reader
    constants: Constants

    def truth(self, expr: Expr) -> _Truth:
        match expr:
            case ex.And() | ex.Or():
                parts = [self.truth(item) for item in expr.items]
                allowed = joined(" and " if isinstance(expr, ex.And) else " or ", [p.allowed for p in parts])
                certain = [p.certain for p in parts]
                if certain == [p.allowed for p in parts]:
                    return _Truth(allowed, allowed)
                if isinstance(expr, ex.Or):
                    return _Truth(joined(" or ", certain), allowed)
                return _Truth(f"({allowed} and {joined(' or ', certain)})", allowed)
            case ex.Not() | ex.Filter():
                inner = self.truth(expr.item)
                if isinstance(expr, ex.Filter):
                    return inner
                return _Truth(f"(not {inner.allowed})", f"(not {inner.certain})")
            case _:
                missing: list[str] = []
                test = self.atom(expr, missing)
                if not missing:
                    return _Truth(test, test)
                gone = joined(" or ", list(dict.fromkeys(missing)))
                return _Truth(f"(not {gone} and {test})", f"({gone} or {test})")

    def atom(self, expr: Expr, missing: list[str]) -> str:
        match expr:
            case ex.Compare():
                return self.comparison(expr.op, self.value(expr.left, missing), self.value(expr.right, missing))
            case ex.In():
                item = self.value(expr.item, missing)
                return joined(" or ", [self.comparison("=", item, self.value(v, missing)) for v in expr.values])
            case ex.Contains():
                return self.text_test("text_contains", expr.item, expr.text, missing)
            case ex.Like():
                return self.text_test("text_like", expr.item, expr.pattern, missing)
            case ex.IsNull():
                item = self.value(expr.item, missing)
                if item.kind is None:
                    return "True"
                known = [*item.known, *([f"{item.source} == {item.source}"] if item.kind is Kind.FLOAT else [])]
                return f"(not ({' and '.join(known)}))" if known else "False"
            case _:
                item = self.value(expr, missing)
                if item.kind is not Kind.BOOL:
                    return "False"
                return where_known(item.known, f"{item.source} == 1")

    def text_test(self, test: str, item: Expr, other: Expr, missing: list[str]) -> str:
        """`(column0[e] != NULL_CODE and text_contains(ranks, column0[e], texts[0]))`"""
        left, right = self.value(item, missing), self.value(other, missing)
        if left.kind is not Kind.CODE or right.kind is not Kind.CODE:
            return "False"
        known = tuple(dict.fromkeys((*left.known, *right.known)))
        return where_known(known, f"{test}({self.constants.characters}, {left.source}, {right.source})")

    # --- comparisons --------------------------------------------------------------------------------------------------

    def comparison(self, op: str, left: Operand, right: Operand) -> str:
        """`(column0[e] != NULL_INT and column0[e] < integers[1])`"""
        if left.kind is None or right.kind is None:
            return "False"
        known = tuple(dict.fromkeys((*left.known, *right.known)))
        if Kind.BOOL in (left.kind, right.kind) or Kind.CODE in (left.kind, right.kind):
            if left.kind is not right.kind:
                return "False"
            if op in ("=", "!="):
                return where_known(known, f"{left.source} {python_operator(op)} {right.source}")
            ranks = "{}" if left.kind is Kind.BOOL else f"{self.constants.ranks}[{{}}]"
            return where_known(known, f"{ranks.format(left.source)} {op} {ranks.format(right.source)}")
        return where_known(known, compared(op, left, right))

    # --- values -------------------------------------------------------------------------------------------------------

    def value(self, expr: Expr, missing: list[str]) -> Operand:
        match expr:
            case ex.Const():
                return self.constant(expr)
            case ex.Attr() | ex.Aggregate():
                term = self.read(expr)
                if term.missing is not None:
                    missing.append(term.missing)
                known = () if term.kind is Kind.FLOAT and term.known is None else (term.is_known,)
                is_decimal = term.type.family is Family.DECIMAL and term.kind is Kind.INT
                scale = term.type.scale if is_decimal else 0
                return Operand(term.source, term.kind, scale, tuple(k for k in known if k != "True"), is_decimal)
            case ex.Negative():
                item = self.value(expr.item, missing)
                if item.kind is Kind.FLOAT:
                    return replace(item, source=f"(-{item.source})")
                return arithmetic("-", Operand("0", Kind.INT), item)
            case ex.Arithmetic():
                sides = self.value(expr.left, missing), self.value(expr.right, missing)
                return arithmetic(expr.op, *sides, expr.type.family is Family.DURATION)
            case ex.Call(fn="length"):
                item = self.value(expr.args[0], missing)
                if item.kind is not Kind.CODE:
                    return NO_VALUE
                return replace(item, source=f"text_length({self.constants.characters}, {item.source})", kind=Kind.INT)
            case ex.Call() if (expand := FUNCTIONS[expr.fn].expands) is not None:
                for arg in expr.args:  # what is missing from one that only a condition reads
                    self.value(arg, missing)
                return self.value(expand(expr), missing)
            case ex.Call(fn=ex.CASE):
                return self.cases(expr, missing)
            case ex.Call():
                return called(expr, [self.value(arg, missing) for arg in expr.args])
            case _:
                return Operand(f"int({self.truth(expr).allowed})", Kind.BOOL)

    def cases(self, case: ex.Call, missing: list[str]) -> Operand:
        """`(column0[e] if column1[e] == 1 else integers[0])`, and that the value which is chosen is not null."""
        otherwise = converted(self.value(case.args[-1], missing), case.type) if len(case.args) % 2 else NO_VALUE
        for test, of in reversed(list(zip(case.args[::2], case.args[1::2], strict=False))):
            condition = self.condition(test, missing)
            otherwise = chosen(condition, converted(self.value(of, missing), case.type), otherwise)
        return otherwise

    def condition(self, test: Expr, missing: list[str]) -> str:
        item = self.value(test, missing)
        return where_known(item.known, f"{item.source} == 1") if item.kind is Kind.BOOL else "False"

    def constant(self, node: ex.Const) -> Operand:
        value = node.value
        match value:
            case bool():
                return Operand(str(int(value)), Kind.BOOL)
            case int() if LOWEST <= value <= HIGHEST:
                return Operand(self.constants.integer(value), Kind.INT)
            case int() if 0 <= value < 2**64:
                return Operand(self.constants.integer(value - 2**64), Kind.UNSIGNED)
            case int() | float():
                return Operand(self.constants.float(value), Kind.FLOAT) if value == value else NO_VALUE
            case Decimal():
                kind = node.type if node.type.family is Family.DECIMAL else type_of(value)
                if not kind.is_short:
                    return Operand(self.constants.text(value), Kind.CODE)
                count = self.constants.integer(unscaled(value, kind.scale))
                return Operand(count, Kind.INT, kind.scale, is_decimal=True)
            case str() | bytes():
                code = self.constants.text(value)
                return Operand(code, Kind.CODE)
            case _:
                return NO_VALUE
