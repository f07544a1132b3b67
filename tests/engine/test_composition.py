"""Queries over the matches of other queries: compiled, they find what the oracle finds, whatever the cut of the stream.

The random compositions have two or three levels, in all languages and across them, with inner queries that are certain
late (trailing negations), that are limited, and that several queries use.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from script_harness import in_batches, streamed
from simulation_harness import SCHEMA, multiset, random_rows

import cepheid
from cepheid.engine.prepare import Prepared, RunOptions, prepare
from cepheid.io.inputs import Columns
from cepheid.io.source import TableSource
from cepheid.lang import parse
from cepheid.physical import REFERENCE

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
        table, delay = pa.Table.from_pylist(rows, SCHEMA), rng.choice((0, 3))
        expected = multiset(cepheid.match(text, table, time_unit="ms", evaluator=REFERENCE))
        assert multiset(cepheid.match(text, table, time_unit="ms")) == expected, text
        assert multiset(in_batches(text, table, rng)) == expected, text
        assert multiset(streamed(text, rows, rng, delay)) == expected, text
        found += bool(expected)
    assert found >= 1, "no composition had a match"
