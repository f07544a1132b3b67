"""EXPLAIN: a description of a query and its plan, as text, Mermaid, Graphviz, a picture or a self-contained page.

A description is the text of the query, a tree of labelled nodes and, for SASE+, the NFA^b automaton of the pattern.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cepheid import expr as ex
from cepheid import pattern as pt
from cepheid import tree_plan as tp
from cepheid.analysis import Analysis
from cepheid.core_language import core_form, endless_chains, unindexed
from cepheid.dialect import RUNS, Closure, Windows
from cepheid.errors import InputProblem, did_you_mean, listing, require_strings, shown
from cepheid.events import HISTORY, OWN_UNIT, START, Clock, Duration
from cepheid.expr import (
    Aggregate,
    At,
    Attr,
    Expr,
    OccursWithin,
    Over,
    Same,
    spelt_out,
    to_text,
    transform,
    variables,
    walk,
)
from cepheid.logic import begins_with_negation, normal_form
from cepheid.nfa import Automaton, compile_automaton
from cepheid.pattern import (
    EventClass,
    Kleene,
    Next,
    Pattern,
    Query,
    Role,
    Strategy,
    components_of_a_match,
    partition_attributes,
    positives,
)
from cepheid.physical import REFERENCE, Plan
from cepheid.picture import Explanation, Node
from cepheid.rendering import FORMATS, render_svg
from cepheid.tree_plan import TreeNode, TreePlan, tree_operands, tree_text


@dataclass(frozen=True, slots=True)
class Feed:
    """A query that feeds another one, as the plan shows it: its label, the labels that it reads, and its plan."""

    label: str
    reads: tuple[str, ...]
    plan: Plan


class Explained(str):
    """A rendered description. Notebooks show its picture."""

    description: Explanation

    @classmethod
    def of(cls, text: str, description: Explanation) -> Explained:
        shown = cls(text)
        shown.description = description
        return shown

    def _repr_html_(self) -> str:
        return render_svg(self.description)


def explain(
    query: Query,
    format: str = "text",
    plan: Plan | None = None,
    analysis: Analysis | None = None,
    feeds: Sequence[Feed] = (),
) -> Explained:
    """The description of a query; with a plan also its evaluation, with an analysis also the measured counters. `feeds`
    are the queries that it uses, each after those that feed it."""
    return rendered(describe(query, plan, analysis, feeds), format)


def rendered(description: Explanation, format: str) -> Explained:
    """A description in a format."""
    require_strings({"format": format}, is_optional=False)
    render = FORMATS.get(format)
    if render is None:
        raise InputProblem(
            f"no format `{shown(format)}`", expected=f"one of {listing(FORMATS)}", hint=did_you_mean(format, FORMATS)
        )
    return Explained.of(render(description), description)


def require_text(format: str) -> None:
    """Generated code is shown as it is, and has no picture."""
    if format != "text":
        raise InputProblem(
            f"generated code has no format `{shown(format)}`",
            expected="`text`",
            hint="leave the format out, or ask for the plan: it has pictures",
        )


# --- queries ----------------------------------------------------------------------------------------------------------

_STRATEGIES: Mapping[Strategy, str] = {
    Strategy.STRICT: "strict contiguity: the events of a match follow one another with nothing between",
    Strategy.PARTITION: "partition contiguity: they follow one another with nothing of their partition between",
    Strategy.NEXT_MATCH: "skip till next match: an event that fits is taken, one that does not is passed over",
    Strategy.ANY_MATCH: "skip till any match: an event that fits may be taken, and may be passed over too",
}


EXPLOSION = (
    "warning: the number of matches can grow exponentially with the events in a window; ways out: RETURN count(*), "
    'LIMIT, output="compressed"'
)
CHAINS = (
    "warning: nothing ends the chains of an iteration, so n events of a key are up to n * n / 2 chains, and each is "
    "detected; end them by a condition outside of FILTER, or by (first, last) OCCURS WITHIN"
)


LATE = (
    "warning: a stream outputs the matches that wait for a negation only at its end, because WITHIN counts the events "
    "of each partition, and none may come; write WITHIN and a length of time"
)


def explosions(query: Query) -> list[str]:
    """The warnings about queries whose matches may be too many to enumerate, or wait for the end of a stream."""
    late = [LATE] if _waits_for_the_end(query) else []
    if query.may_explode:
        return [EXPLOSION, *late]
    if late:
        return late
    if query.combines_without_window:
        power = components_of_a_match(query.pattern)
        return [
            "warning: without WITHIN, all events are retained, and the number of matches can grow with the number of "
            f"events to the power of {power}; ways out: WITHIN, LIMIT, RETURN count(*)"
        ]
    if not query.dialect.conditions_belong_to_operators or query.limit is not None:
        return []
    core = core_form(query.pattern, query.where)
    is_limited = any(isinstance(node, ex.OccursWithin) for predicate in query.where for node in ex.walk(predicate))
    visits = [
        f"warning: no equality says which instances an event may follow in FILTER({text}), so it visits all that wait; "
        f"add an equality, such as FILTER({_equality_for(node)})"
        + ("" if is_limited else ", or let (first, last) OCCURS WITHIN end the waiting")
        for node, compared in unindexed(core)
        for text in [" AND ".join(map(ex.to_text, compared))]
    ]
    return [*([CHAINS] if endless_chains(core) else []), *visits]


def _waits_for_the_end(query: Query) -> bool:
    if query.window is None or not query.window.counts_events or not partition_attributes(query):
        return False
    return any(
        bool(pt.negatives(node)) if isinstance(node, pt.Conj) else begins_with_negation(reversed(node.items))
        for node in pt.walk(normal_form(query.pattern))
        if isinstance(node, pt.Conj | pt.Seq)
    )


def _equality_for(node: Pattern) -> str:
    """`a.key = b.key`, or `a.key = PREV(a.key)`."""
    if isinstance(node, Next):
        left, right = (next(iter(positives(side))) for side in (node.left, node.right))
        return f"{left}.key = {right}.key"
    var = next(iter(positives(node)))
    return f"{var}.key = PREV({var}.key)"


def describe(
    query: Query, plan: Plan | None = None, analysis: Analysis | None = None, feeds: Sequence[Feed] = ()
) -> Explanation:
    tree = _query_node(query)
    if plan is not None:
        fed = (Node("queries that feed it", tuple(map(_feed_node, feeds))),) if feeds else ()
        tree = Node(tree.label, (*tree.children, plan_node(plan, analysis), *fed))
    return Explanation(tree, tuple(_automata(query)), str(query))


def _feed_node(feed: Feed) -> Node:
    """`Pair: reads the input and Rise; evaluator: stacks, compiled`."""
    return Node(f"{feed.label}, which reads {' and '.join(('the input', *feed.reads))}", plan_node(feed.plan).children)


def _automata(query: Query) -> Iterator[tuple[str, Automaton]]:
    for item in query.inputs:
        if isinstance(item, Query):
            yield from _automata(item)
    if query.dialect.selection == RUNS:
        yield "automaton (NFA^b)" + (f" of {query.name}" if query.name else ""), compile_automaton(query)


def _query_node(query: Query) -> Node:
    parts = [Node(f"language: {query.dialect.title}"), Node(f"selection: {_selection(query)}")]
    keys = partition_attributes(query)
    if keys:
        parts.append(Node(f"partitioned by: {', '.join(keys)}"))
    parts.append(Node(f"window: {window_text(query)}"))
    parts.append(Node("pattern", (_pattern_node(query.pattern),)))
    if query.threshold is not None:
        parts.append(_threshold_node(query.threshold, [column.name for column in query.output or ()]))
    if query.where:
        where = query.where
        parts.append(Node("predicates", tuple(_predicate_node(predicate, query) for predicate in where)))
    if query.dialect.conditions_belong_to_operators and query.where:
        parts.append(Node("core operators", (_pattern_node(core_form(query.pattern, query.where)),)))
    parts.append(_output_node(query))
    parts.extend(map(Node, explosions(query)))
    if query.inputs:
        parts.append(Node("inputs", tuple(_input_node(item) for item in query.inputs)))
    return Node(f"query {query.name}" if query.name else "query", tuple(parts))


def _threshold_node(threshold: pt.Threshold, group: list[str]) -> Node:
    """`one event where count of distinct e.node_id over the last 1 min > 24.5, for each k`"""
    of = "events" if threshold.of is None else to_text(threshold.of)
    distinct = "distinct " if threshold.is_distinct else ""
    amount = threshold.amount if isinstance(threshold.amount, str) else threshold.limit
    each = f", for each {', '.join(group)}" if group else ""
    what = f"{threshold.fn} of {distinct}{of} over the last {_words(threshold.window)}"
    return Node(f"one event at each time where {what} {threshold.op} {amount}{each}")


def _selection(query: Query) -> str:
    text = query.dialect.selection_text or _STRATEGIES[query.strategy]
    if query.consumes:
        text += "; each event in at most one match"
    if query.non_overlapping:
        text += "; of matches that overlap in a partition, only the first to complete"
    return text


def window_text(query: Query) -> str:
    """The window in words, with its bound."""
    if query.window is None:
        if query.dialect.windows is Windows.OPERATOR:
            return "each operator has its own"
        lengths = [node.duration for p in query.where for node in walk(p) if isinstance(node, OccursWithin)]
        return "by OCCURS WITHIN (see predicates)" if lengths else "none: any length of time"
    length = str(query.window)
    if query.window.counts_events:
        bound = "at most" if query.dialect.window_includes_bound else "less than"
        return f"{length}: the last event stands {bound} {query.window.amount} positions after the first"
    sign, bound = ("<=", "at most") if query.dialect.window_includes_bound else ("<", "less than")
    return f"{_words(query.window)}: the match ends {bound} {length} after it starts (last - first {sign} {length})"


def _words(duration: Duration) -> str:
    return f"{duration.amount} units of the time column" if duration.unit == OWN_UNIT else str(duration)


def _output_node(query: Query) -> Node:
    limit = () if query.limit is None else (Node(f"at most {query.limit} matches"),)
    if query.output is None:
        return Node("output: every variable that is bound, with all attributes", limit)
    columns = tuple(
        Node(column.name if (text := to_text(column.expr)) == column.name else f"{column.name} = {text}")
        for column in query.output
    )
    return Node("output", columns + limit)


def _input_node(item: pt.SourceStream | pt.DerivedStream | Query) -> Node:
    match item:
        case pt.SourceStream():
            attributes = ", ".join(f"{name}: {kind.noun}" for name, kind in item.attributes)
            return Node(f"source {item.name}({attributes})")
        case pt.DerivedStream():
            columns = tuple(Node(f"{column.name} = {to_text(column.expr)}") for column in item.columns)
            return Node(f"stream {item.name}: one event for each of {item.source}", columns)
        case Query():
            return _query_node(item)


# --- patterns ---------------------------------------------------------------------------------------------------------


def _pattern_node(pattern: Pattern) -> Node:
    match pattern:
        case EventClass():
            return Node(_class_label(pattern))
        case Kleene():
            return Node(f"{_class_label(pattern.item)}, {_repetition(pattern)}")
        case pt.Seq():
            return _operator("sequence, one after the other", pattern.window, pattern.items)
        case pt.Conj():
            return _operator("conjunction, all of them in any order", pattern.window, pattern.items)
        case pt.Disj():
            return _operator("disjunction, any of them", None, pattern.items)
        case pt.Neg():
            return Node("not: must not occur", (_pattern_node(pattern.item),))
        case pt.Filtered():
            return Node("filter", (_pattern_node(pattern.item), *_formulas("keep if", pattern.keep)))
        case pt.Next() | pt.Iteration():
            is_next = isinstance(pattern, pt.Next)
            label = "next: the immediate successor" if is_next else "iteration: one or more successors of one another"
            tests = (*_formulas("skip unless (φ)", pattern.skip), *_formulas("discard unless (θ)", pattern.keep))
            return Node(label, (*map(_pattern_node, pt.subpatterns(pattern)), *tests))
        case pt.Unless():
            cancel = Node("cancelled by", (_pattern_node(pattern.cancel), *_formulas("if (λ)", pattern.when)))
            return Node("exception", (_pattern_node(pattern.item), cancel))
        case pt.Timer():
            return Node(f"timer: {_words(pattern.delay)} after", (_pattern_node(pattern.item),))
        case _:
            return Node(type(pattern).__name__)


def _operator(label: str, window: Duration | None, items: tuple[Pattern, ...]) -> Node:
    within = f", within {_words(window)}" if window is not None else ""
    return Node(label + within, tuple(_pattern_node(item) for item in items))


def _formulas(label: str, formulas: tuple[Expr, ...]) -> tuple[Node, ...]:
    return tuple(Node(f"{label}: {to_text(formula)}") for formula in formulas)


def _class_label(event_class: EventClass) -> str:
    if event_class.types:
        return f"{event_class.var}: {' or '.join(event_class.types)}"
    if event_class.by_name:
        return f"{event_class.var}: the type of that name, or else any event"
    return f"{event_class.var}: any event"


def _repetition(kleene: Kleene) -> str:
    if kleene.high is None:
        return {0: "any number of times (*)", 1: "one or more times (+)"}.get(kleene.low, f"{kleene.low} or more times")
    return f"{kleene.low} times" if kleene.low == kleene.high else f"{kleene.low} to {kleene.high} times"


# --- predicates -------------------------------------------------------------------------------------------------------


def _predicate_node(predicate: Expr, query: Query) -> Node:
    named = {var: role for var, role in query.roles.items() if var in variables(predicate)}
    return Node(
        to_text(predicate), (Node(f"reads {_subject(predicate, named)}"), Node(_tested_at(predicate, query, named)))
    )


def _subject(predicate: Expr, named: Mapping[str, Role]) -> str:
    if isinstance(predicate, Same):
        return "every component (equivalence)"
    negated = [var for var, role in named.items() if role.negated]
    if negated:
        others = [var for var in named if var not in negated]
        return f"a negated event, {' and '.join(negated)}" + (f", against {' and '.join(others)}" if others else "")
    aggregated = sorted({node.var for node in walk(predicate) if isinstance(node, Aggregate)})
    if aggregated:
        return f"an aggregate of {' and '.join(aggregated)}"
    if isinstance(predicate, OccursWithin):
        return f"the time from {predicate.first} to {predicate.second}"
    if len(named) > 1:
        return f"several events, {' and '.join(named)}"
    positions = {node.at for node in walk(predicate) if isinstance(node, Attr)}
    if len(positions) > 1:
        return f"several events of the list {next(iter(named))}"
    return f"a single event, {next(iter(named))}" if named else "no event at all"


def _tested_at(predicate: Expr, query: Query, named: Mapping[str, Role]) -> str:
    if isinstance(predicate, Same):
        return "tested at every component after the first"
    if query.dialect.conditions_belong_to_operators:
        return "tested at its operator (see core operators)"
    if not named:
        return "tested once"
    negated = [var for var, role in named.items() if role.negated]
    if negated:
        return f"tested on events that may be {negated[0]}, once the others are bound"
    *_, (last, role) = named.items()
    aggregates = [node for node in walk(predicate) if isinstance(node, Aggregate)]
    if query.dialect.closure is Closure.RUN and role.binds_many:
        positions = {node.at for node in walk(predicate) if isinstance(node, Attr) and node.var == last}
        if positions & {At.CURRENT, At.PREVIOUS} or any(node.over is Over.BEFORE for node in aggregates):
            return f"tested at {last}[i], when an event is taken"
        if positions == {At.FIRST}:
            return f"tested at {last}[1], when the closure begins"
        return f"tested when {last} is complete"
    if role.binds_many:
        whole = any(node.var == last for node in aggregates)
        return f"tested on the whole group of {last}" if whole else f"tested on each member of {last}"
    if len(named) > 1 and any(isinstance(node, pt.Conj) for node in pt.walk(query.pattern)):
        return f"tested when {' and '.join(named)} are bound, in any order"
    return f"tested at {last}" + (", the last of them to be bound in a sequence" if len(named) > 1 else "")


# --- plans ------------------------------------------------------------------------------------------------------------


def plan_node(plan: Plan, analysis: Analysis | None = None) -> Node:
    """The chosen evaluator and the reasons, the tests on single events, and the input of the evaluator."""
    reasons = tuple(Node(reason) for reason in plan.reasons)
    if plan.evaluator == REFERENCE:
        return Node("plan", (Node("evaluator: reference, the definition itself, which is slow", reasons),))
    expected = "" if math.isnan(plan.expected) else f", about {_nanoseconds(plan.expected)} for each event"
    parts = [Node(f"evaluator: {plan.evaluator}, compiled{expected}", reasons)]
    if plan.others:
        parts.append(Node("evaluators that lost", tuple(Node(f"{name}: {reason}") for name, reason in plan.others)))
    parts.append(Node("decided for each event alone (bits of its mask)", tuple(_bit_nodes(plan))))
    if plan.predicates:
        tests = (_in_units(spelt_out(p, plan.derived), plan.clock) for p in plan.predicates)
        parts.append(Node("tested between events", tuple(map(Node, tests))))
    names = {START: "the start of the event", HISTORY: "the time points of a derived event"}
    columns = ", ".join(f"{names.get(name, name)} ({kind.value})" for name, kind in plan.columns.items())
    parts.append(Node(f"columns that travel: {columns or 'none but the mask and the time'}"))
    if plan.key:
        parts.append(Node(f"key: {', '.join(plan.key)}"))
    if plan.window is not None:
        parts.append(Node(_plan_window(plan, plan.window)))
    if plan.tree is not None:
        parts += _tree_nodes(plan.tree, plan.clock, analysis)
    if analysis is not None:
        parts.append(_analysis_node(plan, analysis))
    if plan.options:
        parts.append(Node(f"options: {', '.join(f'{name}={value}' for name, value in plan.options.items())}"))
    return Node("plan", tuple(parts))


def _number(estimate: float) -> str:
    """An estimate for people."""
    return f"{estimate:,.0f}" if estimate >= 100 else f"{estimate:.3g}"


def _nanoseconds(cost: float) -> str:
    """A cost for people."""
    unit, size = next(((u, s) for u, s in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)) if cost >= s), ("ns", 1.0))
    return f"{cost / size:.3g} {unit}"


def _in_units(predicate: Expr, clock: Clock) -> str:
    """A predicate of a plan, whose durations are in ticks."""

    def shown(node: Expr) -> Expr:
        if not isinstance(node, OccursWithin) or node.duration.unit != OWN_UNIT or clock.unit is None:
            return node
        amount, unit = clock.length(int(node.duration.amount)).split(" ")
        return replace(node, duration=Duration(float(amount) if "." in amount else int(amount), unit))

    return to_text(transform(predicate, shown))


def _plan_window(plan: Plan, window: int | float) -> str:
    if plan.operator_windows is not None:
        return f"windows: each operator its own; an event matters for {plan.clock.length(window)}"
    bound = f"<= {window} positions" if plan.counts_events else plan.clock.bound(window)
    return f"window: last - first {bound}"


def _tree_nodes(plan: TreePlan, clock: Clock, analysis: Analysis | None) -> list[Node]:
    """The chosen tree with the estimates of each operator, and the rejected plans."""
    trees = tuple(_operator_node(tree, clock, analysis) for tree in plan.trees)
    parts = [Node(f"tree plan, estimated cost {_nanoseconds(plan.cost)} while a window passes", trees)]
    if plan.runners_up:
        others = [
            Node(f"{' or '.join(tree_text(tree) for tree in trees)}: {reason}") for trees, _, reason in plan.runners_up
        ]
        parts.append(Node("runners-up", tuple(others)))
    return parts


def _operator_node(node: TreeNode, clock: Clock, analysis: Analysis | None) -> Node:
    expected, actual = f"about {_number(node.cardinality)} in a window", _actual(node, analysis)
    match node:
        case tp.LeafBuffer():
            return Node(f"{node.var}: {expected}{actual}")
        case tp.NseqNode() | tp.NegNode():
            what = f"{_OPERATORS[type(node)]} of {', '.join(node.negated)}"
        case tp.KseqNode():
            what = f"{_OPERATORS[tp.KseqNode]} of {node.closure}"
        case tp.GroupNode():
            what = f"{_OPERATORS[tp.GroupNode]} of {', '.join(node.closures)}"
        case tp.Within():
            length = "without a window" if node.window is None else f"ends within {clock.length(node.window)}"
            inner = _operator_node(node.item, clock, analysis)
            return Node(f"{inner.label}, {length}", inner.children)
        case _:
            what = _OPERATORS[type(node)]
    operands = tuple(_operator_node(operand, clock, analysis) for operand in tree_operands(node))
    return Node(f"{what}: {expected}, cost {_nanoseconds(node.cost)}{actual}", operands)


def _actual(node: TreeNode, analysis: Analysis | None) -> str:
    """The number of records that an operator made in a run, and the number that the cost model expected."""
    counts = None if analysis is None else analysis.operators.get(tree_text(node))
    if analysis is None or counts is None:
        return ""
    expected = "" if analysis.windows is None else f" ({node.cardinality * analysis.windows:,.0f} expected)"
    tried = "" if counts.tried is None else f" of {counts.tried:,} tried, {counts.predicates or 0:,} predicates tested"
    return f"; made {counts.made:,}{expected}{tried}"


def _analysis_node(plan: Plan, analysis: Analysis) -> Node:
    counted = tuple(Node(f"{name.replace('_', ' ')}: {count:,}") for name, count in analysis.counters.items())
    pushed: tuple[Node, ...] = ()
    if plan.tree is None:
        pushed = tuple(Node(f"instances of {name}: {each.made:,}") for name, each in analysis.operators.items())
    passed = tuple(
        Node(f"events of {var}: {each.passed:,} of {each.of_type:,} pass its conditions")
        for var, each in analysis.variables.items()
    )
    return Node("what it did", (*counted, *passed, *pushed))


_OPERATORS: Mapping[type[TreeNode], str] = {
    tp.SeqNode: "SEQ",
    tp.ConNode: "CON",
    tp.DisNode: "DIS",
    tp.KseqNode: "KSEQ",
    tp.NseqNode: "NSEQ, pushed down,",
    tp.NegNode: "NEG, on top,",
    tp.GroupNode: "groups, on top,",
}


def _bit_nodes(plan: Plan) -> Iterator[Node]:
    for number, bit in enumerate(plan.bits):
        types = f"type {' or '.join(bit.types)}" if bit.types else "any type"
        tests = "".join(f", {to_text(test)}" for test in bit.tests)
        yield Node(f"bit {number}, {bit.name}: {types}{tests}")


# --- runs without a match --------------------------------------------------------------------------------------------


def no_match_lines(query: Query, plan: Plan, analysis: Analysis) -> Iterator[str]:
    """How far the events of a run without matches got."""
    counters, roles = analysis.counters, query.roles
    yield f"no match: {counters['events']:,} events, {counters['dropped_by_mask']:,} fit no variable"
    has_choice = any(isinstance(node, pt.Disj) for node in pt.walk(query.pattern))
    impossible = False
    for step in plan.steps:
        counts = analysis.variables[step.var]
        is_missing = not (counts.passed or step.negated or step.low == 0 or has_choice)
        impossible = impossible or is_missing
        passed = f"{counts.passed:,} of {counts.of_type:,} events pass its conditions"
        reached = passed if counts.of_type else "no event of this type"
        cut = ": nothing can match" if is_missing else ""
        yield f"  {step.var} ({role_text(roles[step.var])}): {reached}{cut}"
    if impossible:
        return
    for operator, made in analysis.operators.items():
        if made.tried is not None:
            yield f"  {operator}: {made.made:,} of {made.tried:,} combinations pass"
    tested = f"{counters['predicates']:,} tests of conditions between events"
    since = " since the last change of the plan" if analysis.has_switched else ""
    partial = counters["partial_matches"]
    stored = f"{partial:,} partial {'match' if partial == 1 else 'matches'}"
    if any(step.negated for step in plan.steps):
        stored += " and negated events"
    yield f"  {stored}, {tested}{since}; none is complete"
    if causes := list(_causes(query, plan, analysis)):
        yield f"  possible causes: {'; '.join(causes)}"


def _causes(query: Query, plan: Plan, analysis: Analysis) -> Iterator[str]:
    """The parts of a query that can end a partial match."""
    if any(isinstance(node, pt.Seq) for node in pt.walk(query.pattern)):
        yield "the order of the events"
        if analysis.shares_times:
            yield "equal times of events, none of which is before another"
    if query.window is not None:
        yield f"the window of {query.window}"
    if query.strategy is not Strategy.ANY_MATCH:
        yield "the selection strategy"
    for condition in query.where:
        names = variables(condition)
        if len(names) != 1 or any(query.roles[var].binds_many for var in names):
            yield to_text(condition)
    yield from (
        f"an event of {step.var}" for step in plan.steps if step.negated and analysis.variables[step.var].passed
    )


def role_text(role: Role) -> str:
    event_class = role.event_class
    kind = " or ".join(event_class.types) or ("the type of that name, or any" if event_class.by_name else "any event")
    many = f", {_times(role.kleene)}" if role.kleene is not None else ", repeated" if role.binds_many else ""
    return kind + many + (", must not occur" if role.negated else "")


def _times(kleene: Kleene) -> str:
    if kleene.high is None:
        return f"{kleene.low} or more"
    return str(kleene.low) if kleene.low == kleene.high else f"{kleene.low} to {kleene.high}"
