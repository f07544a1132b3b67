"""Values inside the expressions of a kernel, and the source of what is computed from them.

An operand is a piece of source and the conditions under which it is a value, `known`. They are tested before it is
used, so that a null is never computed with and a result that does not fit is null:

    (not sum_overflows(column0[e], integers[1]) and (column0[e] + integers[1]) < s0[i0 + S0_C0])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cepheid import expr as ex
from cepheid.errors import NotAvailable
from cepheid.functions import FUNCTIONS, digits_of
from cepheid.physical import Kind, kind_of
from cepheid.runtime.numbers import LOWEST
from cepheid.types import SHORT_DIGITS, Family, Type

_LIMIT = 10**SHORT_DIGITS


@dataclass(frozen=True, slots=True)
class Operand:
    """A value inside an expression. `known` are the conditions, in order, under which `source` may be computed and is
    not null (apart from NaN). `kind` is None for null itself."""

    source: str
    kind: Kind | None
    scale: int = 0
    known: tuple[str, ...] = ()
    is_decimal: bool = False


NO_VALUE = Operand("np.nan", None)


def where_known(known: Sequence[str], test: str) -> str:
    return f"({' and '.join([*known, test])})"


def compared(op: str, left: Operand, right: Operand) -> str:
    """The comparison of two numbers that are not null, exact whatever their kinds."""
    kinds = left.kind, right.kind
    if kinds in ((Kind.FLOAT, Kind.FLOAT), (Kind.INT, Kind.INT)) and left.scale == right.scale:
        # A comparison with NaN is false; only `!=` has to exclude it.
        if op == "!=" and left.kind is Kind.FLOAT:
            return f"({left.source} < {right.source} or {left.source} > {right.source})"
        return f"{left.source} {python_operator(op)} {right.source}"
    if left.kind is Kind.FLOAT or (left.kind is Kind.INT and right.kind is Kind.UNSIGNED):
        return compared(ex.FLIPPED[op], right, left)
    if right.kind is Kind.FLOAT:
        known = f"{right.source} == {right.source} and "
        if left.kind is Kind.UNSIGNED:
            return f"{known}compare_unsigned_float({left.source}, {right.source}) {python_operator(op)} 0"
        if left.scale:
            return f"{known}{nearest_float(left)} {python_operator(op)} {right.source}"
        return f"{known}compare_float({left.source}, {right.source}) {python_operator(op)} 0"
    if left.kind is right.kind is Kind.UNSIGNED:
        return _unsigned(op, left.source, right.source)
    if left.kind is Kind.UNSIGNED:
        if right.scale:
            # Beyond 2 ** 63 an unsigned integer is greater than every short decimal.
            order = f"-compare_scaled({right.source}, {left.source}, {10**right.scale})"
            return f"(1 if {left.source} < 0 else {order}) {python_operator(op)} 0"
        return f"compare_unsigned({left.source}, {right.source}) {python_operator(op)} 0"
    if left.scale < right.scale:
        return compared(ex.FLIPPED[op], right, left)
    factor = 10 ** (left.scale - right.scale)
    return f"compare_scaled({left.source}, {right.source}, {factor}) {python_operator(op)} 0"


def _unsigned(op: str, a: str, b: str) -> str:
    match op:
        case "=" | "!=":
            return f"{a} {python_operator(op)} {b}"
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


def arithmetic(op: str, left: Operand, right: Operand, is_duration: bool = False) -> Operand:
    numbers = (Kind.INT, Kind.UNSIGNED, Kind.FLOAT)
    if left.kind not in numbers or right.kind not in numbers:
        return NO_VALUE
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


def called(call: ex.Call, args: Sequence[Operand]) -> Operand:
    """A function keeps exact numbers exact: `abs(x)`, `x // 100` for the floor of a decimal."""
    function = FUNCTIONS[call.fn]
    if function.kernel is None:
        raise NotAvailable(f"`{ex.to_text(call)}` cannot be compiled", span=call.span)
    if any(arg.kind not in (Kind.INT, Kind.UNSIGNED, Kind.FLOAT) for arg in args):
        return NO_VALUE
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


def converted(operand: Operand, type_: Type) -> Operand:
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


def chosen(condition: str, value: Operand, otherwise: Operand) -> Operand:
    """`(value if condition else otherwise)`; each is computed only where it is chosen."""
    known = [" and ".join(of.known) or "True" if of.kind is not None else "False" for of in (value, otherwise)]
    if value.kind is None:
        return replace(otherwise, known=(f"(not {condition} and {known[1]})",)) if otherwise.kind else otherwise
    if otherwise.kind is None:
        return replace(value, known=(f"({condition} and {known[0]})",))
    source = f"({value.source} if {condition} else {otherwise.source})"
    decides = () if known == ["True", "True"] else (f"(({known[0]}) if {condition} else ({known[1]}))",)
    return replace(value, source=source, known=decides)


def python_operator(op: str) -> str:
    return "==" if op == "=" else op


def joined(word: str, parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({word.join(parts)})"
