"""CED's scripts: sources, primitive and complex events, by every way to run them as by the definition."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from script_harness import finds_matches, streamed
from simulation_harness import SCHEMA, random_rows

import cepheid
from cepheid.engine.prepare import RunOptions, prepare
from cepheid.engine.spread import spread
from cepheid.engine.stepping import Stepper
from cepheid.io.inputs import Columns
from cepheid.io.source import TableSource
from cepheid.lang import parse
from cepheid.optimize.distribution import Keyed, Sliced, Undivided
from cepheid.physical import REFERENCE
from cepheid.runtime.kernel import operator_counts

SOURCES = "\n".join(f"source {name} schema int id, double v, string name" for name in "ABC")
PRIMITIVES = (
    "primitive P on A as s, node schema v as s.v, id as s.id, at as node.time",
    "primitive P on A as s, node schema event_id as hash_f(P, node.time, s.id), v as s.v + 1, id as s.id",
    "primitive P on B as s schema event_id as s.name, v as s.v, id as s.id",
    "complex P on A as a, B as b schema event_id as a.name, v as a.v, id as b.id event seq(a, b; 4) where a.id = b.id",
    "complex P on A as a, C as c schema v as c.v, id as a.id event and(a, c; 3)",
    "complex P on B as b, C as c, A as a schema v as b.v, id as b.id event seq(b, !c, !a; 3) where c.id = b.id",
)
EVENTS = (
    "seq(p, c; 6)",
    "and(p, c, b; 4)",
    "seq(and(p, b; 3), c; 5)",
    "or(seq(p, b; 4), seq(c, p2; 4))",
    "seq(p, !b, c; 6)",
    "and(p, !b; 4)",
    "seq(p, !seq(b, c; 3), p2; 9)",
    "seq(seq(p, !b; 3), c; 6)",
    "and(p, !and(b, c; 2), p2; 5)",
    "seq(p, p2; 5)",
)
CONDITIONS = ("p.id = c.id", "p.id = b.id", "p.v <= c.v", "p.id = p2.id", "b.id = c.id", "p2.v >= 2")


def script(rng: random.Random) -> str:
    event = rng.choice(EVENTS)
    names = [name for name in ("p", "p2", "b", "c") if f"{name}," in event or f"{name};" in event]
    conditions = [
        text for text in CONDITIONS if {part.split(".")[0] for part in text.split() if "." in part} <= {*names}
    ]
    chosen = rng.sample(conditions, min(len(conditions), rng.randint(0, 2)))
    streams = {"p": "P", "p2": "P", "b": "B", "c": "C"}
    on = ", ".join(f"{streams[name]} as {name}" for name in names)
    where = f"\nwhere {' and '.join(chosen)}" if chosen else ""
    return f"{SOURCES}\n{rng.choice(PRIMITIVES)}\ncomplex Q on {on}\nevent {event}{where}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(5))
def test_scripts_find_what_the_oracle_finds(seed: int) -> None:
    rng, found = random.Random(seed), 0
    for _ in range(12):
        text, rows, delay = script(rng), random_rows(rng), rng.choice((0, 3))
        table = pa.Table.from_pylist(rows, SCHEMA)
        assert "reference" not in cepheid.explain(text, table, time_unit="ms"), text
        found += finds_matches(text, rows, rng, delay)
    assert found >= 3, "few scripts had a match"


@pytest.mark.parametrize(
    ("text", "divided"),
    [
        ("complex Q on A as a, B as b event and(a, b; 5) where a.id = b.id", Keyed(("id",))),
        (
            "complex Q on A as a, B as b, C as c, D as d event seq(a, !seq(b, c; 2), d; 5)"
            " where a.id = d.id and a.id = b.id and b.id = c.id",
            Keyed(("id",)),
        ),
        ("complex Q on A as a, B as b, C as c event and(seq(a, b; 3), c; 5)", Sliced(0, 8)),
        ("complex Q on A as a, B as b, C as c event seq(seq(a, !b; 3), c; 5)", Sliced(3, 11)),
        ("complex Q on A as a, B as b, C as c event and(seq(a, b), c; 5)", None),
        ("primitive P on A as s, node schema event_id as hash_f(node.time, s.id), id as s.id\n"
         "complex Q on P as p, P as q event seq(p, q; 5) where p.id = q.id", Keyed(("id",))),
        ("primitive P on A as s, node schema event_id as s.name, id as s.id\n"
         "complex Q on P as p, P as q event seq(p, q; 5) where p.id = q.id", None),
    ],
)  # fmt: skip
def test_how_the_work_is_divided(text: str, divided: Keyed | Sliced | None) -> None:
    table = pa.Table.from_pylist(random_rows(random.Random(1)), SCHEMA)
    prepared = prepare(parse(text), TableSource.of(table, Columns()), RunOptions(time_unit="ms"))
    found = spread(prepared)
    assert isinstance(found, Undivided) if divided is None else found == divided


def test_a_trailing_negation_inside_waits_for_its_own_window() -> None:
    """Whatever follows the operator, and in a stream too."""
    rows = [{"type": kind, "ts": ts, "id": 1, "v": 1.0, "name": "x", "n": ts} for kind, ts in
            [("A", 1), ("C", 2), ("B", 4), ("A", 11), ("C", 12), ("A", 30)]]  # fmt: skip
    text = "complex Q on A as a, B as b, C as c event seq(seq(a, !b; 3), c; 5)"
    found = [row["a"]["ts"] for batch in streamed(text, rows, random.Random(1), 0) for row in batch.to_pylist()]
    assert found == [11]


@pytest.mark.parametrize(
    "event",
    ["seq(a, b, c; 10)", "and(seq(a, b; 5), c; 5)", "and(a, !b, c; 10)", "seq(seq(a, !b; 5), c; 5)",
     "seq(a, !seq(b, c; 5), a2; 10)"],
)  # fmt: skip
def test_the_state_does_not_grow_with_the_stream(event: str) -> None:
    names = {"a": "A", "a2": "A", "b": "B", "c": "C"}
    on = ", ".join(f"{kind} as {name}" for name, kind in names.items() if f"{name}," in event or f"{name};" in event)
    rng = random.Random(1)
    rows = [
        {"type": rng.choice("ABC"), "ts": ts, "id": rng.randrange(3), "v": 1.0, "name": "x", "n": 0}
        for ts in range(1_200)
    ]
    table = pa.Table.from_pylist(rows, SCHEMA)
    query = parse(f"complex Q on {on} event {event}")
    prepared = prepare(query, TableSource.of(table, Columns()), RunOptions(time_unit="ms", evaluator="tree"))
    assert prepared.kernel is not None
    stepper = Stepper.start(prepared.kernel, None)
    sizes = []
    for batch in TableSource.of(table, Columns()).batches([]):
        for start in range(0, batch.num_rows, 100):
            list(stepper.step(batch.slice(start, 100)))
            sizes.append(sum(array.nbytes for array in stepper.state))
    # A burst may double a ring once; twenty more windows change nothing.
    assert len(sizes) == 12 and sizes[-1] == sizes[8]


@pytest.mark.parametrize(
    ("event", "where"),
    [
        ("seq(or(a, b), c; 900)", "a.id = c.id and b.id = c.id"),
        ("and(c, or(a, b); 900)", "a.id = c.id and b.id = c.id"),
        ("seq(a, or(b, c); 900)", "a.id = b.id and a.id = c.id"),
    ],
)
def test_the_branches_of_a_disjunction_are_looked_up_by_key(event: str, where: str) -> None:
    rows = [{"type": "ABC"[ts % 3], "ts": ts, "id": ts // 3, "v": 1.0, "name": "x", "n": 0} for ts in range(900)]
    table = pa.Table.from_pylist(rows, SCHEMA)
    query = parse(f"complex Q on A as a, B as b, C as c event {event} where {where}")
    prepared = prepare(query, TableSource.of(table, Columns()), RunOptions(time_unit="ms", evaluator="tree"))
    assert prepared.kernel is not None
    stepper = Stepper.start(prepared.kernel, None)
    for batch in TableSource.of(table, Columns()).batches(["id"]):
        list(stepper.step(batch))
    assert sum(count.tried or 0 for count in operator_counts(prepared.kernel, stepper.state).values()) == 600


def test_events_of_a_negated_operator_that_equal_the_same_event_are_joined_by_key() -> None:
    rows = [{"type": "ABCD"[ts % 4], "ts": ts, "id": ts // 4, "v": 1.0, "name": "x", "n": 0} for ts in range(800)]
    table = pa.Table.from_pylist(rows, SCHEMA)
    text = "complex Q on A as a, B as b, C as c, D as d event seq(a, !and(b, c; 900), d; 900)"
    query = parse(f"{text} where a.id = d.id and a.id = b.id and a.id = c.id")
    prepared = prepare(query, TableSource.of(table, Columns()), RunOptions(time_unit="ms", evaluator="tree"))
    assert prepared.kernel is not None
    stepper = Stepper.start(prepared.kernel, None)
    for batch in TableSource.of(table, Columns()).batches(["id"]):
        list(stepper.step(batch))
    assert sum(count.tried or 0 for count in operator_counts(prepared.kernel, stepper.state).values()) <= 1000


@pytest.mark.parametrize("evaluator", [None, REFERENCE])
def test_a_primitive_event_has_the_node_of_its_source_as_it_is(evaluator: str | None) -> None:
    table = pa.table({"type": ["A", "A"], "ts": [1, 2], "v": [1, 2], "node_id": [7, 8]})
    text = (
        "source A schema int v\nprimitive P on A as a schema v as a.v\ncomplex Q on P as p, P as q event seq(p, q; 5)"
    )
    (row,) = cepheid.match(text, table, evaluator=evaluator).to_pylist()
    assert (row["p"]["node_id"], row["q"]["node_id"]) == (7, 8)
