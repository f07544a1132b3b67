"""Numbers of text files: the same types and values on every backend, whatever way the file is read."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cepheid.app.file_run import FileRun
from cepheid.engine.query_text import QueryText
from cepheid.io import files
from cepheid.io.inputs import Columns, Input
from cepheid.io.row_reader import read_events

COLUMNS = Columns("type", "ts", None)


def lines(values: Sequence[Any], types: str = "AB") -> str:
    rows = [{"type": types[i % len(types)], "ts": i + 1, "v": v} for i, v in enumerate(values)]
    return "".join(json.dumps(row) + "\n" for row in rows)


def answers(path: Path, query: str) -> list[list[dict[str, Any]]]:
    """The matches on the reference and on the local backend."""
    found = []
    for backend in ("reference", "local"):
        text, written = QueryText(query), io.BytesIO()
        FileRun.open(text, text.parse(), [Input(str(path))], COLUMNS, backend=backend).write(written, "jsonl")
        rows = [json.loads(line) for line in written.getvalue().splitlines()]
        # Matches that end with the same event have no order.
        found.append(sorted(rows, key=lambda row: (row["match_end"], row["match_start"])))
    return found


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**63, 2**63, 5, 5], pa.uint64()),
        ([2**64 - 1, 1, 2**64 - 1, 2**64 - 1], pa.uint64()),
        ([2**63, -1, -1, 2**63], None),
        ([2**64, 1, 5, 2**64], None),
        ([-(2**63) - 1, 1, 1, -(2**63) - 1], None),
        ([2**63, 1.5, 3, 2.0**63], None),
        ([2**53 + 1, 1.5, 3, 3.0], None),
        ([[2**63], [2**63], [1], [1]], None),
    ],
)
def test_integers_beyond_64_bits_are_exact_or_refused(tmp_path: Path, values: list[Any], kind: Any) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text(lines(values))
    source = files.open_files([Input(str(path))], COLUMNS)
    assert kind is None or {of["v"] for of in (source.attributes or {}).values()} == {kind}
    for test in ("a.v = b.v", "[v]"):
        reference, local = answers(path, f"EVENT SEQ(A a, B b) WHERE {test} WITHIN 10 units RETURN a.v AS x, b.v AS y")
        expected = [(i, j) for j in (1, 3) for i in (0, 2) if i < j and values[i] == values[j]]
        assert reference == local and len(reference) == len(expected) and reference


def test_functions_of_a_lacking_attribute_read_values_of_any_type(tmp_path: Path) -> None:
    """The values of the other event types are no integers of 64 bits, or of several types."""
    path = tmp_path / "e.csv"
    path.write_text("type,ts,v,w\nB,2,9223372036854775808,\nC,3,,7\nC,4,,8\n")
    query = "EVENT C x WHERE greatest(x.v, x.w * x.v) > 0 AND x.w > 7 RETURN x.w AS w"
    assert answers(path, query) == [[{"w": 8, "match_start": 4, "match_end": 4}]] * 2


def test_integers_of_more_than_38_digits_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text(lines([1, 10**38, 10**38 - 1, 1]))
    loaded = read_events([Input(str(path))], COLUMNS)
    assert [r.reason for r in loaded.rejects] == ["the attribute `v` is an integer of more than 38 digits"]
    assert len(loaded.events) == 3


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_column_with_floats_has_floats_in_all_event_types(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"e.{suffix}"
    cells = "".join(f"{'AB'[i % 2]},{i},{i if i % 2 == 0 else i + 0.5}\n" for i in range(6))
    path.write_text(f"type,ts,v\n{cells}" if suffix == "csv" else lines([0, 1.5, 2, 3.5, 4, 5.5]))
    found = []
    for least in (files.LEAST_TEXT, 0):
        monkeypatch.setattr(files, "LEAST_TEXT", least)
        assert (files.column_source([Input(str(path))], COLUMNS) is None) == (least > 0)
        query = "EVENT SEQ(A a, B b) WITHIN 2 units RETURN CAST(a.v AS string) AS s, a.v AS v, a.v % 3 AS m"
        found += answers(path, query)
    assert all(rows == found[0] for rows in found) and [row["s"] for row in found[0]] == ["0.0", "2.0", "4.0"]


def test_a_quote_that_is_not_closed_costs_one_row(tmp_path: Path) -> None:
    # So many rows do not finish if the rest of the file is read again for each of them.
    path = tmp_path / "e.csv"
    path.write_text("type,ts,v\n" + "".join(f'A,{i},"n\nA,{i},1\n' for i in range(20_000)))
    loaded = read_events([Input(str(path))], COLUMNS)
    assert (len(loaded.events), len(loaded.rejects)) == (20_000, 20_000)
