"""Floats that equality does not tell apart: NaN, which counts as null and is still returned as it is, and -0.0, which
no least or greatest value of a group is. All evaluators return the same, in single and in composed queries."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import cepheid
from cepheid.errors import CepheidError
from cepheid.kernels.registry import EVALUATORS

NAN = float("nan")
VALUES = (NAN, 0.0, -0.0, 1.0, -1.0, float("inf"), None)
LISTS: tuple[list[float | None] | None, ...] = ([NAN], [None, 0.0], [], None)
RUN = "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_any_match(a, b[]) { a.k = b[i].k } WITHIN 6"
PAIR = "EVENT SEQ(A a, B b) WITHIN 6"
COMPOSED = {
    "returned attributes": f"P: {PAIR} RETURN a.v AS v, b.l AS l\nQ: EVENT SEQ(P p, C c) WITHIN 9 RETURN p.v, p.l, c.v",
    "attributes of events": f"P: {PAIR}\nQ: EVENT SEQ(P p, C c) WITHIN 9 RETURN p.a.v, p.b.l, c.v",
    "events": f"P: {PAIR} RETURN a.v AS v\nQ: EVENT SEQ(P p, C c) WITHIN 9",
    "three levels": f"P: {PAIR} RETURN a.v AS v\nQ: EVENT SEQ(P p, C c) WITHIN 9\nR: EVENT SEQ(Q q, A d) WITHIN 12 "
    "RETURN q.p.v, q.c.v",
    "a key that is NaN": f"P: {PAIR} RETURN a.v AS w\nQ: EVENT SEQ(P p, C c) WHERE p.w = c.v WITHIN 9 RETURN p.w, c.v",
    "what is not equal": f"P: {PAIR} RETURN a.v AS w\nQ: EVENT SEQ(P p, C c) WHERE p.w != c.v WITHIN 9 RETURN p.w, c.v",
    "lists": f"P: {PAIR} RETURN a.l AS l\nQ: EVENT SEQ(P p, C c) WHERE p.l = c.l WITHIN 9 RETURN p.l, c.l",
    "branches": "P: PATTERN A a | B b WITHIN 6 RETURN a.v AS v, b.v AS w\n"
    "Q: EVENT SEQ(P p, C c) WITHIN 9 RETURN p.v, p.w",
    "an attribute of each branch": "P: PATTERN A a | B b WITHIN 6\nQ: EVENT SEQ(P p, C c) WITHIN 9 RETURN p.v",
    "closures": f"P: {RUN}\nQ: EVENT SEQ(P p, C c) WITHIN 9 RETURN p.b[1].v, min(p.b.v), max(p.b.v)",
    "partitions": f"P: {PAIR} RETURN a.v AS v\nQ: PATTERN SEQ(P p, C c) WHERE partition_contiguity(p, c) {{ [v] }} "
    "WITHIN 9 RETURN p.v",
    "windows of events": f"P: {PAIR} RETURN a.v AS v\nQ: EVENT SEQ(P p, C c) WHERE [v] WITHIN 4 events RETURN p.v, c.v",
    "a summary": f"P: {PAIR} RETURN a.v AS v\nQ: EVENT SEQ(P p, C c) WITHIN 9 RETURN count(*), min(p.v), max(c.v)",
}
EXTREMES = {
    **{
        strategy: f"PATTERN SEQ(A a, B+ b[]) WHERE {strategy}(a, b[]) {{ a.k = b[i].k }} WITHIN 8 "
        "RETURN min(b.v), max(b.v), CAST(max(b.v) AS string), CAST(min(b.v) AS string), first(b.v), last(b.v)"
        for strategy in ("skip_till_any_match", "skip_till_next_match", "strict_contiguity", "partition_contiguity")
    },
    "group": "PATTERN A;B+;C WHERE A.k = C.k WITHIN 8 RETURN A.k, min(B.v), max(B.v), CAST(max(B.v) AS string)",
    "iteration": "SELECT min(b.v) AS m, max(b.v) AS n FROM (B b)+ WHERE FILTER(b.k = PREV(b.k))",
    "summary of closures": f"{RUN} RETURN count(*), min(b.v), max(b.v)",
    "summary of events": f"{PAIR} RETURN count(*), min(b.v), max(a.v)",
}


def table(rng: random.Random, values: tuple[float | None, ...]) -> pa.Table:
    rows: list[dict[str, Any]] = []
    for at in range(14):
        value, items = rng.choice(values), rng.choice(LISTS)
        rows.append({"type": rng.choice("ABC"), "ts": at // 2, "k": rng.choice((1, 2)), "v": value, "l": items})
    schema = [("type", pa.string()), ("ts", pa.int64()), ("k", pa.int64()), ("v", pa.float64())]
    return pa.Table.from_pylist(rows, pa.schema([*schema, ("l", pa.list_(pa.float64()))]))


def results(query: str, events: pa.Table) -> dict[str, list[str]]:
    """The rows by evaluator. `repr` tells NaN from null and -0.0 from 0.0."""
    found = {}
    for name in ("reference", None, *(evaluator.NAME for evaluator in EVALUATORS)):
        try:
            rows = cepheid.match(query, events, evaluator=name).to_pylist()
        except CepheidError as problem:
            assert "cannot evaluate this query" in str(problem), problem
            continue
        found[name or "chosen"] = sorted(map(repr, rows))
    assert len(found) > 2
    return found


@pytest.mark.filterwarnings("ignore::cepheid.CepheidWarning")
@pytest.mark.parametrize("name", COMPOSED)
def test_composed_queries_return_nan_as_it_is(name: str) -> None:
    rng, seen = random.Random(name), ""
    for _ in range(6):
        found = results(COMPOSED[name], table(rng, VALUES))
        assert all(rows == found["reference"] for rows in found.values()), found
        seen += " ".join(found["reference"])
    if name not in ("a key that is NaN", "what is not equal", "partitions", "windows of events", "a summary"):
        assert "nan" in seen


@pytest.mark.filterwarnings("ignore::cepheid.CepheidWarning")
@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_are_never_minus_zero(name: str) -> None:
    rng, seen = random.Random(name), ""
    for _ in range(8):
        found = results(EXTREMES[name], table(rng, (0.0, -0.0, -0.0, NAN)))
        assert all(rows == found["reference"] for rows in found.values()), found
        seen += " ".join(row for rows in found.values() for row in rows)
    for column in ("min(b.v)", "max(b.v)", "min(B.v)", "max(B.v)", "max(a.v)", "m", "n"):
        assert f"'{column}': -0.0" not in seen
    assert "0.0" in seen


@pytest.mark.filterwarnings("ignore::cepheid.CepheidWarning")
def test_extremes_in_streams() -> None:
    rng = random.Random(5)
    for name in ("summary of closures", "skip_till_any_match", "group"):
        for _ in range(3):
            assert cepheid.verify(EXTREMES[name], table(rng, (0.0, -0.0)), streams=2, seed=7).agrees
