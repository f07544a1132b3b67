"""Which plan is chosen for events like these, by what is known of them, and what a run of it did (EXPLAIN ANALYZE)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.datasets import synthetic, ticks, write
from cepheid.errors import InputProblem, NotAvailable
from cepheid.optimize.stats import Stats, read_stats, to_json

QUERY_4 = "PATTERN IBM;Sun;Oracle WHERE IBM.price > Sun.price WITHIN 60 units"
STOCKS = {"IBM": 1.0, "Sun": 1.0, "Oracle": 1.0}
SELECTIVE = ticks(6_000, STOCKS, seed=1, prices={"IBM": (1.0, 33.0)})


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPHEID_JIT", "0")


# --- the choice -------------------------------------------------------------------------------------------------------


def test_the_first_events_decide_between_stacks_and_trees() -> None:
    shown = cepheid.explain(QUERY_4, SELECTIVE)
    assert "evaluator: tree, compiled" in shown
    assert re.search(r"stacks: [\d.]+ ns expected for each event, [\d.]+ times that of tree", shown)
    backwards = cepheid.explain(QUERY_4.replace("IBM.price > Sun", "Oracle.price < Sun"), SELECTIVE)
    assert "evaluator: stacks, compiled" in backwards and "tree: " in backwards
    found = cepheid.match(QUERY_4, SELECTIVE, output="positions")
    assert found.num_rows == cepheid.match(QUERY_4, SELECTIVE, output="positions", evaluator="stacks").num_rows


def test_stacks_stay_where_a_key_is_looked_up() -> None:
    table = synthetic(4_000, 20, (100,), seed=1)
    assert "evaluator: stacks" in cepheid.explain("EVENT SEQ(E1, E2, E3) WHERE [attr1] WITHIN 1000", table)


def test_who_asks_for_a_shape_gets_a_tree() -> None:
    shown = cepheid.explain(QUERY_4, SELECTIVE, options={"shape": "right-deep"})
    assert "evaluator: tree" in shown and "stacks: " in shown


def test_what_the_user_knows_comes_first() -> None:
    rare = Stats({"IBM": 1.0, "Sun": 1.0, "Oracle": 0.001}, selectivities={"IBM.price > Sun.price": 1.0})
    shown = cepheid.explain(QUERY_4, SELECTIVE, evaluator="tree", stats=rare)
    assert "about 60 in a window" in shown and "about 0.06 in a window" in shown


def test_nothing_is_sampled_of_few_events_or_of_an_iterator() -> None:
    few = cepheid.explain(QUERY_4, SELECTIVE.slice(0, 100))
    assert "evaluator: stacks" in few and "no statistics are known" in few
    once = iter(SELECTIVE.to_batches())
    assert "no statistics are known" in cepheid.explain("PATTERN IBM IBM;Sun Sun WITHIN 9 units", once)


def test_statistics_of_a_table() -> None:
    stats = cepheid.statistics(QUERY_4, SELECTIVE)
    assert stats.rates["IBM"] == pytest.approx(1 / 3, abs=0.06)
    assert stats.selectivities["IBM.price > Sun.price"] == pytest.approx(1 / 62, abs=0.02)


@pytest.mark.parametrize(
    "query",
    [
        "EVENT SEQ(IBM a, Sun b) WHERE a.price > 0 AND a.price < b.price WITHIN 9 units",
        "PATTERN SEQ(IBM+ a[], Sun b) WHERE skip_till_next_match { a[i].price > a[i-1].price }",
        "SELECT * FROM IBM a; Sun b WHERE FILTER(a.price < b.price)",
        "complex Q on IBM as a, Sun as b event seq(a, b; 9)",
    ],
)
def test_statistics_of_few_events_in_every_language(query: str) -> None:
    few = SELECTIVE.slice(0, 200)
    for events in (few, iter(few.to_batches())):
        stats = cepheid.statistics(query, events)
        assert stats.rates["a"] == pytest.approx(1 / 3, abs=0.1) and stats.rates["b"] > 0
    assert len(cepheid.match(query, few, stats=stats)) == len(cepheid.match(query, few))
    assert cepheid.statistics(query, few.slice(0, 0)) == cepheid.Stats()


def test_statistics_of_a_query_over_others_are_refused() -> None:
    text = "P: EVENT SEQ(IBM a, Sun b) WITHIN 9 units\nQ: EVENT SEQ(P p, IBM c) WITHIN 9 units"
    with pytest.raises(NotAvailable, match="uses other queries"):
        cepheid.statistics(text, SELECTIVE.slice(0, 200))


# --- EXPLAIN ANALYZE --------------------------------------------------------------------------------------------------


def counted(text: str, what: str) -> int:
    found = re.search(rf"─ {what}: ([\d,]+)", text)
    assert found is not None, what
    return int(found.group(1).replace(",", ""))


def test_analyze_counts_what_each_operator_did() -> None:
    table = ticks(4_000, STOCKS, seed=1)
    shown = cepheid.explain(QUERY_4, table, level="analyze", options={"shape": "left-deep"})
    matches = cepheid.match(QUERY_4, table, output="positions").num_rows
    assert counted(shown, "matches") == matches
    joins = re.findall(r"SEQ: .*made ([\d,]+) \(([\d,]+) expected\) of ([\d,]+) tried, ([\d,]+) predicates", shown)
    (last, first) = [[int(number.replace(",", "")) for number in join] for join in joins]
    assert last[0] == matches and last[3] == 0
    assert first[2] == first[3] > first[0]  # each pair of IBM and Sun was tested once
    assert counted(shown, "partial matches") == first[0] and counted(shown, "predicates") == first[3]
    for made, expected, *_ in (first, last):
        assert made == pytest.approx(expected, rel=0.25)
    for stock in STOCKS:
        events = table["type"].to_pylist().count(stock)
        assert f"{stock}: about " in shown and f"made {events:,} (" in shown


@pytest.mark.parametrize(
    ("query", "operator"),
    [
        ("PATTERN IBM;!Sun;Oracle WITHIN 40 units", "NSEQ, pushed down, of Sun"),
        ("PATTERN IBM;Oracle;!Sun WITHIN 40 units", "NEG, on top, of Sun"),
        ("PATTERN IBM;Sun+;Oracle WITHIN 20 units", "groups, on top, of Sun"),
        ("PATTERN IBM&Sun WITHIN 20 units", "CON"),
        ("PATTERN (IBM|Sun);Oracle WITHIN 20 units", "DIS"),
    ],
)
def test_analyze_knows_every_operator(query: str, operator: str) -> None:
    shown = cepheid.explain(query, ticks(900, STOCKS, seed=1), level="analyze", evaluator="tree")
    line = next(line for line in shown.splitlines() if operator in line)
    made = re.search(r"made ([\d,]+)", line)
    assert operator.startswith("NSEQ") or (made and int(made.group(1).replace(",", "")) > 0)
    assert counted(shown, "matches") > 0


def test_analyze_of_stacks_counts_instances() -> None:
    shown = cepheid.explain("EVENT SEQ(IBM a, Sun b) WITHIN 9", SELECTIVE, level="analyze", evaluator="stacks")
    assert "─ events of a: " in shown and " pass its conditions" in shown
    assert counted(shown, "instances of a") == SELECTIVE["type"].to_pylist().count("IBM")


def test_the_reference_counts_nothing() -> None:
    with pytest.raises(NotAvailable, match="has no counters"):
        cepheid.explain(QUERY_4, SELECTIVE, level="analyze", evaluator="reference")


def run(*arguments: Any, command: str = "explain") -> str:
    result = CliRunner().invoke(app, [command, *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_line_analyzes_and_reads_statistics(tmp_path: Path) -> None:
    data, known = tmp_path / "ticks.jsonl", tmp_path / "stats.json"
    write(ticks(3_000, STOCKS, seed=1, prices={"IBM": (1.0, 33.0)}), data)
    assert "instances of IBM: " in run("PATTERN IBM;Sun;Oracle WITHIN 20 units", "--analyze", "--input", data)
    assert "expected) of " in run(QUERY_4, "--analyze", "--input", data)
    known.write_text(to_json(Stats({"IBM": 1.0, "Sun": 1.0, "Oracle": 0.5}, {}, {"IBM.price > Sun.price": 0.01})))
    assert "about 60 in a window" in run(QUERY_4, "--input", data, "--stats", known)
    assert CliRunner().invoke(app, ["explain", QUERY_4, "--analyze"]).exit_code != 0


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_statistics_in_a_file_decide_how_a_query_is_run(ending: str, tmp_path: Path) -> None:
    data, known = tmp_path / f"ticks.{ending}", tmp_path / "stats.json"
    write(ticks(3_000, STOCKS, seed=1, prices={"IBM": (1.0, 33.0)}), data)
    for selectivity, evaluator in ((0.01, "tree"), (1.0, "stacks")):
        known.write_text(to_json(Stats(dict.fromkeys(STOCKS, 1.0), {}, {"IBM.price > Sun.price": selectivity})))
        told = run("--query", QUERY_4, "--input", data, "--backend", "local", "--stats", known, command="run")
        assert f"evaluated by the compiled evaluator `{evaluator}`" in told


def test_the_reference_has_no_plan_for_statistics(tmp_path: Path) -> None:
    data, known = tmp_path / "ticks.jsonl", tmp_path / "stats.json"
    write(ticks(30, STOCKS, seed=1), data)
    known.write_text("{}")
    arguments = ["run", "--query", QUERY_4, "--input", str(data), "--stats", str(known), "--backend", "reference"]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2
    assert "--backend local" in refused.output


def test_statistics_that_are_not_there() -> None:
    with pytest.raises(InputProblem, match="cannot be read"):
        read_stats("no/such/file.json")


@pytest.mark.parametrize("pattern", ["SEQ(E1 a, E2 b)", "SEQ(E1 a, E2 b, E3 c)", "SEQ(E1 a, !(E2 b), E3 c)"])
def test_sequences_of_one_key_go_to_stacks(pattern: str) -> None:
    """What stacks keep of an event is less than a tree's buffers take, and it is found by one look."""
    events = synthetic(40_000, 3, (10_000,), seed=1)
    shown = cepheid.explain(f"EVENT {pattern} WHERE [attr1] WITHIN 10000", events)
    assert "evaluator: stacks" in shown and "tree:" in shown
