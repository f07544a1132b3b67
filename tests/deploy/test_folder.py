"""A folder of queries: what is refused, and that the others run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import cepheid
from cepheid import datasets
from cepheid.app.cli import app
from cepheid.app.cli.deployed import Following
from cepheid.deploy.deployment import Written

PAIR = "EVENT SEQ(t a, t b) WHERE [acc] AND a.amount < 60 AND b.amount > 300 WITHIN 1 days"
RULE = "SELECT * FROM (t A; t B) WHERE FILTER(A.acc = B.acc), A.amount < {} AND B.amount > 200"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    queries = tmp_path / "queries"
    queries.mkdir()
    for name, text in {
        "pair.sase": PAIR,
        "twice.sase": "EVENT SEQ(pair p, t c) WHERE p.a.acc = c.acc WITHIN 2 days RETURN c.acc AS acc",
        "low.eql": RULE.format(50),
        "high.eql": RULE.format(80),
        ".hidden": "no query",
    }.items():
        (queries / name).write_text(text)
    datasets.write(datasets.cards(600, accounts=15), tmp_path / "cards.parquet")
    datasets.write(datasets.cards(600, accounts=15), tmp_path / "cards.jsonl")
    return queries


def deploy(folder: Path, *options: str, events: str = "cards.parquet") -> tuple[list[dict[str, object]], str]:
    arguments = ["deploy", str(folder), "--input", str(folder.parent / events), "--time-unit", "ms", *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == (0 if ", 0 refused" in result.stderr else 2), result.output[:300]
    return [json.loads(line) for line in result.stdout.splitlines()], result.stderr


@pytest.mark.parametrize("events", ["cards.parquet", "cards.jsonl"])
def test_each_query_of_a_folder_runs(folder: Path, events: str) -> None:
    rows, summary = deploy(folder, events=events)
    table = datasets.cards(600, accounts=15)
    for name in ("pair", "low", "high"):
        text = next(folder.glob(f"{name}.*")).read_text()
        assert sum(row["query"] == name for row in rows) == len(cepheid.match(text, table, time_unit="ms")) > 0
    composed = f"pair: {PAIR}\n\nTwice: EVENT SEQ(pair p, t c) WHERE p.a.acc = c.acc WITHIN 2 days RETURN c.acc AS acc"
    assert sum(row["query"] == "twice" for row in rows) == len(cepheid.match(composed, table, time_unit="ms")) > 0
    assert "4 queries, 0 refused" in summary


ROWS = """\
{"type": "A", "ts": "2024-03-01 08:00:00", "k": 1, "v": 1, "note": {"x": [1, 2]}}
{"ts": "2024-03-01T08:00:05", "type": "A", "k": 2, "v": 1.50}
{"type": "B", "ts": "2024-03-01 08:00:10", "k": 1, "v": 3, "extra": null}
{"type": "B", "ts": "2024-03-01 08:00:20.5", "k": 2, "v": 2e1}
{"type": "B", "ts": "2024-03-01 08:01:00", "k": 1, "v": 7}
"""
SHOWN = {
    "pair": "EVENT SEQ(A a, B b) WHERE [k] WITHIN 5 hours",
    "high": "EVENT SEQ(A a, B b) WHERE [k] AND a.k > 1 WITHIN 5 hours",
    "first": "EVENT SEQ(A a, B b) WHERE [k] WITHIN 5 hours LIMIT 2",
    "closure": "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) { [k] } WITHIN 5 hours",
    "returned": "EVENT SEQ(A a, B b) WHERE [k] WITHIN 5 hours RETURN a, b.ts AS t, b.v - a.v AS more",
    "count": "EVENT SEQ(A a, B b) WHERE [k] WITHIN 5 hours RETURN count(*) AS n, sum(b.v) AS v",
    "tree": "PATTERN (A x & B y); B z WITHIN 5 hours",
    "other_tree": "PATTERN (A x & B y); B z WHERE x.k = z.k WITHIN 5 hours",
    "derived": "EVENT SEQ(pair p, B b) WITHIN 5 hours",
}


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_matches_are_written_as_run_writes_them(tmp_path: Path, format: str) -> None:
    """The rows of a small text file are shown unchanged."""
    folder, events, one, all = (
        tmp_path / name for name in ("queries", "events.jsonl", f"one.{format}", f"all.{format}")
    )
    folder.mkdir()
    events.write_text(ROWS)
    by_columns = [["pair", "high", "first", "closure"], ["returned"], ["count"], ["tree", "other_tree"]]
    for names in by_columns if format == "csv" else [list(SHOWN)]:
        for file in folder.iterdir():
            file.unlink()
        for name in names:
            (folder / f"{name}.txt").write_text(SHOWN[name])
        command = ["deploy", str(folder), "--input", str(events), "--output", str(all)]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0 and ", 0 refused" in result.stderr, result.output
        written = all.read_text().splitlines()[format == "csv" :]
        for name in names:
            text = f"pair: {SHOWN['pair']}\n\n{name}: {SHOWN[name]}" if name == "derived" else SHOWN[name]
            alone = CliRunner().invoke(app, ["run", text, "--input", str(events), "--output", str(one)])
            assert alone.exit_code == 0, alone.output
            start, cut = (f"{name},", "") if format == "csv" else (f'{{"query": "{name}", ', "{")
            own = [cut + line.removeprefix(start) for line in written if line.startswith(start)]
            assert own == one.read_text().splitlines()[format == "csv" :] != []


@pytest.mark.parametrize(
    ("files", "refused"),
    [
        ({"bad.txt": "no query at all"}, {"bad": ["no language begins with", "at bad, line 1, column 1"]}),
        ({"type.sase": "EVENT SEQ(t a, shelf b) WITHIN 1 hours"}, {"type": ["no event type `shelf`", "column 16"]}),
        ({"attribute.eql": RULE.format(5).replace("A.amount", "A.amont")}, {"attribute": ["amont", "at attribute"]}),
        ({"low.txt": "again"}, {"low": ["several files define the query `low`"]}),
        (
            {"low.txt": "again", "user.sase": "EVENT SEQ(low g, t b) WITHIN 1 hours"},
            {"low": ["several files"], "user": ["it uses the query `low`, which is refused"]},
        ),
        (
            {"x.sase": "EVENT SEQ(y a, t b) WITHIN 1 hours", "y.sase": "EVENT SEQ(x a, t b) WITHIN 1 hours"},
            {"x": ["circle"], "y": ["refused"]},
        ),
        (
            {"user.sase": "EVENT SEQ(gone g, t b) WITHIN 1 hours", "gone.eql": "?"},
            {"user": ["uses"], "gone": ["no lang"]},
        ),
    ],
)
def test_what_is_refused_is_named_and_the_others_run(
    folder: Path, files: dict[str, str], refused: dict[str, list[str]]
) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)
    rows, summary = deploy(folder)
    for name, parts in refused.items():
        assert f"refused: {name}" in summary
        assert all(part in summary for part in parts), summary
    assert {"pair", "high", "twice"} <= {row["query"] for row in rows}
    assert f"{len(refused)} refused" in summary


def test_the_plan_shows_what_is_shared(folder: Path) -> None:
    (folder / "alone.eql").write_text("SELECT * FROM (t A; t B) WHERE FILTER(A.acc = B.acc), A.amount < B.amount")
    result = CliRunner().invoke(
        app,
        ["deploy", str(folder), "--input", str(folder.parent / "cards.parquet"), "--time-unit", "ms", "--plan-only"],
    )
    text = result.stdout
    assert "deployment: 5 queries, 4 operators, one pass" in text
    assert "1; 2: 2 rules, one operator" in text
    assert "amount: 3 constants, one search" in text
    assert "evaluated alone, it compares events with each other, apart from their key and window; only families" in text
    assert "pair (stacks): evaluated once for twice, and its matches are those of pair" in text
    assert " twice (stacks)\n" in text
    table = datasets.cards(100)
    queries = {"one": RULE.format(1), "two": RULE.format(2)}
    picture = cepheid.explain(queries, table, format="svg")
    assert picture.startswith("<svg") and "-- one" in picture and "-- two" in picture  # with the texts of the queries
    many = {f"rule{number}": RULE.format(number) for number in range(25)}
    page = cepheid.explain(many, table, format="html")
    assert "-- rule19\n" in page and "-- rule20\n" not in page and "-- and 5 more" in page
    equal = {"a": "EVENT SEQ(t a, t b) WITHIN 5", "b": "EVENT SEQ(t x, t y) WITHIN 5 RETURN x.acc AS acc"}
    assert "equal queries, evaluated once\n   └─ a, b (stacks)\n" in cepheid.explain(equal, table)


def test_files_that_were_refused_at_the_start_are_not_reported_again() -> None:
    broken, other = Written("broken", "EVENT SEQ(A x, B"), Written("other", "EVENT SEQ(A x, B")
    stored: dict[str, bytes] = {}
    own = SimpleNamespace(read=stored.get, write=stored.__setitem__)
    running: Any = SimpleNamespace(queries={}, stream=SimpleNamespace(checkpoint=SimpleNamespace(own=own)), changes=[])
    running.planned = running.changes.append
    running.change = running.changes.append
    running.is_repeating = False
    found = {"broken": broken}
    following = Following(lambda: (dict(found), {}), refused={"broken": broken.text})
    following(running)
    assert not running.changes
    found["other"] = other
    following(running)
    assert [[*change.add] for change in running.changes] == [["other"], ["other"]]
    running.is_repeating = True  # a change would interrupt a batch once more
    del found["other"]
    following(running)
    assert len(running.changes) == 2
    running.is_repeating = False
    running.queries = {"other": other.text}
    following(running)
    assert running.changes[-1].remove == ("other",)
