"""Queries over the matches of other queries: compiled, they find what the oracle finds, whatever the cut of the stream.

The random compositions have two or three levels, in all languages and across them, with inner queries that are certain
late (trailing negations), that are limited, and that several queries use.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from golden_cases import Case, all_cases
from script_harness import finds_matches
from simulation_harness import SCHEMA, TYPES, multiset, random_rows

import cepheid
from cepheid.engine.prepare import Prepared, RunOptions, prepare
from cepheid.engine.spread import spread
from cepheid.errors import NameProblem, PatternProblem
from cepheid.graph import graph_of
from cepheid.io.inputs import Columns
from cepheid.io.source import TableSource
from cepheid.lang import parse
from cepheid.optimize.adapt import Decision
from cepheid.optimize.distribution import Keyed
from cepheid.optimize.stats import Stats
from cepheid.physical import REFERENCE, Plan
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulation

RETURNED = "RETURN x.v AS v, y.v AS w, x.id AS id"
INNER = (
    f"EVENT SEQ(A x, B y) WHERE [id] WITHIN 5 {RETURNED}",
    f"EVENT SEQ(A x, C y) WITHIN 4 {RETURNED}",
    f"EVENT SEQ(A x, !(C z), B y) WHERE [id] WITHIN 5 {RETURNED}",
    f"EVENT SEQ(B x, C y, !(A z)) WHERE [id] WITHIN 4 {RETURNED}",
    f"EVENT SEQ(A x, ANY(B, C) y) WHERE x.v <= y.v WITHIN 3 {RETURNED} LIMIT 3",
    f"PATTERN A x & B y WHERE x.id = y.id WITHIN 4 {RETURNED}",
    f"PATTERN A x;B y;!C z WHERE x.name = y.name WITHIN 4 {RETURNED}",
    f"PATTERN SEQ(A x, B y) WHERE strict_contiguity(x, y) {{ x.v <= y.v }} WITHIN 6 {RETURNED}",
    f"PATTERN SEQ(B x, C y) WHERE skip_till_next_match(x, y) {{ [id] }} WITHIN 6 {RETURNED}",
    "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_any_match(a, b[]) { [id] } WITHIN 4 "
    "RETURN a.v AS v, sum(b.v) AS w, a.id AS id",
    "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) { [id] } WITHIN 6 "
    "RETURN a.v AS v, count(b) AS w, a.id AS id",
    "SELECT x.v AS v, y.v AS w, x.id AS id FROM A x; B y WHERE FILTER(x.id = y.id) AND (x, y) OCCURS WITHIN 5",
)
OUTER = (
    "EVENT SEQ({p} p, {q} q) WHERE p.v <= q.v WITHIN 8",
    "EVENT SEQ({p} p, {q} q) WHERE p.id = q.id WITHIN 12",
    "EVENT SEQ({p} p, !({q} n), C q) WHERE p.id = q.id WITHIN 9",
    "EVENT SEQ(A p, {q} q, !({p} n)) WHERE p.id = q.id WITHIN 7",
    "EVENT {p} p WHERE p.end_time - p.start_time >= 2",
    "PATTERN {p} p & {q} q WHERE p.v = q.v WITHIN 6",
    "PATTERN {p} p;{q} q+;A z WITHIN 9",
    "PATTERN {p} p | {q} q WITHIN 4",
    "PATTERN SEQ({p} p, C q) WHERE strict_contiguity(p, q) {{ }} WITHIN 8",
    "PATTERN SEQ({p} p, C q) WHERE skip_till_next_match(p, q) {{ p.id = q.id }} WITHIN 8",
    "PATTERN SEQ({p}+ p[], {q} q) WHERE skip_till_any_match(p[], q) {{ p[i].v >= p[i-1].v }} WITHIN 5",
    "PATTERN SEQ({p}+ p[], C q) WHERE skip_till_next_match(p[], q) {{ sum(p[..i-1].v) < 9 }} WITHIN 9",
)
MIDDLE = [text for text in OUTER if " q" in text and "+" not in text and "|" not in text]


def composition(rng: random.Random) -> str:
    """The text of a random composition of two or three levels."""
    labels, lines = ["A", "B", "C"], []
    for label in ("P", "Q")[: rng.randint(1, 2)]:
        lines.append(f"{label}: {rng.choice(INNER)}")
        labels.append(label)
    if rng.random() < 0.4:
        middle = rng.choice(MIDDLE).format(p=rng.choice(labels[3:]), q=rng.choice(labels))
        lines.append(f"M: {middle} RETURN p.v AS v, q.v AS w, q.id AS id")
        labels.append("M")
    last = rng.choice(OUTER).format(p=labels[-1], q=rng.choice(labels))
    return "\n".join([*lines, f"Last: {last}"])


def prepared(text: str, table: pa.Table, evaluator: str | None = None) -> Prepared:
    return prepare(parse(text), TableSource.of(table, Columns()), RunOptions(time_unit="ms", evaluator=evaluator))


def compiled(rng: random.Random, count: int) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Random compositions that need no oracle, with events."""
    for _ in range(count):
        while True:
            text, rows = composition(rng), random_rows(rng)
            if prepared(text, pa.Table.from_pylist(rows, SCHEMA)).graph is not None:
                yield text, rows
                break


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(6))
def test_random_compositions_find_what_the_oracle_finds(seed: int) -> None:
    rng, found = random.Random(seed), 0
    for text, rows in compiled(rng, 8):
        found += finds_matches(text, rows, rng, rng.choice((0, 3)))
    assert found >= 1, "no composition had a match"


COMPOSED = [case for case in all_cases() if case.language == "composition" and case.matches is not None]


def _source(case: Case) -> TableSource:
    """The events of a case, each with the attributes of its type."""
    _, events = case.bound()
    names = sorted({name for event in events for name in event.attributes})
    columns = {name: [event.attributes.get(name) for event in events] for name in names}
    times = {"type": [event.type for event in events], "ts": [event.end for event in events]}
    table = pa.table({**columns, **times})
    own: dict[str, dict[str, pa.DataType]] = {event.type: {} for event in events}
    for event in events:
        own[event.type] |= {name: table.schema.field(name).type for name in (*event.attributes, *times)}
    return replace(TableSource.of(table, Columns()), attributes=own)


@pytest.mark.parametrize("case", COMPOSED, ids=lambda case: case.name)
def test_golden_compositions_run_compiled(case: Case) -> None:
    plan = prepare(parse(case.query), _source(case), RunOptions(time_unit="ms")).plan
    assert plan.evaluator != REFERENCE, plan.reasons


MEMBERS = (
    "P: PATTERN SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) { [id] } WITHIN 6\n"
    "Q: EVENT SEQ(P p, C c) WHERE p.b[1].v <= c.v AND sum(p.b.v) > 2 WITHIN 15",
    "P: PATTERN SEQ(A a, B+ b[]) WHERE skip_till_any_match(a, b[]) { [id] } WITHIN 5\n"
    "Q: EVENT SEQ(P p, C c) WHERE p.b[b.LEN].v <= c.v AND count(p.b) > 1 AND p.b.LEN < 4 WITHIN 15 "
    "RETURN p.b[1].v AS f, avg(p.b.v) AS m, max(p.b.name) AS n, c.id AS id",
    "P: PATTERN A a;B b+;C c WITHIN 8\nQ: PATTERN P;A a WHERE sum(P.b.v) >= a.v WITHIN 15\n"
    "R: EVENT SEQ(Q q, B z) WHERE sum(q.P.b.v) > 1 AND q.P.b[1].v <= z.v WITHIN 30",
    "P: PATTERN SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) { } WITHIN 6\n"
    "Q: PATTERN SEQ(P+ p[], C c) WHERE skip_till_next_match(p[], c) { p[i].b[1].v >= p[i-1].a.v AND "
    "sum(p[..i-1].b.v) < 12 } WITHIN 15 RETURN sum(p.b.v) AS total, count(p.b) AS n, c.id AS id",
    "P: PATTERN SEQ(A+ a[], B+ b[]) WHERE skip_till_next_match(a[], b[]) { [id] } WITHIN 6\n"
    "Q: EVENT SEQ(P p, C c) WHERE [id] WITHIN 15",
    "P: PATTERN SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) { } WITHIN 6\n"
    "Q: PATTERN SEQ(P+ p[], C c) WHERE skip_till_next_match(p[], c) { avg(p[..i-1].b.v) <= 2.5 AND avg(p.b.n) > 2 } "
    "WITHIN 15 RETURN avg(p.b.v) AS m, first(p.b.name) AS f, count(p.b.name) AS n, c.id AS id",
    "P: PATTERN A a;B b+;C c WITHIN 8\nQ: PATTERN P p+;A a WITHIN 12\n"
    "R: EVENT SEQ(Q q, B z) WHERE sum(q.p.b.v) > 1 AND count(q.p.b) < 99 WITHIN 30 "
    "RETURN avg(q.p.b.v) AS m, max(q.p.b.name) AS n, q.p.LEN AS l, z.id AS id",
    "P: PATTERN A a | (B b;C c) WHERE [id] WITHIN 4\nQ: PATTERN P p;C z WHERE p.id = z.id WITHIN 9",
    "P: PATTERN A a | B b WITHIN 4\n"
    "Q: EVENT SEQ(P p, C z) WHERE [id] AND p.v <= z.v WITHIN 9 RETURN p.name AS n, z.n AS z",
    "P: PATTERN (A a | B b);(B c | C d) WHERE [id] WITHIN 4\n"
    "Q: PATTERN SEQ(P+ p[], A z) WHERE skip_till_next_match(p[], z) { [id] } WITHIN 9 RETURN p[1].id AS i, z.n AS z",
    "P: PATTERN SEQ(A{2} a[]) WHERE skip_till_next_match(a[]) { [id] } WITHIN 6\n"
    "Q: EVENT SEQ(!(P n), P p, C c) WHERE [id] AND p.id > 0 WITHIN 12 RETURN p.id AS id, c.v AS v",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", MEMBERS)
def test_closures_of_derived_events_are_read_as_the_oracle_reads_them(text: str) -> None:
    rng, found = random.Random(text), 0
    for _ in range(6):
        rows = random_rows(rng)
        assert prepared(text, pa.Table.from_pylist(rows, SCHEMA)).graph is not None
        found += finds_matches(text, rows, rng)
    assert found >= 1


def test_a_query_that_two_others_use_is_one_node() -> None:
    text = "P: EVENT SEQ(A x, B y) WITHIN 5\nQ: EVENT SEQ(P p, C c) WITHIN 9\nR: EVENT SEQ(P p, Q q) WITHIN 20"
    bound = prepared(text, pa.Table.from_pylist([], SCHEMA), REFERENCE).query
    graph = graph_of(bound)
    assert [type(node).__name__ for node in graph.nodes.values()] == ["InputNode", *["QueryNode"] * 3]
    (shared,) = [name for name in graph.nodes if len(graph.consumers(name)) == 2 and name != "input"]
    other = text.replace("P:", "Z:").replace("(P ", "(Z ")
    relabelled = graph_of(prepared(other, pa.Table.from_pylist([], SCHEMA), REFERENCE).query)
    assert shared in relabelled.nodes, "a node is named by its content, not by its label"


def test_the_state_of_a_composed_stream_is_bounded_by_the_windows() -> None:
    text = "P: EVENT SEQ(A x, B y) WHERE [id] WITHIN 5\nQ: EVENT SEQ(P p, C c) WHERE p.x.id = c.id WITHIN 10"
    rows = [
        {"type": "ABC"[n % 3], "ts": n, "id": n // 3 % 4, "v": 1.0, "name": f"name {n}", "n": n} for n in range(1200)
    ]
    source = StreamSource(RowReader(SCHEMA, Columns()), {kind: {f.name: f.type for f in SCHEMA} for kind in TYPES})
    plan = plan_stream({"q": parse(text)}, source, 0, RunOptions(time_unit="ms"), order=("n",), buckets=4)
    assert plan.queries[0].key == ("id",)
    parts = [pa.RecordBatch.from_pylist(rows[at : at + 60], SCHEMA) for at in range(0, len(rows), 60)]
    simulated = Simulation(plan).run(parts)
    sizes = simulated.states
    assert max(sizes[10:]) <= 1.3 * max(sizes[2:8])
    assert sum(batch.num_rows for batch in simulated.matches["q"]) > 100


def test_attributes_of_derived_events_are_no_reason_for_a_warning() -> None:
    text = "P: EVENT SEQ(A x, B y) WHERE [id] WITHIN 5\nQ: EVENT SEQ(P p, C c) WHERE p.x.id = c.id WITHIN 10"
    table = pa.table({"type": list("ABC"), "ts": [1, 2, 3], "id": [1, 1, 1]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cepheid.match(text, table, time_unit="ms").num_rows == 1


def test_explain_shows_which_query_feeds_which() -> None:
    text = "P: EVENT SEQ(A x, B y) WITHIN 5\nQ: PATTERN P;C WITHIN 9\nR: EVENT SEQ(Q q, A z) WITHIN 20"
    shown = cepheid.explain(text, pa.Table.from_pylist([], SCHEMA), time_unit="ms")
    assert "P, which reads the input\n" in shown
    assert "Q, which reads the input and P\n" in shown
    assert "reference" not in shown


def test_a_summary_is_no_input() -> None:
    with pytest.raises(PatternProblem, match="one row about all its matches"):
        parse("P: EVENT SEQ(A x, B y) RETURN count(*)\nQ: EVENT SEQ(P p, C c)")


def test_analysis_counts_the_merged_events() -> None:
    text = "P: EVENT SEQ(A x, B y) WITHIN 5\nQ: EVENT SEQ(P p, C c) WHERE c.v > 9 WITHIN 9"
    rows = [{"type": kind, "ts": at, "id": 1, "v": 1.0, "name": "x", "n": at} for at, kind in enumerate("AABC")]
    shown = cepheid.explain(text, pa.Table.from_pylist(rows, SCHEMA), level="analyze", time_unit="ms")
    assert "events of p: 2 of 2 pass its conditions" in shown
    assert "events of c: 0 of 1 pass its conditions" in shown


def test_a_composition_is_summed_up_over_timestamps() -> None:
    times = pa.array([0, 1_000_000, 2_000_000], pa.timestamp("us"))
    table = pa.table({"ts": times, "type": ["A", "B", "B"], "v": [1, 2, 3]})
    text = "P: EVENT SEQ(A a, B b)\nQ: EVENT P p RETURN count(*) AS n, sum(p.b.v) AS s"
    assert [(row["n"], row["s"]) for row in cepheid.match(text, table).to_pylist()] == [(2, 5)]


def test_a_key_of_closures_alone_partitions_the_whole_composition() -> None:
    text = (
        "P: PATTERN SEQ(A{2} a[]) WHERE skip_till_next_match(a[]) { [id] } WITHIN 6\n"
        "Q: EVENT SEQ(P p, C c) WHERE [id] WITHIN 12"
    )
    found = spread(prepared(text, pa.Table.from_pylist(random_rows(random.Random(1)), SCHEMA)))
    assert isinstance(found, Keyed) and found.attributes == ("id",)


@pytest.mark.parametrize("condition", ["p.v > 0", "[v]"])
def test_an_attribute_that_a_derived_type_lacks_is_unknown_though_the_input_has_it(condition: str) -> None:
    text = f"P: EVENT SEQ(A x, B y) WITHIN 5\nQ: EVENT SEQ(P p, C c) WHERE {condition} WITHIN 9"
    with pytest.raises(NameProblem, match="unknown attribute `v` of `p`") as raised:
        prepared(text, pa.Table.from_pylist(random_rows(random.Random(1)), SCHEMA))
    assert raised.value.hint == "say whose it is: `x.v`, `y.v`"


# --- plans that change ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Alternating:
    """Another plan at every decision."""

    observed_every: int = 1
    seconds_between: float = 0.0
    observations: int = 2
    decisions: int = 0
    plans: set[str] = field(default_factory=set)

    def decide(self, plan: Plan, planned_with: Stats, now: Stats, bases: Sequence[Plan]) -> Decision:
        self.decisions += 1
        chosen = bases[self.decisions % len(bases)]
        self.plans.add(f"{sorted(chosen.query.roles)} {chosen.evaluator}")
        return Decision(chosen, "a test says so")


def test_plans_of_composed_queries_change_during_a_run() -> None:
    """Those of the query and of the one that feeds it; the matches stay the same."""
    rng = random.Random(3)
    rows = [row for _ in range(20) for row in random_rows(rng)]
    table = pa.Table.from_pylist([dict(row, ts=at) for at, row in enumerate(rows)], SCHEMA)
    text = (
        "P: EVENT SEQ(A x, B y) WHERE [id] WITHIN 9 RETURN x.id AS id, x.v AS v\n"
        "Q: EVENT SEQ(P p, C q) WHERE p.id = q.id WITHIN 20"
    )
    policy = Alternating()
    found = cepheid.match(text, table, time_unit="ms", adaptive=policy)
    assert multiset(found) == multiset(cepheid.match(text, table, time_unit="ms")) and found.num_rows
    evaluators = {"stacks", "tree"}
    assert policy.plans >= {f"{names} {evaluator}" for names in (["x", "y"], ["p", "q"]) for evaluator in evaluators}


USERS = pa.array(["U", "U", "V", "V", "U", "V", None] * 2)
KINDS = {"string": USERS, "dictionary": USERS.dictionary_encode(), "large string": USERS.cast(pa.large_string())}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("returned", "pattern"),
    [
        *(
            (f"{of} AS user", pattern)
            for of in ("upper(a.user)", "a.user")
            for pattern in ("Two x, S y", "Two x, Two y")
        ),
        ("upper(a.user) AS user", "Two x, !(Two z), S y"),
        ("a.user AS k", "Two x, Two y"),
    ],
)
def test_an_equivalence_test_over_a_returned_attribute(kind: str, returned: str, pattern: str) -> None:
    """The attribute may have another column than that of the input's events, or the column of the key."""
    name = returned.rpartition(" ")[2]
    query = f"""Two: EVENT SEQ(F a, F b) WHERE a.user = b.user WITHIN 5 units RETURN {returned}
                Outer: EVENT SEQ({pattern}) WHERE [{name}] WITHIN 100 units RETURN x.{name} AS {name}"""
    table = pa.table({"type": ["F", "F", "F", "F", "S", "S", "F"] * 2, "ts": range(14), "user": KINDS[kind]})
    expected = cepheid.match(query, table, evaluator="reference")
    assert expected.num_rows
    assert multiset(cepheid.match(query, table)) == multiset(expected)


UNSEEN = pa.table({"type": ["A", "B", "A", "A"], "ts": [1, 2, 3, 4], "v": [None, 2, 3, 1], "w": [1.0] * 4})
"""Events without the type that an inner query names."""


@pytest.mark.parametrize(
    "condition", ["distance([p.v, p.w], [z.v, z.w]) < 2", "coalesce(p.v, 1) <= 2", "p.v + 1 < z.v", "p.s IS NULL"]
)
def test_attributes_of_a_type_that_the_input_does_not_have_are_computed_with(condition: str) -> None:
    inner = "P: EVENT SEQ(A x, D y) RETURN y.v AS v, x.w AS w, upper(y.s) AS s"
    events = UNSEEN.append_column("s", pa.array(["p"] * 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = cepheid.match(f"{inner}\nQ: SELECT * FROM P p; A z WHERE {condition}", events)
        assert found.num_rows == 0


_UNSEEN = "P: PATTERN B b;C c WITHIN 3\nR: SELECT * FROM P p | C c"
"""Over an input that may have no event of type `B`."""


def _without_b(directory: Path) -> dict[str, Any]:
    """The same rows as a table and a file, whose events have all columns, and with an event of type `B`."""
    table = pa.table({"type": ["A", "C"], "ts": [1, 2], "id": [1, 2]})
    pq.write_table(table, directory / "rows.parquet")
    with_b = pa.concat_tables([pa.table({"type": ["B"], "ts": [0], "id": [9]}), table])
    return {"with B": with_b, "table": table, "file": str(directory / "rows.parquet")}


def test_a_type_without_events_has_all_columns(tmp_path: Path) -> None:
    inputs = _without_b(tmp_path)
    (tmp_path / "rows.csv").write_text("type,ts,id\nA,1,1\nC,2,2\n")
    inputs["text"] = str(tmp_path / "rows.csv")
    schemas = {name: cepheid.match(_UNSEEN, events, time_unit="s").schema for name, events in inputs.items()}
    schemas["reference"] = cepheid.match(_UNSEEN, inputs["table"], time_unit="s", evaluator="reference").schema
    batches = iter(inputs["table"].to_batches())
    schemas["iterator"] = next(iter(cepheid.match(_UNSEEN, batches, time_unit="s"))).schema
    names = {name: ([field.name for field in of.field("p").type], of.names) for name, of in schemas.items()}
    assert all(shown == names["with B"] for shown in names.values()), names


@pytest.mark.parametrize("returned", ["", " RETURN p.a.l AS first, c.l AS last"])
@pytest.mark.parametrize(
    "lists",
    [
        [[1], [2, None], None, []],
        [["a"], ["a", "b"], None, []],
        [[[1.5]], [], None, [None]],
        [[Decimal("1.50")], [], None, [None]],
        [[date(2024, 2, 29)], [], None, [None]],
    ],
    ids=str,
)
def test_lists_of_composite_events_are_lists(lists: list[Any], returned: str) -> None:
    events = pa.table({"type": ["A", "B"] * 4, "ts": range(8), "l": lists * 2})
    query = f"P: PATTERN A a;B b WITHIN 3\nQ: PATTERN P p;A c WITHIN 9{returned}"
    found, expected = (cepheid.match(query, events, evaluator=e) for e in (None, "reference"))
    assert found.schema == expected.schema and found.num_rows > 3
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))


@pytest.mark.parametrize("condition", ["p.id = 2", "p.b.nope = 2"])
def test_a_type_without_events_does_not_decide_whether_a_query_is_accepted(condition: str, tmp_path: Path) -> None:
    for events in _without_b(tmp_path).values():
        for evaluator in (None, "reference"):
            with pytest.raises(NameProblem, match="unknown attribute"):
                cepheid.match(f"{_UNSEEN} WHERE {condition}", events, time_unit="s", evaluator=evaluator)


def test_rows_of_a_type_without_events_may_have_other_attributes(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"type": "A", "ts": 1, "id": 1}\n{"type": "C", "ts": 2, "id": 2}\n')
    for evaluator in (None, "reference"):
        assert cepheid.match(f"{_UNSEEN} WHERE p.b.nope = 2", str(path), time_unit="s", evaluator=evaluator).num_rows
