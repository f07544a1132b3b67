"""The command line: what goes to standard output, what to standard error, what into files, and the exit code."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from cepheid.api import match
from cepheid.app import cli, report
from cepheid.app.cli import batch_run
from cepheid.app.demo import EXAMPLES, example_text
from cepheid.errors import InputProblem
from cepheid.lang import DIALECTS, parse, to_text

ROOT = Path(__file__).resolve().parent.parent.parent
THEFT = "EVENT SEQ(Shelf x, !(Register y), Exit z) WHERE [tag_id] WITHIN 1 minute"
SECONDS = ("--time-unit", "s")
SHOP = [
    {"type": "Exit", "ts": 50, "tag_id": 2},
    {"type": "Shelf", "ts": 10, "tag_id": 1, "shelf": "A"},
    {"type": "Shelf", "ts": 20, "tag_id": 2, "at": {"x": 1}},
    {"type": "Register", "ts": 30, "tag_id": 1},
    {"type": "Exit", "ts": 40, "tag_id": 1},
]


def cepheid(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], input=stdin)


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def read_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "shop.jsonl", SHOP)


# --- the process ------------------------------------------------------------------------------------------------------


def process(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "cepheid", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=60)


def test_matches_go_to_stdout_and_the_summary_to_stderr(tmp_path: Path, shop: Path) -> None:
    done = process("run", "--query", THEFT, "--input", shop, "--time-unit", "s", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_lines(done.stdout) == [{"x": SHOP[2], "z": SHOP[0], "match_start": 20, "match_end": 50}]
    assert "5 events read, 1 match, 0 rejects" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_a_terminal_shows_a_table(tmp_path: Path) -> None:
    import pty

    rows = [{"type": kind, "ts": at, "n": at} for at in range(60) for kind in "AB"]
    events = write_lines(tmp_path / "events.jsonl", rows)
    query = "EVENT SEQ(A x, B y) WITHIN 2"
    master, slave = pty.openpty()
    command = [sys.executable, "-P", "-m", "cepheid", "run", "--query", query, "--input", str(events)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100", "TERM": "dumb"}
    with subprocess.Popen(command, env=env, stdout=slave, stderr=subprocess.PIPE, text=True) as running:
        os.close(slave)
        parts: list[bytes] = []
        with contextlib.suppress(OSError):  # Linux: at the end of a terminal's output
            while part := os.read(master, 1 << 16):
                parts.append(part)
        assert running.stderr is not None
        summary = running.stderr.read()
    os.close(master)
    shown = b"".join(parts).decode()
    assert "match_start" in shown.splitlines()[0] and "type=A ts=0 n=0" in shown
    assert not shown.lstrip().startswith("{")
    assert "the first 50 of 59 rows" in summary and "120 events read, 59 matches" in summary


def test_the_shape_of_the_output(tmp_path: Path, shop: Path) -> None:
    run = ("run", "--query", THEFT, "--input", shop, *SECONDS, "--output-shape")
    done = cepheid(*run, "long")
    interval = {"match_start": 20, "match_end": 50}
    own = {"type": "Exit", "ts": 50, "tag_id": 2, "shelf": None, "at.x": None, **interval}
    assert read_lines(done.stdout)[1] == {"match_number": 0, "match_variable": "z", "match_index": 1, **own}
    assert len(read_lines(done.stdout)) == 2 and "5 events read, 1 match, 0 rejects" in done.stderr
    cepheid(*run, "flat", "--output", tmp_path / "out.csv")
    [row] = csv.DictReader((tmp_path / "out.csv").open())
    flat = {"x.ts": "20", "x.at.x": "1", "x.shelf": "", "z.tag_id": "2", "match_end": "50"}
    assert {name: row[name] for name in flat} == flat
    assert "one of `events`, `flat`, `long`" in cepheid(*run, "wide").stderr


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        (
            "EVENT SEQ(Shelf x, Exit z) WHERE x.tag_id > 7 WITHIN 1 minute",
            [
                "no match: 5 events, 3 fit no variable",
                "  x (Shelf): 0 of 2 events pass its conditions: nothing can match",
                "  z (Exit): 2 of 2 events pass its conditions",
            ],
        ),
        (
            "EVENT SEQ(Shelf x, !(Register y), Exit z) WHERE [tag_id] AND x.tag_id = 1 WITHIN 1 minute",
            [
                "  x (Shelf): 1 of 2 events pass its conditions",
                "  y (Register, must not occur): 1 of 1 events pass its conditions",
                " and negated events, ",
                "  possible causes: the order of the events; the window of 1 min; [tag_id]; an event of y",
            ],
        ),
        (
            "PATTERN SEQ(Shelf+ a[], Exit c) WHERE skip_till_next_match(a[], c) { sum(a[].tag_id) > 9 } "
            "WITHIN 1 minute",
            ["; sum(a.tag_id) > 9\n"],
        ),
        (
            "PATTERN Exit;Register*;Shelf WHERE Register.tag_id > 9 WITHIN 1 minute",
            [
                "  Register (Register, 0 or more): 0 of 1 events pass its conditions\n",
                "  possible causes: the order of the events; the window of 1 min",
            ],
        ),
    ],
)
def test_an_empty_result_shows_how_far_the_events_got(shop: Path, query: str, lines: list[str]) -> None:
    done = cepheid("run", "--query", query, "--input", shop, "--time-unit", "s")
    assert done.exit_code == 0 and done.stdout == ""
    for line in lines:
        assert line in done.stderr
    assert ("nothing can match" in done.stderr) != ("possible causes" in done.stderr)


@pytest.mark.parametrize(
    "options", [["--query", THEFT], ["--query", f"{THEFT} LIMIT 0"], ["--query", THEFT, "--backend", "reference"]]
)
def test_only_a_run_without_matches_is_analyzed(
    shop: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cepheid.app.file_run.analyze", lambda *_: pytest.fail("analyzed"))
    done = cepheid("run", *options, "--input", shop, "--time-unit", "s")
    assert done.exit_code == 0 and "no match:" not in done.stderr


def test_a_user_error_is_a_message_and_exit_code_2(tmp_path: Path) -> None:
    done = process("check", "EVENT SEQ(Shelf x, Exit z", cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and "^" in done.stderr and "Traceback" not in done.stderr


def test_start_up_imports_nothing_heavy(tmp_path: Path) -> None:
    heavy = ["pyspark", "pandas", "numba", "matplotlib", "pyarrow", "numpy", "cepheid.datasets"]
    code = f"import sys, cepheid.app.cli; print([name for name in {heavy} if name in sys.modules])"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_version_and_help() -> None:
    assert cepheid("--version").stdout.startswith("cepheid 0.")
    for command in ("check", "explain", "run", "batch-run", "demo"):
        assert command in cepheid("--help").stdout
        assert cepheid(command, "--help").exit_code == 0


# --- check and explain ------------------------------------------------------------------------------------------------


def test_check_takes_text_a_file_or_stdin(tmp_path: Path) -> None:
    (tmp_path / "q.sase").write_text(THEFT)
    outputs = {
        cepheid("check", THEFT).stdout,
        cepheid("check", tmp_path / "q.sase").stdout,
        cepheid("check", "-", stdin=THEFT).stdout,
    }
    (output,) = outputs
    assert "language: SASE\n" in output and "  y  Register, must not occur\n" in output
    assert "  EVENT SEQ(Shelf x, !(Register y), Exit z)\n" in output


def test_check_names_the_file_where_the_error_is(tmp_path: Path) -> None:
    (tmp_path / "q.sase").write_text("EVENT SEQ(Shelf x,\n  Exit z")
    result = cepheid("check", tmp_path / "q.sase")
    assert result.exit_code == 2 and "q.sase, line 2" in result.stderr


@pytest.mark.parametrize("text", ["", "\0", "x" * 1_000_000, "(" * 10_000, "__import__('os').system('id')", "\ud800"])
def test_check_survives_hostile_text(text: str) -> None:
    result = cepheid("check", text)
    assert result.exit_code == 2 and result.stderr.startswith("error: ")


def test_check_against_data(shop: Path) -> None:
    result = cepheid("check", THEFT.replace("tag_id", "tag"), "--input", shop)
    assert result.exit_code == 2 and "unknown attribute `tag`" in result.stderr
    result = cepheid("check", "EVENT SEQ(Shelf x, Alarm z)", "--input", shop)
    assert result.exit_code == 0 and "warning: the input has no event of type `Alarm`" in result.stderr


def test_a_query_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "q").write_bytes(b"EVENT \xff")
    assert "not UTF-8 text" in cepheid("check", tmp_path / "q").stderr


def test_explain_in_every_format() -> None:
    assert "├─ language: SASE\n" in cepheid("explain", THEFT).stdout
    assert cepheid("explain", THEFT, "--format", "mermaid").stdout.startswith("flowchart")
    assert cepheid("explain", THEFT, "--format", "dot").stdout.startswith("digraph")
    assert cepheid("explain", THEFT, "--format", "html").stdout.startswith("<!doctype html>")
    assert cepheid("explain", THEFT, "--format", "svg").stdout.startswith("<svg ")
    result = cepheid("explain", THEFT, "--format", "pdf")
    assert result.exit_code == 2 and "one of `dot`, `html`, `mermaid`, `svg`, `text`" in result.stderr


def test_explain_with_data_settles_names(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "e.jsonl", [{"type": "IBM", "ts": 1, "price": 2}])
    text = "PATTERN IBM;T2 WITHIN 5 units"
    assert "IBM: the type of that name" in cepheid("explain", text).stdout
    assert "T2: any event" in cepheid("explain", text, "--input", data).stdout


# --- run --------------------------------------------------------------------------------------------------------------


def test_output_formats(tmp_path: Path, shop: Path) -> None:
    for name in ("m.jsonl", "m.csv", "m.parquet"):
        result = cepheid("run", "--query", THEFT, *SECONDS, "-i", shop, "-o", tmp_path / "new" / name)
        assert result.exit_code == 0, result.stderr
        assert result.stdout == ""
    (row,) = read_lines((tmp_path / "new" / "m.jsonl").read_text())
    assert row == {"x": SHOP[2], "z": SHOP[0], "match_start": 20, "match_end": 50}
    with (tmp_path / "new" / "m.csv").open() as file:
        (cells,) = csv.DictReader(file)
    assert {name: json.loads(cell) for name, cell in cells.items()} == row
    table = pq.read_table(tmp_path / "new" / "m.parquet")
    assert table.to_pylist() == [
        {
            "x": {"type": "Shelf", "ts": 20, "tag_id": 2, "shelf": None, "at.x": 1},
            "z": {"type": "Exit", "ts": 50, "tag_id": 2},
            "match_start": 20,
            "match_end": 50,
        }
    ]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["m.csv", "m.jsonl", "m.parquet"]


def test_arrow_output_is_the_parquet_output(tmp_path: Path, shop: Path) -> None:
    for backend, name in itertools.product(("reference", "local"), ("m.arrow", "m.parquet")):
        result = cepheid("run", "--query", THEFT, *SECONDS, "-i", shop, "-o", tmp_path / name, "--backend", backend)
        assert result.exit_code == 0, result.stderr
    assert pa.ipc.open_file(tmp_path / "m.arrow").read_all() == pq.read_table(tmp_path / "m.parquet")


def test_an_empty_result_has_its_columns(tmp_path: Path, shop: Path) -> None:
    nothing = THEFT.replace("[tag_id]", "[tag_id] AND x.tag_id > 5")
    cepheid("run", "--query", nothing, *SECONDS, "-i", shop, "-o", tmp_path / "m.csv")
    assert (tmp_path / "m.csv").read_text() == "x,z,match_start,match_end\n"
    cepheid("run", "--query", nothing, *SECONDS, "-i", shop, "-o", tmp_path / "m.parquet")
    cepheid("run", "--query", THEFT, *SECONDS, "-i", shop, "-o", tmp_path / "full.parquet")
    assert pq.read_schema(tmp_path / "m.parquet") == pq.read_schema(tmp_path / "full.parquet")


def test_kleene_variables_disjunctions_and_columns(tmp_path: Path) -> None:
    rows = [{"type": "A", "ts": 1, "v": 1}, {"type": "B", "ts": 2, "v": 2.5}, {"type": "B", "ts": 3, "v": 3}]
    data = write_lines(tmp_path / "e.jsonl", [*rows, {"type": "C", "ts": 4}])

    def run(text: str, name: str) -> tuple[Any, Any]:
        for ending in ("jsonl", "parquet"):
            result = cepheid("run", "--query", text, "-i", data, "-o", tmp_path / f"{name}.{ending}")
            assert result.exit_code == 0, result.stderr
        shown = read_lines((tmp_path / f"{name}.jsonl").read_text())
        return shown, pq.read_table(tmp_path / f"{name}.parquet")

    shown, table = run("PATTERN A;B+;C WITHIN 10 units", "kleene")
    assert shown[0]["B"] == rows[1:] and pa.types.is_list(table.schema.field("B").type)
    assert table.to_pylist()[0]["B"] == [{**row, "v": float(row["v"])} for row in rows[1:]]  # type: ignore[arg-type]

    shown, table = run("PATTERN A;(B|D d);C WITHIN 10 units", "either")
    assert [row["d"] for row in shown] == [None, None] and "d" in table.column_names

    shown, table = run("PATTERN A;B+;C WITHIN 10 units RETURN A, sum(B.v) AS total, count(B) AS n, C.ts", "columns")
    assert shown == [{"A": rows[0], "total": 5.5, "n": 2, "C.ts": 4, "match_start": 1, "match_end": 4}]
    assert table.to_pylist() == shown
    assert table.schema.field("total").type == pa.float64() and table.schema.field("n").type == pa.int64()


def test_timestamps_look_as_they_did(tmp_path: Path) -> None:
    rows = [{"type": "A", "ts": "2024-01-01 10:00:00+01:00"}, {"type": "B", "ts": "2024-01-01T09:00:01.5Z"}]
    data = write_lines(tmp_path / "e.jsonl", rows)
    text = "PATTERN A;B WITHIN 2 seconds"
    (shown,) = read_lines(cepheid("run", "--query", text, "-i", data).stdout)
    assert shown == {"A": rows[0], "B": rows[1], "match_start": rows[0]["ts"], "match_end": rows[1]["ts"]}
    (shown,) = read_lines(cepheid("run", "--query", text + " RETURN B.ts AS seen", "-i", data).stdout)
    assert shown["seen"] == rows[1]["ts"]
    assert cepheid("run", "--query", text.replace("2", "1"), "-i", data).stdout == ""
    cepheid("run", "--query", text, "-i", data, "-o", tmp_path / "m.parquet")
    table = pq.read_table(tmp_path / "m.parquet")
    assert table.schema.field("match_start").type == pa.timestamp("us", tz="UTC")
    assert table.column("A").to_pylist()[0]["ts"] == table.column("match_start").to_pylist()[0]


def test_composite_events_show_their_attributes(tmp_path: Path, shop: Path) -> None:
    script = f"theft: {THEFT}\nPATTERN SEQ(theft a) WHERE skip_till_any_match(a) {{ a.tag_id > 0 }}".replace(
        "PATTERN", "result: PATTERN"
    )
    for name in ("m.jsonl", "m.parquet", "m.csv"):
        result = cepheid("run", "--query", script, *SECONDS, "-i", shop, "-o", tmp_path / name)
        assert result.exit_code == 0, result.stderr
    (shown,) = read_lines((tmp_path / "m.jsonl").read_text())
    assert shown["a"]["tag_id"] == 2 and shown["a"]["start_time"] == 20 and shown["match_end"] == 50
    (row,) = pq.read_table(tmp_path / "m.parquet").to_pylist()
    assert row["a"]["tag_id"] == 2 and row["a"]["start_time"] == 20


@pytest.mark.parametrize("name", ["m.jsonl", "m.parquet"])
@pytest.mark.parametrize("backend", ["local", "reference"])
def test_output_is_computed_from_the_closures_of_composite_events(tmp_path: Path, backend: str, name: str) -> None:
    """Of a text file, whose rows are read one by one."""
    events = tmp_path / "e.csv"
    events.write_text("ts,type,v\n1,A,1\n2,A,2\n3,B,9\n4,C,7\n")
    script = (
        "P: PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { }\n"
        "Q: EVENT SEQ(P p, C c) RETURN count(p.a) AS n, sum(p.a.v) AS s, p.a[1].v AS f, p.a[a.LEN].v AS l, p.b.v AS b"
    )
    path = tmp_path / name
    result = cepheid("run", "--query", script, "-i", events, "-o", path, "--backend", backend)
    assert result.exit_code == 0, result.stderr
    rows = read_lines(path.read_text()) if name == "m.jsonl" else pq.read_table(path).to_pylist()
    assert [[row[column] for column in "nsflb"] for row in rows] == [[2, 3, 1, 2, 9], [1, 2, 2, 2, 9]]


@pytest.mark.parametrize("command", [["run", "--query"], ["check"], ["explain"]])
def test_a_window_needs_the_unit_of_the_times(tmp_path: Path, shop: Path, command: list[str]) -> None:
    """Ruling 1: the unit is declared or recognised; no unit is assumed."""
    refused = cepheid(*command, THEFT, "-i", shop)
    assert refused.exit_code == 2 and "`1 min` over an integer time column whose unit is not known" in refused.stderr
    assert "declare it (--time-unit ms, or time_unit='ms'), or write `WITHIN n units`" in refused.stderr
    assert cepheid(*command, THEFT, "-i", shop, *SECONDS).exit_code == 0
    assert cepheid(*command, THEFT.replace("1 minute", "60 units"), "-i", shop).exit_code == 0
    recognised = write_lines(tmp_path / "e.jsonl", [{**row, "ts": 1_700_000_000 + at} for at, row in enumerate(SHOP)])
    assert cepheid(*command, THEFT, "-i", recognised).exit_code == 0


def test_the_unit_is_reported_where_it_matters(shop: Path) -> None:
    assert "is an integer column in s, for 1 min" in cepheid("run", "--query", THEFT, "-i", shop, *SECONDS).stderr
    assert "integer column" not in cepheid("run", "--query", THEFT.replace("minute", "units"), "-i", shop).stderr
    assert cepheid("run", "--query", THEFT, "-i", shop, "--time-unit", "moon").exit_code == 2


def test_a_wrong_unit_is_reported_before_any_input_is_opened(tmp_path: Path) -> None:
    missing = tmp_path / "missing.jsonl"
    for command in (["run", "--query"], ["explain"]):
        result = cepheid(*command, THEFT, "-i", missing, "--time-unit", "xx")
        assert result.exit_code == 2 and "`xx` is not a unit of time" in result.stderr


def test_parameters(shop: Path) -> None:
    text = "EVENT SEQ(Shelf x, Exit z) WHERE [tag_id] AND x.tag_id > least"
    assert len(read_lines(cepheid("run", "--query", text, "-i", shop, "--param", "least=1").stdout)) == 1
    assert len(read_lines(cepheid("run", "--query", text, "-i", shop, "-p", "least=0.5").stdout)) == 2
    assert "--param least=" in cepheid("run", "--query", text, "-i", shop).stderr
    assert cepheid("run", "--query", text, "-i", shop, "--param", "least").exit_code == 2
    named = "EVENT SEQ(Shelf x, Exit z) WHERE [tag_id] AND x.shelf = name"
    for value in ("A", '"A"'):
        assert len(read_lines(cepheid("run", "--query", named, "-i", shop, "-p", f"name={value}").stdout)) == 1


def test_rejects_go_next_to_the_output(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "e.jsonl", [*SHOP, "{broken", {"type": "Exit"}])
    out, beside = tmp_path / "m.jsonl", tmp_path / "m.jsonl.rejects.jsonl"
    result = cepheid("run", "--query", THEFT, *SECONDS, "-i", data, "-o", out)
    assert "2 rejects" in result.stderr and str(beside) in result.stderr.replace("\n", "")
    assert read_lines(beside.read_text()) == [
        {"source": str(data), "line": 6, "reason": read_lines(beside.read_text())[0]["reason"], "raw": "{broken"},
        {"source": str(data), "line": 7, "reason": "no time: `ts` is missing", "raw": '{"type": "Exit"}'},
    ]
    write_lines(data, SHOP)
    cepheid("run", "--query", THEFT, *SECONDS, "-i", data, "-o", out)
    assert not beside.exists()  # an old one would speak for the new run


def test_rejects_go_where_they_are_asked_for_or_are_told(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "e.jsonl", [*SHOP, *["{broken"] * 5, '{"ts": 1, "type": "\\ud800"}'])
    result = cepheid("run", "--query", THEFT, *SECONDS, "-i", data, "--rejects", tmp_path / "r.jsonl")
    assert len(read_lines((tmp_path / "r.jsonl").read_text())) == 6 and "rejected:" not in result.stderr
    result = cepheid("run", "--query", THEFT, *SECONDS, "-i", data)
    assert result.stderr.count("rejected:") == 4 and "rejected: 3 more" in result.stderr
    assert len(read_lines(result.stdout)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "there is no query"),
        (["--query", THEFT, "--query-file", "x"], "there are two queries"),
        (["--query", THEFT], "there are no events"),
        (["--query", THEFT, "-i", "no.jsonl"], "there is no file `no.jsonl`"),
        (["--query-file", "no.sase", "-i", "no.jsonl"], "cannot read the query file"),
        (["--query", THEFT, "-i", "SHOP", "--backend", "referense"], "did you mean `reference`?"),
        (["--query", THEFT, "-i", "SHOP", "--dialect", "sql"], "unknown language `sql`"),
        (["--query", THEFT, "-i", "SHOP", "-o", "m.txt"], "txt is not an output format"),
        (["--query", THEFT, "-i", "SHOP", "-o", "m.orc"], "orc is not an output format"),
        (["--query", THEFT, "-i", "SHOP", "-o", "m.xyz"], "a file named .jsonl, .csv, .parquet or .arrow"),
        (["--query", THEFT, "-i", "SHOP", "-o", "SHOP"], "is an input"),
        (["--query", THEFT, *SECONDS, "-i", "SHOP", "-o", "SHOP/m.jsonl"], "cannot write"),
        (["--query", "EVENT SEQ(Shelf match_start)", "-i", "SHOP"], "a column that every match has"),
        (["--query", "EVENT SEQ(Shelf x", "-i", "no.jsonl"], "line 1"),
    ],
)
def test_what_run_refuses(shop: Path, options: list[str], message: str) -> None:
    before = shop.read_text()
    result = cepheid("run", *(option.replace("SHOP", str(shop)) for option in options))
    assert result.exit_code == 2 and message in result.stderr.replace("\n", " ")
    assert shop.read_text() == before


def test_a_failed_run_leaves_the_old_output(tmp_path: Path, shop: Path) -> None:
    (tmp_path / "m.jsonl").write_text("old")
    cepheid("run", "--query", THEFT.replace("tag_id", "tag"), "-i", shop, "-o", tmp_path / "m.jsonl")
    assert (tmp_path / "m.jsonl").read_text() == "old"


# --- batch-run --------------------------------------------------------------------------------------------------------


def case(cases: Path, name: str, query: str, rows: list[Any], dialect: str | None = None) -> None:
    write_lines(cases / name / "events.jsonl", rows)
    (cases / name / "query.txt").write_text(query)
    if dialect is not None:
        (cases / name / "dialect.txt").write_text(dialect)


def test_batch_run(tmp_path: Path) -> None:
    cases, out = tmp_path / "cases", tmp_path / "out"
    case(cases, "theft", THEFT, [*SHOP, "{broken"], " SASE\n")
    case(cases, "guessed", "PATTERN A;B WITHIN 5 units", [{"type": "A", "ts": 1}])
    case(cases, "syntax", "EVENT SEQ(", SHOP, "sase")
    case(cases, "plus", "PATTERN SEQ(A a) WHERE skip_till_any_match(a) { a.ts > 0 }", [], "SASE+")
    (cases / "empty").mkdir()
    (cases / "notes.txt").write_text("not a case")
    out.mkdir()
    (out / "theft.error").write_text("stale")
    (out / "syntax.jsonl").write_text("stale")
    result = cepheid("batch-run", cases, out, "--backend", "reference", "--time-unit", "s")
    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in out.iterdir()) == [
        "empty.error",
        "guessed.jsonl",
        "plus.jsonl",
        "syntax.error",
        "theft.jsonl",
        "theft.rejects.jsonl",
    ]
    assert len(read_lines((out / "theft.jsonl").read_text())) == 1
    assert "line 1, column" in (out / "syntax.error").read_text()
    assert "5 cases: 3 with matches written, 2 with an error message, 0 failed" in result.stderr.replace("\n", " ")


def test_a_bug_in_one_case_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases, out = tmp_path / "cases", tmp_path / "out"
    case(cases, "a", THEFT, SHOP)
    case(cases, "b", THEFT, SHOP)
    write = batch_run.write_case

    def broken(case: Path, *rest: Any) -> None:
        if case.name == "a":
            raise ZeroDivisionError("oops")
        write(case, *rest)

    monkeypatch.setattr(batch_run, "write_case", broken)
    result = cepheid("batch-run", cases, out, *SECONDS)
    assert result.exit_code == 1
    assert sorted(path.name for path in out.iterdir()) == ["a.error", "b.jsonl"]
    assert "ZeroDivisionError: oops" in (out / "a.error").read_text()


def test_batch_run_needs_its_directories(tmp_path: Path, shop: Path) -> None:
    assert cepheid("batch-run", tmp_path / "nowhere", tmp_path / "out").exit_code == 2
    assert cepheid("batch-run", tmp_path, shop).exit_code == 2
    assert cepheid("demo", "--output", shop).exit_code == 2


# --- examples and documentation ---------------------------------------------------------------------------------------


def test_the_examples_cover_every_language_and_read_back() -> None:
    queries = [parse(example_text(example.file)) for example in EXAMPLES]
    assert {query.dialect for query in queries} == set(DIALECTS)
    for query in queries:
        assert parse(to_text(query), dialect=query.dialect.name) == query


def test_the_commands_of_the_how_to_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cepheid's own lines run in this process, which is much faster; all others in a shell."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "how-to" / "command-line.md").read_text()
    blocks = re.findall(r"^```sh(?: exit=(\d))?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ran = 0
    for code, body in blocks:
        for ours, lines in itertools.groupby(body.splitlines(), key=lambda line: line.startswith("cepheid ")):
            if not ours:
                subprocess.run(["bash", "-euc", "\n".join(lines)], check=True, capture_output=True)
            for line in lines if ours else ():
                command, _, target = line.partition(" > ") if line.count(" > ") and "'" not in line else (line, "", "")
                result = cepheid(*shlex.split(command)[1:])
                assert result.exit_code == int(code or 0), (line, result.stderr)
                if target:
                    Path(target).write_text(result.stdout)
                ran += 1
    assert ran >= 10
    assert Path("answers/theft.jsonl").exists() and Path("answers/typo.error").exists()


def test_a_column_that_parquet_cannot_hold_is_reported(tmp_path: Path) -> None:
    odd = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    feather.write_feather(pa.table({"type": ["A", "B"], "ts": [1, 2], "odd": odd}), str(tmp_path / "events.arrow"))
    files = ("-i", tmp_path / "events.arrow", "-o", tmp_path / "m.parquet")
    result = cepheid("run", "--query", "EVENT A x", *files, "--backend", "local")
    assert result.exit_code == 2
    assert "Parquet cannot hold a column" in result.stderr
    assert not (tmp_path / "m.parquet").exists()


@pytest.mark.parametrize("command", ["run", "check", "explain"])
def test_every_command_takes_the_query_in_the_same_ways(command: str, tmp_path: Path) -> None:
    (tmp_path / "q.sase").write_text("EVENT A x")
    (tmp_path / "e.csv").write_text("type,ts\nA,1\n")
    given = ["--input", str(tmp_path / "e.csv")]
    ways = [["EVENT A x"], [str(tmp_path / "q.sase")], ["--query", "EVENT A x"]]
    ways += [["--query-file", str(tmp_path / "q.sase")], ["-"], ["--query-file", "-"]]
    results = [CliRunner().invoke(cli.app, [command, *way, *given], input="EVENT A x") for way in ways]
    assert {(result.exit_code, result.stdout) for result in results} == {(0, results[0].stdout)}
    for way, problem in (([], "there is no query"), (["EVENT A x", "--query", "EVENT A x"], "there are two queries")):
        refused = CliRunner().invoke(cli.app, [command, *way, *given])
        assert refused.exit_code == 2
        assert problem in refused.stderr and "--query-file" in refused.stderr


def test_only_work_that_takes_long_shows_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    for patience, is_shown in ((60.0, False), (0.0, True)):
        written = io.StringIO()
        terminal = Console(file=written, force_terminal=True, highlight=False)
        monkeypatch.setattr(report, "errors", lambda terminal=terminal: terminal)
        monkeypatch.setattr(report, "PATIENCE", patience)
        with report.progress("reading", 100) as progress:
            time.sleep(0.3)
            progress(50, 3)
        assert ("reading" in written.getvalue()) == is_shown
    pipe = io.StringIO()
    monkeypatch.setattr(report, "errors", lambda: Console(file=pipe))
    with report.progress("reading", 100) as progress:
        time.sleep(0.1)
        progress(50, 3)
    assert not pipe.getvalue()


COMPOSED = """
P: EVENT SEQ(A x, B y) WITHIN 3 minutes RETURN x.ts AS since, y.ts - x.ts AS took
Q: EVENT SEQ(P p, C c) WITHIN 3 minutes RETURN p, p.start_time AS began
"""


@pytest.mark.parametrize("backend", ["local", "reference"])
def test_times_of_derived_events_are_times_in_text(backend: str, tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("type,ts\nA,2024-03-01 08:00\nB,2024-03-01 08:01\nC,2024-03-01 08:02\n")
    found = CliRunner().invoke(cli.app, ["run", COMPOSED, "--input", str(tmp_path / "e.csv"), "--backend", backend])
    row = json.loads(found.stdout)
    assert (row["p"]["since"], row["p"]["took"], row["began"]) == ("2024-03-01 08:00", 60.0, "2024-03-01 08:00")


def test_matches_are_in_the_order_of_python(tmp_path: Path) -> None:
    rows = [("A", 1), ("A", 2), ("B", 3), ("A", 3), ("B", 4)]
    (tmp_path / "e.csv").write_text("type,ts\n" + "".join(f"{kind},{ts}\n" for kind, ts in rows))
    query = "EVENT SEQ(A x, B y) WITHIN 10"
    found = CliRunner().invoke(cli.app, ["run", query, "--input", str(tmp_path / "e.csv")])
    table = pa.table({"type": [kind for kind, _ in rows], "ts": [ts for _, ts in rows]})
    expected = [(row["match_start"], row["match_end"]) for row in match(query, table).to_pylist()]
    shown = [json.loads(line) for line in found.stdout.splitlines()]
    assert [(row["match_start"], row["match_end"]) for row in shown] == expected


@pytest.mark.parametrize("window", ["2 days", "200 units"])
def test_times_that_are_not_recognised(tmp_path: Path, window: str) -> None:
    (tmp_path / "e.csv").write_text("type,ts\nA,03/01/2024\nB,03/02/2024\n")
    query = f"EVENT SEQ(A a, B b) WITHIN {window}"
    done = CliRunner().invoke(cli.app, ["run", query, "--input", str(tmp_path / "e.csv"), "--backend", "local"])
    assert "no time in `ts` is recognised: the time `03/01/2024` is neither an integer nor an" in done.stderr
    assert "write times as 2024-03-01 08:00:00" in done.stderr and "integer column" not in done.stderr
    with pytest.raises(InputProblem, match="write times as 2024-03-01 08:00:00"):
        match(query, str(tmp_path / "e.csv"))
