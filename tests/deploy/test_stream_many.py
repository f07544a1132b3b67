"""Many queries in a stream, which change while it runs: each finds what the oracle finds in the events that it saw."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rules import as_if_many, eql_rules, sase_rules, strategy_rules, streams
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.deploy.deployment import Written
from cepheid.engine.prepare import RunOptions
from cepheid.engine.shapes import OutputOptions
from cepheid.errors import InputProblem
from cepheid.events import EMPTY_SCHEMA
from cepheid.io.inputs import Columns
from cepheid.io.stream_files import StreamFiles
from cepheid.lang import parse
from cepheid.streaming.plan import FIRST, StreamPlan
from cepheid.streaming.planning import StreamOptions, StreamSource, plan_queries
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulation
from cepheid.streaming.sinks import as_json_lines
from cepheid.streaming.versions import Planner

OTHERS = [
    "PATTERN SEQ(t a, u+ b[]) WHERE skip_till_next_match(a, b[]) { [k] AND a.v > 1 } WITHIN 5",
    "PATTERN t A; !u B; t C WHERE A.v > C.v WITHIN 4",
    "EVENT SEQ(t a, u b) WHERE a.v < b.v WITHIN 6 RETURN a.v AS x, b.v AS y",
    "P: EVENT SEQ(t a, t b) WHERE [k] WITHIN 4\n\nQ: EVENT SEQ(P p, u c) WHERE p.a.v = c.v WITHIN 9",
]
SCHEMA = pa.schema(
    [
        ("type", pa.string()),
        ("ts", pa.int64()),
        ("k", pa.int64()),
        ("v", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("n", pa.int64()),
    ]
)


def planned(
    queries: dict[str, Written], delay: int = 0, before: StreamPlan | None = None, shape: str = "events"
) -> StreamPlan:
    source = StreamSource(RowReader(SCHEMA, Columns()), {kind: {f.name: f.type for f in SCHEMA} for kind in "tu"})
    options = StreamOptions(delay, RunOptions(), ("n",), 3, output=OutputOptions(shape))
    lineage = FIRST if before is None else before.next_lineage
    plan, refused = plan_queries(queries, source, options, is_several=True, lineage=lineage)
    assert not refused, [str(error) for error in refused.values()]
    return plan


def rows_of(batches: list[pa.RecordBatch]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True, default=str) for batch in batches for row in batch.to_pylist())


def expected(text: str, rows: list[dict[str, Any]]) -> Counter[str]:
    in_order = sorted(rows, key=lambda row: (row["ts"], row["n"]))
    try:
        found = cepheid.match(text, pa.Table.from_pylist(in_order, SCHEMA), evaluator="reference")
    except InputProblem as problem:
        assert "no event has a type of the query" in problem.what
        return Counter()
    return rows_of(found.to_batches())


def arriving(data: st.DataObject, table: pa.Table, delay: int) -> list[list[dict[str, Any]]]:
    """The events in an order that the delay allows, in batches."""
    rows = [{**row, "n": number} for number, row in enumerate(table.to_pylist())]
    shift = data.draw(st.lists(st.integers(0, delay), min_size=len(rows), max_size=len(rows)))
    mixed = [row for _, row in sorted(zip(shift, rows, strict=True), key=lambda item: item[0] + item[1]["ts"])]
    cuts = sorted({0, len(rows), *data.draw(st.lists(st.integers(0, len(rows)), max_size=4))})
    return [mixed[a:b] for a, b in itertools.pairwise(cuts)]


RULES = eql_rules() | sase_rules() | strategy_rules(keyed=True)


@given(st.lists(RULES | st.sampled_from(OTHERS), min_size=1, max_size=6), streams(), st.data())
@settings(max_examples=40)
def test_queries_that_come_and_go(texts: list[str], table: pa.Table, data: st.DataObject) -> None:
    """At every batch queries are added and removed; each state is saved and restored."""
    with as_if_many(data):
        check_queries_that_come_and_go(texts, table, data)


def check_queries_that_come_and_go(texts: list[str], table: pa.Table, data: st.DataObject) -> None:
    delay = data.draw(st.sampled_from([0, 2]))
    batches = arriving(data, table, delay)
    names = [f"q{number}" for number in range(len(texts))]
    since = {name: data.draw(st.integers(0, len(batches) - 1)) if at else 0 for at, name in enumerate(names)}
    until = {
        name: data.draw(st.sampled_from([len(batches), since[name] + 1])) if at else 99 for at, name in enumerate(names)
    }
    queries: dict[str, Written] = {}
    plan, found = None, {name: Counter[str]() for name in names}
    simulation = Simulation(planned({"q0": Written("q0", texts[0])}))
    for number, rows in enumerate(batches):
        version = 0 if plan is None else plan.version + 1
        kept = {name: written for name, written in queries.items() if until[name] > number}
        new = {
            name: Written(name, text, since=version)
            for name, text in zip(names, texts, strict=True)
            if since[name] == number
        }
        if plan is None or new or kept.keys() != queries.keys():
            queries = {**kept, **new}
            plan = planned(queries, delay, plan)
            simulation.plan = plan
        is_last = number == len(batches) - 1
        out = simulation.run([pa.RecordBatch.from_pylist(rows, SCHEMA)], end_of_time=is_last)
        assert not out.late
        for name, parts in out.matches.items():
            found[name] += rows_of(parts)
    for name, text in zip(names, texts, strict=True):
        seen = [row for part in batches[since[name] : until[name]] for row in part]
        if until[name] >= len(batches):
            assert found[name] == expected(text, seen), text
        else:
            assert found[name] <= expected(text, seen), text


@pytest.mark.parametrize("shape", ["events", "flat", "long"])
def test_one_table_for_each_set_of_columns(shape: str) -> None:
    pair = "EVENT SEQ(t a, u b) WHERE [k] AND a.v > {} WITHIN 9"
    texts = {"one": pair.format(1), "two": pair.format(2), "same": pair.format(1), "third": OTHERS[2]}
    plan = planned({name: Written(name, text) for name, text in texts.items()}, shape=shape)
    assert len(plan.tables) == (1 if shape == "long" else 2)
    assert [table.schema.names[0] for table in plan.tables] == ["query"] * len(plan.tables)
    (group,) = plan.groups
    assert sorted(group.names) == ["one", "same", "two"]
    rows = [{"type": "t", "ts": 1, "k": 1, "v": 2, "n": 0}, {"type": "u", "ts": 2, "k": 1, "v": 5, "n": 1}]
    out = Simulation(plan).run([pa.RecordBatch.from_pylist(rows, SCHEMA)])
    events = 2 if shape == "long" else 1
    assert {name: sum(len(part) for part in parts) for name, parts in out.matches.items()} == {
        "one": events,
        "two": 0,
        "same": events,
        "third": events,
    }


def test_queries_without_a_key_are_placed_on_different_buckets() -> None:
    pair = "PATTERN t A; u B WHERE A.v < B.v AND A.k != B.k AND A.v > {} WITHIN 9"
    chain = "SELECT * FROM (t A; u B) WHERE A.v > {} AND (A, B) OCCURS WITHIN 9"
    texts = {f"pair{n}": pair.format(n) for n in range(-4, 5)}
    texts |= {f"chain{n}": chain.format(n / 100) for n in range(150)}
    plan = planned({name: Written(name, text) for name, text in texts.items()})
    assert sorted(query.slot for query in plan.queries).count(0) in (2, 3, 4)
    assert {query.slot for query in plan.queries} == {group.slot for group in plan.groups} == {0, 1, 2}
    assert plan.keys == ((),) and plan.slots == 3
    rows = [{"type": "tu"[n % 2], "ts": n, "k": n % 3, "v": n % 7, "n": n} for n in range(40)]
    simulation = Simulation(plan)
    late = {"type": "t", "ts": -5, "k": 1, "v": 9, "n": 99}
    parts = [simulation.run([pa.RecordBatch.from_pylist(rows[:20], SCHEMA)], end_of_time=False)]
    # They stay where they are when others come and go.
    kept = {entry.name: entry.written for entry in plan.entries if entry.name not in ("pair0", "chain0")}
    simulation.plan = planned({**kept, "new": Written("new", pair.format(0), since=1)}, before=plan)
    before = {query.name: query.slot for query in plan.queries}
    assert all(query.slot == before[query.name] for query in simulation.plan.queries if query.name in before)
    parts.append(simulation.run([pa.RecordBatch.from_pylist([*rows[20:], late], SCHEMA)]))
    assert sum(map(len, parts[1].late)) == 1 and simulation.used == 40
    for name in ("pair-4", "pair2", "chain1", "chain140"):
        assert rows_of([found for part in parts for found in part.matches[name]]) == expected(texts[name], rows)
    assert rows_of(parts[1].matches["new"]) == expected(pair.format(0), rows[20:])


@pytest.mark.parametrize("limit", ["", " LIMIT 3"])
def test_queries_that_differ_in_return_only_run_once(limit: str) -> None:
    pair = "PATTERN t A; u B WHERE A.v < B.v AND A.k != B.k WITHIN 9"
    texts = {
        "whole": pair,
        "v": f"{pair} RETURN A.v AS x",
        "s": f"{pair} RETURN B.s AS x",
        "k": f"{pair} RETURN A.k, B.k",
    }
    texts = {name: text + limit for name, text in texts.items()} | {"same": f"{pair} RETURN A.v AS x{limit}"}
    queries = {name: Written(name, text) for name, text in texts.items()}
    plan = planned(queries)
    (query,) = plan.queries
    assert sorted(query.all_names) == sorted(texts)
    rows = [{"type": "tu"[n % 2], "ts": n, "k": n % 3, "v": n % 7, "s": str(n), "n": n} for n in range(40)]
    simulation = Simulation(plan)
    parts = [simulation.run([pa.RecordBatch.from_pylist(rows[:3], SCHEMA)], end_of_time=False)]
    # The state is that of all of them: it stays when the first one is removed.
    del queries["whole"]
    simulation.plan = planned(queries, before=plan)
    parts.append(simulation.run([pa.RecordBatch.from_pylist(rows[3:], SCHEMA)]))
    for name, text in list(texts.items())[1:]:
        found = rows_of([found for part in parts for found in part.matches[name]])
        assert found == expected(text, rows) and sum(found.values()) > 2


def test_the_state_of_families_forgets_keys() -> None:
    text = "EVENT SEQ(t a, u b) WHERE [s] AND a.v > {} WITHIN 9"
    plan = planned({f"q{n}": Written(f"q{n}", text.format(n)) for n in range(3)})
    simulation = Simulation(plan)
    for start in range(0, 4000, 100):
        rows = [
            {"type": "tu"[at % 2], "ts": at, "s": f"key {at // 2}", "v": 5, "n": at} for at in range(start, start + 100)
        ]
        simulation.run([pa.RecordBatch.from_pylist(rows, SCHEMA)], end_of_time=False)
    assert max(simulation.sizes[20:]) < 1.5 * max(simulation.sizes[:20])


def test_a_query_that_explodes_is_stopped_and_the_others_go_on() -> None:
    explosive = "PATTERN SEQ(t a, t+ b[]) WHERE skip_till_any_match(a, b[]) { a.v > 1 } WITHIN 99"
    texts = {"explosive": explosive, "pair": "EVENT SEQ(t a, u b) WHERE [k] WITHIN 9"}
    source = StreamSource(RowReader(SCHEMA, Columns()), {kind: {f.name: f.type for f in SCHEMA} for kind in "tu"})
    options = StreamOptions(0, RunOptions(options={"max_matches": "100"}), ("n",), 2)
    queries = {name: Written(name, text) for name, text in texts.items()}
    plan, _ = plan_queries(queries, source, options, is_several=True)
    rows = [{"type": "tttu"[n % 4], "ts": n, "k": 1, "v": 2, "n": n} for n in range(40)]
    simulation = Simulation(plan)
    found: Counter[str] = Counter()
    for at in range(0, 40, 8):
        out = simulation.run([pa.RecordBatch.from_pylist(rows[at : at + 8], SCHEMA)], end_of_time=at == 32)
        assert bool(out.dropped) == any("stopped" in text for text in out.dropped)
        found.update({"stopped": len(out.dropped)})
        found.update({name: sum(map(len, parts)) for name, parts in out.matches.items()})
    assert found["stopped"] == 1
    assert found["pair"] == sum(expected(texts["pair"], rows).values()) > 20


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_derived_event_is_the_same_json_as_in_batch(tmp_path: Path, ending: str) -> None:
    """It shows its own attributes, and no column of the files."""
    texts = {
        "pair": "EVENT SEQ(A a, B b) WHERE [k] WITHIN 10 RETURN a.k AS k, b.v AS v",
        "user": "EVENT SEQ(pair p, C c) WHERE p.k = c.k WITHIN 20",
        "closure": "PATTERN SEQ(pair+ p[], C c) WHERE skip_till_next_match(p[], c) { p[i].v >= 0 } WITHIN 9",
        "whole": "EVENT SEQ(C c, pair p) WHERE p.k = c.k WITHIN 9 RETURN p, c.v AS v",
    }
    rows = [{"type": "ABC"[n % 3], "ts": n, "k": n % 4 // 2, "v": n, "w": n / 2} for n in range(60)]
    (tmp_path / "in").mkdir()
    file, rules = tmp_path / "in" / f"events.{ending}", tmp_path / "rules"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    rules.mkdir()
    for name, text in texts.items():
        (rules / f"{name}.txt").write_text(text)
    done = CliRunner().invoke(
        app, ["deploy", str(rules), "--input", str(file), "--output", str(tmp_path / "out.jsonl")]
    )
    assert done.exit_code == 0, done.output
    queries = [parse(text) for text in texts.values()]
    files = StreamFiles.first(str(tmp_path / "in"), Columns(), None, EMPTY_SCHEMA, False, queries=queries)
    assert files is not None
    planner = Planner(StreamSource.of_files(files, queries), StreamOptions(0, order=tuple(files.order), buckets=2))
    plan, refused = planner.plan({name: Written(name, text) for name, text in texts.items()})
    assert not refused
    slip = pa.RecordBatch.from_pylist([{"value": json.dumps(str(file))}])
    found = Simulation(plan).run([slip]).matches
    for name in texts:
        streamed = b"".join(as_json_lines(pa.Table.from_batches([part])) for part in found[name]).decode().splitlines()
        lines = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
        wanted = [
            json.dumps({n: v for n, v in line.items() if n != "query"}) for line in lines if line["query"] == name
        ]
        assert wanted
        assert Counter(map(json.dumps, map(json.loads, streamed))) == Counter(wanted)
