"""Large CSV files as columns: whatever is read so is what the row reader makes of the same file."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from examples import examples
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from text_harness import rows_with_events

from cepheid.io.formats.csv import csv_columns
from cepheid.io.formats.text import TextTable
from cepheid.io.inputs import DEFAULT_COLUMNS, Columns
from cepheid.io.refusals import rejects_of

BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"


# --- the same as the row reader ---------------------------------------------------------------------------------------


def require_same(file: Path, found: TextTable, given_type: str | None, columns: Columns = DEFAULT_COLUMNS) -> bool:
    """The table's rows are the events, with every value as it is; whole numbers may have become floats. The other rows
    are the rejects, with the same reasons; False if they are left to the row reader."""
    read = rows_with_events(file, found, given_type, columns, is_tabular=True)
    if read is None:
        return False
    _, pairs = read
    for row, event in pairs:
        # A column that events of one type lack is not in the event's row; the table has nulls there.
        assert all(row[name] is None for name in row.keys() - event.row.keys())
        shown = {name: row[name] for name in event.row}
        assert shown == event.row and list(shown) == [name for name in found.rows.column_names if name in event.row]
        for name, value in event.row.items():
            assert type(shown[name]) is type(value) or (type(shown[name]), type(value)) == (float, int)
            assert str(shown[name]) == str(value) or type(value) is int
    return True


PLAIN = ["1", "2", "-3", "40"]
NUMBERS = [*PLAIN, "0", "-0", " 5", "5 ", "\u20036", "5.", ".5", "-0.0", "1.25", "1e3", "1E-2", "1e999", "1e-999"]
LARGE = ["9007199254740991", "9007199254740993", "-9223372036854775808", "9223372036854775808", "0.5"]
EXACT = [*LARGE[:2], "0.5"]
HUGE = ["9" * 350, "0." + "1" * 401, "1" + "0" * 401]
OTHER = ["007", "00", "+5", "0x10", "nan", "inf", "true", "TRUE", " False", "fal\u017fe", "null", "NA", "x", "é"]
SIGNS = ['"', "a,b", 'say "x"', "two\nlines", "two\r\nlines", "", "-", "'", "a\rb", "\0"]
TIMES = [
    "2024-01-01T00:00:01Z",
    "2024-02-29T00:00:01.500000Z",
    "2024-02-30T00:00:01Z",
    "2024-01-01T00:00:01.000000Z",
    "2024-01-01 00:00:01",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "2024-01-01T00:00:01.123456789+05:30",
    " 2024-01-01 00:00 -01 ",
    "2024-01-01",
    "2024-01-01T24:00:00Z",
    "2024-01-01T00:00:60Z",
]


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def as_written(cell: str, always: bool) -> str:
    return quoted(cell) if always or any(sign in cell for sign in '",\r\n') else cell


@st.composite
def columns_of_cells(draw: st.DrawFn, count: int) -> list[str]:
    """Mostly cells of one sort, as in real columns, and some that are not."""
    usual = draw(st.sampled_from([PLAIN, NUMBERS, LARGE, EXACT, OTHER, ["true", "false"], ["x", "7", "y"], [""]]))
    odd = st.sampled_from([*NUMBERS, *LARGE, *HUGE, *OTHER, *SIGNS])
    cell = st.one_of(*[st.sampled_from(usual)] * draw(st.sampled_from([1, 4, 40])), odd, st.just(""))
    return draw(st.lists(cell if draw(st.booleans()) else st.sampled_from(usual), min_size=count, max_size=count))


@st.composite
def csv_texts(draw: st.DrawFn) -> str:
    """A file of times, types and two more columns; often all is well with it, and sometimes not."""
    count = draw(st.integers(0, 12))

    def cells(*choices: list[str]) -> list[str]:
        return draw(st.lists(st.sampled_from(draw(st.sampled_from(choices))), min_size=count, max_size=count))

    table = {
        "type": cells(["A"], ["A", "B"], ["A", "B", " A", "1"], [""], ["A", ""]),
        "ts": cells(PLAIN, PLAIN, PLAIN, NUMBERS, LARGE, TIMES[:2], TIMES, [*PLAIN, ""]),
        "x": draw(columns_of_cells(count)),
        draw(st.sampled_from(["y", "y.z", "", "a b", "ÿ", "x"])): draw(columns_of_cells(count)),
    }
    names = draw(st.permutations(list(table)))
    names = names[: draw(st.sampled_from([4, 4, 4, 3, 2]))]
    always = draw(st.booleans())
    rows = [names, *zip(*(table[name] for name in names), strict=True)]
    written = [[as_written(cell, always) for cell in row] for row in rows]
    if draw(st.integers(0, 5)) == 0:
        oddly = draw(st.sampled_from(['"2"3', '2"3"', 'a""b', '"a""b"', '"a" ', ' "a"', '"', '""""', '"a"",b"']))
        draw(st.sampled_from(written))[draw(st.integers(0, len(names) - 1))] = oddly
    lines = [",".join(row) for row in written]
    if draw(st.integers(0, 5)) == 0:
        oddities = ["", "  ", "1,2", '1,"2"3', '1,2"3"', 'A,1,2",3', 'A,"1,2,3', '"A"",1,2,3"', "A,1,2,3,4", "\t", '""']
        lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(oddities)))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return draw(st.sampled_from(["", BOM])) + end.join(lines) + draw(st.sampled_from([end, "", end * 2]))


@settings(max_examples=examples(1000))
@given(csv_texts(), st.sampled_from([None, "T"]))
@example("type,ts,x\nA,1,\nB,2,7\n", None)
@example('type,ts,x\nA,1,"say ""x"""\nA,2,""""\nA,3,""\n', None)
@example("type,ts\nA,-9223372036854775808\n", None)
@example("type,ts,x\nA,1,1\nA,2,1\nA,3,1\nA,-0,1\n", None)
def test_what_is_read_as_columns_is_what_the_row_reader_reads(
    tmp_path_factory: pytest.TempPathFactory, text: str, given_type: str | None
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.csv"
    file.write_bytes(text.encode())
    found = csv_columns(file, Columns(), given_type)
    if found is not None:
        require_same(file, found, given_type)


BAD_CELLS = {
    "type": ["", " "],
    "ts": ["", "soon", "1.5", "1e3", "007", str(2**61 + 1), "9" * 30, "2024-01-01", "2024-02-30", " 5"],
    "n": ["x", "true", "007", "1e999", "-0", "0.5", ""],
    "b": ["x", "1", "", "TRUE"],
    "s": ["7", "", "true"],
}
BAD_LINES = [
    "",
    "  ",
    "A,1",
    "A,1,2,true,x,y",
    'A,1,2,true,"x',
    'A,1,2,true,x"y',
    "A,1,2,true,a\0b",
    "\r",
    '"A\nB",1,2,true,x',
]


@st.composite
def mostly_fine(draw: st.DrawFn) -> bytes:
    """Forty rows and more, of which a few are broken or have a value that does not fit."""
    moments = draw(st.booleans())
    types = draw(st.sampled_from([["A"], ["A", "B"], ["A", "A", "A", "A", "A", "A", "B"]]))
    rows = []
    for number in range(draw(st.integers(40, 60))):
        at = f"2024-01-01T00:00:{number:02d}Z" if moments else str(number)
        rows.append({"type": draw(st.sampled_from(types)), "ts": at, "n": str(number), "b": "true", "s": "x"})
        if rows[-1]["type"] == "B":
            rows[-1]["n"] = ""
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(list(BAD_CELLS)))
        draw(st.sampled_from(rows))[name] = draw(st.sampled_from(BAD_CELLS[name]))
    lines = [",".join(row.values()).encode() for row in rows]
    for _ in range(draw(st.integers(0, 2))):
        lines.insert(
            draw(st.integers(0, len(lines))), draw(st.sampled_from([*map(str.encode, BAD_LINES), b"A,1,2,true,\xff"]))
        )
    return b"\n".join([b"type,ts,n,b,s", *lines]) + draw(st.sampled_from([b"\n", b""]))


@pytest.mark.reach(0.3)
@settings(max_examples=examples(600))
@given(mostly_fine(), st.sampled_from([None, None, "T"]))
def test_a_few_bad_lines_are_rejected_as_by_the_row_reader(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, given_type: str | None
) -> None:
    file = tmp_path_factory.getbasetemp() / "some.csv"
    file.write_bytes(content)
    found = csv_columns(file, Columns(), given_type)
    assume(found is not None and (found.broken or found.refused))
    assert found is not None
    assume(require_same(file, found, given_type))


DURATION = Columns(start="from")
ANY_CELLS = {
    **BAD_CELLS,
    "ts": [*BAD_CELLS["ts"], "12", "2024-01-01T00:00:07Z"],
    "from": ["", "soon", "99", "2025-01-01", "3", "1700000000.5", "1e3", str(2**61 + 1)],
}


@st.composite
def with_many_bad(draw: st.DrawFn) -> bytes:
    """Rows with a start, up to half of which are broken or have values that do not fit."""
    moments, types = draw(st.booleans()), draw(st.sampled_from([["A"], ["A", "B"], [""]]))
    sorts = draw(st.lists(st.sampled_from([*ANY_CELLS, "broken"]), min_size=1, max_size=2))
    most = draw(st.integers(0, 10))
    lines = []
    for number in range(draw(st.integers(5, 40))):
        at = f"2024-01-01T00:00:{number:02d}Z" if moments else str(number)
        row = {"type": draw(st.sampled_from(types)), "ts": at, "n": str(number), "b": "true", "s": "x", "from": at}
        if draw(st.integers(0, 19)) < most:
            sort = draw(st.sampled_from(sorts))
            if sort == "broken":
                lines.append(draw(st.sampled_from([*BAD_LINES, 'A,"x', "A,1,2,3,4,5,6,7"])).encode())
                continue
            row[sort] = draw(st.sampled_from(ANY_CELLS[sort]))
        lines.append(",".join(row.values()).encode())
    return b"\n".join([b"type,ts,n,b,s,from", *lines])


@pytest.mark.reach(0.3)
@settings(max_examples=examples(600))
@given(with_many_bad(), st.sampled_from([None, None, "T"]), st.sampled_from([Columns(), DURATION]))
def test_many_bad_lines_are_rejected_as_by_the_row_reader(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, given_type: str | None, columns: Columns
) -> None:
    file = tmp_path_factory.getbasetemp() / "many.csv"
    file.write_bytes(content)
    found = csv_columns(file, columns, given_type)
    assume(found is not None)
    assert found is not None
    assume(require_same(file, found, given_type, columns))


ROW = "A,{},5,true,x\n"
LONG = "type,ts,n,b,s\n" + "".join(ROW.format(at) for at in range(30))
ONE_BAD: dict[str, tuple[str | bytes, str]] = {
    "a cell too few": ("A,30,5,true\n", "4 cells where the header has 5"),
    "a quote that is not closed": ('A,30,5,true,"x\n', "broken CSV: unexpected end of data"),
    "no UTF-8": (b"A,30,5,true,\xff\n", "not UTF-8 text"),
    "no time": ("A,,5,true,x\n", "no time: `ts` is null"),
    "a time that is none": ("A,soon,5,true,x\n", "the time `soon` is neither an integer nor an ISO 8601 timestamp"),
    "no type": (",30,5,true,x\n", "no event type: the column `type` is missing or null"),
    "a number that is none": ("A,30,five,true,x\n", 'the attribute `n` of `A` is a number, not the string "five"'),
    "a boolean that is none": ("A,30,5,maybe,x\n", 'the attribute `b` of `A` is a boolean, not the string "maybe"'),
}


@pytest.mark.parametrize("sort", ONE_BAD)
def test_one_bad_line_costs_one_row(tmp_path: Path, sort: str) -> None:
    line, reason = ONE_BAD[sort]
    file = tmp_path / "e.csv"
    file.write_bytes(LONG.encode() + (line if isinstance(line, bytes) else line.encode()) + ROW.format(40).encode())
    found = csv_columns(file, Columns(), None)
    assert found is not None and found.rows.num_rows == 31 and require_same(file, found, None)
    (reject,) = rejects_of(found, str(file), Columns(), None, is_tabular=True) or []
    assert reject.line == 32 and reject.reason == reason


# --- what is accepted, and what is not --------------------------------------------------------------------------------


def column_types(file: Path, content: str | bytes, given_type: str | None = None) -> dict[str, str] | None:
    """The columns that are read, having been held against the row reader."""
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = csv_columns(file, Columns(), given_type)
    if found is None:
        return None
    require_same(file, found, given_type)
    return {field.name: str(field.type) for field in found.rows.schema}


ONE = {"type": "string", "ts": "int64", "x": "int64"}

ACCEPTED = {
    "whole numbers": ("type,ts,x\nA,1,5\nB,2,-9223372036854775807\n", ONE),
    "quoted cells": ('"type","ts","x"\n"A","1","5"\n', ONE),
    "blanks around numbers": ("type,ts,x\nA, 1,5 \n", ONE),
    "lines that end in CR LF": ("type,ts,x\r\nA,1,5\r\n", ONE),
    "no end of the last line": ("type,ts,x\nA,1,5", ONE),
    "empty lines": ("type,ts,x\n\nA,1,5\n\n\nA,2,6\n\n", ONE),
    "a byte order mark": (BOM + '"type",ts,x\nA,1,5\n', ONE),
    "nulls": ("type,ts,x\nA,1,\nA,2,5\n", ONE),
    "a column that a type lacks": ("type,ts,x\nA,1,\nB,2,5\n", ONE),
    "rows out of order": ("type,ts,x\nA,9,1\nB,2,2\nA,2,3\n", ONE),
    "broken numbers": ("type,ts,x\nA,1,5.\nA,2,.5\nA,3,-1e3\n", {**ONE, "x": "double"}),
    "whole and broken numbers": ("type,ts,x\nA,1,5\nB,2,0.5\n", {**ONE, "x": "double"}),
    "booleans": ("type,ts,x\nA,1,true\nA,2,FALSE\nA,3, True\n", {**ONE, "x": "bool"}),
    "text": ("type,ts,x\nA,1,red\nA,2, 7\nA,3,true\n", {**ONE, "x": "string"}),
    "text with commas, quotes and lines": ('type,ts,x\nA,1,"a,b ""c""\r\nd"\n', {**ONE, "x": "string"}),
    "names that look like numbers": ("type,ts,x\nA,1,007\nA,2,12\nA,3,13\nA,4,14\n", {**ONE, "x": "string"}),
    "long numbers among names": (f"type,ts,x\nA,1,{'9' * 30}\nA,2,ab\n", {**ONE, "x": "string"}),
    "blanks of other sorts": ("type,ts,x\nA,1,\x1f5\nA,2,\u30006\n", ONE),
    "a long s, which is no s": ("type,ts,x\nA,1,fal\u017fe\n", {**ONE, "x": "string"}),
    "an empty column": ("type,ts,x\nA,1,\nB,2,\n", {**ONE, "x": "null"}),
    "no type column": ("ts,x\n1,5\n", {"ts": "int64", "x": "int64"}),
    "an empty type column": ("type,ts,x\n,1,5\n,2,6\n", {**ONE, "type": "null"}),
    "timestamps in other forms": (
        "type,ts,x\nA,2024-01-01 00:00,1\nA,2024-01-01,2\nA,2024-01-01t00:00:01.000000z,1\n"
        'A,2024-01-01T02:00:00.5+02:00,1\nA,"2024-01-01 00:00:01,1234567891 -0530",1\nA, 2024-01-01T00:00:01Z ,1\n',
        {**ONE, "ts": "timestamp[us, tz=UTC]"},
    ),
    "timestamps as they are shown": (
        "type,ts,x\nA,2024-01-01T00:00:01Z,1\nA,2024-02-29T23:59:59.000001Z,2\n",
        {**ONE, "ts": "timestamp[us, tz=UTC]"},
    ),
}


@pytest.mark.parametrize("sort", ACCEPTED)
def test_accepted(tmp_path: Path, sort: str) -> None:
    content, types = ACCEPTED[sort]
    assert column_types(tmp_path / "e.csv", content) == types


def test_a_type_that_is_given_leaves_the_type_column_a_column(tmp_path: Path) -> None:
    assert column_types(tmp_path / "e.csv", "type,ts\n1,1\n,2\n", "T") == {"type": "int64", "ts": "int64"}


REFUSED: dict[str, str | bytes] = {
    "no rows": "type,ts,x\n",
    "no file content": "",
    "no header": "\ntype,ts,x\nA,1,2\n",
    "no time column": "type,t\nA,1\n",
    "two columns of one name": "type,ts,ts\nA,1,1\n",
    "a cell too few": "type,ts,x\nA,1\n",
    "a cell too many": "type,ts,x\nA,1,2,3\n",
    "text after a closing quote": 'type,ts,x\nA,1,"ab"c\n',
    "a quote inside a cell": 'type,ts,x\nA,1,a"b"\n',
    "doubled quotes in a cell without": 'type,ts,x\nA,1,a""b\n',
    "a lone CR": "type,ts,x\nA,1,a\rb\n",
    "a NUL": "type,ts,x\nA,1,a\0b\n",
    "no UTF-8": b"type,ts,x\nA,1,\xff\n",
    "no UTF-8 in the header": b"type,ts,\xff\nA,1,2\n",
    "a cell longer than Python's csv reads": f"type,ts,x\nA,1,{'a' * (csv.field_size_limit() + 1)}\n",
    "a row longer than a block": f"type,ts,x\nA,1,{'a,' * (1 << 22)}\n",
    "a time written as a float": "type,ts,x\nA,1e3,2\n",
    "a time with leading zeros": "type,ts,x\nA,007,2\n",
    "a time beyond 64 bits": "type,ts,x\nA,9223372036854775808,2\n",
    "the lowest number as a time": "type,ts,x\nA,-9223372036854775808,2\n",
    "a date with a zone": "type,ts,x\nA,2024-01-01Z,2\n",
    "a time that does not fit": f"type,ts,x\nA,{2**61 + 1},2\n",
    "timestamps of a year that is none": "type,ts,x\nA,0000-01-01T00:00:01Z,2\n",
    "a day that is none": "type,ts,x\nA,2024-02-30T00:00:01Z,2\n",
    "numbers in one type and text in another": "type,ts,x\nA,1,1\nB,2,one\nB,3,two\nB,4,three\nB,5,four\n",
    "booleans in one type and text in another": "type,ts,x\nA,1,true\nB,2,one\nB,3,two\nB,4,three\nB,5,four\n",
    "whole numbers that are no floats": "type,ts,x\nA,1,9007199254740993\nA,2,0.5\n",
    "whole numbers beyond 64 bits": "type,ts,x\nA,1,9223372036854775808\n",
    "a number that is not finite": "type,ts,x\nA,1,1e999\nA,2,1\n",
    "a number too long to be one": f"type,ts,x\nA,1,0.{'1' * 400}\n",
    "a zero below zero": "type,ts,x\nA,1,-0\n",
}


@pytest.mark.parametrize("sort", REFUSED)
def test_refused(tmp_path: Path, sort: str) -> None:
    assert column_types(tmp_path / "e.csv", REFUSED[sort]) is None


WITHOUT_SOME = {
    "a line of blanks": "type,ts,x\nA,1,2\n  \n",
    "a quote that is not closed": 'type,ts,x\nA,1,"a\nA,2,b\n',
    "a row without a time": "type,ts,x\nA,1,2\nA,,2\n",
    "a row without a type": "type,ts,x\nA,1,2\n,2,2\n",
    "a time that is no time": "type,ts,x\nA,1,2\nA,soon,2\n",
    "timestamps and integers": "type,ts,x\nA,2024-01-01T00:00:01Z,2\nA,2024-01-01T00:00:02Z,2\nA,5,2\n",
    "a cell that does not fit": "type,ts,x\nA,1,1\nA,2,2\nA,3,3\nA,4,four\n",
    "booleans and a name": "type,ts,x\nA,1,true\nA,2,true\nA,3,true\nA,4,maybe\n",
}


@pytest.mark.parametrize("sort", WITHOUT_SOME)
def test_read_without_the_rows_that_the_row_reader_rejects(tmp_path: Path, sort: str) -> None:
    file = tmp_path / "e.csv"
    file.write_text(WITHOUT_SOME[sort])
    found = csv_columns(file, Columns(), None)
    assert found is not None and (found.broken or found.refused) and require_same(file, found, None)


def test_a_file_that_is_not_there_is_left_to_the_row_reader(tmp_path: Path) -> None:
    assert csv_columns(tmp_path / "none.csv", Columns(), None) is None


def test_the_time_cannot_be_the_type(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("ts,x\n1,2\n")
    assert csv_columns(tmp_path / "e.csv", Columns("ts", "ts"), None) is None
    assert csv_columns(tmp_path / "e.csv", Columns("ts", "ts"), "T") is not None
