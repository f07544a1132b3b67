"""Columns whose type differs between the files, the inputs or the batches of one run: one type for all, or one line of
error that names the column. A column that the query does not read may be anything."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from text_harness import cepheid

import cepheid as public
from cepheid.errors import InputProblem

TIMES = "EVENT SEQ(A x, B y) WITHIN 10 units RETURN x.ts AS a, y.ts AS b"
VALUES = "EVENT SEQ(A x, B y) WITHIN 10 units RETURN x.v AS a, y.v AS b"
PAIRS: dict[str, tuple[pa.Array, pa.Array, tuple[Any, Any] | str]] = {
    "integers and floats": (pa.array([1]), pa.array([1.5]), (1.0, 1.5)),
    "signed and unsigned": (pa.array([5], pa.uint64()), pa.array([-5]), (5, -5)),
    "decimals": (pa.array([Decimal("1.50")]), pa.array([Decimal("1.5")]), (Decimal("1.50"), Decimal("1.50"))),
    "integers and text": (pa.array([1]), pa.array(["q"]), "the column `v` is int64 in .* and string in "),
    "booleans and integers": (pa.array([True]), pa.array([1]), "the column `v` is bool in .* and int64 in "),
    "scalars and lists": (pa.array([1]), pa.array([[1]]), "the column `v` is int64 in "),
    "an integer that no float holds": (pa.array([2**53 + 1]), pa.array([1.5]), "a value of the column `v` does not"),
}


def event(kind: str, at: int, value: pa.Array) -> pa.Table:
    return pa.table({"type": [kind], "ts": [at], "v": value})


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("how", ["directory", "inputs", "tables"])
def test_columns_of_two_types(tmp_path: Path, pair: str, how: str) -> None:
    one, two, wanted = PAIRS[pair]
    tables = [event("A", 1, one), event("B", 2, two)]
    files = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for table, file in zip(tables, files, strict=True):
        pq.write_table(table, file)
    inputs: Any = {
        "directory": str(tmp_path),
        "inputs": [str(file) for file in files],
        "tables": [public.Input(table) for table in tables],
    }[how]
    assert public.match(TIMES, inputs).num_rows == 1
    if isinstance(wanted, str):
        with pytest.raises(InputProblem, match=wanted):
            public.match(VALUES, inputs)
    else:
        (row,) = public.match(VALUES, inputs).to_pylist()
        assert (row["a"], row["b"]) == wanted


def test_zones_of_files_become_utc(tmp_path: Path) -> None:
    for number, zone in enumerate((None, "UTC", "Europe/Berlin")):
        times = pa.array([number + 1], pa.timestamp("us", zone))
        pq.write_table(pa.table({"type": ["AB"[number > 0]], "ts": times}), tmp_path / f"{number}.parquet")
    found = public.match("EVENT SEQ(A x, B y) WITHIN 1 second RETURN y.ts AS b", str(tmp_path))
    assert found.schema.field("b").type == pa.timestamp("us", "UTC")
    assert found.column("b").cast(pa.int64()).to_pylist() == [2, 3]


def test_batches_of_an_iterator() -> None:
    def batches(value: Any) -> Any:
        return iter([*event("A", 1, pa.array([1])).to_batches(), *event("B", 2, pa.array([value])).to_batches()])

    assert sum(batch.num_rows for batch in public.match(TIMES, batches("q"))) == 1
    assert [batch.to_pylist()[0]["b"] for batch in public.match(VALUES, batches(2.0))] == [2]
    with pytest.raises(InputProblem, match="a value of the column `v` does not fit"):
        list(public.match(VALUES, batches(1.5)))


FRAMES = {"sparse": pd.arrays.SparseArray([1, 1]), "integers beyond 64 bits": [2**200, 1], "mixed values": [1, "a"]}


@pytest.mark.parametrize("kind", FRAMES)
def test_columns_of_pandas_that_arrow_cannot_hold(kind: str) -> None:
    frame = pd.DataFrame({"type": ["A", "B"], "ts": [1, 2], "v": FRAMES[kind]})
    assert len(public.match(TIMES, frame)) == 1
    with pytest.raises(InputProblem, match=r"the column `v` (cannot be read|mixes values)"):
        public.match(VALUES, frame)


def test_two_columns_of_pandas_with_one_name() -> None:
    frame = pd.DataFrame([["A", 1, 1, 2]], columns=["type", "ts", "v", "v"])
    with pytest.raises(InputProblem, match="two columns named `v`"):
        public.match(TIMES, frame)


def test_extension_types_have_the_values_of_their_storage() -> None:
    def returned(kind: pa.DataType, storage: pa.Array) -> Any:
        values = pa.ExtensionArray.from_storage(kind, storage)
        table = pa.table({"type": ["A", "B"], "ts": [1, 2], "v": values})
        query = VALUES.replace("WITHIN", "WHERE x.v = y.v WITHIN")
        assert public.match(query, table).to_pylist() == public.match(query, table, evaluator="reference").to_pylist()
        return public.match(query, table).column("a").to_pylist()

    assert returned(pa.bool8(), pa.array([1, 1], pa.int8())) == [True]
    assert returned(pa.json_(), pa.array(["{}", "{}"])) == ["{}"]
    assert returned(pa.uuid(), pa.array([b"a" * 16] * 2, pa.binary(16))) == [b"a" * 16]
    with pytest.raises(InputProblem, match="the time column `ts` holds extension"):
        public.match(TIMES, pd.DataFrame({"type": ["A", "B"], "ts": pd.period_range("2024", periods=2, freq="D")}))


def test_links(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("type,ts\nA,1\nB,2\n")
    os.symlink(tmp_path / "e.csv", tmp_path / "link.csv")
    os.symlink(tmp_path / "none.csv", tmp_path / "dangling.csv")
    assert cepheid("run", "--query", TIMES, "--input", tmp_path / "link.csv").stdout.count("\n") == 1
    refused = cepheid("run", "--query", TIMES, "--input", tmp_path / "dangling.csv")
    assert refused.exit_code == 2 and "leads nowhere" in refused.stderr and "none.csv" in refused.stderr
