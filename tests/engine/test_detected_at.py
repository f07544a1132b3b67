"""The column `detected_at`: an event before that time can still invalidate a match, and a later one cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.errors import CepheidError, NotAvailable, PatternProblem

EVENTS = [("A", 0), ("B", 3), ("A", 5), ("B", 6), ("D", 7), ("B", 30), ("C", 31), ("E", 60)]


def found(query: str, events: list[tuple[str, int]], **options: Any) -> list[dict[str, Any]]:
    rows = [{"type": kind, "ts": ts} for kind, ts in events]
    table = cepheid.match(query, pa.Table.from_pylist(rows), detected_at=True, **options)
    return table.to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("evaluator", (None, "reference"))
@pytest.mark.parametrize(
    ("query", "latest"),
    [
        ("EVENT SEQ(A a, B b, !(C c)) WITHIN 10", -1),
        ("EVENT SEQ(A a, B b, !(C c), !(E e)) WITHIN 10", -1),
        ("PATTERN A;B;!C WITHIN 10", 0),
        ("PATTERN SEQ(A a, B b, ~(C c)) WHERE skip_till_next_match(a, b, c) { a.ts > -1 } WITHIN 10", 0),
    ],
)
def test_a_match_is_certain_at_the_end_of_the_window(query: str, latest: int, evaluator: str | None) -> None:
    """`latest` is the time of the last event that invalidates a match, as seen from `detected_at`."""
    matches = found(query, EVENTS, evaluator=evaluator)
    assert matches
    for match in matches:
        assert match["detected_at"] == match["match_start"] + 10
        invalidating = [*EVENTS, ("C", match["detected_at"] + latest)]
        assert match not in found(query, invalidating, evaluator=evaluator)
        assert match in found(query, [*EVENTS, ("C", match["detected_at"] + latest + 1)], evaluator=evaluator)


@pytest.mark.parametrize(
    "query",
    [
        "EVENT SEQ(A a, !(C c), B b) WITHIN 10",
        "EVENT SEQ(!(C c), A a, B b) WITHIN 10",
        "PATTERN A;B+ WITHIN 10",
        "SELECT * FROM A; B",
        "p: EVENT SEQ(A a, B b) WITHIN 10\n\nq: EVENT SEQ(p x, D d) WITHIN 10",
    ],
)
def test_other_matches_are_certain_when_they_end(query: str) -> None:
    matches = found(query, EVENTS)
    assert matches and all(match["detected_at"] == match["match_end"] for match in matches)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("PATTERN A;(B|(D;!C)) WITHIN 10", NotAvailable),
        ("EVENT SEQ(A a, B b, !(C c)) WITHIN 10 events", NotAvailable),
        ("p: EVENT SEQ(A a, !(C c)) WITHIN 10\n\nq: EVENT SEQ(p x, B b) WITHIN 10", NotAvailable),
        ("EVENT SEQ(A a, B b) WITHIN 10 RETURN count(*)", NotAvailable),
        ("EVENT SEQ(A a, B b) WITHIN 10 RETURN a.ts AS detected_at", PatternProblem),
    ],
)
def test_queries_without_one_time_are_refused(query: str, error: type[CepheidError]) -> None:
    with pytest.raises(error, match="detected_at"):
        found(query, EVENTS)


def test_timestamps_shapes_and_the_command_line(tmp_path: Path) -> None:
    query = "EVENT SEQ(A a, !(C c)) WITHIN 10 minutes"
    lines = [{"type": kind, "ts": f"2024-03-01T08:{ts:02}:00Z"} for kind, ts in EVENTS]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for shape in ("events", "flat", "long"):
        command = ["run", "--query", query, "--input", str(tmp_path / "events.jsonl"), "--detected-at"]
        done = CliRunner().invoke(app, [*command, "--output-shape", shape])
        shown = [json.loads(line)["detected_at"] for line in done.stdout.splitlines()]
        assert shown == ["2024-03-01T08:10:00Z", "2024-03-01T08:15:00Z"], done.output
