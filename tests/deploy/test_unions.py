"""Queries whose trees are one plan: each finds what it finds apart, and what the oracle finds."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from differential import different_rows, rows_of

import cepheid
from cepheid.deploy.deployment import Deployment, Written, deploy
from cepheid.deploy.run import run
from cepheid.deploy.unions import with_unions
from cepheid.engine.prepare import RunOptions
from cepheid.engine.stepping import Stepper
from cepheid.errors import CepheidError
from cepheid.io import frames
from cepheid.io.event_columns import for_kernel
from cepheid.io.inputs import Columns
from cepheid.io.source import Source
from cepheid.optimize.unions import shared_joins
from cepheid.runtime.kernel import operator_counts

Rows = list[dict[str, Any]]


def deployed(queries: Mapping[str, str], events: pa.Table) -> tuple[Deployment, Source]:
    opened = frames.opened(events, Columns("type", "ts"))
    assert opened is not None
    options = RunOptions()
    written = {name: Written(name, text) for name, text in queries.items()}
    return with_unions(deploy(written, opened.source, options), opened.source, options), opened.source


def matches_of(deployment: Deployment, source: Source) -> dict[str, Rows]:
    found: dict[str, Rows] = {name: [] for name in deployment.names}
    for shown in run(deployment, source):
        for row in rows_of(pa.Table.from_batches(shown.batches, shown.schema)):
            found[row.pop("query")].append(row)
    return found


def in_pieces(rng: random.Random, events: pa.Table) -> pa.Table:
    """The same table in batches of random sizes."""
    cuts = sorted({0, len(events), *(rng.randint(0, len(events)) for _ in range(rng.randint(0, 4)))})
    parts = [events.slice(a, b - a).combine_chunks().to_batches() for a, b in itertools.pairwise(cuts)]
    return pa.Table.from_batches([batch for part in parts for batch in part], events.schema)


def random_stream(rng: random.Random) -> pa.Table:
    count, time, rows = rng.randint(10, 40), 0, []
    for _ in range(count):
        time += rng.choice([0, 1, 1, 1, 2])
        value = rng.choice([0, 1, 2, 3, None])
        rows.append(
            {"type": rng.choice("ABC"), "ts": time, "k": rng.choice([1, 2, None]), "v": value, "s": rng.choice("xy")}
        )
    schema = pa.schema({"type": pa.string(), "ts": pa.int64(), "k": pa.int64(), "v": pa.int64(), "s": pa.string()})
    return pa.Table.from_pylist(rows, schema)


def random_queries(rng: random.Random) -> dict[str, str]:
    """Queries made of a few parts, so that they have classes, tests and beginnings in common."""
    language = rng.choice(["sase", "zstream", "zstream"])
    windows = [rng.randint(2, 12)] * 5 + [rng.randint(2, 12)]
    alone = {kind: [f"{{}}.v {rng.choice(['<', '>', '!='])} {rng.randint(0, 3)}", "{}.s = 'x'"] for kind in "ABC"}
    between = [
        rng.choice(["{}.v < {}.v", "{}.k = {}.k", "{}.v != {}.v", "{}.v + 1 >= {}.v", "{}.s = {}.s"]) for _ in "12"
    ]
    beginning = [rng.choice("ABC") for _ in range(3)]
    tests = [rng.choice([*alone[kind], ""]) for kind in beginning]
    joins = [rng.choice([*between, ""]) for _ in "12"]

    def text() -> str:
        size, shared = rng.randint(2, 4), rng.choice([0, 1, 2, 2, 3, 3])
        kinds = [beginning[i] if i < shared else rng.choice("ABC") for i in range(size)]
        names = [f"{rng.choice('xyz')}{i}" for i in range(size)]
        where = [test.format(name) for test, name in zip(tests[:shared], names, strict=False) if test]
        where += [rng.choice(alone[k]).format(n) for k, n in zip(kinds, names, strict=True) if rng.randrange(6) == 0]
        closure = rng.randrange(1, size) if language == "zstream" and size > 2 and rng.randrange(4) == 0 else None
        for at, (a, b) in enumerate(itertools.pairwise(names)):
            if at + 1 < shared:
                where += [joins[at].format(a, b)] * bool(joins[at])
            elif rng.randrange(2):
                where.append(between[at % 2].format(a, b))
        items = [f"{kind} {name}" for kind, name in zip(kinds, names, strict=True)]
        if closure is not None:
            items[closure] += "+"
        if rng.randrange(4) == 0:
            kind = rng.choice("ABC")
            items.insert(rng.randint(1, len(items) - 1), f"!({kind} n)" if language == "sase" else f"!{kind} n")
            where += [rng.choice(alone[kind]).format("n")] * rng.randrange(2)
            where += [f"n.k = {names[0]}.k"] * rng.randrange(2)
        if language == "sase":
            where += ["[k]"] * (rng.randrange(4) == 0)
            condition = f" WHERE {' AND '.join(where)}" if where else ""
            return f"EVENT SEQ({', '.join(items)}){condition} WITHIN {rng.choice(windows)}"
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        if size > 2 and rng.randrange(3) == 0 and "!" not in "".join(items) and closure is None:
            at = rng.randrange(size - 1)
            items[at : at + 2] = [f"({items[at]} {rng.choice('&&|')} {items[at + 1]})"]
        return f"PATTERN {'; '.join(items)}{condition} WITHIN {rng.choice(windows)} units"

    return {f"q{number}": text() for number in range(rng.randint(2, 7))}


def of_reference(queries: Mapping[str, str], events: pa.Table) -> dict[str, Rows]:
    """The matches of the queries that are valid."""
    expected: dict[str, Rows] = {}
    for name, text in queries.items():
        with suppress(CepheidError):
            expected[name] = rows_of(cepheid.match(text, events, evaluator="reference"))
    return expected


def check(queries: Mapping[str, str], expected: Mapping[str, Rows], pieces: pa.Table) -> tuple[int, int, int]:
    """Returns the number of queries that are united, that of joins that they share, and that of matches."""
    valid = {name: queries[name] for name in expected}
    deployment, source = deployed(valid, pieces)
    found = matches_of(deployment, source)
    for name in valid.keys() - deployment.refused.keys():
        differs = different_rows(expected[name], found[name])
        assert differs is None, f"{name}: {differs}\n{valid[name]}\n{valid}"
    united = sum(len(union.operators) for union in deployment.unions)
    joins = sum(len(shared_joins(union.prepared.plan.tree)) for union in deployment.unions if union.prepared.plan.tree)
    return united, joins, sum(map(len, found.values()))


@pytest.mark.filterwarnings("ignore::cepheid.CepheidWarning")
@pytest.mark.parametrize("first", [0, pytest.param(10_000, marks=pytest.mark.slow)])
def test_queries_with_parts_in_common(first: int) -> None:
    united = joins = matches = 0
    for seed in range(first, first + (60 if first == 0 else 3000)):
        rng = random.Random(seed)
        events = random_stream(rng)
        queries = random_queries(rng)
        expected = of_reference(queries, events)
        pieces = in_pieces(rng, events)
        more = check(queries, expected, pieces) if expected else (0, 0, 0)
        united, joins, matches = united + more[0], joins + more[1], matches + more[2]
    assert united > 60 and joins > 5 and matches > 300


HUNDRED = pa.table(
    {
        "type": ["A", "B", "C", "D", "B"] * 20,
        "ts": range(100),
        "x": [7 * n % 11 for n in range(100)],
        "y": [5 * n % 13 for n in range(100)],
    }
)
PREFIX = "A.x > 3 AND A.x > B.y"


def test_a_common_beginning_is_made_once() -> None:
    """The union takes in each event of a class once, and makes the joins of the beginning once."""
    queries = {kind: f"PATTERN A; B; {kind} WHERE {PREFIX} WITHIN 20 units" for kind in ("C", "D")}
    deployment, source = deployed(queries, HUNDRED)
    (union,) = deployment.unions
    kernel = union.prepared.kernel
    assert kernel is not None and not deployment.single_operators
    stepper = Stepper.start(kernel, source.count)
    for batch in source.batches(["x", "y"]):
        list(stepper.step(for_kernel(batch, ["x", "y"])))
    together = operator_counts(kernel, stepper.state)
    assert set(together) >= {"A", "B", "C", "D", "[A; B]"}
    for kind, text in queries.items():
        assert cepheid.match(text, HUNDRED).num_rows == together[f"[[A; B]; {kind}]"].made
    pairs = cepheid.match(f"PATTERN A; B WHERE {PREFIX} WITHIN 20 units", HUNDRED)
    assert together["[A; B]"].made == pairs.num_rows > 0


@pytest.mark.parametrize("pieces", [1, 7])
def test_one_of_them_exceeds_a_limit(pieces: int) -> None:
    """It is stopped, and the others find what they find apart."""
    later = HUNDRED.set_column(1, "ts", pa.array([at if at < 60 else 60 + (at - 60) // 10 for at in range(100)]))
    size = -(-100 // pieces)
    events = pa.Table.from_batches(
        [batch for at in range(0, 100, size) for batch in later.slice(at, size).combine_chunks().to_batches()]
    )
    queries = {
        "few": f"PATTERN A; B; C WHERE {PREFIX} AND C.x > 8 WITHIN 20 units",
        "many": "PATTERN A; B; D WHERE A.x > 3 WITHIN 20 units",
        "absent": f"PATTERN A; B; !C; D WHERE {PREFIX} AND C.x > 3 WITHIN 20 units",
    }
    opened = frames.opened(events, Columns("type", "ts"))
    assert opened is not None
    settings = RunOptions(options={"max_matches": "25"})
    written = {name: Written(name, text) for name, text in queries.items()}
    deployment = with_unions(deploy(written, opened.source, settings), opened.source, settings)
    assert len(deployment.unions[0].operators) == 3
    stopped: list[str] = []
    found: dict[str, Rows] = {name: [] for name in queries}
    for shown in run(deployment, opened.source, on_stop=lambda names, _: stopped.extend(names)):
        for row in rows_of(pa.Table.from_batches(shown.batches, shown.schema)):
            found[row.pop("query")].append(row)
    assert stopped == ["many"]
    for name in ("few", "absent"):
        expected = rows_of(cepheid.match(queries[name], later, evaluator="reference"))
        assert expected and different_rows(expected, found[name]) is None, name


def test_what_is_shared_is_shown() -> None:
    queries = {kind: f"PATTERN A; B; {kind} WHERE {PREFIX} WITHIN 20 units" for kind in ("C", "D")}
    queries["apart"] = "PATTERN A; B WHERE A.x > 3 WITHIN 30 units"
    text = str(cepheid.explain(queries, HUNDRED))
    assert "one plan for the trees of 2 queries" in text
    assert "[A; B]: joined once for C, D" in text
    assert "A: A, A.x > 3: stored once for C, D" in text
    assert "no other query with its language and window has an equal class of events: apart" in text
    assert "joined once" in cepheid.explain(queries, HUNDRED, format="svg")


def test_equivalence_tests_are_predicates_of_the_union() -> None:
    events = HUNDRED.append_column("k", pa.array([n % 3 for n in range(100)]))
    queries = {kind: f"EVENT SEQ(A a, !(B n), {kind} c) WHERE [k] AND n.x > 4 WITHIN 20" for kind in ("C", "D")}
    deployment, source = deployed(queries, events)
    assert len(deployment.unions[0].operators) == 2
    found = matches_of(deployment, source)
    for name, text in queries.items():
        expected = rows_of(cepheid.match(text, events, evaluator="reference"))
        assert expected and different_rows(expected, found[name]) is None, name


def test_a_union_that_gains_little_is_not_made() -> None:
    events = pa.table({"type": ["A", "B", "C"] * 2000, "ts": range(6000), "x": [n % 7 for n in range(6000)]})
    queries = {kind: f"PATTERN A; {kind} WHERE A.x > {kind}.x WITHIN 50 units" for kind in ("B", "C")}
    deployment, _ = deployed(queries, events)
    assert not deployment.unions
    assert all("together they are expected to cost" in reason for reason in deployment.apart.values())


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("PATTERN A; B; C WITHIN 20 units RETURN count(*) AS n", "it is a summary of all matches"),
        ("PATTERN A; B; C WITHIN 20 units RETURN A.x AS x LIMIT 2", "it ends with its LIMIT"),
        ("PATTERN A; B; C WITHIN 20 events", "it has no window of time"),
        ("PATTERN A; (B | C); D WITHIN 20 units", "its pattern has alternatives"),
        ("PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) { a.x > 3 } WITHIN 20", "chosen by a strategy"),
    ],
)
def test_why_a_query_is_not_united(query: str, reason: str) -> None:
    queries = {"one": "PATTERN A; B; D WITHIN 20 units", "two": "PATTERN A; B; C; D WITHIN 20 units", "three": query}
    deployment, source = deployed(queries, HUNDRED)
    (operator,) = deployment.single_operators
    assert operator.names == ("three",) and reason in deployment.apart[operator.name]
    found = matches_of(deployment, source)
    for name, text in queries.items():
        assert different_rows(rows_of(cepheid.match(text, HUNDRED)), found[name]) is None, name


def test_a_refused_shape_names_the_query() -> None:
    table = pa.table({"type": ["A", "B"], "ts": [1, 2], "k": [1, 1]})
    queries = {"pairs": "EVENT SEQ(A a, B b) WITHIN 5", "sum": "EVENT SEQ(A a, B b) WITHIN 5 RETURN count(*) AS n"}
    with pytest.raises(cepheid.CepheidError, match="the query `sum`: rows of the events of a summary"):
        cepheid.match(queries, table, output="long")
