"""The type of an expression, and the errors where types do not fit."""

from __future__ import annotations

from collections.abc import Callable

from cepheid import expr as ex
from cepheid.errors import NameProblem, TypeProblem, did_you_mean, listing
from cepheid.events import Type, type_of
from cepheid.expr import Aggregate, Attr, Call, Const, Expr, to_text
from cepheid.functions import FUNCTIONS

AttributeType = Callable[[Attr], Type]


def infer(expr: Expr, attribute_type: AttributeType) -> Type:
    """The type of an expression; raises if types do not fit. `attribute_type` reads the schema."""
    match expr:
        case Const():
            return type_of(expr.value)
        case ex.Param():
            return Type.UNKNOWN
        case Attr():
            return attribute_type(expr)
        case ex.Whole():
            return Type.RECORD
        case Aggregate():
            return _infer_aggregate(expr, attribute_type)
        case ex.Arithmetic():
            for side in (expr.left, expr.right):
                _require(side, Type.NUMBER, attribute_type, f"`{expr.op}` works on numbers")
            return Type.NUMBER
        case ex.Negative():
            _require(expr.item, Type.NUMBER, attribute_type, "`-` works on numbers")
            return Type.NUMBER
        case ex.Vector():
            for item in expr.items:
                infer(item, attribute_type)
            return Type.VECTOR
        case Call():
            return _infer_call(expr, attribute_type)
        case ex.Compare():
            _infer_comparison(expr.op, expr.left, expr.right, expr, attribute_type)
        case ex.In():
            for value in expr.values:
                _infer_comparison("=", expr.item, value, expr, attribute_type)
        case ex.Contains():
            for side in (expr.item, expr.text):
                _require(side, Type.STRING, attribute_type, "CONTAINS works on strings")
        case ex.Like():
            _require(expr.item, Type.STRING, attribute_type, "LIKE works on strings")
        case ex.IsNull():
            infer(expr.item, attribute_type)
        case ex.And() | ex.Or():
            for item in expr.items:
                _require(item, Type.BOOLEAN, attribute_type, "AND and OR join conditions")
        case ex.Not() | ex.Filter():
            _require(expr.item, Type.BOOLEAN, attribute_type, "a condition is expected here")
        case ex.Same():
            if expr.value is not None:
                infer(expr.value, attribute_type)
    return Type.BOOLEAN


def _require(expr: Expr, wanted: Type, attribute_type: AttributeType, why: str) -> None:
    found = infer(expr, attribute_type)
    if not found.fits(wanted):
        raise TypeProblem(f"`{to_text(expr)}` is a {found.value}; {why}", span=expr.span, expected=f"a {wanted.value}")


def _infer_aggregate(expr: Aggregate, attribute_type: AttributeType) -> Type:
    if expr.name is None:
        return Type.NUMBER
    if expr.fn not in ex.AGGREGATES:
        raise _unknown_function(expr)
    of = attribute_type(Attr(expr.var, expr.name, span=expr.span))
    result = ex.AGGREGATES[expr.fn].result
    if result is ex.ResultType.COUNT:
        return Type.NUMBER
    if result is ex.ResultType.NUMBER and not of.fits(Type.NUMBER):
        raise TypeProblem(
            f"`{to_text(expr)}` adds up a {of.value}", span=expr.span, expected="an attribute that holds numbers"
        )
    return of


def _unknown_function(expr: Aggregate | Call) -> NameProblem:
    names = (*FUNCTIONS, *ex.AGGREGATES)
    return NameProblem(
        f"unknown function `{expr.fn}`",
        span=expr.span,
        expected=f"one of {listing(names, 20)}",
        hint=did_you_mean(expr.fn, names),
    )


def _infer_call(expr: Call, attribute_type: AttributeType) -> Type:
    function = FUNCTIONS.get(expr.fn)
    if function is None:
        raise _unknown_function(expr)
    if not function.least <= len(expr.args) <= function.most:
        wanted = str(function.least) if function.least == function.most else f"{function.least} to {function.most}"
        raise TypeProblem(f"`{expr.fn}` has {len(expr.args)} arguments", span=expr.span, expected=f"{wanted} arguments")
    for arg in expr.args:
        if function.takes is Type.UNKNOWN:
            infer(arg, attribute_type)
        else:
            _require(arg, function.takes, attribute_type, f"`{expr.fn}` takes a {function.takes.value}")
    return function.result


def _infer_comparison(op: str, left: Expr, right: Expr, whole: Expr, attribute_type: AttributeType) -> None:
    kinds = infer(left, attribute_type), infer(right, attribute_type)
    if not kinds[0].fits(kinds[1]):
        hint = None
        for kind, other in ((kinds[0], right), (kinds[1], left)):
            if kind is Type.NUMBER and isinstance(other, Const) and isinstance(other.value, str):
                hint = "a number is written without quotes"
            elif kind is Type.STRING and isinstance(other, Const) and isinstance(other.value, int | float):
                hint = f"a string is written in quotes: '{other.value}'"
        raise TypeProblem(
            f"`{to_text(whole)}` compares a {kinds[0].value} with a {kinds[1].value}",
            span=whole.span,
            expected="two values of the same type",
            hint=hint,
        )
    if op not in ("=", "!=") and (Type.BOOLEAN in kinds or Type.RECORD in kinds):
        raise TypeProblem(
            f"`{to_text(whole)}` orders values that have no order", span=whole.span, expected="numbers or strings"
        )
