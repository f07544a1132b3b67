"""The schema of a stream: files differ from the first ones in types, columns, values and formats. Every row is used or
rejected with the reason, and the matches are those of batch over the rows that were used (ruling 16)."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import cepheid
from cepheid.app.file_run import FileRun
from cepheid.engine.prepare import RunOptions
from cepheid.engine.query_text import QueryText
from cepheid.errors import InputProblem, NameProblem
from cepheid.events import Schema
from cepheid.io.inputs import Columns, Input
from cepheid.io.stream_files import StreamFiles, parse_schema
from cepheid.lang import parse
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.simulation import Simulated, Simulation

pytestmark = pytest.mark.filterwarnings("ignore::cepheid.errors.CepheidWarning")

QUERY = "EVENT SEQ(A x, B y) WHERE [id] AND x.v < y.v WITHIN 100"
FORMATS = ("parquet", "arrow", "orc", "jsonl", "csv", "jsonl.gz", "csv.gz")


def row(kind: str, ts: Any, **values: Any) -> dict[str, Any]:
    return {"type": kind, "ts": ts, **values}


def write(path: Path, rows: Sequence[Mapping[str, Any]] | pa.Table) -> Path:
    """A file of events in the format that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.name.removesuffix(".gz")
    if name.endswith((".jsonl", ".csv")):
        assert not isinstance(rows, pa.Table)
        if name.endswith(".jsonl"):
            lines = [json.dumps(r, default=str) for r in rows]
        else:
            names = list(dict.fromkeys(name for r in rows for name in r)) or ["type", "ts", "id", "v"]
            cells = [["" if r.get(n) is None else str(r[n]) for n in names] for r in rows]
            lines = [",".join(line) for line in [names, *cells]]
        content = "".join(line + "\n" for line in lines).encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return path
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows))
    if name.endswith(".parquet"):
        pq.write_table(table, path)
    elif name.endswith(".orc"):
        pyarrow.orc.write_table(table, path)
    else:
        pyarrow.feather.write_feather(table, path)
    return path


def streamed(
    query: str, first: Sequence[Path], later: Sequence[Path], *, schema: str | None = None, raw: bool = False
) -> Simulated:
    """A stream whose first start sees some files, and others later, one in each batch."""
    parsed = parse(query)
    hidden = {path: path.with_name(f".{path.name}") for path in later}
    for path, name in hidden.items():
        path.rename(name)
    files = StreamFiles.first(str(first[0].parent), Columns(), "ms", Schema({}), raw, queries=[parsed], schema=schema)
    for path, name in hidden.items():
        name.rename(path)
    assert files is not None
    restarted = StreamFiles.described(files.path, Columns(), "ms", json.loads(json.dumps(files.description())))
    source = StreamSource.of_files(restarted, [parsed])
    options = RunOptions(time_unit="ms")
    plan = plan_stream({"q": parsed}, source, 1000, options, order=files.order, buckets=3)
    slips = [pa.RecordBatch.from_pylist([{"value": json.dumps(str(path))}]) for path in (*first, *later)]
    return Simulation(plan).run(slips)


def matches(simulated: Simulated) -> list[tuple[Any, ...]]:
    rows = [match for batch in simulated.matches["q"] for match in batch.to_pylist()]
    return sorted((match["x"]["ts"], match["y"]["ts"]) for match in rows)


def rejects(simulated: Simulated) -> list[tuple[str, int | None, str]]:
    rows = [one for batch in simulated.rejects for one in batch.to_pylist()]
    return [(Path(one["source"]).name, one["line"], one["reason"]) for one in rows]


# --- types and columns that appear later ------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_a_type_of_the_query_that_the_first_files_lack(tmp_path: Path, format: str) -> None:
    first = write(tmp_path / f"0.{format}", [row("A", 1, id=1, v=1), row("A", 2, id=2, v=9)])
    later = write(tmp_path / f"1.{format}", [row("B", 3, id=1, v=2), row("B", 4, id=2, v=5)])
    simulated = streamed(QUERY, [first], [later])
    assert matches(simulated) == [(1, 3)] and not rejects(simulated)


@pytest.mark.parametrize("format", FORMATS)
def test_no_event_settles_nothing(tmp_path: Path, format: str) -> None:
    empty = pa.schema([("type", pa.string()), ("ts", pa.int64()), ("id", pa.int64()), ("v", pa.int64())]).empty_table()
    first = write(tmp_path / f"0.{format}", [] if "jsonl" in format or "csv" in format else empty)
    assert StreamFiles.first(str(tmp_path), Columns(), "ms", Schema({}), False) is None
    later = write(tmp_path / f"1.{format}", [row("A", 1, id=1, v=1), row("B", 3, id=1, v=2)])
    simulated = streamed(QUERY, [first, later], [])
    assert matches(simulated) == [(1, 3)] and not rejects(simulated)


def test_an_empty_directory_and_one_of_other_files_settle_nothing(tmp_path: Path) -> None:
    args = str(tmp_path), Columns(), "ms", Schema({}), False
    assert StreamFiles.first(*args) is None
    (tmp_path / "notes.txt").write_text("hello")
    assert StreamFiles.first(*args) is None


@pytest.mark.parametrize("format", FORMATS)
def test_a_column_of_a_type_that_appears_later(tmp_path: Path, format: str) -> None:
    """No file at the start has the column `w`: the query says that it is compared with a number."""
    first = write(tmp_path / f"0.{format}", [row("A", 1, id=1)])
    later = write(tmp_path / f"1.{format}", [row("B", 3, id=1, w=2), row("B", 4, id=1, w=5.5), row("B", 5, id=1, w=9)])
    simulated = streamed("EVENT SEQ(A x, B y) WHERE [id] AND y.w > 3 WITHIN 100", [first], [later])
    assert matches(simulated) == [(1, 4), (1, 5)] and not rejects(simulated)


@pytest.mark.parametrize("format", ["parquet", "arrow", "orc"])
def test_a_column_of_unknown_type_must_be_declared(tmp_path: Path, format: str) -> None:
    first = write(tmp_path / f"0.{format}", [row("A", 1, id=1)])
    later = write(tmp_path / f"1.{format}", [row("B", 3, id=1, w="m")])
    query = "EVENT SEQ(A x, B y) WHERE [id] WITHIN 100 RETURN x.ts, y.w"
    with pytest.raises(InputProblem, match="shows no type") as problem:
        streamed(query, [first], [later])
    later = tmp_path / f"1.{format}" if (tmp_path / f"1.{format}").exists() else tmp_path / f".1.{format}"
    later = later.rename(tmp_path / f"1.{format}")
    assert "--schema 'w long'" in str(problem.value)
    simulated = streamed(query, [first], [later], schema="w string")
    assert [match.to_pylist()[0]["y.w"] for match in simulated.matches["q"]] == ["m"]


SEEN_LATER = {
    "sum": "PATTERN SEQ(A x, B+ y[]) WHERE skip_till_any_match(x, y[]) {sum(y.w) > 3} WITHIN 100 RETURN x.ts",
    "sum returned": "PATTERN SEQ(A x, B+ y[]) WHERE skip_till_any_match(x, y[]) {[id]} WITHIN 100 RETURN sum(y.w)",
    "extreme": "PATTERN SEQ(A x, B+ y[]) WHERE skip_till_any_match(x, y[]) {max(y.t) = 'x'} WITHIN 100 RETURN y.LEN",
    "operand": "PATTERN SEQ(A x, B+ y[]) WHERE skip_till_any_match(x, y[]) {max(y.w * 2) > 3} RETURN x.ts",
    "function": "EVENT SEQ(A x, B y) WHERE abs(y.w) > 2 AND upper(y.t) = 'X' WITHIN 100 RETURN y.ts",
    "derived": "primitive X on A as a schema v as a.id\nprimitive P on B as b schema z as b.w + 1\n"
    "complex Q on X as x, P as p event seq(x, p; 50) where p.z > x.v",
}


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv"])
@pytest.mark.parametrize("query", SEEN_LATER)
def test_what_is_computed_of_a_column_shows_its_type(tmp_path: Path, format: str, query: str) -> None:
    first, later = [row("A", 1, id=1)], [row("B", 3, id=1, w=4.5, t="x"), row("B", 4, id=1, w=0.5, t="y")]
    files = [write(tmp_path / f"{n}.{format}", rows) for n, rows in enumerate((first, later))]
    simulated = streamed(SEEN_LATER[query], files[:1], files[1:])
    names = ("type", "ts", "id", "w", "t")
    table = pa.table({name: [one.get(name) for one in first + later] for name in names})
    assert shown_rows(simulated) == sorted(map(str, cepheid.match(SEEN_LATER[query], table).to_pylist()))


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv"])
@pytest.mark.parametrize(
    "query",
    [
        "P: EVENT SEQ(A x, B y) WITHIN 50 RETURN x.v + y.v AS s\nQ: EVENT SEQ(P p, C z) WITHIN 90 RETURN p.s, z",
        "P: SELECT max(x.v) AS m FROM A x+\nQ: SELECT p.m, z.v FROM P p; C z",
        "P: PATTERN SEQ(A+ x[], B y) WHERE skip_till_any_match(x[], y) {[id]} WITHIN 50\n"
        "Q: EVENT SEQ(P p, C z) WHERE sum(p.x.v) < z.v WITHIN 90 RETURN p.y.ts, z.ts",
    ],
)
def test_attributes_of_matches_are_no_columns_of_the_input(tmp_path: Path, format: str, query: str) -> None:
    """They are neither missed in the files nor shown beside the columns of its events."""
    first, later = [row("A", 1, id=1, v=1)], [row("B", 3, id=1, v=2), row("C", 5, id=1, v=2)]
    files = [write(tmp_path / f"{n}.{format}", rows) for n, rows in enumerate((first, later))]
    simulated = streamed(query, files[:1], files[1:])
    expected = cepheid.match(query, pa.Table.from_pylist(first + later)).to_pylist()
    assert expected and shown_rows(simulated) == sorted(map(str, expected))


def shown_rows(simulated: Simulated) -> list[str]:
    return sorted(str(match) for batch in simulated.matches["q"] for match in batch.to_pylist())


@pytest.mark.parametrize("format", FORMATS)
def test_a_column_that_no_query_reads_may_appear_and_vanish(tmp_path: Path, format: str) -> None:
    files = [
        write(tmp_path / f"0.{format}", [row("A", 1, id=1, v=1, old="a")]),
        write(tmp_path / f"1.{format}", [row("B", 3, id=1, v=2, new="b")]),
        write(tmp_path / f"2.{format}", [row("B", 4, v=2, id=1)]),
    ]
    simulated = streamed(QUERY, files[:1], files[1:])
    assert matches(simulated) == [(1, 3), (1, 4)] and not rejects(simulated)


def test_a_type_not_seen_at_the_start_lacks_nothing(tmp_path: Path) -> None:
    """A predicate on an attribute that a seen type lacks is true; of a later type it is null, and false."""
    first = write(tmp_path / "0.jsonl", [row("A", 1, id=1, v=1), row("C", 2, id=1)])
    later = write(tmp_path / "1.jsonl", [row("C", 3, id=1, v=0), row("D", 4, id=1), row("D", 5, id=1, v=7)])
    for query in (
        "EVENT SEQ(A x, ANY(C, D) y) WHERE [id] AND y.v > 5 WITHIN 100",
        "PATTERN A x; y WHERE x.id = y.id AND y.v > 5 WITHIN 100",
    ):
        for form in (query, query.replace("y.v > 5", "NOT (y.v <= 5)")):
            simulated = streamed(form, [first], [later])
            assert matches(simulated)[:2] == [(1, 2), (1, 3)] and (1, 5) in matches(simulated), form
            assert ((1, 4) in matches(simulated)) == ("NOT" in form)


def test_a_slip_of_a_type_is_still_refused(tmp_path: Path) -> None:
    first = write(tmp_path / "0.jsonl", [row("Shelf", 1, id=1), row("Register", 2, id=1)])
    with pytest.raises(NameProblem, match="Registre"):
        streamed("EVENT SEQ(Shelf x, Registre y) WITHIN 5", [first], [])


# --- values that do not fit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_a_value_that_the_column_cannot_hold_is_rejected_row_by_row(tmp_path: Path, format: str) -> None:
    first = write(tmp_path / f"0.{format}", [row("A", 1, id=1, v=1), row("B", 2, id=1, v=2)])
    floats = write(tmp_path / f"1.{format}", [row("B", 3, id=1, v=2.5), row("B", 4, id=1, v=4.0)])
    text = write(tmp_path / f"2.{format}", [row("B", 5, id=1, v="seven"), row("B", 6, id=1, v=None)])
    whole = write(tmp_path / f"3.{format}", [row("B", 7, id=1, v=7)])
    simulated = streamed(QUERY, [first], [floats, text, whole])
    assert matches(simulated) == [(1, 2), (1, 4), (1, 7)]
    start = 2 if "csv" in format else 1
    assert [(name, line) for name, line, _ in rejects(simulated)] == [(f"1.{format}", start), (f"2.{format}", start)]
    for _, _, reason in rejects(simulated):
        assert "`v` is of type integer in this stream" in reason
    assert "2.5" in rejects(simulated)[0][2] and "seven" in rejects(simulated)[1][2]


@pytest.mark.parametrize("format", FORMATS)
def test_times_of_another_kind_are_rejected_not_cast(tmp_path: Path, format: str) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    text = moment.isoformat() if "jsonl" in format or "csv" in format else moment
    integers, moments = [row("A", 1, id=1, v=1), row("B", 2, id=1, v=2)], [row("B", text, id=1, v=3)]
    for first, later in ((integers, moments), (moments, integers)):
        directory = tmp_path / str(first is integers)
        files = [write(directory / f"{n}.{format}", rows) for n, rows in enumerate((first, later))]
        simulated = streamed(QUERY, files[:1], files[1:])
        assert len(rejects(simulated)) == len(later)
        assert all("is not like the others, which are" in reason for _, _, reason in rejects(simulated))
        assert matches(simulated) == ([(1, 2)] if first is integers else [])


def test_compatible_types_of_columns_are_accepted(tmp_path: Path) -> None:
    """Narrower and wider numbers, decimals, dictionaries, large strings, other units and zones of time."""
    moments = [datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(8)]
    kinds: list[Mapping[str, Any]] = [
        {"ts": pa.timestamp("us", "UTC"), "id": pa.string(), "v": pa.int64()},
        {"ts": pa.timestamp("ms"), "id": pa.large_string(), "v": pa.int8()},
        {"ts": pa.timestamp("ns", "Europe/Berlin"), "id": pa.dictionary(pa.int8(), pa.string()), "v": pa.uint64()},
        {"ts": pa.timestamp("s"), "id": pa.string(), "v": pa.decimal128(9, 2)},
        {"ts": pa.date32(), "id": pa.string(), "v": pa.float64()},
    ]
    files = []
    for number, kind in enumerate(kinds):
        rows: list[dict[str, Any]] = [
            {"type": "A" if number == 0 else "B", "ts": moments[number], "id": "k", "v": number}
        ]
        if pa.types.is_date(kind["ts"]):
            rows[0]["ts"] = date(2026, 1, 2)
        schema = pa.schema([("type", pa.string()), *kind.items()])
        files.append(write(tmp_path / f"{number}.parquet", pa.Table.from_pylist(rows, schema)))
    simulated = streamed("EVENT SEQ(A x, B y) WHERE [id] AND x.v < y.v WITHIN 2 days", files[:1], files[1:])
    assert not rejects(simulated)
    assert [ts for _, ts in matches(simulated)] == [*moments[1:4], datetime(2026, 1, 2, tzinfo=UTC)]


def test_values_beyond_a_narrower_column_are_rejected(tmp_path: Path) -> None:
    narrow = pa.schema([("type", pa.string()), ("ts", pa.int64()), ("id", pa.int64()), ("v", pa.decimal128(4, 1))])
    first = write(tmp_path / "0.parquet", pa.Table.from_pylist([row("A", 1, id=1, v=Decimal("1.5"))], narrow))
    wide = narrow.set(3, pa.field("v", pa.decimal128(12, 3)))
    values = [Decimal("2.500"), Decimal("2.125"), Decimal("123456.000"), Decimal("3.000")]
    rows = [row("B", 2 + n, id=1, v=value) for n, value in enumerate(values)]
    simulated = streamed(QUERY, [first], [write(tmp_path / "1.parquet", pa.Table.from_pylist(rows, wide))])
    assert matches(simulated) == [(1, 2), (1, 5)]
    assert [line for _, line, _ in rejects(simulated)] == [2, 3]


# --- other formats, declared schemas ----------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["1.csv", "1.txt", "1", "1.parquet.gz", "1.tmp"])
def test_a_file_of_another_format_is_rejected(tmp_path: Path, other: str) -> None:
    first = write(tmp_path / "0.jsonl", [row("A", 1, id=1, v=1), row("B", 2, id=1, v=2)])
    (tmp_path / other).write_bytes(b"\x00\xff")
    simulated = streamed(QUERY, [first], [tmp_path / other])
    assert matches(simulated) == [(1, 2)]
    assert rejects(simulated) == [(other, None, "the file is not JSON Lines by its name, as all of the stream are")]


@pytest.mark.parametrize("format", FORMATS)
def test_a_declared_schema_makes_a_stream_independent_of_its_first_files(tmp_path: Path, format: str) -> None:
    first = write(tmp_path / f"0.{format}", [row("A", 1, id=1, v=1)])
    later = write(tmp_path / f"1.{format}", [row("B", 3, id=1, v=2.5), row("B", 4, id=1, v=0.5)])
    simulated = streamed(QUERY, [first], [later], schema="v double, id long")
    assert matches(simulated) == [(1, 3)] and not rejects(simulated)


def test_declared_columns_are_parsed() -> None:
    fields = parse_schema("ts long, price decimal(10, 2), `odd name` string, at timestamp")
    assert fields == {
        "ts": pa.int64(),
        "price": pa.decimal128(10, 2),
        "odd name": pa.string(),
        "at": pa.timestamp("us", "UTC"),
    }
    for wrong in ("price", "price nonsense", "price decimal(99, 2)"):
        with pytest.raises(InputProblem, match="does not declare a column"):
            parse_schema(wrong)


@pytest.mark.parametrize("format", ["jsonl", "csv", "csv.gz"])
def test_the_lines_of_a_text_stream_are_those_of_batch(tmp_path: Path, format: str) -> None:
    rows = [
        row("A", 1, id=1, v=1, s="x y"),
        row("B", 2, id=1, v=5, s=None),
        row("B", 3, id=1, v=7, s="true"),
        row("C", 4),
    ]
    files = [write(tmp_path / f"{n}.{format}", rows[n : n + 2]) for n in range(0, 4, 2)]
    simulated = streamed(QUERY, files, [], raw=True)
    lines = Counter(line for batch in simulated.matches["q"] for line in batch.column(0).to_pylist())
    written, query = io.BytesIO(), QueryText(QUERY)
    options = RunOptions(time_unit="ms")
    FileRun.open(query, query.parse(), [Input(str(tmp_path))], Columns(), options, "reference").write(written, "jsonl")
    assert lines == Counter(written.getvalue().decode().splitlines()) and len(lines) == 2


# --- any drift --------------------------------------------------------------------------------------------------------

_WHOLE = (pa.int64(), pa.int16(), pa.uint64(), pa.float64(), pa.float32(), pa.decimal128(20, 3))
_QUERIES = (
    QUERY,
    "EVENT SEQ(A x, !(C n), B y) WHERE [id] AND n.v > x.v WITHIN 20",
    "EVENT SEQ(A x, ANY(B, C) y) WHERE x.name = y.name AND x.v != y.v WITHIN 40",
    "PATTERN SEQ(A x, B+ b[], C y) WHERE skip_till_next_match(x, b[], y) { [id] } WITHIN 30",
    "PATTERN A x; B y WHERE x.name = y.name WITHIN 40",
)


@pytest.mark.parametrize("format", ["parquet", "arrow", "jsonl", "csv"])
@pytest.mark.parametrize("number", range(len(_QUERIES)))
def test_any_drift_between_files_loses_no_row(tmp_path: Path, format: str, number: int) -> None:
    """Files lack columns or types, have others, change the types of columns and have values that do not fit. What is
    neither late nor rejected gives the matches of batch."""
    rng = random.Random(f"{format} {number}")
    checked = 0
    for case in range(8):
        directory = tmp_path / str(case)
        sound, files, bad = [row("A", 0, id=1, v=1, name="a")], [], 0
        files.append(write(directory / f"00.{format}", sound))
        for at in range(1, rng.randint(2, 7)):
            rows, is_text = _drifting(rng, 10 * at), format in ("jsonl", "csv")
            kind = None if is_text else rng.choice([*_WHOLE, pa.string(), pa.timestamp("us")])
            wrong = rng.choice(["seven", 2.5]) if is_text and rng.random() < 0.4 else None
            dropped = rng.choice([None, None, "name", "v"])
            table_rows = []
            for one in rows:
                kept = {name: value for name, value in one.items() if name != dropped}
                spoilt = "v" in kept and kept["v"] is not None and (wrong is not None and rng.random() < 0.5)
                if spoilt:
                    kept["v"] = wrong
                unfit = kind in (pa.string(), pa.timestamp("us")) and kept.get("v") is not None
                bad += spoilt or unfit
                table_rows.append(kept)
                if not (spoilt or unfit):
                    sound.append(kept)
            path = directory / f"{at:02d}.{format}"
            files.append(write(path, table_rows if kind is None else _table(table_rows, kind)))
        simulated = streamed(_QUERIES[number], files[:1], files[1:])
        schema = pa.schema([("type", pa.string()), ("ts", pa.int64()), ("id", pa.int64()), ("v", pa.int64())])
        schema = schema.append(pa.field("name", pa.string()))
        batch = cepheid.match(_QUERIES[number], pa.Table.from_pylist(sound, schema), time_unit="ms", output="positions")
        streamed_count = sum(part.num_rows for part in simulated.matches["q"])
        assert len(rejects(simulated)) == bad and not simulated.late
        assert streamed_count == batch.num_rows, (case, rejects(simulated))
        checked += batch.num_rows
    assert checked


def _drifting(rng: random.Random, start: int) -> list[dict[str, Any]]:
    kinds = rng.choice(["AB", "BC", "C", "ABC", "D"])
    return [
        row(
            rng.choice(kinds),
            start + n,
            id=rng.choice([1, 1, 2, None]),
            v=rng.choice([0, 1, 2, 3, None]),
            name=rng.choice(["a", "b", None]),
            **({"extra": rng.random()} if rng.random() < 0.3 else {}),
        )
        for n in range(rng.randint(0, 10))
    ]


def _table(rows: Sequence[Mapping[str, Any]], kind: pa.DataType) -> pa.Table:
    """The rows with the column `v` in another type."""
    names = dict.fromkeys(["type", "ts", *(name for one in rows for name in one)])
    columns = {}
    for name in names:
        values = [one.get(name) for one in rows]
        plain = {"type": pa.string(), "ts": pa.int64(), "id": pa.int64(), "name": pa.string(), "extra": pa.float64()}
        if name == "v":
            values = [None if v is None else str(v) for v in values] if kind == pa.string() else values
        columns[name] = pa.array(values, plain.get(name, kind))
    return pa.table(columns)


@pytest.mark.parametrize("number", range(2))
def test_files_at_the_start_that_do_not_fit_each_other(tmp_path: Path, number: int) -> None:
    """The first decides; rows of the others are rejected where they do not fit."""
    moment = datetime(2026, 1, 1)
    other = [row("B", 3, id=1, v="seven"), row("B", moment, id=1, v=3)][number]
    files = [
        write(tmp_path / "0.parquet", [row("A", 1, id=1, v=1), row("B", 2, id=1, v=2)]),
        write(tmp_path / "1.parquet", [other]),
        write(tmp_path / "2.parquet", [row("B", 4, id=1, v=4)]),
        write(tmp_path / "3.parquet", [{"type": "B", "time": 4}]),
    ]
    simulated = streamed(QUERY, files, [])
    assert matches(simulated) == [(1, 2), (1, 4)]
    assert [name for name, _, _ in rejects(simulated)] == ["1.parquet", "3.parquet"]


def test_types_may_be_integers(tmp_path: Path) -> None:
    write(tmp_path / "0.parquet", [{"type": 1, "ts": 1}, {"type": 2, "ts": 2}])
    files = StreamFiles.first(str(tmp_path), Columns(), "ms", Schema({}), False)
    assert files is not None and set(files.layout.attributes) == {"1", "2"}
    later = write(tmp_path / "1.parquet", [{"type": "2", "ts": 3}])
    read = files.read([str(tmp_path / "0.parquet"), str(later)])
    assert read.events.column("type").to_pylist() == ["1", "2", "2"] and not read.rejects.num_rows


def test_the_recognised_unit_of_times_is_settled(tmp_path: Path) -> None:
    """Integers that are seconds since 1970 at the first start remain seconds, whatever comes later."""
    start = 1_780_000_000
    write(tmp_path / "0.jsonl", [row("A", start, id=1, v=1), row("B", start + 9, id=1, v=2)])
    query = parse("EVENT SEQ(A x, B y) WHERE [id] WITHIN 10 seconds")
    files = StreamFiles.first(str(tmp_path), Columns(), None, Schema({}), False, queries=[query])
    assert files is not None and files.layout.clock.unit == "s"
    again = StreamFiles.described(files.path, Columns(), None, json.loads(json.dumps(files.description())))
    source = StreamSource.of_files(again, [query])
    plan = plan_stream({"q": query}, source, "1 minute", RunOptions(), order=again.order, buckets=2)
    assert plan.time.clock.unit == "s" and plan.description()["time unit"] == "s" and plan.window == 10
    slips = [pa.RecordBatch.from_pylist([{"value": json.dumps(str(tmp_path / "0.jsonl"))}])]
    assert matches(Simulation(plan).run(slips)) == [(start, start + 9)]
