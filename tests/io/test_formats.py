"""Formats of columns: every file with the same rows is the same events, whatever its format and way of reading."""

from __future__ import annotations

import gc
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from text_harness import cepheid, lines

from cepheid import match
from cepheid.engine.prepare import RunOptions
from cepheid.errors import InputProblem
from cepheid.events import Schema
from cepheid.io.files import FileSource, open_files
from cepheid.io.formats import FORMATS, RawRow, format_named
from cepheid.io.formats.columnar import ColumnFormat, ColumnPart, stored_columns
from cepheid.io.formats.text import TextFormat
from cepheid.io.inputs import Columns, Input
from cepheid.io.rows import TIME, TYPE
from cepheid.io.shares import StoredFile
from cepheid.io.sinks import Objects, write_batches
from cepheid.io.stream_files import StreamFiles
from cepheid.io.stream_rows import FILE, NUMBER
from cepheid.lang import parse
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.simulation import Simulation

ROWS = 900
EVENTS = pa.table(
    {
        "type": ["A" if i % 3 else "B" for i in range(ROWS)],
        "ts": pa.array([1_000 + i // 2 for i in range(ROWS)]),
        "x": pa.array([i * 7 % 11 for i in range(ROWS)]),
        "name": pa.array([None if i % 5 else f"n{i}" for i in range(ROWS)]),
        "only_b": pa.array([None if i % 3 else i / 2 for i in range(ROWS)]),
    }
)
QUERY = "EVENT SEQ(A a, B b) WHERE a.x = 3 AND b.x = 4 WITHIN 40"


def write_file(table: pa.Table, file: Path) -> None:
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=250)


def write_stream(table: pa.Table, file: Path) -> None:
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=250)


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "parquet": lambda table, file: pq.write_table(table, file, row_group_size=250),
    "orc": orc.write_table,
    "feather": lambda table, file: feather.write_feather(table, file, chunksize=250),
    "arrow": write_file,
    "ipc": write_stream,
}
NEW = ["orc", "feather", "arrow", "ipc"]


def written(directory: Path, suffix: str, table: pa.Table = EVENTS) -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / f"events.{suffix}"
    WRITERS[suffix](table, file)
    return file


@pytest.mark.parametrize("suffix", NEW)
def test_a_file_is_the_source_that_the_parquet_file_is(tmp_path: Path, suffix: str) -> None:
    found, expected = (open_files([Input(str(written(tmp_path, s)))], Columns()) for s in (suffix, "parquet"))
    assert isinstance(found, FileSource) and found.count == ROWS
    assert found.attributes == expected.attributes and "only_b" not in (found.attributes or {})["A"]
    names = ["x", "only_b"]
    whole, same = (pa.Table.from_batches(source.batches(names)) for source in (found, expected))
    assert whole.select([*names, TIME]).equals(same.select([*names, TIME]))
    assert whole.column(TYPE).to_pylist() == same.column(TYPE).to_pylist()


@pytest.mark.parametrize("suffix", NEW)
def test_rows_and_columns_are_the_same_values(tmp_path: Path, suffix: str) -> None:
    file = written(tmp_path, suffix)
    format = format_named(FORMATS[f".{suffix}"])
    rows = format.rows(file, Columns(), None)
    assert [row.values for row in rows if isinstance(row, RawRow)] == EVENTS.to_pylist()


@pytest.mark.parametrize("suffix", NEW)
@pytest.mark.parametrize("backend", ["reference", "local"])
def test_the_command_line_reads_it(tmp_path: Path, suffix: str, backend: str) -> None:
    def run(file: Path, name: str) -> list[object]:
        done = cepheid("run", "--query", QUERY, "--input", file, "--time-unit", "ms", "--backend", name)
        assert done.exit_code == 0, done.stderr
        return lines(done)

    found = run(written(tmp_path, suffix), backend)
    assert found == run(written(tmp_path, "parquet"), "reference") and found


@pytest.mark.parametrize("suffix", NEW)
def test_python_reads_it(tmp_path: Path, suffix: str) -> None:
    found, expected = (match(QUERY, str(written(tmp_path, s)), time_unit="ms") for s in (suffix, "parquet"))
    assert found.equals(expected) and found.num_rows


@pytest.mark.parametrize("suffix", WRITERS)
def test_chunks_are_read_one_by_one(tmp_path: Path, suffix: str) -> None:
    """What a worker does: it reads the chunks of its share, and only the columns that are needed."""
    file = StoredFile(str(written(tmp_path, suffix)), format=FORMATS[f".{suffix}"])
    stored = stored_columns([file], "ts")
    assert stored is not None and stored.rows == ROWS and stored.size > 0
    assert (stored.times is not None) == (suffix == "parquet")
    parts = [part for share in stored.shares(3) for part in share if isinstance(part, ColumnPart)]
    assert [part.first for part in parts] == [sum(p.rows for p in parts[:at]) for at in range(len(parts))]
    tables = []
    for part in parts:
        with stored.reader.opened(part, ["x", "ts"], []) as opened:
            assert "name" in opened.names
            tables.append(opened.read(["x", "ts"]))
            assert opened.rows == tables[-1].num_rows
            first = opened.first(7)
            assert first.rows == 7 and first.read(["x", "ts"]).equals(tables[-1].slice(0, 7))
            assert opened.first(opened.rows + 1).read(["x"]).num_rows == opened.rows
    assert pa.concat_tables(tables).equals(EVENTS.select(["x", "ts"]))


def test_views_and_dictionaries_of_arrow_files(tmp_path: Path) -> None:
    kinds = EVENTS.column("type").dictionary_encode()
    table = EVENTS.set_column(0, "type", kinds).set_column(3, "name", EVENTS.column("name").cast(pa.string_view()))
    for suffix in ("arrow", "ipc"):
        found = match(QUERY, str(written(tmp_path, suffix, table)), time_unit="ms", output="positions")
        assert found.equals(match(QUERY, EVENTS, time_unit="ms", output="positions"))


@pytest.mark.parametrize("suffix", NEW)
def test_rows_in_any_order_and_empty_files(tmp_path: Path, suffix: str) -> None:
    backwards = EVENTS.take(pa.array(range(ROWS - 1, -1, -1)))
    file = str(written(tmp_path, suffix, backwards))
    assert match(QUERY, file, time_unit="ms").num_rows == match(QUERY, backwards, time_unit="ms").num_rows > 0
    assert match(QUERY, str(written(tmp_path, suffix, EVENTS.slice(0, 0))), time_unit="ms").num_rows == 0


@pytest.mark.parametrize("suffix", NEW)
def test_a_damaged_file_is_reported(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"broken.{suffix}"
    file.write_bytes(b"no such file")
    with pytest.raises(InputProblem, match=r"cannot read .* as (Arrow IPC|ORC)"):
        open_files([Input(str(file))], Columns())


def _write_stream(table: pa.Table, path: str, compression: str) -> None:
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("written", [feather.write_feather, _write_stream], ids=["file", "stream"])
def test_offsets_beyond_the_buffers_of_an_arrow_file_are_reported(tmp_path: Path, written: Callable[..., None]) -> None:
    table = pa.table({"type": ["A", "B"] * 10, "ts": list(range(20)), "s": ["abcdefgh"] * 20})
    path = tmp_path / "events.arrow"
    written(table, str(path), compression="uncompressed")
    content = bytearray(path.read_bytes())
    at = content.find(struct.pack("<4i", 0, 8, 16, 24))
    content[at + 20 : at + 24] = struct.pack("<i", -2_000_000_000)
    path.write_bytes(content)
    with pytest.raises(InputProblem, match=r"cannot read `.*events.arrow` as Arrow IPC"):
        match("EVENT SEQ(A x, B y) WITHIN 3", path)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("evaluator", [None, "reference"])
def test_views_inside_other_types(tmp_path: Path, suffix: str, evaluator: str | None) -> None:
    views = pa.array(["p", "q"], pa.string_view())
    columns = {
        "s": views,
        "bytes": pa.array([b"p", b"q"], pa.binary_view()),
        "inner": pa.StructArray.from_arrays([views], ["s"]),
        "list": pa.array([["p"], ["q"]], pa.list_(pa.string_view())),
    }
    table = pa.table({"type": ["A", "B"], "ts": [2, 1], **columns})
    path = tmp_path / f"events{suffix}"
    (pq.write_table if suffix == ".parquet" else feather.write_feather)(table, str(path))
    (found,) = match("EVENT SEQ(B x, A y) WHERE y.inner.s = 'p' WITHIN 3", path, evaluator=evaluator).to_pylist()
    assert [found["x"][name] for name in columns] == ["q", b"q", {"s": "q"}, ["q"]]


def test_a_column_of_orc_with_a_dot_in_its_name(tmp_path: Path) -> None:
    orc.write_table(pa.table({"type": ["A"], "ts": [1], "at.x": [5], "at": [{"x": 1}]}), str(tmp_path / "events.orc"))
    assert match("EVENT A x", tmp_path / "events.orc").to_pylist()[0]["x"]["at.x"] == 5


def test_a_text_format_needs_only_a_title_and_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is then read row by row, whatever its size, and has no streams."""
    pipes = TextFormat("pipes", lambda file, columns, type: [RawRow(1, None, {"type": "A", "ts": 1})])
    monkeypatch.setattr("cepheid.io.files.LEAST_TEXT", 0)
    monkeypatch.setattr("cepheid.io.formats.jsonl.FORMAT", pipes)
    (tmp_path / "x.jsonl").write_text("A|1")
    assert list(open_files([Input(str(tmp_path))], Columns()).attributes or ()) == ["A"]
    with pytest.raises(InputProblem, match="for a stream"):
        settled(str(tmp_path), Columns(), None, Schema({}), False)


@pytest.mark.filterwarnings("error")
def test_an_error_while_matches_are_written_is_the_only_error(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"x": [1]})
        raise InputProblem("the file ends early")

    schema = pa.schema([("x", pa.int64())])
    for format in ("parquet", "arrow", "csv", "jsonl"):
        with pytest.raises(InputProblem, match="ends early"), (tmp_path / "out").open("wb") as file:
            write_batches(file, format, schema, failing(), Objects({}, {}, "type"))
        gc.collect()  # a writer that is still open would raise here, which pytest reports


def test_every_format_is_a_module() -> None:
    formats = {name: format_named(name) for name in FORMATS.values()}
    titles = {name: format.title for name, format in formats.items() if isinstance(format, ColumnFormat)}
    assert titles == {"parquet": "Parquet", "arrow": "Arrow IPC", "orc": "ORC"}


# --- streams and Spark ------------------------------------------------------------------------------------------------


def settled(directory: str, columns: Columns, unit: str | None, declared: Schema, raw: bool) -> StreamFiles:
    files = StreamFiles.first(directory, columns, unit, declared, raw)
    assert files is not None
    return files


def stream_files(directory: Path, suffix: str, table: pa.Table = EVENTS) -> list[Path]:
    directory.mkdir(exist_ok=True)
    files = [directory / f"{number}.{suffix}" for number in range(3)]
    for number, file in enumerate(files):
        WRITERS[suffix](table.slice(number * 300, 300), file)
    return files


@pytest.mark.parametrize("suffix", NEW)
def test_files_of_a_stream_are_read_into_its_columns(tmp_path: Path, suffix: str) -> None:
    found, expected = (
        settled(str(directory), Columns(), "ms", Schema({}), True)
        for directory in (stream_files(tmp_path / s, s)[0].parent for s in (suffix, "parquet"))
    )
    assert found.layout == expected.layout and not found.raw
    again = StreamFiles.described(found.path, Columns(), "ms", found.description())
    assert again == found
    paths = [str(path) for path in stream_files(tmp_path / suffix, suffix)]
    read = again.read(paths)
    assert read.rejects.num_rows == 0 and read.events.num_rows == ROWS
    assert read.events.column("x").to_pylist() == EVENTS.column("x").to_pylist()
    assert read.events.column(FILE).to_pylist()[::300] == paths
    assert read.events.column(NUMBER).to_pylist() == [*range(1, 301)] * 3


@pytest.mark.parametrize("suffix", ["orc", "arrow"])
def test_rows_of_a_stream_without_a_time_are_rejected(tmp_path: Path, suffix: str) -> None:
    times = pa.array([None, *range(1, ROWS)], pa.int64())
    (file, *_) = stream_files(tmp_path / "s", suffix, EVENTS.set_column(1, "ts", times))
    read = settled(str(file.parent), Columns(), "ms", Schema({}), False).read([str(file)])
    assert read.events.num_rows == 299
    (reject,) = read.rejects.to_pylist()
    assert (reject["source"], reject["line"]) == (str(file), 1) and "no time" in reject["reason"]


@pytest.mark.parametrize("suffix", ["orc", "arrow"])
def test_a_stream_finds_the_matches_of_batch(tmp_path: Path, suffix: str) -> None:
    files = stream_files(tmp_path / "s", suffix)
    found = settled(str(tmp_path / "s"), Columns(), "ms", Schema({}), True)
    source = StreamSource.of_files(found, [])
    plan = plan_stream({"q": parse(QUERY)}, source, 0, RunOptions(time_unit="ms"), order=found.order, buckets=2)
    slips = [pa.RecordBatch.from_pylist([{"value": json.dumps(str(file))}]) for file in files]
    matches = Simulation(plan).run(slips).matches["q"]
    assert sum(rows.num_rows for rows in matches) == match(QUERY, EVENTS, time_unit="ms").num_rows > 0


@pytest.mark.spark
@pytest.mark.parametrize("suffix", ["orc", "arrow"])
def test_spark_reads_it_in_its_workers(spark: SparkSession, tmp_path: Path, suffix: str) -> None:
    def run(file: Path, name: str) -> list[object]:
        done = cepheid("run", "--query", QUERY, "--input", file, "--time-unit", "ms", "--backend", name)
        assert done.exit_code == 0, done.stderr
        return lines(done)

    found = run(written(tmp_path, suffix), "spark")
    assert found == run(written(tmp_path, "parquet"), "reference") and found
