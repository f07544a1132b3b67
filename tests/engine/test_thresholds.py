"""Counts and sums over the last while (CED §6.5): every backend finds what the oracle finds."""

import random

import numpy as np
import pyarrow as pa
import pytest
from random_counts import random_counting_query, random_events
from simulation_harness import SCHEMA, TYPES, cut, multiset, random_rows

import cepheid
from cepheid.engine.prepare import RunOptions, prepare
from cepheid.engine.spread import spread
from cepheid.engine.thresholds import distinct_in_windows
from cepheid.errors import CepheidError, NotAvailable
from cepheid.io.inputs import DEFAULT_COLUMNS, Columns
from cepheid.io.source import TableSource
from cepheid.lang import parse, to_text
from cepheid.optimize.distribution import Keyed, Sliced
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulation


@pytest.mark.parametrize("seed", range(60))
def test_random_counts_find_what_the_oracle_finds(seed: int) -> None:
    rng = random.Random(seed)
    events, text = random_events(rng), random_counting_query(rng)
    expected = multiset(cepheid.match(text, events, evaluator="reference"))
    assert multiset(cepheid.match(text, events)) == expected, text
    assert parse(to_text(parse(text))) == parse(text)


def test_the_random_counts_have_matches() -> None:
    found = 0
    for seed in range(20):
        rng = random.Random(seed)
        events, text = random_events(rng), random_counting_query(rng)
        found += bool(cepheid.match(text, events).num_rows)
    assert found >= 8


STREAMS = (
    "complex Q on A as a, B as b event seq(count(a; 6) > 1 group by a.id as m, b; 5) where m.id = b.id",
    "complex Q on A as a, B as b event and(count(distinct a.id; 4) >= 2, sum(b.n; 6) < 4 group by b.name; 3)",
    "complex Q on A as a, B as b, C as c event seq(b, !sum(a.v; 5) > 2 group by a.id as m, c; 8) where b.id = m.id",
)


@pytest.mark.parametrize("text", STREAMS)
def test_streams_that_are_cut_and_restarted_anywhere_find_the_same(text: str) -> None:
    rng = random.Random(text)
    attributes = {field.name: field.type for field in SCHEMA}
    found = 0
    for _ in range(8):
        rows, delay = random_rows(rng), rng.choice((0, 3, 7))
        expected = multiset(cepheid.match(text, pa.Table.from_pylist(rows, SCHEMA), time_unit="ms"))
        source = StreamSource(RowReader(SCHEMA, Columns()), dict.fromkeys(TYPES, attributes))
        plan = plan_stream({"q": parse(text)}, source, delay, RunOptions(time_unit="ms"), order=("n",), buckets=4)
        simulated = Simulation(plan).run(cut(rng, rows, delay))
        assert multiset(simulated.matches["q"]) == expected
        found += sum(expected.values())
    assert found > 0


def test_the_work_is_divided_by_the_attributes_of_all_groups_or_by_time() -> None:
    """An event about many begins with the first of them, so slices overlap by its window too."""
    source = TableSource.of(random_events(random.Random(1)), DEFAULT_COLUMNS)
    keyed = "complex Q on A as a, B as b event seq(count(a; 6) > 1 group by a.k as m, b; 5) where m.k = b.k"
    assert spread(prepare(parse(keyed), source)) == Keyed(("k",), False)
    sliced = keyed.replace("group by a.k as m", "group by a.v as m").replace("m.k = b.k", "m.v = b.v")
    assert spread(prepare(parse(sliced.replace("m.v = b.v", "b.v > 1")), source)) == Sliced(6, 11)


def test_integers_are_summed_exactly_and_beyond_64_bits_not_at_all() -> None:
    large = 2**62
    table = pa.table({"type": ["A"] * 4, "ts": [1, 2, 3, 20], "v": [large, large, -large, large + 1]})
    text = f"complex S on A as a event sum(a.v; 5) >= {large}\ncomplex Q on S as s schema v as s.value event s"
    for evaluator in (None, "reference"):
        rows = cepheid.match(text, table, evaluator=evaluator).to_pylist()
        assert [row["v"] for row in rows] == [large, large, large + 1]


def test_floats_are_summed_in_any_order() -> None:
    table = pa.table({"type": ["A"] * 4, "ts": [1, 2, 3, 4], "f": [1e16, 1.0, -1e16, 1.0]})
    text = "complex S on A as a event sum(a.f; 5) = 2\ncomplex Q on S as s schema v as s.value, t as s.end_time event s"
    assert cepheid.match(text, table).to_pylist()[0]["t"] == 4


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("count(a; 5 events) > 1", "a count over the last events"),
        ("sum(a; 5) > 1", "sums events"),
        ("sum(a.k; 5) > 1", "which a sum over the last while does not take"),
        ("sum(a.v; 5) > 50% of 3 nodes", "is a count of nodes"),
        ("count(a; 5) > 1 group by b.k", "`b` is not what is counted"),
        ("and(a, count(a; 5) > 1; 3)", "is an event of the pattern as well"),
        ("count(a; 5) > limit", "the threshold `limit` has no value"),
        ("count(a.nothing; 5) > 1", "unknown attribute `nothing`"),
        ("count(c; 5) > 1", "not among the subevents"),
        ("count(a; 5) > 0% of 0 nodes", "whole number of nodes"),
        ("and(count(a; 5) > 1 as x, count(a; 5) > 2 as x; 3)", "`x` is declared twice"),
        ("count(a; 5) > 1 group by a.event_id", "attributes `value` and `event_id` of their own"),
    ],
)
def test_messages(event: str, message: str) -> None:
    with pytest.raises(CepheidError, match=message):
        cepheid.match(f"complex Q on A as a, B as b event {event}", random_events(random.Random(1)))


def test_a_threshold_may_be_a_parameter() -> None:
    events = random_events(random.Random(1))
    text = "complex Q on A as a event count(a; length) > least"
    expected = cepheid.match("complex Q on A as a event count(a; 8) > 3", events)
    assert cepheid.match(text, events, params={"least": 3, "length": 8}) == expected


def test_matches_with_counts_have_no_identifier() -> None:
    with pytest.raises(NotAvailable, match="about many events"):
        cepheid.match("complex Q on A as a event count(a; 5) > 1", random_events(random.Random(1)), match_id=True)


def test_distinct_values_are_counted_in_windows() -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(-1, 5, 200)
    last = np.sort(rng.choice(200, 60, replace=False))
    first = np.maximum.accumulate(np.maximum(last - rng.integers(0, 30, 60), 0))
    found = distinct_in_windows(codes, first, last, np.zeros(5, np.int64))
    expected = [len(set(codes[low : high + 1].tolist()) - {-1}) for low, high in zip(first, last, strict=True)]
    assert found.tolist() == expected


def test_explain_says_what_is_counted() -> None:
    text = "complex spike on Idle as i event count(i; 1 min) > 50% of 49 nodes group by i.site"
    shown = str(cepheid.explain(text))
    assert "count of distinct i.node_id over the last 1 min > 24.5, for each site" in shown
