"""Queries over other queries in one deployment: an equal inner query is evaluated once, and each query finds what it
finds alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from differential import different_rows, rows_of
from random_compositions import SCHEMA, query_over, random_events, random_script

import cepheid
from cepheid import datasets
from cepheid.deploy.deployment import Deployment, Written
from cepheid.deploy.folder import linked, read_folder
from cepheid.deploy.run import run
from cepheid.deploy.unions import deploy_together
from cepheid.engine.derivation import Deriving
from cepheid.engine.prepare import DEFAULT_OPTIONS, RunOptions
from cepheid.errors import CepheidError, Explosion
from cepheid.io import frames
from cepheid.io.inputs import Columns
from cepheid.limits import Limits
from cepheid.streaming.plan import FIRST, StreamPlan
from cepheid.streaming.planning import StreamOptions, StreamSource, plan_queries
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulated, Simulation
from cepheid.streaming.slots import Cost, Loads, moves, placed

PAIR = "Pair: EVENT SEQ(A a, B b) WHERE [k] WITHIN 10 RETURN a.k AS k, b.v AS v"
ENDS = {
    "low": "Q: EVENT SEQ(Pair p, C c) WHERE [k] AND p.v < c.v WITHIN 20",
    "high": "Q: SELECT * FROM Pair p; C c WHERE FILTER(p.k = c.k), p.v >= c.v, (p, c) OCCURS WITHIN 30",
    "count": "Q: EVENT SEQ(Pair p, B c) WITHIN 20 RETURN count(*) AS n",
    "first": "Q: EVENT SEQ(Pair p, C c) WHERE [k] WITHIN 20 LIMIT 2",
}
TEXTS = {**{name: f"{PAIR}\n{end}" for name, end in ENDS.items()}, "pair": PAIR}
NONE = pa.Table.from_pylist([], SCHEMA)


def planned(texts: dict[str, str], events: pa.Table = NONE, options: RunOptions = DEFAULT_OPTIONS) -> Deployment:
    opened = frames.opened(events, Columns("type", "ts"))
    assert opened is not None
    return deploy_together({name: Written(name, text) for name, text in texts.items()}, opened.source, options)


def found_by(texts: dict[str, str], events: pa.Table) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {name: [] for name in texts}
    for table in cepheid.match(texts, events):
        for name, row in zip(table.column("query").to_pylist(), rows_of(table.drop_columns(["query"])), strict=True):
            found[name].append(row)
    return found


def test_an_equal_inner_query_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    events = random_events(random.Random(1), 60)
    (common,) = planned(TEXTS).common
    assert len(common.fed) == 4
    assert [operator.names for operator in common.shown.values()] == [("pair",)]
    steps = steps_of(monkeypatch)
    found = found_by(TEXTS, events)
    assert steps == ["Pair", "Pair"]  # the one batch, and its end
    for name, text in TEXTS.items():
        assert found[name]
        assert different_rows(rows_of(cepheid.match(text, events, evaluator="reference")), found[name]) is None


def test_explain_says_why_inner_queries_are_not_shared() -> None:
    of_c = "Q: EVENT SEQ(Pair p, C c) WITHIN 20"

    def explained(texts: dict[str, str], **options: str) -> str:
        return cepheid.explain(texts, random_events(random.Random(1), 60), **options)  # type: ignore[arg-type]

    def reasons(texts: dict[str, str], **options: str) -> list[str]:
        (_, _, below) = explained(texts, **options).partition("inner queries that are not shared\n")
        return [line[line.index("─ ") + 2 :] for line in below.splitlines() if line.startswith("   ")]

    texts = {"one": f"{PAIR}\n{of_c}", "two": f"{PAIR.replace('10', '11')}\n{of_c}"}
    assert reasons(texts)[0] == "Pair of one: Pair of two has another window"
    texts["two"] = f"{PAIR.replace('k] W', 'k] AND b.v > 1 W').replace('a.k AS', 'b.k AS')}\n{of_c}"
    assert reasons(texts)[0] == "Pair of one: Pair of two has another condition and another RETURN"
    texts["two"] = f"{PAIR.replace('Pair', 'Other').replace('B b', 'C b')}\n{of_c.replace('Pair', 'Other')}"
    assert reasons(texts)[0] == "Pair of one: no other query uses one like it"
    texts["two"] = f"{PAIR}\n{of_c.replace('C c', 'B c')}"
    assert reasons(texts) == []
    assert "Pair (stacks): evaluated once for one, two\n" in explained(texts)
    assert reasons(texts, evaluator="tree")[0] == "Pair of one: an evaluator is forced"
    texts |= {"pair": PAIR, "some": f"{PAIR} LIMIT 2"}
    assert "; evaluated again for some, pair, equal to it: it has LIMIT" in explained(texts)
    other = "Other: EVENT SEQ(A a, C b) WHERE [k] WITHIN 10 RETURN a.k AS k\n"
    texts["three"] = f"{PAIR}\n{other}Q: EVENT SEQ(Pair p, Other c) WITHIN 20"
    assert "Other (stacks): evaluated once for three; no other query uses one like it" in explained(texts)


def random_texts(rng: random.Random) -> dict[str, str]:
    """Some scripts, queries over the same inner ones, and inner ones by themselves."""
    texts: dict[str, str] = {}
    for number in range(rng.choice((1, 1, 2))):
        *inner, out = random_script(rng).split("\n")
        labels = [line.split(":")[0] for line in inner]
        ends = [out, *(f"Out: {query_over(rng, labels, rng.random() < 0.5)}" for _ in range(rng.randint(0, 3)))]
        texts |= {f"s{number}_{at}": "\n".join([*inner, end]) for at, end in enumerate(ends)}
        at = rng.randrange(2 * len(inner))
        if at < len(inner):
            texts[f"s{number}_in"] = "\n".join(inner[: at + 1])
    return dict(rng.sample([*texts.items()], len(texts)))


def is_accepted(text: str, events: pa.Table) -> bool:
    """Whether a compiled evaluator runs the query."""
    try:
        cepheid.match(text, events)
    except CepheidError:
        return False
    return True


@pytest.mark.filterwarnings("ignore::cepheid.CepheidWarning")
@pytest.mark.parametrize("first", [100, pytest.param(5000, marks=pytest.mark.slow)])
def test_random_queries_over_equal_ones(first: int) -> None:
    count = 5 if first == 100 else 300
    shared = 0
    for seed in range(first, first + count):
        rng = random.Random(seed)
        events, texts = random_events(rng, rng.randint(8, 50)), random_texts(rng)
        texts = {name: text for name, text in texts.items() if is_accepted(text, events)}
        wanted = {name: rows_of(cepheid.match(text, events, evaluator="reference")) for name, text in texts.items()}
        if texts:
            shared += len(planned(texts, events).common)
            found = found_by(texts, events)
            for name, rows in wanted.items():
                assert different_rows(rows, found[name]) is None, (seed, name, texts[name])
    assert shared > count // 3


def test_a_query_of_a_folder_feeds_others(tmp_path: Path) -> None:
    """It is neither a rule of a family, nor evaluated for each."""
    pair = "SELECT A.k AS k, B.v AS v FROM (A; B) WHERE FILTER(A.k = B.k), B.v > {}, (A, B) OCCURS WITHIN 10"
    rules = {f"r{number}": pair.format(number) for number in range(3)}
    texts = {
        **rules,
        "one": "EVENT SEQ(r1 p, C c) WHERE [k] WITHIN 20",
        "two": "EVENT SEQ(r1 p, one q) WHERE p.k = q.c.k WITHIN 50",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.eql").write_text(text)
    events = random_events(random.Random(5), 80)
    opened = frames.opened(events, Columns("type", "ts"))
    assert opened is not None
    queries, refused = linked(read_folder(tmp_path)[0], ["A", "B", "C"])
    assert not refused
    deployment = deploy_together(queries, opened.source, DEFAULT_OPTIONS)
    (common,) = deployment.common
    assert sorted(name for one in common.shown.values() for name in one.names) == ["one", "r1"]
    assert [operator.names for operator in common.fed] == [("two",)]
    found = {name: 0 for name in texts}
    for table in run(deployment, opened.source):
        for batch in table.batches:
            for name in batch.column("query").to_pylist():
                found[name] += 1
    for name, written in queries.items():
        assert found[name] == cepheid.match(written.query, events).num_rows, name
    assert found["two"]


def test_an_inner_query_that_explodes_stops_those_that_it_feeds() -> None:
    rows = [{"type": "A", "ts": n, "k": 1, "v": 1} for n in range(50)] + [{"type": "B", "ts": 50, "k": 1, "v": 1}]
    rows += [{"type": kind, "ts": 51 + n, "k": 1, "v": 1} for n, kind in enumerate("DC")]
    events = pa.Table.from_pylist(rows, SCHEMA)
    many = "Pair: EVENT SEQ(A a, B b) WITHIN 100 RETURN a.k AS k"
    few = "Late: EVENT SEQ(D a, C b) WITHIN 100 RETURN a.k AS k"
    texts = {
        "x": f"{many}\nQ: EVENT SEQ(Pair p, C c) WITHIN 100",
        "both": f"{many}\n{few}\nQ: EVENT SEQ(Pair p, D x, C c) WITHIN 100",
        "pair": many,
        "late": few,
        "y": f"{few}\nQ: EVENT SEQ(D d, Late l) WITHIN 100",
        "z": f"{few}\nQ: EVENT SEQ(B d, Late l) WITHIN 100",
    }
    options = RunOptions(options={"max_matches": "20"})
    deployment = planned(texts, events, options)
    opened = frames.opened(events, Columns("type", "ts"))
    assert opened is not None and deployment.common
    stopped: dict[str, str] = {}

    def stop(names: object, problem: Explosion) -> None:
        stopped.update((str(name), problem.what) for name in names)  # type: ignore[attr-defined]

    tables = run(deployment, opened.source, on_stop=stop, limits=Limits.of(options.options))
    found = [name for table in tables for batch in table.batches for name in batch.column("query").to_pylist()]
    assert stopped.keys() == {"x", "both", "pair"}
    assert all("more than 20 matches" in what for what in stopped.values())
    assert found.count("late") == 1 and found.count("z") == 1 and "x" not in found


def test_explain_shows_who_uses_an_inner_query() -> None:
    shown = cepheid.explain(TEXTS, NONE)
    assert "Pair (stacks): evaluated once for low, high, count, first, and its matches are those of pair" in str(shown)


def test_explain_says_what_is_expensive() -> None:
    table = datasets.synthetic(4_000, 4, (20,), seed=1)
    any_match = "PATTERN SEQ(E1 a, E2+ b[], E3 c) WHERE skip_till_any_match(a, b[], c) {[attr1]} WITHIN 2000"
    texts = {
        "cheap": "EVENT SEQ(E1 a, E2 b, E3 c) WHERE [attr1] AND a.ts + 1 < b.ts WITHIN 40",
        "dear": f"{any_match} RETURN count(*)",
    }
    text = str(cepheid.explain(texts, table))
    assert text.index("dear (any_runs): ") < text.index("cheap (stacks): "), text
    assert "expected of what runs alone" not in str(cepheid.explain(texts, table.slice(0, 1_000)))


# --- streams, and Spark, which runs the buckets of a stream in one step -----------------------------------------------

ROW_SCHEMA = SCHEMA.append(pa.field("n", pa.int64()))


def stream_of(
    texts: dict[str, str], before: StreamPlan | None = None, since: dict[str, int] | None = None, **options: Any
) -> StreamPlan:
    source = StreamSource(
        RowReader(ROW_SCHEMA, Columns()), {kind: {f.name: f.type for f in ROW_SCHEMA} for kind in "ABC"}
    )
    slot, since = options.get("slot"), since or {}
    written = {name: Written(name, text, since=since.get(name, 0), slot=slot) for name, text in texts.items()}
    lineage = FIRST if before is None else before.next_lineage
    chosen = StreamOptions(0, options.get("run", DEFAULT_OPTIONS), ("n",), options.get("buckets", 2))
    plan, refused = plan_queries(written, source, chosen, is_several=True, lineage=lineage)
    assert not refused
    return plan


def steps_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the inner queries, each time that one is evaluated."""
    steps: list[str] = []
    step = Deriving.step

    def counted(node: Deriving, reached: int) -> list[pa.RecordBatch]:
        steps.append(node.node.label)
        return step(node, reached)

    monkeypatch.setattr(Deriving, "step", counted)
    return steps


KEYED = {
    "low": f"{PAIR}\nQ: EVENT SEQ(Pair p, C c) WHERE p.k = c.k AND p.v < c.v WITHIN 20",
    "high": f"{PAIR}\nQ: SELECT * FROM Pair p; C c WHERE FILTER(p.k = c.k), p.v >= c.v, (p, c) OCCURS WITHIN 30",
    "run": f"{PAIR}\nQ: PATTERN SEQ(Pair p, C c) WHERE skip_till_next_match(p, c) {{ p.k = c.k }} WITHIN 9 RETURN p.v",
}


def numbered(events: pa.Table) -> list[dict[str, Any]]:
    return [{**row, "n": number} for number, row in enumerate(events.to_pylist())]


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, ROW_SCHEMA)


def found_in(out: Simulated) -> dict[str, list[dict[str, Any]]]:
    return {name: [row for part in parts for row in part.to_pylist()] for name, parts in out.matches.items()}


def test_a_stream_evaluates_an_equal_inner_query_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after queries were removed, one at a time: what the others have begun goes on."""
    rows = numbered(random_events(random.Random(1), 90))
    simulation = Simulation(stream_of(KEYED))
    assert "Pair: evaluated once for `high`, `low`, `run`" in simulation.plan.notes()
    steps, found = steps_of(monkeypatch), dict[str, list[dict[str, Any]]]()
    for number, left in enumerate((["low", "high", "run"], ["high", "run"], ["run"])):
        if number:
            simulation.plan = stream_of({name: KEYED[name] for name in left}, simulation.plan)
        steps.clear()
        out = simulation.run([batch_of(rows[30 * number : 30 * number + 30])], end_of_time=number == 2)
        assert 0 < len(steps) <= 2 + 2 * (number == 2)  # the buckets, and the end of time
        for name, more in found_in(out).items():
            found.setdefault(name, []).extend(more)
    wanted = rows_of(cepheid.match(KEYED["run"], pa.Table.from_pylist(rows, ROW_SCHEMA), evaluator="reference"))
    assert wanted
    assert different_rows(wanted, found["run"]) is None


def test_a_query_that_is_added_later_shares_with_those_that_are_added_with_it() -> None:
    """What a shared query began earlier is not its match."""
    rows = numbered(random_events(random.Random(2), 240))
    simulation = Simulation(stream_of({"low": KEYED["low"]}))
    first = simulation.run([batch_of(rows[:80])], end_of_time=False)
    simulation.plan = stream_of(KEYED, simulation.plan, {"high": 1, "run": 1})
    notes = [note for note in simulation.plan.notes() if note.startswith("Pair: ")]
    assert notes[0] == "Pair: evaluated once for `high`, `run`"
    assert notes[1].startswith("Pair: evaluated apart for `low`; `high`, `run`: other versions")
    found = found_in(simulation.run([batch_of(rows[80:])]))
    found["low"] += found_in(first)["low"]
    for name, seen in (("low", rows), ("high", rows[80:]), ("run", rows[80:])):
        table = pa.Table.from_pylist(seen, ROW_SCHEMA)
        wanted = rows_of(cepheid.match(KEYED[name], table, evaluator="reference"))
        assert wanted
        assert different_rows(wanted, found[name]) is None, name


@pytest.mark.parametrize("at", ["output", "inner"])
def test_one_that_exceeds_a_limit_is_stopped_with_those_that_need_it(at: str) -> None:
    """The others are evaluated again for the same batch: summaries count nothing twice, and LIMIT takes as many."""
    many = "Many: PATTERN SEQ(A a, A+ b[]) WHERE skip_till_any_match(a, b[]) { a.v >= 0 } WITHIN 99 RETURN a.k AS k"
    on_top = "Q: PATTERN SEQ(Pair p, C+ c[]) WHERE skip_till_any_match(p, c[]) { p.v >= 0 } WITHIN 99"
    texts = {
        "count": f"{PAIR}\nQ: EVENT SEQ(Pair p, C c) WITHIN 20 RETURN count(*) AS n",
        "first": f"{PAIR}\nQ: EVENT SEQ(Pair p, C c) WITHIN 20 LIMIT 7",
        "explosive": f"{PAIR}\n{on_top}"
        if at == "output"
        else f"{PAIR}\n{many}\nQ: EVENT SEQ(Many m, Pair p) WITHIN 9",
    }
    rows = [{"type": "ABCACA"[n % 6], "ts": n, "k": 1, "v": 2, "n": n} for n in range(120)]
    simulation = Simulation(stream_of(texts, run=RunOptions(options={"max_matches": "100"}), buckets=1))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in texts}
    dropped: list[str] = []
    for start in range(0, 120, 60):
        out = simulation.run([batch_of(rows[start : start + 60])], end_of_time=start == 60)
        dropped += out.dropped
        for name, more in found_in(out).items():
            found[name] += more
    assert len(dropped) == 1 and "100 matches" in dropped[0]
    for name in ("count", "first"):
        wanted = rows_of(cepheid.match(texts[name], pa.Table.from_pylist(rows, ROW_SCHEMA), evaluator="reference"))
        assert wanted
        assert different_rows(wanted, found[name]) is None, name


def test_queries_without_a_key_are_placed_with_those_that_use_equal_ones() -> None:
    plan = placed({f"q{n}": Cost(1.0, {"inner": 50.0}) for n in range(200)}, {}, [0.0, 0.0])
    first = sum(slot == plan["q0"] for slot in plan.values())
    assert 80 < first < 150  # the second slot is taken once those on the first take longer than the inner query
    few = placed({f"q{n}": Cost(1.0, {"inner": 50.0}) for n in range(20)}, {}, [0.0, 0.0])
    assert len({*few.values()}) == 1
    cheap = placed({f"q{n}": Cost(50.0, {"inner": 1.0}) for n in range(2)}, {}, [0.0, 0.0])
    assert {*cheap.values()} == {0, 1}


def test_queries_that_use_equal_ones_move_together() -> None:
    texts = {f"u{n}": f"{PAIR}\nQ: EVENT SEQ(Pair p, C c) WHERE c.v > {n} WITHIN 20" for n in range(3)}
    plan = stream_of({**texts, "alone": "EVENT SEQ(A a, B b) WHERE a.v < b.v WITHIN 9"}, slot=0)
    assert {(query.key, query.slot) for query in plan.queries} == {((), 0)}
    loads = Loads(9, {query.id: 1e9 for query in plan.queries}, {0: 4e9})
    moved = moves(plan, loads)
    assert {*moved} in ({"alone"}, {*texts})
    assert {*moved.values()} == {1}
