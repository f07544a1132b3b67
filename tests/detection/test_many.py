"""Several queries are detected together: each finds what it finds alone, and an event is fetched once for all."""

import json
import random
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from detection.running import COUNTING, KEYED, NAMED, World, drawn_query, drawn_table, rows
from detection.test_flight import TABLES, listed, log_of, served
from typer.testing import CliRunner

import cepheid
from cepheid.acquire.plans import all_plans, plan_text
from cepheid.app.cli import app
from cepheid.detection.acquisition import Acquisition
from cepheid.detection.api import detection
from cepheid.detection.replay import replay
from cepheid.detection.run import Running
from cepheid.detection.simulation import Network, Simulation
from cepheid.errors import InputProblem, NameProblem, PatternProblem
from cepheid.io.inputs import DEFAULT_COLUMNS

AT_RANDOM = (*NAMED, *COUNTING, *KEYED)


def drawn_worlds(seed: int, count: int) -> tuple[random.Random, list[World]]:
    """Some random queries over the same events."""
    rng = random.Random(seed)
    table = drawn_table(rng, 40, 100)
    worlds: list[World] = []
    while len(worlds) < count:
        text = rng.choice(AT_RANDOM) if rng.random() < 0.4 else drawn_query(rng)
        with suppress(PatternProblem):  # two negated variables in one predicate
            worlds.append(World.of(text, table))
    return rng, [replace(world, asked=worlds[0].asked) for world in worlds]


@pytest.mark.parametrize("seed", range(16))
def test_queries_together_find_what_the_oracle_finds(seed: int) -> None:
    rng, worlds = drawn_worlds(seed, rng_count(seed))
    plans = [rng.choice(list(all_plans(world.tree.root))) for world in worlds]
    logs = worlds[0].logs()
    together = Acquisition([world.program(plan, logs) for world, plan in zip(worlds, plans, strict=True)])
    apart = 0
    for world, plan, found in zip(worlds, plans, replay(together, logs), strict=True):
        assert rows(found) == world.expected(), (world.text, plan_text(world.tree.root, plan))
        alone = Acquisition([world.program(plan, logs)])
        replay(alone, logs)
        apart += alone.counts.events
    assert together.counts.events - together.counts.repeated <= min(apart, worlds[0].table.num_rows)
    attributes = defaultdict(set)
    for detector in together.detectors:
        for stream in detector.program.streams:
            attributes[stream].add(detector.program.keys.get(stream))
    if all(len(of) == 1 for of in attributes.values()):  # no query asks for keys of what another asks for as a whole
        assert together.counts.repeated == 0


def rng_count(seed: int) -> int:
    return 2 + seed % 3


@pytest.mark.parametrize("seed", range(12))
def test_delays_losses_restarts_and_other_plans_change_no_match(seed: int) -> None:
    rng, worlds = drawn_worlds(100 + seed, 2)
    logs = worlds[0].logs()
    network = Network(0, rng.choice((0, 3, 15)), rng.choice((0.0, 0.2)), rng.choice((0.0, 0.2)))
    restarts = tuple(rng.randint(0, 130) for _ in range(rng.choice((0, 2))))

    def programs() -> list[Any]:
        return [world.program(rng.choice(list(all_plans(world.tree.root))), logs) for world in worlds]

    switches = tuple((rng.randint(0, 130), programs()) for _ in range(rng.choice((0, 0, 1))))
    passes = rng.random() < 0.3
    simulation = Simulation(programs(), logs, network, seed, 9, restarts, switches, passes=passes)
    found = simulation.run()
    assert simulation.gaps == []
    if passes:
        assert simulation.acquisition.passing is not None
        events = [worlds[0].table.schema.empty_table(), *simulation.acquisition.passing.events]
        passed = pa.concat_tables([part.sort_by("ts") for part in events])
        assert passed["ts"].to_pylist() == sorted(passed["ts"].to_pylist())
        found = [cepheid.match(world.text, passed, evaluator="reference") for world in worlds]
    for world, own in zip(worlds, found, strict=True):
        assert rows(own) == world.expected(), (world.text, seed)


@pytest.mark.parametrize("seed", range(6))
def test_keys_of_one_query_are_not_those_of_another(seed: int) -> None:
    """Both ask for B by the values of an attribute, each by another one."""
    rng = random.Random(seed)
    table = drawn_table(rng, 60, 150)
    table = table.append_column("no", pa.array([rng.randint(1, 3) for _ in range(table.num_rows)]))
    texts = [f"complex Q on A as a, B as b, C as c event seq(a, !b, c; 20) where a.{n} = b.{n}" for n in ("id", "no")]
    worlds = [World.of(text, table) for text in texts]
    logs = worlds[0].logs()
    programs = []
    for world in worlds:
        (plan,) = [p for p in all_plans(world.tree.root) if plan_text(world.tree.root, p) == "a → c → !b"]
        programs.append(world.program(plan, logs))
    assert [program.keys for program in programs] == [{"B": "id"}, {"B": "no"}]
    simulation = Simulation(programs, logs, Network(0, 15, 0.1, 0.1), seed, 9, (rng.randint(5, 150),))
    for world, found in zip(worlds, simulation.run(), strict=True):
        assert rows(found) == world.expected(), (world.text, seed)


COMMON = "complex P on A as a, B as b event and(a, b; 50)\n"
PAIR = {
    "one": COMMON + "complex one on P as p, C as c event and(p, c; 50)",
    "two": COMMON + "complex two on P as p, D as d event and(p, d; 50)",
}


def pair_table(rates: dict[str, float], length: int = 40_000) -> pa.Table:
    rng = random.Random(7)
    drawn = sorted((time, kind) for kind, rate in rates.items() for time in range(length) if rng.random() < rate)
    return pa.table({"type": [kind for _, kind in drawn], "ts": [time for time, _ in drawn]})


def test_a_common_subevent_is_fetched_once_and_first_where_that_costs_less() -> None:
    """The common events are as frequent as the others: alone, each query begins with its own."""
    table = pair_table({"A": 0.0044, "B": 0.0044, "C": 0.0035, "D": 0.0035})
    alone = {}
    for name, query in PAIR.items():
        running = Running(detection(query, {"all": table}, DEFAULT_COLUMNS))
        alone[name] = rows(pa.concat_tables([running.schema.empty_table(), *running.matches()])), running.counts.events
    chosen = detection(PAIR, {"all": table}, DEFAULT_COLUMNS)
    running = Running(chosen)
    found: dict[str, list[pa.Table]] = {name: [schema.empty_table()] for name, schema in running.schemas.items()}
    for tables in running.named_matches():
        for name, own in tables.items():
            found[name].append(own)
    assert {name: rows(pa.concat_tables(own)) for name, own in found.items()} == {n: r for n, (r, _) in alone.items()}
    assert min(len(r) for r, _ in alone.values()) > 10
    assert running.counts.repeated == 0
    assert running.counts.events < 0.8 * sum(events for _, events in alone.values())
    text = chosen.explain()
    assert text.startswith("acquisition of 2 plans\n├─ expected: ")
    assert "each fetched once" in text and "if each plan fetched its own" in text
    assert "├─ shared streams\n│  ├─ A of all: one " in text
    assert "├─ one\n│  ├─ plan: " in text and "├─ two\n│  ├─ plan: " in text
    assert chosen.explain("svg").startswith("<svg")


def test_batches_have_the_name_of_their_query() -> None:
    table = drawn_table(random.Random(1), 60, 200)
    queries = {"few": KEYED[0], "many": "complex M on A as a event a"}
    found: dict[str, int] = defaultdict(int)
    for batch in cepheid.detect(queries, {"all": table}):
        assert batch.schema.names[0] == "query" and batch.schema.names[-1] == "uncertain"
        found[batch["query"][0].as_py()] += batch.num_rows
    assert found == {name: cepheid.match(query, table).num_rows for name, query in queries.items()}
    with pytest.raises(NameProblem, match="at many, line 1"):
        cepheid.detect({**queries, "many": "complex M on A as a event a where a.no = 1"}, {"all": table})
    with pytest.raises(InputProblem, match="the plan `a -> b` is for one of several queries"):
        cepheid.detect(queries, {"all": table}, plan="a -> b")
    with pytest.raises(InputProblem, match="there is no query `other` to plan"):
        cepheid.detect(queries, {"all": table}, plan={"other": "a -> b"})
    forced = detection(queries, {"all": table}, DEFAULT_COLUMNS, plan={"few": "b -> a"})
    assert plan_text(forced.parts[0].program.tree.root, forced.parts[0].program.plan) == "b → a"


def test_the_command_takes_several_files(tmp_path: Path) -> None:
    queries = {
        "one": "complex Q on A as a, B as b event and(a, b; 30)",
        "two": "complex R on B as b, C as c event and(b, c; 30)",
    }
    paths = []
    for name, query in queries.items():
        (tmp_path / f"{name}.ced").write_text(query)
        paths += ["--query-file", str(tmp_path / f"{name}.ced")]
    with served(*(log_of(name, table) for name, table in TABLES.items())) as servers:
        path = listed(tmp_path, servers)
        shown = CliRunner().invoke(app, ["detect", *paths, "--sources", path, "--explain"])
        assert shown.stdout.startswith("acquisition of 2 plans")
        arguments = [*paths, "--sources", path, "--state", str(tmp_path / "state"), "-o", str(tmp_path / "out.jsonl")]
        done = CliRunner().invoke(app, ["detect", *arguments])
        assert done.exit_code == 0, done.stderr
        assert "one: A: " in done.stderr and "two: latency bound: " in done.stderr
        again = CliRunner().invoke(app, ["detect", *arguments])  # goes on from the end
        assert again.exit_code == 0, again.stderr
    found = defaultdict(list)
    for line in (tmp_path / "out.jsonl").read_text().splitlines():
        row = json.loads(line)
        found[row.pop("query")].append(row)
    whole = pa.concat_tables(TABLES.values())
    assert {name: len(own) for name, own in found.items()} == {
        name: cepheid.match(query, whole).num_rows for name, query in queries.items()
    }
