"""Large files of JSON Lines as columns: whatever is read so is what the row reader makes of the same file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from examples import examples
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from text_harness import has_types, rows_with_events

from cepheid.io.formats.jsonl import json_columns
from cepheid.io.formats.text import TextTable
from cepheid.io.inputs import DEFAULT_COLUMNS, Columns

# --- the same as the row reader ---------------------------------------------------------------------------------------


def require_same(file: Path, found: TextTable, given_type: str | None, columns: Columns = DEFAULT_COLUMNS) -> bool:
    """The table's rows are the events, with every value as it is; whole numbers may have become floats. The other rows
    are the rejects, with the same reasons; False if they are left to the row reader."""
    read = rows_with_events(file, found, given_type, columns, is_tabular=False)
    if read is None:
        return False
    loaded, pairs = read
    for row, event in pairs:
        if found.omits_nulls:
            row = {name: value for name, value in row.items() if value is not None}
        assert row == event.row
        for name, value in event.row.items():
            assert type(row[name]) is type(value) or (type(row[name]), type(value)) == (float, int)
            assert str(row[name]) == str(value) or type(value) is int
    if not found.omits_nulls:  # where a null would be taken for an attribute that the type lacks
        for kind, attributes in loaded.schema.types.items():
            mine = [event for event in loaded.events if event.type == kind]
            full = [n for n in attributes if any(event.attributes[n] is not None for event in mine)]
            assert full == list(attributes) or not has_types(found.rows, given_type)
    return True


WHOLE = ["1", "2", "-3", "0", "40"]
BROKEN = ["0.5", "1e3", "-2.5E-1", "5", "1.0", "1e-999"]
ODD_NUMBERS = [
    "-0",
    "-0.0",
    "9007199254740993",
    "9223372036854775808",
    "-9223372036854775808",
    "1e999",
    "NaN",
    "01",
    "1.",
]
TEXTS = ['"x"', '"é"', '""', '"say \\"y\\":"', '"\\u0000"', '"\\ud83d\\ude00"', '": null"', '"2024-01-01"', '"a\\/b"']
MOMENTS = ['"2024-01-01T00:00:01Z"', '"2024-02-29T00:00:01.500000Z"', '"2024-01-01T00:00:02Z"']
ODD = [*ODD_NUMBERS, '"\\ud800"', '"a\tb"', "[1]", '{"z": 1}', "{}", "tru", '"', "Infinity"]
SORTS = [WHOLE, WHOLE, BROKEN, TEXTS, MOMENTS, ["true", "false"], ["null"], [*WHOLE, "null"], [*TEXTS, "null"]]


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Objects with times, types and two more attributes; often all is well with them, and sometimes not."""
    values = {
        '"type"': draw(st.sampled_from([['"A"'], ['"A"', '"B"'], ['"A"', '""'], ['"A"', "1"], ["null"]])),
        '"ts"': draw(st.sampled_from([WHOLE, WHOLE, WHOLE, MOMENTS, BROKEN, [*WHOLE, "null"]])),
        draw(st.sampled_from(['"x"', '"x y"', '"x.y"', '"\\u0078"', '"ÿ"'])): draw(st.sampled_from(SORTS)),
        '"y"': draw(st.sampled_from(SORTS)),
    }
    is_odd, may_lack = draw(st.integers(0, 5)) == 0, draw(st.booleans())
    written = []
    for _ in range(draw(st.integers(0, 8))):
        row = [(name, draw(st.sampled_from(choices))) for name, choices in values.items()]
        if may_lack and draw(st.booleans()):
            del row[draw(st.integers(0, 3) if is_odd else st.integers(2, 3))]
        if is_odd and draw(st.booleans()):
            name, _ = draw(st.sampled_from(row))
            row.append((draw(st.sampled_from([name, '"z"'])), draw(st.sampled_from(ODD))))
        comma, colon = draw(st.sampled_from([(", ", ": "), (",", ":"), (" ,", " : ")]))
        written.append("{" + comma.join(f"{name}{colon}{value}" for name, value in row) + "}")
    if draw(st.integers(0, 5)) == 0:
        oddities = [
            "",
            " ",
            "[]",
            '{"ts": 1}{"ts": 2}',
            '{"ts":\n1}',
            ' {"ts": 1}',
            '{"ts": 1} ',
            "{",
            '{"a": {"b": 1}',
            "}",
        ]
        written.insert(draw(st.integers(0, len(written))), draw(st.sampled_from(oddities)))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return draw(st.sampled_from(["", "\ufeff"])) + end.join(written) + draw(st.sampled_from([end, "", end * 2]))


@settings(max_examples=examples(1000), deadline=None)
@given(lines(), st.sampled_from([None, "T"]))
@example('{"type": "A", "ts": 1, "x": null}\n{"type": "B", "ts": 2, "x": 5}\n', None)
@example('{"ts": 1}{"ts": 2}\n{"ts":\n3}\n', None)
@example('{"ts": 1}{"ts": 2}\n\n', None)
def test_what_is_read_as_columns_is_what_the_row_reader_reads(
    tmp_path_factory: pytest.TempPathFactory, text: str, given_type: str | None
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.jsonl"
    file.write_bytes(text.encode())
    found = json_columns(file, Columns(), given_type)
    if found is not None:
        require_same(file, found, given_type)


ODD_LINES = [
    b"",
    b"  ",
    b"{broken",
    b"7",
    b'{"type": "A", "ts": 5, "ts": 6}',
    b'{"type": "A", "ts": 5, "s": "\xff"}',
    b'{"type": "A", "n": 5}',
    b'{"type": "A", "ts": null}',
    b'{"ts": 5, "n": 5}',
    b'{"type": "", "ts": 5}',
    b'{"type": "A", "ts": 1.5}',
    b'{"type": "A", "ts": "soon"}',
    b'{"type": "A", "ts": 9223372036854775807}',
    b'{"type": "A", "ts": "2024-02-30T00:00:00Z"}',
    b'{"type": "A", "ts": 5, "n": "five"}',
    b'{"type": "A", "ts": 5, "n": {"m": 1}}',
    b'{"type": "A", "ts": 5, "n": [1]}',
    b'{"type": "A", "ts": 5, "n": 0.5}',
    b'{"type": "A", "ts": 5, "s": true, "n": "x"}',
    b'{"type": "C", "ts": 5, "n": "x"}',
    b'{"type": "A", "ts": 5, "more": 1}',
]


@st.composite
def mostly_fine(draw: st.DrawFn) -> bytes:
    moments, written = draw(st.booleans()), []
    for number in range(draw(st.integers(60, 90))):
        at = f'"2024-01-01T00:{number // 60:02d}:{number % 60:02d}Z"' if moments else number
        kind, more = draw(st.sampled_from([("A", ', "n": 5, "s": "x"')] * 4 + [("B", ', "s": "y"')]))
        written.append(f'{{"type": "{kind}", "ts": {at}{more}}}'.encode())
    for _ in range(draw(st.integers(1, 3))):
        written.insert(draw(st.integers(0, len(written))), draw(st.sampled_from(ODD_LINES)))
    return b"\n".join(written) + draw(st.sampled_from([b"\n", b""]))


@pytest.mark.reach(0.3)
@settings(max_examples=examples(600), deadline=None)
@given(mostly_fine(), st.sampled_from([None, None, "T"]))
def test_a_few_bad_lines_are_rejected_as_by_the_row_reader(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, given_type: str | None
) -> None:
    file = tmp_path_factory.getbasetemp() / "some.jsonl"
    file.write_bytes(content)
    found = json_columns(file, Columns(), given_type)
    assume(found is not None and (found.broken or found.refused))
    assert found is not None
    assume(require_same(file, found, given_type))


ODD_VALUES = {
    "type": ["null", '""', "1", '"C"'],
    "ts": ["null", '"soon"', "1.5", "1700000000.5", "5.0", "true", '"2024-01-01"', "12", "[1]", str(2**61 + 1)],
    "from": ["null", '"soon"', "99", '"2025-01-01"', "3", "1.5", "{}", str(2**61 + 1), "9" * 400],
    "n": ["null", '"x"', "true", "0.5", "-0", "1e999", "[1]", '{"m": 1}', "9" * 40, '"\\ud800"'],
    "s": ["null", "7", "true", '"\\""', '", \\"n\\": 1"'],
    "more": ["1", '"x"'],
}


@st.composite
def with_many_bad(draw: st.DrawFn) -> bytes:
    """Lines with a start, up to half of which are broken or have values that do not fit."""
    moments, types = draw(st.booleans()), draw(st.sampled_from([['"A"'], ['"A"', '"B"'], ["null"]]))
    sorts = draw(st.lists(st.sampled_from([*ODD_VALUES, "broken"]), min_size=1, max_size=2))
    most = draw(st.integers(0, 10))
    written = []
    for number in range(draw(st.integers(5, 40))):
        at = f'"2024-01-01T00:00:{number:02d}Z"' if moments else str(number)
        row = {"type": draw(st.sampled_from(types)), "ts": at, "n": str(number), "s": '"x"', "from": at}
        if draw(st.integers(0, 19)) < most:
            sort = draw(st.sampled_from(sorts))
            if sort == "broken":
                written.append(draw(st.sampled_from(ODD_LINES)))
                continue
            row[sort] = draw(st.sampled_from(ODD_VALUES[sort]))
        written.append(("{" + ", ".join(f'"{name}": {value}' for name, value in row.items()) + "}").encode())
    return b"\n".join(written)


@pytest.mark.reach(0.3)
@settings(max_examples=examples(600), deadline=None)
@given(with_many_bad(), st.sampled_from([None, None, "T"]), st.sampled_from([Columns(), Columns(start="from")]))
def test_many_bad_lines_are_rejected_as_by_the_row_reader(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, given_type: str | None, columns: Columns
) -> None:
    file = tmp_path_factory.getbasetemp() / "many.jsonl"
    file.write_bytes(content)
    found = json_columns(file, columns, given_type)
    assume(found is not None)
    assert found is not None
    assume(require_same(file, found, given_type, columns))


# --- what is accepted, and what is not --------------------------------------------------------------------------------

ACCEPTED = {
    "whole numbers": '{"type": "A", "ts": 1, "x": 5}\n{"type": "B", "ts": 2, "x": 6}\n',
    "attributes that some events lack": '{"type": "A", "ts": 1, "x": 5}\n{"type": "A", "ts": 2}\n',
    "nulls": '{"type": "A", "ts": 1, "x": 5}\n{"type": "A", "ts": 2, "x": null}\n',
    "whole and broken numbers": '{"type": "A", "ts": 1, "x": 5}\n{"type": "A", "ts": 2, "x": 0.5}\n',
    "text that looks like times": '{"type": "A", "ts": 1, "x": "2024-01-01"}\n',
    "timestamps": '{"type": "A", "ts": "2024-01-01T00:00:01Z"}\n',
    "booleans": '{"type": "A", "ts": 1, "x": true}\n',
    "no types": '{"ts": 1}\n{"ts": 2}\n',
    "other orders": '{"type": "A", "ts": 1}\n{"ts": 0, "type": "A"}\n',
    "a byte order mark and CR LF": '\ufeff{"type": "A", "ts": 1}\r\n{"type": "A", "ts": 2}\r\n',
}
REFUSED = {
    "nothing": "",
    "an array": '[{"type": "A", "ts": 1}]',
    "two objects in a line": '{"type": "A", "ts": 1}{"type": "A", "ts": 2}\n',
    "an object in two lines": '{"type": "A",\n"ts": 1}\n',
    "as many lines as objects, by chance": '{"ts": 1}{"ts": 2}\n{"ts":\n3}\n',
    "a key twice": '{"type": "A", "ts": 1, "ts": 2}\n',
    "a time that is no whole number": '{"type": "A", "ts": 1.5}\n',
    "a type that is a number": '{"type": 1, "ts": 1}\n',
    "a nested value": '{"type": "A", "ts": 1, "x": {"y": 1}}\n',
    "a list": '{"type": "A", "ts": 1, "x": [1]}\n',
    "numbers that are no floats": '{"type": "A", "ts": 1, "x": 9007199254740993}\n{"type": "A", "ts": 2, "x": 0.5}\n',
    "a number of more than 64 bits": '{"type": "A", "ts": 1, "x": 99999999999999999999}\n',
    "a zero below zero": '{"type": "A", "ts": 1, "x": -0}\n{"type": "A", "ts": 2, "x": 0.5}\n',
    "what is not a number": '{"type": "A", "ts": 1, "x": NaN}\n',
    "half a character": '{"type": "A", "ts": 1, "x": "\\ud800"}\n',
    "nulls and missing ones": '{"type": "A", "ts": 1, "x": null}\n{"ts": 2, "type": "A"}\n'
    '{"ts": 3, "x": 1, "type": "A"}\n',
    "nulls in all events of a type": '{"type": "A", "ts": 1, "x": null}\n{"type": "B", "ts": 2, "x": 1}\n',
}
WITHOUT_SOME = {
    "a line that is no object": '{"type": "A", "ts": 1}\n7\n',
    "an empty line": '{"type": "A", "ts": 1}\n\n{"type": "A", "ts": 2}\n',
    "no time": '{"type": "A", "ts": 1}\n{"type": "A"}\n',
    "a type that is missing": '{"type": "A", "ts": 1}\n{"ts": 2}\n',
    "an empty type": '{"type": "A", "ts": 1}\n{"type": "", "ts": 2}\n',
    "times of two kinds": '{"type": "A", "ts": 1}\n{"type": "A", "ts": 2}\n'
    '{"type": "A", "ts": "2024-01-01T00:00:01Z"}\n',
    "values of two kinds": '{"type": "A", "ts": 1, "x": 1}\n{"type": "A", "ts": 2, "x": 1}\n'
    '{"type": "A", "ts": 2, "x": "1"}\n',
}


@pytest.mark.parametrize("sort", ACCEPTED)
def test_accepted(tmp_path: Path, sort: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(ACCEPTED[sort].encode())
    found = json_columns(file, Columns(), None)
    assert found is not None
    assert require_same(file, found, None)
    assert found.omits_nulls == (sort == "attributes that some events lack")
    lines_read = ACCEPTED[sort].removeprefix("\ufeff").splitlines()
    assert found.rows.column_names == list(dict.fromkeys(name for line in lines_read for name in json.loads(line)))


@pytest.mark.parametrize("sort", REFUSED)
def test_refused(tmp_path: Path, sort: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(REFUSED[sort].encode())
    assert json_columns(tmp_path / "a.jsonl", Columns(), None) is None


@pytest.mark.parametrize("sort", WITHOUT_SOME)
def test_read_without_the_rows_that_the_row_reader_rejects(tmp_path: Path, sort: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(WITHOUT_SOME[sort])
    found = json_columns(file, Columns(), None)
    assert found is not None and require_same(file, found, None)
    assert bool(found.broken or found.refused) == (sort != "an empty line")


def test_what_cannot_be_read_is_left_to_the_row_reader(tmp_path: Path) -> None:
    assert json_columns(tmp_path / "none.jsonl", Columns(), None) is None
    (tmp_path / "a.jsonl").write_bytes(b'{"type": "A", "ts": 1, "x": "\xff"}\n')
    assert json_columns(tmp_path / "a.jsonl", Columns(), None) is None
