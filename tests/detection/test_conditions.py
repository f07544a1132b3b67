"""Conditions that sources apply themselves: fewer events are sent, and no match is missed."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from detection.running import NAMED, drawn_query, drawn_table, rows
from detection.test_flight import TABLES, listed, log_of, served
from detection.test_regions import REGIONS
from detection.test_regions import drawn as regional

import cepheid
from cepheid.detection.api import detection
from cepheid.detection.run import Running
from cepheid.io.inputs import DEFAULT_COLUMNS

P = "complex P on A as a schema id as a.id event a where a.id > 1\n"
ALONE = {
    "complex Q on A as a event a where a.id > 2": "((e.id > 2))",
    "complex Q on A as a event a where a.id > 1 and a.ts < 50": "((e.id > 1) and (e.ts < 50))",
    f"{P}complex Q on P as p event p where p.id < 3": "((e.id > 1))",
    f"{P}complex Q on P as p, B as b event seq(p, !b; 4)": "((e.id > 1))",
    f"{P}complex Q on P as p event count(p; 9) >= 2": "((e.id > 1))",
    "complex P on A as a event a where a.id > 2\ncomplex Q on P as p, A as x event and(p, x; 5) where x.id = 1": (
        "((e.id = 1)) or ((e.id > 2))"
    ),
    "complex P on A as a event a\ncomplex Q on P as p, A as x event and(p, x; 5) where x.id = 1": None,
    "source A schema int id\nprimitive X on A as s schema k as s.id\ncomplex Q on X as x event x where x.k > 2": None,
    "complex Q on A as a event a": None,
}
"""Queries in which an event of type A stands alone, and the condition on it."""


def ran(query: str, sources: dict[str, pa.Table], plan: str | None = None) -> tuple[Running, list[str]]:
    running = Running(detection(query, sources, DEFAULT_COLUMNS, plan=plan))
    return running, rows(pa.concat_tables([running.schema.empty_table(), *running.matches()]))


@pytest.mark.parametrize("query", ALONE)
def test_an_event_that_stands_alone_is_filtered_at_its_source(query: str) -> None:
    table = drawn_table(random.Random(1), 60, 100)
    expected = rows(cepheid.match(query, table, evaluator="reference"))
    assert expected
    for plan in (None, "push"):
        running, found = ran(query, {"one": table}, plan)
        assert found == expected
        assert running.detection.only.program.filters.get(("one", "A")) == ALONE[query]
    kinds = table["type"].to_pylist()
    whole = sum(kinds.count(kind) for kind in running.detection.only.program.streams)
    assert (running.counts.events < whole) == (ALONE[query] is not None)


@pytest.mark.parametrize("seed", range(12))
def test_conditions_at_sources_miss_no_match(seed: int) -> None:
    """Also where one type stands in several places, under several names."""
    rng = random.Random(seed)
    one = f"complex P on A as a schema id as a.id event a where a.id > {rng.randint(1, 2)}\n"
    two = f"complex R on P as p schema id as p.id event p where p.id {rng.choice('<>=')} 2\n"
    ends = (
        "complex Q on R as r, A as x event seq(r, x; 9) where x.id = 1",
        "complex Q on P as p, R as r, B as b event and(p, !r, b; 6)",
        "complex Q on P as p, A as x, B as b event and(p, or(x, b); 6) where x.id < 3",
    )
    texts = (one + two + ends[seed % 3], NAMED[seed % len(NAMED)], drawn_query(rng) + "\n")
    table = drawn_table(rng, 40, 100)
    half = pa.array([rng.random() < 0.5 for _ in range(table.num_rows)])
    for text in texts:
        _, found = ran(text, {"all": table})
        assert found == rows(cepheid.match(text, table, evaluator="reference")), text
        parts = {"left": table.filter(half), "right": table.filter(pa.compute.invert(half))}
        assert ran(text, parts)[1] == found, text


A = [{"type": "A", "ts": time, "v": 5, "w": 1} for time in (10, 40, 90)]
B = [{"type": "B", "ts": time} for time in (12, 35)]
BV = [{"type": "B", "ts": time, "v": v} for time, v in ((8, 5), (41, 2), (92, 5))]
NODES = ((A + B, A[:1]), (A, B), (A + BV, B), (A, B, BV))
"""The events of each source: no event of type B has `w`, and some sources have none with `v`."""
LACKING = (
    "event and(a, b; 10) where b.v > 3",
    "event and(a, b; 10) where a.v = b.v",
    "event and(a, !b; 10) where b.v > 3",
    "event and(a, b; 10) where b.v > 3 or b.w = 1",
    "event and(a, b; 10) where b.v < 3 and b.w = 2",
    "event seq(count(b; 10) > 0, a; 10) where b.v > 3",
)


@pytest.mark.filterwarnings("ignore::cepheid.CepheidWarning")
@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("event", LACKING)
def test_sources_do_not_apply_conditions_on_what_their_events_lack(
    event: str, nodes: Sequence[Sequence[dict[str, object]]], tmp_path: Path
) -> None:
    """A condition on an attribute that a type lacks does not apply (ruling 4). Where others of its type have it, it is
    null in the events of a source without it."""
    query = f"complex Q on A as a, B as b {event}"
    entries = []
    whole = [row for node in nodes for row in node]
    for number, own in enumerate((*nodes, whole)):
        lines = sorted(own, key=lambda row: row["ts"])  # type: ignore[arg-type, return-value]
        (tmp_path / f"{number}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in lines))
        entries.append({"name": f"n{number}", "file": f"{number}.jsonl"})
    (tmp_path / "sources.json").write_text(json.dumps({"sources": entries[:-1]}))
    expected = cepheid.match(query, str(tmp_path / entries[-1]["file"]), evaluator="reference")
    for plan in (None, "push"):
        running = Running(detection(query, str(tmp_path / "sources.json"), DEFAULT_COLUMNS, plan=plan))
        found = pa.concat_tables([running.schema.empty_table(), *running.matches()])
        assert not running.gaps
        assert spans(found) == spans(expected)


def spans(matches: pa.Table) -> list[tuple[int, int]]:
    return sorted((row["match_start"], row["match_end"]) for row in matches.to_pylist())


def test_a_server_sends_the_events_of_a_condition_only(tmp_path: Path) -> None:
    log = log_of("third", TABLES["third"])
    with served(log) as servers:
        found = cepheid.detect("complex Q on C as c event c where c.id = 2", listed(tmp_path, servers)).read_all()
    wanted = TABLES["third"]["id"].to_pylist().count(2)
    assert found.num_rows == wanted == log.sent.events


def test_a_region_that_an_event_alone_excludes_is_not_asked() -> None:
    running = Running(
        detection("complex Q on A as a event a where a.region = 'us'", regional(), DEFAULT_COLUMNS, regions=REGIONS)
    )
    matches = sum(table.num_rows for table in running.matches())
    assert running.detection.only.program.sources == {"A": ("us1",)}
    assert matches == running.counts.events == regional()["us1"]["type"].to_pylist().count("A")
