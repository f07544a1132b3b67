"""Expressions as kernel source.

Nothing of a query's text reaches the source: attributes are read through terms that the evaluator names, and constants
are passed in arrays (`integers`, `floats`, and `texts` for the codes of strings).

Three-valued truth (see `expr`) becomes two conditions: *certain*, the predicate is true, and *allowed*, it is not
false. They differ only where something the predicate names can be missing.

Numbers follow the rules of `types`: integers, times and short decimals are exact 64-bit integers, and a result that
does not fit is null. What must hold for an operand to be a value, `known`, is tested before it is used:

    (not sum_overflows(column0[e], integers[1]) and (column0[e] + integers[1]) < s0[i0 + S0_C0])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import reduce
from typing import Any, NamedTuple

from cepheid import expr as ex
from cepheid.errors import NotAvailable
from cepheid.expr import Expr
from cepheid.functions import FUNCTIONS, digits_of, kernels_compute
from cepheid.physical import Kind, kind_of
from cepheid.runtime.numbers import HIGHEST, LOWEST
from cepheid.types import SHORT_DIGITS, UNKNOWN, Family, Type, type_of

NULL = {
    Kind.INT: "NULL_INT",
    Kind.UNSIGNED: "NULL_INT",
    Kind.CODE: "NULL_CODE",
    Kind.BOOL: "NULL_CODE",
    Kind.FLOAT: "np.nan",
}
"""How a null of each kind is written."""
_LIMIT = 10**SHORT_DIGITS


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


@dataclass(frozen=True, slots=True)
class Operand:
    """A value inside an expression. `known` are the conditions, in order, under which `source` may be computed and is
    not null (apart from NaN). `kind` is None for null itself."""

    source: str
    kind: Kind | None
    scale: int = 0
    known: tuple[str, ...] = ()
    is_decimal: bool = False


_NULL = Operand("np.nan", None)


def condition(predicate: Expr, read: Reader, constants: Constants) -> str:
    """Source that is true where the predicate is not false."""
    return _Scalars(read, constants).truth(predicate).allowed


def value(expr: Expr, read: Reader, constants: Constants) -> Operand:
    """The value of an expression none of whose attributes is missing."""
    return _Scalars(read, constants).value(expr, [])


# --- what can be compiled ---------------------------------------------------------------------------------------------


def is_compilable(predicate: Expr, types: Mapping[str, Type]) -> bool:
    """Whether a predicate between events can be turned into kernel source; `types` are those of the attributes."""
    return all(_node_is_compilable(node, types) for node in ex.walk(predicate))


def _node_is_compilable(node: Expr, types: Mapping[str, Type]) -> bool:
    def long(*operands: Expr) -> list[bool]:
        return [_is_long(operand, types) for operand in operands]

    match node:
        case ex.Call(fn="length"):
            return _is_text(node.args[0], types)
        case ex.Call():
            return kernels_compute(node) and not any(long(node, *node.args))
        case ex.Contains():
            return _is_text(node.item, types) and _is_text(node.text, types)
        case ex.Like():
            return _is_text(node.item, types) and _is_text(node.pattern, types)
        case ex.Arithmetic():
            return not any(long(node.left, node.right)) and node.type.scale <= SHORT_DIGITS
        case ex.Negative():
            return not any(long(node.item))
        case ex.Compare():
            return len({*long(node.left, node.right)}) == 1
        case ex.In():
            return len({*long(node.item, *node.values)}) == 1
        case ex.Aggregate():
            adds = ex.AGGREGATES[node.fn].result is ex.ResultType.NUMBER
            return not (adds and any(long(node))) and not _is_list(node, types)
        case ex.Vector() | ex.Whole() | ex.OccursWithin() | ex.Param():
            return False
        case ex.Attr():
            return node.at is not ex.At.ALL and not _is_list(node, types)
        case _:
            return True


def _is_long(expr: Expr, types: Mapping[str, Type]) -> bool:
    """Whether values are decimals of more than 18 digits, which kernels compare by their ranks but do not compute."""
    kind = expr.type
    if isinstance(expr, ex.Attr | ex.Aggregate) and expr.name is not None and not _counts(expr):
        kind = types.get(expr.name, UNKNOWN)
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
    return expr.name is not None and types.get(expr.name, UNKNOWN).family is Family.LIST and not _counts(expr)


def _counts(expr: ex.Attr | ex.Aggregate) -> bool:
    return isinstance(expr, ex.Aggregate) and ex.AGGREGATES[expr.fn].result is ex.ResultType.COUNT


# --- source -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scalars:
    read: Reader
    constants: Constants

    def truth(self, expr: Expr) -> _Truth:
        match expr:
            case ex.And() | ex.Or():
                parts = [self.truth(item) for item in expr.items]
                joined = _joined(" and " if isinstance(expr, ex.And) else " or ", [p.allowed for p in parts])
                certain = [p.certain for p in parts]
                if certain == [p.allowed for p in parts]:
                    return _Truth(joined, joined)
                if isinstance(expr, ex.Or):
                    return _Truth(_joined(" or ", certain), joined)
                return _Truth(f"({joined} and {_joined(' or ', certain)})", joined)
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
                gone = _joined(" or ", list(dict.fromkeys(missing)))
                return _Truth(f"(not {gone} and {test})", f"({gone} or {test})")

    def atom(self, expr: Expr, missing: list[str]) -> str:
        match expr:
            case ex.Compare():
                return self.comparison(expr.op, self.value(expr.left, missing), self.value(expr.right, missing))
            case ex.In():
                item = self.value(expr.item, missing)
                return _joined(" or ", [self.comparison("=", item, self.value(v, missing)) for v in expr.values])
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
                return _when(item.known, f"{item.source} == 1")

    def text_test(self, test: str, item: Expr, other: Expr, missing: list[str]) -> str:
        """`(column0[e] != NULL_CODE and text_contains(ranks, column0[e], texts[0]))`"""
        left, right = self.value(item, missing), self.value(other, missing)
        if left.kind is not Kind.CODE or right.kind is not Kind.CODE:
            return "False"
        known = tuple(dict.fromkeys((*left.known, *right.known)))
        return _when(known, f"{test}({self.constants.characters}, {left.source}, {right.source})")

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
                return _when(known, f"{left.source} {_python(op)} {right.source}")
            ranks = "{}" if left.kind is Kind.BOOL else f"{self.constants.ranks}[{{}}]"
            return _when(known, f"{ranks.format(left.source)} {op} {ranks.format(right.source)}")
        return _when(known, _ordered(op, left, right))

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
                return _arithmetic("-", Operand("0", Kind.INT), item)
            case ex.Arithmetic():
                sides = self.value(expr.left, missing), self.value(expr.right, missing)
                return _arithmetic(expr.op, *sides, expr.type.family is Family.DURATION)
            case ex.Call(fn="length"):
                item = self.value(expr.args[0], missing)
                if item.kind is not Kind.CODE:
                    return _NULL
                return replace(item, source=f"text_length({self.constants.characters}, {item.source})", kind=Kind.INT)
            case ex.Call() if (expand := FUNCTIONS[expr.fn].expands) is not None:
                for arg in expr.args:  # what is missing from one that only a condition reads
                    self.value(arg, missing)
                return self.value(expand(expr), missing)
            case ex.Call(fn=ex.CASE):
                return self.cases(expr, missing)
            case ex.Call():
                return _call(expr, [self.value(arg, missing) for arg in expr.args])
            case _:
                return Operand(f"int({self.truth(expr).allowed})", Kind.BOOL)

    def cases(self, case: ex.Call, missing: list[str]) -> Operand:
        """`(column0[e] if column1[e] == 1 else integers[0])`, and that the value which is chosen is not null."""
        otherwise = _converted(self.value(case.args[-1], missing), case.type) if len(case.args) % 2 else _NULL
        for test, of in reversed(list(zip(case.args[::2], case.args[1::2], strict=False))):
            condition = self.condition(test, missing)
            otherwise = _chosen(condition, _converted(self.value(of, missing), case.type), otherwise)
        return otherwise

    def condition(self, test: Expr, missing: list[str]) -> str:
        item = self.value(test, missing)
        return _when(item.known, f"{item.source} == 1") if item.kind is Kind.BOOL else "False"

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
                return Operand(self.constants.float(value), Kind.FLOAT) if value == value else _NULL
            case Decimal():
                kind = node.type if node.type.family is Family.DECIMAL else type_of(value)
                if not kind.is_short:
                    return Operand(self.constants.text(value), Kind.CODE)
                unscaled = self.constants.integer(int(value.scaleb(kind.scale)))
                return Operand(unscaled, Kind.INT, kind.scale, is_decimal=True)
            case str() | bytes():
                code = self.constants.text(value)
                return Operand(code, Kind.CODE)
            case _:
                return _NULL


def _when(known: Sequence[str], test: str) -> str:
    return f"({' and '.join([*known, test])})"


def _ordered(op: str, left: Operand, right: Operand) -> str:
    """The comparison of two numbers that are not null, exact whatever their kinds."""
    kinds = left.kind, right.kind
    if kinds in ((Kind.FLOAT, Kind.FLOAT), (Kind.INT, Kind.INT)) and left.scale == right.scale:
        # A comparison with NaN is false; only `!=` has to exclude it.
        if op == "!=" and left.kind is Kind.FLOAT:
            return f"({left.source} < {right.source} or {left.source} > {right.source})"
        return f"{left.source} {_python(op)} {right.source}"
    if left.kind is Kind.FLOAT or (left.kind is Kind.INT and right.kind is Kind.UNSIGNED):
        return _ordered(ex.FLIPPED[op], right, left)
    if right.kind is Kind.FLOAT:
        known = f"{right.source} == {right.source} and "
        if left.kind is Kind.UNSIGNED:
            return f"{known}compare_unsigned_float({left.source}, {right.source}) {_python(op)} 0"
        if left.scale:
            return f"{known}{nearest_float(left)} {_python(op)} {right.source}"
        return f"{known}compare_float({left.source}, {right.source}) {_python(op)} 0"
    if left.kind is right.kind is Kind.UNSIGNED:
        return _unsigned(op, left.source, right.source)
    if left.kind is Kind.UNSIGNED:
        if right.scale:
            # Beyond 2 ** 63 an unsigned integer is greater than every short decimal.
            order = f"-compare_scaled({right.source}, {left.source}, {10**right.scale})"
            return f"(1 if {left.source} < 0 else {order}) {_python(op)} 0"
        return f"compare_unsigned({left.source}, {right.source}) {_python(op)} 0"
    if left.scale < right.scale:
        return _ordered(ex.FLIPPED[op], right, left)
    factor = 10 ** (left.scale - right.scale)
    return f"compare_scaled({left.source}, {right.source}, {factor}) {_python(op)} 0"


def _unsigned(op: str, a: str, b: str) -> str:
    match op:
        case "=" | "!=":
            return f"{a} {_python(op)} {b}"
        case "<":
            return f"unsigned_less({a}, {b})"
        case ">":
            return f"unsigned_less({b}, {a})"
        case "<=":
            return f"not unsigned_less({b}, {a})"
        case _:
            return f"not unsigned_less({a}, {b})"


def nearest_float(operand: Operand) -> str:
    """The nearest float: `float(column0[e]) / 100.0`."""
    if operand.kind is Kind.FLOAT:
        return operand.source
    if operand.kind is Kind.UNSIGNED:
        return f"unsigned_float({operand.source})"
    return f"float({operand.source}) / {10.0**operand.scale!r}" if operand.scale else f"float({operand.source})"


def _signed(operand: Operand) -> Operand:
    """An unsigned integer enters arithmetic as an integer."""
    if operand.kind is not Kind.UNSIGNED:
        return operand
    return replace(operand, kind=Kind.INT, known=(*operand.known, f"{operand.source} >= 0"))


def _arithmetic(op: str, left: Operand, right: Operand, is_duration: bool = False) -> Operand:
    numbers = (Kind.INT, Kind.UNSIGNED, Kind.FLOAT)
    if left.kind not in numbers or right.kind not in numbers:
        return _NULL
    known = tuple(dict.fromkeys((*left.known, *right.known)))
    is_decimal = any(side.is_decimal or side.scale > 0 for side in (left, right))
    is_rounded = is_duration and (op == "/" or (op == "*" and (is_decimal or Kind.FLOAT in (left.kind, right.kind))))
    if op == "/" or is_rounded or Kind.FLOAT in (left.kind, right.kind):
        a, b = nearest_float(left), nearest_float(right)
        source = {"/": f"divided({a}, {b})", "%": f"remainder({a}, {b})"}.get(op, f"({a} {op} {b})")
        if is_rounded:
            return Operand(whole_count(source), Kind.INT, known=(*known, has_whole_count(source)))
        return Operand(source, Kind.FLOAT, known=known)
    left, right = _signed(left), _signed(right)
    known = tuple(dict.fromkeys((*left.known, *right.known)))
    if op == "*":
        return _product(left, right, known, is_decimal)
    scale = max(left.scale, right.scale)
    (a, fits_a), (b, fits_b) = _rescaled(left, scale), _rescaled(right, scale)
    known = (*known, *fits_a, *fits_b)
    if op == "%":
        return _limited(Operand(f"modulo({a}, {b})", Kind.INT, scale, (*known, f"{b} != 0"), is_decimal))
    overflows = "sum_overflows" if op == "+" else "difference_overflows"
    return _limited(Operand(f"({a} {op} {b})", Kind.INT, scale, (*known, f"not {overflows}({a}, {b})"), is_decimal))


def whole_count(count: str) -> str:
    """A float as a count of microseconds: `int(rounded_float(x, 0))`."""
    return f"int(rounded_float({count}, 0))"


def has_whole_count(count: str) -> str:
    """The condition that 64 bits hold the count: `abs(x) < 9.2e+18`. It is false for NaN."""
    return f"abs({count}) < {2.0**63!r}"


def _product(left: Operand, right: Operand, known: tuple[str, ...], is_decimal: bool) -> Operand:
    source = f"({left.source} * {right.source})"
    known = (*known, f"not product_overflows({left.source}, {right.source})")
    return _limited(Operand(source, Kind.INT, left.scale + right.scale, known, is_decimal))


def _rescaled(operand: Operand, scale: int) -> tuple[str, tuple[str, ...]]:
    """The operand with more digits after the point, and the condition that it fits."""
    if operand.scale == scale:
        return operand.source, ()
    factor = 10 ** (scale - operand.scale)
    return f"({operand.source} * {factor})", (f"not product_overflows({operand.source}, {factor})",)


def _limited(operand: Operand) -> Operand:
    """A decimal with more than 18 digits is undefined."""
    if not operand.is_decimal:
        return operand
    return replace(operand, known=(*operand.known, f"{-_LIMIT} < {operand.source} < {_LIMIT}"))


def _call(call: ex.Call, args: Sequence[Operand]) -> Operand:
    """A function keeps exact numbers exact: `abs(x)`, `x // 100` for the floor of a decimal."""
    function = FUNCTIONS[call.fn]
    if function.kernel is None:
        raise NotAvailable(f"`{ex.to_text(call)}` cannot be compiled", span=call.span)
    if any(arg.kind not in (Kind.INT, Kind.UNSIGNED, Kind.FLOAT) for arg in args):
        return _NULL
    if call.fn == "round":
        return _rounded(args[0], digits_of(call.args))
    known = tuple(dict.fromkeys(k for arg in args for k in arg.known))
    if len(args) == 1 and args[0].kind is not Kind.FLOAT:
        (arg,) = args
        unit = 10**arg.scale
        match call.fn:
            case "abs" if arg.kind is Kind.INT:
                return replace(arg, source=f"abs({arg.source})", known=(*known, f"{arg.source} != {LOWEST}"))
            case "floor" | "ceil" if arg.scale:
                rounded = f"({arg.source} // {unit})" if call.fn == "floor" else f"(-(-{arg.source} // {unit}))"
                return Operand(rounded, Kind.INT, 0, known, is_decimal=True)
            case "abs" | "floor" | "ceil":
                return arg
    return Operand(function.kernel.format(*map(nearest_float, args)), Kind.FLOAT, known=known)


def _rounded(arg: Operand, digits: int) -> Operand:
    """`rounded_float(x, 2)`; of a decimal, `rounded_units(x, 100)`."""
    if arg.kind is Kind.FLOAT:
        return replace(arg, source=f"rounded_float({arg.source}, {digits})")
    arg = _signed(arg)
    if arg.scale <= digits:
        return arg
    return replace(arg, source=f"rounded_units({arg.source}, {10 ** (arg.scale - digits)})", scale=digits)


def _converted(operand: Operand, type_: Type) -> Operand:
    """A value in the type of a result that can hold it."""
    if operand.kind is None:
        return operand
    match kind_of(type_):
        case Kind.FLOAT:
            return Operand(nearest_float(operand), Kind.FLOAT, known=operand.known)
        case Kind.INT if type_.family is Family.DECIMAL:
            source, fits = _rescaled(operand, type_.scale)
            return Operand(source, Kind.INT, type_.scale, (*operand.known, *fits), is_decimal=True)
        case kind:
            return replace(operand, kind=kind)


def _chosen(condition: str, value: Operand, otherwise: Operand) -> Operand:
    """`(value if condition else otherwise)`; each is computed only where it is chosen."""
    known = [" and ".join(of.known) or "True" if of.kind is not None else "False" for of in (value, otherwise)]
    if value.kind is None:
        return replace(otherwise, known=(f"(not {condition} and {known[1]})",)) if otherwise.kind else otherwise
    if otherwise.kind is None:
        return replace(value, known=(f"({condition} and {known[0]})",))
    source = f"({value.source} if {condition} else {otherwise.source})"
    decides = () if known == ["True", "True"] else (f"(({known[0]}) if {condition} else ({known[1]}))",)
    return replace(value, source=source, known=decides)


def _python(op: str) -> str:
    return "==" if op == "=" else op


def _joined(word: str, parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({word.join(parts)})"
