"""Limits of many queries: one that explodes is stopped and reported, its state is released, and the others go on."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rules import as_if_many, eql_rules, in_order, sase_rules, streams
from typer.testing import CliRunner

import cepheid
from cepheid import datasets
from cepheid.app.cli import app
from cepheid.deploy.deployment import Written, deploy
from cepheid.deploy.family_run import FamilyRun
from cepheid.engine.prepare import RunOptions
from cepheid.errors import CepheidError, Explosion
from cepheid.io import frames
from cepheid.io.inputs import Columns
from cepheid.limits import Limits
from cepheid.streaming.planning import StreamOptions, StreamSource, plan_queries
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulation

PAIR = "EVENT SEQ(t a, t b) WHERE [k] AND a.v > {} WITHIN 1000000"
CHAIN = "SELECT * FROM (t A; t B) WHERE FILTER(A.k = B.k), A.v > {} AND (A, B) OCCURS WITHIN 9"


def many(count: int, keys: int = 1) -> pa.Table:
    return pa.table(
        {"type": ["t"] * count, "ts": range(count), "k": [n % keys for n in range(count)], "v": range(count)}
    )


def numbered(table: pa.Table) -> pa.Table:
    return table.append_column("n", pa.array(range(len(table))))


def last_event(row: dict[str, Any]) -> int:
    return max(int(event["n"]) for event in row.values() if isinstance(event, dict))


def allowed(rows: list[dict[str, Any]], most: int) -> tuple[list[dict[str, Any]], bool]:
    """The matches up to the first event that completes more than `most`, and whether there is one."""
    counts = Counter(map(last_event, rows))
    limit = min((n for n, count in counts.items() if count > most), default=None)
    return [row for row in rows if limit is None or last_event(row) < limit], limit is not None


@given(st.lists(eql_rules() | sase_rules(), min_size=2, max_size=7), streams(), st.integers(1, 4), st.data())
@settings(max_examples=60)
def test_a_stopped_rule_leaves_the_others_alone(texts: list[str], table: pa.Table, most: int, data: Any) -> None:
    """Each rule finds what the oracle finds up to the event that stops it, however the stream is cut, with a save and
    restore at every cut."""
    table = numbered(table)
    queries = {f"q{number}": text for number, text in enumerate([*texts, texts[0]])}
    expected = {
        name: allowed(cepheid.match(text, table, evaluator="reference").to_pylist(), most)
        for name, text in queries.items()
    }
    cuts = sorted({0, len(table), *data.draw(st.lists(st.integers(0, len(table)), max_size=3))})
    with as_if_many(data):
        opened = frames.opened(table, Columns("type", "ts"))
        assert opened is not None
        options = RunOptions(options={"max_matches": str(most)})
        written = {name: Written(name, text) for name, text in queries.items()}
        if all(is_stopped for _, is_stopped in expected.values()):
            with pytest.raises(Explosion):
                cepheid.match(queries, table, options=options.options)
            return
        found: dict[str, list[Any]] = {name: [] for name in queries}
        with pytest.warns(cepheid.CepheidWarning) if any(s for _, s in expected.values()) else _nothing() as warned:
            for part in cepheid.match(queries, table, options=options.options):
                for row in part.to_pylist():
                    found[row.pop("query")].append(row)
        for name, (rows, is_stopped) in expected.items():
            assert in_order(found[name]) == in_order(rows), queries[name]
            said = any(f"`{name}`" in str(w.message) for w in warned or ())
            assert said == is_stopped
        attributes = {kind: {f.name: f.type for f in table.schema} for kind in "tu"}
        source = StreamSource(RowReader(table.schema, Columns()), attributes)
        stream = StreamOptions(0, options, ("n",), 1)
        plan, _ = plan_queries(written, source, stream, is_several=True)
        assert not plan.queries
        simulation = Simulation(plan)
        of_stream: dict[str, list[Any]] = {name: [] for name in queries}
        for a, b in itertools.pairwise(cuts):
            batch = pa.RecordBatch.from_pylist(table.slice(a, b - a).to_pylist(), table.schema)
            out = simulation.run([batch], end_of_time=b == len(table))
            for name, parts in out.matches.items():
                of_stream[name] += [row for part in parts for row in part.to_pylist()]
        for name, (rows, _) in expected.items():
            assert in_order(of_stream[name]) == in_order(rows), queries[name]


class _nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def test_a_rule_whose_matches_explode_is_stopped() -> None:
    queries = {"wide": PAIR.format(-1), "also": PAIR.format(-1), "narrow": PAIR.format(990), "chain": CHAIN.format(5)}
    with pytest.warns(
        cepheid.CepheidWarning, match="the queries `also`, `wide` are stopped: the event at position 101"
    ):
        tables = cepheid.match(queries, many(1000), options={"max_matches": "100"})
    counts = Counter(name for table in tables for name in table["query"].to_pylist())
    assert counts == {"wide": 5050, "also": 5050, "narrow": 36, "chain": 993}


def test_the_state_of_a_rule_is_limited_and_released() -> None:
    queries = {f"narrow{n}": PAIR.format(19_900 + n) for n in range(70)} | {"wide": PAIR.format(-1)}
    table, limits = many(20_000, keys=10_000), Limits(memory=600_000)
    opened = frames.opened(table, Columns("type", "ts"))
    assert opened is not None
    deployment = deploy({name: Written(name, text) for name, text in queries.items()}, opened.source, RunOptions())
    (group,) = deployment.groups
    run = FamilyRun.start(group.families, limits)
    largest = 0
    for batch in table.to_batches(1000):
        with_time = batch.append_column("\ue000time", batch.column("ts"))
        found = list(run.step(_for_step(with_time)))
        largest = max(largest, run.state_bytes)
        del found
    assert [group.queries_of(rule) for rule in run.stopped] == [["wide"]]
    assert largest < 1_300_000
    assert run.state_bytes < 200_000


def _for_step(batch: pa.RecordBatch) -> pa.RecordBatch:
    from cepheid.io.rows import TIME, TYPE

    arrays = [*batch.columns[:-1], batch.column("ts"), batch.column("type").dictionary_encode()]
    return pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names[:-1], TIME, TYPE])


def test_the_state_of_all_is_limited() -> None:
    other = "PATTERN SEQ(t a, t+ b[]) WHERE skip_till_next_match(a, b[]) { [k] AND a.v > 19980 } WITHIN 50000"
    queries = {"wide": PAIR.format(-1), "half": PAIR.format(10_000), "narrow": PAIR.format(19_990), "other": other}
    table = many(20_000, keys=5_000)
    table = table.set_column(3, "v", pa.array([n * 7919 % 20_000 for n in range(20_000)]))
    with pytest.warns(cepheid.CepheidWarning, match="`wide` is stopped: more than 700,000 bytes of memory for all"):
        tables = cepheid.match(queries, table, options={"max_total_memory": "700000"})
    counts = Counter(name for part in tables for name in part["query"].to_pylist())
    alone = {name: cepheid.match(queries[name], table).num_rows for name in ("narrow", "other")}
    assert {name: counts[name] for name in alone} == alone
    assert min(alone.values()) > 5


def test_an_operator_of_its_own_is_stopped() -> None:
    explosive = "PATTERN SEQ(t a, t+ b[]) WHERE skip_till_any_match(a, b[]) { a.v > -1 } WITHIN 99"
    table = many(200)
    queries = {"explosive": explosive, "count": explosive + " RETURN count(*)", "pair": PAIR.format(150)}
    with pytest.warns(cepheid.CepheidWarning, match="the query `explosive` is stopped: the event at position"):
        tables = cepheid.match(queries, table, options={"max_matches": "100"})
    found = {name: table.num_rows for table in tables for name in set(table["query"].to_pylist())}
    assert found["pair"] == cepheid.match(PAIR.format(150), table).num_rows
    with pytest.raises(Explosion):
        cepheid.match({"explosive": explosive}, table, options={"max_matches": "100"})


def test_operators_are_limited() -> None:
    deep = "SELECT * FROM " + "(" * 9 + "t A0" + "".join(f"; t A{n})" for n in range(1, 10))
    queries = {"pair": PAIR.format(1), "deep": deep, "more": PAIR.format(2), "chain": CHAIN.format(1)}
    table = many(10)
    opened = frames.opened(table, Columns("type", "ts"))
    assert opened is not None
    written = {name: Written(name, text) for name, text in queries.items()}
    each = deploy(written, opened.source, RunOptions(options={"max_operators": "5"}))
    assert set(each.refused) == {"deep"}
    assert "it" not in each.alone
    assert each.refused["deep"].what == "the query has 9 operators"
    # Rules of one family are one operator.
    every = deploy(written, opened.source, RunOptions(options={"max_total_operators": "1"}))
    assert set(every.refused) == {"deep", "chain"}
    assert "the queries before it have 1 operators together" in every.refused["chain"].what
    with pytest.raises(CepheidError, match="9 operators"):
        cepheid.match(queries, table, options={"max_operators": "5"})
    with pytest.raises(CepheidError, match="`max_total_memory` cannot be `much`"):
        cepheid.match(queries, table, options={"max_total_memory": "much"})


def test_deploy_reports_what_is_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    for name, number in {"wide": -1, "narrow": 290}.items():
        (folder / f"{name}.sase").write_text(PAIR.format(number))
    datasets.write(many(300), tmp_path / "events.parquet")
    words = ["deploy", str(folder), "--input", str(tmp_path / "events.parquet"), "--limit", "max_matches=100"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "the query `wide` is stopped: the event at position 101 completes" in " ".join(result.stderr.split())
    assert "2 queries, 0 refused, 1 stopped" in result.stderr
    wrong = CliRunner().invoke(app, [*words[:-1], "max_match=3"])
    assert "there is no limit `max_match=3`" in wrong.stderr and "did you mean `max_matches`" in wrong.stderr
