"""Reading event files: every format, every form of time, every reason to reject a row."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cepheid.errors import InputProblem
from cepheid.events import UNTYPED, Schema, timestamp, timestamp_text
from cepheid.io.inputs import Columns, Input
from cepheid.io.rejects import Reject
from cepheid.io.row_reader import Loaded, read_events
from cepheid.io.times import unit_of
from cepheid.types import INTEGER, STRING


def load(path: Path, text: str | bytes, **options: Any) -> Loaded:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_events([Input(str(path))], **options)


def lines(*rows: object) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def brief(loaded: Loaded) -> list[tuple[str, int, dict[str, Any]]]:
    return [(event.type, event.end, dict(event.attributes)) for event in loaded.events]


# --- order, types, attributes -----------------------------------------------------------------------------------------


def test_rows_are_ordered_by_time_then_arrival(tmp_path: Path) -> None:
    loaded = load(
        tmp_path / "e.jsonl",
        lines({"type": "B", "ts": 5, "n": 1}, {"type": "A", "ts": 1, "n": 2}, {"type": "C", "ts": 5, "n": 3}),
    )
    assert [(e.type, e.position) for e in loaded.events] == [("A", 0), ("B", 1), ("C", 2)]
    assert loaded.rows == 3 and loaded.rejects == []


def test_arrival_goes_across_inputs_in_the_order_given(tmp_path: Path) -> None:
    (tmp_path / "late.csv").write_text("ts,n\n1,10\n2,20\n")
    (tmp_path / "early.jsonl").write_text(lines({"ts": 1, "n": 1}))
    loaded = read_events([Input(str(tmp_path / "late.csv"), "L"), Input(str(tmp_path / "early.jsonl"), "E")])
    assert [(e.type, e.attributes["n"]) for e in loaded.events] == [("L", 10), ("E", 1), ("L", 20)]


def test_attributes_are_completed_but_the_row_stays_as_given(tmp_path: Path) -> None:
    loaded = load(
        tmp_path / "e.jsonl",
        lines({"type": "A", "ts": 1, "x": 1}, {"type": "A", "ts": 2, "y": "b"}, {"type": "B", "ts": 3}),
    )
    assert loaded.events[0].attributes == {"type": "A", "ts": 1, "x": 1, "y": None}
    assert loaded.events[0].row == {"type": "A", "ts": 1, "x": 1}
    assert loaded.schema.types["A"] == {"type": STRING, "ts": INTEGER, "x": INTEGER, "y": STRING}
    assert "x" not in loaded.events[2].attributes  # B lacks it


def test_a_file_without_a_type_column_gives_untyped_events(tmp_path: Path) -> None:
    loaded = load(tmp_path / "e.jsonl", lines({"ts": 1, "x": 1}, {"ts": 2, "type": None}))
    assert {e.type for e in loaded.events} == {UNTYPED} and not loaded.rejects


def test_a_type_given_for_the_input_wins_over_the_column(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text(lines({"ts": 1, "type": "A"}, {"ts": 2, "type": 7}, {"ts": 3}))
    loaded = read_events([Input(str(tmp_path / "e.jsonl"), "T")])
    assert [e.type for e in loaded.events] == ["T", "T"]
    assert [r.line for r in loaded.rejects] == [2]  # `type` is then an attribute like any other: text in one, 7 in two


def test_other_column_names(tmp_path: Path) -> None:
    loaded = load(tmp_path / "e.jsonl", lines({"kind": "A", "when": 3, "ts": "x"}), columns=Columns("kind", "when"))
    assert brief(loaded) == [("A", 3, {"kind": "A", "when": 3, "ts": "x"})]


def test_nested_objects_become_dotted_attributes(tmp_path: Path) -> None:
    row = {"type": "A", "ts": 1, "at": {"x": 1, "in": {"y": "s"}}, "v": [1, 2], "none": {}}
    (event,) = load(tmp_path / "e.jsonl", lines(row)).events
    assert event.attributes == {"type": "A", "ts": 1, "at.x": 1, "at.in.y": "s", "v": [1, 2]}
    assert event.row == row


def test_blank_lines_bom_and_carriage_returns_are_no_rows(tmp_path: Path) -> None:
    loaded = load(tmp_path / "e.jsonl", b'\xef\xbb\xbf{"ts": 1}\r\n\r\n   \n{"ts": 2}')
    assert [e.end for e in loaded.events] == [1, 2] and loaded.rows == 2


def test_an_empty_file_is_an_empty_stream(tmp_path: Path) -> None:
    loaded = load(tmp_path / "e.jsonl", "")
    assert loaded.events == [] and not loaded.is_timestamp


def test_a_json_file_may_hold_one_array(tmp_path: Path) -> None:
    loaded = load(tmp_path / "e.json", '[\n {"ts": 2},\n {"ts": 1},\n 5]')
    assert [e.end for e in loaded.events] == [1, 2]
    assert loaded.rejects == [Reject(str(tmp_path / "e.json"), 3, "not a JSON object", "5")]


def test_a_json_file_may_be_a_document_that_holds_the_events(tmp_path: Path) -> None:
    """Such as those of AWS CloudTrail. The other members describe the document."""
    for indent in (None, 1):
        records = [{"ts": 1, "tags": [{"k": 1}]}, {"ts": 2, "tags": []}] * 2
        text = json.dumps({"version": "1", "Records": records, "regions": ["eu"]}, indent=indent)
        assert [e.end for e in load(tmp_path / "e.json", text).events] == [1, 1, 2, 2]
        one = json.dumps({"ts": 5, "tags": [{"k": 1}]}, indent=indent)  # an event with an array
        assert [e.end for e in load(tmp_path / "e.json", one).events] == [5]
    two = json.dumps({"a": [{"ts": 1}], "b": [{"ts": 2}]})
    assert [reject.reason for reject in load(tmp_path / "e.json", two).rejects] == [
        "several arrays of objects: `a`, `b`"
    ]
    # A line that is an object by itself is no event of a large document either.
    text = '{"Records": [\n' + '{"ts": 1, "v": "x"},\n' * 60_000 + '{"ts": 2, "v": "y"}\n]}'
    assert len(load(tmp_path / "e.json", text).events) == 60_001


def test_directories_and_globs(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "part-1.jsonl").write_text(lines({"ts": 1}))
    (tmp_path / "d" / "part-0.csv").write_text("ts\n1\n")
    (tmp_path / "d" / "_SUCCESS.csv").write_text("not data")
    (tmp_path / "d" / "notes.txt").write_text("not data")
    assert [len(e.row) for e in read_events([Input(str(tmp_path / "d"))]).events] == [1, 1]
    assert len(read_events([Input(str(tmp_path / "d" / "part-*.jsonl"))]).events) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e.jsonl", Input("e.jsonl")),
        ("Shelf=a=b.csv", Input("a=b.csv", "Shelf")),
        ("dir/a=b.csv", Input("dir/a=b.csv")),
    ],
)
def test_an_input_may_name_its_type(text: str, expected: Input) -> None:
    assert Input.parse(text) == expected


def test_a_path_that_exists_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "day=1.csv").write_text("ts\n1\n")
    assert Input.parse("day=1.csv") == Input("day=1.csv")
    with pytest.raises(InputProblem, match="names no file"):
        Input.parse("Shelf=")


@pytest.mark.parametrize("name", ["missing.jsonl", "e.txt", "empty", "*.nothing", "a\0b"])
def test_what_cannot_be_read_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "e.txt").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputProblem):
        read_events([Input(f"{tmp_path}/{name}")])


def test_a_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("")
    with pytest.raises(InputProblem) as caught:
        read_events([Input(str(tmp_path / "event.jsonl"))])
    assert "did you mean `events.jsonl`?" in str(caught.value)


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01 00:00:01", 1_000_000),
        ("1970-01-01T00:01", 60_000_000),
        ("1970-01-01T00:00:00.5", 500_000),
        ("1970-01-01T00:00:00,123456789z", 123_456),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:00:00-0100", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("1970-02-30", None),
        ("1970-01-01T24:00:01", None),
        ("1970-01-01T00:00:00+99:00", None),
        ("19700101", None),
        ("17", None),
        ("yesterday", None),
        ("１９７０-01-01", None),
        ("", None),
    ],
)
def test_iso_8601(text: str, expected: int | None) -> None:
    assert timestamp(text) == expected


def test_timestamps_are_shown_in_iso_8601() -> None:
    assert timestamp_text(1_500_000) == "1970-01-01T00:00:01.500000Z"
    assert timestamp_text(-1_000_000) == "1969-12-31T23:59:59Z"
    assert timestamp_text(10**18) == "1000000000000000000"


def test_a_timestamp_column_counts_microseconds(tmp_path: Path) -> None:
    loaded = load(tmp_path / "e.jsonl", lines({"ts": "1970-01-01T00:00:01Z"}))
    assert loaded.is_timestamp
    assert loaded.events[0].attributes["ts"] == 1_000_000
    assert loaded.events[0].row["ts"] == "1970-01-01T00:00:01Z"


def test_a_whole_float_is_an_integer(tmp_path: Path) -> None:
    loaded = load(tmp_path / "e.jsonl", lines({"ts": 5.0}, {"ts": 1e3}))
    assert [e.attributes["ts"] for e in loaded.events] == [5, 1000]
    assert all(type(e.attributes["ts"]) is int for e in loaded.events)


def test_inputs_of_different_kinds_of_time_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines({"ts": 1}))
    (tmp_path / "b.jsonl").write_text(lines({"ts": "1970-01-01"}))
    with pytest.raises(InputProblem, match="not of one kind"):
        read_events([Input(str(tmp_path / "a.jsonl")), Input(str(tmp_path / "b.jsonl"))])


def test_the_unit_must_be_one() -> None:
    assert unit_of("seconds") == "s"
    for wrong in ("fortnight", "events", "units", ""):
        with pytest.raises(InputProblem, match="not a unit of time"):
            unit_of(wrong)


# --- rejects ----------------------------------------------------------------------------------------------------------

GOOD = {"type": "A", "ts": 1, "x": 1, "s": "a", "at": {"x": 1}, "v": [1]}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"type": "A", "ts": 2', "broken JSON"),
        ("nonsense", "broken JSON"),
        ("[1, 2]", "not a JSON object"),
        ('"text"', "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"type": "A", "ts": 2, "x": NaN}', "broken JSON: NaN"),
        ('{"type": "A", "ts": 2, "x": -Infinity}', "broken JSON: -Infinity"),
        ('{"type": "A", "ts": 2, "x": 1e999}', "not a finite number"),
        ('{"type": "A", "ts": 2, "v": [1e999]}', "not a finite number"),
        ('{"type": "A", "ts": 2, "x": ' + "9" * 5000 + "}", "a number too long to read"),
        ('{"type": "A", "ts": 2, "x": ' + "[" * 100_000 + "]" * 100_000 + "}", "too deep"),
        ('{"type": "A", "ts": 2, "x": ' + "[" * 40 + "]" * 40 + "}", "nested more than 32 deep"),
        ('{"type": "A", "ts": 2, "at": ' + '{"a":' * 40 + "1" + "}" * 40 + "}", "nested more than 32 deep"),
        ('{"type": "A", "ts": 2, "ts": 3}', "the key `ts` appears twice"),
        ('{"type": "A", "ts": 2, "at": {"x": 1}, "at.x": 2}', "the attribute `at.x` appears twice"),
        ('{"type": "A", "ts": 2, "s": "\\ud800"}', "half a character"),
        ('{"type": "A", "ts": 2, "\\ud800": 1}', "half a character"),
        ('{"type": "A"}', "no time: `ts` is missing"),
        ('{"type": "A", "ts": null}', "no time: `ts` is null"),
        ('{"type": "A", "ts": "soon"}', "neither an integer nor an ISO 8601 timestamp"),
        ('{"type": "A", "ts": "2"}', "neither an integer nor an ISO 8601 timestamp"),
        ('{"type": "A", "ts": 2.5}', "the time is the number 2.5"),
        ('{"type": "A", "ts": true}', "the time is the boolean true"),
        ('{"type": "A", "ts": [1]}', "the time is the list [1]"),
        ('{"type": "A", "ts": 9223372036854775808}', "the time 9223372036854775808 does not fit"),
        (f'{{"type": "A", "ts": {-(2**61) - 1}}}', "does not fit: it must lie between -2^61 and 2^61"),
        ('{"type": "A", "ts": "1970-01-01"}', "not like the others, which are integers"),
        ('{"ts": 2}', "no event type"),
        ('{"type": null, "ts": 2}', "no event type"),
        ('{"type": "", "ts": 2}', "no event type"),
        ('{"type": 7.5, "ts": 2}', "the event type the number 7.5 is neither a string nor an integer"),
        ('{"type": "A", "ts": 2, "x": "1"}', 'the attribute `x` of `A` is a number, not the string "1"'),
        ('{"type": "A", "ts": 2, "x": true}', "the attribute `x` of `A` is a number, not the boolean true"),
        ('{"type": "A", "ts": 2, "s": 1}', "the attribute `s` of `A` is a string, not the number 1"),
        ('{"type": "A", "ts": 2, "v": {"x": 1}}', "the attribute `v` of `A` is a list, not the record"),
        ('{"type": "A", "ts": 2, "at": 1}', "the attribute `at` of `A` is a record, not the number 1"),
    ],
)
def test_a_malformed_row_is_rejected_with_its_reason(tmp_path: Path, bad: str, reason: str) -> None:
    loaded = load(tmp_path / "e.jsonl", lines(GOOD, bad, GOOD))
    (reject,) = loaded.rejects
    assert reason in reject.reason
    assert (reject.source, reject.line, reject.raw) == (str(tmp_path / "e.jsonl"), 2, bad)
    assert len(loaded.events) == 2 and loaded.rows == 3


def test_bytes_that_are_no_text_are_rejected(tmp_path: Path) -> None:
    loaded = load(tmp_path / "e.jsonl", b'{"ts": 1}\n{"ts": 2, "s": "\xff"}\n')
    assert [(r.line, r.reason) for r in loaded.rejects] == [(2, "not UTF-8 text")]
    assert "\\xff" in loaded.rejects[0].raw


def test_types_differ_between_event_types_without_harm(tmp_path: Path) -> None:
    loaded = load(tmp_path / "e.jsonl", lines({"type": "A", "ts": 1, "x": 1}, {"type": "B", "ts": 2, "x": "s"}))
    assert not loaded.rejects and loaded.schema.types["B"]["x"] == STRING


def test_integers_and_floats_are_both_numbers_and_null_has_no_type(tmp_path: Path) -> None:
    loaded = load(tmp_path / "e.jsonl", lines({"ts": 1, "x": None}, {"ts": 2, "x": 1}, {"ts": 3, "x": 1.5}))
    assert not loaded.rejects


def test_of_two_equally_common_types_the_first_seen_stays(tmp_path: Path) -> None:
    loaded = load(tmp_path / "e.jsonl", lines({"ts": 1, "x": "s"}, {"ts": 2, "x": 1}))
    assert [e.row["x"] for e in loaded.events] == ["s"]


def test_a_declared_type_wins_over_the_majority(tmp_path: Path) -> None:
    rows = lines({"type": "A", "ts": 1, "x": "s"}, {"type": "A", "ts": 2, "x": "s"}, {"type": "A", "ts": 3, "x": 1})
    loaded = load(tmp_path / "e.jsonl", rows, declared=Schema({"A": {"x": INTEGER, "ts": STRING}}))
    assert [e.end for e in loaded.events] == [3]
    assert [r.line for r in loaded.rejects] == [1, 2]


def test_rejects_come_in_the_order_of_the_rows(tmp_path: Path) -> None:
    rows = lines({"type": "A", "ts": 1, "x": "s"}, "{", {"type": "A", "ts": 2, "x": 1}, {"type": "A"}, GOOD)
    assert [r.line for r in load(tmp_path / "e.jsonl", rows).rejects] == [1, 2, 4]


# --- CSV --------------------------------------------------------------------------------------------------------------


def test_cells_are_recognised_column_by_column(tmp_path: Path) -> None:
    loaded = load(
        tmp_path / "e.csv",
        'type,ts,n,f,b,s,id,empty\n7,1,1,1.5,true,a,007,\n7,2,-2,2,False,12,90210,\n7,3,,1e2,,"x,\n""y""",1,\n',
    )
    assert not loaded.rejects
    assert [dict(e.row) for e in loaded.events] == [
        {"type": "7", "ts": 1, "n": 1, "f": 1.5, "b": True, "s": "a", "id": "007", "empty": None},
        {"type": "7", "ts": 2, "n": -2, "f": 2, "b": False, "s": "12", "id": "90210", "empty": None},
        {"type": "7", "ts": 3, "n": None, "f": 100.0, "b": None, "s": 'x,\n"y"', "id": "1", "empty": None},
    ]


def test_a_cell_that_does_not_fit_its_column_is_rejected(tmp_path: Path) -> None:
    loaded = load(tmp_path / "e.csv", "ts,x\n1,1\n2,2\n3,n/a\n4,4\n5,5\n")
    assert [(r.line, r.raw) for r in loaded.rejects] == [(4, "3,n/a")]
    assert "is a number" in loaded.rejects[0].reason


def test_a_column_that_is_mostly_text_is_text(tmp_path: Path) -> None:
    loaded = load(tmp_path / "e.csv", "ts,x\n1,1\n2,b\n3,3\n4,d\n")
    assert [e.row["x"] for e in loaded.events] == ["1", "b", "3", "d"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2", "1 cells where the header has 2"),
        ("2,2,2", "3 cells where the header has 2"),
        (",2", "no time: `ts` is null"),
        ("soon,2", "neither an integer nor an ISO 8601 timestamp"),
        ("2.5,2", "the time is the number 2.5"),
        ("1970-01-01,2", "not like the others"),
        ('2,"2', "broken CSV"),
        ('2,"2"x', "broken CSV"),
    ],
)
def test_malformed_csv_rows(tmp_path: Path, row: str, reason: str) -> None:
    loaded = load(tmp_path / "e.csv", f"ts,x\n1,1\n{row}\n3,3\n4,4\n")
    (reject,) = loaded.rejects
    assert reason in reject.reason and (reject.line, reject.raw) == (3, row)
    assert [e.end for e in loaded.events] == [1, 3, 4]


def test_an_unclosed_quote_costs_one_row_only(tmp_path: Path) -> None:
    text = 'ts,x\n1,"a\nb"\n2,"c\n' + "".join(f"{n},d\n" for n in range(3, 50))
    loaded = load(tmp_path / "e.csv", text)
    assert [(r.line, r.raw) for r in loaded.rejects] == [(4, '2,"c')]
    assert len(loaded.events) == 48 and loaded.events[0].row["x"] == "a\nb"


def test_a_line_of_csv_that_is_not_utf_8_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_bytes(b'ts,x\n1,a\n2,\xffb\n3,\xc3\xa9\n4,"\xc3"\n')
    loaded = read_events([Input(str(tmp_path / "e.csv"))])
    assert [event.row["x"] for event in loaded.events] == ["a", "é"]
    assert [(r.line, r.reason, r.raw) for r in loaded.rejects] == [
        (3, "not UTF-8 text", r"2,\xffb"),
        (5, "not UTF-8 text", r'4,"\xc3"'),
    ]


@pytest.mark.parametrize("text", [b"ts,ts\n1,2\n", b"time,x\n1,2\n", b'"ts\n1\n', b"ts,\xff\n1,2\n", b"time\n"])
def test_csv_files_that_make_no_sense_as_a_whole(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(InputProblem):
        load(tmp_path / "e.csv", text)


def test_a_column_filled_only_for_other_types_is_one_the_type_lacks(tmp_path: Path) -> None:
    loaded = load(tmp_path / "e.csv", "type,ts,x,y,z\nA,1,1,,\nA,2,,,\nB,3,,2,\n")
    assert [dict(e.attributes) for e in loaded.events] == [
        {"type": "A", "ts": 1, "x": 1, "z": None},
        {"type": "A", "ts": 2, "x": None, "z": None},
        {"type": "B", "ts": 3, "y": 2, "z": None},
    ]


# --- Parquet ----------------------------------------------------------------------------------------------------------


def parquet(path: Path, **columns: Any) -> Loaded:
    pq.write_table(pa.table(columns), path)
    return read_events([Input(str(path))])


def test_parquet_values(tmp_path: Path) -> None:
    loaded = parquet(
        tmp_path / "e.parquet",
        type=["A", "A"],
        ts=pa.array([2, 1], pa.int32()),
        f=[float("nan"), 1.5],
        d=pa.array([date(2024, 1, 2), None]),
        at=[{"x": 1}, {"x": 2}],
        v=[[1, 2], None],
    )
    assert not loaded.is_timestamp and not loaded.rejects
    assert dict(loaded.events[1].row) == {
        "type": "A", "ts": 2, "f": None, "d": "2024-01-02", "at": {"x": 1}, "v": [1, 2],
    }  # fmt: skip
    assert loaded.events[1].attributes["at.x"] == 1


@pytest.mark.parametrize(
    "column",
    [
        pa.array([datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("ns")),
        pa.array([1_000_000_999], pa.timestamp("ns", tz="Europe/Berlin")),
        pa.array([datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("ms", tz="UTC")),
        pa.array(["1970-01-01T00:00:01"]),
    ],
)
def test_parquet_timestamps_count_microseconds(tmp_path: Path, column: pa.Array) -> None:
    loaded = parquet(tmp_path / "e.parquet", ts=column)
    assert loaded.is_timestamp and loaded.events[0].end == 1_000_000


def test_parquet_dates_and_rejects(tmp_path: Path) -> None:
    loaded = parquet(tmp_path / "e.parquet", ts=pa.array([date(1970, 1, 2), None]), x=[1, 2])
    assert [e.end for e in loaded.events] == [86_400_000_000]
    assert loaded.rejects == [Reject(str(tmp_path / "e.parquet"), 2, "no time: `ts` is null", '{"ts": null, "x": 2}')]


def test_what_is_not_parquet_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputProblem, match="as Parquet"):
        load(tmp_path / "e.parquet", "ts\n1\n")
    with pytest.raises(InputProblem, match="has no column `ts`"):
        parquet(tmp_path / "f.parquet", time=[1])
