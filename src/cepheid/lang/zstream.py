r"""ZStream's language (§3): `PATTERN A;!B;C+ WHERE ... WITHIN ... RETURN ...`.

In a pattern a closure (`+`, `*`, `^5`, `⁵`, `{5}`, `{2,5}`) and `!` bind tightest, then `&`, then `|`, then `;`.
Operators of one kind are flat: `A;(B;C)` is `A;B;C`, because all plans for one sequence are equivalent (§5.2.3).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from typing import Any

from lark import Token, v_args
from lark.tree import Meta

from cepheid import pattern as pt
from cepheid.dialect import COMBINATIONS, Closure, Dialect, Order, Windows
from cepheid.errors import PatternProblem, Span, SyntaxProblem, listing
from cepheid.events import Duration
from cepheid.expr import Expr, Param, Same, bracketed, name_text, type_name_text
from cepheid.expr import variables as variables_of
from cepheid.lang.common import LanguageParser, clause_rule, clauses_text, output_columns, where_clause, where_text
from cepheid.lang.components import mark_hyphens, quantifier
from cepheid.lang.expressions import QUOTED, ExpressionBuilder, Rule, expression_grammar, keywords, span_of
from cepheid.lang.groups import Repeated, Written, composed, has_groups, lifted, written
from cepheid.lang.literals import number
from cepheid.lang.parsed_nodes import ParsedColumn
from cepheid.lang.text import skeleton
from cepheid.pattern import EventClass, Kleene, Pattern, Query, map_classes, roles

DIALECT = Dialect(
    name="zstream", title="ZStream", other_names=(),
    beginning="PATTERN A;B", first_words=("PATTERN",),
    clauses=("PATTERN", "WHERE", "WITHIN", "RETURN", "LIMIT"),
    selection=COMBINATIONS, selection_text="all combinations of events that fit; the maximal group for each closure",
    order=Order.TIME, closure=Closure.GROUP, windows=Windows.MATCH, window_includes_bound=True,
    operators=(EventClass, pt.Seq, pt.Conj, pt.Disj, pt.Neg, Kleene),
    conditions=(Same,), conditions_belong_to_operators=False,
    has_nodes=False, has_rewrite_rules=True, declares_streams=False, has_classes_by_name=True, names_its_result=False,
)  # fmt: skip

_SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_NOT_NAMES = "|".join(word.lower() for word in DIALECT.clauses)
_WORD = rf"[^\W\d{_SUPERSCRIPT}][^\W{_SUPERSCRIPT}]*"

_GRAMMAR = (
    r"""
start: _PATTERN sequence where* within? return_? limit?
where: _WHERE condition
within: _WITHIN duration
return_: _RETURN columns
limit: _LIMIT row_limit

?sequence: disjoint
    | disjoint (";" disjoint)+ -> seq
?disjoint: conjoint
    | conjoint (_EITHER conjoint)+ -> disj
?conjoint: negated
    | negated (_BOTH negated)+ -> conj
?negated: repeated
    | _WITHOUT negated -> neg
?repeated: part
    | repeated PLUS -> one_or_more
    | repeated STAR -> any_number
    | repeated "^" PLUS -> one_or_more
    | repeated "^" STAR -> any_number
    | repeated SUPERSCRIPT -> exactly
    | repeated "^" NUMBER -> exactly
    | repeated "^"? "{" NUMBER "}" -> exactly
    | repeated "^"? "{" NUMBER "," "}" -> at_least
    | repeated "^"? "{" NUMBER "," NUMBER "}" -> between
?part: "(" sequence ")"
    | CLASS -> by_name
    | CLASS VARIABLE -> of_type
    | _ANY "(" CLASS ("," CLASS)* ")" VARIABLE -> of_types
    | _ANY "(" STAR ")" VARIABLE -> of_any_type

_EITHER: /\|\|?|∨/
_BOTH: /\\?&&?|∧/
_WITHOUT: /[!~¬]/
_ANY.3: /any(?=\s*\()/i
_SAME.3: /same(?=\s+(?!(?:and|or|is|in|not|like|contains)\b)(?:`|[^\W\d]))/i
_ADDRESS.3: /address\b/i
"""
    + rf"""
SUPERSCRIPT: /[{_SUPERSCRIPT}]+/
CLASS.2: /(?!(?:{_NOT_NAMES})(?!\w|-\w)){_WORD}(?:-[^\W{_SUPERSCRIPT}]+)*|{QUOTED}/i
VARIABLE.2: /(?!(?:{_NOT_NAMES})\b){_WORD}|{QUOTED}/i
"""
    + keywords(*DIALECT.clauses)
    + expression_grammar(reserved=DIALECT.clauses, equivalence=True, atoms="| _SAME WORD _ADDRESS? -> same_in_words")
)

_WORDS = {
    "_EITHER": "`|`",
    "_BOTH": "`&`",
    "_WITHOUT": "`!`",
    "_ANY": "`ANY(...)`",
    "CIRCUMFLEX": "a closure",
    "SUPERSCRIPT": "a closure",
    "CLASS": "an event class",
    "VARIABLE": "a name",
}


@dataclass(frozen=True, slots=True)
class _Clauses:
    """The parsed clauses, before names are resolved."""

    pattern: Pattern
    where: tuple[Expr, ...] = ()
    window: Duration | None = None
    columns: tuple[ParsedColumn, ...] | None = None
    limit: int | None = None


def _flat(kind: type[pt.Seq] | type[pt.Conj] | type[pt.Disj]) -> Rule:
    """A rule that makes `A;B;C` of `A` and `B;C`."""

    def make(_: Any, meta: Meta, items: list[Pattern]) -> Pattern:
        parts = [item.items if isinstance(item, kind) else (item,) for item in items]
        return kind(tuple(chain(*parts)), span=span_of(meta))

    return make


@v_args(meta=True)
class _Builder(ExpressionBuilder):
    def start(self, meta: Meta, items: list[Any]) -> _Clauses:
        pattern, *clauses = items
        where = tuple(clause.value for clause in clauses if clause.keyword == "where")
        return _Clauses(pattern, where, **{c.keyword: c.value for c in clauses if c.keyword != "where"})

    where, within, return_, limit = map(clause_rule, ("where", "window", "columns", "limit"))
    seq, conj, disj = map(_flat, (pt.Seq, pt.Conj, pt.Disj))

    def neg(self, meta: Meta, items: list[Any]) -> Pattern:
        if isinstance(items[0], pt.Neg):
            raise PatternProblem(
                "a negation of a negation", span=span_of(meta), expected="one `!`", hint="two of them have no meaning"
            )
        return pt.Neg(items[0], span=span_of(meta))

    def one_or_more(self, meta: Meta, items: list[Any]) -> Pattern:
        return _closure(items[0], 1, None, span_of(meta))

    def any_number(self, meta: Meta, items: list[Any]) -> Pattern:
        return _closure(items[0], 0, None, span_of(meta))

    def exactly(self, meta: Meta, items: list[Any]) -> Pattern:
        count = _count(items[1])
        return _closure(items[0], count, count, span_of(meta))

    def at_least(self, meta: Meta, items: list[Any]) -> Pattern:
        return _closure(items[0], _count(items[1]), None, span_of(meta))

    def between(self, meta: Meta, items: list[Any]) -> Pattern:
        return _closure(items[0], _count(items[1]), _count(items[2]), span_of(meta))

    def by_name(self, meta: Meta, items: list[Any]) -> Pattern:
        return EventClass(str(items[0]), (), by_name=True, span=span_of(meta))

    def of_type(self, meta: Meta, items: list[Any]) -> Pattern:
        return EventClass(str(items[1]), (str(items[0]),), span=span_of(meta))

    def of_types(self, meta: Meta, items: list[Any]) -> Pattern:
        return EventClass(str(items[-1]), tuple(map(str, items[:-1])), span=span_of(meta))

    def of_any_type(self, meta: Meta, items: list[Any]) -> Pattern:
        return EventClass(str(items[-1]), span=span_of(meta))

    def same_in_words(self, meta: Meta, items: list[Any]) -> Expr:
        return Same(str(items[0]), span=span_of(meta))


_PARSER = LanguageParser(_GRAMMAR, _Builder(), _WORDS, prepare=mark_hyphens)


def recognises(text: str) -> bool:
    """PATTERN begins SASE+'s queries too, but there SEQ(...) or one variable follows it, and here operators."""
    return re.match(r"\s*PATTERN\b(?!\s*SEQ\s*\()", skeleton(text), re.IGNORECASE) is not None


def parse(text: str) -> Query:
    clauses: _Clauses = _PARSER.parse(text)
    pattern = clauses.pattern if has_groups(clauses.pattern) else _with_lost_superscripts(clauses)
    plain = lifted(pattern, lambda part: _print(part)[0])
    variables = plain.variables
    query = Query(
        pattern=plain.pattern,
        dialect=DIALECT,
        where=where_clause(clauses.where, variables),
        window=clauses.window,
        output=None if clauses.columns is None else output_columns(clauses.columns, variables),
        limit=clauses.limit,
    )
    return composed(query, plain.groups)


# --- the pattern ------------------------------------------------------------------------------------------------------


def _closure(item: Pattern, low: int, high: int | None, span: Span) -> Kleene | Repeated:
    if isinstance(item, Kleene | Repeated | pt.Neg):
        raise PatternProblem(
            "a closure of a negation" if isinstance(item, pt.Neg) else "a closure of a closure",
            span=item.span,
            expected="an event class or a group before `+`, `*` or a count",
            hint=None if isinstance(item, pt.Neg) else "one closure is enough",
        )
    if high is not None and (high == 0 or high < low):
        raise PatternProblem(
            f"a closure of {low} to {high} events" if low != high else "a closure of no events",
            span=span,
            expected="at least one event, and bounds in order",
        )
    return Kleene(item, low, high, span=span) if isinstance(item, EventClass) else Repeated(item, low, high, span=span)


def _count(token: Token) -> int:
    if token.type == "SUPERSCRIPT":
        token = token.update(value="".join(str(_SUPERSCRIPT.index(digit)) for digit in token))
    value = number(token)
    if not isinstance(value, int):
        raise SyntaxProblem(f"`{token}` is not a number of events", span=span_of(token), expected="a whole number")
    return value


def _with_lost_superscripts(clauses: _Clauses) -> Pattern:
    """Query 3's `T2⁵` is `T25` wherever a copy of the paper has lost its superscripts. A class that nothing refers to,
    whose name is an unbound name that something refers to, and then digits, can only have been meant so (unless two
    classes could be)."""
    bound = roles(clauses.pattern)
    referred = _referred(clauses)
    unbound = referred - bound.keys()
    meant: dict[str, tuple[str, int]] = {}
    for var, role in bound.items():
        if role.event_class.by_name and role.kleene is None and var not in referred:
            cuts = range(len(var.rstrip("0123456789")), len(var))
            found = [cut for cut in cuts if var[:cut] in unbound and 0 < len(var) - cut < 10 and int(var[cut:]) > 0]
            if found:
                meant[var] = var[: found[-1]], int(var[found[-1] :])
    claimed = [name for name, _ in meant.values()]

    def change(node: EventClass) -> Pattern:
        name, count = meant.get(node.var, ("", 0))
        if claimed.count(name) != 1:
            return node
        return Kleene(EventClass(name, by_name=True, span=node.span), count, count, span=node.span)

    return map_classes(clauses.pattern, change)


def _referred(clauses: _Clauses) -> set[str]:
    names = {name for condition in clauses.where for name in variables_of(condition)}
    for column in clauses.columns or ():
        names |= variables_of(column.expr)
        if isinstance(column.expr, Param):
            names.add(column.expr.name)
    return names


# --- printing ---------------------------------------------------------------------------------------------------------

_SEQ, _DISJ, _CONJ, _NEG, _CLOSURE = range(5)


def to_text(query: Query) -> str:
    """The query as this language writes it, without its inputs; closures of groups are in their places."""
    whole = written(query)
    return "\n".join(
        [f"PATTERN {_print(query.pattern, whole)[0]}", *where_text(whole.query), *clauses_text(whole.query)]
    )


def _print(pattern: Pattern, whole: Written | None = None) -> tuple[str, int]:
    """The text, and how tightly its outermost operator binds. `whole` holds the groups of closures."""

    def at(item: Pattern, level: int) -> str:
        return bracketed(_print(item, whole), level)

    match pattern:
        case pt.Seq():
            return ";".join(at(item, _DISJ) for item in pattern.items), _SEQ
        case pt.Disj():
            return "|".join(at(item, _CONJ) for item in pattern.items), _DISJ
        case pt.Conj():
            return "&".join(at(item, _NEG) for item in pattern.items), _CONJ
        case pt.Neg():
            return f"!{at(pattern.item, _NEG)}", _NEG
        case Repeated():
            closure = Kleene(EventClass(""), pattern.low, pattern.high)
            return f"({_print(pattern.item)[0]}){quantifier(closure, '^%d')}", _CLOSURE
        case Kleene() if whole is not None and (branches := whole.branches(pattern)):
            texts = [_print(item.pattern, written(item)) for item in branches]
            group = texts[0][0] if len(texts) == 1 else "|".join(bracketed(text, _CONJ) for text in texts)
            return f"({group}){quantifier(pattern, '^%d')}", _CLOSURE
        case Kleene():
            return f"{_print(pattern.item)[0]}{quantifier(pattern, '^%d')}", _CLOSURE
        case EventClass(by_name=True):
            return type_name_text(pattern.var), _CLOSURE
        case EventClass(types=(name,)):
            return f"{type_name_text(name)} {name_text(pattern.var)}", _CLOSURE
        case EventClass():
            types = ", ".join(map(type_name_text, pattern.types)) or "*"
            return f"ANY({types}) {name_text(pattern.var)}", _CLOSURE
        case _:
            raise PatternProblem(
                f"{type(pattern).__name__} has no text in ZStream's language",
                span=pattern.span,
                expected=listing(("Seq", "Conj", "Disj", "Neg", "Kleene", "EventClass")),
            )
