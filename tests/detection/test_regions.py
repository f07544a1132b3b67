"""Queries whose events share a region have a plan for each: each region begins with what is rare there."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from detection.running import rows

import cepheid
from cepheid.acquire.plans import plan_text
from cepheid.detection.api import detection
from cepheid.detection.run import Running
from cepheid.errors import InputProblem
from cepheid.io.inputs import DEFAULT_COLUMNS
from cepheid.io.source_list import source_list

RATES = {"eu": {"A": 0.002, "B": 0.05}, "us": {"A": 0.05, "B": 0.002}}
REGIONS = {"eu1": "eu", "eu2": "eu", "us1": "us"}
QUERY = "complex Q on A as a, B as b event and(a, b; 30) where a.region = b.region"


def drawn(has_region: bool = False, length: int = 6_000) -> dict[str, pa.Table]:
    """The events of each source. Those of one region are rare where those of the other are frequent."""
    found = {}
    for source, region in REGIONS.items():
        rng = random.Random(source)
        rates = RATES[region].items()
        events = sorted((t, kind) for kind, rate in rates for t in range(length) if rng.random() < rate)
        columns: dict[str, Any] = {"type": [kind for _, kind in events], "ts": [time for time, _ in events]}
        columns["id"] = [rng.randint(1, 2) for _ in events]
        if has_region:
            columns["region"] = [region] * len(events)
        found[source] = pa.table(columns)
    return found


WHOLE = pa.concat_tables(drawn(has_region=True).values())


def ran(query: str, tables: dict[str, pa.Table], **options: Any) -> tuple[Running, pa.Table]:
    running = Running(detection(query, tables, DEFAULT_COLUMNS, **options))
    return running, pa.concat_tables([running.schema.empty_table(), *running.matches()])


@pytest.mark.parametrize("has_region", [False, True])
def test_each_region_has_its_plan_and_moves_fewer_events(has_region: bool) -> None:
    tables = drawn(has_region)
    running, found = ran(QUERY, tables, regions=REGIONS)
    assert rows(found) == rows(cepheid.match(QUERY, WHOLE))
    parts = {part.label: plan_text(part.program.tree.root, part.program.plan) for part in running.detection.parts}
    assert parts == {"Q in eu": "a → b", "Q in us": "b → a"}
    text = running.detection.explain()
    assert "├─ Q in eu\n│  ├─ plan: a → b" in text and "├─ Q in us\n│  ├─ plan: b → a" in text
    counts = []
    for plan in ("a -> b", "b -> a", "push"):
        whole = drawn(has_region=True)
        other, same = ran(QUERY, whole, plan=plan)  # one plan over all sources
        assert rows(same) == rows(found)
        counts.append(other.counts.events)
    assert running.counts.events < 0.7 * min(counts)
    received = running.counts.by_channel
    assert received["us1", "A"] < 0.3 * RATES["us"]["A"] * 6_000


QUERIES = (
    "complex Q on A as a, B as b, B as c event seq(a, !b, c; 20) where a.region = c.region and a.region = b.region",
    "complex P on A as a, B as b schema region as a.region event seq(a, b; 20) where a.region = b.region\n"
    "complex Q on P as p, A as c event and(p, c; 9) where p.region = c.region",
    "complex Q on A as a, B as b event and(a, b; 30) where a.region = b.region and a.id = b.id",
    "complex Q on A as a, B as b event and(a, b; 30) where a.region = 'us' and b.region = 'eu' and b.id = 1",
    "complex Q on A as a, B as b event and(a, b; 5) where a.region != b.region",
    "complex Q on A as a event a where a.region = 'us'",
)


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_matches_are_those_of_all_events(number: int) -> None:
    """With a negation, over a derived event, with a key, and where the region is a constant or no key at all."""
    tables = drawn(length=1_500)
    whole = pa.concat_tables(drawn(has_region=True, length=1_500).values())
    expected = rows(cepheid.match(QUERIES[number], whole))
    for plan in (None, "push"):
        running, found = ran(QUERIES[number], tables, regions=REGIONS, plan=plan)
        assert rows(found.select([c for c in found.column_names if c != "uncertain"])) == expected
        assert len(expected) > 3
    is_by_region = number in (0, 1, 2)
    assert len(running.detection.parts) == (2 if is_by_region else 1)
    if number == 3:  # sources of a region that a condition excludes are not asked
        assert running.detection.only.program.sources == {"A": ("us1",), "B": ("eu1", "eu2")}


def test_several_queries_share_the_events_of_a_region() -> None:
    tables = drawn(length=1_500)
    whole = pa.concat_tables(drawn(has_region=True, length=1_500).values())
    queries = {"one": QUERY, "two": QUERIES[4], "three": QUERIES[2]}
    chosen = detection(queries, tables, DEFAULT_COLUMNS, regions=REGIONS)
    assert [part.label for part in chosen.parts] == ["one in eu", "one in us", "two", "three in eu", "three in us"]
    running = Running(chosen)
    found: dict[str, list[pa.Table]] = {name: [schema.empty_table()] for name, schema in running.schemas.items()}
    for part in running.named_matches():
        for name, own in part.items():
            found[name].append(own)
    for name, query in queries.items():
        assert rows(pa.concat_tables(found[name])) == rows(cepheid.match(query, whole)), name
    assert running.counts.events - running.counts.repeated <= whole.num_rows


def test_an_event_of_another_region_is_a_gap() -> None:
    """Its matches would be missed: they are in no region."""
    tables = drawn(has_region=True, length=300)
    wrong = {**REGIONS, "us1": "asia"}
    running, _ = ran(QUERY, tables, regions=wrong, attempts=2, timeout=0.05)
    (reason,) = {gap.reason for gap in running.gaps}
    assert reason.startswith("error: `us1` of the region `asia` sends an event of `")
    assert reason.endswith("whose `region` is `us`")
    with pytest.raises(InputProblem, match="there is no source `other` in a region"):
        ran(QUERY, tables, regions={"other": "eu"})


def test_a_list_of_sources_names_the_column(tmp_path: Path) -> None:
    entries = []
    for name, table in drawn(length=300).items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        entries.append({"name": name, "file": f"{name}.jsonl", "region": REGIONS[name]})
    data = {"sources": entries, "columns": {"region": "site"}}
    assert source_list(data, "here", tmp_path).region == "site"
    (tmp_path / "sources.json").write_text(json.dumps(data))
    query = QUERY.replace("region", "site")
    found = detection(query, str(tmp_path / "sources.json"), DEFAULT_COLUMNS)
    assert [part.region for part in found.parts] == ["eu", "us"]
