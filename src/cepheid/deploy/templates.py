"""The parts that texts have in common are parsed and planned once.

A text is cut into its *core* and *fragments*: conditions of one event and a literal, `A.amount > 100`, each a conjunct
of WHERE. Texts whose cores differ in literals only have one template: the literals of its text are sentinels, values
that occur nowhere else, and where one is found in the rule of its family, each text has its own literal. A fragment is
analysed once for each core, in the text that first has it. Texts that cannot be cut surely are parsed one by one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cepheid import expr as ex
from cepheid.deploy.event_tests import EventTest
from cepheid.deploy.families import Rule, Shape, window_ticks
from cepheid.events import Clock, Duration
from cepheid.expr import Const, Expr
from cepheid.pattern import Query, durations

_LITERAL = re.compile(r"'([^'\\\n]*)'|(?<![\w.$#])(\d{1,15}(?:\.\d{1,6})?)(?![\w.%])")
_UNSURE = re.compile(r"[`\"‘’“”{}]|--|/\*|//|#|''|\b(?:OR|NOT|BETWEEN|CASE)\b|[∨¬|]{2}", re.IGNORECASE)
"""Texts with comments, other quotes, or conditions that are no conjunctions are parsed one by one."""
_WHERE = re.compile(r"\sWHERE\s", re.IGNORECASE)
_TAIL = re.compile(r"(?<!OCCURS)\s+(?:WITHIN|RETURN|LIMIT|OUTPUT)\b", re.IGNORECASE)
_AND = re.compile(r"\s+AND\s+", re.IGNORECASE)
_SIMPLE = re.compile(r"\w+\.\w+\s*(?:<=|>=|<>|!=|<|>|=)\s*(?:'[^'\\\n]*'|\d{1,15}(?:\.\d{1,6})?)")
_FILTER = re.compile(r"FILTER\s*\((.*)\)", re.IGNORECASE)
_WORDS = re.compile(r"[^\w.:/+-]")
"""What a string may not contain, so that no part of it can be taken for a part of the text."""
_FIRST_SENTINEL = 700_000_001

Literal = int | float | str


@dataclass(frozen=True, slots=True)
class Parts:
    """A text in parts: what stands before and after WHERE, and its items, each a conjunction."""

    head: str
    items: tuple[tuple[str, ...], ...]
    tail: str
    fragments: tuple[str, ...]
    """The conditions of one event that were taken out, FILTER(...) among them."""

    @property
    def core(self) -> str:
        """The text without its fragments."""
        return self.with_fragments(())

    def with_fragments(self, fragments: Sequence[str]) -> str:
        """The core with some conditions."""
        items = [" AND ".join(item) for item in self.items if item]
        filters = [each for each in fragments if _FILTER.fullmatch(each)]
        others = " AND ".join(each for each in fragments if each not in filters)
        # A language without FILTER has one conjunction.
        joined = " AND " if not filters and len(items) == 1 and not _FILTER.search(items[0]) else ", "
        where = joined.join([*items, *filters, *([others] if others else [])])
        return f"{self.head}{' WHERE ' if where else ''}{where}{self.tail}"


def parts_of(text: str) -> Parts | None:
    """None if a text is not surely cut: what is put together again must be a query only if the text is one."""
    found = list(_WHERE.finditer(text))
    if len(found) != 1 or _UNSURE.search(_LITERAL.sub("0", text)) or any(map(_WORDS.search, _strings(text))):
        return None
    head, rest = text[: found[0].start()], text[found[0].end() :]
    tail = _TAIL.search(rest)
    where, after = (rest, "") if tail is None else (rest[: tail.start()], rest[tail.start() :])
    items: list[tuple[str, ...]] = []
    fragments: list[str] = []
    split = _split(where)
    if not all(map(str.strip, split)) or (len(split) > 1 and not any(_FILTER.fullmatch(i.strip()) for i in split)):
        return None
    for item in split:
        kept: list[str] = []
        conjuncts = _conjuncts(item.strip())
        if len(conjuncts) > 1 and any(map(_FILTER.fullmatch, conjuncts)):
            return None
        for conjunct in conjuncts:
            filtered = _FILTER.fullmatch(conjunct)
            is_simple = _SIMPLE.fullmatch(conjunct if filtered is None else filtered.group(1).strip())
            (kept if is_simple is None else fragments).append(conjunct)
        items.append(tuple(kept))
    return Parts(head, tuple(items), after, tuple(fragments))


def _conjuncts(item: str) -> list[str]:
    """The parts between ANDs that are not in brackets."""
    found, start = [], 0
    for each in _AND.finditer(item):
        before = item[: each.start()]
        if before.count("(") + before.count("[") == before.count(")") + before.count("]"):
            found.append(item[start : each.start()])
            start = each.end()
    return [*found, item[start:]]


def _strings(text: str) -> list[str]:
    return [found.group(1) for found in _LITERAL.finditer(text) if found.group(1) is not None]


def _split(where: str) -> list[str]:
    """The items between commas that are not in brackets."""
    items, depth, start = [], 0, 0
    for at, character in enumerate(where):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            items.append(where[start:at])
            start = at + 1
    return [*items, where[start:]]


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A text with the kinds of its literals in their place, and the literals."""

    text: str
    literals: tuple[Literal, ...]


def skeleton_of(text: str) -> Skeleton:
    literals: list[Literal] = []

    def taken(found: re.Match[str]) -> str:
        literals.append(_value(found))
        return f"\0{type(literals[-1]).__name__}\0"

    return Skeleton(_LITERAL.sub(taken, text), tuple(literals))


def _value(found: re.Match[str]) -> Literal:
    if found.group(1) is not None:
        return found.group(1)
    return float(found.group(2)) if "." in found.group(2) else int(found.group(2))


def with_sentinels(text: str, first: int = 0) -> tuple[str, tuple[Literal, ...]]:
    """The text with a sentinel of the same kind for each literal, counted from `first`."""
    sentinels: list[Literal] = []

    def replaced(found: re.Match[str]) -> str:
        value, number = _value(found), _FIRST_SENTINEL + first + len(sentinels)
        sentinels.append(
            f"sentinel{number}" if isinstance(value, str) else number + 0.5 if isinstance(value, float) else number
        )
        return f"'{sentinels[-1]}'" if isinstance(value, str) else str(sentinels[-1])

    return _LITERAL.sub(replaced, text), tuple(sentinels)


@dataclass(frozen=True, slots=True)
class Template:
    """The rule of a family with sentinels, and where each of them is."""

    shape: Shape
    rule: Rule
    limits: tuple[tuple[int, str] | int, ...]
    """Of each window, the number of its literal and the unit, or its length in ticks."""
    delay: tuple[int, str] | None
    sentinels: Mapping[Literal, int]
    clock: Clock
    excludes: bool
    """Whether a window is shorter than its length."""

    @classmethod
    def of(cls, query: Query, shape: Shape, rule: Rule, sentinels: Sequence[Literal], clock: Clock) -> Template | None:
        """The template of a bound query with sentinels. None if a sentinel is found elsewhere than in the rule, or not
        once."""
        excludes = shape.combines and not query.dialect.window_includes_bound
        numbers = {sentinel: number for number, sentinel in enumerate(sentinels)}
        lengths: dict[int, tuple[int, str]] = {}
        for duration in durations(query):
            if duration.amount in numbers:
                lengths[window_ticks(duration, clock, excludes)] = numbers[duration.amount], duration.unit
        limits = tuple(lengths.get(limit, limit) for limit in rule.limits)
        delay = None if shape.delay is None else lengths.get(shape.delay)
        found = [place[0] for place in (*limits, delay) if isinstance(place, tuple)]
        for test in rule.tests:
            for node in (n for condition in test.conditions for n in ex.walk(condition)):
                if isinstance(node, Const) and isinstance(node.value, Literal) and node.value in numbers:
                    found.append(numbers[node.value])
        if sorted(found) != list(range(len(sentinels))):
            return None
        return cls(shape, rule, limits, delay, numbers, clock, excludes)

    def member(self, literals: Sequence[Literal]) -> tuple[Shape, Rule]:
        """The shape and the rule of a text with these literals."""

        def value(node: Expr) -> Expr:
            match node:
                case Const(value=int() | float() | str() as sentinel) if sentinel in self.sentinels:
                    return replace(node, value=literals[self.sentinels[sentinel]])
                case _:
                    return node

        def length(place: tuple[int, str]) -> int:
            amount = literals[place[0]]
            assert not isinstance(amount, str)
            return window_ticks(Duration(amount, place[1]), self.clock, self.excludes)

        tests = tuple(
            EventTest(test.types, tuple(ex.transform(condition, value) for condition in test.conditions))
            for test in self.rule.tests
        )
        limits = tuple(length(place) if isinstance(place, tuple) else place for place in self.limits)
        shape = self.shape if self.delay is None else replace(self.shape, delay=length(self.delay))
        return shape, Rule(tests, limits)


@dataclass(frozen=True, slots=True)
class Fragment:
    """A condition of a core: the test of a rule that it belongs to, and the condition with a sentinel."""

    test: int
    condition: Expr
    sentinel: Literal

    def with_literal(self, literal: Literal) -> Expr:
        def value(node: Const) -> Expr:
            return replace(node, value=literal) if node.value == self.sentinel else node

        return ex.replaced(self.condition, Const, value)


def without_fragments(rule: Rule, sentinels: Sequence[Literal]) -> tuple[Rule, list[Fragment] | None]:
    """The rule of a core, and the condition with each of these sentinels; None if there is not one for each."""
    found: dict[Literal, Fragment] = {}
    tests = []
    for number, test in enumerate(rule.tests):
        kept = []
        for condition in test.conditions:
            values = [n.value for n in ex.walk(condition) if isinstance(n, Const) and isinstance(n.value, Literal)]
            own = [sentinel for sentinel in sentinels if sentinel in values]
            if not own:
                kept.append(condition)
            elif len(own) > 1 or own[0] in found:
                return rule, None
            else:
                found[own[0]] = Fragment(number, condition, own[0])
        tests.append(replace(test, conditions=tuple(kept)))
    is_complete = all(sentinel in found for sentinel in sentinels)
    return Rule(tuple(tests), rule.limits), [found[sentinel] for sentinel in sentinels] if is_complete else None


def with_conditions(rule: Rule, added: Sequence[tuple[int, Expr]]) -> Rule:
    """The rule with further conditions, each in the test of this number."""
    tests = [[*test.conditions] for test in rule.tests]
    for number, condition in added:
        tests[number].append(condition)
    return in_order(
        Rule(tuple(EventTest(t.types, tuple(c)) for t, c in zip(rule.tests, tests, strict=True)), rule.limits)
    )


def in_order(rule: Rule) -> Rule:
    """The rule with the conditions of each test in one order, so that equal rules compare equal."""
    tests = (
        EventTest(t.types, tuple(sorted(t.conditions, key=repr))) if len(t.conditions) > 1 else t for t in rule.tests
    )
    return Rule(tuple(tests), rule.limits)
