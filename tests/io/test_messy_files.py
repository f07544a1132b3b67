"""CSV files as people have them: other numbers, times and encodings, and what spreadsheets add."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest
from text_harness import cepheid, lines

from cepheid import Input, match
from cepheid.errors import InputProblem
from cepheid.events import Schema
from cepheid.io import files
from cepheid.io.formats import RawRow
from cepheid.io.formats.csv import csv_columns, csv_rows
from cepheid.io.inputs import Columns, TextOptions
from cepheid.io.stream_files import StreamFiles

QUERY = (
    "EVENT SEQ(P a, P b) WHERE a.user = b.user AND b.amount > a.amount WITHIN 1 hour "
    "RETURN a.amount AS x, b.amount AS y"
)
GERMAN = TextOptions(decimal="comma", thousands=".", time_format="%d.%m.%Y %H:%M", encoding="latin-1")
ROWS = [("M\u00fcller", "31.12.2024 23:58", "1.234,50"), ("M\u00fcller", "31.12.2024 23:59", "2.000.000,25")]
CASES = {
    "german": (
        "sep=;\r\nuser ;at; amount ;;\r\n" + "".join(";".join(row) + ";;\r\n" for row in ROWS),
        "decimal=comma,thousands=.,encoding=latin-1,time-format=%d.%m.%Y %H:%M",
        "latin-1",
    ),
    "american": (
        'user,at,amount\nann,12/31/2024 11:58 PM,"1,234.50"\nann,12/31/2024 11:59 PM,"2,000,000.25"\n',
        "thousands=,,time_format=%m/%d/%Y %I:%M %p",
        "utf-8-sig",
    ),
    "french": (
        "user\tat\tamount\nann\t2024-12-31 23:58\t1\u202f234,50\nann\t2024-12-31 23:59\t2\u202f000\u202f000,25\t\t\n",
        "decimal=comma,thousands=space",
        "utf-16",
    ),
    "cells beyond the header": (
        'user,at,amount\n"an\nn",2024-12-31 23:58,1234.5,,\n"an\nn",2024-12-31 23:59,2000000.25,\n',
        "sep=comma",
        "utf-8",
    ),
}


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_messy_files(tmp_path: Path, case: str, by_columns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if by_columns:
        monkeypatch.setattr(files, "LEAST_TEXT", 0)
    text, options, encoding = CASES[case]
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    found = cepheid("run", "--query", QUERY, "--input", f"{tmp_path / 'a.csv'},type=P,time=at,{options}")
    assert found.exit_code == 0, found.stderr
    assert [(row["x"], row["y"]) for row in map(json.loads, found.stdout.splitlines())] == [(1234.5, 2000000.25)]


@pytest.mark.parametrize("skips", ["", "sep=;\n"])
def test_rows_and_columns_are_the_same(tmp_path: Path, skips: str) -> None:
    columns, file = Columns(type="user", time="at", text=GERMAN), tmp_path / "a.csv"
    good = "".join(";".join(row) + "\n" for row in ROWS) + "M\u00fcller;01.01.2025 00:00;1.2\n" * 20
    text = f"{skips}user;at; amount\n" + good.replace("1.2\n", "-7\n")
    file.write_bytes(text.encode("latin-1"))
    found, rows = csv_columns(file, columns, None), list(csv_rows(file, columns, None))
    values = [row.values for row in rows if isinstance(row, RawRow)]
    assert found is not None and len(values) == 22 and values[1]["amount"] == 2000000.25
    assert found.rows.drop_columns(["at"]).to_pylist() == [{"user": v["user"], "amount": v["amount"]} for v in values]
    assert [str(at)[:19] for at in found.rows["at"].to_pylist()] == [v["at"].replace("T", " ") for v in values]
    broken = text + "M;99.99.2024 00:00;1\nonly;two\n"
    file.write_bytes(broken.encode("latin-1"))
    refused = csv_columns(file, columns, None)
    last = [row.line for row in csv_rows(file, columns, None)][-2:]
    assert last == [24 + bool(skips), 25 + bool(skips)]
    if refused is not None:
        assert [refused.refused[0].line, refused.broken[0].line] == last


def test_numbers_that_do_not_have_the_form_of_the_file_stay_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("type;ts;v\nA;1;1.2.3\nA;2;12,5,6\n")
    columns = Columns(text=TextOptions(decimal=",", thousands="."))
    rows = list(csv_rows(tmp_path / "a.csv", columns, None))
    assert [row.values["v"] for row in rows if isinstance(row, RawRow)] == ["1.2.3", "12,5,6"]


def test_a_point_groups_the_digits_of_a_number_with_a_decimal_comma(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("type;ts;v\nA;1;1.234\nA;2;0,5\n")
    rows = list(csv_rows(tmp_path / "a.csv", Columns(text=TextOptions(decimal="comma")), None))
    assert [row.values["v"] for row in rows if isinstance(row, RawRow)] == [1234, 0.5]


def test_streams_read_messy_files(tmp_path: Path) -> None:
    text, _, encoding = CASES["german"]
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    columns = Columns(time="at", event_type="P", text=GERMAN)
    opened = StreamFiles.first(str(tmp_path), columns, None, Schema({}), raw=False)
    assert opened is not None
    read = opened.read([str(tmp_path / "a.csv")])
    assert read.events["amount"].to_pylist() == [1234.5, 2000000.25] and read.rejects.num_rows == 0
    assert read.ticks[1] - read.ticks[0] == 60_000_000


def test_times_in_other_formats_in_json_lines_and_tables(tmp_path: Path) -> None:
    rows = [{"user": user, "at": at, "amount": n} for n, (user, at, _) in enumerate(ROWS)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for data in (tmp_path / "a.jsonl", pd.DataFrame(rows)):
        table = match(QUERY, Input(data, type="P", time_column="at", time_format="%d.%m.%Y %H:%M"))
        assert len(table) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decimal": "x"}, "cannot stand before the fraction"),
        ({"decimal": ",", "thousands": ","}, "is the decimal character"),
        ({"decimal": ",", "delimiter": ","}, "is the decimal character"),
        ({"encoding": "klingon"}, "is not an encoding"),
        ({"time_format": "%H:%M"}, "has no day"),
        ({"time_format": "%d.%m.%Y %Q"}, "is not a format of times"),
        ({"time_format": "%d.%m.%Y %H:%M %Z"}, "the name of a zone, which may mean several offsets"),
        ({"time_format": "dd.MM.yyyy HH:mm:ss"}, "in directives it is %d.%m.%Y %H:%M:%S"),
        ({"time_format": "ISO"}, "times of ISO 8601 and integers since 1970 need no format"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputProblem, match=message):
        Input("a.csv", **options)


@pytest.mark.parametrize(
    ("time", "format"),
    [
        ("31.12.2024 23:59", "%d.%m.%Y %H:%M"),
        ("12/31/2024 11:59 PM", "%m/%d/%Y %I:%M %p"),
        ("31/12/2024 23:59:01", "%d/%m/%Y %H:%M:%S"),
        ("2024/12/31", "%Y/%m/%d"),
        ("31/Dec/2024:23:59:01 +0200", "%d/%b/%Y:%H:%M:%S %z"),
        ("Tue, 31 Dec 2024 23:59:01 GMT", "%a, %d %b %Y %H:%M:%S GMT"),
        ("12/31/2024 23:59:01.250000", "%m/%d/%Y %H:%M:%S.%f"),
        ("31-Dec-2024 23:59:01,250", "%d-%b-%Y %H:%M:%S,%f"),
        ("Dec 31 2024 23:59", "%b %d %Y %H:%M"),
        ("Tue Dec 31 23:59:01 +0000 2024", "%a %b %d %H:%M:%S %z %Y"),
        ("Dec 31, 2024 11:59:01 PM", "%b %d, %Y %I:%M:%S %p"),
    ],
)
def test_the_hint_names_the_format(tmp_path: Path, time: str, format: str) -> None:
    (tmp_path / "a.csv").write_text(f'type,ts\nA,"{time}"\n')
    arguments = ["run", "--query", "EVENT SEQ(A a, A b)", "--input", tmp_path / "a.csv"]
    assert f"--time-format '{format}';" in cepheid(*arguments).stderr
    assert lines(cepheid(*arguments, "--time-format", format)) == []


def test_offsets_of_times_in_another_format(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("type,ts\nA,01/Mar/2024:10:00:00 +0200\nB,01/Mar/2024:08:00:30 +0000\n")
    events = Input(str(tmp_path / "a.csv"), time_format="%d/%b/%Y:%H:%M:%S %z")
    found = match("EVENT SEQ(A a, B b) RETURN b.ts - a.ts AS took", events)
    assert found["took"].to_pylist() == [timedelta(seconds=30)]


@pytest.mark.parametrize(
    ("time", "hint"),
    [
        ("03/04/2024 07:00", "(or '%d/%m/%Y %H:%M', if the day comes first)"),
        ("03-04-2024", "(or '%m-%d-%Y', if the month comes first)"),
        ("07:00:00", "it has no day; add a day to the column first"),
        ("May 06 07:00:00", "it has no year; add a year to the column first"),
    ],
)
def test_hints_for_times_that_say_too_little(tmp_path: Path, time: str, hint: str) -> None:
    (tmp_path / "a.csv").write_text(f"type,ts\nA,{time}\n")
    assert hint in cepheid("run", "--query", "EVENT SEQ(A a, A b)", "--input", tmp_path / "a.csv").stderr


def test_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("type,ts,Stra\u00dfe\nA,1,x\n".encode("latin-1"))
    with pytest.raises(InputProblem, match="not UTF-8 text") as raised:
        match("EVENT SEQ(A a, A b)", tmp_path / "a.csv")
    assert 'encoding="latin-1"' in str(raised.value)


NESTED = [
    {"meta": {"at": "31.12.2024 23:58", "kind": "A"}, "k": 1},
    {"meta": {"at": "31.12.2024 23:59", "kind": "B"}, "k": 1},
    {"meta": {"kind": "B"}, "k": 1},
    {"meta": {"at": None, "kind": "B"}, "k": 1},
]


def test_the_time_and_the_type_may_be_fields_of_nested_objects(tmp_path: Path) -> None:
    """Attributes of nested objects have dotted names, and so have the columns of the type and the time."""
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in NESTED))
    options = "time=meta.at,type-column=meta.kind,time-format=%d.%m.%Y %H:%M"
    query = (
        "EVENT SEQ(A a, B b) WHERE [k] WITHIN 1 hour RETURN a.meta.at AS at, (b.meta.at - a.meta.at) / 1 minute AS took"
    )
    found = cepheid("run", "--query", query, "--input", f"{file},{options}")
    assert "no time: `meta.at` is missing" in found.stderr and "no time: `meta.at` is null" in found.stderr
    assert [(row["at"], row["took"]) for row in lines(found)] == [("2024-12-31T23:58:00Z", 1.0)]


def test_hints_for_rejected_rows(tmp_path: Path) -> None:
    file, query = tmp_path / "a.csv", "EVENT SEQ(P a, P b) WHERE a.v > 3"
    file.write_bytes(b'ts,v,n\n1,5,a\n2,6,b\n3,7,c\n4,8,d\n5,"1,200.00",e\n6,7,M\xfcller\n')
    found = cepheid("run", "--query", query, "--input", file, "--type", "P").stderr
    assert "--thousands comma" in found and "--encoding latin-1" in found
    with pytest.raises(InputProblem) as raised:
        match(query, str(file), type="P")
    assert 'thousands="comma"' in (raised.value.hint or "")


def test_times_that_do_not_have_the_declared_format(tmp_path: Path) -> None:
    frame = pd.DataFrame({"at": ["31.12.2024", "--"], "v": [1, 2]})
    with pytest.raises(InputProblem, match="the time `--` in row 1 of `at` does not have the format"):
        match("EVENT P a", Input(frame, type="P", time_column="at", time_format="%d.%m.%Y"))
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(InputProblem) as raised:
        match("EVENT P a", Input(str(tmp_path / "a.csv"), type="P", time_column="at", time_format="%d.%m.%Y"))
    assert "declared to have the format %d.%m.%Y" in (raised.value.hint or "")
    found = cepheid("run", "--query", "EVENT P a", "--input", tmp_path / "a.csv", "--type", "P", "--time-column", "at")
    assert "--time-format '%d.%m.%Y'" in found.stderr
