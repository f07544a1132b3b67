"""SASE: `EVENT <pattern> [WHERE ...] [WITHIN ...]` (§2.2), and RETURN and LIMIT as SASE+ has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from lark import v_args
from lark.tree import Meta

from cepheid.dialect import COMBINATIONS, Closure, Dialect, Order, Windows
from cepheid.expr import Attr, Expr, Param, Same
from cepheid.lang import components
from cepheid.lang.common import LanguageParser, clauses_text, output_columns, where_clause, where_text
from cepheid.lang.components import ComponentBuilder, mark_hyphens, pattern_text
from cepheid.lang.expressions import expression_grammar, keywords
from cepheid.lang.text import skeleton
from cepheid.pattern import EventClass, Neg, Pattern, Query, Seq, roles

DIALECT = Dialect(
    name="sase", title="SASE", other_names=(),
    beginning="EVENT SEQ(...)", first_words=("EVENT",),
    clauses=("EVENT", "WHERE", "WITHIN", "RETURN", "LIMIT"),
    selection=COMBINATIONS, selection_text="all combinations of events that fit",
    order=Order.TIME, closure=Closure.NONE, windows=Windows.MATCH, window_includes_bound=False,
    operators=(EventClass, Seq, Neg),
    conditions=(Same,), conditions_belong_to_operators=False,
    has_nodes=False, has_rewrite_rules=True, declares_streams=False, has_classes_by_name=False, names_its_result=False,
)  # fmt: skip

_GRAMMAR = (
    r"""
start: _EVENT pattern [_WHERE condition] [_WITHIN duration] [_RETURN columns] [_LIMIT row_limit]
?pattern: sequence_of_one | _SEQ "(" sequence ")"
sequence_of_one: component -> sequence
positive: _types [NAME]
"""
    + components.GRAMMAR
    + keywords(*DIALECT.clauses)
    + expression_grammar(reserved=components.CLAUSES, caret_is_and=True, equivalence=True)
)


@v_args(meta=True)
class _Builder(ComponentBuilder):
    def start(self, meta: Meta, items: list[Any]) -> Query:
        pattern, condition, window, returned, limit = items
        return query_of(DIALECT, pattern, condition, returned, window=window, limit=limit)


def query_of(dialect: Dialect, pattern: Pattern, condition: Expr | None, returned: Any, **clauses: Any) -> Query:
    """A query over components: `returned` are the parsed columns, `clauses` the rest of it."""
    variables, bare_name = roles(pattern), attribute_of(pattern)
    return Query(
        pattern,
        dialect,
        where=where_clause([] if condition is None else [condition], variables, bare_name),
        output=None if returned is None else output_columns(returned, variables, bare_name),
        **clauses,
    )


def attribute_of(pattern: Pattern) -> Callable[[Param], Expr] | None:
    """How a bare name reads: where the pattern is a single component, it is an attribute of that (SASE's Q1)."""
    if not isinstance(pattern, EventClass):
        return None
    var = pattern.var
    return lambda node: Attr(var, node.name, span=node.span)


_PARSER = LanguageParser(_GRAMMAR, _Builder(), components.WORDS, prepare=mark_hyphens)
_START = re.compile(r"\s*EVENT\b", re.IGNORECASE)


def recognises(text: str) -> bool:
    return _START.match(skeleton(text)) is not None


def parse(text: str) -> Query:
    query: Query = _PARSER.parse(text)
    return query


def to_text(query: Query) -> str:
    return "\n".join([f"EVENT {pattern_text(query.pattern)}", *where_text(query), *clauses_text(query)])
