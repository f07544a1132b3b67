"""Times that Python's types cannot hold, in rejected rows and in attributes that are shown."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.io.rows import python_values

QUERY = "EVENT SEQ(A x, B y) WITHIN 5 s"
FAR = {"us": 2**62, "ms": 2**60, "s": 2**50}
MICROSECONDS = {"us": 1, "ms": 10**3, "s": 10**6}


def events(unit: str, zone: str | None = None) -> pa.Table:
    """The time of the last row does not fit; the first row has attributes that Python cannot hold."""
    return pa.table(
        {
            "type": ["A", "B", "B"],
            "ts": pa.array([0, 1, FAR[unit]], pa.timestamp(unit, zone)),
            "at": pa.array([2**62, 0, 2**62], pa.timestamp("us")),
            "day": pa.array([2**31 - 1, 0, None], pa.date32()),
            "item": pa.array([{"at": FAR[unit]}] * 3, pa.struct([("at", pa.timestamp(unit))])),
        }
    )


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("unit", FAR)
@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_rows_of_files_are_rejected_and_attributes_shown(
    format: str, unit: str, zone: str | None, tmp_path: Path
) -> None:
    file, rejects = tmp_path / f"events.{format}", tmp_path / "rejects.jsonl"
    pq.write_table(events(unit, zone), file) if format == "parquet" else feather.write_feather(
        events(unit, zone), str(file)
    )
    result = CliRunner().invoke(app, ["run", QUERY, "--input", str(file), "--rejects", str(rejects)])
    assert result.exit_code == 0, result.exception
    assert "3 rows read = 2 events + 1 reject, 1 match" in result.stderr
    assert json.loads(result.stdout)["x"]["at"] == str(2**62)
    (reject,) = map(json.loads, rejects.read_text().splitlines())
    assert reject["line"] == 3 and "does not fit" in reject["reason"]
    assert json.loads(reject["raw"])["at"] == 2**62


@pytest.mark.parametrize("unit", FAR)
def test_rows_of_tables_are_rejected(unit: str) -> None:
    matches, rejected = cepheid.match(QUERY, events(unit), rejects=True)
    assert (matches.num_rows, rejected.num_rows) == (1, 1)
    with pytest.raises(cepheid.errors.CepheidError, match=f"`ts` is {FAR[unit] * MICROSECONDS[unit]}"):
        cepheid.match(QUERY, events(unit))


def test_values_that_python_cannot_hold_are_counts_of_microseconds() -> None:
    nested = pa.struct([("a", pa.timestamp("s")), ("b", pa.list_(pa.timestamp("ms")))])
    assert python_values(pa.array([{"a": 2**50, "b": [2**60, None]}, None], nested)) == [
        {"a": 2**50 * 10**6, "b": [2**60 * 1000, None]},
        None,
    ]
    assert python_values(pa.array([2**31 - 1, None], pa.date32())) == [(2**31 - 1) * 86_400 * 10**6, None]
    assert python_values(pa.array([2**62], pa.duration("s"))) == [2**62 * 10**6]


def test_a_simulated_stream_shows_events_beyond_the_year_9999() -> None:
    table = pa.table({"type": ["A", "B"], "ts": pa.array([2**60, 2**60 + 1], pa.timestamp("us")), "id": [1, 1]})
    assert cepheid.verify(f"{QUERY} RETURN y.ts AS at", table, streams=2, seed=1).agrees
