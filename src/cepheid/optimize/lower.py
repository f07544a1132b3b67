"""Lowers a bound query to a plan: predicates on one event become bits of its mask, and the cheapest evaluator that is
able to run the query is chosen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from cepheid import expr as ex
from cepheid.binding import typed_predicates
from cepheid.dialect import Closure
from cepheid.errors import NotAvailable
from cepheid.evaluator import Evaluator
from cepheid.events import Clock, Schema
from cepheid.expr import At, Attr, Expr, attributes_in
from cepheid.logic import normal_form, pairs_of
from cepheid.optimize.derived import derived
from cepheid.optimize.rules import FALSE, lean_equalities, rewrite, wants_rewrites
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.optimize.windows import match_window, operator_windows, reach
from cepheid.pattern import Column, Next, Query, Role, durations, walk
from cepheid.physical import REFERENCE, Lowered, Options, Plan, not_made_for
from cepheid.types import BINARY, Family, Type

_WORTHWHILE = 0.95
"""Another evaluator replaces the preferred one only if its cost is below this share of it: estimates err."""
OPTIONS: Options = {
    "rewrite": ("on", "off", "True", "False"),
    "max_matches": (),
    "max_memory": (),
    "max_total_memory": (),
    "max_operators": (),
    "max_total_operators": (),
    "acquire": ("steps", "scan"),
}
"""The options of every evaluator; one without values has a number."""
_NO_OPTIONS: Mapping[str, str | bool] = {}

Evaluators = Sequence[Evaluator[Stats, object]]
"""The compiled evaluators in the order of the registry. Without statistics the first able one is chosen, so those with
the smallest state come first."""


def lower(
    query: Query,
    types: Mapping[str, Type],
    schema: Schema,
    clock: Clock,
    evaluators: Evaluators,
    *,
    evaluator: str | None = None,
    options: Mapping[str, str | bool] = _NO_OPTIONS,
    stats: Stats = NO_STATS,
    sample: Callable[[Plan], Stats] | None = None,
    has_durations: bool = False,
    composite: frozenset[str] = frozenset(),
) -> Plan:
    """The plan of a bound query over an input with these columns, by the cheapest of the evaluators that are able, or
    by the one that the option `evaluator` names. `stats` are the statistics of the stream; without them, `sample` is
    called if statistics decide between plans, with a plan that has the classes and predicates to observe. With
    `has_durations` the events of the input have a start of their own. `composite` are the event types that other
    queries derive."""
    if wants_rewrites(options):
        rewritten = rewrite(query, schema)
        if rewritten is not query:
            query = replace(rewritten, where=typed_predicates(rewritten, rewritten.where, schema))
    _require_windows(query, clock)
    if query.window is not None and not query.dialect.window_includes_bound and clock.ticks(query.window) <= 0:
        query = replace(query, where=(*query.where, FALSE))  # no match is shorter than nothing
    lowered = lowered_query(query, types, schema, clock, options, has_durations, composite)
    reasons = {e.NAME: e.able(lowered) for e in evaluators}
    able = [e for e in evaluators if reasons[e.NAME] is None]
    if query.is_folded:
        able.sort(key=lambda e: not e.FOLDS)
    if evaluator not in (None, REFERENCE, *(e.NAME for e in able)):
        raise _cannot_evaluate(str(evaluator), query, reasons)
    if evaluator == REFERENCE:
        return _reference_plan(query, options)
    if not able:
        raise NotAvailable(
            f"no evaluator can run this query: {'; '.join(_obstacles(query, reasons))}",
            hint='the definition itself runs every query, slowly: evaluator="reference", or --backend reference',
        )
    searching = [e for e in able if e.SEARCHES and evaluator in (None, e.NAME)]
    decides = searching or (able if query.is_folded and evaluator is None and len(able) > 1 else [])
    if stats == NO_STATS and decides and sample is not None:
        of_core = query.dialect.conditions_belong_to_operators
        observed = _to_sample(lowered) if searching and not of_core else decides[0].plan(lowered, NO_STATS)
        stats = sample(observed) if _has_choice(observed) else stats
    wanted = _with_most_options(able, options) if evaluator is None else [e for e in able if evaluator == e.NAME]
    if query.is_folded and query.window is None and not _compares(lowered):
        wanted = [e for e in wanted if e.FOLDS] or wanted  # nothing bounds the number of matches that others enumerate
    plans = {e.NAME: e.plan(lowered, stats) for e in (wanted[:1] if stats == NO_STATS else able)}
    costs = {e.NAME: e.cost(plans[e.NAME], stats) for e in able if stats != NO_STATS}
    chosen = _cheapest([e.NAME for e in wanted], costs)
    contradiction = ("the predicates contradict each other, so there is no match",) if FALSE in query.where else ()
    others = [e.NAME for e in able if chosen != e.NAME]
    return replace(
        plans[chosen],
        reasons=(*plans[chosen].reasons, *contradiction),
        expected=costs.get(chosen, math.nan),
        others=tuple(_why_others_lost(chosen, others, costs, evaluator is not None)),
    )


def _has_choice(plan: Plan) -> bool:
    """Whether statistics may lead to another plan. EQL's operators are rewritten if there are several `;`."""
    if plan.core is None:
        return True
    return wants_rewrites(plan.options) and sum(isinstance(node, Next) for node in walk(plan.core)) > 1


def _to_sample(lowered: Lowered) -> Plan:
    """A plan with the classes and predicates to observe, a step for each variable. It is not run, so no search for the
    best tree is needed."""
    between = lean_equalities(lowered.query, lowered.between, lowered.schema)
    return lowered.plan(REFERENCE, by_variable=True, predicates=between)


def _compares(lowered: Lowered) -> bool:
    """Whether partial matches differ in more than their events: predicates between events do more than equate."""
    return any(not (isinstance(p, ex.Compare) and p.op == "=") for p in lowered.between)


def _require_windows(query: Query, clock: Clock) -> None:
    """Raises if a window of the query, of one of its operators or of one of its inputs does not fit the clock."""
    for duration in durations(query):
        clock.ticks(duration)


def _cannot_evaluate(evaluator: str, query: Query, reasons: Mapping[str, str | None]) -> NotAvailable:
    if evaluator not in reasons:
        names = ", ".join([*reasons, REFERENCE])
        return NotAvailable(f"there is no evaluator `{evaluator}`", expected=f"one of {names}")
    able = [name for name, reason in reasons.items() if reason is None]
    reason = reasons[evaluator]
    if reason == not_made_for(query):
        reason = None if able else "\n".join(_obstacles(query, reasons))
    return NotAvailable(
        f"the evaluator `{evaluator}` cannot evaluate this query",
        expected=f"one of {', '.join([*able, REFERENCE])}",
        hint=None if reason is None else "; ".join(reason.splitlines()),
    )


def _obstacles(query: Query, reasons: Mapping[str, str | None]) -> tuple[str, ...]:
    """Why no evaluator is able: the reasons that all evaluators for its operators share, or else all reasons."""
    general = not_made_for(query)
    lists = [reason.splitlines() for reason in reasons.values() if reason not in (None, general)]
    if not lists:
        return (general,)
    in_all = [reason for reason in lists[0] if all(reason in others for others in lists)]
    return tuple(in_all or dict.fromkeys(itertools.chain(*lists)))


def _reference_plan(query: Query, options: Mapping[str, str | bool]) -> Plan:
    return Plan(query, REFERENCE, (), (), {}, {}, (), {}, (), None, False, options)


def _with_most_options(able: Evaluators, options: Mapping[str, str | bool]) -> Evaluators:
    """The evaluators that have the most of these options: setting an option prefers the evaluators that have it."""
    known = [sum(name in e.OPTIONS for name in options) for e in able]
    return [e for e, number in zip(able, known, strict=True) if number == max(known)]


def _cheapest(names: Sequence[str], costs: Mapping[str, float]) -> str:
    """The first, unless another is expected to cost less."""
    first = names[0]
    best = min(names, key=lambda name: costs.get(name, math.inf)) if costs else first
    return best if best == first or costs[best] < _WORTHWHILE * costs[first] else first


def _why_others_lost(
    chosen: str, others: Sequence[str], costs: Mapping[str, float], forced: bool
) -> Iterator[tuple[str, str]]:
    for name in others:
        if not costs:
            unknown = f"no statistics are known, so the first able evaluator of the registry is used: {chosen}"
            yield name, f"{chosen} was requested" if forced else unknown
        elif forced:
            yield name, f"{costs[name]:.4g} ns expected for each event; {chosen} was requested"
        else:
            ratio = costs[name] / costs[chosen]
            text = f"{costs[name]:.4g} ns expected for each event, {ratio:.2f} times that of {chosen}"
            yield name, text if ratio >= 1 else f"{text}: the gain is too small for the buffers it needs"


# --- predicates -------------------------------------------------------------------------------------------------------


def lowered_query(
    query: Query,
    types: Mapping[str, Type],
    schema: Schema,
    clock: Clock,
    options: Mapping[str, str | bool],
    has_durations: bool,
    composite: frozenset[str] = frozenset(),
) -> Lowered:
    """A bound query with its predicates sorted into those on one event and those between events."""
    found = query.roles
    predicates: list[Expr] = []
    for test in query.where:
        predicates += typed_predicates(query, pairs_of(test, query), schema) if isinstance(test, ex.Same) else (test,)
    variables = {id(p): ex.variables(p) for p in predicates}
    edges = {id(p): _edge(p, variables[id(p)], query) for p in predicates}
    constant = [p for p in predicates if not variables[id(p)]]
    alone = {var: [*(p for p in predicates if edges[id(p)] == (var, "begin")), *constant] for var in found}
    taken = {var: [p for p in predicates if edges[id(p)] == (var, "take")] for var in found}
    single = {id(p) for tests in (*alone.values(), *taken.values()) for p in tests}
    known = {name: type_ for name, type_ in types.items() if _has_its_type(name, type_, schema)}
    summary = [column.expr for column in query.output or ()] if query.summarizes else []
    between = derived([p for p in predicates if id(p) not in single], known, summary)
    if summary:
        names = [column.name for column in query.output or ()]
        query = replace(query, output=tuple(map(Column, names, between.summary)))
    window = None if query.window is None else clock.ticks(query.window)
    windows = operator_windows(query, clock)
    if windows is not None:
        whole = None if has_durations else match_window(query.pattern)
        window = reach(query.pattern, windows) if whole is None else windows[whole]
        windows = windows if whole is None else None
    return Lowered(
        query=query,
        pattern=normal_form(query.pattern),
        roles=found,
        predicates=tuple(predicates),
        alone=alone,
        taken=taken,
        between=between.predicates,
        types={**known, **between.types},
        schema=schema,
        lacks=between.lacks(_lacks(predicates, found, schema)),
        window=window,
        options=options,
        derived=between.columns,
        operator_windows=windows,
        has_durations=has_durations,
        composite=composite,
        clock=clock,
    )


def _has_its_type(name: str, type_: Type, schema: Schema) -> bool:
    """Whether a column of bytes, or of lists of them, is that in every event type that has it: values of mixed types
    are bytes, too."""
    if type_ != BINARY and type_.family is not Family.LIST:
        return True
    return all(attributes[name] == type_ for attributes in schema.types.values() if name in attributes)


def _edge(predicate: Expr, variables: Collection[str], query: Query) -> tuple[str, str] | None:
    """The variable and edge of the only event that a predicate on some variables reads; None if it reads several."""
    if len(variables) != 1:
        return None
    (var,), nodes = variables, ex.walk(predicate)
    if any(isinstance(node, ex.Aggregate) for node in nodes):
        return None
    indexes = {node.at for node in nodes if isinstance(node, Attr)}
    positions = query.dialect.closure is Closure.RUN
    if indexes <= ({At.EVENT, At.FIRST} if positions else {At.EVENT}):
        return var, "begin"
    return (var, "take") if indexes == {At.CURRENT} else None


def _lacks(predicates: Sequence[Expr], found: Mapping[str, Role], schema: Schema) -> dict[str, tuple[str, ...]]:
    types = {t for role in found.values() for t in role.event_class.types or schema.types}
    known = [t for t in sorted(types) if t in schema.types]
    lacks = {name: tuple(t for t in known if name not in schema.types[t]) for name in attributes_in(predicates)}
    return {name: lacking for name, lacking in lacks.items() if lacking}
