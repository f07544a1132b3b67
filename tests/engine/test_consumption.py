"""Each event in at most one match (CED §3.3)."""

import random

import pyarrow as pa
import pytest
from detection.running import drawn_query, drawn_table
from simulation_harness import SCHEMA, TYPES, cut, multiset, random_rows

import cepheid
from cepheid.engine.prepare import RunOptions
from cepheid.errors import CepheidError, NotAvailable
from cepheid.io.inputs import Columns
from cepheid.lang import parse, to_text
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulation

PAIRS = "complex P on A as a, B as b event and(a, b; 6) where a.id = b.id consume once\n"


@pytest.mark.parametrize("seed", range(40))
def test_every_evaluator_consumes_what_the_oracle_consumes(seed: int) -> None:
    rng = random.Random(seed)
    text = f"{drawn_query(rng)}\nconsume once"
    if seed % 4 == 0 or seed == 2:  # the query drawn with 2 has only negated components
        text = f"{PAIRS}complex Q on P as p, C as c event seq(p, c; 8) consume {rng.choice(('once', 'freely'))}"
    events = drawn_table(rng, 40, 100)
    expected = multiset(cepheid.match(text, events, evaluator="reference"))
    assert multiset(cepheid.match(text, events)) == expected, text
    assert parse(to_text(parse(text))) == parse(text)
    batches = iter(events.to_batches(max_chunksize=rng.choice((1, 3, 7))))
    assert multiset(cepheid.match(text, pa.RecordBatchReader.from_batches(events.schema, batches))) == expected


@pytest.mark.parametrize("seed", range(10))
def test_streams_consume_for_the_queries_that_use_the_matches(seed: int) -> None:
    rng = random.Random(seed)
    text = f"{PAIRS}complex Q on P as p, C as c event seq(p, c; 8)"
    rows, delay = random_rows(rng), rng.choice((0, 3, 7))
    expected = multiset(cepheid.match(text, pa.Table.from_pylist(rows, SCHEMA), time_unit="ms"))
    attributes = {field.name: field.type for field in SCHEMA}
    source = StreamSource(RowReader(SCHEMA, Columns()), dict.fromkeys(TYPES, attributes))
    plan = plan_stream({"q": parse(text)}, source, delay, RunOptions(time_unit="ms"), order=("n",), buckets=4)
    assert multiset(Simulation(plan).run(cut(rng, rows, delay)).matches["q"]) == expected


def test_what_cannot_consume_says_so() -> None:
    events = drawn_table(random.Random(1), 40, 100)
    attributes = {field.name: field.type for field in SCHEMA}
    source = StreamSource(RowReader(SCHEMA, Columns()), dict.fromkeys(TYPES, attributes))
    with pytest.raises(NotAvailable, match="`consume once` in a stream"):
        plan_stream({"q": parse(PAIRS)}, source, 0, RunOptions(time_unit="ms"), order=("n",), buckets=4)
    with pytest.raises(NotAvailable, match="depend on all earlier ones"):
        cepheid.detect(PAIRS, {"all": events})
    with pytest.raises(NotAvailable, match="beside other queries"):
        cepheid.match({"one": PAIRS, "two": PAIRS.replace("6", "7")}, events)
    with pytest.raises(CepheidError, match="consumes no events"):
        parse("complex Q on A as a event count(a; 3) > 1 consume once")
