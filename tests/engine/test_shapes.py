"""The flat and the long shape of matches, against `output="events"`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import cepheid
from cepheid.errors import InputProblem, NotAvailable

Row = dict[str, Any]

QUERIES = {
    "sequence": "EVENT SEQ(A x, B y) WHERE [k] WITHIN 6",
    "any type": "EVENT SEQ(A x, ANY(B, C) y) WITHIN 4",
    "closure": "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match(a, b[], c) { [k] } WITHIN 6",
    "empty closure": "PATTERN A;B*;C WITHIN 5",
    "branches": "PATTERN A;(B|C) WITHIN 4",
    "branches with a closure": "PATTERN A;(B+|C) WITHIN 3",
    "limit": "EVENT SEQ(A x, B y) WITHIN 6 LIMIT 5",
    "no match": "EVENT SEQ(A x, B y) WHERE x.v > 100 WITHIN 6",
    "derived": "p: EVENT SEQ(A x, B y) WITHIN 2\n\nq: EVENT SEQ(p q, C c) WITHIN 5",
}


def events(seed: int, count: int = 60) -> pa.Table:
    """Rows in any order, with ties and nulls."""
    chance = random.Random(seed)
    rows = [
        {"type": chance.choice("ABC"), "ts": chance.randrange(40), "k": chance.choice([1, 2]), "v": at, "s": {"n": at}}
        for at in range(count)
    ]
    rows[3]["s"] = rows[5]["v"] = None
    return pa.Table.from_pylist(rows)


def flattened(match: Row, schema: pa.Schema) -> Row:
    row: Row = {}
    for field in schema:
        value = match[field.name]
        event = field.type.value_type if pa.types.is_list(field.type) else field.type
        if not pa.types.is_struct(event):
            row[field.name] = value
        elif pa.types.is_list(field.type):
            row |= {f"{field.name}.{f.name}": None if value is None else [e[f.name] for e in value] for f in event}
        else:
            row |= {f"{field.name}.{f.name}": None if value is None else value[f.name] for f in event}
    return row


def lengthened(number: int, match: Row) -> Iterator[Row]:
    interval = {name: match.pop(name) for name in ("match_start", "match_end")}
    for var, bound in match.items():
        of_variable = bound if isinstance(bound, list) else [] if bound is None else [bound]
        for index, event in enumerate(of_variable, 1):
            yield {"match_number": number, "match_variable": var, "match_index": index, **event, **interval}


def without_missing(rows: list[Row]) -> list[Row]:
    """Without nulls: a row of the long shape has the columns of all variables."""
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


@pytest.mark.parametrize("evaluator", (None, "reference"))
@pytest.mark.parametrize("name", QUERIES)
def test_shapes_show_the_same_events(name: str, evaluator: str | None) -> None:
    table = events(len(name))
    matches = cepheid.match(QUERIES[name], table, evaluator=evaluator)
    assert (matches.num_rows > 0) == (name != "no match")
    flat = cepheid.match(QUERIES[name], table, output="flat", evaluator=evaluator)
    assert flat.to_pylist() == [flattened(row, matches.schema) for row in matches.to_pylist()]
    long = cepheid.match(QUERIES[name], table, output="long", evaluator=evaluator)
    expected = [row for number, match in enumerate(matches.to_pylist()) for row in lengthened(number, match)]
    own = [name for name in long.schema.names if name != "match_row"]
    assert without_missing(long.select(own).to_pylist()) == without_missing(expected)


def test_the_long_shape_joins_back_to_the_input() -> None:
    table = events(1)
    long = cepheid.match(QUERIES["closure"], table, output="long")
    assert long.num_rows > 0
    assert long.select(table.schema.names).to_pylist() == table.take(long.column("match_row")).to_pylist()


def test_the_long_shape_of_batches_numbers_all_matches_in_turn() -> None:
    table = events(2).sort_by("ts")
    batches = cepheid.match(QUERIES["sequence"], iter(table.to_batches(max_chunksize=7)), output="long")
    whole = cepheid.match(QUERIES["sequence"], table, output="long")
    assert pa.Table.from_batches(batches).to_pylist() == whole.to_pylist()


def test_returned_values_stay_in_the_flat_shape_and_the_long_one_shows_the_events() -> None:
    query = QUERIES["sequence"] + " RETURN x, y.v - x.v AS more"
    query = query.replace("WITHIN 6 RETURN", "WITHIN 6\nRETURN")
    flat, long = (cepheid.match(query, events(3), output=output) for output in ("flat", "long"))
    assert flat.schema.names == ["x.type", "x.ts", "x.k", "x.v", "x.s", "more", "match_start", "match_end"]
    assert long.equals(cepheid.match(QUERIES["sequence"], events(3), output="long"))


def test_shapes_in_pandas_keep_times_as_timestamps() -> None:
    frame = events(4).to_pandas().assign(ts=lambda df: df.ts.astype("datetime64[s]"))
    flat, long = (cepheid.match("EVENT SEQ(A x, B y) WITHIN 6 s", frame, output=o) for o in ("flat", "long"))
    assert {flat[name].dtype.kind for name in ("x.ts", "y.ts", "match_start")} == {long.ts.dtype.kind} == {"M"}


@pytest.mark.parametrize(
    ("query", "output", "error", "part"),
    [
        ("EVENT SEQ(A x, B y) WITHIN 6 RETURN x, x.v", "flat", InputProblem, "two columns `x.v`"),
        ("EVENT SEQ(A x, B y) WITHIN 6 RETURN count(*)", "long", NotAvailable, "summary"),
    ],
)
def test_outputs_without_this_shape_are_refused(query: str, output: str, error: type[Exception], part: str) -> None:
    with pytest.raises(error, match=part):
        cepheid.match(query, events(5), output=output)


def test_a_column_with_a_name_of_the_long_shape_is_refused() -> None:
    table = events(6)
    with pytest.raises(InputProblem, match="two columns `match_index`"):
        cepheid.match(QUERIES["sequence"], table.append_column("match_index", table.column("v")), output="long")
