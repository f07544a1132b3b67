"""Laws that the oracle must obey whatever the query, and proof that the tests notice when it is broken on purpose."""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from types import ModuleType
from typing import Any

import pytest
from examples import examples
from golden_cases import Case, all_cases, differences, lines
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from strategies import (
    IRRELEVANT,
    STRATEGIES,
    TYPES,
    WHOLE,
    Steps,
    Stream,
    bound,
    ced_queries,
    condition,
    eql_queries,
    multiset,
    sase_plus_queries,
    sase_queries,
    steps,
    stream_of,
    streams,
    zstream_queries,
)

from cepheid import evaluation
from cepheid.events import Event
from cepheid.lang import sase, sase_plus, zstream
from cepheid.semantics import Match, combinations, common, evaluate, intervals, runs, successors
from cepheid.semantics.common import Context
from cepheid.values import compare

law = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
untied = streams(kinds=(*TYPES, IRRELEVANT), gap=2).map(lambda stream: spread(stream))


def found(text: str, stream: Stream) -> Counter[Any]:
    return multiset(evaluate(bound(text, stream), stream.events))


def spread(stream: Stream) -> Stream:
    """The stream without ties."""
    rows = [(e.type, e.start + i, _attributes(e)) for i, e in enumerate(stream.events)]
    return stream_of(rows, stream.schema)


def _attributes(event: Event) -> dict[str, Any]:
    return {name: value for name, value in event.row.items() if name not in ("type", "ts")}


# --- EQL: next and union (NEXT §3.2, §4.3) ----------------------------------------------------------------------------

_ONE = st.sampled_from(TYPES)


@st.composite
def _operands(draw: Callable[[st.SearchStrategy[Any]], Any]) -> list[str]:
    """Three or four patterns that bind one event each: a stream, or a union of two."""
    names = (f"x{i}" for i in itertools.count())
    one = [f"{draw(_ONE)} {next(names)}" for _ in range(draw(st.integers(3, 4)))]
    return [f"({text} | {draw(_ONE)} {next(names)})" if draw(st.integers(0, 3)) == 0 else text for text in one]


def groupings(operands: list[str]) -> list[str]:
    if len(operands) == 1:
        return operands
    return [
        f"({left}; {right})"
        for cut in range(1, len(operands))
        for left in groupings(operands[:cut])
        for right in groupings(operands[cut:])
    ]


def next_is_associative(operands: list[str], stream: Stream) -> None:
    results = [found(f"SELECT * FROM {pattern}", stream) for pattern in groupings(operands)]
    assert all(result == results[0] for result in results)


@law
@given(_operands(), streams())
def test_next_is_associative(operands: list[str], stream: Stream) -> None:
    next_is_associative(operands, stream)


def test_next_is_not_associative_over_histories_of_different_lengths() -> None:
    """The model does not promise more. After s, E2 is c@2 or the longer a@1 b@3, and E3 is c@5 or the longer b@3 c@5:
    grouped to the left the earliest E2 is c@2; grouped to the right a@1 b@3 c@5 precedes c@2 b@3 c@5, because from the
    end they agree until 1 < 2. The oracle keeps to the definition of SUCC, with brackets as written."""
    rows = [("B", 0), ("A", 1), ("C", 2), ("B", 3), ("C", 5)]
    stream = stream_of([(kind, time, {}) for kind, time in rows], WHOLE)
    second, third = "(C c0 | (A a1; B b1))", "(C c1 | (B b2; C c2))"
    (left,) = evaluate(bound(f"SELECT * FROM (B s; {second}); {third}", stream), stream.events)
    (right,) = evaluate(bound(f"SELECT * FROM B s; ({second}; {third})", stream), stream.events)
    assert _times(left) == {"s": 0, "c0": 2, "b2": 3, "c2": 5}
    assert _times(right) == {"s": 0, "a1": 1, "b1": 3, "c1": 5}


def _times(match: Match) -> dict[str, int]:
    return {var: binding.start for var, binding in match.bindings.items() if isinstance(binding, Event)}


def union_commutes(first: str, second: str, stream: Stream) -> None:
    assert found(f"SELECT * FROM ({first} | {second})", stream) == found(f"SELECT * FROM ({second} | {first})", stream)


@law
@given(_ONE, _ONE, _ONE, streams())
def test_union_commutes_and_associates(a: str, b: str, c: str, stream: Stream) -> None:
    union_commutes(f"({a} x; {b} y)", f"{c} z", stream)
    left = found(f"SELECT * FROM ({a} x | ({b} y | {c} z)); A last", stream)
    right = found(f"SELECT * FROM (({a} x | {b} y) | {c} z); A last", stream)
    assert left == right


@law
@given(_ONE, _ONE, streams())
def test_next_finds_some_of_the_sequences(a: str, b: str, stream: Stream) -> None:
    assert found(f"SELECT * FROM {a} x; {b} y", stream) <= found(f"EVENT SEQ({a} x, {b} y)", stream)


@pytest.mark.parametrize(
    ("sigma", "tau", "first"),
    [
        ((2, 6, 8), (3, 6, 8), True),
        ((1, 2, 4, 6, 8), (4, 6, 8), True),
        ((3, 6, 8), (2, 6, 8), False),
        ((4, 6, 8), (1, 2, 4, 6, 8), False),
        ((4, 6, 8), (4, 6, 8), False),
        ((9, 7), (1, 8), True),
    ],
)
def test_order_of_histories(sigma: tuple[int, ...], tau: tuple[int, ...], first: bool) -> None:
    """The two examples of NEXT §3.2, and their opposites."""
    assert (successors.compare(sigma, tau) < 0) is first


# --- conjunction and disjunction --------------------------------------------------------------------------------------


@law
@given(_ONE, _ONE, _ONE, st.integers(0, 6), streams(), condition(["x", "y", "z"]))
def test_conjunction_commutes_and_associates(a: str, b: str, c: str, window: int, stream: Stream, extra: str) -> None:
    parts = [f"({a} x;{b} y)", f"{c} z"]
    rest = f"WHERE {extra} WITHIN {window}"
    assert found(f"PATTERN {parts[0]}&{parts[1]} {rest}", stream) == found(
        f"PATTERN {parts[1]}&{parts[0]} {rest}", stream
    )
    assert found(f"PATTERN {a} x&({b} y&{c} z) {rest}", stream) == found(f"PATTERN ({a} x&{b} y)&{c} z {rest}", stream)


@law
@given(st.permutations(["a", "b", "!n"]), st.integers(0, 6), streams())
def test_ced_and_commutes(order: list[str], window: int, stream: Stream) -> None:
    head = "complex Q on A as a, B as b, C as n event and"
    assert found(f"{head}(a, b, !n; {window})", stream) == found(f"{head}({', '.join(order)}; {window})", stream)


@law
@given(st.integers(0, 6), streams())
def test_disjunction_is_the_union(window: int, stream: Stream) -> None:
    both = found(f"PATTERN (A x|B y);C z WITHIN {window}", stream)
    each = found(f"PATTERN A x;C z WITHIN {window}", stream) + found(f"PATTERN B y;C z WITHIN {window}", stream)
    assert both == each


@law
@given(streams())
def test_ced_seq_is_a_restricted_and(stream: Stream) -> None:
    """CED §2.2 says so."""
    assert found("complex Q on A as a, B as b event seq(a, b; 4)", stream) <= found(
        "complex Q on A as a, B as b event and(a, b; 4)", stream
    )


# --- windows ----------------------------------------------------------------------------------------------------------


def window_is_monotonic(text_of: Callable[[int], str], stream: Stream) -> None:
    results = [found(text_of(window), stream) for window in (1, 3, 6, 100)]
    assert all(less <= more for less, more in itertools.pairwise(results))
    assert results[-1] == found(text_of(-1), stream)


def within(text: str, window: int, unit: str = "") -> str:
    return f"{text}\nWITHIN {window}{unit}" if window >= 0 else text


@settings(law, max_examples=30)
@given(steps(negation=False).map(lambda s: replace(s, window=None)), streams())
def test_a_wider_window_loses_nothing(sequence: Steps, stream: Stream) -> None:
    for unit in ("", " events"):
        for text in (sequence.sase(), sequence.zstream(), sequence.sase_plus("skip_till_next_match")):
            window_is_monotonic(partial(within, text, unit=unit), stream)


@law
@given(sase_plus_queries(negation=False, non_overlapping=False), streams(max_events=6))
def test_a_wider_window_loses_no_run(text: str, stream: Stream) -> None:
    head = text.split("\nWITHIN")[0]
    window_is_monotonic(lambda w: within(head, w), stream)


@law
@given(streams(), _ONE)
def test_a_wider_window_loses_no_interval(stream: Stream, a: str) -> None:
    head = f"complex Q on {a} as a, B as b, C as c event"
    window_is_monotonic(lambda w: f"{head} and(a, seq(b, c){f'; {w}' if w >= 0 else ''})", stream)


# --- selection strategies ---------------------------------------------------------------------------------------------


def strategies_are_nested(text: str, stream: Stream) -> None:
    results = {s: found(text.replace("STRATEGY", s), stream) for s in STRATEGIES}
    for strategy in STRATEGIES:
        assert results[strategy] <= results["skip_till_any_match"]
    assert results["strict_contiguity"] <= results["skip_till_next_match"]
    assert results["strict_contiguity"] <= results["partition_contiguity"]


@law
@given(sase_plus_queries(strategies=("STRATEGY",), non_overlapping=False).filter(lambda t: "STRATEGY" in t), streams())
def test_any_match_contains_the_others(text: str, stream: Stream) -> None:
    strategies_are_nested(text, stream)


@law
@given(sase_plus_queries(), streams(max_events=7))
def test_non_overlapping_matches_are_some_of_all_and_do_not_overlap(text: str, stream: Stream) -> None:
    head = text.removesuffix("\nOUTPUT NON-OVERLAPPING")
    kept = evaluate(bound(f"{head}\nOUTPUT NON-OVERLAPPING", stream), stream.events)
    everything = found(head, stream)
    assert multiset(kept) <= everything
    assert bool(kept) == bool(everything)
    if "[id" in head:
        return
    spans = sorted(_positions(match) for match in kept)
    assert all(one[-1] < other[0] for one, other in itertools.pairwise(spans))


def _group(match: Match, var: str) -> tuple[Event, ...]:
    group = match.bindings[var] or ()
    assert isinstance(group, tuple)
    return group


def _positions(match: Match) -> list[int]:
    events: list[Event] = []
    for binding in match.bindings.values():
        events.extend(binding if isinstance(binding, tuple) else [binding] if binding is not None else [])
    return sorted(event.position for event in events)


# --- what does not matter ---------------------------------------------------------------------------------------------


def _named(matches: Iterable[Match], stream: Stream) -> Counter[Any]:
    """The matches by the relevant events' place among themselves, so that streams that differ in others compare."""
    relevant = [event for event in stream.events if event.type != IRRELEVANT]
    name = {id(event.row): index for index, event in enumerate(relevant)}

    def key(binding: Any) -> Any:
        if isinstance(binding, Event):
            return name.get(id(binding.row), (binding.type, binding.start, binding.end))
        return tuple(key(item) for item in binding) if isinstance(binding, tuple) else binding

    return Counter(
        tuple(sorted((var, repr(key(binding))) for var, binding in match.bindings.items())) for match in matches
    )


def irrelevant_events_change_nothing(text: str, stream: Stream, times: list[int]) -> None:
    without = [(e.type, e.start, _attributes(e)) for e in stream.events if e.type != IRRELEVANT]
    noise: list[tuple[str, int, dict[str, Any]]] = [(IRRELEVANT, time, {}) for time in times]
    quiet = stream_of(without, stream.schema)
    # Noise arrives first, so that ties of the others keep their order.
    noisy = stream_of([*noise, *without], stream.schema)
    results = [_named(evaluate(bound(text, s), s.events), s) for s in (quiet, noisy)]
    assert results[0] == results[1]


_RELEVANT_ONLY = st.one_of(
    sase_queries(),
    sase_plus_queries(strategies=("skip_till_next_match", "skip_till_any_match")),
    zstream_queries().filter(lambda text: "T" not in text.split("\n")[0].replace("PATTERN", "") and "*)" not in text),
    eql_queries(),
    ced_queries(),
).filter(lambda text: " events" not in text)


@settings(law, max_examples=examples(120))
@given(_RELEVANT_ONLY, streams(), st.lists(st.integers(0, 20), min_size=1, max_size=4))
def test_irrelevant_events_change_nothing(text: str, stream: Stream, times: list[int]) -> None:
    irrelevant_events_change_nothing(text, stream, times)


def test_irrelevant_events_matter_under_strict_contiguity() -> None:
    stream = stream_of([("A", 1, {}), ("B", 3, {})], WHOLE)
    with pytest.raises(AssertionError):
        irrelevant_events_change_nothing("PATTERN SEQ(A a, B b) WHERE strict_contiguity { }", stream, [2])
    irrelevant_events_change_nothing("PATTERN SEQ(A a, B b) WHERE strict_contiguity { }", stream, [0, 4])


_ANY_QUERY = st.one_of(sase_queries(), sase_plus_queries(), zstream_queries(), eql_queries(), ced_queries())


@settings(law, max_examples=examples(100))
@given(_ANY_QUERY, untied, st.randoms())
def test_order_of_rows_does_not_matter_without_ties(text: str, stream: Stream, random: Any) -> None:
    rows = [(e.type, e.start, _attributes(e)) for e in stream.events]
    random.shuffle(rows)
    shuffled = stream_of(rows, stream.schema)
    assert found(text, stream) == found(text, shuffled)


# --- one language in terms of another ---------------------------------------------------------------------------------


def sase_is_zstream(sequence: Steps, stream: Stream) -> None:
    """Over whole numbers `< T + 1` is `<= T`, so the two differ in nothing else."""
    assert found(sequence.sase(), stream) == found(sequence.zstream(), stream)


@settings(law, max_examples=examples(100))
@given(steps(), streams())
def test_sase_sequences_are_zstream_sequences(sequence: Steps, stream: Stream) -> None:
    sase_is_zstream(sequence, stream)


@settings(law, max_examples=examples(100))
@given(steps(), untied)
def test_sase_plus_without_closures_is_sase_up_to_ties(sequence: Steps, stream: Stream) -> None:
    assert found(sequence.sase_plus(), stream) == found(sequence.sase(), stream)


@law
@given(streams(), st.integers(1, 8), condition(["x1"], ["x0", "x2"]))
def test_closures_are_made_of_sequences(stream: Stream, window: int, extra: str) -> None:
    """ZStream's A;B+;C has, for each pair, all the events that A;B;C has, and A;B^1;C one group for each."""
    single = evaluate(bound(f"PATTERN A x0;B x1;C x2 WHERE {extra} WITHIN {window}", stream), stream.events)
    groups = evaluate(bound(f"PATTERN A x0;B x1+;C x2 WHERE {extra} WITHIN {window}", stream), stream.events)
    ones = evaluate(bound(f"PATTERN A x0;B x1^1;C x2 WHERE {extra} WITHIN {window}", stream), stream.events)
    pairs: dict[Any, set[Any]] = {}
    for match in single:
        pairs.setdefault(_pair(match), set()).add(match.bindings["x1"])
    assert {_pair(match): set(_group(match, "x1")) for match in groups} == pairs
    flat = [replace(m, bindings={**m.bindings, "x1": _group(m, "x1")[0]}) for m in ones]
    assert multiset(flat) == multiset(single)


def _pair(match: Match) -> tuple[Any, Any]:
    return match.bindings["x0"], match.bindings["x2"]


def negation_is_the_complement(text_of: Callable[[str], str], stream: Stream) -> None:
    """What is left of A;C when the pairs of A;B;C are taken away."""
    pairs = {_pair(m) for m in evaluate(bound(text_of(""), stream), stream.events)}
    spoilt = {_pair(m) for m in evaluate(bound(text_of("B x1"), stream), stream.events)}
    kept = [_pair(m) for m in evaluate(bound(text_of("!(B x1)"), stream), stream.events)]
    assert set(kept) == pairs - spoilt
    assert len(kept) == len(set(kept))


@st.composite
def _negations(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Callable[[str], str]:
    window = draw(st.sampled_from(("", "WITHIN 5", "WITHIN 3 events")))
    about = draw(st.one_of(st.just([]), condition(["x1"], ["x0", "x2"]).map(lambda text: [text])))
    shared = draw(st.one_of(st.just([]), condition(["x0", "x2"]).map(lambda text: [text])))
    language = draw(st.sampled_from((sase.DIALECT, zstream.DIALECT, sase_plus.DIALECT)))

    def text_of(middle: str) -> str:
        parts = ["A x0", *([middle] if middle else []), "C x2"]
        condition = " AND ".join([*shared, *(about if middle else [])])
        if language is sase_plus.DIALECT:
            return f"PATTERN SEQ({', '.join(parts)}) WHERE skip_till_any_match {{ {condition} }} {window}"
        where = f"WHERE {condition}" if condition else ""
        pattern = f"EVENT SEQ({', '.join(parts)})" if language is sase.DIALECT else f"PATTERN {';'.join(parts)}"
        return f"{pattern} {where} {window}"

    return text_of


@settings(law, max_examples=examples(100))
@given(_negations(), streams())
def test_negation_is_the_complement(text_of: Callable[[str], str], stream: Stream) -> None:
    negation_is_the_complement(text_of, stream)


# --- output -----------------------------------------------------------------------------------------------------------


@law
@given(steps(), streams(), st.integers(0, 3))
def test_limit_is_a_prefix_and_count_is_the_length(sequence: Steps, stream: Stream, limit: int) -> None:
    text = sequence.sase()
    everything = evaluate(bound(text, stream), stream.events)
    assert everything == sorted(everything, key=lambda match: (match.end, match.start))
    assert evaluate(bound(f"{text}\nLIMIT {limit}", stream), stream.events) == everything[:limit]
    (row,) = evaluate(bound(f"{text}\nRETURN count(*) AS n", stream), stream.events)
    assert row.columns == {"n": len(everything)}


# --- the tests notice a broken oracle ---------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _bound_cases() -> list[tuple[Case, Any, list[Event]]]:
    return [(case, *case.bound()) for case in all_cases() if case.matches is not None]


def failing_cases() -> set[str]:
    """The golden cases that the oracle, as it is now, does not meet."""
    failing = set()
    for case, query, events in _bound_cases():
        with_interval = bool(case.matches) and all(line[0].isdigit() for line in case.matches or ())
        by_events = case.headers.get("compare") == "events"
        observed = lines(query, evaluate(query, events, case.clock), events, with_interval, by_events)
        if differences(case.matches or (), observed):
            failing.add(f"{case.language}/{case.name}")
    return failing


@contextmanager
def broken(module: ModuleType, part: str, instead: str) -> Iterator[None]:
    """The module with a part of its source replaced, for a while."""
    source = inspect.getsource(module)
    assert source.count(part) == 1, f"`{part}` is no longer in {module.__name__}, or not once"
    before = dict(module.__dict__)
    # The source is the module's own, changed in one place by the test.
    exec(compile(source.replace(part, instead), module.__file__ or "broken", "exec"), module.__dict__)
    try:
        yield
    finally:
        module.__dict__.update(before)


def test_whole_oracle_meets_every_case() -> None:
    assert failing_cases() == set()


_BREAKS = [
    # order
    (combinations, "not so_far.end < choice.start", "not so_far.end <= choice.start", "sase/order-is-strict"),
    (successors, "if first.end < c.start]", "if first.end + 1 < c.start]", "eql/next-is-the-immediate-successor"),
    (intervals, "not so_far[-1].end < option.start", "not so_far[-1].end <= option.start", "ced/seq"),
    # negation
    (
        combinations,
        "max(e.end for e in before) < event.start",
        "max(e.end for e in before) <= event.start",
        "sase/negation-between-boundaries",
    ),
    (
        combinations,
        "not event.end < min(e.start",
        "not event.end <= min(e.start",
        "zstream/negation-between-boundaries",
    ),
    (
        combinations,
        "not before and not self.context.in_window(event, last)",
        "not before",
        "sase/negation-leading-before-two",
    ),
    (
        combinations,
        "return bool(after) or self.context.in_window(first, event)",
        "return bool(after) or self.context.in_window(last, event)",
        "sase/negation-trailing-after-two",
    ),
    (intervals, "max(ends) - window <= end <=", "max(ends) - window < end <=", "ced/negation-in-and"),
    (
        intervals,
        "return lambda end: before[-1].end <= end <= after[0].start",
        "return lambda end: before[-1].end < end < after[0].start",
        "ced/negation-inside-seq",
    ),
    (
        runs,
        "return before[-1].position < event.position < after[0].position",
        "return before[0].position < event.position < after[0].position",
        "sase_plus/negation-after-a-closure",
    ),
    # runs
    (
        runs,
        "            case Strategy.STRICT:\n                return False",
        "            case Strategy.STRICT:\n                return True",
        "sase_plus/strategy-strict",
    ),
    (
        runs,
        "partition_key(attributes, event) != partition_key(attributes, run.first)",
        "True",
        "sase_plus/strategy-partition",
    ),
    (runs, "return not self._takes(run, event)", "return True", "sase_plus/kleene-next"),
    (runs, "return not self._begins(run.bound, run.at + 1, event)", "return True", "sase_plus/strategy-next"),
    (
        runs,
        "            case _:\n                return True",
        "            case _:\n                return False",
        "sase_plus/strategy-any",
    ),
    (runs, "        if self._takes(run, event):", "        if False:", "sase_plus/take-and-begin"),
    (
        runs,
        "return self.context.within([*events_of(bound), event])",
        "return True",
        "sase_plus/window-bound-is-included",
    ),
    (runs, "PROCEED = 1\n    TAKE = 2", "PROCEED = 2\n    TAKE = 1", "sase_plus/current-event-against-the-group"),
    (runs, "or run.first.position > ended[key]", "or True", "sase_plus/non-overlapping"),
    # closures
    (combinations, "else everyone[-closure.low :]", "else everyone[: closure.low]", "zstream/figure-6-closure-count"),
    (combinations, "        if closure.low == 0:\n            yield ()", "", "zstream/closure-trailing-star"),
    (
        combinations,
        "and (after is not None or end is None or self.context.in_window(event, end))",
        "",
        "zstream/closure-leading",
    ),
    # EQL
    (successors, "return len(tau) - len(sigma)", "return len(sigma) - len(tau)", "eql/longer-comes-first"),
    (successors, "return -1 if a < b else 1", "return -1 if a > b else 1", "eql/figure-1-right"),
    (
        successors,
        "first.end < other.end < second.end",
        "first.start < other.end < first.end",
        "eql/exception-while-waiting",
    ),
    # composition
    (intervals, "max(*ends, option.end) - min(*ends, option.end)", "option.end - option.start", "ced/and"),
]


@pytest.mark.parametrize(("module", "part", "instead", "case"), _BREAKS, ids=[case for *_, case in _BREAKS])
def test_golden_cases_notice(module: ModuleType, part: str, instead: str, case: str) -> None:
    with broken(module, part, instead):
        failing = failing_cases()
    assert case in failing


@pytest.mark.parametrize(
    ("bound_included", "case"), [(True, "sase/window-bound-is-excluded"), (False, "zstream/window-bound-is-included")]
)
def test_golden_cases_notice_the_window(monkeypatch: pytest.MonkeyPatch, bound_included: bool, case: str) -> None:
    def fits(self: Context, length: float) -> bool:
        return self.window is None or (length <= self.window if bound_included else length < self.window)

    monkeypatch.setattr(Context, "fits", fits)
    assert case in failing_cases()


def test_golden_cases_notice_equal_nulls(monkeypatch: pytest.MonkeyPatch) -> None:
    def lax(op: str, left: Any, right: Any) -> bool:
        return (left is None and right is None) or compare(op, left, right)

    monkeypatch.setattr(evaluation, "compare", lax)
    monkeypatch.setattr(common, "compare", lax)
    assert "sase/null-key-matches-nothing" in failing_cases()


def test_golden_cases_notice_missing_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "attribute", lambda event, name: event.attributes.get(name))
    assert "sase/missing-attribute-is-true" in failing_cases()


_GENERATE = settings(max_examples=400, deadline=None, phases=(Phase.generate,), database=None, derandomize=True)


def counterexample(drawn: st.SearchStrategy[Any], holds: Callable[..., None]) -> bool:
    """Whether a law can be seen to fail."""

    def fails(drawing: tuple[Any, ...]) -> bool:
        try:
            holds(*drawing)
        except AssertionError:
            return True
        return False

    try:
        find(drawn, fails, settings=settings(_GENERATE, suppress_health_check=list(HealthCheck)))
    except NoSuchExample:
        return False
    return True


@pytest.mark.parametrize(
    ("module", "part", "instead", "drawn", "holds"),
    [
        (
            successors,
            "return -1 if a < b else 1",
            "return -1 if a > b else 1",
            st.tuples(_operands(), streams()),
            next_is_associative,
        ),
        (
            combinations,
            "max(e.end for e in before) < event.start",
            "max(e.end for e in before) <= event.start",
            st.tuples(_negations(), streams()),
            negation_is_the_complement,
        ),
        (
            runs,
            "            case _:\n                return True",
            "            case _:\n                return False",
            st.tuples(
                sase_plus_queries(strategies=("STRATEGY",), non_overlapping=False).filter(lambda t: "STRATEGY" in t),
                streams(),
            ),
            strategies_are_nested,
        ),
    ],
    ids=["associativity", "complement", "any-match"],
)
def test_laws_notice(
    module: ModuleType, part: str, instead: str, drawn: st.SearchStrategy[Any], holds: Callable[..., None]
) -> None:
    with broken(module, part, instead):
        assert counterexample(drawn, holds)


def test_laws_notice_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Context, "fits", lambda self, length: self.window is None or length <= self.window)
    assert counterexample(st.tuples(steps(), streams()), sase_is_zstream)
