"""The parts that all languages share besides expressions: running a grammar, translating its errors, and common
clauses.

A language module exposes `parse(text) -> Query`, `to_text(query) -> str` (without inputs and label) and
`recognises(text) -> bool` (cheap, and only about how the text begins).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError

from cepheid.errors import CepheidError, Span, SyntaxProblem, did_you_mean, shown
from cepheid.events import UNIT_WORDS
from cepheid.expr import At, Attr, Expr, Or, Param, Whole, conjuncts, quote
from cepheid.expr import to_text as expr_text
from cepheid.lang.expressions import HYPHEN, ExpressionBuilder, Rule, resolve, rule_for, without_backticks
from cepheid.lang.parsed_nodes import Group, ParsedColumn
from cepheid.lang.slips import hint_at
from cepheid.lang.text import check_text, skeleton
from cepheid.pattern import Column, Query, Role

_VALUE = "a value"
_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("NUMBER", "STRING", "MOMENT", "_TRUE", "_FALSE", "_NULL", "_CASE", "_CAST", "_INTERVAL"), _VALUE),
    "NAME": "a name",
    "WORD": "a name",
    "TYPE": "an event type",
    "INDEX": "an index such as [1] or [i]",
    **dict.fromkeys(("COMPARE", "_BETWEEN", "_CONTAINS", "_IN", "_IS", "_LIKE"), "a comparison"),
    **dict.fromkeys(("PLUS", "MINUS", "STAR", "SLASH", "MODULO", "_PERCENT"), "an operator"),
    "UNIT": "a unit of time",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "COMMA": "`,`",
    "DOT": "`.`",
    "COLON": "`:`",
    "SEMICOLON": "`;`",
    "EQUAL": "`=`",
    "BANG": "`!`",
    "VBAR": "`|`",
    "AMPERSAND": "`&`",
    "AT": "`@`",
    "BACKSLASH": "`\\`",
    "$END": "the end of the text",
}
_UNITS_OF_TIME = "write a unit such as seconds, minutes, hours, days or events"
_NAMES = ("NAME", "WORD", "TYPE", "CLASS", "VARIABLE")
"""The terminals that may be in backticks."""
_AT_WORD = re.compile(r"[^\W\d]\w*")
_AT_TOKEN = re.compile(r"[^\W\d]\w*|\d+(?:\.\d+)?|\S")
_ALIKE = 0.75
"""How similar a misspelt keyword is: `fail` is not FALSE."""
_LAST_WORD = re.compile(r"([^\W\d]\w*)\W*\Z")


class LanguageParser:
    """A grammar and its builder. `words` describes the language's own terminals; others are keywords.
    `prepare` may change characters of the text before it is parsed, but not their offsets."""

    def __init__(
        self,
        grammar: str,
        builder: ExpressionBuilder,
        words: Mapping[str, str] | None = None,
        prepare: Callable[[str], str] | None = None,
    ) -> None:
        self._grammar = grammar
        self._builder = builder
        self._prepare = prepare
        self._words = {**_WORDS, **(words or {})}

    @cached_property
    def _lark(self) -> Lark:
        return Lark(
            self._grammar,
            parser="lalr",
            lexer="contextual",
            propagate_positions=True,
            lexer_callbacks=dict.fromkeys(_NAMES, without_backticks),
        )

    def parse(self, text: str) -> Any:
        """The result of the builder for the text. Spans are offsets into the text."""
        check_text(text)
        text = _without_end(self._prepare(text) if self._prepare else text)
        try:
            return self._builder.transform(self._lark.parse(text))
        except UnexpectedInput as error:
            raise self._problem(error, text) from None
        except VisitError as error:
            if isinstance(error.orig_exc, CepheidError):
                raise error.orig_exc from None
            raise

    def _problem(self, error: UnexpectedInput, text: str) -> SyntaxProblem:
        terminals = _acceptable(error)
        keywords = [self._keyword(name) for name in terminals if name.startswith("_")]
        span, found = _found(error, text)
        word = text[span.start : span.end]
        what = "the text ends too early" if not found else f"unexpected `{shown(found.replace(HYPHEN, '-'))}`"
        hint = hint_at(text, span)
        if hint is None and _AT_WORD.fullmatch(word):
            hint = (
                did_you_mean(word, keywords)
                or ("UNIT" in terminals and (did_you_mean(word, UNIT_WORDS, 0.75) or _UNITS_OF_TIME))
                or None
            )
        return SyntaxProblem(
            what, span=span, expected=self._expected(terminals), hint=hint or self._misspelt(text[: span.start], word)
        )

    def _expected(self, terminals: Collection[str]) -> str | None:
        """The expected tokens in words, without the less likely ones: a sign before an operand, the NOT of `NOT IN`
        after one."""
        hidden = {"NAME"} if "STRING" in terminals else set()
        hidden |= {"_NOT", "UNIT"} if "COMPARE" in terminals else set() if "PLUS" in terminals else {"MINUS"}
        words = self._words if "NUMBER" in terminals else {**self._words, "_NULL": "`NULL`"}
        described = {words.get(name, f"`{self._keyword(name)}`") for name in terminals if name not in hidden}
        phrases = sorted(described, key=lambda phrase: (phrase.startswith("`"), phrase))
        if not phrases:
            return None
        return phrases[0] if len(phrases) == 1 else ", ".join(phrases[:-1]) + " or " + phrases[-1]

    def _misspelt(self, before: str, word: str) -> str | None:
        """A misspelt keyword is often parsed as a name, and the error is then at the next token."""
        last = _LAST_WORD.search(before[-100:])
        clauses = {self._keyword(t.name) for t in self._lark.terminals if t.name.startswith("_")} - {"PERCENT"}
        if last is None or not word or last.group(1).upper() in clauses or len(last.group(1)) < 4:
            return None
        meant = did_you_mean(last.group(1), (clause for clause in clauses if len(clause) > 3), _ALIKE)
        return meant and meant.replace("?", f" instead of `{last.group(1)}`?")

    @staticmethod
    def _keyword(terminal: str) -> str:
        return terminal.lstrip("_").replace("__", "-")


def _without_end(text: str) -> str:
    """The text without a semicolon at its end. Offsets stay the same."""
    end = len(skeleton(text).rstrip()) - 1
    return f"{text[:end]} {text[end + 1 :]}" if text[end : end + 1] == ";" else text


def _acceptable(error: UnexpectedInput) -> set[str]:
    match error:
        case UnexpectedToken():
            return set(error.accepts or error.expected)
        case UnexpectedCharacters():
            return set(error.allowed or ())
        case _:
            return set()


def _found(error: UnexpectedInput, text: str) -> tuple[Span, str]:
    """The position where parsing stopped, and the token there (none at the end)."""
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        end = len(text.rstrip())
        return Span(end, end), ""
    start = error.token.start_pos if isinstance(error, UnexpectedToken) else error.pos_in_stream
    start = start or 0
    token = _AT_TOKEN.match(text, start)
    end = token.end() if token else start + 1
    return Span(start, end), text[start:end]


# --- clauses ----------------------------------------------------------------------------------------------------------


class Clause(NamedTuple):
    keyword: str
    value: Any
    span: Span


def clause_rule(keyword: str) -> Rule:
    """A rule that makes a clause of its value."""
    return rule_for(partial(Clause, keyword))


def where_clause(
    conditions: Iterable[Expr], pattern_variables: Mapping[str, Role], bare_name: Callable[[Param], Expr] | None = None
) -> tuple[Expr, ...]:
    """The conjuncts of one or several conditions."""
    names = _Names(pattern_variables, bare_name)
    return tuple(part for condition in conditions for part in conjuncts(names.resolved(condition)))


class _Names:
    """What the names in an expression mean."""

    def __init__(self, variables: Mapping[str, Role], bare_name: Callable[[Param], Expr] | None) -> None:
        self.bare_name = bare_name
        self.negated = [var for var, role in variables.items() if role.negated]
        self.single = [var for var, role in variables.items() if not role.binds_many]

    def resolved(self, expr: Expr, bare_names: bool = True) -> Expr:
        return resolve(expr, self.negated, self.bare_name if bare_names else None, self.single)


def output_columns(
    parsed: Iterable[ParsedColumn],
    pattern_variables: Mapping[str, Role],
    bare_name: Callable[[Param], Expr] | None = None,
) -> tuple[Column, ...]:
    """The columns of RETURN. A bare variable is its event. A column without a name is named by its text."""
    names = _Names(pattern_variables, bare_name)

    def column(item: ParsedColumn) -> Column:
        match item.expr:
            case Param(name=name) | Group(var=name, name=None) if name in pattern_variables:
                whole = Whole(name, span=item.expr.span)
                return Column(item.name or name, whole)
            case _:
                as_written = names.resolved(item.expr, bare_names=False)
                return Column(item.name or column_name(as_written), names.resolved(as_written))

    return tuple(column(item) for item in parsed)


def column_name(expr: Expr) -> str:
    """The name of a column that has none: its text, without the backticks of an attribute."""
    if isinstance(expr, Attr) and expr.at is At.EVENT:
        return f"{expr.var}.{expr.name}"
    return expr_text(expr)


def columns_text(columns: Iterable[Column], text_of: Callable[[Expr], str] = expr_text) -> str:
    """The columns as RETURN lists them, with AS where the name is not the text."""

    def one(column: Column) -> str:
        text = text_of(column.expr)
        if column.name in (text, column_name(column.expr)):
            return text
        return f"{text} AS {column.name if _AT_WORD.fullmatch(column.name) else quote(column.name)}"

    return ", ".join(one(column) for column in columns)


def conditions_text(conditions: Iterable[Expr]) -> str:
    """The conjuncts as WHERE lists them; one that is a disjunction needs brackets."""
    items = tuple(conditions)
    texts = list(map(expr_text, items))
    if len(items) > 1:
        texts = [f"({text})" if isinstance(item, Or) else text for item, text in zip(items, texts, strict=True)]
    return " AND ".join(texts)


def where_text(query: Query) -> list[str]:
    return [f"WHERE {conditions_text(query.where)}"] if query.where else []


def clauses_text(query: Query) -> list[str]:
    """The clauses after WHERE, a line for each that the query has."""
    clauses = {
        "WITHIN": query.window,
        "RETURN": None if query.output is None else columns_text(query.output),
        "OUTPUT": "NON-OVERLAPPING" if query.non_overlapping else None,
        "LIMIT": query.limit,
    }
    return [f"{keyword} {value}" for keyword, value in clauses.items() if value is not None]
