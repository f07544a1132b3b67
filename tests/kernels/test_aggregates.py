"""Every aggregate that the algebra defines has a row, and every evaluator computes it as it is defined."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from kernel_harness import Stream, bound, by_kernel, by_oracle, encoder_of, kernel_of, stream_of

import cepheid
from cepheid import expr as ex
from cepheid.codegen.scalar import NULL, Term
from cepheid.expr import ResultType
from cepheid.kernels.aggregates import ACCUMULATORS, AGGREGATE_CODE, AggregateCode
from cepheid.kernels.any_runs.lazy_matches import LazyKernel
from cepheid.physical import Kind, kind_of
from cepheid.runtime import arrays, numbers
from cepheid.runtime.kernel import END_OF_TIME
from cepheid.semantics import evaluate
from cepheid.types import BOOLEAN, FLOAT, INTEGER, STRING, Type

VALUES: dict[str, list[Any]] = {
    "whole": [3, None, 1, 1, 7, None, 2, 5],
    "real": [0.5, 2.25, None, -1.0, None, 0.5, 4.0, 2.5],
    "text": ["q", None, "p", "r", "p", None, "q", "s"],
    "flag": [True, False, None, False, True, True, None, False],
    "nothing": [None, None, None, None, 1, None, None, 1],
}
PATTERNS = {
    "runs": "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) {{ {} }}",
    "any_runs": "PATTERN SEQ(A+ a[], B b) WHERE skip_till_any_match {{ {} }}",
    "tree": "PATTERN A+;B WHERE {} WITHIN 20",
}


def stream() -> Stream:
    kinds = "AAAABAAB"
    return stream_of(
        [{"type": t, "ts": i, **{n: v[i] for n, v in VALUES.items()}} for i, t in enumerate(kinds)]
        + [{"type": t, "ts": 10 + i, "whole": 4, "text": "q"} for i, t in enumerate("AB")]
    )


CASES = [
    (fn, attribute)
    for fn, defined in ex.AGGREGATES.items()
    for attribute in VALUES
    if attribute not in ("text", "flag") or defined.result is not ResultType.NUMBER
]


def test_every_aggregate_has_a_row() -> None:
    assert list(AGGREGATE_CODE) == list(ex.AGGREGATES)
    assert {name for row in AGGREGATE_CODE.values() for name in (*row.exact, *row.other)} == set(ACCUMULATORS)
    for fn, row in AGGREGATE_CODE.items():
        assert (row.over_nothing(INTEGER).source == "0") == (ex.AGGREGATES[fn].result is ResultType.COUNT)
        assert row.result is not None or row.exact[1:] in ((), ("count",))
        assert row.of_matches is None or row.merges


TYPES: dict[str, Type] = {"real": FLOAT, "text": STRING, "flag": BOOLEAN}


@pytest.mark.parametrize(("fn", "attribute"), CASES)
def test_a_row_computes_what_the_definition_says(fn: str, attribute: str) -> None:
    """The source of a row, run over a group member by member."""
    ordered = sorted({v for v in VALUES["text"] if v is not None}, reverse=True)
    kind = kind_of(TYPES.get(attribute, INTEGER))
    assert kind is not None
    names: dict[str, Any] = {**vars(arrays), **vars(numbers), "ranks": np.arange(len(ordered))[::-1]}
    row, values, x = AGGREGATE_CODE[fn], VALUES[attribute], Term("x", kind)
    null = eval(NULL[kind], names)
    for length in range(len(values) + 1):
        held = [null if v is None else ordered.index(v) if attribute == "text" else v for v in values[:length]]
        accumulators = row.accumulators(kind)
        running = [eval(ACCUMULATORS[what].over_nothing(kind), names) for what in accumulators]
        for i, names["x"] in enumerate(held):
            names |= {f"old_{what}": value for what, value in zip(accumulators, running, strict=True)}
            for at, what in enumerate(accumulators):
                accumulator = ACCUMULATORS[what]
                source = accumulator.step(lambda name: f"old_{name}", x) if i else accumulator.start(x)
                running[at] = eval(source, names)
        names |= {f"r{at}": value for at, value in enumerate(running)}
        term = row.term(TYPES.get(attribute, INTEGER), [f"r{at}" for at in range(len(running))])
        found = eval(term.source, names) if eval(term.is_known, names) else None
        known = [v for v in values[:length] if v is not None]
        counts = ex.AGGREGATES[fn].result is ResultType.COUNT
        expected = ex.AGGREGATES[fn].of(list(known), TYPES.get(attribute, INTEGER)) if known or counts else None
        assert (ordered[found] if found is not None and term.kind is Kind.CODE else found) == expected


@pytest.mark.parametrize(("fn", "attribute"), CASES)
@pytest.mark.parametrize("evaluator", PATTERNS)
def test_every_evaluator_computes_every_aggregate(fn: str, attribute: str, evaluator: str) -> None:
    events = stream()
    closure, last = ("A", "B") if evaluator == "tree" else ("a[]", "b")
    right = f"{last}.whole" if ex.AGGREGATES[fn].result is not ResultType.VALUE else f"{last}.{attribute}"
    tests = [f"{fn}({closure}.{attribute}) {op} {right}" for op in ("=", "!=")]
    tests += [f"{fn}({closure}.{attribute}) <= {right}"] if attribute != "flag" else []
    if evaluator != "tree":
        limit = 3 if ex.AGGREGATES[fn].result is not ResultType.VALUE else f"a[i].{attribute}"
        tests.append(f"{fn}(a[..i-1].{attribute}) != {limit}")
    reached = 0
    for test in tests:
        query = bound(PATTERNS[evaluator].format(test), events)
        kernel = kernel_of(query, events, evaluator=evaluator)
        for cuts in ([], [1, 2, 6]):
            assert by_kernel(kernel, events, cuts)[0] == by_oracle(query, events), test
            reached += 1
    assert reached


@pytest.mark.parametrize(("fn", "attribute"), CASES)
def test_all_matches_are_summed_up(fn: str, attribute: str) -> None:
    events = stream()
    query = bound(PATTERNS["any_runs"].format("1 = 1") + f" RETURN count(*) AS n, {fn}(a[].{attribute}) AS x", events)
    kernel = kernel_of(query, events, evaluator="any_runs")
    assert isinstance(kernel, LazyKernel)
    assert bool(kernel.summary.asked) == AGGREGATE_CODE[fn].merges
    if not kernel.summary.asked:  # the matches are enumerated, and summed up outside the kernel
        assert by_kernel(kernel, events)[0] == by_oracle(replace(query, output=None), events)
        return
    encoder, state = encoder_of(kernel), kernel.initial()
    state, _ = kernel.step(state, encoder.encode(events.table))
    state, _ = kernel.advance(state, END_OF_TIME, encoder.codes())
    row, (match,) = kernel.summary.row(kernel.totals(state)), evaluate(query, events.events)
    x = row.values["x"]
    if attribute == "text" and ex.AGGREGATES[fn].result is ResultType.VALUE:
        x = {code: text for text, code in encoder.dictionary.codes.items()}[x]
    assert match.columns == {"n": row.values["n"], "x": pytest.approx(x) if isinstance(x, float) else x}


@pytest.mark.slow
@pytest.mark.parametrize("evaluator", PATTERNS)
def test_machine_code_computes_the_same(evaluator: str) -> None:
    """All aggregates of numbers in one query, compiled."""
    events = stream()
    closure, last = ("A", "B") if evaluator == "tree" else ("a[]", "b")
    terms = [f"{fn}({closure}.{name})" for fn in ex.AGGREGATES for name in ("whole", "real")]
    query = bound(PATTERNS[evaluator].format(f"{' + '.join(terms)} > {last}.whole"), events)
    kernel = kernel_of(query, events, evaluator=evaluator, jit=True)
    assert by_kernel(kernel, events, [3])[0] == by_oracle(query, events)


@pytest.mark.parametrize("values", [[None, 0], [0, None], [None, 0.0], [None, "aa"], [None, False]])
@pytest.mark.parametrize("name", ["min", "max"])
def test_a_null_beside_the_least_value_is_not_taken_for_it(name: str, values: list[Any]) -> None:
    rows = [{"type": kind, "ts": at, "v": None} for at, kind in enumerate("ABCABC")]
    rows[1]["v"], rows[4]["v"] = values
    text = (
        f"PATTERN SEQ(A a, B b, C c) WHERE skip_till_any_match(a, b, c) {{}} WITHIN 2 RETURN {name}(b.v) AS r, count(*)"
    )
    found = cepheid.match(text, pa.Table.from_pylist(rows))
    assert found["r"].to_pylist() == [values[0] if values[1] is None else values[1]]


def _spread(attribute: Type, least: str, most: str, *count: str) -> Term:
    known = f"{count[0]} > 0" if count else None
    return Term(f"({most} - {least})", kind_of(attribute) or Kind.FLOAT, None, attribute, known)


def test_a_new_aggregate_is_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its definition and its code: predicates, RETURN and summaries of every evaluator read nothing else."""
    spread = ex.AggregateFunction(ResultType.NUMBER, lambda values, _: max(values) - min(values))
    code = AggregateCode(("least", "most", "count"), ("least", "most"), _spread)
    monkeypatch.setitem(cast(dict[str, ex.AggregateFunction], ex.AGGREGATES), "spread", spread)
    monkeypatch.setitem(cast(dict[str, AggregateCode], AGGREGATE_CODE), "spread", code)
    table, reached = stream().table, 0
    for evaluator, pattern in PATTERNS.items():
        closure = "A" if evaluator == "tree" else "a[]"
        for name in ("whole", "real"):
            for output in (f"spread({closure}.{name}) AS x", f"count(*) AS n, spread({closure}.{name}) AS x"):
                query = pattern.format(f"spread({closure}.{name}) >= 1") + f" RETURN {output}"
                ways = [cepheid.match(query, table, evaluator=way).to_pylist() for way in (evaluator, "reference")]
                assert sorted(map(str, ways[0])) == sorted(map(str, ways[1])), query
                reached += sum(row["x"] is not None for row in ways[0])
    assert reached > 20
