"""Several directories as one stream: each with its own type, columns of time, unit and format, with the matches that
batch finds in the same files."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cepheid
from cepheid.engine.prepare import RunOptions
from cepheid.engine.shapes import OutputOptions
from cepheid.errors import CepheidError
from cepheid.events import EMPTY_SCHEMA
from cepheid.io.inputs import Columns, Input
from cepheid.io.stream_inputs import StreamInputs, require_apart
from cepheid.io.stream_rows import Read
from cepheid.lang import parse
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.simulation import Simulation

Row = dict[str, Any]
START = 1_709_280_000
QUERIES = {
    "sase": "EVENT SEQ(Login a, Order b, !(Click c)) WHERE [uid] WITHIN 20 seconds",
    "sase columns": "EVENT SEQ(Login a, Click c, Order b) WHERE [uid] AND b.amount > 3 WITHIN 1 min "
    "RETURN a.uid AS u, c.page AS p, b.amount AS m, b.created_at - a.at AS d",
    "sase+": "PATTERN SEQ(Login a, Click+ c[], Order b) WHERE skip_till_next_match(a, c[], b) {[uid]} WITHIN 40 s",
    "zstream": "PATTERN Login & Order WHERE Login.uid = Order.uid WITHIN 10 seconds",
    "sql of one type": "EVENT SEQ(View v, Click c) WHERE [page] WITHIN 30 seconds",
}


class Directories:
    """Logins as CSV with seconds, orders as Parquet with timestamps, clicks and views as JSON Lines with milliseconds
    and a column of their types."""

    def __init__(self, base: Path, rng: random.Random) -> None:
        self.base, self.rng = base, rng
        self.inputs = [
            Input(str(base / "logins"), type="Login", time_column="at", time_unit="s", delimiter=";"),
            Input(str(base / "orders"), type="Order", time_column="created_at"),
            Input(str(base / "web"), type_column="kind", time_unit="ms"),
        ]

    def write(self, part: int, start: int, stop: int, count: int = 12) -> list[Path]:
        rng, paths = self.rng, [Path(item.path) / f"{part:02d}" for item in self.inputs]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        endings = (".csv", ".parquet", ".jsonl")
        logins, orders, web = (path.with_suffix(of) for path, of in zip(paths, endings, strict=True))
        times = [sorted(rng.randint(start, stop - 1) for _ in range(count)) for _ in range(3)]
        logins.write_text("uid;at\n" + "".join(f"{rng.randint(1, 3)};{START + at}\n" for at in times[0]))
        moments = [datetime.fromtimestamp(START + at, UTC) for at in times[1]]
        users = [rng.randint(1, 3) for _ in moments]
        table = pa.table({"uid": users, "created_at": moments, "amount": [rng.choice((1.5, 4.0)) for _ in moments]})
        pq.write_table(table, orders)
        rows = [
            {"kind": rng.choice(("Click", "View")), "ts": (START + at) * 1000, "uid": rng.randint(1, 3), "page": "p"}
            for at in times[2]
        ]
        web.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return [logins, orders, web]

    def opened(self, *queries: str, schema: str | None = None) -> StreamInputs:
        parsed = [parse(query) for query in queries]
        found = StreamInputs.first(self.inputs, Columns(), None, EMPTY_SCHEMA, queries=parsed, schema=schema)
        assert found is not None
        return found

    def restarted(self, files: StreamInputs) -> StreamInputs:
        return StreamInputs.described(self.inputs, Columns(), None, json.loads(json.dumps(files.description())))


def slips(paths: list[Path]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"value": json.dumps(str(path))} for path in paths])


def rows_of(table: pa.Table | pa.RecordBatch) -> Counter[str]:
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_several_directories_give_the_matches_of_batch(query: str, tmp_path: Path) -> None:
    found = 0
    for seed in range(8):
        rng = random.Random(f"{query} {seed}")
        directories = Directories(tmp_path / str(seed), rng)
        first = directories.write(0, 0, 30)
        files = directories.opened(query)
        if rng.random() < 0.5:
            files = directories.restarted(files)
        later = [path for part in range(1, 4) for path in directories.write(part, part * 30, part * 30 + 30)]
        rng.shuffle(later)
        parsed = parse(query)
        source = StreamSource.of_files(files, [parsed])
        shown = OutputOptions(match_id=True)
        plan = plan_stream({"q": parsed}, source, "3 minutes", RunOptions(), order=files.order, buckets=3, output=shown)
        cut = rng.randint(0, len(later))
        streamed = Simulation(plan).run([slips(first), slips(later[:cut]), slips(later[cut:])])
        assert not streamed.late
        expected = rows_of(cepheid.match(query, directories.inputs, match_id=True))
        assert sum((rows_of(rows) for rows in streamed.matches["q"]), Counter()) == expected
        found += sum(expected.values())
    assert found


def test_events_of_one_time_are_in_the_order_of_the_inputs(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jsonl").write_text(f'{{"ts": 5, "from": "{name}"}}\n')
    inputs = [Input(str(tmp_path / "b"), type="X"), Input(str(tmp_path / "a"), type="X")]
    query = parse("PATTERN SEQ(X p, X q) WHERE strict_contiguity(p, q) {p.from != q.from} WITHIN 5 units")
    files = StreamInputs.first(inputs, Columns(), None, EMPTY_SCHEMA, queries=[query])
    assert files is not None
    plan = plan_stream({"q": query}, StreamSource.of_files(files, [query]), 0, order=files.order, buckets=2)
    (rows,) = Simulation(plan).run([slips([tmp_path / "a/1.jsonl", tmp_path / "b/1.jsonl"])]).matches["q"]
    ((match,),) = [rows.to_pylist()]
    assert (match["p"]["from"], match["q"]["from"]) == ("b", "a")
    assert rows_of(rows) == rows_of(cepheid.match(query, inputs))


def test_a_rejected_row_names_its_file_and_the_input_of_it(tmp_path: Path) -> None:
    directories = Directories(tmp_path, random.Random(1))
    directories.write(0, 0, 30)
    files = directories.opened(QUERIES["sase"])
    for name, line in (
        ("logins/1.csv", "uid;at\n1;soon\n2;9223372036854775\n"),
        ("web/1.jsonl", '{"kind": "Click"}\n'),
    ):
        (tmp_path / name).write_text(line)
    (tmp_path / "orders/1.csv").write_text("uid,created_at\n1,2024-03-01 08:00\n")
    read: Read = files.read([str(tmp_path / name) for name in ("logins/1.csv", "orders/1.csv", "web/1.jsonl")])
    found = [(Path(row["source"]).parent.name, row["line"], row["reason"]) for row in read.rejects.to_pylist()]
    assert [(name, line) for name, line, _ in found] == [("logins", 2), ("logins", 3), ("orders", None), ("web", 1)]
    assert "does not fit" in found[1][2] and "not Parquet by its name" in found[2][2]
    assert json.loads(read.rejects.to_pylist()[1]["raw"]) == {"uid": 2, "at": 9223372036854775}


def test_a_column_that_no_file_has_yet_is_read_when_it_comes(tmp_path: Path) -> None:
    directories = Directories(tmp_path, random.Random(2))
    directories.write(0, 0, 30)
    query = "EVENT SEQ(Login a, Order b) WHERE [uid] AND b.coupon = 'X' WITHIN 1 minute"
    files = directories.restarted(directories.opened(query))
    at = datetime.fromtimestamp(START + 31, UTC)
    pq.write_table(pa.table({"uid": [1], "created_at": [at], "coupon": ["X"]}), tmp_path / "orders/1.parquet")
    read = files.read([str(tmp_path / "orders/1.parquet")])
    assert read.events.column("coupon").to_pylist() == ["X"] and read.ticks.tolist() == [(START + 31) * 1_000_000]
    other = "EVENT SEQ(Login a, Order b) WHERE [shop] WITHIN 1 minute"
    with pytest.raises(CepheidError, match="and the query shows no type for it"):
        directories.opened(other)
    assert directories.opened(other, schema="shop long").layout.schema.field("shop").type == pa.int64()
    only = directories.opened(QUERIES["sase"], schema="amount float")
    assert "amount" not in only.layout.attributes["Login"]
    assert only.layout.attributes["Order"]["amount"] == pa.float32()


def test_inputs_that_hold_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    require_apart([str(tmp_path / "a"), str(tmp_path / "c")])
    for other in ("a", "a/b", "a/../a"):
        with pytest.raises(CepheidError, match=r"the input .* is there (twice|with)"):
            require_apart([str(tmp_path / "a"), str(tmp_path / other)])


def test_units_that_are_not_known_are_asked_for(tmp_path: Path) -> None:
    for name, time in (("a", "2024-03-01T08:00:00Z"), ("b", "7")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.csv").write_text(f"ts\n{time}\n")
    inputs = [Input(str(tmp_path / name), type=name.upper()) for name in ("a", "b")]
    with pytest.raises(CepheidError, match=r"the unit of the times `ts` of .*b` is not known"):
        StreamInputs.first(inputs, Columns(), None, EMPTY_SCHEMA)


def test_a_format_that_is_named_holds_for_all_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/export.log").write_text("ts;type\n1;A\n2;B\n")
    files = StreamInputs.first([Input(str(tmp_path / "in"), format="csv")], Columns(), None, EMPTY_SCHEMA)
    assert files is not None
    assert files.read([str(tmp_path / "in/export.log")]).ticks.tolist() == [1, 2]
