"""SASE+: negations at the edges of a match, in windows that count the events of a partition."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, note, settings
from hypothesis import strategies as st
from kernel_harness import bound, by_kernel, by_oracle, kernel_of, require_machine_code_agrees, stream_of

import cepheid
from cepheid.explanation import LATE, explosions
from cepheid.lang import parse

STRATEGIES = ("strict_contiguity", "partition_contiguity", "skip_till_next_match", "skip_till_any_match")


def random_text(rng: Random) -> str:
    items: list[str] = []
    singles: list[str] = []
    for name in "abc"[: rng.choice((1, 1, 2, 2, 3))]:
        mark = rng.choice(("", "", "", "+", "*")) if items else rng.choice(("", "", "+"))
        items.append(f"{rng.choice('ABC')}{mark} {name}{'[]' if mark else ''}")
        singles += [] if mark else [name]
    negated = ["n"] if rng.randrange(4) else ["n", "o"]
    for name in negated:
        items.insert(len(items) if rng.randrange(4) else rng.randrange(len(items)), f"~({rng.choice('ABCD')} {name})")
    if rng.randrange(4) == 0:
        items.append(f"{rng.choice('ABC')}* d[]")
    conditions = [rng.choice(("[k]", "[k]", "[k]", "[k, j]"))]
    if len(singles) > 1 and not any("[]" in item for item in items) and rng.randrange(4) == 0:
        conditions = [f"{one}.k = {other}.k" for one, other in itertools.pairwise(singles)]
    for name in negated if singles else ():
        conditions += [f"{name}.v {rng.choice('<>')} {rng.choice(singles)}.v"] if rng.randrange(3) == 0 else []
    window = f"WITHIN {rng.choice((0, 1, 2, 3, 5))} events{rng.choice(('', '', ' OUTPUT NON-OVERLAPPING'))}"
    return f"PATTERN SEQ({', '.join(items)}) WHERE {rng.choice(STRATEGIES)} {{ {' and '.join(conditions)} }} {window}"


def random_rows(rng: Random) -> list[dict[str, Any]]:
    rows, now = [], 0
    has_durations = rng.randrange(4) == 0
    for _ in range(rng.choice((6, 10, 14))):
        now += rng.randrange(3)
        key = rng.choice((0, 1, 1, 0, 0, 1, 1, None))
        row = {"type": rng.choice("AABBCCDX"), "ts": now, "k": key, "j": rng.randrange(2), "v": rng.randrange(4)}
        rows.append(row | ({"began": now - rng.choice((0, 0, 1, 3))} if has_durations else {}))
    return rows


@settings(max_examples=examples(400), deadline=None)
@given(st.randoms(use_true_random=True))
def test_agrees_with_the_oracle_over_every_cut(rng: Random) -> None:
    text, rows = random_text(rng), random_rows(rng)
    note(f"{text}\n{rows}")
    stream = stream_of(rows)
    query = bound(text, stream)
    kernel, expected = kernel_of(query, stream), by_oracle(query, stream)
    for cuts in ((), range(1, len(rows))):
        assert by_kernel(kernel, stream, list(cuts))[0] == expected


ROWS = [{"type": "ABCAAB"[n % 6], "ts": n, "k": n % 2, "j": 0, "v": n % 3} for n in range(40)]
EVENTS = pa.table({"type": list("ADCBDADDCABDCDAAD"), "ts": range(17), "k": [0] * 17})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_machine_code_agrees_with_the_oracle(strategy: str) -> None:
    stream = stream_of(ROWS)
    query = bound(f"PATTERN SEQ(A a, ~(B b)) WHERE {strategy} {{ [k] and b.v < a.v }} WITHIN 3 events", stream)
    require_machine_code_agrees(query, stream, "any_runs" if "any" in strategy else "runs", [7, 20])


@pytest.mark.parametrize("strategy", ["skip_till_next_match", "skip_till_any_match"])
def test_another_query_gets_matches_that_wait_before_an_optional_closure(strategy: str) -> None:
    """Such a match ends long before it is certain: the events that follow it wait, too."""
    for window in ("2", "3", "3 events"):
        key = "{ [k] } " if "events" in window else ""
        inner = f"P: PATTERN SEQ(A a, ~(B b), C* c[]) WHERE {strategy}(a, b, c) {key}WITHIN {window}"
        found, expected = (
            sorted(
                map(str, cepheid.match(f"{inner}\nQ: EVENT SEQ(P p, B d) WITHIN 9", EVENTS, evaluator=e).to_pylist())
            )
            for e in (None, "reference")
        )
        assert found == expected and found


def test_check_says_that_a_stream_shows_such_matches_at_its_end() -> None:
    for text in (
        "PATTERN SEQ(A a, ~(B b)) WHERE skip_till_next_match { [k] } WITHIN 5 events",
        "PATTERN SEQ(A a, ~(B b), C* c[]) WHERE strict_contiguity { [k] } WITHIN 5 events",
        "EVENT SEQ(A a, !(B b)) WHERE [k] WITHIN 5 events",
        "PATTERN A&!B&C WHERE A.k = C.k WITHIN 5 events",
    ):
        assert LATE in explosions(parse(text))
    for text in (
        "PATTERN SEQ(A a, ~(B b)) WHERE skip_till_next_match { [k] } WITHIN 5",
        "PATTERN SEQ(A a, ~(B b)) WHERE skip_till_next_match(a, b) WITHIN 5 events",
        "PATTERN SEQ(~(B b), A a, ~(C c), B d) WHERE skip_till_next_match { [k] } WITHIN 5 events",
        "PATTERN A&C WHERE A.k = C.k WITHIN 5 events",
    ):
        assert LATE not in explosions(parse(text))
