"""SASE+: the runs of an NFA^b, event by event (SASE+ §3, ruling 7).

A run is the events it has selected, by component, and the component it is at. At each event a run may

- *take* it, if it is at a Kleene component whose take edge holds,
- *begin* the next component on it (proceeding past a Kleene component first), if that begin edge holds,
- *ignore* it, as the event selection strategy allows;

each that holds is a separate run. Every event may also begin a run. A run that has begun all components is a match, and
one whose last component is Kleene is a match at every take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from cepheid import expr as ex
from cepheid.events import Event
from cepheid.expr import Aggregate, At, Attr, Expr, Over
from cepheid.pattern import EventClass, Kleene, Neg, Pattern, Seq, Strategy, walk
from cepheid.semantics.common import Bindings, Context, Found, accepts, events_of, first_events, found, partition_key


@dataclass(frozen=True, slots=True)
class Component:
    """A positive component and the formulas on its edges (§3.2, step 2)."""

    event_class: EventClass
    low: int
    high: int | None
    kleene: bool
    begin: tuple[Expr, ...]
    take: tuple[Expr, ...]
    proceed: tuple[Expr, ...]

    @property
    def var(self) -> str:
        return self.event_class.var


@dataclass(frozen=True, slots=True)
class Run:
    bound: Bindings
    at: int
    first: Event
    last: Event


class Edge(IntEnum):
    """In the order in which they decide where a conjunct is tested. One that names `a[i]` and the whole group is tested
    at the take, over the group so far: once the run proceeds, there is no current event."""

    BEGIN = 0
    PROCEED = 1
    TAKE = 2


def matches(context: Context) -> Iterator[Found]:
    """Every match, in the order in which runs complete. A condition that names no event holds for all runs or none,
    also for those that skip the component on whose edge it would stand."""
    if not context.holds([p for p in context.about(absent=False) if _is_constant(p)], {}):
        return
    items = context.query.pattern.items if isinstance(context.query.pattern, Seq) else (context.query.pattern,)
    components = compile_components(context, [item for item in items if not isinstance(item, Neg)])
    accepting = Automaton(context, components).accepting_runs()
    nothing: Bindings = {component.var: () for component in components}
    whole = (replace(run, bound={**nothing, **run.bound}) for run in accepting)
    complete = (run for run in whole if _nothing_forbidden(context, items, run.bound))
    for run in _not_overlapping(context, complete) if context.query.non_overlapping else complete:
        yield found(run.bound)


def _is_constant(predicate: Expr) -> bool:
    return not ex.variables(predicate) and not any(isinstance(node, ex.Same) for node in ex.walk(predicate))


def compile_components(context: Context, items: Sequence[Pattern]) -> list[Component]:
    """Place each conjunct on an edge of the state where its last identifier is instantiated."""
    classes = [node for item in items for node in walk(item) if isinstance(node, EventClass)]

    def on(index: int, edge: Edge) -> tuple[Expr, ...]:
        return tuple(p for p in context.about(absent=False) if tested_at(p, classes) == (index, edge))

    return [
        Component(
            event_class=event_class,
            low=item.low if isinstance(item, Kleene) else 1,
            high=item.high if isinstance(item, Kleene) else 1,
            kleene=isinstance(item, Kleene),
            begin=on(index, Edge.BEGIN),
            take=on(index, Edge.TAKE),
            proceed=on(index, Edge.PROCEED),
        )
        for index, (item, event_class) in enumerate(zip(items, classes, strict=True))
    ]


def tested_at(predicate: Expr, components: Sequence[EventClass]) -> tuple[int, Edge]:
    """The component and the edge on which a conjunct is tested: where its last identifier is instantiated."""
    order = [component.var for component in components]
    identifiers = [node for node in ex.walk(predicate) if isinstance(node, Attr | Aggregate)]
    return max(((order.index(node.var), _instantiated_on(node)) for node in identifiers), default=(0, Edge.BEGIN))


def _instantiated_on(identifier: Attr | Aggregate) -> Edge:
    if isinstance(identifier, Aggregate):
        return Edge.TAKE if identifier.over is Over.BEFORE else Edge.PROCEED
    return {At.EVENT: Edge.BEGIN, At.FIRST: Edge.BEGIN, At.LAST: Edge.PROCEED}.get(identifier.at, Edge.TAKE)


@dataclass(frozen=True, slots=True)
class Automaton:
    context: Context
    components: list[Component]

    def accepting_runs(self) -> Iterator[Run]:
        runs: list[Run] = []
        for event in self.context.events:
            stepped: list[Run] = []
            for run in runs:
                moved = list(self._moves(run, event))
                yield from (r for r in moved if self._accepts(r))
                stepped.extend(r for r in moved if self._may_go_on(r))
                if self._ignores(run, event):
                    stepped.append(run)
            begun = list(self._begin(None, event))
            yield from (r for r in begun if self._accepts(r))
            stepped.extend(r for r in begun if self._may_go_on(r))
            runs = stepped

    def _moves(self, run: Run, event: Event) -> Iterator[Run]:
        if self._takes(run, event):
            var = self.components[run.at].var
            taken = run.bound[var]
            assert isinstance(taken, tuple)
            yield replace(run, bound={**run.bound, var: (*taken, event)}, last=event)
        if self._proceeds(run):
            yield from self._begin(run, event)

    def _begin(self, run: Run | None, event: Event) -> Iterator[Run]:
        """Begin the next component on the event, or one further on if those before it may be empty."""
        bound: Bindings = run.bound if run else {}
        for index in range(0 if run is None else run.at + 1, len(self.components)):
            component = self.components[index]
            if self._begins(bound, index, event):
                begun = {**bound, component.var: (event,) if component.kleene else event}
                yield Run(begun, index, run.first if run else event, event)
            if not self._may_skip(bound, index):
                return
            bound = {**bound, component.var: ()}

    def _begins(self, bound: Bindings, index: int, event: Event) -> bool:
        component = self.components[index]
        return (
            accepts(component.event_class, event)
            and self._fits(bound, event)
            and self.context.holds(component.begin, bound, {component.var: event})
            and self.context.joins(event, bound)
        )

    def _fits(self, bound: Bindings, event: Event) -> bool:
        """Whether the window holds the event beside the others, none of which ends after it. An event with duration may
        start too early for a run that a later event still fits, so it is one that the run may ignore."""
        return self.context.within([*events_of(bound), event])

    def _may_skip(self, bound: Bindings, index: int) -> bool:
        """Whether a component may be empty: its closure and the predicates on the whole closure allow it."""
        component = self.components[index]
        return component.low == 0 and self.context.holds(component.proceed, {**bound, component.var: ()})

    def _count(self, run: Run) -> int:
        binding = run.bound[self.components[run.at].var]
        return len(binding) if isinstance(binding, tuple) else 1

    def _is_full(self, run: Run) -> bool:
        high = self.components[run.at].high
        return high is not None and self._count(run) >= high

    def _takes(self, run: Run, event: Event) -> bool:
        component = self.components[run.at]
        return (
            component.kleene
            and not self._is_full(run)
            and accepts(component.event_class, event)
            and self._fits(run.bound, event)
            and self.context.holds(component.take, run.bound, {component.var: event})
            and self.context.agrees(event, first_events(run.bound))
        )

    def _proceeds(self, run: Run) -> bool:
        component = self.components[run.at]
        return self._count(run) >= component.low and self.context.holds(component.proceed, run.bound)

    def _accepts(self, run: Run) -> bool:
        rest: Bindings = {component.var: () for component in self.components[run.at + 1 :]}
        return self._proceeds(run) and all(
            self._may_skip({**run.bound, **rest}, index) for index in range(run.at + 1, len(self.components))
        )

    def _may_go_on(self, run: Run) -> bool:
        return run.at + 1 < len(self.components) or not self._is_full(run)

    def _ignores(self, run: Run, event: Event) -> bool:
        """Step 3: the ignore edge of the run's state."""
        match self.context.query.strategy:
            case Strategy.STRICT:
                return False
            case Strategy.PARTITION:
                attributes = self.context.partition
                return partition_key(attributes, event) != partition_key(attributes, run.first)
            case Strategy.NEXT_MATCH:
                if self.components[run.at].kleene and not self._is_full(run):
                    return not self._takes(run, event)
                return not self._begins(run.bound, run.at + 1, event)
            case _:
                return True


def _nothing_forbidden(context: Context, items: Sequence[Pattern], bound: Bindings) -> bool:
    """Negation is a nested query (§3.1): no event between the neighbours, by position, satisfies its predicates."""
    chosen = sorted(events_of(bound), key=lambda event: event.position)
    first, last = chosen[0], chosen[-1]
    earliest, _ = context.edges(chosen)
    for index, item in enumerate(items):
        if not isinstance(item, Neg):
            continue
        before = [e for i in items[:index] for e in _chosen(i, bound)]
        after = [e for i in items[index + 1 :] for e in _chosen(i, bound)]

        def occurs(event: Event, before: list[Event] = before, after: list[Event] = after) -> bool:
            if not before:
                return event.position < first.position and context.in_window(event, last)
            if not after:
                return event.position > last.position and context.in_window(earliest, event)
            return before[-1].position < event.position < after[0].position

        if not context.absent(item.item, bound, occurs):
            return False
    return True


def _chosen(item: Pattern, bound: Bindings) -> list[Event]:
    match item:
        case EventClass():
            return events_of({item.var: bound[item.var]}) if item.var in bound else []
        case Kleene():
            return _chosen(item.item, bound)
        case _:
            return []


def _roles_in_order(bound: Bindings) -> list[tuple[int, int]]:
    """The events of a run as they come in the stream, each with the component it was selected for."""
    selected = ((e.position, index) for index, var in enumerate(bound) for e in events_of({var: bound[var]}))
    return sorted(selected)


def _not_overlapping(context: Context, complete: Iterator[Run]) -> Iterator[Run]:
    """The first match to complete in a partition rules out all that overlap it; of several that complete on one event,
    the one that started first stays (ruling 7), and of several of those the one whose events come earliest."""
    attributes = () if context.query.strategy is Strategy.STRICT else context.partition
    ended: dict[Any, int] = {}
    for run in sorted(complete, key=lambda run: (run.last.position, *_roles_in_order(run.bound))):
        key = partition_key(attributes, run.first)
        if key not in ended or run.first.position > ended[key]:
            ended[key] = run.last.position
            yield run
