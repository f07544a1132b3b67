"""SASE+: `PATTERN SEQ(...) WHERE strategy(...) { ... } WITHIN ... RETURN ...` (§2), with Kleene closure, the four event
selection strategies, and the two output formats.
"""

from __future__ import annotations

import re
from typing import Any

from lark import Token, v_args
from lark.tree import Meta

from cepheid.dialect import RUNS, Closure, Dialect, Order, Windows
from cepheid.errors import NameProblem, SyntaxProblem, did_you_mean, listing
from cepheid.expr import Expr, Same, name_text
from cepheid.lang import components
from cepheid.lang.common import Clause, LanguageParser, clause_rule, clauses_text, conditions_text
from cepheid.lang.components import ComponentBuilder, bounds, mark_hyphens, pattern_text
from cepheid.lang.expressions import expression_grammar, keywords, name_of, span_of
from cepheid.lang.sase import query_of
from cepheid.lang.text import skeleton
from cepheid.pattern import EventClass, Kleene, Neg, Pattern, Query, Seq, Strategy, roles

DIALECT = Dialect(
    name="sase+", title="SASE+", other_names=("saseplus", "sase-plus", "sase_plus"),
    beginning="PATTERN SEQ(...)", first_words=("PATTERN",),
    clauses=("PATTERN", "WHERE", "WITHIN", "RETURN", "OUTPUT", "LIMIT"),
    selection=RUNS, selection_text=None,
    order=Order.POSITION, closure=Closure.RUN, windows=Windows.MATCH, window_includes_bound=True,
    operators=(EventClass, Seq, Neg, Kleene),
    conditions=(Same,), conditions_belong_to_operators=False,
    has_nodes=False, has_rewrite_rules=False, declares_streams=False, has_classes_by_name=False, names_its_result=False,
)  # fmt: skip

_GRAMMAR = (
    r"""
start: _PATTERN pattern [_WHERE qualification] clause*
clause: _WITHIN duration -> within_clause
      | _RETURN columns -> return_clause
      | _OUTPUT FORMAT -> output_clause
      | _LIMIT row_limit -> limit_clause
?pattern: sequence_of_one | _SEQ "(" sequence ")" | "(" sequence ")"
sequence_of_one: component -> sequence
positive: _types [QUANTIFIER] [NAME] [LIST]
qualification: condition
    | STRATEGY ["(" strategy_variables ")"] ["{" [condition] "}"]
strategy_variables: (NAME [LIST]) ("," NAME [LIST])*
STRATEGY.5: /(?:skip[_-]till[_-](?:next|any)[_-]match|(?:strict|partition)[_-]contiguity)\b/i
QUANTIFIER: /\+|\*|\{\s*[0-9]+\s*(?:,\s*[0-9]*\s*)?\}/
LIST: /\[(?:\s|\$|\\[ ,;!])*\]/
FORMAT: /(?:non[-_ ]?overlap(?:ping)?|all)\b/i
"""
    + components.GRAMMAR
    + keywords(*DIALECT.clauses)
    + expression_grammar(reserved=components.CLAUSES, caret_is_and=True, equivalence=True)
)
_WORDS = {
    **components.WORDS,
    "QUANTIFIER": "a closure (`+`, `*`, `{3}`)",
    "LIST": "`[]`",
    "STRATEGY": "a strategy such as skip_till_next_match",
    "FORMAT": "`ALL` or `NON-OVERLAPPING`",
}


@v_args(meta=True)
class _Builder(ComponentBuilder):
    def start(self, meta: Meta, items: list[Any]) -> Query:
        pattern, qualification, *clauses = items
        values = _by_keyword(clauses)
        strategy, listed, condition = qualification or (Strategy.ANY_MATCH, (), None)
        known = roles(pattern)
        for name in listed:
            if name_of(name) not in known:
                raise NameProblem(
                    f"the strategy names `{name_of(name)}`, which is not in the pattern",
                    span=span_of(name),
                    expected=f"variables of the pattern: {listing(known)}",
                    hint=did_you_mean(name_of(name), known),
                )
        return query_of(
            DIALECT,
            pattern,
            condition,
            values.get("RETURN"),
            window=values.get("WITHIN"),
            strategy=strategy,
            non_overlapping=values.get("OUTPUT", "all").lower() != "all",
            limit=values.get("LIMIT"),
        )

    def positive(self, meta: Meta, items: list[Any]) -> Pattern:
        *_, quantifier, _name, brackets = items
        event_class = super().positive(meta, items)
        assert isinstance(event_class, EventClass)
        if quantifier is not None:
            low, high = bounds(quantifier)
            return Kleene(event_class, low, high, span=span_of(meta))
        if brackets is not None:
            raise SyntaxProblem(
                f"`{event_class.var}[]` is a list, but its component has no closure",
                span=span_of(meta),
                expected="`+`, `*` or a count after the type",
                hint=f"write {event_class.types[0]}+ {event_class.var}[]",
            )
        return event_class

    within_clause, return_clause = clause_rule("WITHIN"), clause_rule("RETURN")
    output_clause, limit_clause = clause_rule("OUTPUT"), clause_rule("LIMIT")

    def qualification(self, meta: Meta, items: list[Any]) -> tuple[Strategy, tuple[Token, ...], Expr | None]:
        if len(items) == 1:
            return Strategy.ANY_MATCH, (), items[0]
        strategy, listed, condition = items
        return Strategy(strategy.lower().replace("-", "_")), listed or (), condition

    def strategy_variables(self, meta: Meta, items: list[Any]) -> tuple[Token, ...]:
        return tuple(item for item in items if item is not None and item.type == "NAME")


def _by_keyword(clauses: list[Clause]) -> dict[str, Any]:
    """The clauses after WHERE, which may come in any order, each once."""
    values: dict[str, Any] = {}
    for clause in clauses:
        if clause.keyword in values:
            raise SyntaxProblem(f"{clause.keyword} is named twice", span=clause.span, expected="each clause once")
        values[clause.keyword] = clause.value
    return values


_PARSER = LanguageParser(_GRAMMAR, _Builder(), _WORDS, prepare=mark_hyphens)
_AFTER_WHERE = re.compile(r"\bwhere\s+([\w-]+)", re.IGNORECASE)
_START = re.compile(r"\s*PATTERN\b", re.IGNORECASE)
_SEQUENCE = re.compile(r"\s*(?:SEQ\s*\(|\((?:[^;&|,(){}]|\{[^{}]*+\}|\((?:[^()]|\([^()]*+\))*+\))*+,)", re.IGNORECASE)
"""Components with a comma between them; a comma inside ANY(...) or {2,} does not count: ZStream has those too."""
_LIST_OR_STRATEGY = re.compile(
    r"\[(?:\s|\\ )*\]|\b(?:skip[_-]till[_-]|strict[_-]contiguity|partition[_-]contiguity)", re.IGNORECASE
)


def recognises(text: str) -> bool:
    """PATTERN begins a ZStream query too: a sequence in brackets, a list `[]` or a strategy makes it SASE+."""
    code = skeleton(text)
    start = _START.match(code)
    if start is None:
        return False
    return _SEQUENCE.match(code, start.end()) is not None or _LIST_OR_STRATEGY.search(code) is not None


def parse(text: str) -> Query:
    try:
        query: Query = _PARSER.parse(text)
    except SyntaxProblem as problem:
        problem.hint = problem.hint or _misspelt_strategy(text, problem)
        raise
    return query


def _misspelt_strategy(text: str, problem: SyntaxProblem) -> str | None:
    """A strategy that is not known reads as a function, and then its opening brace does not fit."""
    if problem.span is None or not text.startswith("{", problem.span.start):
        return None
    words = _AFTER_WHERE.findall(text[: problem.span.start])
    return did_you_mean(words[-1], (strategy.value for strategy in Strategy)) if words else None


def to_text(query: Query) -> str:
    known = query.roles
    listed = ", ".join(name_text(var) + ("[]" if role.kleene else "") for var, role in known.items())
    lines = [f"PATTERN {pattern_text(query.pattern)}"]
    conditions = f" {conditions_text(query.where)} " if query.where else ""
    lines.append(f"WHERE {query.strategy.value}({listed}) {{{conditions}}}")
    return "\n".join([*lines, *clauses_text(query)])
