"""The column `match_id`: one for each match, the same in every run."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import cepheid
from cepheid.errors import InputProblem, NotAvailable

QUERIES = (
    "EVENT SEQ(A x, B y) WITHIN 6",
    "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match(a, b[], c) { a.v > -1 } WITHIN 12",
    "PATTERN A A;(B B+|C C) WITHIN 3",
    "PATTERN A A & B B WITHIN 3",
)


def events(seed: int, ids: Any = str) -> pa.Table:
    chance = random.Random(seed)
    rows = [{"type": chance.choice("ABC"), "ts": chance.randrange(60), "v": n, "id": ids(n)} for n in range(50)]
    return pa.Table.from_pylist(rows)


def identified(query: str, table: Any, **options: Any) -> dict[str, str]:
    """The rest of each match by its identifier."""
    rows = cepheid.match(query, table, id_column="id", **options).to_pylist()
    found = {row.pop("match_id"): str(row) for row in rows}
    assert len(found) == len(rows) > 0 and all(len(one) == 32 for one in found)
    return found


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("ids", (str, int))
def test_every_match_has_its_own_identifier_in_every_run(query: str, ids: Any) -> None:
    table = events(1, ids)
    found = identified(query, table)
    assert identified(query, table, evaluator="reference") == found
    batches = cepheid.match(query, iter(table.sort_by("ts").to_batches(max_chunksize=7)), id_column="id")
    assert {row["match_id"] for batch in batches for row in batch.to_pylist()} == found.keys()


def test_shapes_share_the_identifier_and_other_queries_have_others() -> None:
    table, query = events(2), QUERIES[0]
    found = identified(query, table)
    assert identified(query, table, output="flat").keys() == found.keys()
    long = cepheid.match(query, table, output="long", id_column="id")
    assert set(long.column("match_id").to_pylist()) == found.keys()
    assert not identified("EVENT SEQ(A x, B y) WITHIN 7", table).keys() & found.keys()
    assert identified("event seq(A x,\n B y) within 6", table, dialect="sase") == found


def test_the_identifier_depends_only_on_the_identifiers_of_events() -> None:
    table = events(3)
    other = table.set_column(2, "v", pa.array(range(100, 150)))
    assert identified(QUERIES[0], other).keys() == identified(QUERIES[0], table).keys()


@pytest.mark.parametrize(
    ("query", "options", "error"),
    [
        (QUERIES[0], {"id_column": "key"}, InputProblem),
        ("EVENT SEQ(A x, B y) WITHIN 6 RETURN count(*)", {"id_column": "id"}, NotAvailable),
        (QUERIES[0], {"id_column": "id", "output": "positions"}, NotAvailable),
    ],
)
def test_matches_without_identifiers_are_refused(query: str, options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        cepheid.match(query, events(4), **options)


@pytest.mark.parametrize("query", QUERIES)
def test_an_event_without_an_identifier_is_identified_by_all_its_columns(query: str) -> None:
    """Matches of events with a null in the column are those without the column; others keep their identifiers."""
    table = events(5, int)
    some = table.set_column(3, "id", pc.if_else(pc.less(table["v"], 25), table["id"], pa.scalar(None, pa.int64())))
    found, whole = (cepheid.match(query, t, id_column="id").to_pylist() for t in (some, table))
    assert len({row["match_id"] for row in found}) == len(found)
    by_columns = cepheid.match(query, some, match_id=True)["match_id"].to_pylist()
    kinds = set()
    for row, identified, other in zip(found, whole, by_columns, strict=True):
        bound = [e for var in ("x", "y", "a", "b", "c", "A", "B", "C") for e in as_list(row.get(var))]
        is_known = {event["id"] is not None for event in bound}
        if len(is_known) == 1:
            kinds |= is_known
            assert row["match_id"] == (identified["match_id"] if is_known == {True} else other)
    assert kinds == {True, False}
    again = cepheid.match(query, some, id_column="id", evaluator="reference").to_pylist()
    assert sorted(row["match_id"] for row in again) == sorted(row["match_id"] for row in found)


def as_list(bound: Any) -> list[Any]:
    return bound if isinstance(bound, list) else [] if bound is None else [bound]


def test_every_type_of_the_pattern_has_the_column_of_identifiers() -> None:
    logins, orders = pa.table({"ts": [1, 2], "id": [1, 2]}), pa.table({"ts": [3, 4], "order": [1, 2]})
    inputs = [cepheid.Input(logins, type="A"), cepheid.Input(orders, type="B")]
    with pytest.raises(InputProblem, match="events of type `B` have no column `id`"):
        cepheid.match(QUERIES[0], inputs, id_column="id")
    assert len(cepheid.match("EVENT SEQ(A x, A y, !(B z)) WITHIN 2", inputs, id_column="id")) == 1


def test_the_oracle_identifies_matches_over_a_disjunction() -> None:
    query = "P: PATTERN A x|B y WITHIN 5\nQ: EVENT SEQ(P p, C c) WITHIN 9"
    assert identified(query, events(3), evaluator="reference").keys() == identified(query, events(3)).keys()
