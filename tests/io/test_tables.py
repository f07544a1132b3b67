"""Tables in memory: indexes of pandas, and rows that are not events."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.errors import CepheidWarning, InputProblem

QUERY = "EVENT SEQ(A a, B b) WHERE [id]"
ROWS = [
    {"type": "B", "id": 1, "ts": "2024-01-05"},
    {"type": "A", "id": 1, "ts": None},
    {"type": "B", "id": 1, "ts": "2024-02-30"},
    {"type": "B", "id": 2, "ts": "soon"},
    {"type": "A", "id": 1, "ts": "2024-01-01"},
]
TABLES: list[Callable[..., Any]] = [pd.DataFrame, pl.DataFrame, pa.Table.from_pylist, pa.RecordBatch.from_pylist]


def frame(index: str | list[str]) -> pd.DataFrame:
    times = pd.to_datetime(["2024-01-01 08:00", "2024-01-01 08:01"])
    return pd.DataFrame({"type": ["A", "B"], "id": [1, 1], "ts": times}).set_index(index)


@pytest.mark.parametrize("index", ["ts", "id", "type", ["id", "ts"], ["type", "id", "ts"]])
def test_a_named_index_is_a_column(index: str | list[str]) -> None:
    events = frame(index).assign(v=1)
    found = cepheid.match(f"{QUERY} RETURN a.id AS id, b.ts - a.ts AS took", events)
    assert found["id"].tolist() == [1] and found["took"].tolist() == [pd.Timedelta(minutes=1)]
    assert "took" in cepheid.explain(f"{QUERY} RETURN b.ts - a.ts AS took", events)


def test_a_column_goes_before_an_index_of_its_name() -> None:
    events = frame("id").assign(id=[1, 2])
    assert len(cepheid.match(QUERY, events)) == 0
    twice = frame("id").set_index(pd.MultiIndex.from_tuples([(1, 2), (1, 2)], names=["k", "k"])).assign(id=1)
    assert len(cepheid.match(QUERY, twice)) == 1, "an index whose names are not unique is not read"


@pytest.mark.parametrize("table", TABLES)
def test_rejected_rows_are_a_table_of_the_same_kind(table: Callable[..., Any]) -> None:
    events = table(ROWS)
    matches, rejects = cepheid.match(QUERY, events, rejects=True)
    assert type(matches) is type(events) and len(matches) == 1
    whole = pa.table(rejects.reset_index(drop=True) if isinstance(rejects, pd.DataFrame) else rejects)
    assert whole.select(["type", "id", "ts"]).to_pylist() == ROWS[1:4]
    assert [reason.partition(":")[0] for reason in whole["reject_reason"].to_pylist()] == [
        "no time",
        "the time `2024-02-30` is neither an integer nor an ISO 8601 timestamp",
        "the time `soon` is neither an integer nor an ISO 8601 timestamp",
    ]
    if isinstance(rejects, pd.DataFrame):
        assert rejects.index.tolist() == [1, 2, 3]


@pytest.mark.parametrize("table", TABLES)
def test_no_row_is_rejected(table: Callable[..., Any]) -> None:
    events = table([ROWS[4], ROWS[0]])
    matches, rejects = cepheid.match(QUERY, events, rejects=True)
    assert len(matches) == 1 and len(rejects) == 0


def test_rows_of_matches_are_those_of_the_input() -> None:
    events = pd.DataFrame(ROWS, index=list("vwxyz"))
    positions, _ = cepheid.match(QUERY, events, output="positions", rejects=True)
    assert positions.to_dict("records") == [{"a": 4, "b": 0}]
    rows, _ = cepheid.match(QUERY, events, output="long", rejects=True)
    assert rows["match_row"].tolist() == [4, 0]


def test_durations_zones_and_bounds() -> None:
    times = pd.to_datetime(["2024-03-31 01:00", "2024-03-31 02:30", "2024-03-31 04:00", "2024-03-31 05:00"])
    events = pd.DataFrame({"type": list("ABBB"), "id": 1, "ts": times, "start": times})
    events.loc[2, "start"] = pd.Timestamp("2024-03-31 06:00")
    matches, rejects = cepheid.match(QUERY, events, zone="Europe/Berlin", start_column="start", rejects=True)
    assert len(matches) == 1
    assert rejects["reject_reason"].str.contains("does not exist in Europe/Berlin").tolist() == [True, False]
    assert rejects["reject_reason"].str.contains("the start is after the end").tolist() == [False, True]
    far = pa.table({"type": ["A", "B"], "id": [1, 1], "ts": [2**62, 1]})
    _, rejects = cepheid.match(QUERY, far, rejects=True)
    assert "does not fit" in rejects["reject_reason"][0].as_py()


def test_rejected_rows_of_several_tables_are_listed() -> None:
    events = {
        "A": pa.table({"id": [1, 1], "ts": ["2024-01-01", "soon"]}),
        "B": pa.table({"id": [1], "ts": ["2024-01-02"]}),
    }
    matches, rejects = cepheid.match(QUERY, events, rejects=True)
    assert matches.num_rows == 1
    (row,) = rejects.to_pylist()
    assert (row["source"], row["line"]) == ("A", 2) and '"soon"' in row["raw"]


def test_a_single_input_with_options_has_rejects_too() -> None:
    events = cepheid.Input(pd.DataFrame(ROWS).rename(columns={"ts": "at"}), time_column="at")
    matches, rejects = cepheid.match(QUERY, events, rejects=True)
    assert len(matches) == 1 and len(rejects) == 3


def test_a_column_of_reasons_is_there_already() -> None:
    with pytest.raises(InputProblem, match="have a column `reject_reason`"):
        cepheid.match(QUERY, pd.DataFrame(ROWS).assign(reject_reason="x"), rejects=True)


ORDERS = "EVENT SEQ(A a, B b) WHERE b.v > a.v"


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        (("10,5", "2,5"), "declare how they are written: --decimal comma"),
        (("1.234,50", "2,00"), "declare how they are written"),
        (("10", "9"), r"write CAST\([ab].v AS double\)"),
        (("-1.5", None), r"write CAST\([ab].v AS double\)"),
    ],
)
@pytest.mark.parametrize("condition", ["b.v > a.v", "a.v <= b.v", "b.v > '0'"])
def test_texts_that_are_ordered_like_numbers(values: tuple[str, str], hint: str, condition: str) -> None:
    events = pd.DataFrame({"type": ["A", "B"], "ts": [1, 2], "v": values})
    query = f"EVENT SEQ(A a, B b) WHERE {condition}"
    with pytest.warns(CepheidWarning, match=f"orders texts by their characters .*{hint}"):
        cepheid.match(query, events)


@pytest.mark.parametrize("values", [("10,5", "2,5"), ("1.234,50", "2,00")])
def test_texts_are_ordered_as_numbers_where_their_form_is_declared(values: tuple[str, str], tmp_path: Any) -> None:
    path, query = str(tmp_path / "a.csv"), ORDERS.replace(">", "<")
    pd.DataFrame({"type": ["A", "B"], "ts": [1, 2], "v": values}).to_csv(path, sep=";", index=False)
    with pytest.warns(CepheidWarning, match="orders texts by their characters .*declare how they are written"):
        cepheid.match(query, path)
    found = CliRunner().invoke(app, ["run", query, "--input", path])
    assert "warning: " in found.stderr and "--decimal comma" in found.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cepheid.match(query, path, decimal="comma").num_rows == 1


@pytest.mark.parametrize("values", [("a", "b"), ("1", "x"), ("2024-03-01", "2024-03-02")])
def test_texts_are_ordered_without_a_word(values: tuple[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cepheid.match(
            "EVENT SEQ(A a, B b) WHERE b.v != a.v", pd.DataFrame({"type": ["A", "B"], "ts": [1, 2], "v": ["1", "2"]})
        )
        assert (
            len(
                cepheid.match(
                    "EVENT SEQ(A a, B b) WHERE b.v >= a.v OR a.v > ''",
                    pd.DataFrame({"type": ["A", "B"], "ts": [1, 2], "v": values}),
                )
            )
            == 1
        )
