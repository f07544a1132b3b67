"""Times with nanoseconds: timestamps count microseconds (ruling 1), which a warning says where digits are lost."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.io import files

QUERY = "EVENT SEQ(A a, B b) WITHIN 1 second"
FINE, COARSE = [1_709_280_000_000_000_100, 1_709_280_000_000_000_900], [1_709_280_000_000_001_000] * 2
TEXT = "type,ts\nA,2024-03-01 08:00:00.000000100\nB,2024-03-01 08:00:00.0000009\n"
LINES = '{"type":"A","ts":"2024-03-01T08:00:00.000000100Z"}\n{"type":"B","ts":"2024-03-01T08:00:00.000000900Z"}\n'


def table(ticks: list[int]) -> pa.Table:
    return pa.table({"type": ["A", "B"], "ts": pa.array(ticks).cast(pa.timestamp("ns"))})


def _written(name: str, write: Callable[[Path], Any]) -> Callable[[Path], Path]:
    def written(directory: Path) -> Path:
        write(directory / name)
        return directory / name

    return written


EVENTS: dict[str, Callable[[Path], Any]] = {
    "Arrow": lambda _: table(FINE),
    "pandas": lambda _: table(FINE).to_pandas(),
    "batches": lambda _: iter(table(FINE).to_batches()),
    "strings": lambda _: pd.DataFrame({"type": ["A", "B"], "ts": [f"2024-03-01T08:00:00.000000{n}00" for n in (1, 9)]}),
    "Parquet": _written("a.parquet", lambda path: pq.write_table(table(FINE), path)),
    "Feather": _written("a.feather", lambda path: pa.feather.write_feather(table(FINE), str(path))),
    "CSV": _written("a.csv", lambda path: path.write_text(TEXT)),
    "JSON Lines": _written("a.jsonl", lambda path: path.write_text(LINES)),
}


def warned(events: Any, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = cepheid.match(QUERY, events, **options)
        len(found) if hasattr(found, "__len__") else list(found)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("least_text", [0, files.LEAST_TEXT])
@pytest.mark.parametrize("kind", EVENTS)
def test_lost_digits_are_a_warning(kind: str, least_text: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LEAST_TEXT", least_text)
    events = EVENTS[kind](tmp_path)
    found = warned(events)
    assert len([text for text in found if "`ts` has nanoseconds, and timestamps count microseconds" in text]) == 1
    assert any('time_unit="ns", or --time-unit ns' in text for text in found)
    assert any("possible causes: the order of the events; equal times of events" in text for text in found)
    if isinstance(events, Path):
        done = CliRunner().invoke(app, ["run", QUERY, "--input", str(events)])
        assert done.stderr.count("`ts` has nanoseconds") == 1 and "equal times of events" in done.stderr


def test_no_digit_is_lost() -> None:
    assert not any("nanoseconds" in text for text in warned(table(COARSE)))
    integers = pa.table({"type": ["A", "B"], "ts": FINE})
    assert warned(integers) == [] and cepheid.match(QUERY, integers, time_unit="ns").num_rows == 1


def test_equal_times_are_no_cause_where_there_are_none() -> None:
    events = pa.table({"type": ["B", "A"], "ts": [1_709_280_000, 1_709_280_001]})
    (text,) = warned(events)
    assert "the order of the events" in text and "equal times" not in text
