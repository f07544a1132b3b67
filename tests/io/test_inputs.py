"""Several inputs, each with its own type, columns of time, unit, format and delimiter; inputs without a type column."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.app import cli
from cepheid.errors import InputProblem, NotAvailable
from cepheid.events import Schema
from cepheid.io.inputs import Columns, Input
from cepheid.io.merged import MergedSource, open_inputs
from cepheid.io.rows import TIME, TYPE
from cepheid.io.stream_files import StreamFiles

LOGINS = "user id;ts;ok\nann;1709280000;false\nbob;1709280010;true\nann;1709280020;true\n"
ORDERS = "user id,created_at,amount\nann,2024-03-01T08:00:30Z,12.5\nbob,2024-03-01 09:00:30+01:00,7\n"
BOUGHT = (
    "EVENT SEQ(Login a, Order b) WHERE a.`user id` = b.`user id` AND b.created_at - a.ts < 15 seconds WITHIN 1 hour"
)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "logins.csv").write_text(LOGINS)
    (tmp_path / "orders.csv").write_text(ORDERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def inputs() -> list[Input]:
    return [Input("logins.csv", type="Login"), Input("orders.csv", type="Order", time_column="created_at")]


def run(*arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli.app, ["run", *arguments])
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.usefixtures("shop")
def test_each_input_has_its_own_time() -> None:
    (row,) = cepheid.match(BOUGHT, inputs()).to_pylist()
    assert (row["a"]["user id"], row["a"]["ok"], row["b"]["amount"]) == ("ann", True, 12.5)
    assert str(row["a"]["ts"]) == "2024-03-01 08:00:20+00:00"
    assert (row["match_start"], row["match_end"]) == (row["a"]["ts"], row["b"]["created_at"])
    assert cepheid.match(BOUGHT, inputs(), evaluator="reference").to_pylist() == [row]
    assert set(row["a"]) == {"user id", "ts", "ok"}


@pytest.mark.usefixtures("shop")
def test_the_command_line_has_the_same_inputs() -> None:
    for order in ("orders.csv,type=Order,time=created_at", "Order=orders.csv,time=created_at,sep=comma,format=csv"):
        rows = run("--query", BOUGHT, "--input", "logins.csv,type=Login,sep=semicolon,unit=s", "--input", order)
        assert [(row["a"]["ts"], row["b"]["amount"]) for row in rows] == [("2024-03-01T08:00:20Z", 12.5)]


@pytest.mark.usefixtures("shop")
def test_tables_are_inputs_too() -> None:
    tables = {"Login": pd.read_csv("logins.csv", sep=";"), "Order": Input("orders.csv", time_column="created_at")}
    found = cepheid.match(BOUGHT, tables)
    assert isinstance(found, pd.DataFrame)
    assert len(found) == 1
    with pytest.raises(NotAvailable, match="positions matches of several inputs"):
        cepheid.match(BOUGHT, tables, output="positions")
    long = cepheid.match(BOUGHT, tables, output="long")
    assert list(long.match_variable) == ["a", "b"]


def test_a_declared_unit_decides(shop: Path) -> None:
    (shop / "logins.csv").write_text("user id;ts;ok\nann;1;true\n")
    (shop / "orders.csv").write_text("user id,created_at,amount\nann,1970-01-01T00:00:02Z,1\n")
    with pytest.raises(InputProblem, match=r"the unit of the times `ts` of logins.csv is not known"):
        cepheid.match(BOUGHT, inputs())
    first, second = inputs()
    assert cepheid.match(BOUGHT, [Input("logins.csv", "Login", time_unit="s"), second]).num_rows == 1
    assert cepheid.match(BOUGHT, [Input("logins.csv", "Login", time_unit="min"), second]).num_rows == 0
    assert cepheid.match(BOUGHT, [first, second], time_unit="seconds").num_rows == 1


@pytest.mark.parametrize("source", ["logins.csv", "table"])
def test_one_stream_without_a_type_column(shop: Path, source: str) -> None:
    query = "PATTERN SEQ(Login a, Login b) WHERE skip_till_next_match(a, b) { [`user id`] } WITHIN 1 minute"
    events = pd.read_csv("logins.csv", sep=";") if source == "table" else source
    for options in ({"type": "Login"}, {"type_column": None}):
        assert len(cepheid.match(query, events, **options)) == 1
    with pytest.raises(InputProblem, match='type="Login"'):
        cepheid.match(query, events)
    with pytest.raises(InputProblem, match="no type column, and the query names the types"):
        cepheid.match("EVENT SEQ(Login a, Logout b) WITHIN 1 hour", events, type_column=None)
    if source != "table":
        assert len(run("--query", query, "--input", source, "--type", "Login")) == 1


def test_text_files_are_read_in_python(shop: Path) -> None:
    (shop / "orders.csv").write_text(ORDERS + "eve,soon,1\n")
    query = "EVENT Order o RETURN o.amount"
    with pytest.raises(InputProblem, match=r"row 4 of `orders.csv` is not a valid event.*\n.*rejects=True"):
        cepheid.match(query, inputs()[1])
    matches, rejects = cepheid.match(query, inputs()[1], rejects=True)
    assert matches.column(0).to_pylist() == [12.5, 7.0]
    assert rejects.column("line").to_pylist() == [4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.csv,tme=ts", "did you mean `time`"),
        ("a.csv,time=", "has no value"),
        ("a.csv,time=a,time=b", "given twice"),
        ("A=a.csv,type=B", "two types"),
        ("a.csv,unit=fortnight", "not a unit of time"),
        ("a.csv,sep=xy", "cannot separate"),
    ],
)
def test_slips_in_an_input(text: str, message: str) -> None:
    with pytest.raises(InputProblem, match=message):
        Input.parse(text)


def test_a_file_of_any_name_has_a_format(shop: Path) -> None:
    (shop / "logins.csv").rename(shop / "logins.log")
    assert cepheid.match("EVENT Login l", Input("logins.log", "Login", format="csv")).num_rows == 3
    with pytest.raises(InputProblem, match="did you mean `csv`"):
        cepheid.match("EVENT Login l", Input("logins.log", "Login", format="cvs"))


def test_a_column_of_two_types_is_refused(shop: Path) -> None:
    (shop / "orders.csv").write_text("created_at,ok\n2024-03-01T08:00:30Z,5\n")
    with pytest.raises(InputProblem, match=r"the column `ok` is bool in logins.csv and int64 in orders.csv"):
        cepheid.match(BOUGHT, inputs())


def test_inputs_are_merged_by_time_whatever_their_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of equal times are in the order of the inputs, also across the batches of a file."""
    rng = random.Random(5)
    names, expected = ["a", "b", "c"], []
    for at, name in enumerate(names):
        times = sorted(rng.choices(range(40), k=200))
        rows = pa.table({f"t{name}": pa.array(times, pa.timestamp("s")), "n": range(200)})
        pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=7)
        expected += [(time * 1_000_000, at, n, name) for n, time in enumerate(times)]
    items = [Input(str(tmp_path / f"{name}.parquet"), name, time_column=f"t{name}") for name in names]
    source = open_inputs(items, Columns())
    assert isinstance(source, MergedSource)
    batches = list(source.batches(["n"]))
    found = [
        (time, n, kind)
        for batch in batches
        for time, n, kind in zip(*(batch.column(c).to_pylist() for c in (TIME, "n", TYPE)), strict=True)
    ]
    assert found == [(time, n, name) for time, _, n, name in sorted(expected)]
    sample = source.sample(["n"], 10)
    assert sample is not None
    assert np.array_equal(np.asarray(sample.column(TIME)), [time for time, *_ in found[:10]])


@pytest.mark.parametrize("rows", [1, 60_000])
def test_times_may_end_with_utc(shop: Path, rows: int) -> None:
    """Few rows are read one by one, and many as columns."""
    text = "".join(f"2024-03-01 08:00:{at % 60:02} UTC,{at}\n" for at in range(rows))
    (shop / "e.csv").write_text(f"ts,n\n{text}")
    found = cepheid.match("EVENT A a RETURN min(a.ts) AS first, count(*) AS n", "e.csv", type="A").to_pylist()
    assert (str(found[0]["first"]), int(found[0]["n"])) == ("2024-03-01 08:00:00+00:00", rows)


def test_an_input_without_events_has_the_unit_of_the_others() -> None:
    table = pa.table({"type": ["A", "B"], "ts": [1, 2]})
    empty = pa.table({"type": pa.array([], pa.string()), "at": pa.array([], pa.int64())})
    for inputs in ([table, cepheid.Input(empty, time_column="at")], [cepheid.Input(empty, time_column="at"), table]):
        assert len(cepheid.match("EVENT SEQ(A a, B b) WITHIN 2", inputs)) == 1


def test_a_file_is_read_once(tmp_path: Path) -> None:
    """Whatever it is called: its events would be there twice, and no result would show it."""
    (tmp_path / "d").mkdir()
    file, inside, link = tmp_path / "e.jsonl", tmp_path / "d" / "a.jsonl", tmp_path / "link.jsonl"
    for path in (file, inside):
        path.write_text('{"type": "A", "ts": 1}\n{"type": "B", "ts": 2}\n')
    link.symlink_to(file)
    (tmp_path / "again").symlink_to(tmp_path / "d")
    query = "EVENT SEQ(A x, B y) RETURN count(*) AS n"
    pairs = [(file, file), (file, link), (inside.parent, inside), (inside.parent, tmp_path / "again")]
    for pair in pairs:
        with pytest.raises(InputProblem, match="is read twice"):
            cepheid.match(query, [str(path) for path in pair])
    with pytest.raises(InputProblem, match=r"link\.jsonl` is read twice: .*e\.jsonl` is the same file"):
        cepheid.match(query, f"{tmp_path}/*.jsonl")
    assert cepheid.match(query, [file, inside])["n"].to_pylist() == [4]
    assert cepheid.match(query, {"A": file, "B": link})["n"].to_pylist() == [1]


def test_a_stream_rejects_links_to_its_own_files(tmp_path: Path) -> None:
    """A link to a file elsewhere, or to one in a hidden directory, is read."""
    event = '{"type": "A", "ts": 1}\n'
    (tmp_path / "in" / "..data").mkdir(parents=True)
    for name in ("in/a.jsonl", "in/..data/b.jsonl", "c.jsonl"):
        (tmp_path / name).write_text(event)
    for name, target in (("again", "in/a"), ("b", "in/..data/b"), ("c", "c")):
        (tmp_path / "in" / f"{name}.jsonl").symlink_to(tmp_path / f"{target}.jsonl")
    (tmp_path / "other").symlink_to(tmp_path / "in")
    for root in ("in", "other"):
        files = StreamFiles.first(str(tmp_path / root), Columns("type", "ts", None), None, Schema({}), False)
        assert files is not None
        read = files.read([str(tmp_path / root / f"{name}.jsonl") for name in ("a", "again", "b", "c")])
        assert read.events.num_rows == 3
        assert read.rejects.column("reason").to_pylist() == [
            "the file is a link to a.jsonl, which the stream reads itself"
        ]


def test_a_summary_of_batches_without_rows_has_its_row() -> None:
    empty = pa.table({"type": pa.array([], pa.string()), "ts": pa.array([], pa.int64())})
    query = "EVENT SEQ(A x, B y) RETURN count(*) AS n"
    for events in ([empty], [empty, empty], empty.to_reader(), empty):
        found = cepheid.match(query, events)
        rows = found.to_pylist() if hasattr(found, "to_pylist") else pa.Table.from_batches(found).to_pylist()
        assert rows == [{"n": 0, "match_start": None, "match_end": None}]
