"""Random rules and streams for families, and how their matches are compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import strategies as st

from cepheid.deploy import event_tests, family_layout

NAMES = ["A", "B", "C", "D"]


@st.composite
def conditions(draw: Any, name: str) -> str:
    """A condition on one event."""
    number = draw(st.integers(-1, 6))
    op = draw(st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]))
    text = draw(st.sampled_from(["x", "y", "z"]))
    return str(
        draw(
            st.sampled_from(
                [
                    f"{name}.v {op} {number}",
                    f"{number} {op} {name}.v",
                    f"{name}.f {op} {number}.5",
                    f"{name}.f {op} {number}",
                    f"{name}.s = '{text}'",
                    f"{name}.s <> '{text}'",
                    f"{name}.v + 1 {op} {number}",
                    f"{name}.v {op} {number}.5",
                ]
            )
        )
    )


@st.composite
def eql_rules(draw: Any) -> str:
    kind = draw(st.sampled_from(["chain", "chain", "chain", "cancel", "pair", "silence"]))
    names = NAMES[: draw(st.integers(2, 4))] if kind == "chain" else NAMES[:2]
    types = st.sampled_from(["t", "t", "u"])
    tests = [draw(conditions(name)) for name in names for _ in range(draw(st.integers(0, 1)))]
    if kind == "silence":
        tests += [draw(conditions("X"))] * draw(st.integers(0, 1))
        quiet = " AND ".join(["A.k = X.k", *(test for test in tests if "B." not in test)])
        return f"SELECT * FROM (({draw(types)} A @ {draw(st.integers(1, 6))}) \\ {draw(types)} X) WHERE {quiet}"
    has_key = draw(st.integers(0, 4)) > 0
    filters = [f"FILTER({a}.k = {b}.k)" for a, b in itertools.pairwise(names)] if has_key else []
    filters += [f"FILTER({test})" for test in tests if draw(st.integers(0, 2)) == 0]
    where = [test for test in tests if f"FILTER({test})" not in filters]
    if draw(st.integers(0, 3)):
        where.append(f"(A, {names[-1]}) OCCURS WITHIN {draw(st.integers(0, 9))}")
    if len(names) > 2 and draw(st.booleans()):
        where.append(f"({names[1]}, {names[2]}) OCCURS WITHIN {draw(st.integers(0, 5))}")
    pattern = "; ".join(f"{draw(types)} {name}" for name in names)
    if kind in ("cancel", "pair"):
        where += ["A.k = X.k"] if has_key else []
        where += [draw(conditions("X"))] * draw(st.integers(0, 1))
        first, second = pattern.split("; ")
        cancelled = f"{first}; ({second} \\ {draw(types)} X)" if kind == "cancel" else f"({pattern}) \\ {draw(types)} X"
        pattern = cancelled
    text = ", ".join([*filters, *([" AND ".join(where)] if where else [])])
    return f"SELECT * FROM ({pattern})" + (f" WHERE {text}" if text else "")


@st.composite
def sase_rules(draw: Any) -> str:
    names = NAMES[: draw(st.integers(2, 3))]
    tests = [draw(conditions(name)).replace("<>", "!=") for name in names for _ in range(draw(st.integers(0, 2)))]
    pattern = ", ".join(f"{draw(st.sampled_from(['t', 'u']))} {name}" for name in names)
    return f"EVENT SEQ({pattern}) WHERE {' AND '.join(['[k]', *tests])} WITHIN {draw(st.integers(1, 8))}"


@st.composite
def strategy_rules(draw: Any, keyed: bool = False) -> str:
    """Sequences of SASE+. Some are in no family: strict contiguity with a key, and what skips events without one."""
    names = [name.lower() for name in NAMES[: draw(st.integers(2, 4))]]
    strategy = draw(st.sampled_from(["skip_till_next_match", "skip_till_any_match", "partition_contiguity"]))
    has_key = keyed or draw(st.integers(0, 4)) > 0
    if draw(st.integers(0, 4)) == 0:
        strategy, has_key = "strict_contiguity", not keyed and has_key
    tests = [draw(conditions(name)).replace("<>", "!=") for name in names for _ in range(draw(st.integers(0, 2)))]
    pattern = ", ".join(f"{draw(st.sampled_from(['t', 't', 'u']))} {name}" for name in names)
    where = " and ".join([*["[k]"][:has_key], *tests])
    chosen = f"WHERE {strategy}({', '.join(names)})" + (f" {{ {where} }}" if where else "")
    return f"PATTERN SEQ({pattern}) {chosen} WITHIN {draw(st.integers(1, 12))}"


@st.composite
def streams(draw: Any) -> pa.Table:
    size = draw(st.integers(2, 25))

    def column(values: Any, most: int = size) -> list[Any]:
        return list(draw(st.lists(values, min_size=most, max_size=most)))

    steps = column(st.integers(0, 2))
    return pa.table(
        {
            "type": pa.array(["t", "u", *column(st.sampled_from(["t", "t", "u"]), size - 2)]),
            "ts": pa.array([sum(steps[: i + 1]) for i in range(size)], pa.int64()),
            "k": pa.array(column(st.sampled_from([1, 1, 2, None])), pa.int64()),
            "v": pa.array(column(st.sampled_from([*range(-1, 7), None])), pa.int64()),
            "f": pa.array(column(st.sampled_from([0.5, 1.0, 2.5, 3.0, None])), pa.float64()),
            "s": pa.array(column(st.sampled_from(["x", "y", "w", None])), pa.string()),
        }
    )


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


@contextmanager
def as_if_many(data: st.DataObject) -> Iterator[None]:
    """Few rules, sometimes as if they were many: with latent instances, and with rows that stand for many classes."""
    words, rows = data.draw(st.sampled_from([(1, 1), (1, 1 << 20), (8, 1 << 20)]))
    with mock.patch.object(family_layout, "MANY_WORDS", words), mock.patch.object(event_tests, "_ROWS", rows):
        yield
