"""A bound query to a plan: what is decided for each event alone becomes bits of its mask, and what is left is given to
the evaluator that can do it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cepheid import expr as ex
from cepheid.checks import summarises
from cepheid.dialect import COMBINATIONS, RUNS, Closure
from cepheid.errors import NotAvailable
from cepheid.events import Clock, Schema
from cepheid.expr import At, Attr, Expr
from cepheid.logic import expanded, normal_form
from cepheid.optimize.rules import FALSE, lean_equalities, rewrite
from cepheid.optimize.search import (
    TREE_OPTIONS,
    Situation,
    expected_of_stacks,
    expected_of_tree,
    tree_plan,
    tree_wishes,
)
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.pattern import (
    Disj,
    EventClass,
    Kleene,
    Neg,
    Pattern,
    Query,
    Seq,
    Strategy,
    partition_attributes,
    roles,
    walk,
)
from cepheid.physical import REFERENCE, Bit, Kind, Options, Plan, Step, TreePlan

TREE = "tree"
EVALUATORS = ("stacks", "runs", TREE, "any_runs", REFERENCE)
_MASK_BITS = 64
_WORTH_BUFFERS = 0.95
"""What a tree must cost of what stacks cost to be chosen: stacks hold less, compile faster, and estimates err."""
OPTIONS: Options = {"rewrite": ("on", "off", "True", "False")}
"""What can be forced whatever evaluator is chosen."""
_NO_OPTIONS: Mapping[str, str | bool] = {}


def lower(
    query: Query,
    kinds: Mapping[str, Kind],
    schema: Schema,
    clock: Clock,
    *,
    evaluator: str | None = None,
    options: Mapping[str, str | bool] = _NO_OPTIONS,
    stats: Stats = NO_STATS,
    is_compilable: Callable[[Expr], bool] = lambda _: True,
    is_vectorisable: Callable[[Expr], bool] = lambda _: True,
) -> Plan:
    """The plan of a bound query over an input with these columns.

    `stats` is what is known about the stream, for the choice between tree plans. `is_compilable` and `is_vectorisable`
    say which predicates the code generators below can turn into code."""
    if str(options.get("rewrite", True)) not in ("False", "off"):
        query = rewrite(query, schema)
    lowering = _Lowering(query, kinds, schema)
    able, reasons = lowering.evaluators(is_compilable, is_vectorisable)
    window = None if query.window is None else clock.ticks(query.window)
    expected = lowering.expected(able, window, stats, options)
    chosen = evaluator or _cheapest(able, expected, stats, options)
    if chosen not in EVALUATORS:
        raise NotAvailable(f"there is no evaluator `{chosen}`", expected=f"one of {', '.join(EVALUATORS)}")
    if chosen not in able:
        raise NotAvailable(
            f"the evaluator `{chosen}` cannot evaluate this query",
            expected=f"one of {', '.join(able)}",
            hint="; ".join(reasons) or None,
        )
    if chosen == REFERENCE:
        return Plan(query, REFERENCE, (), (), {}, {}, (), {}, (), None, False, options, tuple(reasons))
    if FALSE in query.where:
        reasons.append("the predicates contradict each other, so there is no match")
    if chosen == TREE:
        lowering.between = lean_equalities(query, lowering.between, schema)
    steps = lowering.tree_steps() if chosen == TREE else lowering.steps()
    return Plan(
        query=query,
        evaluator=chosen,
        steps=steps,
        bits=tuple(lowering.bits),
        lacks=lowering.lacks,
        lacking=lowering.lacking,
        predicates=tuple(lowering.between),
        columns=lowering.columns(),
        key=lowering.key(),
        window=None if window is None else _longest(window, query.dialect.window_includes_bound),
        counts_events=query.window is not None and query.window.counts_events,
        options=options,
        reasons=tuple(reasons),
        tree=lowering.tree(window, stats, options) if chosen == TREE else None,
        expected=math.nan if stats == NO_STATS else expected.get(chosen, math.nan),
        others=tuple(_why_others_lost(chosen, expected, evaluator is not None, stats)),
    )


def _cheapest(
    able: Sequence[str], expected: Mapping[str, float], stats: Stats, options: Mapping[str, str | bool]
) -> str:
    """The evaluator that is expected to be the cheapest; the first that is able where nothing is known of the stream.
    Who asks for a tree's shape wants a tree."""
    if TREE in able and any(wish in options for wish in TREE_OPTIONS):
        return TREE
    if stats == NO_STATS or len(expected) < 2:
        return able[0]
    return TREE if expected[TREE] < _WORTH_BUFFERS * expected["stacks"] else "stacks"


def _why_others_lost(
    chosen: str, expected: Mapping[str, float], forced: bool, stats: Stats
) -> Iterator[tuple[str, str]]:
    for name, cost in expected.items():
        if name == chosen:
            continue
        if stats == NO_STATS:
            reason = (
                f"{chosen} was asked for" if forced else f"nothing is known about the stream, and {chosen} keep less"
            )
            yield name, reason
        elif forced:
            yield name, f"{cost:.4g} ns expected for each event; {chosen} was asked for"
        else:
            times = f"{cost:.4g} ns expected for each event, {cost / expected[chosen]:.2f} times that of {chosen}"
            yield name, times if cost >= expected[chosen] else f"{times}: too little to keep buffers for"


def _longest(window: int | float, includes_bound: bool) -> int:
    """The longest whole number of ticks that fits the window, so that kernels only ever ask `<=`."""
    return math.floor(window) if includes_bound else math.ceil(window) - 1


@dataclass
class _Lowering:
    query: Query
    kinds: Mapping[str, Kind]
    schema: Schema
    bits: list[Bit] = field(default_factory=list)
    lacking: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pattern = normal_form(self.query.pattern)
        self.roles = roles(self.query.pattern)
        self.predicates = expanded(self.query)
        self.lacks = self._lacks()
        self.alone = {var: [p for p in self.predicates if self._edge(p) == (var, "begin")] for var in self.roles}
        self.taken = {var: [p for p in self.predicates if self._edge(p) == (var, "take")] for var in self.roles}
        constant = [p for p in self.predicates if not ex.variables(p)]
        for tests in self.alone.values():
            tests.extend(constant)
        single = {id(p) for tests in (*self.alone.values(), *self.taken.values()) for p in tests}
        self.between = [p for p in self.predicates if id(p) not in single]

    # --- what is left between events ----------------------------------------------------------------------------------

    def _edge(self, predicate: Expr) -> tuple[str, str] | None:
        """The variable and edge whose event a predicate speaks of, if it is one event only."""
        names = ex.variables(predicate)
        if len(names) != 1 or any(isinstance(n, ex.Aggregate) for n in ex.walk(predicate)):
            return None
        (var,) = names
        places = {node.at for node in ex.walk(predicate) if isinstance(node, Attr)}
        positions = self.query.dialect.closure is Closure.RUN
        if places <= ({At.EVENT, At.FIRST} if positions else {At.EVENT}):
            return var, "begin"
        return (var, "take") if places == {At.CURRENT} else None

    def _lacks(self) -> dict[str, tuple[str, ...]]:
        names = _attributes_in(self.predicates)
        types = {t for role in self.roles.values() for t in role.event_class.types or self.schema.types}
        known = [t for t in sorted(types) if t in self.schema.types]
        lacks = {name: tuple(t for t in known if name not in self.schema.types[t]) for name in names}
        return {name: lacking for name, lacking in lacks.items() if lacking}

    def key(self) -> tuple[str, ...]:
        """The partition attributes that every event of a match has and shares with the others. An equality that is
        spelt out says nothing about the further events of a closure, nor about anything beside an empty one."""
        tested = {p.name for p in self.query.where if isinstance(p, ex.Same)}
        closures = any(isinstance(node, Kleene) for node in walk(self.pattern))
        names = (n for n in partition_attributes(self.query) if n in tested or not closures)
        return tuple(n for n in names if n in self.kinds and n not in self.lacks)

    # --- bits ---------------------------------------------------------------------------------------------------------

    def steps(self) -> tuple[Step, ...]:
        items = self.pattern.items if isinstance(self.pattern, Seq) else (self.pattern,)
        steps = tuple(step for item in items for step in self._steps_of(item, False))
        self._lacking_bits()
        return steps

    def tree_steps(self) -> tuple[Step, ...]:
        """A step for each variable, the negated ones last. Each member of a closure passes the same tests."""
        steps = []
        for var, role in sorted(self.roles.items(), key=lambda item: item[1].negated):
            bit = self._class_bit(role.event_class, self.alone[var], "begin")
            if role.kleene is None:
                steps.append(Step(var, bit, negated=role.negated))
            else:
                steps.append(Step(var, bit, bit, role.kleene.low, role.kleene.high))
        self._lacking_bits()
        return tuple(steps)

    def tree(self, window: int | float | None, stats: Stats, options: Mapping[str, str | bool]) -> TreePlan:
        return tree_plan(self._situation(window, stats), *tree_wishes(options))

    def _situation(self, window: int | float | None, stats: Stats) -> Situation:
        return Situation(self.query, tuple(self.between), self.alone, window, stats)

    def expected(
        self, able: Sequence[str], window: int | float | None, stats: Stats, options: Mapping[str, str | bool]
    ) -> dict[str, float]:
        """What the evaluators that the cost model knows are expected to take for each event, in nanoseconds."""
        if TREE not in able:
            return {}
        situation = self._situation(window, stats)
        found = {TREE: expected_of_tree(situation, self.tree(window, stats, options))}
        return {"stacks": expected_of_stacks(situation), **found} if "stacks" in able else found

    def _lacking_bits(self) -> None:
        for name in _attributes_in(self.between):
            if name in self.lacks:
                self.lacking[name] = self._bit(Bit(f"lacks {name}", "", self.lacks[name]))

    def _steps_of(self, item: Pattern, negated: bool) -> list[Step]:
        match item:
            case EventClass():
                return [Step(item.var, self._class_bit(item, self.alone[item.var], "begin"), negated=negated)]
            case Kleene():
                var = item.item.var
                begin = self._class_bit(item.item, self.alone[var], "begin")
                take = self._class_bit(item.item, self.taken[var], "take")
                return [Step(var, begin, take, item.low, item.high)]
            case Neg():
                return self._steps_of(item.item, True)
            case Disj() if negated:
                return [step for part in item.items for step in self._steps_of(part, True)]
            case _:
                raise AssertionError("not a sequence")

    def _class_bit(self, event_class: EventClass, tests: Sequence[Expr], edge: str) -> int:
        return self._bit(Bit(f"{event_class.var} {edge}", event_class.var, event_class.types, tuple(tests)))

    def _bit(self, bit: Bit) -> int:
        self.bits.append(bit)
        return len(self.bits) - 1

    def columns(self) -> dict[str, Kind]:
        """The attributes that something between events reads, or the summary of all matches."""
        return {name: self.kinds.get(name, Kind.FLOAT) for name in _attributes_in([*self.between, *self._summed_up()])}

    def _summed_up(self) -> list[Expr]:
        return [column.expr for column in self.query.output or ()] if summarises(self.query) else []

    # --- evaluators ---------------------------------------------------------------------------------------------------

    def evaluators(
        self, is_compilable: Callable[[Expr], bool], is_vectorisable: Callable[[Expr], bool]
    ) -> tuple[list[str], list[str]]:
        """Those that can evaluate the query, the preferred one first, and why others cannot."""
        reasons: list[str] = []
        single = [p for tests in (*self.alone.values(), *self.taken.values()) for p in tests]
        for p in [*(p for p in self.between if not is_compilable(p)), *(p for p in single if not is_vectorisable(p))]:
            reasons.append(f"`{ex.to_text(p)}` cannot be compiled")
        if self.query.inputs:
            reasons.append("the query uses other queries or declared streams")
        if not self._is_sequence() and not self._is_tree():
            reasons.append(f"no compiled evaluator for these operators of {self.query.dialect.name}")
        named = _attributes_in([*self.predicates, *self._summed_up()])
        unknown = [n for n in named if n not in self.kinds and not self._never_there(n)]
        if unknown:
            reasons.append(f"the attribute `{unknown[0]}` does not have one type")
        counts = self.query.window is not None and self.query.window.counts_events
        whole_key = set(self.key()) == set(partition_attributes(self.query))
        absence_counts = bool(
            counts and partition_attributes(self.query) and any(r.negated for r in self.roles.values())
        )
        if absence_counts and not self._is_tree():
            reasons.append("negation in a window that counts the events of a partition")
        if counts and not whole_key:
            reasons.append("a window that counts the events of a partition that not all events of a match are in")
        if self.query.non_overlapping and not whole_key and self.query.strategy is not Strategy.STRICT:
            reasons.append("non-overlapping matches in partitions that not all events of a match are in")
        if self.query.non_overlapping and self._may_wait():
            reasons.append("non-overlapping matches that wait for their window to pass")
        if reasons:
            return [REFERENCE], reasons
        kleene = any(isinstance(node, Kleene) for node in walk(self.pattern))
        summary = summarises(self.query)
        if self.query.dialect.selection != RUNS:
            stacks = ["stacks"] if self._is_sequence() and not absence_counts else []
            able = [*stacks, *([TREE] if self._is_tree() else [])]
        elif self.query.strategy is not Strategy.ANY_MATCH:
            able = ["runs"]
        elif kleene:
            able = ["any_runs"]
        else:
            able = ["stacks", "any_runs"]
        if summary:
            able = [name for name in able if name == "any_runs"]
        if self.query.non_overlapping:
            able = [name for name in able if name == "runs"]
        return [*able, REFERENCE], reasons

    def _may_wait(self) -> bool:
        """Whether a match can end with what must not follow it: a negation after which there is nothing, or nothing but
        closures that may be empty."""
        items = self.pattern.items if isinstance(self.pattern, Seq) else (self.pattern,)
        needed = [i for i, item in enumerate(items) if not (isinstance(item, Neg) or _may_be_empty(item))]
        return any(isinstance(item, Neg) and i > max(needed, default=-1) for i, item in enumerate(items))

    def _is_sequence(self) -> bool:
        items = self.pattern.items if isinstance(self.pattern, Seq) else (self.pattern,)
        closures = self.query.dialect.closure is Closure.RUN
        return self.query.dialect.selection in (COMBINATIONS, RUNS) and all(
            isinstance(item, EventClass | Neg) or (closures and isinstance(item, Kleene)) for item in items
        )

    def _is_tree(self) -> bool:
        few = len(self.roles) + len(self.lacks) <= _MASK_BITS
        return few and self.query.dialect.selection == COMBINATIONS

    def _never_there(self, name: str) -> bool:
        return all(name not in attributes for attributes in self.schema.types.values())


def _may_be_empty(item: Pattern) -> bool:
    return isinstance(item, Kleene) and item.low == 0


def _attributes_in(predicates: Sequence[Expr]) -> dict[str, None]:
    """The attributes that predicates name, in order."""
    nodes = (node for p in predicates for node in ex.walk(p) if isinstance(node, Attr | ex.Aggregate))
    return dict.fromkeys(node.name for node in nodes if node.name is not None)
