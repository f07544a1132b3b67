"""Random deployments in simulated streams: queries of all languages are added, removed and replaced at every batch.

A query that runs to the end finds what the oracle finds in the events since it was added. One that was removed found
what it finds in a stream of its own, which ends there.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from differential import different_rows, rows_of
from random_cases import LANGUAGES, Expressions
from random_compositions import query_over, random_events, random_script
from random_values import PROFILES, TYPES, table, world

import cepheid
from cepheid.deploy.changes import Change, changed
from cepheid.deploy.deployment import Written
from cepheid.engine.prepare import RunOptions
from cepheid.errors import CepheidError
from cepheid.io.inputs import Columns
from cepheid.runtime.kernel import Positions
from cepheid.streaming.graphs import FedQueries
from cepheid.streaming.plan import FIRST, Lineage, StreamPlan
from cepheid.streaming.planning import StreamOptions, StreamSource, plan_queries
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulation

Rows = list[dict[str, Any]]
SHARES = ("sase", "sase", "sase+", "zstream", "eql", "eql", "ced")


def planned(
    queries: dict[str, Written],
    schema: pa.Schema,
    delay: int,
    before: StreamPlan | None = None,
    lineage: Lineage = FIRST,
) -> StreamPlan:
    attributes = {kind: {field.name: field.type for field in schema} for kind in TYPES}
    source = StreamSource(RowReader(schema, Columns()), attributes)
    options = StreamOptions(delay, RunOptions(), ("n",), 3)
    lineage = lineage if before is None else before.next_lineage
    plan, refused = plan_queries(queries, source, options, is_several=True, lineage=lineage)
    for error in refused.values():
        raise error
    return plan


def drawn(rng: random.Random) -> tuple[pa.Table, Callable[[], str]]:
    """Events, and a function that draws queries over them."""
    if rng.randrange(4) == 0:
        events = random_events(rng, rng.randint(8, 40))
        if "n" not in events.column_names:
            events = events.append_column("n", pa.array(range(len(events))))
        return events, lambda: random_script(rng)
    of = world(rng, PROFILES["plain"])
    while not pa.types.is_integer(of.time):
        of = world(rng, PROFILES["plain"])
    while len(events := table(rng, of)) <= 3:
        """Too few events to cut."""
    return events, lambda: LANGUAGES[rng.choice(SHARES)](rng, Expressions(rng, of)).text


def drawn_over_equal_ones(rng: random.Random) -> tuple[pa.Table, Callable[[], str]]:
    """Events, and a function that draws queries over the same few inner ones."""
    events = random_events(rng, rng.randint(8, 40))
    *inner, out = random_script(rng).split("\n")
    labels = [line.split(":")[0] for line in inner]

    def draw() -> str:
        ends = [out, f"Out: {query_over(rng, labels, rng.random() < 0.7)}"]
        return "\n".join([*inner, rng.choice(ends) + rng.choice(["", "", " LIMIT 3"])])

    return events.append_column("n", pa.array(range(len(events)))), draw


class Trial:
    """One stream and what happens to its queries."""

    moved = 0
    """The buckets that states were moved to, in all trials."""

    def __init__(self, seed: int, drawn: Callable[[random.Random], tuple[pa.Table, Callable[[], str]]] = drawn) -> None:
        self.rng = rng = random.Random(seed)
        events, self.draw = drawn(rng)
        self.schema, self.delay = events.schema, rng.choice([0, 0, 3])
        rows = sorted(events.to_pylist(), key=lambda row: row["ts"] + rng.randint(0, self.delay))
        edges = sorted({0, len(rows), *(rng.randint(0, len(rows)) for _ in range(rng.randint(1, 5)))})
        self.batches = [rows[a:b] for a, b in itertools.pairwise(edges)]
        self.texts: list[str] = []
        self.names = (f"q{number}" for number in itertools.count())
        self.alive: dict[str, tuple[str, int]] = {}
        self.ended: list[tuple[str, str, int, int]] = []
        self.found: dict[tuple[str, int], Rows] = {}

    def text(self, later: bool) -> str | None:
        """A query that a stream runs; sometimes one that runs already."""
        for _ in range(20):
            again = self.texts and self.rng.randrange(4) == 0
            text = self.rng.choice(self.texts) if again else self.draw()
            try:
                planned({"q": Written("q", text, since=int(later))}, self.schema, 0)
            except CepheidError:
                continue
            self.texts.append(text)
            return text
        return None

    def change(self, number: int) -> Change:
        """The queries that come, go and are replaced before a batch."""
        rng, later = self.rng, number > 0
        count = rng.randint(0, 2) if later else rng.randint(1, 4)
        new = {next(self.names): text for text in (self.text(later) for _ in range(count)) if text}
        gone: list[str] = []
        instead: dict[str, str] = {}
        for name in self.alive:
            match rng.randrange(6):
                case 0 if len(gone) + 1 < len(self.alive):
                    gone.append(name)
                case 1 if text := self.text(True):
                    instead[name] = text
        for name in (*gone, *instead):
            self.ended.append((name, *self.alive.pop(name), number))
        for name, text in {**new, **instead}.items():
            self.alive[name], self.found[name, number] = (text, number), []
        return Change(_written(new), tuple(gone), _written(instead))

    def run(self) -> int:
        """Returns the number of matches."""
        change = self.change(0)
        if not change.add:
            return 0
        queries: dict[str, Written] = dict(change.add)
        simulation = Simulation(planned(queries, self.schema, self.delay))
        for number, rows in enumerate(self.batches):
            change = self.change(number) if number else Change()
            if change:
                plan = simulation.plan
                queries = changed(queries, change, plan.version + 1, None)
                simulation.plan = planned(queries, self.schema, self.delay, plan)
            if number and self.rng.randrange(2):
                self._move(simulation, queries)
            self._take(simulation, rows, is_last=number == len(self.batches) - 1)
        self.ended += [(name, *of, len(self.batches)) for name, of in self.alive.items()]
        return sum(self._check(*one) for one in self.ended)

    def _move(self, simulation: Simulation, queries: dict[str, Written]) -> None:
        """Some queries without a key go to other slots, with their state."""
        before = simulation.plan
        for query in before.queries:
            if not query.key and self.rng.randrange(2):
                slot = self.rng.randrange(before.buckets)
                for name in query.all_names:
                    queries[name] = replace(queries[name], slot=slot)
        lineage = replace(before.next_lineage, moved=before.version + 1)
        simulation.move(planned(queries, self.schema, self.delay, lineage=lineage))
        Trial.moved += len({*simulation.moved})

    def _take(self, simulation: Simulation, rows: Rows, *, is_last: bool) -> None:
        out = simulation.run([pa.RecordBatch.from_pylist(rows, self.schema)], end_of_time=is_last)
        assert not out.late and not out.dropped
        for name, parts in out.matches.items():
            for part in parts:
                self.found[name, self.alive[name][1]] += rows_of(pa.Table.from_batches([part]))

    def _check(self, name: str, text: str, since: int, until: int) -> int:
        found, parts = self.found[name, since], self.batches[since:until]
        if until < len(self.batches):
            alone = Simulation(planned({name: Written(name, text)}, self.schema, self.delay))
            batches = [pa.RecordBatch.from_pylist(rows, self.schema) for rows in parts]
            made = alone.run(batches, end_of_time=False).matches[name]
            expected = [row for part in made for row in rows_of(pa.Table.from_batches([part]))]
        else:
            seen = sorted(itertools.chain(*parts), key=lambda row: (row["ts"], row["n"]))
            try:
                expected = rows_of(cepheid.match(text, pa.Table.from_pylist(seen, self.schema), evaluator="reference"))
            except CepheidError as error:
                assert "no event has a type of the query" in error.what
                expected = found if "count(*)" in text else []  # a summary of no match is a row
        differs = different_rows(expected, found)
        assert differs is None, f"{name} in batches {since} to {until}: {differs}\n{text}"
        return len(found)


def _written(texts: dict[str, str]) -> dict[str, Written]:
    return {name: Written(name, text) for name, text in texts.items()}


@pytest.mark.filterwarnings("ignore::cepheid.CepheidWarning")
@pytest.mark.parametrize("first", [7000, pytest.param(9000, marks=pytest.mark.slow)])
def test_queries_of_all_languages_come_and_go(first: int) -> None:
    count = 16 if first == 7000 else 400
    Trial.moved = 0
    assert sum(Trial(seed).run() for seed in range(first, first + count)) > count
    assert Trial.moved > count // 4


@pytest.mark.filterwarnings("ignore::cepheid.CepheidWarning")
@pytest.mark.parametrize("first", [100, pytest.param(20_000, marks=pytest.mark.slow)])
def test_queries_over_equal_ones_come_and_go(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal inner queries are evaluated once in a bucket, whatever happens to the queries that use them."""
    count, together = 10 if first == 100 else 400, list[int]()
    step = FedQueries.step

    def counted(fed: FedQueries, released: pa.RecordBatch, watermark: int) -> dict[int, list[Positions]]:
        together.append(len(fed.queries))
        return step(fed, released, watermark)

    monkeypatch.setattr(FedQueries, "step", counted)
    assert sum(Trial(seed, drawn_over_equal_ones).run() for seed in range(first, first + count)) > count
    assert sum(number > 1 for number in together) > count
    assert max(together) > 2
