"""Random scripts of queries over other queries: two or three levels, in several languages, one inner query for two
outer ones, and at times a summary at the top. By an equal key, or without any."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema([("type", pa.string()), ("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
TYPES = ("A", "B", "C")


def random_script(rng: random.Random) -> str:
    """Every query returns the key and a value, so that any other can use it. All are keyed, or none is."""
    keyed = rng.random() < 0.6
    lines: list[str] = []
    inner: list[str] = []
    for number in range(rng.choice((1, 2, 2))):
        lines.append(f"In{number}: {query_over(rng, inner[-1:], keyed)}")
        inner.append(f"In{number}")
    summary = rng.random() < 0.3
    # The last of them uses all: the first query then feeds two.
    top = query_over(rng, inner, keyed, "count(*) AS n, sum({v}.v) AS s, max({v}.v) AS m" if summary else None)
    return "\n".join([*lines, f"Out: {top}"])


def query_over(rng: random.Random, inner: list[str], keyed: bool, summary: str | None = None) -> str:
    types = [*inner, *rng.choices(TYPES, k=rng.randint(1, 2) if inner else 2)]
    rng.shuffle(types)
    names = [f"x{number}" for number in range(len(types))]
    window = rng.randint(4, 12)
    bound = f"{names[0]}.v <= {names[-1]}.v" if rng.random() < 0.3 else None
    conditions = [f"{a}.k = {b}.k" for a, b in itertools.pairwise(names)] if keyed else []
    conditions += [bound] if bound else []
    chosen = rng.choice(names)
    returned = (summary or "{v}.k AS k, {v}.v AS v").format(v=chosen)
    bindings = [f"{kind} {name}" for kind, name in zip(types, names, strict=True)]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    language = rng.choice(("sase", "zstream", "next", "any", "eql"))
    if language == "sase":
        return f"EVENT SEQ({', '.join(bindings)}){where} WITHIN {window} RETURN {returned}"
    if language == "zstream":
        operator = rng.choice((";", " & "))
        return f"PATTERN {operator.join(bindings)}{where} WITHIN {window} RETURN {returned}"
    if language == "eql" and summary is None:
        filters = [f"FILTER({condition})" for condition in conditions]
        tests = ", ".join([*filters, f"({names[0]}, {names[-1]}) OCCURS WITHIN {window}"])
        return f"SELECT {returned} FROM {'; '.join(bindings)} WHERE {tests}"
    strategy = "skip_till_any_match" if language == "any" else "skip_till_next_match"
    tests = f" {{ {' AND '.join(conditions or [f'{names[0]}.v >= 0'])} }}"
    pattern = f"PATTERN SEQ({', '.join(bindings)}) WHERE {strategy}({', '.join(names)}){tests}"
    return f"{pattern} WITHIN {window} RETURN {returned}"


def random_events(rng: random.Random, count: int) -> pa.Table:
    rows: list[dict[str, Any]] = []
    at = 0
    for _ in range(count):
        at += rng.choice((0, 1, 1, 2))
        key, value = rng.choice((1, 2, 2, 3, None)), rng.choice((0, 1, 2, 3, 4, None))
        rows.append({"type": rng.choice(TYPES), "ts": at, "k": key, "v": value})
    return pa.Table.from_pylist(rows, SCHEMA)
