"""Random CED queries with counts and sums over the last while, and random events."""

from __future__ import annotations

import random

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("type", pa.string()),
        ("ts", pa.int64()),
        ("node_id", pa.int64()),
        ("v", pa.int64()),
        ("f", pa.float64()),
        ("k", pa.string()),
    ]
)


def random_events(rng: random.Random, count: int = 60, last: int = 60) -> pa.Table:
    """With simultaneous events, nulls and repeated values. Sums of the floats depend on their order, unless they are
    rounded once."""
    rows = [
        (
            rng.choice("AB"),
            rng.randint(0, last),
            rng.choice((1, 2, 3, None)),
            rng.choice((1, 2, 3, -4, None)),
            rng.choice((0.1, 0.2, 0.7, -1e16, 1e16, None)),
            rng.choice("xyz"),
        )
        for _ in range(count)
    ]
    rows.sort(key=lambda row: row[1])
    return pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)], schema=SCHEMA
    )


def random_count(rng: random.Random, alias: str) -> tuple[str, bool]:
    """A condition, and whether it is grouped by `k`."""
    window = rng.choice((0, 3, 8, 20))
    group, is_keyed = rng.choice(
        (("", False), (f" group by {alias}.k", True), (f" group by ({alias}.k, {alias}.node_id)", True))
    )
    if rng.random() < 0.2:
        share = rng.choice(("50% of 3 nodes", "%40 of 4 nodes"))
        return f"count({alias}; {window}) {rng.choice(('>', '>='))} {share}{group}", is_keyed
    what = rng.choice(
        ("count({0}", "count({0}.v", "sum({0}.v", "sum({0}.f", "count(distinct {0}.k", "count(distinct {0}.v")
    )
    limit = rng.choice(("2", "3", "1.5", "0.5", "0", "-1"))
    return f"{what.format(alias)}; {window}) {rng.choice(('>', '>=', '<', '<=', '=', '!='))} {limit}{group}", is_keyed


def random_counting_query(rng: random.Random) -> str:
    (one, is_keyed), (other, _) = random_count(rng, "a"), random_count(rng, "b")
    window = rng.choice((3, 10))
    conditions = ["a.v > 0"] if rng.random() < 0.4 else []
    form = rng.randrange(5)
    if form == 4:
        on, event = "A as a", one
    elif form == 3:
        on, event = "A as a, B as z", f"and({one} as m, z; {window})"
    else:
        on = f"A as a, {rng.choice('AB')} as b, B as z"
        event = (
            f"seq({one} as m, {other} as n; {window})",
            f"and({one} as m, {other} as n; {window})",
            f"seq({one} as m, !{other} as n, z; {window})",
        )[form]
        on = on if form == 2 else on.removesuffix(", B as z")
    if form in (2, 3) and is_keyed and rng.random() < 0.5:
        conditions.append("m.k = z.k")
    where = f"\nwhere {' and '.join(conditions)}" if conditions else ""
    return f"complex Q on {on}\nevent {event}{where}"
