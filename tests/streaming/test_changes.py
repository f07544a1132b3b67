"""Changes of the queries of a stream that are refused: by name and place, and nothing changes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from cepheid.app.cli import app
from cepheid.deploy.changes import Change
from cepheid.deploy.deployment import Written
from cepheid.errors import CepheidError
from cepheid.io.inputs import Columns
from cepheid.streaming.checkpoint import REQUESTS, VERSIONS, Checkpoint
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.planning import StreamOptions, StreamSource
from cepheid.streaming.reader import RowReader
from cepheid.streaming.requests import Requests
from cepheid.streaming.storage import LocalDirectory
from cepheid.streaming.versions import Planner, SavedVersion

SCHEMA = pa.schema([("type", pa.string()), ("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
PAIR = "EVENT SEQ(t a, u b) WHERE [k] AND a.v > 3 WITHIN 9"
USER = "EVENT SEQ(pair p, u c) WHERE p.a.k = c.k WITHIN 20"
APART = "PATTERN t A; u B WHERE A.v < B.v WITHIN 9"


def planner() -> Planner:
    attributes = {kind: {field.name: field.type for field in SCHEMA} for kind in ("t", "u")}
    source = StreamSource(RowReader(SCHEMA, Columns()), attributes, seen=("t", "u"))
    return Planner(source, StreamOptions(0, buckets=2))


def written(**texts: str) -> dict[str, Written]:
    return {name: Written(name, text) for name, text in texts.items()}


def started() -> StreamPlan:
    plan, refused = planner().plan(written(pair=PAIR, user=USER, apart=APART))
    assert not refused
    return plan


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (Change(add=written(new="no query at all")), ["`new` is refused", "at new, line 1, column 1"]),
        (
            Change(add=written(new="EVENT SEQ(t a, shelf b) WITHIN 5")),
            ["`new` is refused", "there is no event type `shelf`", "at new, line 1, column 16"],
        ),
        (
            Change(add=written(new="EVENT SEQ(t a, u b)\nWHERE a.vv > 3 WITHIN 5")),
            ["`new` is refused", "`vv`", "at new, line 2, column 7"],
        ),
        (Change(add=written(pair=PAIR)), ["there is a query `pair` already", "replace it, or choose another name"]),
        (Change(remove=("pair",)), ["the query `pair` is used by `user`", "remove or replace those as well"]),
        (Change(remove=("par",)), ["there is no query `par`", "did you mean `pair`"]),
        (
            Change(replace=written(pair="EVENT SEQ(user x, t b) WITHIN 5")),
            ["is refused: queries use each other in a circle"],
        ),
        (
            Change(add=written(one="EVENT SEQ(two x, t b) WITHIN 5", two="EVENT SEQ(one x, t b) WITHIN 5")),
            ["queries use each other in a circle: one -> two -> one"],
        ),
        (Change(remove=("pair", "user", "apart")), ["no query would be left"]),
        (Change(move={"pair": 1}), ["moving the query `pair`", "only one without a key"]),
        (Change(move={"apart": 2}), ["there is no slot 2 for the query `apart`", "0 to 1"]),
        (Change(move={"aprt": 1}), ["there is no query `aprt`"]),
        (Change(remove=("user",), move={"apart": 1}), ["in a change of their own"]),
    ],
)
def test_a_change_that_is_refused_names_the_query_and_the_place(change: Change, parts: list[str]) -> None:
    before = started()
    entries = before.entries
    with pytest.raises(CepheidError) as problem:
        planner().changed(before, change)
    text = str(problem.value)
    assert all(part in text for part in parts), text
    assert before.entries == entries
    # The change that is right is made afterwards.
    after = planner().changed(before, Change(add=written(new=PAIR), remove=("user",)))
    assert after.names == ["pair", "apart", "new"]


def test_a_query_that_others_use_is_not_removed_while_the_stream_is_stopped(tmp_path: Path) -> None:
    """The command does not wait for the next start. A query is free once its users are to go."""
    plan, checkpoint = started(), Checkpoint(LocalDirectory(tmp_path), str(tmp_path))
    checkpoint.settle(plan.description(), {VERSIONS: [SavedVersion.of(plan, 0).to_data()]})
    (tmp_path / "metadata").write_text("{}")  # which Spark leaves when a stream has started
    requests = Requests(checkpoint.own.inside(REQUESTS))

    def remove(*names: str) -> str:
        return CliRunner().invoke(app, ["deploy", "remove", str(tmp_path), *names]).output

    refused = "the query `pair` is used by `user`"
    assert refused in remove("pair")
    assert refused in remove("apart", "pair")
    assert not requests.waiting()
    assert "at its next start" in remove("user")
    assert "at its next start" in remove("pair")
    assert "there is no query `pair`" in remove("pair")
    assert [requests.change(name).remove for name in requests.waiting()] == [("user",), ("pair",)]


def test_the_others_run_where_some_are_refused() -> None:
    texts = {
        "pair": PAIR,
        "bad": "?",
        "unknown": "EVENT SEQ(shelf a, t b) WITHIN 5",
        "uses": "EVENT SEQ(bad x, t b) WITHIN 5",
    }
    plan, refused = planner().plan(written(**texts))
    assert plan.names == ["pair"]
    assert set(refused) == {"bad", "unknown", "uses"}
    assert refused["unknown"].position == (1, 11)
