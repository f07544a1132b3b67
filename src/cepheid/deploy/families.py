r"""Families: queries that are equal up to the tests on single events, their windows and their names.

A *rule* is what such a query adds to the shape of its family: the tests of each event, and the lengths of its windows.
These shapes are families, over events without duration:

    A; B; C        EQL, each event the successor of the one before it, with exceptions of single events: A; (B \ X)
    (A @ d) \ B    EQL, silence: no B in a while after A
    SEQ(A, B, C)   SASE, ZStream and CED: every combination, with a key and a window
    SEQ(A, B, C)   SASE+: by its strategy. Skip till next match takes the next event that fits (φ), contiguity the next
                   event, which ends the wait if it does not fit (θ)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cepheid.deploy.event_tests import EventTest
from cepheid.dialect import COMBINATIONS, RUNS, SUCCESSORS
from cepheid.events import Clock, Duration
from cepheid.expr import At, Attr, Compare, Const, Expr, Filter, OccursWithin
from cepheid.kernels.successor import placed_operators
from cepheid.kernels.successor.operators import Exception_, Leaf, Next, Operator, Timer
from cepheid.optimize.core_key import core_key
from cepheid.pattern import EventClass, Strategy, partition_attributes
from cepheid.physical import Kind, Lowered, kind_of

LONGEST = 8
"""The most events of a family."""
BY_STRATEGY = (
    "its events are chosen by a strategy, and a run holds the state of one query: equal beginnings are shared in "
    "families of sequences of single events only"
)
"""Why a query of SASE+ is in no union."""
VERSION = "\0version"
"""The attribute of an event that counts the changes of a deployment before it arrived."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the queries of a family have in common."""

    length: int
    key: str | None
    cancels: tuple[int, ...]
    """The positions whose wait an exception can end."""
    windows: tuple[tuple[int, int], ...]
    """The position that each window counts from, and the one at which it is tested."""
    combines: bool = False
    """Whether every combination is a match, instead of successors only."""
    delay: int | None = None
    """The ticks of a silence; its only position is the event before it."""
    strategy: Strategy | None = None
    """That of SASE+, whose events are ordered by position; None: they are ordered by time."""

    @property
    def text(self) -> str:
        """As EXPLAIN shows it: `1; 2; (3 \\ x)`."""
        numbers = [f"({n + 1} \\ x)" if n in self.cancels else str(n + 1) for n in range(self.length)]
        if self.delay is not None:
            return f"(1 @ {self.delay}) \\ x"
        if self.strategy is not None:
            return f"{self.strategy.value}({', '.join(numbers)})"
        return f"SEQ({', '.join(numbers)})" if self.combines else "; ".join(numbers)


@dataclass(frozen=True, slots=True)
class Rule:
    """The tests of a query: of the first event, then for each further position φ, θ and what cancels."""

    tests: tuple[EventTest, ...]
    limits: tuple[int, ...]
    """The longest time that each window allows, in ticks."""


def slots_of(shape: Shape) -> list[tuple[int, str]]:
    """The position and the part of each test of a rule, in order."""
    slots = [(0, "passes")]
    if shape.delay is not None:
        return [*slots, (0, "cancels")]
    for position in range(1, shape.length):
        slots += [(position, "passes"), (position, "keeps")]
        slots += [(position, "cancels")] if position in shape.cancels else []
    return slots


def later(shape: Shape, rule: Rule, since: int) -> Rule:
    """The rule of a query that was added with a version: events that arrived before it neither match nor cancel."""
    came = Compare(">=", Attr("", VERSION), Const(since))
    tests = (
        test if part == "keeps" else replace(test, conditions=(*test.conditions, came))
        for (_, part), test in zip(slots_of(shape), rule.tests, strict=True)
    )
    return replace(rule, tests=tuple(tests))


def family_of(lowered: Lowered) -> tuple[Shape, Rule] | str:
    """The family of a query and its rule, or why it has none."""
    query = lowered.query
    if query.summarizes:
        return "it is a summary of all matches"
    if query.limit is not None or query.non_overlapping or query.consumes:
        return "the output depends on other matches (LIMIT, NON-OVERLAPPING, consume once)"
    if lowered.has_durations:
        return "events have a duration"
    if query.inputs:
        return "it uses other queries"
    if query.dialect.selection == SUCCESSORS:
        return _of_successors(lowered)
    if query.dialect.selection == COMBINATIONS and not query.dialect.ordered_by_position:
        return _of_sequence(lowered, None)
    if query.dialect.selection == RUNS and query.dialect.ordered_by_position:
        return _of_sequence(lowered, query.strategy)
    return "its operators have windows of their own"


def _of_successors(lowered: Lowered) -> tuple[Shape, Rule] | str:
    placed, root, core = placed_operators(lowered)
    if "failures" in lowered.options:
        return "it shows failed detections"
    keys = core_key(core, placed.lacks, placed.types)
    key = _key(keys, placed)
    if len(keys) > 1 or (keys and key is None):
        return "its key is not one integer or string"
    match root:
        case Exception_(item=Timer(item=Leaf() as leaf) as timer, cancel=Leaf() as cancel):
            other = _other_predicates(root.when, key)
            if other is not None:
                return other
            tests = (_test(leaf, leaf.tests), _test(cancel, cancel.tests))
            return Shape(1, key, (0,), (), delay=timer.delay), Rule(tests, ())
        case Exception_(item=Next(left=Leaf(), right=Leaf(), cancel=None) as pair, cancel=Leaf()):
            # The first event has no duration, so that what cancels the pair cancels the wait for the second one.
            return _of_chain([(pair, root.cancel, root.when)], key)
        case Next():
            chain: list[tuple[Next, Operator | None, Sequence[Expr]]] = []
            node: Operator = root
            while isinstance(node, Next):
                chain.append((node, node.cancel, node.when))
                node = node.left
            return _of_chain(chain[::-1], key)
        case _:
            return "its operators are not a sequence of single events"


def _of_chain(
    chain: Sequence[tuple[Next, Operator | None, Sequence[Expr]]], key: str | None
) -> tuple[Shape, Rule] | str:
    first = chain[0][0].left
    if not isinstance(first, Leaf) or len(chain) >= LONGEST:
        return "its operators are not a sequence of single events"
    variables, tests = [first.var], [_test(first, first.tests)]
    cancels: list[int] = []
    windows: list[tuple[int, int]] = []
    limits: list[int] = []
    for position, (node, cancel, when) in enumerate(chain, 1):
        leaf = node.right
        if not isinstance(leaf, Leaf) or not (cancel is None or isinstance(cancel, Leaf)):
            return "its operators are not a sequence of single events"
        variables.append(leaf.var)
        within = [p for p in node.keep if isinstance(p, OccursWithin)]
        other = _other_predicates([*node.skip, *(p for p in node.keep if p not in within), *when], key)
        if other is not None:
            return other
        for p in within:
            windows.append((min(map(variables.index, (p.first, p.second))), position))
            limits.append(int(p.duration.amount))
        tests += [_test(leaf, leaf.tests), _test(leaf, leaf.keeps)]
        if isinstance(cancel, Leaf):
            cancels.append(position)
            tests.append(_test(cancel, cancel.tests))
    return Shape(len(variables), key, tuple(cancels), tuple(windows)), Rule(tuple(tests), tuple(limits))


def _of_sequence(lowered: Lowered, strategy: Strategy | None) -> tuple[Shape, Rule] | str:
    """Of SASE+ with its strategy, of other languages as all combinations."""
    query, items = lowered.query, lowered.items
    if len(items) < 2 or len(items) > LONGEST or not all(isinstance(item, EventClass) for item in items):
        return "it is not a sequence of single events"
    if lowered.window is None or lowered.counts_events or lowered.operator_windows is not None:
        return "it has no window of time for the whole match"
    keys = tuple(name for name in partition_attributes(query) if name not in lowered.lacks)
    key = _key(keys, lowered)
    is_contiguous = strategy in (Strategy.STRICT, Strategy.PARTITION)
    if strategy is Strategy.STRICT and partition_attributes(query):
        return "an event with another key ends its wait (partition contiguity ignores it)"
    if (len(keys) != 1 or key is None) and not (is_contiguous and not partition_attributes(query)):
        return "it has no key of one integer or string"
    other = _other_predicates(lowered.between, key)
    if other is not None:
        return other
    assert query.window is not None
    limit = window_ticks(query.window, lowered.clock, not query.dialect.window_includes_bound)
    tests: list[EventTest] = []
    for item in items:
        assert isinstance(item, EventClass)
        own, any_event = EventTest(item.types, tuple(lowered.alone[item.var])), EventTest((), ())
        tests += [own] if not tests else [any_event, own] if is_contiguous else [own, any_event]
    combines = strategy in (None, Strategy.ANY_MATCH)
    shape = Shape(len(items), key, (), ((0, len(items) - 1),), combines=combines, strategy=strategy)
    return shape, Rule(tuple(tests), (limit,))


def window_ticks(duration: Duration, clock: Clock, excludes: bool) -> int:
    """The whole ticks of a duration, or the most that are less than it."""
    ticks = clock.ticks(duration)
    return math.ceil(ticks) - 1 if excludes else math.floor(ticks)


def _key(keys: Sequence[str], lowered: Lowered) -> str | None:
    if len(keys) != 1 or keys[0] not in lowered.types or keys[0] in lowered.derived:
        return None
    return keys[0] if kind_of(lowered.types[keys[0]]) in (Kind.INT, Kind.CODE) else None


def _test(leaf: Leaf, conditions: Sequence[Expr]) -> EventTest:
    return (
        EventTest(leaf.event_class.types, tuple(conditions))
        if conditions is not leaf.keeps
        else EventTest((), tuple(conditions))
    )


def _other_predicates(predicates: Sequence[Expr], key: str | None) -> str | None:
    """Why predicates between events are not decided by the key."""
    for predicate in _plain(predicates):
        match predicate:
            case Compare(op="=", left=Attr(at=At.EVENT) as left, right=Attr(at=At.EVENT) as right) if (
                left.name == right.name == key
            ):
                continue
        return "it compares events with each other, apart from their key and window"
    return None


def _plain(predicates: Sequence[Expr]) -> Iterator[Expr]:
    return (p.item if isinstance(p, Filter) else p for p in predicates)
