"""Events that a query can read, made from its text, and the requirement that a compiled evaluator runs it."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Iterator

import pyarrow as pa

import cepheid
from cepheid import expr as ex
from cepheid.errors import CepheidWarning
from cepheid.expr import Aggregate, Attr, Call, Compare, Const, Contains, Expr, In, Like, Same
from cepheid.lang import parse
from cepheid.pattern import DerivedStream, Query, SourceStream, parameters, queries_of, types_named
from cepheid.types import Family

_ROUNDS = 4


def require_compiled(text: str, language: str = "auto") -> None:
    """Requires that a compiled evaluator runs a query over events of the types and attributes that it names."""
    query = parse(text, language)
    table, params = sample_events(query), dict.fromkeys(parameters(query), 3)
    shown = str(cepheid.explain(text, table, dialect=language, params=params))
    assert "evaluator: " in shown and "evaluator: reference" not in shown, shown
    with warnings.catch_warnings(category=CepheidWarning, action="ignore"):  # it need not find a match
        cepheid.match(text, table, dialect=language, params=params)


def sample_events(query: Query) -> pa.Table:
    """A table with a column for each attribute that a query names: strings where it compares one with a string."""
    kinds = (types_named(query) or ["A", "B"]) * _ROUNDS
    expressions = list(_expressions(query))
    strings, names = _strings(expressions), {name for part in expressions for name in _names(part)}
    for stream in (item for part in queries_of(query) for item in part.inputs if isinstance(item, SourceStream)):
        names |= {name for name, _ in stream.attributes}
        strings |= {name for name, kind in stream.attributes if kind.family is Family.STRING}
    columns = {name: [n % 3 for n in range(len(kinds))] for name in sorted(names - {"type", "ts"})}
    columns |= {name: pa.array(columns[name]).cast(pa.string()) for name in columns.keys() & strings}
    first = datetime.datetime(2024, 1, 1)
    times = [first + datetime.timedelta(seconds=n) for n in range(len(kinds))]
    return pa.table({"type": kinds, "ts": times, **columns})


def _expressions(query: Query) -> Iterator[Expr]:
    for part in queries_of(query):
        columns = [*(part.output or ()), *(c for i in part.inputs if isinstance(i, DerivedStream) for c in i.columns)]
        of_threshold = [] if part.threshold is None or part.threshold.of is None else [part.threshold.of]
        yield from ex.walk(*part.where, *(column.expr for column in columns), *of_threshold)


def _names(part: Expr) -> list[str]:
    """The attribute that an expression names; of an event inside another one (`p.a.price`), the last name."""
    if not isinstance(part, Attr | Aggregate | Same) or part.name is None:
        return []
    return [part.name.rsplit(".", 1)[-1]]


def _strings(expressions: list[Expr]) -> set[str]:
    """The attributes that are compared with a string, and those that are compared with these."""
    found: set[str] = set()
    groups = [operands for part in expressions if (operands := _operands(part))]
    for _ in range(len(groups) + 1):
        for operands in groups:
            names = {name for operand in operands for name in _names(operand)}
            if names & found or any(isinstance(o, Const) and isinstance(o.value, str) for o in operands):
                found |= names
    return found


def _operands(part: Expr) -> list[Expr]:
    """The operands of a comparison, which have one type; with a string among them where it is of strings."""
    match part:
        case Compare():
            return [part.left, part.right]
        case Contains(item, text) | Like(item, text):
            return [item, text, Const("")]
        case In(item, values):
            return [item, *values]
        case Same(_, value) if value is not None:
            return [part, value]
        case Call(fn, args) if fn in ("upper", "lower", "trim", "concat"):
            return [*args, Const("")]
    return []
