"""The generators: the same seed gives the same data, and the data has the shape its paper describes."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest

from cepheid import datasets
from cepheid.errors import InputProblem

N = 20_000

SCHEMAS: dict[Callable[..., pa.Table], dict[str, str]] = {
    datasets.retail: {"tag_id": "int64"},
    datasets.cards: {"acc": "int64", "amount": "double", "currency": "string", "country": "string"},
    datasets.stock: {"symbol": "int64", "price": "int64", "volume": "int64"},
    datasets.ticks: {"id": "int64", "name": "string", "price": "double", "volume": "int64"},
    datasets.synthetic: {f"attr{i}": "int64" for i in range(1, 6)},
    datasets.weblog: {"ip": "string", "url": "string"},
    datasets.shipments: {"site": "string", "kind": "string", "from": "string", "to": "string"},
    datasets.persons: {"id": "int64", "loc_x": "double", "loc_y": "double", "node_id": "int64"},
}

every_generator = pytest.mark.parametrize("generate", SCHEMAS, ids=lambda generate: generate.__name__)


def column(table: pa.Table, name: str) -> np.ndarray:
    return np.asarray(table[name])


def shares(table: pa.Table, name: str = "type") -> dict[str, float]:
    return {value: count / len(table) for value, count in Counter(table[name].to_pylist()).items()}


@every_generator
def test_the_schema_is_type_time_and_the_attributes(generate: Callable[..., pa.Table]) -> None:
    found = {field.name: str(field.type) for field in generate(10).schema}
    assert found == {"type": "string", "ts": "int64", **SCHEMAS[generate]}


@every_generator
def test_the_seed_decides(generate: Callable[..., pa.Table]) -> None:
    assert generate(500, seed=7).equals(generate(500, seed=7))
    assert not generate(500, seed=7).equals(generate(500, seed=8))


@every_generator
def test_n_events_in_order_of_time(generate: Callable[..., pa.Table]) -> None:
    assert [len(generate(n)) for n in (0, 1, 1000)] == [0, 1, 1000]
    assert (np.diff(column(generate(1000), "ts")) >= 0).all()


def test_retail_proportions() -> None:
    table = datasets.retail(N, tags=100)
    assert shares(table) == pytest.approx({"Shelf": 0.45, "Register": 0.25, "Exit": 0.30}, abs=0.02)
    assert set(column(table, "tag_id")) == set(range(1, 101))
    assert (np.diff(column(table, "ts")) > 0).all()


def test_cards_amounts_and_homes() -> None:
    table = datasets.cards(N, accounts=50)
    amount = column(table, "amount")
    assert np.median(amount) == pytest.approx(120, rel=0.05)
    assert np.std(np.log(amount)) == pytest.approx(0.9, rel=0.05)
    assert column(table, "ts").max() < 10 * datasets.DAY
    assert set(column(table, "acc")) == set(range(1, 51))
    at_home = shares(table.filter(pc.field("acc") == 1), "country")
    assert max(at_home.values()) == pytest.approx(0.95 + 0.05 / 6, abs=0.03)
    assert len(set(zip(table["country"].to_pylist(), table["currency"].to_pylist(), strict=True))) == 6


@pytest.mark.parametrize("alternating", [True, False])
def test_stock_walks(alternating: bool) -> None:
    table = datasets.stock(N, symbols=3, p_up=0.6, alternating=alternating)
    symbol, price, volume = (column(table, name) for name in ("symbol", "price", "volume"))
    if alternating:
        assert symbol[:4].tolist() == [1, 2, 3, 1]
    assert np.bincount(symbol)[1:] / N == pytest.approx(1 / 3, abs=0.02)
    steps = np.concatenate([np.diff(price[symbol == s]) for s in (1, 2, 3)])
    steps = (steps + 500) % 1000 - 500  # a wrap from 1000 to 1 is a step up
    assert {int(s): float(np.mean(steps == s)) for s in set(steps)} == pytest.approx(
        {1: 0.6, 0: 0.2, -1: 0.2}, abs=0.02
    )
    assert (price.min(), price.max()) == (1, 1000)
    assert (volume.min(), volume.max()) == (1, 1000)


def test_ticks_rates() -> None:
    assert shares(datasets.ticks(N)) == pytest.approx(dict.fromkeys(["IBM", "Sun", "Oracle", "Google"], 0.25), abs=0.02)
    table = datasets.ticks(N, {"IBM": 1, "Sun": 9})
    assert shares(table) == pytest.approx({"IBM": 0.1, "Sun": 0.9}, abs=0.02)
    assert table["name"] == table["type"]


def test_synthetic_types_and_domains() -> None:
    table = datasets.synthetic(N, domains=(10, 5))
    assert table.column_names == ["type", "ts", "attr1", "attr2"]
    assert shares(table) == pytest.approx({f"E{i}": 0.05 for i in range(1, 21)}, abs=0.01)
    assert set(column(table, "attr1")) == set(range(1, 11))
    assert column(table, "ts").tolist() == list(range(N))


def test_synthetic_zipf() -> None:
    found = shares(datasets.synthetic(N, types=3, theta=1))
    assert found == pytest.approx({"E1": 6 / 11, "E2": 3 / 11, "E3": 2 / 11}, abs=0.02)


def test_weblog_has_the_counts_of_table_4() -> None:
    table = datasets.weblog(150_000)
    counts = Counter(table["type"].to_pylist())
    assert [counts[kind] for kind in ("Publication", "Project", "Course")] == [678, 1161, 1608]
    assert column(table, "ts").max() < 28 * datasets.DAY
    prefixes = {
        (kind, url.split("/")[1]) for kind, url in zip(*(table[c].to_pylist() for c in ("type", "url")), strict=True)
    }
    assert prefixes == {
        ("Publication", "publications"),
        ("Project", "projects"),
        ("Course", "courses"),
        ("Other", "pages"),
    }


def test_shipments_hold_what_their_type_has() -> None:
    rows = datasets.shipments(N, sites=10).to_pylist()
    alerts = [row for row in rows if row["type"] == "Alert"]
    others = [row for row in rows if row["type"] == "Shipment"]
    assert len(alerts) / N == pytest.approx(0.02, abs=0.005)
    assert {row["kind"] for row in alerts} == {"contaminated", "damaged", "delayed"}
    assert {(row["from"], row["to"]) for row in alerts} == {(None, None)}
    assert {(row["site"], row["kind"]) for row in others} == {(None, None)}
    assert {row["from"] for row in others} == {row["to"] for row in others} == {f"S{i}" for i in range(1, 11)}
    assert all(row["from"] != row["to"] for row in others)


def test_persons_move_at_most_as_fast_as_they_run() -> None:
    table = datasets.persons(N)
    person, ts, x, y, node = (column(table, name) for name in ("id", "ts", "loc_x", "loc_y", "node_id"))
    assert set(person) == set(range(1, 51))
    assert min(x.min(), y.min()) >= 0
    assert max(x.max(), y.max()) <= 100
    assert set(node) == set(range(1, 17))
    ran = 0
    for p in range(1, 51):
        mine = person == p
        distance = np.hypot(np.diff(x[mine]), np.diff(y[mine]))
        elapsed = np.diff(ts[mine])
        assert (distance <= 6 * elapsed + 0.02).all()  # coordinates are rounded
        ran += int(((distance >= 12) & (elapsed <= 3)).sum())
    assert ran > 0  # the paper's running_person


@pytest.mark.parametrize("extension", ["parquet", "csv", "jsonl"])
def test_write_by_extension(tmp_path: Path, extension: str) -> None:
    table, path = datasets.shipments(300), tmp_path / f"events.{extension}"
    datasets.write(table, path)
    match extension:
        case "parquet":
            found = pyarrow.parquet.read_table(path)
        case "csv":
            options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
            found = pyarrow.csv.read_csv(path, convert_options=options)
        case _:
            found = pa.Table.from_pylist([json.loads(line) for line in path.read_text().splitlines()], table.schema)
    assert found.equals(table)


def test_write_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(InputProblem) as problem:
        datasets.write(datasets.retail(1), tmp_path / "events.xls")
    assert "names no format of Cepheid" in str(problem.value)
    assert "expected: .parquet, .csv or .jsonl" in str(problem.value)
    assert not (tmp_path / "events.xls").exists()
