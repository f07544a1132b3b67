"""A deployment as data: the operators of many queries, each named by its content, and the output of each query.

Queries whose operators have the same content are one operator, whatever their names, variables, RETURN and LIMIT. The
operators of the queries that others use are nodes of `graph.py`, which are named by content too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from cepheid import expr as ex
from cepheid.codegen.columns import schema_types
from cepheid.content import content_hash
from cepheid.deploy.families import VERSION, Rule, Shape, family_of, later
from cepheid.deploy.family_layout import Families
from cepheid.deploy.templates import (
    Fragment,
    Parts,
    Skeleton,
    Template,
    in_order,
    parts_of,
    skeleton_of,
    with_conditions,
    with_sentinels,
    without_fragments,
)
from cepheid.engine.event_types import require_event_types
from cepheid.engine.layout import column_names
from cepheid.engine.prepare import Prepared, PreparedNode, RunOptions, bound_query, prepare, shown_only
from cepheid.engine.query_text import require_settled_classes
from cepheid.errors import CepheidError, InputProblem, shown
from cepheid.events import Clock
from cepheid.expr import Aggregate, Attr, Compare, Const, Expr, OccursWithin, Whole
from cepheid.io.event_columns import readable_schema
from cepheid.io.rows import ROW
from cepheid.io.source import SourceDescription, TableSource
from cepheid.kernels.family.event_bits import WORD
from cepheid.lang import AUTO, parse, to_text
from cepheid.limits import LIMITS, NO_LIMITS, Limits
from cepheid.optimize.lower import lowered_query
from cepheid.pattern import EventClass, Query, map_classes, queries_of, walk
from cepheid.runtime.kernel import Array
from cepheid.types import INTEGER, Type

QUERY = "query"
"""The column of the output that names the query of a match."""


class Output(NamedTuple):
    """The queries that show the matches of an operator in the same way."""

    prepared: Prepared
    """Its query has the variables, the RETURN and the LIMIT of these queries."""
    names: tuple[str, ...]


class Operator(NamedTuple):
    """A query that runs once for all its outputs. `name` is a hash of its content."""

    name: str
    prepared: Prepared
    outputs: tuple[Output, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The queries that it answers."""
        return tuple(name for output in self.outputs for name in output.names)

    @property
    def feeding(self) -> dict[str, PreparedNode]:
        """The queries that feed it by their names, each after those that it uses."""
        graph = self.prepared.graph
        return {} if graph is None else {node.name: node for node in graph.nodes}


@dataclass(frozen=True, slots=True)
class FamilyGroup:
    """The families of one key, and the output of their rules. `answers` has for each output the number of the query
    (in its names) that a rule answers, or -1; equal queries take several lines."""

    families: Families
    members: tuple[tuple[Shape, tuple[Rule, ...]], ...]
    """Each family with its rules."""
    outputs: tuple[Output, ...]
    answers: tuple[tuple[Array, ...], ...]
    slot: int = 0
    """Where those without a key run."""
    limits: Limits = NO_LIMITS

    @property
    def shapes(self) -> list[tuple[Shape, int]]:
        """Each family with the number of its rules."""
        return [(shape, len(rules)) for shape, rules in self.members]

    def queries_of(self, rule: int) -> list[str]:
        """The queries that a rule answers."""
        of = zip(self.outputs, self.answers, strict=True)
        return [output.names[line[rule]] for output, lines in of for line in lines if line[rule] >= 0]

    def rule_names(self) -> Array:
        """A hash of the content of each rule, by its number; 0 for a number that is not used."""
        names = np.zeros(self.families.rules, np.int64)
        for (shape, rules), (*_, first) in zip(self.members, self.families.layout.tolist(), strict=True):
            for number, rule in enumerate(rules):
                names[first + number] = int.from_bytes(content_hash(shape, rule), "little", signed=True) or 1
        return names


class United(NamedTuple):
    """Operators whose trees are one plan, in which equal joins and buffers are one (`deploy/unions.py`)."""

    prepared: Prepared
    """The union. Its matches begin with the number of the operator."""
    operators: tuple[Operator, ...]
    cost_apart: float
    """The nanoseconds for each event that the operators are expected to take apart; NaN without statistics."""


class Common(NamedTuple):
    """Operators over other queries that use equal ones, each of which is evaluated once (`deploy/graphs.py`)."""

    fed: tuple[Operator, ...]
    """They read the events that the inner queries derive."""
    shown: Mapping[str, Operator]
    """By the name of an inner query, the operator whose matches are those of this query."""

    @property
    def operators(self) -> tuple[Operator, ...]:
        return (*self.fed, *self.shown.values())

    @property
    def inner(self) -> dict[str, PreparedNode]:
        """The inner queries by their names, each after those that it uses."""
        return {name: node for operator in self.fed for name, node in operator.feeding.items()}


@dataclass(frozen=True, slots=True)
class Deployment:
    """The operators of many queries over one input."""

    names: tuple[str, ...]
    operators: tuple[Operator, ...]
    groups: tuple[FamilyGroup, ...] = ()
    alone: Mapping[str, str] = field(default_factory=dict)
    """The queries that belong to no family, each with the reason."""
    refused: Mapping[str, CepheidError] = field(default_factory=dict)
    """The queries that cannot run, each with the reason."""
    unions: tuple[United, ...] = ()
    """The operators that run together."""
    apart: Mapping[str, str] = field(default_factory=dict)
    """The operators that do not, by their name, each with the reason."""
    common: tuple[Common, ...] = ()
    """The operators that have inner queries in common."""

    @property
    def single_operators(self) -> tuple[Operator, ...]:
        """The operators that run by themselves."""
        united = {operator.name for union in self.unions for operator in union.operators}
        together = united.union(operator.name for common in self.common for operator in common.operators)
        return tuple(operator for operator in self.operators if operator.name not in together)


@dataclass(slots=True)
class Written:
    """A query as the user gives it."""

    name: str
    source: str | Query
    dialect: str = AUTO
    since: int = 0
    """The version of a deployment that it was added with: events that arrived before are not seen by it."""
    slot: int | None = None
    """Where it runs in a stream if it has no key; None: it is not placed yet."""
    parsed: Query | None = None
    uses: tuple[str, ...] = ()
    """The other queries that it uses as event types: inputs of `parsed`, which the text does not say."""
    _parts: list[Parts | None] = field(default_factory=list, compare=False, repr=False)
    """The parts of the text, once they are known."""

    @property
    def query(self) -> Query:
        """Parsed on first use: texts that differ in literals only are not all parsed."""
        if self.parsed is None:
            text = self.source
            self.parsed = parse(text, self.dialect, source=self.name) if isinstance(text, str) else text
        return self.parsed

    @property
    def text(self) -> str:
        return self.source if isinstance(self.source, str) else to_text(self.source)

    @property
    def parts(self) -> Parts | None:
        if not isinstance(self.source, str) or self.uses:
            return None
        if not self._parts:
            self._parts.append(parts_of(self.source))
        return self._parts[0]

    @property
    def core(self) -> str:
        """Equal for texts whose cores differ in their literals only: they use the same event types."""
        parts = self.parts
        return self.name if parts is None else f"\0{skeleton_of(parts.core).text}"


def representatives(queries: Mapping[str, Written]) -> Iterator[Query]:
    """A query for each set of texts whose cores differ in their literals only, parsed as it is asked for. Those that
    cannot be parsed are left out."""
    found: set[str] = set()
    for written in queries.values():
        core = written.core
        if core not in found:
            with suppress(CepheidError):
                yield written.query
                found.add(core)


class _Member(NamedTuple):
    """A query of a family. Those with the same `columns` show their matches in the same way."""

    written: Written
    columns: str
    shape: Shape
    rule: Rule


def deploy(
    queries: Mapping[str, Written],
    source: SourceDescription,
    options: RunOptions,
    *,
    sharing: bool = True,
    smallest: int = 2,
    slots: int = 1,
) -> Deployment:
    """Plans the queries: equal ones once, and those that are equal up to constants as families. Without `sharing` each
    query has operators of its own. `smallest` is the number of queries that families are worth it for: one, where
    others may be added later. Families without a key are divided over `slots`."""
    found: dict[str, list[tuple[str, Prepared]]] = {}
    members: list[_Member] = []
    alone: dict[str, str] = {}
    refused: dict[str, CepheidError] = {}
    planner = _Planner(source, options)
    planner.read(queries.values())
    feeding = _feeding(queries) if smallest > 1 else ()
    for name, written in queries.items():
        try:
            member = planner.member(written) if sharing else "sharing is off"
            member = "it feeds other queries" if name in feeding else member
            if isinstance(member, _Member):
                members.append(member)
                continue
            alone[name] = member
            prepared = planner.prepared(written)
        except CepheidError as error:
            if isinstance(written.source, str):
                error.within(written.source, name)
            refused[name] = error
            continue
        found.setdefault(operator_name(written, prepared) if sharing else name, []).append((name, prepared))
    members, refused_too = _within_operators(members, found, Limits.of(options.options))
    refused |= refused_too
    alone = {name: reason for name, reason in alone.items() if name not in refused_too}
    if 0 < len(members) < smallest:
        (member,) = members
        members, alone[member.written.name] = [], "no other query is like it"
        prepared = planner.prepared(member.written)
        found.setdefault(operator_name(member.written, prepared), []).append((member.written.name, prepared))
    made = [Operator(key, _operator(of), tuple(_outputs(of))) for key, of in found.items()]
    return Deployment(tuple(queries), tuple(made), planner.groups(members, slots), alone, refused)


def _feeding(queries: Mapping[str, Written]) -> set[str | None]:
    """The names of the queries that others use, which are evaluated once for these and for themselves."""
    return {one.name for w in queries.values() if w.uses for one in queries_of(w.query) if one is not w.query}


def _within_operators(
    members: Sequence[_Member], found: dict[str, list[tuple[str, Prepared]]], limits: Limits
) -> tuple[list[_Member], dict[str, CepheidError]]:
    """The rules, and the queries that are refused (and taken out of `found`): they have too many operators, or those
    before them have as many as a deployment may have. The operators of equal queries, and of a family, count once."""
    refused: dict[str, CepheidError] = {}
    known: dict[object, int] = {}

    def take(names: Sequence[str], key: object, count: int) -> bool:
        total = sum(known.values())
        if count > (limits.operators or math.inf):
            what, most, option = f"the query has {count:,} operators", limits.operators, "max_operators"
        elif key not in known and total + count > (limits.total_operators or math.inf):
            most, option = limits.total_operators, "max_total_operators"
            what = f"the queries before it have {total:,} operators together, and it has {count:,}"
        else:
            known[key] = count
            return True
        refused.update(
            {name: InputProblem(what, expected=f"at most {most:,}, by the option `{option}`") for name in names}
        )
        return False

    kept = [m for m in members if take([m.written.name], (m.shape.key, m.shape), max(m.shape.length - 1, 1))]
    for key, of in [*found.items()]:
        if not take([name for name, _ in of], key, operators_of(of[0][1].written)):
            del found[key]
    return kept, refused


def operators_of(query: Query) -> int:
    """The number of the operators of a query and of those that feed it, at least one for each."""
    patterns = [one.pattern for one in queries_of(query)]
    return sum(max(sum(not isinstance(node, EventClass) for node in walk(pattern)), 1) for pattern in patterns)


@dataclass(slots=True)
class _Planner:
    """Plans the queries of a deployment over one source."""

    source: SourceDescription
    options: RunOptions
    types: Mapping[str, Type] = field(init=False)
    lacks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    templates: dict[str, tuple[Template, str] | None] = field(default_factory=dict)
    """By the core without literals: the template, and the columns that its queries show."""
    fragments: dict[tuple[str, str], Fragment] = field(default_factory=dict)
    """By the core and the condition, without literals."""
    texts: dict[str, dict[str, str]] = field(default_factory=dict)
    """By the core: the conditions that queries have with it, each by its text without literals."""

    def __post_init__(self) -> None:
        self.types = {**schema_types(readable_schema(self.source.schema)), VERSION: INTEGER}

    def read(self, queries: Iterable[Written]) -> None:
        """Collects the conditions of each core, so that they are analysed together."""
        for parts in (written.parts for written in queries):
            if parts is not None:
                of = self.texts.setdefault(skeleton_of(parts.core).text, {})
                of.update((skeleton_of(text).text, text) for text in parts.fragments)

    def prepared(self, written: Written) -> Prepared:
        if self.source.attributes is None:
            require_settled_classes(written.query, "a bounded input (a table, a file)")
        prepared = prepare(written.query, self.source, self.options)
        require_event_types(prepared.written, self.source)
        require_free_column(written.name, prepared.written)
        return prepared

    def member(self, written: Written) -> _Member | str:
        """The query as one of a family, or why it is none."""
        member = self._member(written)
        if isinstance(member, str) or not written.since:
            return member
        return member._replace(rule=later(member.shape, member.rule, written.since))

    def _member(self, written: Written) -> _Member | str:
        parts = written.parts
        if parts is None:
            return self._analysed(written)
        core = skeleton_of(parts.core)
        if core.text not in self.templates:
            self.templates[core.text] = None
            own = {skeleton_of(text).text: text for text in parts.fragments}
            every = {**self.texts.get(core.text, {}), **own}
            if not self._learn(written, parts, core, [*every.values()]) and every != own:
                self._learn(written, parts, core, parts.fragments)
        assembled = self._assembled(written, parts, core)
        if assembled is None and self.templates[core.text] is not None:
            self._learn(written, parts, core, parts.fragments)
            assembled = self._assembled(written, parts, core)
        return self._analysed(written) if assembled is None else assembled

    def _assembled(self, written: Written, parts: Parts, core: Skeleton) -> _Member | None:
        """The query by the template of its core and its fragments; None if one of them is not known."""
        known = self.templates[core.text]
        if known is None:
            return None
        template, columns = known
        added = []
        for skeleton in map(skeleton_of, parts.fragments):
            fragment = self.fragments.get((core.text, skeleton.text))
            if fragment is None:
                return None
            added.append((fragment.test, fragment.with_literal(skeleton.literals[0])))
        shape, rule = template.member(core.literals)
        return _Member(written, columns, shape, with_conditions(rule, added))

    def _learn(self, written: Written, parts: Parts, core: Skeleton, texts: Sequence[str]) -> bool:
        """The template of a core and some conditions, by one analysis of the text with sentinels; returns whether it is
        found."""
        text, sentinels = with_sentinels(parts.core)
        probes = [with_sentinels(each, len(sentinels) + number) for number, each in enumerate(texts)]
        cut = parts_of(text)
        if cut is None or cut.fragments:
            return False
        try:
            query = parse(cut.with_fragments([probe for probe, _ in probes]), written.dialect)
            found = self._bound_member(Written(written.name, query))
            if isinstance(found, str):
                return False
            analysed, bound, clock = found
            rest, fragments = without_fragments(analysed.rule, [of[0] for _, of in probes])
            template = Template.of(bound, analysed.shape, rest, sentinels, clock)
        except CepheidError:
            return False
        if template is None or fragments is None:
            return False
        self.templates[core.text] = template, analysed.columns
        for each, fragment in zip(texts, fragments, strict=True):
            self.fragments[core.text, skeleton_of(each).text] = fragment
        return True

    def _analysed(self, written: Written) -> _Member | str:
        found = self._bound_member(written)
        return found if isinstance(found, str) else found[0]

    def _bound_member(self, written: Written) -> tuple[_Member, Query, Clock] | str:
        """The query as one of a family, bound to the source, and the clock of its times; or why it is none."""
        options, query = self.options, written.query
        if options.evaluator is not None or options.options.keys() - {*LIMITS} or options.adaptive is not None:
            return "an evaluator or an option is forced"
        if self.source.attributes is None:
            require_settled_classes(query, "a bounded input (a table, a file)")
        if ROW in self.source.schema.names and not isinstance(self.source, TableSource):
            return "the events of the stream are read row by row"
        bound, schema, clock = bound_query(query, self.source, options)
        if bound.inputs:
            return "it uses other queries"
        has_durations = self.source.columns.start is not None
        lowered = lowered_query(bound, self.types, schema, clock, options.options, has_durations)
        family = family_of(lowered)
        if isinstance(family, str):
            return family
        require_event_types(bound, self.source)
        require_free_column(written.name, bound)
        self.lacks.update(lowered.lacks)
        shape, rule = family
        return _Member(written, repr((bound.roles, bound.output)), shape, in_order(rule)), bound, clock

    def groups(self, members: Sequence[_Member], slots: int) -> tuple[FamilyGroup, ...]:
        """The families of each key; those without a key by their slot."""
        _place([member.written for member in members if member.shape.key is None], slots)
        by_key: dict[tuple[str | None, int], list[_Member]] = {}
        for member in members:
            slot = (member.written.slot or 0) if member.shape.key is None else 0
            by_key.setdefault((member.shape.key, slot), []).append(member)
        return tuple(self._group(of, slot) for (_, slot), of in by_key.items())

    def _group(self, members: Sequence[_Member], slot: int) -> FamilyGroup:
        rules: dict[Shape, dict[Rule, list[_Member]]] = {}
        for member in members:
            rules.setdefault(member.shape, {}).setdefault(member.rule, []).append(member)
        # Rules with like tests of their first event lie side by side, so that most words of an event's bits are 0.
        ordered = {shape: dict(sorted(of.items(), key=lambda item: _alike(item[0]))) for shape, of in rules.items()}
        known = self.source.attributes
        is_complete = known is not None and self.source.count is not None
        families = Families.of(
            [(shape, list(of)) for shape, of in ordered.items()],
            self.types,
            self.lacks,
            frozenset(known) if known is not None and is_complete else None,
        )
        numbers: dict[str, int] = {}
        before = 0
        for of in ordered.values():
            for number, equal in enumerate(of.values()):
                numbers.update({member.written.name: before + number for member in equal})
            before += families.words(len(of)) * WORD
        outputs: dict[str, list[_Member]] = {}
        for member in members:
            outputs.setdefault(member.columns, []).append(member)
        shown = tuple(
            Output(shown_only(of[0].written.query, self.source, self.options), tuple(m.written.name for m in of))
            for of in outputs.values()
        )
        answers = tuple(_answers([numbers[m.written.name] for m in of], before) for of in outputs.values())
        rules_of = tuple((shape, tuple(of)) for shape, of in ordered.items())
        return FamilyGroup(families, rules_of, shown, answers, slot, Limits.of(self.options.options))


def _place(rules: Sequence[Written], slots: int) -> None:
    """Places the rules that are not placed yet: each slot gets a word of rules, which cost as much as one, in turn."""
    placed = Counter(written.slot for written in rules if written.slot is not None)
    for written in rules:
        if written.slot is None:
            written.slot = min(range(slots), key=lambda slot: (placed[slot] // WORD, slot))
            placed[written.slot] += 1


def _alike(rule: Rule) -> tuple[list[str], list[tuple[str, float]], list[list[str]]]:
    """The order of rules: by the strings and numbers that their first events are compared with, then by the strings of
    the others."""
    numbers: list[tuple[str, float]] = []
    for condition in rule.tests[0].conditions:
        match condition:
            case Compare(left=Attr(name=name), right=Const(value=int() | float() as value)):
                numbers.append((f"{name} {condition.op}", float(value)))
    strings = [
        [repr(c) for c in test.conditions if any(isinstance(n, Const) and isinstance(n.value, str) for n in ex.walk(c))]
        for test in rule.tests
    ]
    return strings[0], numbers, strings[1:]


def _answers(rules: Sequence[int], count: int) -> tuple[Array, ...]:
    """The number of the query that each rule answers, in as many lines as equal queries need."""
    lines: list[Array] = []
    for number, rule in enumerate(rules):
        line = next((line for line in lines if line[rule] < 0), None)
        if line is None:
            line = np.full(count, -1, np.int64)
            lines.append(line)
        line[rule] = number
    return tuple(lines)


def require_free_column(name: str, query: Query) -> None:
    """Refuses a query with a column of the name that the output needs."""
    if QUERY in column_names(query):
        raise InputProblem(
            f"the query `{shown(name)}` has a column `{QUERY}`, the column that names the query of a match",
            hint="rename the column or the variable",
        )


def _outputs(queries: list[tuple[str, Prepared]]) -> list[Output]:
    """The outputs of queries over one operator. Queries that show the same columns in the same order are one."""
    groups: dict[str, list[tuple[str, Prepared]]] = {}
    for name, prepared in queries:
        groups.setdefault(repr((prepared.query.roles, prepared.query.output, prepared.query.limit)), []).append(
            (name, prepared)
        )
    return [Output(group[0][1], tuple(name for name, _ in group)) for group in groups.values()]


def _operator(queries: list[tuple[str, Prepared]]) -> Prepared:
    """The one of equal queries whose matches contain those of the others: LIMIT may stop a kernel early."""
    return max((prepared for _, prepared in queries), key=lambda prepared: _limit(prepared.query))


def _limit(query: Query) -> float:
    return math.inf if query.limit is None else query.limit


# --- content ----------------------------------------------------------------------------------------------------------


def operator_name(written: Written, prepared: Prepared) -> str:
    """The name of the operator of a query. One that was added later than an equal one has another."""
    return content_name(prepared) + (f"-{written.since}" if written.since else "")


def content_name(prepared: Prepared) -> str:
    """A hash of what decides the matches of a query: neither names nor, except in a summary, its output."""
    query = prepared.written
    output = query.output if query.summarizes else None
    limit = query.limit if query.summarizes else None
    content = renamed(replace(query, output=output, limit=limit, name=None))
    return content_hash(content, query.summarizes).hex()


def renamed(query: Query) -> Query:
    """The query with its variables named by their order in the pattern."""
    names = {var: f"v{number}" for number, var in enumerate(query.roles)}

    def change(node: Expr) -> Expr:
        match node:
            case Attr(var=var) | Whole(var=var) | Aggregate(var=var) if var in names:
                return replace(node, var=names[var])
            case OccursWithin():
                return replace(node, first=names[node.first], second=names[node.second])
            case _:
                return node

    pattern = map_classes(query.pattern, lambda c: replace(c, var=names[c.var]))
    where = tuple(ex.transform(predicate, change) for predicate in query.where)
    output = query.output and tuple(c._replace(expr=ex.transform(c.expr, change)) for c in query.output)
    return replace(query, pattern=pattern, where=where, output=output)
