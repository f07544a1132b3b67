"""Local times: the zone of an input, and the hours that clocks repeat or skip."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather, orc
from text_harness import cepheid, lines

from cepheid import Input, match
from cepheid.errors import InputProblem
from cepheid.events import Schema
from cepheid.io import files
from cepheid.io.inputs import Columns, TextOptions
from cepheid.io.stream_files import StreamFiles

BERLIN = "Europe/Berlin"
QUERY = "EVENT SEQ(A a, B b) RETURN b.ts - a.ts AS took"
SPRING = ("2024-03-31 01:50:00", "2024-03-31 03:05:00")
"""15 minutes in Berlin, 75 in UTC."""
SKIPPED = "2024-03-31 02:30:00"
AUTUMN = ("2024-10-27 02:30:00", "2024-10-27T01:00:00Z")
"""Half an hour from the first 2:30, before the second."""


def rows(*times: str) -> list[dict[str, str]]:
    return [{"type": name, "ts": time} for name, time in zip("AB", times, strict=True)]


def as_csv(path: Path, times: tuple[str, ...]) -> Path:
    file = path / "a.csv"
    file.write_text("type,ts\n" + "".join(f"{row['type']},{row['ts']}\n" for row in rows(*times)))
    return file


def as_json(path: Path, times: tuple[str, ...]) -> Path:
    file = path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows(*times)))
    return file


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("written", [as_csv, as_json])
@pytest.mark.parametrize(("times", "minutes"), [(SPRING, 15), (AUTUMN, 30)])
def test_local_times_in_text(
    tmp_path: Path,
    written: Callable[..., Path],
    times: tuple[str, ...],
    minutes: int,
    by_columns: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if by_columns:
        monkeypatch.setattr(files, "LEAST_TEXT", 0)
    file = str(written(tmp_path, times))
    assert match(QUERY, file, zone=BERLIN)["took"].to_pylist() == [timedelta(minutes=minutes)]
    assert match(QUERY, Input(file, zone=BERLIN))["took"].to_pylist() == [timedelta(minutes=minutes)]


@pytest.mark.parametrize("table", [pd.DataFrame, lambda rows: pl.from_pandas(pd.DataFrame(rows)), pa.Table.from_pylist])
@pytest.mark.parametrize("read", [str, datetime.fromisoformat])
def test_local_times_in_tables(table: Callable[..., Any], read: Callable[[str], Any]) -> None:
    def events(*times: str) -> Any:
        return table([{**row, "ts": read(row["ts"])} for row in rows(*times)])

    found = match(QUERY, events(*SPRING), zone=BERLIN)
    assert pa.table(found)["took"].cast(pa.duration("us")).to_pylist() == [timedelta(minutes=15)]
    with pytest.raises(InputProblem, match=r"does not exist in Europe/Berlin"):
        match(QUERY, events(SPRING[0], SKIPPED), zone=BERLIN)


def test_batches_and_days_have_a_zone() -> None:
    schema = pa.schema([("type", pa.string()), ("ts", pa.date32())])
    days = [{"type": "A", "ts": date(2024, 3, 31)}, {"type": "B", "ts": date(2024, 4, 1)}]
    batch = pa.RecordBatch.from_pylist(days, schema)
    for events in (pa.RecordBatchReader.from_batches(schema, [batch]), pa.Table.from_batches([batch])):
        found = match(QUERY, events, zone=BERLIN)
        table = found.read_all() if isinstance(found, pa.RecordBatchReader) else found
        assert table["took"].to_pylist() == [timedelta(hours=23)]


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("written", [as_csv, as_json])
def test_a_time_that_clocks_skip_is_rejected(
    tmp_path: Path, written: Callable[..., Path], by_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_columns:
        monkeypatch.setattr(files, "LEAST_TEXT", 0)
    file = str(written(tmp_path, (SPRING[0], SKIPPED)))
    found, rejects = match("EVENT A a", file, zone=BERLIN, rejects=True)
    assert found.num_rows == 1
    assert rejects["reason"].to_pylist() == [
        f"the time `{SKIPPED}` does not exist in Europe/Berlin: clocks were set forward over it"
    ]


def test_the_command_line_has_zones(tmp_path: Path) -> None:
    file = as_csv(tmp_path, SPRING)
    for arguments in (("--input", file, "--zone", BERLIN), ("--input", f"{file},zone={BERLIN}")):
        (found,) = lines(cepheid("run", "EVENT SEQ(A a, B b) WITHIN 20 minutes", *arguments))
        assert found["b"]["ts"] == "2024-03-31T03:05:00+02:00"


def test_another_format_has_a_zone_unless_it_has_an_offset(tmp_path: Path) -> None:
    german = str(as_csv(tmp_path, ("31.03.2024 01:50", "31.03.2024 03:05")))
    events = Input(german, zone=BERLIN, time_format="%d.%m.%Y %H:%M")
    assert match(QUERY, events)["took"].to_pylist() == [timedelta(minutes=15)]
    with_offset = str(as_csv(tmp_path, ("31.03.2024 01:50 +0000", "31.03.2024 03:05 +0000")))
    events = Input(with_offset, zone=BERLIN, time_format="%d.%m.%Y %H:%M %z")
    assert match(QUERY, events)["took"].to_pylist() == [timedelta(minutes=75)]


def as_columns(path: Path, times: tuple[str, ...], suffix: str = ".parquet", kind: pa.DataType | None = None) -> str:
    moments = pa.array([datetime.fromisoformat(time) for time in times], pa.timestamp("us")).cast(
        kind or "timestamp[us]"
    )
    table = pa.table({"type": ["A", "B"][: len(times)], "ts": moments})
    file = str(path / f"a{suffix}")
    if suffix == ".parquet":
        pq.write_table(table, file)
    elif suffix == ".arrow":
        feather.write_feather(table, file)
    else:
        orc.write_table(table, file)
    return file


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".orc"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_local_times_in_columnar_files(tmp_path: Path, suffix: str, unit: str) -> None:
    file = as_columns(tmp_path, SPRING, suffix, pa.timestamp(unit))
    assert match(QUERY, file, zone=BERLIN)["took"].to_pylist() == [timedelta(minutes=15)]
    assert match(QUERY, Input(file, zone=BERLIN))["took"].to_pylist() == [timedelta(minutes=15)]
    assert match(QUERY, file)["took"].to_pylist() == [timedelta(minutes=75)]
    whole = match("EVENT B b", file, zone=BERLIN)
    assert whole["match_start"][0].as_py() == datetime.fromisoformat("2024-03-31T03:05:00+02:00")
    as_columns(tmp_path, (SPRING[0], SKIPPED), suffix, pa.timestamp(unit))
    found, rejects = match("EVENT A a", file, zone=BERLIN, rejects=True)
    assert found.num_rows == 1
    (reason,) = rejects["reason"].to_pylist()
    assert reason.startswith(f"the time `{SKIPPED}") and "does not exist in Europe/Berlin" in reason
    opened = StreamFiles.first(str(tmp_path), Columns(text=TextOptions(zone=BERLIN)), None, Schema({}), raw=False)
    assert opened is not None
    read = opened.read([file])
    assert read.ticks.tolist() == [1_711_846_200_000_000]
    assert read.rejects["reason"].to_pylist() == [reason]


def test_columnar_files_of_local_times_beside_others(tmp_path: Path) -> None:
    """Read row by row, and merged with an input of another column of time."""
    file = as_columns(tmp_path, SPRING)
    (tmp_path / "b").mkdir()
    later = tmp_path / "b/c.jsonl"
    later.write_text('{"at": "2024-03-31T01:20:00Z"}\n')
    inputs = [Input(file, zone=BERLIN), Input(str(later), type="C", time_column="at")]
    assert match("EVENT SEQ(B b, C c) RETURN c.at - b.ts AS took", inputs)["took"].to_pylist() == [
        timedelta(minutes=15)
    ]
    later.write_text('{"type": "C", "ts": "2024-03-31T01:20:00Z"}\n')
    inputs = [Input(file, zone=BERLIN), Input(str(later))]
    assert match("EVENT SEQ(B b, C c) RETURN c.ts - b.ts AS took", inputs)["took"].to_pylist() == [
        timedelta(minutes=15)
    ]


def test_columnar_files_with_a_zone_keep_it(tmp_path: Path) -> None:
    file = str(tmp_path / "a.parquet")
    moments = [datetime.fromisoformat(time) for time in SPRING]
    pq.write_table(pa.table({"type": ["A", "B"], "ts": pa.array(moments, pa.timestamp("us", "UTC"))}), file)
    assert match(QUERY, file, zone=BERLIN)["took"].to_pylist() == [timedelta(minutes=75)]


def test_streams_keep_their_zone(tmp_path: Path) -> None:
    file = as_csv(tmp_path, SPRING)
    columns = Columns(text=TextOptions(zone=BERLIN))
    opened = StreamFiles.first(str(tmp_path), columns, None, Schema({}), raw=False)
    assert opened is not None
    again = StreamFiles.described(str(tmp_path), Columns(), None, opened.description())
    for one in (opened, again):
        ticks = one.read([str(file)]).ticks
        assert ticks[1] - ticks[0] == 15 * 60_000_000
    with pytest.raises(InputProblem, match="in Europe/Berlin, not in Europe/Paris"):
        other = Columns(text=TextOptions(zone="Europe/Paris"))
        StreamFiles.described(str(tmp_path), other, None, opened.description())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zone": "berlin"}, "did you mean `Europe/Berlin`"),
        ({"zone": "../etc/passwd"}, "is not a zone of time"),
        ({"zone": ""}, "is not a zone of time"),
        ({"zone": BERLIN, "time_format": "%d.%m.%Y %H:%M UTC"}, "is in UTC, so their zone cannot be"),
    ],
)
def test_zones_that_cannot_be(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputProblem) as raised:
        Input("a.csv", **options)
    assert message in str(raised.value)
