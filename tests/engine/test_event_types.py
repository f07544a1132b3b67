"""Event types that the input does not have, and attributes that a type does not have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid import CepheidWarning
from cepheid.app.cli import app
from cepheid.errors import CepheidError, InputProblem, NameProblem

EVENTS = pa.table({"type": ["Shelf", "Exit"], "ts": [1, 2], "v": [3, 4]})
PAIR = "EVENT SEQ(Shelf x, Exit y)"


def renamed(column: str) -> pa.Table:
    return EVENTS.rename_columns([column, "ts", "v"])


@pytest.mark.parametrize("events", [renamed("typ"), iter(renamed("typ").to_batches())], ids=["table", "iterator"])
def test_a_missing_type_column_is_an_error(events: Any) -> None:
    with pytest.raises(InputProblem, match="no column `type`, and the query names event types") as caught:
        cepheid.match(PAIR, events)
    assert caught.value.hint == "did you mean `typ`?" and "`typ`" in str(caught.value.expected)


def test_the_way_out_is_the_name_of_the_column() -> None:
    with pytest.raises(InputProblem) as caught:
        cepheid.match(PAIR, renamed("kind"))
    assert "type_column=" in str(caught.value.hint)
    assert cepheid.match(PAIR, renamed("kind"), type_column="kind").num_rows == 1


def test_queries_over_all_events_need_no_type_column() -> None:
    assert cepheid.match("PATTERN x;y WITHIN 5", EVENTS.drop_columns("type"), dialect="zstream").num_rows == 1


def test_a_missing_time_column_is_an_error() -> None:
    with pytest.raises(InputProblem, match="no column `ts`") as caught:
        cepheid.match(PAIR, EVENTS.rename_columns(["type", "tss", "v"]))
    assert caught.value.hint == "did you mean `tss`?"


def test_a_type_that_no_event_has_is_a_warning() -> None:
    with pytest.warns(CepheidWarning, match="no event of type `Register`"):
        assert cepheid.match("EVENT SEQ(Shelf x, !(Register r), Exit y)", EVENTS).num_rows == 1


def test_a_slip_is_an_error() -> None:
    with pytest.raises(NameProblem, match="unknown event type `Exits`"):
        cepheid.match("EVENT SEQ(Shelf x, Exits y)", EVENTS)


def test_none_of_the_types_is_an_error() -> None:
    with pytest.raises(InputProblem, match="no event has a type of the query"):
        cepheid.match("EVENT SEQ(Till x, Door y)", EVENTS)
    assert cepheid.match("EVENT SEQ(Till x, Door y)", EVENTS.slice(0, 0)).num_rows == 0


def test_a_primitive_event_that_two_declarations_use_is_no_type_of_the_input() -> None:
    """The inner declaration then reads a stream that only the outer one lists among its inputs."""
    script = """primitive P on Shelf as s schema v as s.v
        complex X on P as p, P as q schema v as p.v event and(p, q; 9)
        complex Q on X as x, P as p event seq(p, !x; 9)"""
    assert cepheid.match(script, EVENTS).num_rows == 1
    with pytest.raises(InputProblem, match="no event has a type of the query"):
        cepheid.match("complex Q on Till as x, Door as y event seq(x, y; 9)", EVENTS)


def test_the_command_line_refuses_the_same(tmp_path: Any) -> None:
    path = tmp_path / "events.csv"
    path.write_text("kind,ts\nShelf,1\nExit,2\n")
    result = CliRunner().invoke(app, ["run", "--query", PAIR, "-i", str(path)])
    assert result.exit_code == 2 and "--type-column" in result.stderr
    result = CliRunner().invoke(app, ["run", "--query", PAIR, "-i", str(path), "--type-column", "kind"])
    assert result.exit_code == 0 and "1 match" in result.stderr


LACKING = {
    "one type": "EVENT SEQ(A x, B y) WITHIN 2 units RETURN x.ts, y.v > 3 AS v, y.w > 3 AS w, x.w = 1 OR x.v > 5 AS o",
    "any type": "PATTERN x;y WITHIN 2 RETURN x.ts, y.v > 3 AS v, y.w > 3 AS w, NOT y.v > 3 AS n, y.v IS NULL AS o",
    "closure": """PATTERN SEQ(A x, B+ b[]) WHERE skip_till_next_match(x, b[]) { x.ts > 0 } WITHIN 2 units
        RETURN x.ts, sum(b.v) > 3 AS s, count(b.v) AS c, count(b.w) AS w, sum(b.w) > 9 AS t""",
}


@pytest.mark.parametrize("query", LACKING.values(), ids=list(LACKING))
def test_a_condition_in_return_is_true_for_a_type_that_lacks_its_attribute(tmp_path: Path, query: str) -> None:
    """JSON Lines are evaluated by the definition, event by event; Parquet files by columns."""
    rows: dict[str, list[dict[str, Any]]] = {
        "A": [{"ts": 1, "v": 1}, {"ts": 3, "v": None}],
        "B": [{"ts": 2, "w": None}, {"ts": 4, "w": 7}],
    }
    lines = [{"type": kind, **row} for kind in rows for row in rows[kind]]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    inputs: list[str] = []
    for kind in rows:
        pq.write_table(pa.Table.from_pylist(rows[kind]), tmp_path / f"{kind}.parquet")
        inputs += ["-i", f"{kind}={tmp_path / kind}.parquet"]
    found = []
    for number, (backend, *events) in enumerate(
        [("reference", "-i", tmp_path / "events.jsonl"), ("reference", *inputs), ("local", *inputs)]
    ):
        arguments = ["run", "--query", query, *events, "-o", tmp_path / f"{number}.jsonl", "--backend", backend]
        assert CliRunner().invoke(app, list(map(str, arguments))).exit_code == 0
        found.append(sorted((tmp_path / f"{number}.jsonl").read_text().splitlines()))
    assert found[0] == found[1] == found[2] and "true" in found[0][0]


TYPED = pa.schema([("type", pa.string()), ("ts", pa.int64()), ("v", pa.int32()), ("d", pa.decimal128(9, 2))])


@pytest.mark.parametrize("evaluator", [None, "reference"])
@pytest.mark.filterwarnings("ignore::cepheid.errors.CepheidWarning")
def test_columns_keep_their_types_without_events(tmp_path: Path, evaluator: str | None) -> None:
    """What is computed of them has the type that it has with events; of text, no type is known."""
    pq.write_table(TYPED.empty_table(), tmp_path / "empty.parquet")
    for query in (
        "EVENT SEQ(A a, B b) RETURN a.v + 1, b.d * 2, a.v > b.d, a.v / 2",
        "EVENT SEQ(A a, B b) RETURN count(*), sum(a.v), sum(b.d), max(b.v)",
    ):
        filled = pa.Table.from_pylist([{"type": "A", "ts": 1}, {"type": "B", "ts": 2}], TYPED)
        wanted = cepheid.match(query, filled).schema
        for events in (TYPED.empty_table(), str(tmp_path / "empty.parquet")):
            assert cepheid.match(query, events, evaluator=evaluator).schema == wanted
    with pytest.raises(CepheidError, match="compares a string with a number"):
        cepheid.match("EVENT SEQ(A a, B b) WHERE a.type > b.v", TYPED.empty_table())
