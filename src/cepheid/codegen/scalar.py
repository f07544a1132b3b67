"""Expressions as kernel source.

Nothing of a query's text reaches the source: attributes are read through terms that the evaluator names, and constants
are passed in arrays (`numbers` for numbers, `texts` for the codes of strings).

Three-valued truth (see `expr`) becomes two conditions: *certain*, the predicate is true, and *allowed*, it is not
false. They differ only where something the predicate names can be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce

from cepheid import expr as ex
from cepheid.errors import NotAvailable
from cepheid.expr import Expr
from cepheid.functions import FUNCTIONS
from cepheid.physical import Kind

NULL = {Kind.INT: "NULL_INT", Kind.CODE: "NULL_CODE", Kind.FLOAT: "np.nan"}
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
    return f"float_key(null_to_nan({source}))" if as_float else source


@dataclass(frozen=True, slots=True)
class Term:
    """A value in the generated source. `missing` is a condition under which it is not there at all."""

    source: str
    kind: Kind
    missing: str | None = None


def key_of(parts: Sequence[tuple[Term, bool]]) -> tuple[str, str]:
    """The key of values, `mixed_key(column0[e], column1[e])`, each as a float or not, and the condition that none of
    them is null, `column0[e] != NULL_INT and column1[e] != NULL_CODE`."""
    key = mixed([key_part(term.source, term.kind, as_float) for term, as_float in parts])
    return key, " and ".join(is_known(term.source, term.kind) for term, _ in parts)


def mixed(parts: Sequence[str]) -> str:
    """One number of several: `mixed_key(key0, key1)`."""
    return reduce(lambda one, other: f"mixed_key({one}, {other})", parts)


Reader = Callable[[ex.Attr | ex.Aggregate], Term]


@dataclass(slots=True)
class Constants:
    """The constants of a kernel, in the order in which the source refers to them, and whether it compares strings by
    order, so that it needs the rank of each code."""

    numbers: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    needs_ranks: bool = False

    def number(self, value: int | float) -> str:
        if value not in self.numbers:
            self.numbers.append(float(value))
        return f"numbers[{self.numbers.index(value)}]"

    def text(self, value: str) -> str:
        if value not in self.texts:
            self.texts.append(value)
        return f"texts[{self.texts.index(value)}]"

    @property
    def ranks(self) -> str:
        """The array with the rank of each code: `ranks`."""
        self.needs_ranks = True
        return "ranks"


@dataclass(frozen=True, slots=True)
class _Truth:
    certain: str
    allowed: str


def condition(predicate: Expr, read: Reader, constants: Constants) -> str:
    """Source that is true where the predicate is not false."""
    return _Scalars(read, constants).truth(predicate).allowed


def number(expression: Expr, read: Reader, constants: Constants) -> str:
    """Source of an expression's value as a float (NaN where it is null)."""
    return _Scalars(read, constants).float_of(expression, [])


def is_compilable(predicate: Expr) -> bool:
    """Whether a predicate between events can be turned into kernel source."""
    return all(_node_is_compilable(node) for node in ex.walk(predicate))


def _node_is_compilable(node: Expr) -> bool:
    match node:
        case ex.Call():
            return FUNCTIONS[node.fn].kernel is not None
        case ex.Like() | ex.Contains() | ex.Vector() | ex.Whole() | ex.OccursWithin() | ex.Param():
            return False
        case ex.Attr():
            return node.at is not ex.At.ALL
        case _:
            return True


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
                return self.comparison(expr.op, expr.left, expr.right, missing)
            case ex.In():
                return _joined(" or ", [self.comparison("=", expr.item, v, missing) for v in expr.values])
            case ex.IsNull():
                term = self.term(expr.item, missing)
                of = term or Term(self.float_of(expr.item, missing), Kind.FLOAT)
                return f"({is_null(of.source, of.kind)})"
            case ex.Const():
                return "True" if expr.value is True else "False"
            case _:
                term = self.term(expr, missing)
                if term is None:
                    raise NotAvailable(f"`{ex.to_text(expr)}` cannot be compiled as a condition", span=expr.span)
                return f"({term.source} == 1)"

    def comparison(self, op: str, left: Expr, right: Expr, missing: list[str]) -> str:
        for side in (left, right):
            if isinstance(side, ex.Const) and side.value is None:
                return "False"
        sides = self.term(left, missing), self.term(right, missing)
        kinds = [_kind_of(expr, term) for expr, term in zip((left, right), sides, strict=True)]
        if Kind.CODE in kinds:
            if kinds != [Kind.CODE, Kind.CODE]:
                return "False"
            return self.compare_codes(op, *(self.code_of(e, t) for e, t in zip((left, right), sides, strict=True)))
        if kinds == [Kind.INT, Kind.INT] and sides[0] is not None and sides[1] is not None:
            a, b = sides[0].source, sides[1].source
            return f"({a} != NULL_INT and {b} != NULL_INT and {a} {_python(op)} {b})"
        a, b = self.float_of(left, missing), self.float_of(right, missing)
        if op == "!=":
            return f"({a} < {b} or {a} > {b})"
        return f"({a} {_python(op)} {b})"

    def term(self, expr: Expr, missing: list[str]) -> Term | None:
        """The term of an attribute or aggregate; None for any other expression."""
        if not isinstance(expr, ex.Attr | ex.Aggregate):
            return None
        term = self.read(expr)
        if term.missing is not None:
            missing.append(term.missing)
        return term

    def code_of(self, expr: Expr, term: Term | None) -> str:
        if term is not None:
            return term.source
        assert isinstance(expr, ex.Const)
        if isinstance(expr.value, bool):
            return str(int(expr.value))
        return self.constants.text(str(expr.value))

    def compare_codes(self, op: str, a: str, b: str) -> str:
        known = f"{a} != NULL_CODE and {b} != NULL_CODE"
        if op in ("=", "!="):
            return f"({known} and {a} {_python(op)} {b})"
        ranks = self.constants.ranks
        return f"({known} and {ranks}[{a}] {op} {ranks}[{b}])"

    def float_of(self, expr: Expr, missing: list[str]) -> str:
        match expr:
            case ex.Const():
                if isinstance(expr.value, bool) or not isinstance(expr.value, int | float):
                    return "np.nan"
                return self.constants.number(expr.value)
            case ex.Negative():
                return f"(-{self.float_of(expr.item, missing)})"
            case ex.Arithmetic():
                a, b = self.float_of(expr.left, missing), self.float_of(expr.right, missing)
                if expr.op == "/":
                    return f"divided({a}, {b})"
                if expr.op == "%":
                    return f"remainder({a}, {b})"
                return f"({a} {expr.op} {b})"
            case ex.Call(fn=fn) if (source := FUNCTIONS[fn].kernel) is not None:
                return source.format(*(self.float_of(arg, missing) for arg in expr.args))
            case _:
                term = self.term(expr, missing)
                if term is None or term.kind is Kind.CODE:
                    return "np.nan"
                return f"null_to_nan({term.source})" if term.kind is Kind.INT else term.source


def _kind_of(expr: Expr, term: Term | None) -> Kind:
    if term is not None:
        return term.kind
    if isinstance(expr, ex.Const) and isinstance(expr.value, str | bool):
        return Kind.CODE
    return Kind.FLOAT


def _python(op: str) -> str:
    return "==" if op == "=" else op


def _joined(word: str, parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({word.join(parts)})"
