"""Event types that the input does not have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid import CepheidWarning
from cepheid.app.cli import app
from cepheid.errors import InputProblem, NameProblem

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


def test_the_command_line_refuses_the_same(tmp_path: Any) -> None:
    path = tmp_path / "events.csv"
    path.write_text("kind,ts\nShelf,1\nExit,2\n")
    result = CliRunner().invoke(app, ["run", "--query", PAIR, "-i", str(path)])
    assert result.exit_code == 2 and "--type-column" in result.stderr
    result = CliRunner().invoke(app, ["run", "--query", PAIR, "-i", str(path), "--type-column", "kind"])
    assert result.exit_code == 0 and "1 match" in result.stderr
