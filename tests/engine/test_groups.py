"""Closures of groups in ZStream, `A;(B;C)+;A`, held to a definition that knows no composition."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from script_harness import finds_matches
from simulation_harness import SCHEMA, multiset, random_rows

import cepheid

Row = dict[str, Any]
Occurrence = dict[str, Row]
WINDOW = 14


def sequences(rows: list[Row]) -> Iterator[Occurrence]:
    for b, c in product(rows, rows):
        if (b["type"], c["type"]) == ("B", "C") and b["ts"] < c["ts"] <= b["ts"] + WINDOW:
            yield {"b": b, "c": c}


def either(rows: list[Row]) -> Iterator[Occurrence]:
    yield from ({row["type"].lower(): row} for row in rows if row["type"] in "BC")


def both(rows: list[Row]) -> Iterator[Occurrence]:
    for b, c in product(rows, rows):
        if (b["type"], c["type"]) == ("B", "C") and abs(b["ts"] - c["ts"]) <= WINDOW:
            yield {"b": b, "c": c}


def same(one: Any, other: Any) -> bool:
    return one is not None and one == other


def less(one: Any, other: Any) -> bool:
    return one is not None and other is not None and one < other


Test = Callable[[Row, Occurrence, Row], bool]
CASES: dict[str, tuple[Callable[[list[Row]], Iterator[Occurrence]], Test]] = {
    "(B b;C c)+": (sequences, lambda a, o, d: True),
    "(B b;C c)+ WHERE b.id = c.id AND a.v < c.v": (
        sequences,
        lambda a, o, d: same(o["b"]["id"], o["c"]["id"]) and less(a["v"], o["c"]["v"]),
    ),
    "(B b;C c)+ WHERE [id]": (sequences, lambda a, o, d: all(same(one["id"], a["id"]) for one in (*o.values(), d))),
    "(B b & C c)+ WHERE b.v < 3 AND b.id = a.id": (
        both,
        lambda a, o, d: less(o["b"]["v"], 3) and same(o["b"]["id"], a["id"]),
    ),
    "(B b|C c)+": (either, lambda a, o, d: True),
    "(B b|C c)+ WHERE b.v < d.v AND c.v < 3": (
        either,
        lambda a, o, d: less(o["b"]["v"], d["v"]) if "b" in o else less(o["c"]["v"], 3),
    ),
    "(B b|C c)+ WHERE [id] AND b.name = a.name": (
        either,
        lambda a, o, d: (
            all(same(one["id"], a["id"]) for one in (*o.values(), d))
            and ("b" not in o or same(o["b"]["name"], a["name"]))
        ),
    ),
}
RETURNED = "a.n AS a, count(b_c) AS n, sum(b.v) AS b, max(c.n) AS c, min(b.name) AS s, d.n AS d"


def defined(rows: list[Row], case: str) -> list[Row]:
    """All occurrences between each pair of neighbours that satisfy the conditions."""
    occurrences, holds = CASES[case]
    found, known = [], list(occurrences(rows))
    for a, d in product(rows, rows):
        if (a["type"], d["type"]) != ("A", "A") or not a["ts"] < d["ts"] <= a["ts"] + WINDOW:
            continue
        group = [o for o in known if all(a["ts"] < one["ts"] < d["ts"] for one in o.values()) and holds(a, o, d)]

        def values(var: str, name: str, group: list[Occurrence] = group) -> list[Any]:
            return [o[var][name] for o in group if var in o and o[var][name] is not None]

        if group:
            found.append(
                {
                    "a": a["n"],
                    "n": len(group),
                    "b": sum(values("b", "v")) if values("b", "v") else None,
                    "c": max(values("c", "n"), default=None),
                    "s": min(values("b", "name"), default=None),
                    "d": d["n"],
                    "match_start": a["ts"],
                    "match_end": d["ts"],
                }
            )
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_a_group_has_all_its_occurrences_between_its_neighbours(case: str) -> None:
    closure, _, where = case.partition(" WHERE ")
    conditions = f"WHERE {where}" if where else ""
    text = f"PATTERN A a;{closure};A d {conditions} WITHIN {WINDOW} RETURN {RETURNED}"
    rng, reached = random.Random(case), 0
    for _ in range(5):
        rows = random_rows(rng)
        table = pa.Table.from_pylist(rows, SCHEMA)
        expected = multiset(
            pa.Table.from_pylist(defined(rows, case), cepheid.match(text, table, time_unit="ms").schema)
        )
        reached += finds_matches(text, rows, rng, expected=expected)
    assert reached >= 2


SHAPES = (
    "PATTERN A a;(B b;C c)^2;A d WHERE b.id = c.id WITHIN 14",
    "PATTERN A a;(B b|C c){2,};A d WHERE [id] WITHIN 12",
    "PATTERN A a;(B b;C c)* WITHIN 6",
    "PATTERN (B b;C c)+;A d WHERE c.v <= d.v WITHIN 8",
    "PATTERN A a;(B b+;C c)+;A d WHERE count(b) < 3 WITHIN 8 RETURN count(b) AS n, sum(b.v) AS s, max(c.v) AS m",
    "PATTERN A a;((B b;C c)+;B e)+ WHERE b.v <= c.v WITHIN 7 RETURN sum(b.v) AS s, count(e) AS e, count(c) AS c",
    "PATTERN A a;(B b|(C c;B d))+;A z WHERE c.id = d.id AND b.v >= a.v WITHIN 9",
    "PATTERN A a;(B b;!A x;C c)+;A z WHERE [id] WITHIN 9 RETURN count(*) AS n, sum(a.v) AS s",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", SHAPES)
def test_closures_of_groups_run_compiled_whatever_the_cut(text: str) -> None:
    rng, reached = random.Random(text), 0
    for _ in range(4):
        reached += finds_matches(text, random_rows(rng), rng, 2)
    assert reached >= 1
