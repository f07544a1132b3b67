"""Random queries in the five languages, and random small streams, to hold evaluators to the oracle.

Queries are drawn as text, so that what a test sees fail can be read and run. Every one of them parses and fits every
stream drawn here: types and attributes come from one small world, in which domains are small, so that equalities hold
often, ties are common, values may be null, and a type may lack an attribute altogether.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from cepheid.binding import bind
from cepheid.errors import PatternProblem
from cepheid.events import Event, Schema, complete, in_order, primitive
from cepheid.lang import parse
from cepheid.pattern import Query
from cepheid.semantics import Match
from cepheid.types import INTEGER, STRING

TYPES = ("A", "B", "C")
NUMBERS = ("v", "w", "id")
STRINGS = ("s",)
IRRELEVANT = "X"
"""A type that no query names, though a class over the whole stream may bind its events."""

Draw = Callable[[st.SearchStrategy[Any]], Any]


# --- streams ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stream:
    """Events in order, complete, and the schema they fit. It prints as the lines of a golden case."""

    events: list[Event]
    schema: Schema

    def __repr__(self) -> str:
        rows = []
        for event in self.events:
            attributes = (f"{k}={v!r}" for k, v in event.row.items() if k not in ("type", "ts"))
            rows.append(" ".join([event.type, str(event.start), *attributes]))
        return "\n" + "\n".join(rows) + f"\n(types: { {name: sorted(a) for name, a in self.schema.types.items()} })"


def stream_of(rows: Iterable[tuple[str, int, dict[str, Any]]], schema: Schema) -> Stream:
    arrived = [
        primitive(kind, time, i, {"type": kind, "ts": time, **attributes})
        for i, (kind, time, attributes) in enumerate(rows)
    ]
    return Stream(complete(in_order(arrived), schema), schema)


_EVERYTHING = {"type": STRING, "ts": INTEGER, **dict.fromkeys(NUMBERS, INTEGER), **dict.fromkeys(STRINGS, STRING)}
WHOLE = Schema(dict.fromkeys((*TYPES, IRRELEVANT), _EVERYTHING))
"""Every type has every attribute."""
_LACKING: Sequence[dict[str, set[str]]] = (
    {},
    {},
    {"B": {"v"}},
    {"C": {"id"}},
    {"B": {"s", "w"}, "C": {"v"}},
    {"X": {"id"}},
)
_DOMAINS: dict[str, Sequence[Any]] = {
    "id": (1, 2, 1, 2, 1, None),
    "v": (1, 2, 0, 3, 1, 2, 1.5, None),
    "w": (1, 2, 0, 3, None),
    "s": ("p", "q", "pq", None),
}
_COMBINATIONS = math.prod(map(len, _DOMAINS.values()))
_SCHEMAS = st.sampled_from(_LACKING).map(
    lambda lacking: Schema(
        {
            # Type A has every attribute, so that none is unknown; the others may lack some.
            name: {a: kind for a, kind in _EVERYTHING.items() if a not in lacking.get(name, ())}
            for name in (*TYPES, IRRELEVANT)
        }
    )
)
_KINDS = (*TYPES, *TYPES, IRRELEVANT)
_COUNTS = st.sampled_from((4, 5, 6, 7, 8, 8, 3, 2, 1, 0))


@st.composite
def streams(draw: Draw, max_events: int = 8, kinds: Sequence[str] = _KINDS, gap: int = 3) -> Stream:
    """Up to `max_events` events, `gap` at most apart; a gap of 0 is a tie."""
    schema = draw(_SCHEMAS)
    rows = []
    time = 0
    # A draw is what costs, so there are two for each event, and none for each attribute.
    for _ in range(min(draw(_COUNTS), max_events)):
        code = draw(st.integers(0, len(kinds) * (gap + 1) - 1))
        time += code // len(kinds)
        kind = kinds[code % len(kinds)]
        rows.append((kind, time, _attributes(schema.types[kind], draw(st.integers(0, _COMBINATIONS - 1)))))
    return stream_of(rows, schema)


def _attributes(of_type: Iterable[str], code: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, domain in _DOMAINS.items():
        code, index = divmod(code, len(domain))
        if name in of_type and not (domain[index] is None and code % 2):
            # A key that is not there and a null are the same for a type that has the attribute.
            values[name] = domain[index]
    return values


# --- conditions -------------------------------------------------------------------------------------------------------

_FEW = st.sampled_from((0, 1, 0, 1, 2))
_COMPARISONS = ("<=", ">=", "!=", "=", "<", ">")


@st.composite
def _number(draw: Draw, readers: Sequence[str]) -> str:
    """An arithmetic expression over `readers`, each of which is put before `.attribute`."""
    one = f"{draw(st.sampled_from(readers))}.{draw(st.sampled_from(NUMBERS))}"
    form = draw(st.integers(0, 9))
    if form < 6:
        return one
    other = f"{draw(st.sampled_from(readers))}.{draw(st.sampled_from(NUMBERS))}"
    return (f"{one} + {other}", f"{one} / {other}", f"abs({one} - {other})", f"50%*{one} - 1")[form - 6]


@st.composite
def condition(draw: Draw, readers: Sequence[str], others: Sequence[str] = (), depth: int = 1) -> str:
    """A condition that names at least one of `readers` in each of its alternatives, and maybe some of `others`."""
    form = draw(st.integers(0, 13 if depth else 10))
    if form <= 6:
        right = draw(st.one_of(st.integers(0, 3).map(str), _number([*readers, *others])))
        return f"{draw(_number(readers))} {draw(st.sampled_from(_COMPARISONS))} {right}"
    reader = draw(st.sampled_from(readers))
    if form == 7:
        return f"{reader}.s {draw(st.sampled_from(('=', '!=', '<')))} {draw(st.sampled_from(_strings(others)))}"
    if form == 8:
        tests = ("LIKE 'p%'", "IN ('p', 'q')", "CONTAINS 'q'", "IS NULL")
        return f"{reader}.s {draw(st.sampled_from(tests))}"
    if form == 9:
        return f"{reader}.v IS NULL"
    if form == 10:
        return f"{reader}.v % 2 = {draw(st.integers(0, 1))}"
    parts = [draw(condition(readers, others, 0)) for _ in range(1 if form == 13 else 2)]
    return f"NOT ({parts[0]})" if form == 13 else f"({' OR '.join(parts)})" if form == 12 else " AND ".join(parts)


def _strings(others: Sequence[str]) -> list[str]:
    return ["'p'", "'pq'", *(f"{other}.s" for other in others)]


@st.composite
def _equivalences(draw: Draw) -> list[str]:
    return list(draw(st.sampled_from(([], [], [], ["[id]"], ["[id]"], ["[id]"], ["[id, v]"], ["[id = 1]"]))))


@st.composite
def _window(draw: Draw, required: bool = False, events: bool = True) -> str:
    if not required and draw(st.integers(0, 3)) == 0:
        return ""
    unit = draw(st.sampled_from(("", "", " units", " events"))) if events else ""
    return f"{draw(st.sampled_from((5, 3, 8, 2, 6, 4, 10, 1, 0)))}{unit}"


def _where(word: str, conditions: Sequence[str]) -> list[str]:
    return [f"{word} {' AND '.join(conditions)}"] if conditions else []


# --- SASE -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Component:
    text: str
    var: str
    negated: bool = False
    kleene: bool = False


@st.composite
def _types(draw: Draw) -> str:
    if draw(st.integers(0, 4)) == 0:
        return f"ANY({', '.join(draw(st.permutations(TYPES))[:2])})"
    return str(draw(st.sampled_from(TYPES)))


@st.composite
def _components(draw: Draw, quantifiers: Sequence[str], most: int, negation: bool = True) -> list[_Component]:
    count = draw(st.integers(1, most))
    must_occur = draw(st.integers(0, count - 1))
    found = []
    for i in range(count):
        types, var = draw(_types()), f"x{i}"
        quantifier = draw(st.sampled_from(quantifiers))
        if negation and i != must_occur and draw(st.integers(0, 3)) == 0:
            found.append(_Component(f"!({types} {var})", var, negated=True))
        elif quantifier:
            found.append(_Component(f"{types}{quantifier} {var}[]", var, kleene=True))
        else:
            found.append(_Component(f"{types} {var}", var))
    return found


def _at_edge(components: Sequence[_Component]) -> bool:
    """Whether a negation may lead or trail: closures that may be empty do not bound it."""
    bounding = [c for c in components if c.negated or ("*" not in c.text and "{0," not in c.text)]
    return any(side.negated for side in (*bounding[:1], *bounding[-1:]))


@dataclass(frozen=True)
class Steps:
    """A sequence without closures, which three languages can say. Its window is one that counts `<=`."""

    components: Sequence[_Component]
    conditions: Sequence[str]
    window: int | None
    unit: str

    def sase(self) -> str:
        pattern = f"SEQ({', '.join(c.text for c in self.components)})"
        return "\n".join([f"EVENT {pattern}", *_where("WHERE", self.conditions), *self._within(1)])

    def sase_plus(self, strategy: str = "skip_till_any_match") -> str:
        pattern = f"SEQ({', '.join(c.text for c in self.components)})"
        return "\n".join(
            [f"PATTERN {pattern}", f"WHERE {strategy} {{ {' AND '.join(self.conditions)} }}", *self._within(0)]
        )

    def zstream(self) -> str:
        pattern = ";".join(c.text for c in self.components)
        return "\n".join([f"PATTERN {pattern}", *_where("WHERE", self.conditions), *self._within(0)])

    def _within(self, more: int) -> list[str]:
        return [] if self.window is None else [f"WITHIN {self.window + more}{self.unit}"]


@st.composite
def steps(draw: Draw, negation: bool = True, most: int = 4) -> Steps:
    components = draw(_components(("",), most, negation))
    positive = [c.var for c in components if not c.negated]
    negative = [c.var for c in components if c.negated]
    conditions = list(draw(_equivalences()))
    conditions += [draw(condition(positive)) for _ in range(draw(_FEW))]
    if negative and draw(st.booleans()):
        conditions.append(draw(condition([draw(st.sampled_from(negative))], positive)))
    window, _, unit = draw(_window(required=_at_edge(components))).partition(" ")
    return Steps(components, conditions, int(window) if window else None, f" {unit}" if unit else "")


def sase_queries(negation: bool = True) -> st.SearchStrategy[str]:
    return steps(negation).map(Steps.sase)


# --- SASE+ ------------------------------------------------------------------------------------------------------------

STRATEGIES = ("strict_contiguity", "partition_contiguity", "skip_till_next_match", "skip_till_any_match")
_QUANTIFIERS = ("", "", "", "+", "+", "*", "{2}", "{1,2}", "{0,2}", "{2,}")


@st.composite
def sase_plus_queries(
    draw: Draw, strategies: Sequence[str] = STRATEGIES, negation: bool = True, non_overlapping: bool = True
) -> str:
    components = draw(_components(_QUANTIFIERS, 3, negation))
    conditions = list(draw(_equivalences()))
    conditions += [draw(_run_condition(components)) for _ in range(draw(_FEW))]
    negative = [c.var for c in components if c.negated]
    if negative and draw(st.booleans()):
        conditions.append(draw(condition([draw(st.sampled_from(negative))], _readers(components))))
    strategy = draw(st.sampled_from(strategies))
    window = draw(_window(required=_at_edge(components)))
    lines = [f"PATTERN SEQ({', '.join(c.text for c in components)})"]
    lines.append(f"WHERE {strategy} {{ {' AND '.join(conditions)} }}")
    if window:
        lines.append(f"WITHIN {window}")
    if non_overlapping and draw(st.integers(0, 4)) == 0:
        lines.append("OUTPUT NON-OVERLAPPING")
    return "\n".join(lines)


def _readers(components: Iterable[_Component]) -> list[str]:
    """What a condition can read once the components are complete."""
    positive = [c for c in components if not c.negated]
    return [r for c in positive for r in ((f"{c.var}[1]", f"{c.var}[{c.var}.LEN]") if c.kleene else (c.var,))]


@st.composite
def _run_condition(draw: Draw, components: Sequence[_Component]) -> str:
    """A condition on positive components, for any of the edges."""
    positive = [c for c in components if not c.negated]
    chosen = draw(st.sampled_from(positive))
    before = _readers(positive[: positive.index(chosen)])
    var = chosen.var
    if not chosen.kleene:
        return str(draw(condition([var], before)))
    sign = draw(st.sampled_from(_COMPARISONS))
    fn = draw(st.sampled_from(("sum", "avg", "min", "max", "count")))
    match draw(st.integers(0, 6)):
        case 0:
            return str(draw(condition([f"{var}[1]"], before)))
        case 1:
            return str(draw(condition([f"{var}[i]"], [f"{var}[i-1]", f"{var}[1]", *before])))
        case 2:
            return f"{var}[i].v {sign} {var}[i-1].v"
        case 3:
            return f"{var}[i].v {sign} {fn}({var}[..i-1].v)"
        case 4:
            return f"{fn}({var}[].v) {sign} {draw(st.integers(0, 4))}"
        case 5:
            return f"{var}.LEN {sign} {draw(st.integers(1, 3))}"
        case _:
            return str(draw(condition([f"{var}[{var}.LEN]"], before)))


# --- ZStream ----------------------------------------------------------------------------------------------------------


class _Names:
    """Fresh variables, and what each is in the pattern."""

    def __init__(self) -> None:
        self.positive: list[str] = []
        self.negative: list[str] = []
        self.closures: list[str] = []
        self.used: set[str] = set()

    def take(self, wanted: str | None = None) -> str:
        name = wanted if wanted and wanted not in self.used else f"x{len(self.used)}"
        self.used.add(name)
        return name


@st.composite
def _class_text(draw: Draw, names: _Names, kind: list[str]) -> str:
    form = draw(st.integers(0, 9))
    types = draw(_types())
    if form == 0 or (form <= 3 and types in names.used):
        name = names.take("T")
        text = name if name == "T" else f"ANY(*) {name}"
    elif form <= 3 and types in TYPES:
        text = name = names.take(types)
    else:
        name = names.take()
        text = f"{types} {name}"
    kind.append(name)
    return text


@st.composite
def _zstream_pattern(draw: Draw, names: _Names, depth: int) -> str:
    form = draw(st.integers(0, 9)) if depth else 0
    if form < 2:
        return str(draw(_class_text(names, names.positive)))
    if form == 2:
        return f"({draw(_zstream_pattern(names, depth - 1))} | {draw(_zstream_pattern(names, depth - 1))})"
    if form == 3:
        negation = f" & !{draw(_class_text(names, names.negative))}" if draw(st.integers(0, 3)) == 0 else ""
        return f"({draw(_zstream_pattern(names, depth - 1))} & {draw(_zstream_pattern(names, depth - 1))}{negation})"
    items: list[str] = []
    after_closure = False
    must_occur = draw(st.integers(0, 2))
    for i in range(draw(st.integers(2, 3))):
        what = draw(st.integers(0, 5))
        if what == 0 and i != must_occur:
            several = draw(st.integers(0, 3)) == 0
            negated = [draw(_class_text(names, names.negative)) for _ in range(2 if several else 1)]
            items.append(f"!({draw(st.sampled_from('|;&')).join(negated)})")
        elif what <= 2 and not after_closure:
            quantifier = draw(st.sampled_from(("+", "*", "^2", "^1", "{2,}")))
            items.append(f"{draw(_class_text(names, names.closures))}{quantifier}")
            after_closure = True
        else:
            items.append(draw(_zstream_pattern(names, depth - 1)))
            after_closure = False
    return f"({'; '.join(items)})"


@st.composite
def _zstream_text(draw: Draw) -> str:
    names = _Names()
    pattern = draw(_zstream_pattern(names, 2))
    single = names.positive
    conditions = list(draw(_equivalences()))
    if single:
        conditions += [draw(condition(single)) for _ in range(draw(_FEW))]
    for closure in names.closures:
        sign = draw(st.sampled_from(_COMPARISONS))
        match draw(st.integers(0, 3)):
            case 0:
                conditions.append(draw(condition([closure], single)))
            case 1:
                fn = draw(st.sampled_from(("sum", "avg", "min", "max", "count", "first", "last")))
                conditions.append(f"{fn}({closure}.v) {sign} {draw(st.integers(0, 4))}")
            case 2:
                conditions.append(f"count({closure}) {sign} {draw(st.integers(0, 3))}")
    if names.negative and draw(st.booleans()):
        conditions.append(draw(condition([draw(st.sampled_from(names.negative))], single)))
    window = draw(_window(required=bool(names.negative)))
    lines = [f"PATTERN {pattern}", *_where("WHERE", conditions), *([f"WITHIN {window}"] if window else [])]
    return "\n".join(lines)


def is_valid(text: str) -> bool:
    """False where parts meet in ways that mean nothing (closures side by side, only negations): those are not drawn."""
    try:
        parse(text)
    except PatternProblem:
        return False
    return True


def zstream_queries() -> st.SearchStrategy[str]:
    return _zstream_text().filter(is_valid)


# --- EQL --------------------------------------------------------------------------------------------------------------


@st.composite
def _eql_pattern(draw: Draw, names: _Names, depth: int, negated: bool = False) -> str:
    form = draw(st.integers(0, 9)) if depth else 0
    if form < 3:
        name = names.take()
        (names.negative if negated else names.positive).append(name)
        return f"{draw(st.sampled_from(TYPES))} {name}"

    def part(cancelling: bool = False) -> str:
        return str(draw(_eql_pattern(names, depth - 1, negated or cancelling)))

    match form:
        case 3 | 4 | 5:
            return f"({part()}; {part()})"
        case 6:
            return f"({part()} | {part()})"
        case 7:
            known = len(names.positive)
            text = f"{part()}+"
            names.closures.extend(names.positive[known:])
            return text
        case 8:
            return f"({part()} \\ {part(cancelling=True)})"
        case _:
            return f"({part()} @ {draw(st.integers(0, 4))})"


@st.composite
def eql_queries(draw: Draw) -> str:
    names = _Names()
    pattern = draw(_eql_pattern(names, 2))
    everyone = [*names.positive, *names.negative]
    conditions = []
    for _ in range(draw(_FEW)):
        first, second = draw(st.sampled_from(everyone)), draw(st.sampled_from(names.positive))
        sign = draw(st.sampled_from(_COMPARISONS))
        match draw(st.integers(0, 5)):
            case 0:
                text = f"{first}.v {sign} PREV({second}.v)"
            case 1:
                text = f"ALL({second}.v) {sign} {first}.v"
            case 2:
                text = f"({first}, {second}) OCCURS WITHIN {draw(st.integers(0, 6))}"
            case _:
                text = draw(condition([first], [second]))
        conditions.append(f"FILTER({text})" if draw(st.integers(0, 2)) == 0 else text)
    return "\n".join(["SELECT *", f"FROM {pattern}", *([f"WHERE {', '.join(conditions)}"] if conditions else [])])


# --- CED --------------------------------------------------------------------------------------------------------------


@st.composite
def _ced_event(draw: Draw, names: _Names, listed: dict[str, str], types: Sequence[str], depth: int) -> str:
    form = draw(st.integers(0, 9)) if depth else 0

    def one(kind: list[str]) -> str:
        name = names.take()
        listed[name] = draw(st.sampled_from(types))
        kind.append(name)
        return name

    if form < 2:
        return one(names.positive)
    operator = "or" if form == 2 else draw(st.sampled_from(("and", "seq", "seq")))
    operands = [draw(_ced_event(names, listed, types, depth - 1)) for _ in range(draw(st.integers(1, 2)))]
    if operator != "or" and draw(st.integers(0, 1)):
        negated = one(names.negative)
        if draw(st.integers(0, 2)) == 0:
            inner, length = draw(st.sampled_from(("and", "seq"))), draw(_window(events=False))
            negated = f"{inner}({negated}, {one(names.negative)}{'; ' if length else ''}{length})"
        operands.insert(draw(st.integers(0, len(operands))), f"!{negated}")
    if len(operands) == 1:
        operands.append(draw(_ced_event(names, listed, types, depth - 1)))
    has_negation = any(operand.startswith("!") for operand in operands)
    window = "" if operator == "or" else draw(_window(required=has_negation, events=False))
    return f"{operator}({', '.join(operands)}{'; ' if window else ''}{window})"


@st.composite
def _complex(draw: Draw, name: str, types: Sequence[str]) -> str:
    names, listed = _Names(), dict[str, str]()
    event = draw(_ced_event(names, listed, types, 2))
    numeric = [var for var, of in listed.items() if of in TYPES]
    positive = [var for var in names.positive if var in numeric]
    conditions = [draw(condition(positive)) for _ in range(draw(_FEW))] if positive else []
    negative = [var for var in names.negative if var in numeric]
    if negative and positive and draw(st.booleans()):
        conditions.append(draw(condition([draw(st.sampled_from(negative))], positive)))
    for one, other in itertools.pairwise(negative):
        if f"({one}, {other}" in event and draw(st.booleans()):  # two operands of one negated operator
            conditions.append(draw(condition([one], [other])))
    on = ", ".join(f"{of} as {var}" for var, of in listed.items())
    return "\n".join([f"complex {name} on {on}", f"event {event}", *_where("where", conditions)])


@st.composite
def ced_queries(draw: Draw, by_name: bool = True) -> str:
    """A complex event, and maybe another that uses it by name."""
    if not by_name or draw(st.integers(0, 2)):
        return str(draw(_complex("Q", TYPES)))
    return f"{draw(_complex('P', TYPES))}\n{draw(_complex('Q', ('P', 'A', 'B')))}"


# --- all --------------------------------------------------------------------------------------------------------------

QUERIES: dict[str, Callable[[], st.SearchStrategy[str]]] = {
    "sase": sase_queries,
    "sase+": sase_plus_queries,
    "zstream": zstream_queries,
    "eql": eql_queries,
    "ced": ced_queries,
}


def queries() -> st.SearchStrategy[str]:
    return st.one_of(*(make() for make in QUERIES.values()))


def bound(text: str, stream: Stream) -> Query:
    return bind(parse(text), stream.schema)


def match_key(match: Match) -> tuple[Any, ...]:
    """A match as a value: what it binds, by type, interval and position, and what it returns."""

    def key(binding: Any) -> Any:
        if isinstance(binding, Event):
            return binding.type, binding.start, binding.end, binding.position
        return tuple(key(item) for item in binding) if isinstance(binding, tuple) else binding

    bindings = tuple(sorted((var, key(binding)) for var, binding in match.bindings.items() if binding is not None))
    return bindings, match.start, match.end, repr(match.columns)


def multiset(matches: Iterable[Match]) -> Counter[tuple[Any, ...]]:
    return Counter(match_key(match) for match in matches)
