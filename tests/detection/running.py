"""Runs plans over random events in memory, for comparison with the oracle."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

import cepheid
from cepheid.acquire.plans import Plan
from cepheid.acquire.tree import EventTree
from cepheid.detection.detector import UNCERTAIN
from cepheid.detection.partials import Asked
from cepheid.detection.program import Program, bound_tree
from cepheid.engine.prepare import Prepared, RunOptions
from cepheid.io.event_log import EventLog
from cepheid.io.inputs import Columns
from cepheid.lang import parse

TYPES = "ABCD"


@dataclass(frozen=True)
class World:
    """A query and the events of two sources."""

    text: str
    table: pa.Table
    asked: Asked
    prepared: Prepared
    tree: EventTree

    @classmethod
    def of(cls, text: str, table: pa.Table) -> World:
        columns = {field.name: field.type for field in table.schema}
        asked = Asked(table.schema, Columns(), dict.fromkeys(TYPES, columns))
        return cls(text, table, asked, *bound_tree(parse(text), asked, RunOptions()))

    def logs(self, retention: int | None = None) -> dict[str, EventLog]:
        """The events by node: odd and even ones are at two sources."""
        side = pc.bit_wise_and(pc.add(self.table["ts"], self.table["id"]), 1)
        return {
            name: EventLog.of(name, self.table.filter(pc.equal(side, number)), Columns(), retention)
            for number, name in enumerate(("left", "right"))
        }

    def program(self, plan: Plan, logs: Mapping[str, EventLog]) -> Program:
        sources = {kind: tuple(name for name, log in logs.items() if kind in log.streams) for kind in TYPES}
        return Program.of(self.prepared, self.tree, plan, self.asked, sources, RunOptions())

    def expected(self) -> list[str]:
        return rows(cepheid.match(self.text, self.table, evaluator="reference"))


def rows(table: pa.Table) -> list[str]:
    """The matches without their order."""
    columns = [name for name in table.column_names if name != UNCERTAIN]
    return sorted(map(repr, table.select(columns).to_pylist()))


def drawn_table(rng: random.Random, count: int, last: int) -> pa.Table:
    drawn = sorted((rng.randint(0, last), rng.choice(TYPES), rng.randint(1, 3)) for _ in range(count))
    drawn += [(last + 1, kind, number) for kind in TYPES for number in (1, 2)]  # both sources have all types
    kinds, times, keys = [r[1] for r in drawn], [r[0] for r in drawn], [r[2] for r in drawn]
    return pa.table({"type": kinds, "ts": times, "id": keys})


def drawn_query(rng: random.Random) -> str:
    """A random event over A to D: operators in place and by name, negation, and predicates."""
    kinds = rng.sample(TYPES, 4)
    names = dict(zip("abcd", kinds, strict=True))
    left = list(names)
    positive: list[str] = []

    def leaf() -> str:
        return left.pop()

    def operator(depth: int, can_negate: bool) -> str:
        kind = rng.choice(("seq", "and", "seq", "and", "or") if depth else ("seq", "and"))
        count = min(rng.choice((2, 3)), len(left))
        parts = []
        is_negative = [can_negate and kind != "or" and rng.random() < 0.3 for _ in range(count)]
        is_negative[rng.randrange(count)] = False
        for negative in is_negative:
            if len(left) > 2 and depth < 1 and rng.random() < 0.35:
                inner = operator(depth + 1, not negative)
                parts.append(f"!{inner}" if negative else inner)
            elif left:
                name = leaf()
                if not negative:
                    positive.append(name)
                parts.append(f"!{name}" if negative else name)
        if len(parts) == 1:
            return parts[0]
        window = "" if kind == "or" else f"; {rng.choice((3, 6, 12))}"
        return f"{kind}({', '.join(parts)}{window})"

    event = operator(0, True)
    if not event.startswith(("seq", "and")) or all(part.strip().startswith("!") for part in event[4:-1].split(",")):
        return drawn_query(rng)
    used = [name for name in "abcd" if name not in left]
    on = ", ".join(f"{names[name]} as {name}" for name in used)
    where = ""
    if len(used) > 1 and rng.random() < 0.6:
        one, other = rng.sample(used, 2)
        where = f"\nwhere {one}.id = {other}.id"
    return f"complex Q on {on}\nevent {event}{where}"


KEYED = (
    "complex Q on A as a, B as b event seq(a, b; 8) where a.id = b.id",
    "complex Q on A as a, B as b, C as c event and(a, b, !c; 6) where a.id = b.id and b.id = c.id",
    "complex Q on A as a, B as b, C as c event seq(a, !b, c; 9) where a.id = b.id and a.id = c.id and b.ts > 3",
    "complex Q on A as a, B as b, C as c event and(seq(a, b; 6), c; 9) where a.id = c.id and a.id = b.id",
)
COUNTING = (
    "complex Q on A as a, B as b event seq(count(a; 12) > 2, count(b; 12) > 1; 20)",
    "complex Q on A as a, B as b event seq(count(distinct a.id; 12) >= 1.5 group by a.id, b; 8) where a.id > 1",
    "complex Q on A as a, B as b, C as c event and(sum(a.id; 6) < 3 as few, b, !count(c; 4) >= 1; 9)",
    "complex P on A as a, B as b schema id as a.id event and(a, b; 5)\n"
    "complex Q on P as p, C as c event seq(count(p; 15) = 2 group by p.id as pairs, c; 9) where pairs.id = c.id",
    "complex Q on A as a, B as b, C as c event seq(b, !sum(a.id; 5) > 3, c; 12)",
)
NAMED = (
    "complex P on A as a, B as b schema id as a.id event seq(a, b; 5) where a.id = b.id\n"
    "complex Q on P as p, C as c event and(p, c; 8) where p.id = c.id",
    "complex P on A as a, B as b schema id as a.id event seq(a, !b; 5) where a.id = b.id\n"
    "complex Q on P as p, C as c event and(p, c; 8)",
    "complex P on A as a, B as b event and(a, b; 5)\ncomplex Q on P as p, C as c, D as d event seq(c, !p, d; 8)",
    "complex P on A as a, B as b event and(a, b; 5)\ncomplex R on B as b, C as c event seq(b, c; 5)\n"
    "complex Q on P as p, R as r event and(p, r; 8)",
    "source A schema int id\nsource B schema int id\nprimitive X on A as s schema key as s.id\n"
    "complex Q on X as x, B as b event seq(x, b; 6) where x.key = b.id",
    "complex Q on A as x, A as y, B as b event seq(x, y, b; 8) where x.id = y.id",
    *COUNTING,
    *KEYED,
)
