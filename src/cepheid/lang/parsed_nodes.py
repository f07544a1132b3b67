"""Nodes of expressions that only parsers know, and aggregates of what they hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cepheid.errors import Span, SyntaxProblem
from cepheid.expr import Aggregate, At, Attr, Expr, OfMany, Operand, Over, Param, Same, Whole, to_text, transform, walk


@dataclass(frozen=True, slots=True)
class Group(Expr):
    """`a[]`, `a[].price`, `a[..i-1].price`: a stretch of a closure, which only an aggregate can take."""

    var: str
    name: str | None
    over: Over


@dataclass(frozen=True, slots=True)
class Length(Whole):
    """`a.LEN`, until it is known whether `a` is a closure: of another variable, it is the attribute of that name."""

    word: str


class EqualChain(OfMany):
    """`A = B = C`, until it is known which of its variables are negated."""


@dataclass(frozen=True, slots=True)
class ParsedColumn:
    expr: Expr
    name: str | None


# --- aggregates -------------------------------------------------------------------------------------------------------


def aggregate(fn: str, args: tuple[Expr, ...], span: Span) -> Expr:
    arg = args[0] if len(args) == 1 else None
    match arg:
        case Param() if fn == "count":
            return Aggregate(fn, arg.name, None, span=span)
        case Group() if arg.name is not None or fn == "count":
            return Aggregate(fn, arg.var, arg.name, arg.over, span=span)
        case Attr(at=At.EVENT):
            return Aggregate(fn, arg.var, arg.name, span=span)
        case Length():
            return Aggregate(fn, arg.var, arg.word, span=span)
        case Attr(at=At.PREVIOUS):
            # SASE+'s Table 1 writes avg(a[i-1].price) for the running aggregate.
            return Aggregate(fn, arg.var, arg.name, Over.BEFORE, span=span)
        case Expr() if (found := aggregate_of(fn, arg, span)) is not None:
            return found
        case _:
            raise SyntaxProblem(
                f"`{fn}` takes an attribute, or an expression over attributes, of one variable",
                span=span,
                expected=f"{fn}(variable.attribute)" + (", count(variable) or count(*)" if fn == "count" else ""),
                hint="write count(*) for the number of matches, count(a) for that of the events of a closure"
                if fn == "count" and not args
                else f"write {fn}(a.x * a.y), over one variable; compute from the matches what reads several",
            )


def aggregate_of(fn: str, arg: Expr, span: Span | None = None) -> Aggregate | None:
    """The aggregate of an expression over the events of one variable, `sum(b.v * b.w)`; None if it reads several
    variables, or none. `b[i].v` is read of each event, as `b.v` is."""
    overs: set[tuple[str, Over]] = set()
    for node in walk(arg):
        match node:
            case Group(name=str()):
                overs.add((node.var, node.over))
            case Attr(at=At.EVENT | At.CURRENT):
                overs.add((node.var, Over.GROUP))
            case Attr(at=At.PREVIOUS):
                overs.add((node.var, Over.BEFORE))
            case Attr() | Group() | Aggregate() | Whole() | Same() | EqualChain():
                return None
    if len(overs) != 1:
        return None
    ((var, over),) = overs

    def of_event(node: Expr) -> Expr:
        match node:
            case Attr():
                return replace(node, at=At.EVENT)
            case Group(name=str() as name):
                return Attr(var, name, span=node.span)
            case _:
                return node

    value = transform(arg, of_event)
    return Aggregate(fn, var, to_text(value), over, Operand(value), span=span)
