"""Predicates between events over what kernels have no numbers for: strings, long decimals and lists."""

import random
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.app import cli
from cepheid.codegen.encoder import value_key
from cepheid.runtime import texts
from cepheid.values import compare, like

TEXTS = ["ab", "AB", "abc", "b", "", "é", "a%c", None]


def _events(seed: int, count: int = 36) -> pa.Table:
    rng = random.Random(seed)

    def many(*values: Any) -> list[Any]:
        return [rng.choice(values) for _ in range(count)]

    return pa.table(
        {
            "type": many("A", "B", "C"),
            "ts": sorted(many(*range(count))),
            "s": pa.array(many(*TEXTS), pa.string()),
            "v": many(0, 1, 2, 3, None),
            "f": many(0.5, 1.0, 12345678901234567890.0),
            "y": pa.array(many(b"a", b"b", None), pa.binary()),
            "d": pa.array(
                many(*(Decimal(f"{n}345678901234567890.10") for n in range(3)), Decimal(1)), pa.decimal128(30, 2)
            ),
            "l": pa.array(many([1], [1, None], [], None), pa.list_(pa.int64())),
            "m": pa.array(many([1.0], [1.5], [float("nan")]), pa.list_(pa.float64())),
        }
    )


PAIRS = {
    "upper({a}.s) = {b}.s": "CODE",
    "length({a}.s) < length({b}.s)": "INT",
    "{a}.s CONTAINS {b}.s": "characters",
    "lower({b}.s) CONTAINS {a}.s": "characters",
    "{a}.s LIKE 'a%' OR {a}.v < {b}.v": "BOOL",
    "NOT ({a}.s LIKE '_b%') AND {b}.s != {a}.s": "BOOL",
    "({a}.s LIKE 'a%') = ({b}.v > 1)": "a condition as a value",
    "{a}.d + 1 < {b}.d": "long decimals",
    "{a}.d > {b}.v": "a long decimal and an integer",
    "{a}.d < {b}.f": "a long decimal and a float",
    "{a}.l = {b}.l": "lists",
    "{a}.m != {b}.m": "lists with NaN",
    "{a}.l = {b}.m": "lists of different numbers",
    "{a}.l IS NULL OR {b}.v = {a}.v": "null lists",
    "{a}.y = {b}.y": "binary values",
    "hash_f({a}.s, {a}.v) % 2 = {b}.v": "any function of one event",
    "length(upper('ab')) > {a}.v + {b}.v": "a function of constants",
    "lower('AB') LIKE 'a%' AND {a}.v < {b}.v": "a test of constants",
}
FORMS = {
    "stacks": "EVENT SEQ(A a, B b) WHERE {p} WITHIN 12",
    "tree": "PATTERN A a & B b WHERE {p} WITHIN 12",
    "runs": "PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) {{ {p} }} WITHIN 12",
    "any_runs": "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_any_match(a, b) {{ {p} }} WITHIN 6",
}


@pytest.mark.parametrize("evaluator", FORMS)
@pytest.mark.parametrize("pair", PAIRS)
def test_a_predicate_between_events_is_compiled(pair: str, evaluator: str) -> None:
    text = FORMS[evaluator].format(p=pair.format(a="a", b="b[1]" if evaluator == "any_runs" else "b"))
    found = 0
    for seed in range(3):
        events = _events(seed)
        expected = cepheid.match(text, events, output="positions", evaluator="reference")
        matches = cepheid.match(text, events, output="positions", evaluator=evaluator)
        assert sorted(map(str, matches.to_pylist())) == sorted(map(str, expected.to_pylist()))
        found += len(expected)
    assert found
    assert "reference" not in str(cepheid.explain(text, _events(0)))


def test_the_strings_of_a_closure_are_compared() -> None:
    text = "PATTERN A; B+; C WHERE max(B.s) LIKE '%b%' AND length(max(B.s)) > A.v AND C.s CONTAINS min(B.s) WITHIN 12"
    counts = []
    for seed in range(5):
        matches, expected = (
            cepheid.match(text, _events(seed), evaluator=evaluator).to_pylist() for evaluator in ("tree", "reference")
        )
        assert sorted(map(str, matches)) == sorted(map(str, expected))
        counts.append(len(matches))
    assert sum(counts)


@pytest.mark.parametrize(
    "text",
    [
        "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_next_match { count(b[].l) > 0 } WITHIN 12",
        "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match { count(b[].l) = 1 } WITHIN 6",
        "PATTERN A; B+; C WHERE count(B.l) < count(B.s) WITHIN 12",
        "PATTERN A; B+; C WHERE max(B.d) > 1 AND min(B.d) = 1 WITHIN 12",
        "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_any_match { first(b[..i-1].d) != 1 } WITHIN 6",
    ],
)
def test_lists_are_counted_and_long_decimals_compared(text: str) -> None:
    for seed in range(3):
        events = _events(seed)
        matches, expected = (cepheid.match(text, events, output="positions", evaluator=e) for e in (None, "reference"))
        assert sorted(map(str, matches.to_pylist())) == sorted(map(str, expected.to_pylist()))
    assert "reference" not in str(cepheid.explain(text, _events(0)))


def test_a_column_with_the_name_of_a_derived_one_is_not_confused_with_it() -> None:
    events = pa.table({"type": ["A", "B", "B"], "ts": [1, 2, 3], "s": ["x", "X", "x"], "upper(s)": ["p", "p", "q"]})
    text = "EVENT SEQ(A a, B b) WHERE upper(a.s) = b.s WITHIN 9 RETURN b.ts AS ts"
    assert cepheid.match(text, events)["ts"].to_pylist() == [2]
    assert "upper(a.s) = b.s" in str(cepheid.explain(text, events))


def test_a_type_that_lacks_the_attribute_lacks_what_is_derived_from_it(tmp_path: Path) -> None:
    lines = ['{"type": "A", "ts": 1}', '{"type": "B", "ts": 2, "s": "x"}', '{"type": "B", "ts": 3, "s": "y"}']
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    text = "EVENT SEQ(A a, B b) WHERE (a.s LIKE 'z' AND b.s = 'x') OR upper(a.s) < b.s WITHIN 9"
    answers = {}
    for backend in ("local", "reference"):
        arguments = ["run", "--query", text, "-i", tmp_path / "events.jsonl", "--backend", backend]
        done = CliRunner().invoke(cli.app, list(map(str, arguments)))
        answers[backend] = done.stdout.splitlines()
        assert ("stacks" in done.stderr) == (backend == "local"), done.stderr
    assert answers["local"] == answers["reference"] and len(answers["local"]) == 2


@pytest.mark.parametrize("value", ["nullif(x.v, y.v)", "sign(y.v)", "coalesce(y.v, x.v)", "least(x.v, y.v)"])
def test_a_function_of_an_event_of_another_branch_does_not_apply(value: str) -> None:
    events = pa.table({"type": ["A", "B", "C", "C"], "ts": [1, 2, 3, 4], "v": [1, 1, 2, 5]})
    for text in (
        f"PATTERN A x; (B y | C z) WITHIN 9 RETURN x.v / 2 > x.v + {value} AS c, z.ts AS ts",
        f"PATTERN A x; (B y | C z) WHERE z.v / 2 > {value} OR x.v > 9 WITHIN 9 RETURN z.ts AS c",
    ):
        found, expected = (cepheid.match(text, events, evaluator=e).to_pylist() for e in (None, "reference"))
        assert sorted(map(str, found)) == sorted(map(str, expected)) and expected


def test_tests_of_codes_are_the_definitions() -> None:
    known = ["", "a", "ab", "abab", "%b", "a\\%", "\\", "a_", "a%b", "%", "\\a", "é%", "aé"]
    table = texts.string_table(np.arange(len(known)), known)
    for one, text in enumerate(known):
        assert texts.text_length(table, one) == len(text)
        for other, part in enumerate(known):
            assert texts.text_contains(table, one, other) == (part in text)
            assert texts.text_like(table, one, other) == like(text, part), (text, part)


def test_lists_have_one_key_if_they_are_equal() -> None:
    lists: list[list[Any]] = [
        [1],
        [1.0],
        [Decimal(1)],
        [True],
        ["1"],
        [None],
        [],
        [[1]],
        [[1.0]],
        [1, 2],
        [Decimal("1.5")],
        [b"1"],
    ]
    for one in lists:
        for other in lists:
            assert (value_key(one) == value_key(other)) == compare("=", one, other), (one, other)
    assert value_key([float("nan")]) == value_key([None])


NAN = float("nan")
LISTS = {
    "integers": pa.array([[1], [2], None, [], [1], [1, 2], [None], [2], [1]]),
    "floats": pa.array([[0.0], [-0.0], [NAN], [None], [1.5], [1.5], [], None, [NAN]]),
    "strings": pa.array([["a"], ["a", None], None, ["a", None], ["ab"], ["a"], [], [""], [""]]),
    "decimals": pa.array([[Decimal("1.50")]] * 4 + [[Decimal(2)]] * 4 + [[]], pa.list_(pa.decimal128(38, 2))),
    "nothing": pa.array([[], [], None, [None], [None], [], [None, None], [], []], pa.list_(pa.null())),
    "nested": pa.array([[[1]], [[1]], [[2]], None, [], [[]], [[1], None], [[2]], [[1]]]),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("start", [0, 3])
def test_keys_that_are_lists(name: str, start: int) -> None:
    """Also in a part of a column, which begins in the middle of its items."""
    lists = LISTS[name].slice(start)
    count = len(lists)
    table = pa.table({"type": ["A", "B", "A"] * 3, "ts": range(9)}).slice(0, count).append_column("l", lists)
    for query in ("EVENT SEQ(ANY(A, B) x, ANY(A, B) y) WHERE [l]", "PATTERN A x; B y WHERE x.l = y.l WITHIN 9"):
        found, expected = (
            cepheid.match(query + " RETURN x.ts AS a, y.ts AS b", table, evaluator=e).to_pylist()
            for e in (None, "reference")
        )
        assert sorted(map(str, found)) == sorted(map(str, expected))


def test_equal_lists_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = Mock(side_effect=value_key)
    monkeypatch.setattr("cepheid.codegen.encoder.value_key", encoded)
    rows = 1_000
    lists = pa.array([[n % 5, None] for n in range(rows)])
    table = pa.table({"type": ["A", "B"] * (rows // 2), "ts": range(rows), "l": lists})
    assert cepheid.match("EVENT SEQ(A x, B y) WHERE [l] WITHIN 20", table).num_rows
    assert 0 < encoded.call_count <= 5
