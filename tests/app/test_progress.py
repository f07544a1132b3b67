"""Commands that may take long show their progress: bars of `report.progress`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from cepheid.app import report
from cepheid.app.cli import app

Shown = dict[str, list[tuple[int, int]]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What each bar has shown: events and matches."""
    bars: Shown = {}

    @contextmanager
    def recorded(what: str, *_: object) -> Iterator[Callable[[int, int], None]]:
        bars[what] = []
        yield lambda done, matches: bars[what].append((done, matches))

    monkeypatch.setattr(report, "progress", recorded)
    return bars


@pytest.fixture
def sources(tmp_path: Path) -> str:
    pq.write_table(pa.table({"type": ["A", "B"], "ts": [1, 2], "k": [1, 1]}), tmp_path / "e.parquet")
    listed = tmp_path / "sources.json"
    listed.write_text(json.dumps({"sources": [{"name": "all", "file": "e.parquet"}], "time_unit": "s"}))
    return str(listed)


def test_detect(shown: Shown, sources: str, tmp_path: Path) -> None:
    (tmp_path / "q.ced").write_text("complex c on A as a, B as b event seq(a, b; 5) where a.k = b.k")
    found = CliRunner().invoke(app, ["detect", "--query-file", str(tmp_path / "q.ced"), "--sources", sources])
    assert json.loads(found.stdout)["match_end"] == 2
    assert shown == {"planning": [], "detecting": [(2, 1)]}


def test_statistics_of_sources(shown: Shown, sources: str) -> None:
    assert CliRunner().invoke(app, ["source", "stats", "--sources", sources]).exit_code == 0
    assert shown == {"reading": []}
