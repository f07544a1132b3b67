"""The parts that all languages share besides expressions: running a grammar, translating its errors, and common
clauses.

A language module exposes `parse(text) -> Query`, `to_text(query) -> str` (without inputs and label) and
`recognises(text) -> bool` (cheap, and only about how the text begins).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
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
_NAMES = ("NAME", "WORD", "TYPE", "CLASS", "VARIABLE")
"""The terminals that may be in backticks."""
_AT_WORD = re.compile(r"[^\W\d]\w*")
_AT_TOKEN = re.compile(r"[^\W\d]\w*|\d+(?:\.\d+)?|\S")
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
        hint = _foreign(text, span)
        if hint is None and _AT_WORD.fullmatch(word):
            hint = (
                did_you_mean(word, keywords) or ("UNIT" in terminals and did_you_mean(word, UNIT_WORDS, 0.75)) or None
            )
        return SyntaxProblem(
            what, span=span, expected=self._expected(terminals), hint=hint or self._misspelt(text[: span.start], word)
        )

    def _expected(self, terminals: Collection[str]) -> str | None:
        """The expected tokens in words, without the less likely ones: a sign before an operand, the NOT of `NOT IN`
        after one."""
        hidden = {"NAME"} if "STRING" in terminals else set()
        hidden |= {"_NOT", "UNIT"} if "COMPARE" in terminals else set() if "PLUS" in terminals else {"MINUS"}
        described = {self._words.get(name, f"`{self._keyword(name)}`") for name in terminals if name not in hidden}
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
        meant = did_you_mean(last.group(1), (clause for clause in clauses if len(clause) > 3))
        return meant and meant.replace("?", f" instead of `{last.group(1)}`?")

    @staticmethod
    def _keyword(terminal: str) -> str:
        return terminal.lstrip("_").replace("__", "-")


_GROUPING = re.compile(r"(?:GROUP|PARTITION)\s+BY\s+(?:\w+\.)?(\w+|`[^`]+`)", re.IGNORECASE)
_ALIAS = re.compile(r"([\w`-]+)\s+AS\s*\Z", re.IGNORECASE)
_ODD_NAME = re.compile(r"[\[\"'“‘]([^\[\]\"'”’\n]{1,60})[\]\"'”’]")
_SPLIT_NAME = re.compile(r"(\w+)\.(\w+)\s+\Z")
_CLAUSES = frozenset(
    [
        "WHERE",
        "WITHIN",
        "RETURN",
        "OUTPUT",
        "LIMIT",
        "FROM",
        "EVENT",
        "PATTERN",
        "SELECT",
        "SCHEMA",
        "ON",
        "GROUP",
        "PARTITION",
    ]
)
_ANOTHER_QUERY = re.compile(r"(EVENT|PATTERN|SELECT)\s+[\w`(*!]", re.IGNORECASE)
_BEGINS = re.compile(r"\b(EVENT|PATTERN|SELECT)\b", re.IGNORECASE)
_SELECT = re.compile(r"\bSELECT\b", re.IGNORECASE)
_FROM = re.compile(r"\bFROM\b", re.IGNORECASE)
_ANY_TYPE = re.compile(r"\bANY\s*\(\s*\Z", re.IGNORECASE)
_BEFORE_WHERE = re.compile(r".*\b(WITHIN|RETURN|LIMIT|OUTPUT)\b", re.IGNORECASE | re.DOTALL)


_ORDERING = re.compile(r"ORDER\s+BY\b", re.IGNORECASE)


def _slip(pattern: str, hint: str) -> tuple[re.Pattern[str], str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL), hint


_UNITS = "(?:h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|d|days?)"
_IN_BRACKETS = r"\[(?:[^\[\]]*,)?\s*"
_IN_PATTERN = r"(?:[(,;!]|\b(?:EVENT|PATTERN|FROM))\s*"
_KEYWORDS = r"IN|AND|OR|AS|IS|LIKE|NULL|TRUE|FALSE|BETWEEN|LIMIT|WHERE|WITHIN|RETURN|OUTPUT|CASE|END|FROM|CONTAINS"
_NOT_WHERE = r"(?:(?!\bWHERE\b).)*?"
_SLIPS = (
    _slip(
        rf"{_IN_BRACKETS}(\w[\w ]*?)\s+\0(\w[^\],\n]*?)\s*[\],]", r"write a name with a blank in backticks: [`\1 \2`]"
    ),
    _slip(rf"{_IN_BRACKETS}\0['\"]([^'\"]+)['\"]", r"write a name with other characters in backticks: [`\1`]"),
    _slip(r"(\w+)\.(\w+\s*)\0([#$@?°€])", r"write a name with other characters in backticks: \1.`\2\3`"),
    _slip(r"\bWITHIN\s+\0['\"](\d+\s*\w+)['\"]", r"write a length of time without quotes: WITHIN \1"),
    _slip(r"\bcomplex\b.*,\s*\0(\d+(?:\s*\w+)?)\s*\)", r"write `;` before the window: seq(a, b; \1)"),
    _slip(
        r"\bcomplex\b.*\b(?:seq|and|or)\s*\(\s*\w+\s*\0;\s*[A-Za-z_]",
        "write `,` between events and `;` before the window: seq(a, b; 5)",
    ),
    _slip(
        r"\bcomplex\b.*\bevent\s+!?(\w+)\s+\0(and|or)\s+(\w+)",
        r"write the operator first, its window last: \2(\1, \3; 10)",
    ),
    _slip(r"\bcomplex\b.*\bevent\s+\w+\s*\0\(", "the operators are seq(a, b; 10), and(a, b; 10) and or(a, b)"),
    _slip(r"\bcomplex\b.*\)\s*\0within\s+(\d+\s*\w*)", r"write the window in its operator: seq(a, b; \1)"),
    _slip(
        r"\bschema\s+(?:[^;]*,)?\s*(\w+)\0\.(\w+)\s+as\s+(\w+)", r"the name of the attribute comes first: \3 as \1.\2"
    ),
    _slip(r"\bsource\s+([\w-]+)\s+\0(?!schema)\w", r"write the attributes of the source: source \1 schema string name"),
    _slip(r"\bFILTER\s+\0\w", "write the condition in parentheses: FILTER(a.x = b.x)"),
    _slip(rf"\bFROM\b{_NOT_WHERE}(\w+)\s*([+*])\s*\0(\w+)", r"write the variable before the closure: \1 \3\2"),
    _slip(rf"\bFROM\b{_NOT_WHERE}\0(?:NOT\b|!)", r"an exception cancels what waits: FROM (A a; B b) \\ C c"),
    _slip(r"\bSELECT\b[^;]*\.\0\*", "write SELECT * for all events, or name the variables: SELECT a, b"),
    _slip(r"\bLIMIT\s+\d+\s+\0(\w+)", r"LIMIT stands last: \1 ... LIMIT 5"),
    _slip(r"\bIS\s+\0['\"\d]", "write = 'text' for a value; IS tests for NULL only: a.x IS NULL"),
    _slip(
        r"(?:skip_till|_contiguity)\w*\s*\([^)]*\)\s*\0(?!\{)[\[\w]",
        "write the conditions in braces: { [id] AND a.x > 1 }",
    ),
    _slip(r"\bWHERE\s+\0\{", "name a strategy before the braces: skip_till_next_match(a, b[]) { ... }"),
    _slip(r"(\w+)\s+(\w+)\0([+*])", r"write the closure after the type: \1\3 \2[]"),
    _slip(
        rf"\bPATTERN\s+SEQ\b{_NOT_WHERE}[,(]\s*\0\(",
        "a closure repeats one event; give a query over several events a label, and repeat it: P+ p[]",
    ),
    _slip(r"\bEVENT\s+\0\(", "write SEQ before the parenthesis: EVENT SEQ(A a, B b)"),
    _slip(
        r"\bPATTERN\s+[\w`]+(?:\s+\w+)?\s*\0,",
        "write `;` between an event and the next one: PATTERN A; B, or SEQ(A a, B b)",
    ),
    _slip(rf"{_IN_PATTERN}\0(?:['\"]([^'\"]+)['\"]|(\d+)(?=\s*[\w+*),;]))", r"write the type in backticks: `\1\2`"),
    _slip(
        r"\bSEQ\s*\((?:[^()]*,)?\s*(\w+)\s+(\w+)\s+\0(\w+)\s*[),]",
        r"write a type with a blank in backticks: `\1 \2` \3",
    ),
    _slip(r"\0(?:(?:INNER|LEFT|CROSS)\s+)?JOIN\b", "write `;` between an event and the next one: FROM A a; B b"),
    _slip(rf"\bFROM\b{_NOT_WHERE}\0,", "write `;` between an event and the next one: FROM A a; B b"),
    _slip(r"\bSELECT\b.*\0WITHIN\s+(\d+\s*\w+)", r"write the window as a condition: (first, last) OCCURS WITHIN \1"),
    _slip(r"\0(?:RLIKE|ILIKE|REGEXP|SIMILAR|MATCHES|GLOB)\b", "write LIKE 'a%', CONTAINS 'a' or lower(a.x) LIKE 'a%'"),
    _slip(r"==\0=", "write ="),
    _slip(r"\bWITHIN\s+\d+\0:\d", "write one number and one unit: WITHIN 5 minutes for 00:05:00"),
    _slip(r"(\w+)\s*\0:\s*(\w+)", r"the type comes first, then the variable: \2 \1"),
    _slip(rf"{_IN_PATTERN}\0({_KEYWORDS})(?=\s+\w+\s*[),;]|[+*{{])", r"a keyword is a name in backticks: `\1`"),
    _slip(r"\b(?:EVENT|PATTERN)\s+[\w`]+(?:\s+\w+)?\s*\0,", "write a sequence in parentheses: SEQ(A a, B b)"),
    _slip(r"(?:\bFOLLOWED\s+\0BY|\0(?:FOLLOWED|THEN))\b", "write a sequence: SEQ(A a, B b)"),
    _slip(rf"\b(?:PATTERN|EVENT)\b{_NOT_WHERE}\bAND\s+\0", "write events in any order with &: PATTERN A & B"),
    _slip(rf"\b(?:PATTERN|EVENT)\b{_NOT_WHERE}\bOR\s+\0", "write one event or the other with |: PATTERN A | B"),
    _slip(
        r"\bEVENT\b.*(?:skip_till|_contiguity)\w*\s*\([^)]*\)\s*\0\{",
        "strategies are in SASE+: write PATTERN instead of EVENT",
    ),
    _slip(rf"\bEVENT\b{_NOT_WHERE}\0[{{+]", "closures are in SASE+: PATTERN SEQ(A{3,} a[], B+ b[])"),
    _slip(r"\0HAVING\b", "write it as a condition in WHERE: count(a) > 3"),
    _slip(
        r"\(\s*DISTINCT\s+\0",
        "aggregates range over all events of a closure; count different values in the table of matches",
    ),
    _slip(r";\s*\0(?:WHERE|WITHIN|RETURN)\b", "write `;` only between two events"),
    _slip(r"=\0>", "write >= for at least, <= for at most"),
    _slip(
        r"\b(?:EVENT|PATTERN)\s+SEQ\s*\([^()]*\0(?:-+>|;(?!\s*\d)|&|\|)",
        "write commas between the components: SEQ(A x, B y)",
    ),
    _slip(r"\0-+>", "write `;` between an event and the next one: A; B"),
    _slip(r"\0\{\s*(\d+)\s*(?:\.\.+|-|:)\s*(\d*)\s*\}", r"write the bounds with a comma: {\1,\2}"),
    _slip(r"\bPATTERN\b[^{}]*?([\w`]+)\s+(\w+)\s*\0\[\s*(\d+)\s*\]", r"write the number after the type: \1{\3} \2[]"),
    _slip(r"\}\s*\0(?:AND|OR)\b", "write all conditions inside the braces: { [key] AND ... }"),
    _slip(r"\bEVENT\b.*\0OUTPUT\b", "OUTPUT is in SASE+: write PATTERN instead of EVENT, and a strategy"),
    _slip(r"\d\0,\d", "write a decimal point: 10.5"),
    _slip(r"\0contains\s*\(", "write a.name LIKE '%text%'"),
    _slip(rf"\0{_UNITS}\s?\d+\s?{_UNITS}\b", "write one number and one unit: 90 minutes for 1h30m"),
    _slip(
        rf"WITHIN\s+\d+\s*{_UNITS}\s*\0(?:and\s+\d|,|\d)", "write one number and one unit: 65 minutes for 1 hour and 5"
    ),
    _slip(rf"WITHIN\s+\d+\s*{_UNITS}\s*\0(?:AND|OR)\b", "write conditions in WHERE, which stands before WITHIN"),
    _slip(r"WITHIN\s+\0-", "write a length of time greater than 0: WITHIN 1 hour"),
    _slip(r"\bIN\s+\0[\d'\"]", "write the values in parentheses: IN (1, 2)"),
    _slip(r"\bLIKE\s+\0\w", "write the pattern in quotes: LIKE 'a%'"),
    _slip(r"\bLIMIT\s+\0", "write a number: LIMIT 10"),
    _slip(r"\bANY\s*\(([^()]*?\w)\s+\0\w", r"write the variable after the parenthesis: ANY(\1) x"),
    _slip(
        r"\bRETURN\b[^;]*?(\w+)\.(\w+)\s+\0(\w+)\s+AS\b", r"write a name with a blank in backticks: \1.`\2 \3` AS name"
    ),
    _slip(r"\bRETURN\b[^;]*?(\w+\.\w+)\s+\0\w", r"write AS before the name of a column: \1 AS name"),
    _slip(r"\bBETWEEN\s+(\S+)\s+\0", r"write both bounds: BETWEEN \1 AND ..."),
    _slip(r"\bOCCURS\s+WITHIN\s+\d+\s+\0[A-Za-z]", "write a unit such as seconds, minutes, hours, days or events"),
    _slip(
        r"\bSEQ\s*\([^()]*\w+\s+\w+\s+\0(?!W|RETURN)\w",
        "write a comma between two components: SEQ(A x, B y), and a type with blanks in backticks: `a type` x",
    ),
)
"""Slips in queries, by the text around the unexpected token, at which a NUL stands, each with what to write."""


def _foreign(text: str, span: Span) -> str | None:
    """A hint for what other languages write at this position."""
    word, before = text[span.start : span.end].upper(), text[: span.start]
    if word == "BY":
        words = before.split()
        span = Span(len(before.rstrip()) - len(words[-1]), span.end) if words else span
    grouping = _GROUPING.match(text, span.start)
    if grouping is not None and _FROM.search(skeleton(before)):
        name = grouping[1]
        return f"write FILTER(a.{name} = b.{name}) in WHERE: the next event then has the same {name}"
    if grouping is not None:
        name = grouping[1]
        return f"write [{name}] as a condition in WHERE: all events of a match then have the same {name}"
    if _ORDERING.match(text, span.start) or (word == "BY" and before.rstrip().upper().endswith("ORDER")):
        return "events are ordered by their time; leave ORDER BY out"
    earlier = _BEFORE_WHERE.match(skeleton(before)) if word == "WHERE" else None
    if earlier is not None:
        return f"WHERE stands before {earlier[1].upper()}"
    odd = _ODD_NAME.match(text, span.start) if before.endswith(".") else None
    if odd is not None:
        return f"write a name with other characters in backticks: `{odd[1].strip()}`"
    if (
        _ANOTHER_QUERY.match(text, span.start)
        and not before.rstrip().endswith("(")
        and _BEGINS.search(skeleton(before))
    ):
        return f"each of several queries has a label: First: ... Second: {word} ..."
    if word == "NEXT" and _FROM.search(skeleton(before)):
        return "write `;` between an event and the next one: A a; B b"
    if word == "*" and _ANY_TYPE.search(before[-100:]):
        return "name the types: ANY(A, B) x; ANY(*), for every type, is in ZStream: PATTERN ANY(*) x; B y"
    if word == "*" and not (before.endswith(".") and _SELECT.search(before)):
        return "leave RETURN out for all events with all attributes, or name the variables: RETURN a, b"
    alias = _ALIAS.search((before + word if word == "AS" else before)[-100:])
    if alias is not None and _AT_WORD.match(text, span.start):
        return f"write the variable after the type, without AS: {alias[1]} x"
    around = f"{before[-300:]}\0{text[span.start : span.start + 40]}"
    for pattern, hint in _SLIPS:
        slip = pattern.search(around)
        if slip is not None:
            return slip.expand(hint)
    split = _SPLIT_NAME.search(before[-100:])
    if split is not None and _AT_WORD.fullmatch(text[span.start : span.end]) and word not in _CLAUSES:
        return f"write a name with a blank in backticks: {split[1]}.`{split[2]} {text[span.start : span.end]}`"
    return None


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


@dataclass(frozen=True, slots=True)
class _Names:
    """What the names in an expression mean."""

    variables: Mapping[str, Role]
    bare_name: Callable[[Param], Expr] | None

    def resolved(self, expr: Expr, bare_names: bool = True) -> Expr:
        negated = [var for var, role in self.variables.items() if role.negated]
        single = [var for var, role in self.variables.items() if not role.binds_many]
        return resolve(expr, negated, self.bare_name if bare_names else None, single)


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


def conditions_text(conditions: Iterable[Expr], text_of: Callable[[Expr], str] = expr_text) -> str:
    """The conjuncts as WHERE lists them; one that is a disjunction needs brackets."""
    items = tuple(conditions)
    texts = [text_of(item) for item in items]
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
