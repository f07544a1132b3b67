"""Odd columns, names, encodings and damage: read, rejected row by row, or refused in one line; never a traceback."""

from __future__ import annotations

import gzip
import json
import warnings
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from text_harness import cepheid

import cepheid as public
from cepheid.errors import InputProblem, NameProblem
from cepheid.events import Schema
from cepheid.io.files import LEAST_TEXT, FileSource, open_files
from cepheid.io.inputs import Columns, Input
from cepheid.io.rows import TIME, TYPE
from cepheid.io.stream_files import StreamFiles


def write_file(table: pa.Table, file: Path) -> None:
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def write_stream(table: pa.Table, file: Path) -> None:
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


QUERY = "EVENT SEQ(A a, B b) WHERE a.x = b.x WITHIN 100 units"
WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "parquet": pq.write_table,
    "orc": orc.write_table,
    "arrow": write_file,
    "ipc": write_stream,
}


def table(**columns: object) -> pa.Table:
    return pa.table({"type": ["A", "B"], "ts": [1, 2], "x": [1, 1], **columns})


def written(directory: Path, suffix: str, events: pa.Table) -> Path:
    file = directory / f"e.{suffix}"
    try:
        WRITERS[suffix](events, file)
    except pa.ArrowNotImplementedError as problem:
        pytest.skip(str(problem))
    return file


def run(file: Path, *options: str) -> list[dict[str, object]]:
    """The matches of both backends, which agree."""
    found = [
        cepheid("run", "--query", QUERY, "--input", file, "--backend", b, *options) for b in ("local", "reference")
    ]
    assert [result.exit_code for result in found] == [0, 0], found[0].stderr + found[1].stderr
    assert found[0].stdout == found[1].stdout
    return [json.loads(line) for line in found[0].stdout.splitlines()]


RUN_ENDS = pa.RunEndEncodedArray.from_arrays([2], pa.array([1]))
ENCODED = {
    "run ends": RUN_ENDS,
    "a dictionary of integers": pa.array([1, 1]).dictionary_encode(),
    "a dictionary of strings": pa.array(["a", "a"]).dictionary_encode(),
    "a dictionary of views": pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["a"], pa.string_view())),
    "views": pa.array(["a", "a"], pa.string_view()),
    "large strings": pa.array(["a", "a"], pa.large_string()),
    "a wide decimal": pa.array([Decimal("1.50")] * 2, pa.decimal256(30, 2)),
    "a date": pa.array([date(2020, 1, 1)] * 2, pa.date64()),
    "nanoseconds": pa.array([-1, -1], pa.timestamp("ns")),
    "half floats": pa.array([1.5, 1.5], pa.float16()),
}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("encoding", ENCODED)
def test_encodings(tmp_path: Path, encoding: str, suffix: str) -> None:
    assert len(run(written(tmp_path, suffix, table(x=ENCODED[encoding])))) == 1


@pytest.mark.parametrize("encoding", ["run ends", "a dictionary of integers", "a dictionary of views"])
def test_encodings_of_tables_in_memory(encoding: str) -> None:
    assert public.match(QUERY, table(x=ENCODED[encoding])).num_rows == 1


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_type_column_of_integers(tmp_path: Path, suffix: str) -> None:
    file = written(tmp_path, suffix, table(type=[7, 8]))
    source = open_files([Input(str(file))], Columns())
    (batch,) = source.batches(["x"])
    assert batch.column(TYPE).to_pylist() == ["7", "8"] and source.rejected == 0
    floats = written(tmp_path, suffix, table(type=[7, 8], ts=[1.0, 2.0]))
    assert list(open_files([Input(str(floats))], Columns()).attributes or ()) == ["7", "8"]


NAMES = ["a.b", "`q`", "*", "", "__cepheid_file", "__cepheid_type", "match_start", "a", "é", "\n", "x.y", "%", "select"]


@pytest.mark.parametrize("suffix", WRITERS)
def test_names_that_the_query_does_not_use(tmp_path: Path, suffix: str) -> None:
    (match,) = run(written(tmp_path, suffix, table(**{name: [7, 8] for name in NAMES})))
    assert match["a"] == {"type": "A", "ts": 1, "x": 1, **dict.fromkeys(NAMES, 7)}


def test_names_of_csv_columns_that_the_query_does_not_use(tmp_path: Path) -> None:
    names = [name for name in NAMES if name != "\n"]
    cells = ",".join(["7"] * len(names))
    (tmp_path / "e.csv").write_text(f"type,ts,x,{','.join(names)}\nA,1,1,{cells}\nB,2,1,{cells}\n")
    (match,) = run(tmp_path / "e.csv")
    assert match["a"] == {"type": "A", "ts": 1, "x": 1, **dict.fromkeys(names, 7)}


INVALID = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"\xffa")]
)
REFUSED = {
    "two columns of one name": (table().append_column("x", pa.array([1, 2])), "has two columns named `x`"),
    "two type columns": (table().append_column("type", pa.array(["A", "B"])), "has two columns named `type`"),
    "a NUL in a name": (table(**{"\0type": [1, 2]}), "a column whose name contains a NUL"),
    "strings that are not UTF-8": (table(x=INVALID), "Invalid UTF8"),
    "types that are not UTF-8": (table(type=INVALID), "Invalid UTF8"),
    "no time column": (pa.table({"type": ["A"], "tss": [1]}), "has no column `ts`"),
    "no time column and no rows": (pa.table({"type": pa.array([], pa.string())}), "has no column `ts`"),
}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("oddity", REFUSED)
def test_refused_in_one_line(tmp_path: Path, oddity: str, suffix: str) -> None:
    events, reason = REFUSED[oddity]
    file = written(tmp_path, suffix, events)
    for backend in ("local", "reference"):
        result = cepheid("run", "--query", QUERY, "--input", file, "--backend", backend)
        assert result.exit_code == 2 and reason in result.stderr.splitlines()[0], result.stderr


@pytest.mark.parametrize("oddity", [name for name in REFUSED if name != "no time column and no rows"])
def test_tables_refused_in_one_line(oddity: str) -> None:
    with pytest.raises(InputProblem):
        public.match(QUERY, REFUSED[oddity][0])


def test_a_column_without_utf_8_that_the_query_does_not_read(tmp_path: Path) -> None:
    pq.write_table(table(y=INVALID), tmp_path / "e.parquet")
    found = cepheid("run", "--query", f"{QUERY} RETURN a.ts", "--input", tmp_path / "e.parquet", "--backend", "local")
    assert found.exit_code == 0


# --- times ------------------------------------------------------------------------------------------------------------

EDGE = 2**61
TIMES = {
    "int64": ([EDGE, EDGE + 1, -EDGE, -EDGE - 1, 2**63 - 1, -(2**63)], pa.int64(), [0, 2]),
    "uint64": ([EDGE, EDGE + 1, 0, 2**64 - 1, 2**63, 5], pa.uint64(), [0, 2, 5]),
    "seconds": ([EDGE // 10**6, EDGE // 10**6 + 1, -EDGE, 0, 2**63 - 1, 1], pa.timestamp("s"), [0, 3, 5]),
    "milliseconds": ([EDGE // 1000, EDGE // 1000 + 1, -EDGE, 0, 2**63 - 1, 1], pa.timestamp("ms", "UTC"), [0, 3, 5]),
    "nanoseconds": ([2**63 - 1, -(2**63) + 1, 0, -1, 999, None], pa.timestamp("ns"), [0, 1, 2, 3, 4]),
    "days": ([2**31 - 1, -(2**31), 0, 1, EDGE // 86_400_000_000, None], pa.date32(), [2, 3, 4]),
    "narrow integers": ([0, 127, -128, None, 5, 6], pa.int8(), [0, 1, 2, 4, 5]),
}


@pytest.mark.parametrize("kind", TIMES)
def test_times_that_do_not_fit_are_rejected(tmp_path: Path, kind: str) -> None:
    values, type, fitting = TIMES[kind]
    events = pa.table({"type": ["A"] * 6, "ts": pa.array(values, type), "n": range(6)})
    write_file(events, tmp_path / "e.arrow")
    source = open_files([Input(str(tmp_path / "e.arrow"))], Columns())
    batches = list(source.batches(["n"]))
    assert sorted(n for batch in batches for n in batch.column("n").to_pylist()) == fitting
    assert all(abs(t) <= EDGE for batch in batches for t in batch.column(TIME).to_pylist())
    rejects = list(source.rejects())
    assert len(rejects) == source.rejected and source.rejected + (source.count or 0) == 6
    assert all("does not fit" in r.reason or "is null" in r.reason for r in rejects)
    if rejects:
        with pytest.raises(InputProblem, match=r"does not fit|has no time|whole number"):
            public.match("EVENT SEQ(A a, A b) WITHIN 5 units", events)


def test_nanoseconds_are_rounded_down(tmp_path: Path) -> None:
    pq.write_table(table(ts=pa.array([-1, 999], pa.timestamp("ns"))), tmp_path / "e.parquet")
    (batch,) = open_files([Input(str(tmp_path / "e.parquet"))], Columns()).batches([])
    assert batch.column(TIME).to_pylist() == [-1, 0]


def test_an_output_without_a_name(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("type,ts,x\nA,1,1\n")
    for option in ("--rejects", "--output"):
        result = cepheid("run", "--query", QUERY, "--input", tmp_path / "e.csv", option, "")
        assert result.exit_code == 2 and len(result.stderr.splitlines()) <= 2, result.stderr


# --- units of integer times (ruling 1) --------------------------------------------------------------------------------

NOW = 1_700_000_000
SECONDS = "EVENT SEQ(A a, B b) WITHIN 10 seconds"
EPOCHS = {"s": NOW, "ms": NOW * 10**3, "us": NOW * 10**6, "ns": NOW * 10**9}


@pytest.mark.parametrize("unit", EPOCHS)
def test_epochs_are_recognised(tmp_path: Path, unit: str) -> None:
    step = EPOCHS[unit] // NOW
    times = [EPOCHS[unit], EPOCHS[unit] + 9 * step, EPOCHS[unit] + 10 * step]
    events = pa.table({"type": ["A", "B", "B"], "ts": times})
    assert public.match(SECONDS, events).num_rows == 1
    assert next(iter(public.match(SECONDS, iter(events.to_batches())))).num_rows == 1
    pq.write_table(events, tmp_path / "e.parquet")
    rows = list(zip("ABB", times, strict=True))
    (tmp_path / "e.csv").write_text("type,ts\n" + "".join(f"{kind},{at}\n" for kind, at in rows))
    (tmp_path / "e.jsonl").write_text("".join(f'{{"type":"{kind}","ts":{at}}}\n' for kind, at in rows))
    for suffix in ("parquet", "csv", "jsonl"):
        found = cepheid("run", "--query", SECONDS, "--input", tmp_path / f"e.{suffix}", "--backend", "local")
        assert len(found.stdout.splitlines()) == 1
        assert f"`ts` is an integer column in {unit}, recognised by its values" in found.stderr


def test_a_declared_unit_wins(tmp_path: Path) -> None:
    events = pa.table({"type": ["A", "B"], "ts": [NOW, NOW + 9_999]})
    assert public.match(SECONDS, events, time_unit="ms").num_rows == 1
    assert public.match(SECONDS, events).num_rows == 0


@pytest.mark.parametrize("times", [[1, 2], [NOW, NOW * 1000], [946_684_799, NOW], [NOW, 4_102_444_800]])
def test_other_integers_have_no_unit(times: list[int]) -> None:
    with pytest.raises(InputProblem, match="whose unit is not known"):
        public.match(SECONDS, pa.table({"type": ["A", "B"], "ts": times}))


def test_the_command_line_refuses_integers_without_a_unit(tmp_path: Path) -> None:
    """Ruling 1. Without events any unit will do."""
    (tmp_path / "e.csv").write_text("type,ts\nA,1\nB,9999\nB,10001\n")
    run = ("run", "--query", SECONDS, "--input", tmp_path / "e.csv", "--backend")
    for backend in ("local", "reference"):
        found = cepheid(*run, backend)
        assert found.exit_code == 2 and "an integer time column whose unit is not known" in found.stderr
    found = cepheid(*run, "local", "--time-unit", "ms")
    assert len(found.stdout.splitlines()) == 1 and "`ts` is an integer column in ms, for 10 seconds" in found.stderr
    pq.write_table(table().slice(0, 0), tmp_path / "none.parquet")
    assert cepheid("run", "--query", SECONDS, "--input", tmp_path / "none.parquet").exit_code == 0


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_epochs_with_fractions_are_timestamps(tmp_path: Path, unit: str) -> None:
    """A window of 10 seconds, and events 9.75 and 10 seconds after the first."""
    first, step = (NOW + 0.25, 1) if unit == "s" else (NOW * 1000 + 250.5, 1000)
    times = [first, first + 9.75 * step, first + 10 * step]
    rows = list(zip("ABB", times, strict=True))
    (tmp_path / "e.csv").write_text("type,ts\n" + "".join(f"{kind},{at!r}\n" for kind, at in rows))
    (tmp_path / "e.jsonl").write_text("".join(f'{{"type":"{kind}","ts":{at!r}}}\n' for kind, at in rows))
    events = pa.table({"type": ["A", "B", "B"], "ts": times})
    pq.write_table(events, tmp_path / "e.parquet")
    orc.write_table(events, tmp_path / "e.orc")
    for source in (events, tmp_path / "e.parquet", tmp_path / "e.orc"):
        assert public.match(SECONDS, source).num_rows == 1
    batches = public.match(SECONDS, iter(events.to_batches(max_chunksize=2)))
    assert sum(batch.num_rows for batch in batches) == 1
    reader = pa.RecordBatchReader.from_batches(events.schema, events.to_batches(max_chunksize=1))
    assert public.match(SECONDS, reader).read_all().column("match_end").type == pa.timestamp("us", "UTC")
    for suffix in ("parquet", "csv", "jsonl"):
        for backend in ("local", "reference"):
            found = cepheid("run", "--query", SECONDS, "--input", tmp_path / f"e.{suffix}", "--backend", backend)
            assert len(found.stdout.splitlines()) == 1, found.stderr
            assert f"`ts` has times in {unit} with fractions, read as timestamps" in found.stderr


@pytest.mark.parametrize(("unit", "step"), [("s", 1), ("ms", 1000), ("min", 1 / 60)])
@pytest.mark.parametrize("first", [0.25, NOW + 0.25])
def test_the_declared_unit_is_that_of_times_with_fractions(
    tmp_path: Path, unit: str, step: float, first: float
) -> None:
    """Whatever unit the values suggest."""
    events = pa.table({"type": ["A", "B", "B"], "ts": [first, first + 9.75 * step, first + 10.25 * step]})
    rows = list(zip(events["type"].to_pylist(), events["ts"].to_pylist(), strict=True))
    (tmp_path / "e.csv").write_text("type,ts\n" + "".join(f"{kind},{at!r}\n" for kind, at in rows))
    (tmp_path / "e.jsonl").write_text("".join(f'{{"type":"{kind}","ts":{at!r}}}\n' for kind, at in rows))
    pq.write_table(events, tmp_path / "e.parquet")
    for source in (events, *(tmp_path / f"e.{suffix}" for suffix in ("csv", "jsonl", "parquet"))):
        assert public.match(SECONDS, source, time_unit=unit).num_rows == 1
        assert public.match(SECONDS, public.Input(source, time_unit=unit)).num_rows == 1
    batches = public.match(SECONDS, iter(events.to_batches(max_chunksize=2)), time_unit=unit)
    assert sum(batch.num_rows for batch in batches) == 1


def test_epochs_with_fractions_in_several_files(tmp_path: Path) -> None:
    """Whole numbers of the same unit are timestamps too."""
    pq.write_table(pa.table({"type": ["A"], "ts": [float(NOW)]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"type": ["B", "B"], "ts": [NOW + 9.75, NOW + 10.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"type": ["B"], "ts": [NOW + 9]}), tmp_path / "2.parquet")
    assert public.match(SECONDS, tmp_path).num_rows == 2


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_epochs_with_fractions_in_a_stream_are_timestamps(tmp_path: Path, suffix: str) -> None:
    """By the unit that is recognised at the first start, and stored in the checkpoint."""

    def write(name: str, *rows: tuple[str, float]) -> str:
        file = tmp_path / f"{name}.{suffix}"
        if suffix == "csv":
            file.write_text("type,ts\n" + "".join(f"{kind},{at!r}\n" for kind, at in rows))
        elif suffix == "jsonl":
            file.write_text("".join(json.dumps({"type": kind, "ts": at}) + "\n" for kind, at in rows))
        else:
            pq.write_table(pa.table({"type": [k for k, _ in rows], "ts": [at for _, at in rows]}), file)
        return str(file)

    first = write("0", ("A", NOW + 0.25), ("B", NOW + 1.5))
    found = StreamFiles.first(str(tmp_path), Columns(), None, Schema({}), False)
    assert found is not None and found.layout.clock.is_timestamp
    later = write("1", ("A", NOW + 2.125), ("B", float(NOW + 3)), ("B", 1e300))
    read = StreamFiles.described(str(tmp_path), Columns(), None, found.description()).read([first, later])
    assert [tick - NOW * 1_000_000 for tick in read.ticks.tolist()] == [250_000, 1_500_000, 2_125_000, 3_000_000]
    (reject,) = read.rejects.to_pylist()
    assert reject["line"] == (4 if suffix == "csv" else 3) and (
        "does not fit" in reject["reason"] or "no time" in reject["reason"]
    )


def test_other_fractions_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("type,ts\nA,1\nB,2.5\n")
    found = cepheid("run", "--query", "EVENT SEQ(A a, A b)", "--input", tmp_path / "e.csv", "--backend", "local")
    assert "2 rows read = 1 event + 1 reject" in found.stderr


@pytest.mark.parametrize(
    ("suffix", "text"), [("csv", "type,ts\nA,1\nB,2\n"), ("jsonl", '{"type":"A","ts":1}\n{"type":"B","ts":2}\n')]
)
def test_compressed_text_under_any_name(tmp_path: Path, suffix: str, text: str) -> None:
    (tmp_path / f"e.{suffix}").write_bytes(gzip.compress(text.encode()))
    result = cepheid("run", "--query", "EVENT SEQ(A a, B b)", "--input", tmp_path / f"e.{suffix}")
    assert "2 events read, 1 match, 0 rejects" in result.stderr


@pytest.mark.parametrize("value", ["[1.5]", '"q"', '{"x": 1}', "true", "18446744073709551616"])
def test_an_attribute_that_is_null_in_every_event_of_the_query(tmp_path: Path, value: str) -> None:
    """Events of another type have values that may be of any type."""
    lines = [f'{{"type":"X","ts":1,"o":{value}}}', '{"type":"X","ts":1,"o":[2]}']
    lines += ['{"type":"A","ts":2,"o":null,"w":1}', '{"type":"B","ts":3,"w":1}']
    (tmp_path / "e.jsonl").write_text("\n".join(lines))
    for condition in ("count(a[].o) <= b.w", "count(a[].o) = 0", "count(a[].o) > 0"):
        query = f"PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) {{ {condition} }} WITHIN 9 units"
        found = [
            cepheid("run", "--query", query, "--input", tmp_path / "e.jsonl", "--backend", backend)
            for backend in ("local", "reference")
        ]
        assert [one.exit_code for one in found] == [0, 0], found[0].stderr + found[1].stderr
        assert found[0].stdout == found[1].stdout, condition


def test_a_run_that_rejects_every_row_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("type,ts\nA,soon\nB,later\n")
    words = ["run", "--query", "EVENT SEQ(A a, B b)", "--input", tmp_path / "e.csv", "--output", tmp_path / "o.jsonl"]
    result = cepheid(*words)
    assert result.exit_code == 2 and "2 rows read = 0 events + 2 rejects" in result.stderr
    assert (tmp_path / "o.jsonl.rejects.jsonl").exists()
    (tmp_path / "e.csv").write_text("type,ts\n")
    assert cepheid(*words).exit_code == 0


def test_the_rows_of_the_summary_add_up(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("type,ts\nA,1\nB,2\nB,soon\nB\n")
    found = cepheid("run", "--query", SECONDS, "--input", tmp_path / "e.csv", "--time-unit", "ms")
    assert "4 rows read = 2 events + 2 rejects, 1 match" in found.stderr


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_one_bad_line_leaves_a_large_file_to_the_columns(tmp_path: Path, suffix: str) -> None:
    """Read = used + rejected, and all events but the bad ones are read as columns."""
    rows = [{"type": "AB"[at % 2], "ts": at, "x": at % 7, "more": "m" * 40} for at in range(30_000)]
    if suffix == "csv":
        lines = ["type,ts,x,more", *(",".join(map(str, row.values())) for row in rows)]
        bad = {20_000: "A,5", 25_000: "A,soon,1,m"}
    else:
        lines, bad = [json.dumps(row) for row in rows], {20_000: '{"type": "A",', 25_000: '{"type": "A", "x": 1}'}
    for at, line in bad.items():
        lines.insert(at, line)
    file = tmp_path / f"e.{suffix}"
    file.write_text("\n".join(lines) + "\n")
    source = open_files([Input(str(file))], Columns())
    assert isinstance(source, FileSource) and file.stat().st_size > LEAST_TEXT
    assert (source.count, source.rejected) == (30_000, 2)
    assert [(reject.line, reject.raw) for reject in source.rejects()] == [(at + 1, line) for at, line in bad.items()]
    found = cepheid(
        "run", "--query", "EVENT SEQ(A a, B b) WHERE [x] WITHIN 8 units", "--input", file, "-o", tmp_path / "m.csv"
    )
    assert "30,002 rows read = 30,000 events + 2 rejects" in found.stderr


# --- Spark ------------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("by_path", [True, False])
def test_epochs_with_fractions_in_spark(spark: SparkSession, tmp_path: Path, by_path: bool) -> None:
    times = [NOW + 0.25, NOW + 10.0, NOW + 10.25, None]
    events = pa.table({"type": ["A", "B", "B", "B"], "ts": times})
    pq.write_table(events, tmp_path / "e.parquet")
    source = str(tmp_path / "e.parquet") if by_path else spark.createDataFrame(events.to_pandas())
    found, rejects = public.match(SECONDS, source, session=spark, rejects=True)
    (row,) = found.collect()
    assert row.match_end.timestamp() == NOW + 10 and rejects.count() == 1


@pytest.mark.spark
@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.time64("us")], ids=str)
def test_columns_that_spark_cannot_read_are_refused_in_one_line(
    spark: SparkSession, tmp_path: Path, kind: pa.DataType
) -> None:
    events = pa.table({"type": ["A", "B"], "ts": [1, 2], "at": pa.array([1000, 2000]).cast(kind)})
    pq.write_table(events, tmp_path / "e.parquet", version="2.6")
    query = "EVENT SEQ(A a, B b) WITHIN 5 units"
    try:
        found = public.match(query, str(tmp_path / "e.parquet"), session=spark).count()
    except InputProblem as problem:
        assert f"Spark cannot read the column `at` of `{tmp_path}/e.parquet`, of type {kind}" in str(problem)
    else:
        assert found == 1


@pytest.mark.spark
@pytest.mark.parametrize("by_path", [True, False])
def test_odd_rows_in_spark(spark: SparkSession, tmp_path: Path, by_path: bool) -> None:
    """Rows that are not events are rejected with the reason, and a file without rows has no matches."""
    cases = {
        "none": (table().slice(0, 0), 0, []),
        "integers": (table(ts=[1, EDGE + 1]), 0, ["the time of this row does not fit"]),
        "nulls": (table(ts=pa.array([None, 2])), 0, ["no time"]),
        "floats": (
            pa.table({"type": ["A", "B", "B", "B"], "ts": [1.0, 2.0, 2.5, float("nan")], "x": [1, 1, 1, 1]}),
            1,
            ["no time", "the time of this row is not a whole number"],
        ),
    }
    for name, (events, count, reasons) in cases.items():
        file = tmp_path / f"{name}.parquet"
        pq.write_table(events, file, row_group_size=1)
        inputs = str(file) if by_path else spark.read.parquet(str(file))
        matches, rejects = public.match(QUERY, inputs, session=spark if by_path else None, rejects=True)
        assert matches.count() == count, name
        found = sorted(row["reject_reason"] for row in rejects.collect())
        assert len(found) == len(reasons) and all(f.startswith(r) for r, f in zip(reasons, found, strict=True)), found


@pytest.mark.spark
def test_types_that_are_integers_and_recognised_units_in_spark(spark: SparkSession) -> None:
    rows = [(7, NOW, 1), (8, NOW + 9, 1), (8, NOW + 10, 1)]
    frame = spark.createDataFrame(rows, "type int, ts long, x int")
    assert public.match("PATTERN X;Y WHERE X.type = '7' WITHIN 9 seconds", frame).count() == 1


@pytest.mark.spark
def test_times_and_types_of_data_frames_are_those_of_tables(spark: SparkSession, tmp_path: Path) -> None:
    def frame(times: str, *times_of: float) -> DataFrame:
        return spark.createDataFrame(list(zip("ABB", times_of, strict=True)), f"type string, ts {times}")

    rows = frame("double", 0.25, 10.0, 10.5)
    assert public.match(SECONDS, rows, time_unit="s").count() == 1
    assert public.match(SECONDS, rows, time_unit="ms").count() == 2
    assert public.match(SECONDS, frame("double", float(NOW), NOW + 9.0, NOW + 11.0)).count() == 1
    with pytest.warns(public.CepheidWarning, match="no event of type `C` \\(it has `A`, `B`\\)"):
        public.match("EVENT SEQ(A a, C c)", rows)
    long = spark.range(20_000).selectExpr("if(id % 2 = 0, 'Login', 'Payment') AS type", "id AS ts")
    with pytest.raises(NameProblem, match="unknown event type `Payments`"):
        public.match("EVENT SEQ(Login a, !(Payments b), Login c) WITHIN 5", long)
    # An aggregation is not computed for the sake of a warning. Types that the query declares are not looked for.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        public.match("EVENT SEQ(A a, C c)", rows.groupBy("type", "ts").count())
        public.match("source A schema int v\nsource C schema int v\ncomplex q on A, C event seq(A, C; 5)", long)
    with pytest.raises(InputProblem, match="some of the inputs are Spark DataFrames"):
        public.match("EVENT SEQ(A a, B b)", {"A": rows.drop("type"), "B": pa.table({"ts": [1]})})
    with pytest.raises(InputProblem, match="is a file of the format csv"):
        public.match("EVENT SEQ(A a, B b)", "events.csv", session=spark)
    text = spark.createDataFrame([("A", "2024-01-01")], "type string, ts string")
    text.write.parquet(str(tmp_path / "text"))
    streaming = spark.readStream.schema(text.schema).parquet(str(tmp_path / "text"))
    checkpoint, output = str(tmp_path / "c"), str(tmp_path / "o")
    ways: list[Callable[[], object]] = [
        lambda: public.match("EVENT SEQ(A a, B b)", text),
        lambda: public.match("EVENT SEQ(A a, B b)", {"A": text, "B": text}),
        lambda: public.match("EVENT SEQ(A a, B b)", str(tmp_path / "text"), session=spark),
        lambda: public.stream(
            "EVENT SEQ(A a, B b) WITHIN 1 hour", streaming, watermark="1 hour", checkpoint=checkpoint, output=output
        ),
    ]
    for way in ways:
        with pytest.raises(InputProblem, match=r"holds strings[^$]*F\.to_timestamp\('ts'\)"):
            way()


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "orc", "csv"])
def test_match_and_run_agree_on_the_columns_that_a_type_lacks(tmp_path: Path, suffix: str, in_order: bool) -> None:
    """A column that is empty for all events of a type, in a file. In a table in memory it is null."""
    events = pa.table({"type": ["A", "B"], "ts": [1, 2], "k": pa.array([None, 7], pa.int64())})
    events = events if in_order else events.take(pa.array([1, 0]))
    path, query = tmp_path / f"e.{suffix}", "EVENT SEQ(A a, B b) WHERE a.k = b.k"
    if suffix == "csv":
        path.write_text("type,ts,k\n" + "".join(f"{r['type']},{r['ts']},{r['k'] or ''}\n" for r in events.to_pylist()))
    elif suffix == "arrow":
        with pa.ipc.new_file(path, events.schema) as file:
            file.write_table(events)
    else:
        (pq if suffix == "parquet" else orc).write_table(events, path)
    assert json.loads(cepheid("run", "--query", query, "--input", path).stdout)["match_end"] == 2
    files: tuple[object, ...] = (path, str(path), [path], tmp_path)
    for each in files:
        with pytest.warns(public.CepheidWarning, match="no event of type `A` has `k`"):
            assert public.match(query, each).num_rows == 1
    with pytest.warns(public.CepheidWarning, match="no match"):
        assert public.match(query, events).num_rows == 0
    if suffix != "csv":
        with pytest.warns(public.CepheidWarning, match="no event of type `A` has `k`"):
            found = public.match(query, path, output="positions")
        assert found.to_pylist() == [{"a": 0, "b": 1} if in_order else {"a": 1, "b": 0}]


@pytest.mark.spark
def test_every_way_in_agrees_on_the_columns_that_a_type_lacks(spark: SparkSession, tmp_path: Path) -> None:
    """Of files: those that are empty for all its events. In tables in memory and DataFrames every event has all."""
    events = pa.table({"type": ["A", "B", "C"], "ts": [1, 2, 3], "k": pa.array([None, 7, None], pa.int64())})
    path, query = str(tmp_path / "e.parquet"), "complex Q on A as a, B as b event seq(a, b; 5 ms) where a.k = b.k"
    pq.write_table(events, path)
    for backend in ("reference", "local", "spark"):
        ran = cepheid("run", "--query", query, "--input", path, "--backend", backend, "--time-unit", "ms")
        assert [json.loads(line)["match_end"] for line in ran.stdout.splitlines()] == [2], backend
    of_files: dict[str, Callable[[], pa.Table]] = {
        "path": lambda: public.match(query, path, time_unit="ms"),
        "several": lambda: public.match({"q": query}, path, time_unit="ms")[0],
        "spark": lambda: public.match(query, path, time_unit="ms", session=spark).toArrow(),
        "several, spark": lambda: public.match({"q": query}, path, time_unit="ms", session=spark)[0].toArrow(),
        "detect": lambda: public.detect(query, {"s": path}, time_unit="ms").read_all(),
    }
    of_tables: dict[str, Callable[[], pa.Table]] = {
        "table": lambda: public.match(query, events, time_unit="ms"),
        "pandas": lambda: pa.Table.from_pandas(public.match(query, events.to_pandas(), time_unit="ms")),
        "frame": lambda: public.match(query, spark.read.parquet(path), time_unit="ms").toArrow(),
        "detect": lambda: public.detect(query, {"s": events}, time_unit="ms").read_all(),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert {name: way().num_rows for name, way in of_files.items()} == dict.fromkeys(of_files, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", public.CepheidWarning)
        assert {name: way().num_rows for name, way in of_tables.items()} == dict.fromkeys(of_tables, 0)
        assert not list(public.match(query, iter(events.to_batches()), time_unit="ms"))


@pytest.mark.parametrize("rows", [1, 30_000])
def test_integers_are_types_in_json(tmp_path: Path, rows: int) -> None:
    lines = [f'{{"type": {kind}, "ts": {at}}}\n' for at in range(rows) for kind in ("101", "200.0")]
    (tmp_path / "e.jsonl").write_text("".join(lines) + '{"type": 2.5, "ts": 1}\n{"type": true, "ts": 1}\n')
    result = cepheid("run", "--query", "EVENT SEQ(`200` a, `101` b) RETURN count(*)", "--input", tmp_path / "e.jsonl")
    assert json.loads(result.stdout)["count(*)"] == rows * (rows - 1) // 2
    assert f"{2 * rows + 2:,} rows read = {2 * rows:,} events + 2 rejects" in result.stderr, result.stderr
    assert "neither a string nor an integer" in result.stderr


# --- every type of value through every format -------------------------------------------------------------------------

VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "integer": (pa.int64(), [0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "narrow integer": (pa.int8(), [0, 1, -128, 127]),
    "unsigned": (pa.uint64(), [0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
    "float": (pa.float64(), [0.0, -0.0, 1.5, float("inf"), -float("inf"), float("nan"), 1e300, 2.0**53]),
    "narrow float": (pa.float32(), [0.0, 1.5, 0.1]),
    "decimal": (pa.decimal128(10, 2), [Decimal("0.00"), Decimal("1.50"), Decimal("-99999999.99")]),
    "long decimal": (pa.decimal128(38, 3), [Decimal("0.000"), Decimal("12345678901234567890.125")]),
    "date": (pa.date32(), [date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us"), [-1, 0, 10**15 + 1]),
    "zoned timestamp": (pa.timestamp("us", "UTC"), [-1, 0, 10**15 + 1]),
    "seconds": (pa.timestamp("s"), [-1, 0, 10**9]),
    "nanoseconds": (pa.timestamp("ns"), [-1, 0, 999, 10**18 + 1]),
    "string": (pa.string(), ["", "a", "é", "\U0001f600", "a\0b", "x" * 300, "ẞ"]),
    "binary": (pa.binary(), [b"", b"\xff", b"a"]),
    "list": (pa.list_(pa.int64()), [[], [1], [1, 2], [2**53 + 1]]),
}


@st.composite
def typed_events(draw: st.DrawFn) -> tuple[str, pa.Table]:
    kind = draw(st.sampled_from(sorted(VALUES)))
    type, values = VALUES[kind]
    count = draw(st.integers(0, 6))
    chosen = draw(st.lists(st.sampled_from([*values, None]), min_size=count, max_size=count))
    types = draw(st.lists(st.sampled_from("AB"), min_size=count, max_size=count))
    column = pa.array(chosen, type)
    return kind, pa.table({"type": pa.array(types, pa.string()), "ts": pa.array(range(count), pa.int64()), "x": column})


@settings(max_examples=examples(40), deadline=None)
@given(typed_events(), st.sampled_from(["=", "!=", "<", "IS NULL"]), st.booleans())
def test_every_type_of_value_through_every_format(
    tmp_path_factory: pytest.TempPathFactory, typed: tuple[str, pa.Table], test: str, returns: bool
) -> None:
    """Local and reference backends give the same lines for the same rows, whatever the format."""
    kind, events = typed
    condition = "a.x IS NULL" if test == "IS NULL" else f"a.x {test} b.x"
    query = f"EVENT SEQ(A a, B b) WHERE {condition} WITHIN 9 units" + (" RETURN a.x AS x, b.x AS y" if returns else "")
    results = {}
    for suffix in [name for name in WRITERS if (name, kind) != ("orc", "unsigned")]:  # ORC has no unsigned integers
        file = tmp_path_factory.getbasetemp() / f"typed.{suffix}"
        WRITERS[suffix](events, file)
        for backend in ("local", "reference"):
            found = cepheid("run", "--query", query, "--input", file, "--backend", backend)
            assert found.exit_code in (0, 2), (kind, suffix, backend, found.exception)
            results[suffix, backend] = (found.exit_code, sorted(found.stdout.splitlines()))
    first = results["parquet", "reference"]
    assert {key: value for key, value in results.items() if value != first} == {}, (kind, first)
