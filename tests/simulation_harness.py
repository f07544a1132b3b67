"""What tests of simulated streams share: random events in an allowed order, queries and results as multisets."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("type", pa.string()),
        ("ts", pa.int64()),
        ("id", pa.int64()),
        ("v", pa.float64()),
        ("name", pa.string()),
        ("n", pa.int64()),
    ]
)
TYPES = ("A", "B", "C")
QUERIES = (
    "EVENT SEQ(A x, B y, C z) WHERE [id] WITHIN 6",
    "EVENT SEQ(A x, !(B y), C z) WHERE [id] WITHIN 6",
    "EVENT SEQ(!(A x), B y, C z) WHERE [id] AND x.v > z.v WITHIN 6",
    "EVENT SEQ(A x, B y, !(C z)) WHERE [id] AND z.v > x.v WITHIN 6",
    "EVENT SEQ(A x, B y, !(ANY(A, C) z)) WHERE x.name = z.name WITHIN 5",
    "EVENT SEQ(ANY(A,B) x, ANY(B,C) y) WHERE x.v + 1 > y.v WITHIN 4 events",
    "EVENT SEQ(A x, B y, C z) WHERE [id] WITHIN 4 events",
    "EVENT SEQ(A x, B y) WHERE x.name <= y.name AND [id]",
    "EVENT SEQ(A x, B y) WHERE [name] WITHIN 5",
    "EVENT SEQ(A x, B y) WHERE [id] WITHIN 5 LIMIT 3",
    "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) {[id]} WITHIN 8",
    "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_any_match(a, b[]) {[id]} WITHIN 5",
    "PATTERN SEQ(A a, B+ b[], C c) WHERE partition_contiguity(a, b[], c) {[id]} WITHIN 8",
    "PATTERN SEQ(A a, B b) WHERE strict_contiguity(a, b) {a.v <= b.v} WITHIN 8",
    "PATTERN SEQ(A a, B+ b[], ~C c) WHERE skip_till_next_match(a, b[]) {[id]} WITHIN 8",
    "PATTERN A a;B b+;C c WHERE a.id = c.id WITHIN 8 RETURN a, count(b), c",
    "PATTERN A a & B b WITHIN 4",
    "PATTERN A a;B b;!C c WHERE a.name = b.name WITHIN 4",
    "PATTERN A a;!C c WHERE c.name < a.name WITHIN 4",
    "PATTERN A a;B b;!C c WHERE c.name < a.name OR (b.name = 'q' AND c.v > a.v) WITHIN 4",
    "EVENT SEQ(A x, B y, !(C z)) WHERE z.name < x.name OR (x.name = 'q' AND z.v > x.v) WITHIN 5",
    "PATTERN SEQ(A a, B+ b[], ~C c) WHERE skip_till_any_match(a, b[]) {[id] AND c.name < a.name} WITHIN 5",
)
EQL_QUERIES = (
    "SELECT * FROM A; B; C WHERE FILTER(A.id = B.id = C.id), (A, C) OCCURS WITHIN 6",
    "SELECT * FROM A+; B WHERE FILTER(A.id = PREV(A.id)), FILTER(A.id = B.id), (A, B) OCCURS WITHIN 5",
    "SELECT * FROM A+ WHERE FILTER(A.id = PREV(A.id)), sum(A.v) < 9, (A, A) OCCURS WITHIN 6",
    "SELECT * FROM A; (B; C) WHERE (A, C) OCCURS WITHIN 6, B.name <= C.name",
    r"SELECT * FROM (A @ 4) \ B WHERE A.id = B.id",
    r"SELECT * FROM A; (B \ C) WHERE FILTER(A.id = B.id), A.id = C.id",
    "SELECT * FROM A; B WHERE FILTER(upper(A.name) = upper(B.name)), (A, B) OCCURS WITHIN 6",
    "SELECT * FROM A; B WHERE FILTER(upper(A.name) = upper(B.name)), FILTER(A.id = B.id), (A, B) OCCURS WITHIN 6",
    "EVENT SEQ(A x, B y) WHERE [id] WITHIN 6 RETURN count(*) AS n, sum(x.n) AS s, min(y.name) AS m, first(y.v) AS f",
    "PATTERN A a;B b+;C c WHERE a.id = c.id WITHIN 8 RETURN count(*) AS n, last(b.name) AS l, max(b.v) AS m",
    "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match(a, b[], c) {[id]} WITHIN 8 OUTPUT NON-OVERLAPPING",
    "PATTERN SEQ(A a, B b, ~C c) WHERE skip_till_next_match(a, b) {[id]} WITHIN 6 OUTPUT NON-OVERLAPPING",
    "PATTERN SEQ(A a, B b) WHERE skip_till_any_match(a, b) {upper(a.name) = upper(b.name)} WITHIN 5 events",
    "EVENT SEQ(A x, B y, !(C z)) WHERE x.name CONTAINS z.name OR z.name LIKE '_' WITHIN 5",
)


def batch(rows: Sequence[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema)


def event(kind: str, ts: int | None, **more: Any) -> dict[str, Any]:
    return {"type": kind, "ts": ts, "id": 1, "v": 1.0, "name": "x", "n": 0, **more}


def multiset(batches: Sequence[pa.RecordBatch] | pa.Table) -> Counter[str]:
    rows = batches.to_pylist() if isinstance(batches, pa.Table) else [row for b in batches for row in b.to_pylist()]
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in rows)


def random_rows(rng: random.Random) -> list[dict[str, Any]]:
    at = rng.choice((-50, 0, 1000))
    rows = []
    for number in range(rng.randint(5, 30)):
        at += rng.choice((0, 1, 1, 2))
        rows.append(
            event(
                rng.choice(TYPES),
                at,
                id=rng.choice((1, 2, None, 1, 2)),
                v=rng.choice((1.0, 2.0, 3.0, None, 2.5)),
                name=rng.choice(("p", "q", "r", None)),
                n=number,
            )
        )
    return rows


def cut(
    rng: random.Random, rows: Sequence[dict[str, Any]], disorder: int, schema: pa.Schema = SCHEMA
) -> list[pa.RecordBatch]:
    """The rows in an order that a watermark of this delay allows, in batches of any size."""
    mixed = sorted(rows, key=lambda row: row["ts"] + (rng.randint(0, disorder) if disorder else 0))
    edges = sorted({0, len(mixed), *(rng.randint(0, len(mixed)) for _ in range(rng.randint(0, 6)))})
    return [batch(mixed[a:b], schema) for a, b in pairwise(edges)]
