"""Columns that hold text in one event type and numbers or booleans in another: each value keeps its type, in Python as
on the command line, whatever the format and however many queries run."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.errors import InputProblem, TypeProblem
from cepheid.io import files

Row = Mapping[str, Any]

VALUES: list[Row] = [
    {"type": "login", "ts": 1, "user": "ann", "value": "web"},
    {"type": "pay", "ts": 2, "user": "ann", "value": 9},
    {"type": "pay", "ts": 3, "user": "bob", "value": 100.5},
    {"type": "flag", "ts": 4, "user": "ann", "value": True},
    {"type": "pay", "ts": 5, "user": "ann", "value": 20},
    {"type": "logout", "ts": 6, "user": "ann", "value": "-"},
    {"type": "code", "ts": 7, "user": "ann", "value": "007"},
    {"type": "code", "ts": 8, "user": "ann", "value": "9"},
]
"""Each event type has values of its own type: text, numbers with and without fractions, booleans, a mark of a missing
value beside no other, and numbers with leading zeros, which are text."""

CASES: dict[str, list[Row]] = {
    "EVENT SEQ(login a, pay b) WHERE a.value = 'web' RETURN a.value AS a, b.value AS b": [
        {"a": "web", "b": 9.0},
        {"a": "web", "b": 100.5},
        {"a": "web", "b": 20.0},
    ],
    "EVENT SEQ(pay a, pay b) WHERE b.value > a.value RETURN a.value AS a, b.value AS b": [
        {"a": 9.0, "b": 100.5},
        {"a": 9.0, "b": 20.0},
    ],
    "EVENT SEQ(pay a, pay b) WHERE [user] RETURN a.value + b.value AS sum": [{"sum": 29.0}],
    "EVENT flag a WHERE a.value = true RETURN a.value AS a": [{"a": True}],
    "EVENT logout a RETURN a.value AS a": [{"a": "-"}],
    "EVENT code a WHERE a.value = '007' RETURN a.value AS a": [{"a": "007"}],
    "EVENT SEQ(pay a, code b) WHERE CAST(a.value AS string) = '9.0' AND CAST(b.value AS double) = a.value "
    "RETURN a.value AS a, b.value AS b": [{"a": 9.0, "b": "9"}],
    "PATTERN SEQ(login a, pay+ b[]) WHERE skip_till_next_match(a, b[]) { b[i].value > b[i-1].value } "
    "RETURN a.value AS a, max(b[].value) AS most, b.LEN AS n": [
        {"a": "web", "most": 9.0, "n": 1},
        {"a": "web", "most": 100.5, "n": 2},
    ],
}  # fmt: skip


def _cell(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _table(rows: list[Row], delimiter: str) -> str:
    return "\n".join(delimiter.join(line) for line in [rows[0].keys(), *([_cell(v) for v in r.values()] for r in rows)])


def _lines(rows: list[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


WRITERS: dict[str, Callable[[list[Row]], bytes]] = {
    "events.csv": lambda rows: _table(rows, ",").encode(),
    "events.tsv": lambda rows: _table(rows, "\t").encode(),
    "events.csv.gz": lambda rows: gzip.compress(_table(rows, ",").encode()),
    "events.jsonl": lambda rows: _lines(rows).encode(),
    "events.jsonl.gz": lambda rows: gzip.compress(_lines(rows).encode()),
    "events.json": lambda rows: json.dumps({"events": rows}).encode(),
}


@pytest.fixture(params=WRITERS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    path.write_bytes(WRITERS[request.param](VALUES))
    return path


def without_times(rows: list[Row]) -> list[Row]:
    return [{name: v for name, v in row.items() if name not in ("match_start", "match_end", "query")} for row in rows]


def on_command_line(*arguments: object) -> list[Row]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.stderr
    return without_times([json.loads(line) for line in done.stdout.splitlines()])


def alike(found: list[Row], expected: list[Row]) -> bool:
    """Equal values of equal types; the command line shows a whole number as the row writes it."""
    return found == expected and all(
        isinstance(one, str | bool) == isinstance(two, str | bool)
        for row, other in zip(found, expected, strict=True)
        for one, two in zip(row.values(), other.values(), strict=True)
    )


@pytest.mark.parametrize("query", CASES)
def test_one_query(query: str, file: Path) -> None:
    expected = CASES[query]
    for events in (file, cepheid.Input(file), [file], [cepheid.Input(file, type_column="type")]):
        assert alike(without_times(cepheid.match(query, events).to_pylist()), expected)
    assert alike(on_command_line("run", query, "--input", file), expected)
    assert cepheid.explain(query, file, level="analyze")
    assert cepheid.statistics(query, file) is not None


@pytest.mark.parametrize("query", CASES)
def test_large_files(query: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text files of a megabyte are read as columns where that retains every value."""
    monkeypatch.setattr(files, "LEAST_TEXT", 0)
    assert alike(without_times(cepheid.match(query, file).to_pylist()), CASES[query])


def test_many_queries(file: Path, tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    for number, query in enumerate(CASES):
        (tmp_path / "rules" / f"q{number}.{'saseplus' if query.startswith('PATTERN') else 'sase'}").write_text(query)
    found = cepheid.match({f"q{number}": query for number, query in enumerate(CASES)}, file)
    rows: dict[str, list[Row]] = {}
    for row in (row for table in found for row in table.to_pylist()):
        rows.setdefault(row["query"], []).append(row)
    for number, expected in enumerate(CASES.values()):
        assert alike(without_times(rows[f"q{number}"]), expected)
    for shape in ("events", "flat"):
        done = CliRunner().invoke(app, ["deploy", f"{tmp_path}/rules", "-i", str(file), "--output-shape", shape])
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        for number, expected in enumerate(CASES.values()):
            assert alike(without_times([line for line in lines if line["query"] == f"q{number}"]), expected)


def test_whole_events(file: Path) -> None:
    """A variable of one event type shows values of its type; of several, values of several types are text."""
    one = cepheid.match("EVENT SEQ(login a, flag b)", file).to_pylist()
    assert [(row["a"]["value"], row["b"]["value"]) for row in one] == [("web", True)]
    several = cepheid.match("EVENT ANY(login, pay, flag) a", file).to_pylist()
    assert [row["a"]["value"] for row in several] == ["web", "9.0", "100.5", "true", "20.0"]
    (table,) = cepheid.match({"q": "EVENT SEQ(login a, flag b)"}, file)
    assert [(row["a"]["value"], row["b"]["value"]) for row in table.to_pylist()] == [("web", True)]
    flat = cepheid.match("EVENT SEQ(login a, flag b)", file, output="flat").to_pylist()
    assert [(row["a.value"], row["b.value"]) for row in flat] == [("web", True)]
    assert cepheid.match("EVENT SEQ(login a, flag b)", file, output="positions").to_pylist() == [{"a": 0, "b": 3}]


def test_identities_are_those_of_the_command_line(file: Path) -> None:
    query = "EVENT SEQ(login a, pay b) WHERE a.value = 'web'"
    shown = on_command_line("run", query, "--input", file, "--match-id")
    found = cepheid.match(query, file, match_id=True).to_pylist()
    assert [row["match_id"] for row in found] == [row["match_id"] for row in shown] and len(found) == 3


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("a.value < b.value", "write CAST(b.value AS string) to compare texts"),
        ("[value]", "or CAST(a.value AS double) to compare numbers"),
    ],
)
def test_texts_beside_numbers_are_an_error_with_a_hint(condition: str, hint: str, file: Path) -> None:
    query = f"EVENT SEQ(login a, pay b) WHERE {condition}"
    with pytest.raises(TypeProblem, match="compares a") as raised:
        cepheid.match(query, file)
    assert hint in (raised.value.hint or "")
    with pytest.raises(TypeProblem, match="compares a"):
        cepheid.match({"q": query}, file)
    assert "compares a" in CliRunner().invoke(app, ["run", query, "--input", str(file)]).stderr


def test_merged_inputs_refuse_columns_of_several_types_that_are_read(file: Path, tmp_path: Path) -> None:
    """Other columns of time are merged as columns, which have one type."""
    (tmp_path / "other.csv").write_text("when,type,user,value\n9,end,ann,7\n")
    inputs: list[Any] = [file, cepheid.Input(tmp_path / "other.csv", time_column="when")]
    tables: list[Any] = [file, cepheid.Input(pa.table({"when": [9], "type": ["end"]}), time_column="when")]
    for events in (inputs, tables):
        users = cepheid.match("EVENT SEQ(login a, end b) RETURN a.user AS a", events)
        assert without_times(users.to_pylist()) == [{"a": "ann"}]
        with pytest.raises(InputProblem, match=r"`value` of .* holds values of several types: string in `login` and "):
            cepheid.match("EVENT SEQ(login a, end b) WHERE a.value = 'web' RETURN a.user AS a", events)
    arguments = ["run", "EVENT SEQ(login a, end b)", "-i", str(file), "-i", f"{tmp_path}/other.csv,time=when"]
    assert "holds values of several types" in CliRunner().invoke(app, arguments).stderr


def test_sources_of_detection_refuse_columns_of_several_types(file: Path) -> None:
    with pytest.raises(InputProblem, match=r"`value` of `s` holds values of several types"):
        cepheid.detect("EVENT SEQ(login a, pay b) WITHIN 5 units", {"s": file})
