"""Every plan of random events gives the oracle's matches, whatever the network does, and fetches no event twice."""

import math
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from detection.running import COUNTING, KEYED, NAMED, World, drawn_query, drawn_table, rows

import cepheid
from cepheid.acquire.intervals import BEGINNING
from cepheid.acquire.plans import all_plans, is_naive, naive, plan_text
from cepheid.acquire.requests import Request
from cepheid.detection.acquisition import Acquisition
from cepheid.detection.api import detection
from cepheid.detection.channels import DROPPED_BEFORE
from cepheid.detection.detector import UNCERTAIN
from cepheid.detection.replay import replay
from cepheid.detection.run import Running
from cepheid.detection.simulation import Network, Simulation
from cepheid.errors import InputProblem, NotAvailable
from cepheid.io.flight_messages import answer_of
from cepheid.io.inputs import DEFAULT_COLUMNS


def drawn(seed: int) -> tuple[random.Random, World]:
    """Every third query names other events."""
    rng = random.Random(seed)
    text = NAMED[seed // 3 % len(NAMED)] if seed % 3 == 2 else drawn_query(rng)
    return rng, World.of(text, drawn_table(rng, 40, 100))


@pytest.mark.parametrize("seed", range(24))
def test_every_plan_gives_the_matches_of_the_oracle(seed: int) -> None:
    rng, world = drawn(seed)
    expected = world.expected()
    plans = list(all_plans(world.tree.root))
    chosen = plans if len(plans) <= 5 else rng.sample(plans, 5)
    for plan in chosen:
        logs = world.logs()
        running = Acquisition([world.program(plan, logs)])
        assert rows(*replay(running, logs)) == expected, (world.text, plan_text(world.tree.root, plan))
        assert running.counts.repeated == 0
        assert running.counts.events == sum(log.sent.events for log in logs.values())
        assert running.counts.bytes == sum(log.sent.bytes for log in logs.values())
        assert running.counts.events <= world.table.num_rows
        # Some types may not be part of the query.
        assert not is_naive(plan) or running.counts.events >= len(expected) ** 0.25


@pytest.mark.parametrize("number", range(len(COUNTING + KEYED)))
def test_every_plan_of_counts_and_of_keys_finds_what_the_oracle_finds(number: int) -> None:
    """Counts change with each further event, so they wait for all events in their windows."""
    rng = random.Random(number)
    world = World.of((*COUNTING, *KEYED)[number], drawn_table(rng, 40, 100))
    expected = world.expected()
    for plan in all_plans(world.tree.root):
        logs = world.logs()
        running = Acquisition([world.program(plan, logs)])
        assert rows(*replay(running, logs)) == expected, (world.text, plan_text(world.tree.root, plan))
        assert running.counts.repeated == 0
        logs = world.logs()
        simulation = Simulation(
            [world.program(plan, logs)], logs, Network(0, 9, 0.1, 0.1), number, 9, (rng.randint(5, 90),)
        )
        assert rows(*simulation.run()) == expected, (world.text, plan_text(world.tree.root, plan))


@pytest.mark.parametrize("seed", range(12))
def test_delays_losses_and_restarts_change_no_match(seed: int) -> None:
    rng, world = drawn(seed)
    plan = rng.choice(list(all_plans(world.tree.root)))
    logs = world.logs()
    network = Network(0, rng.choice((0, 3, 15)), rng.choice((0.0, 0.2)), rng.choice((0.0, 0.2)))
    restarts = tuple(rng.randint(0, 130) for _ in range(rng.choice((0, 2))))
    simulation = Simulation([world.program(plan, logs)], logs, network, seed, beat=9, restarts=restarts)
    found = rows(*simulation.run())
    assert found == world.expected(), (world.text, plan_text(world.tree.root, plan), network, restarts)
    assert simulation.gaps == []
    if network.loss == network.repeats == 0 and not restarts:
        assert simulation.acquisition.counts.repeated == 0


@pytest.mark.parametrize("seed", range(10))
def test_a_change_of_the_plan_loses_and_repeats_no_match(seed: int) -> None:
    """From any plan to any other, at any moment."""
    rng, world = drawn(seed)
    plans, logs = list(all_plans(world.tree.root)), world.logs()
    first, *others = (rng.choice(plans) for _ in range(4))
    network = Network(0, rng.choice((0, 3, 15)), rng.choice((0.0, 0.2)), 0.0)
    switches = tuple((rng.randint(0, 130), [world.program(plan, logs)]) for plan in others)
    restarts = tuple(rng.randint(0, 130) for _ in range(rng.choice((0, 1))))
    simulation = Simulation(
        [world.program(first, logs)], logs, network, seed, beat=9, restarts=restarts, switches=switches
    )
    assert rows(*simulation.run()) == world.expected(), (world.text, seed)
    assert simulation.gaps == []


@pytest.mark.parametrize("seed", range(12))
def test_the_events_behind_the_frontier_pass_in_order_and_have_all_matches(seed: int) -> None:
    """Under delays, losses, restarts and changes of the plan, each event once."""
    rng, world = drawn(seed)
    plans, logs = list(all_plans(world.tree.root)), world.logs()
    network = Network(0, rng.choice((0, 3, 15)), rng.choice((0.0, 0.2)), rng.choice((0.0, 0.2)))
    restarts = tuple(rng.randint(0, 130) for _ in range(rng.choice((0, 2))))
    switches = tuple((rng.randint(0, 130), [world.program(rng.choice(plans), logs)]) for _ in range(rng.choice((0, 1))))
    simulation = Simulation(
        [world.program(rng.choice(plans), logs)], logs, network, seed, 9, restarts, switches, passes=True
    )
    assert simulation.run()[0].num_rows == 0
    assert simulation.acquisition.passing is not None
    found = [table.sort_by("ts") for table in simulation.acquisition.passing.events]
    times = [time for table in found for time in table["ts"].to_pylist()]
    assert times == sorted(times)
    passed = pa.concat_tables([world.table.schema.empty_table(), *found])
    assert rows(cepheid.match(world.text, passed, evaluator="reference")) == world.expected(), (world.text, seed)


def test_a_match_is_output_when_its_events_are_known() -> None:
    """The latency is that of the messages, not that of the window."""
    table = drawn_table(random.Random(4), 40, 200)
    world = World.of("complex Q on A as a, B as b, C as c event and(a, b, c; 50)", table)
    (plan,) = [p for p in all_plans(world.tree.root) if plan_text(world.tree.root, p) == "a → b → c"]
    logs = world.logs()
    simulation = Simulation([world.program(plan, logs)], logs, Network(2, 2), beat=5)
    simulation.run()
    delays = [
        detected.now - end for detected in simulation.detected for end in detected.matches[0]["match_end"].to_pylist()
    ]
    assert len(delays) > 20
    assert max(delays) <= 2 + 2 * 2 + 2 * 2


def test_known_events_are_forgotten_behind_the_frontier() -> None:
    table = drawn_table(random.Random(4), 100, 1_000)
    world = World.of("complex Q on A as a, B as b event seq(a, b; 20)", table)
    for plan in all_plans(world.tree.root):
        logs = world.logs()
        simulation = Simulation([world.program(plan, logs)], logs, Network(0, 3), beat=50)
        assert rows(*simulation.run()) == world.expected()
        assert sum(batch.num_rows for kept in simulation.acquisition.channels.values() for batch in kept.events) < 40


def test_rare_events_first_move_few_events() -> None:
    rng = random.Random(9)
    times = {"A": rng.sample(range(100_000), 40), "B": rng.sample(range(100_000), 8_000)}
    drawn_rows = sorted((time, kind, 1) for kind, own in times.items() for time in own)
    table = pa.table(
        {"type": [r[1] for r in drawn_rows], "ts": [r[0] for r in drawn_rows], "id": [r[2] for r in drawn_rows]}
    )
    world = World.of("complex Q on A as a, B as b event and(a, b; 50)", table)
    counts = {}
    for plan in all_plans(world.tree.root):
        logs = world.logs()
        running = Acquisition([world.program(plan, logs)])
        replay(running, logs)
        counts[plan_text(world.tree.root, plan)] = running.counts.events
    assert counts["a, b"] == 8_040
    assert 40 + 200 < counts["a → b"] < 40 + 500


def test_pulls_have_the_keys_of_what_is_known() -> None:
    """Of 50 keys, those of the rare events are asked for, several in one pull, and no event is fetched twice."""
    rng = random.Random(9)
    times = {"A": sorted(rng.sample(range(100_000), 40)), "B": sorted(rng.sample(range(100_000), 20_000))}
    drawn_rows = sorted((time, kind, rng.randint(1, 50)) for kind, own in times.items() for time in own)
    table = pa.table(
        {"type": [r[1] for r in drawn_rows], "ts": [r[0] for r in drawn_rows], "id": [r[2] for r in drawn_rows]}
    )
    moved = {}
    for where in ("where a.id = b.id", "where a.id + 0 = b.id + 0"):
        world = World.of(f"complex Q on A as a, B as b event and(a, b; 500) {where}", table)
        (plan,) = [p for p in all_plans(world.tree.root) if plan_text(world.tree.root, p) == "a → b"]
        logs = world.logs()
        running = Acquisition([world.program(plan, logs)])
        assert rows(*replay(running, logs)) == rows(cepheid.match(world.text, table))
        assert running.counts.repeated == 0
        moved[where] = running.counts.events, running.counts.requests
    chosen = detection(
        "complex Q on A as a, B as b event and(a, b; 500) where a.id = b.id", {"all": table}, DEFAULT_COLUMNS
    )
    (by_key, requests), (all_events, others) = moved.values()
    modelled = chosen.only.choice.chosen.cost * 100_000
    assert plan_text(chosen.only.program.tree.root, chosen.only.program.plan) == "a → b"
    assert abs(modelled - by_key) < 0.15 * by_key
    assert by_key < 0.1 * all_events
    assert requests <= 2 * others + 80


# --- failures ---------------------------------------------------------------------------------------------------------


def negated_world() -> World:
    table = drawn_table(random.Random(2), 60, 200)
    return World.of("complex Q on A as a, B as b, C as c event seq(a, !b, c; 20)", table)


def test_a_source_that_never_answers_is_a_gap_and_its_matches_are_marked() -> None:
    world = negated_world()
    plan = next(p for p in all_plans(world.tree.root) if plan_text(world.tree.root, p) == "a → c → !b")
    logs = world.logs()
    running = Acquisition([world.program(plan, logs)])
    result, found = running.start(), []
    while result.requests:
        answered = [r for r in result.requests if (r.source, r.stream) != ("left", "B")]
        silent = [r for r in result.requests if (r.source, r.stream) == ("left", "B")]
        result = running.receive([logs[r.source].answer(r, r.begin) for r in answered])
        found += result.matches
        for request in silent:
            given_up = running.give_up(request, "no answer")
            assert [(gap.source, gap.stream, gap.reason) for gap in given_up.gaps] == [("left", "B", "no answer")]
            assert (given_up.gaps[0].begin, given_up.gaps[0].end) == (request.begin, request.end)
            result.requests.extend(given_up.requests)
            found += given_up.matches
    matches = [row for table in found for row in table.to_pylist()]
    assert len(matches) >= len(world.expected())
    assert all(row[UNCERTAIN] for row in matches)


def test_silence_is_not_absence() -> None:
    world = negated_world()
    plan = next(p for p in all_plans(world.tree.root) if plan_text(world.tree.root, p) == "a → c → !b")
    logs = world.logs()
    running = Acquisition([world.program(plan, logs)])
    result = running.start()
    for _ in range(3):
        asked = [r for r in result.requests if r.stream != "B"]
        result = running.receive([logs[r.source].answer(r, r.begin) for r in asked])
        assert result.matches[0].num_rows == 0


def test_what_a_source_has_dropped_is_a_gap() -> None:
    world = World.of("complex Q on A as a, B as b event seq(a, b; 20)", drawn_table(random.Random(2), 60, 200))
    plan = next(p for p in all_plans(world.tree.root) if plan_text(world.tree.root, p) == "b → a")
    logs = world.logs(retention=3)
    simulation = Simulation([world.program(plan, logs)], logs, Network(4, 4), beat=5)
    simulation.run()
    reasons = {(gap.stream, gap.reason) for gap in simulation.gaps}
    assert ("A", "the source has dropped these events") in reasons
    assert {reason for stream, reason in reasons if stream == "B"} <= {DROPPED_BEFORE}
    assert all(gap.begin > BEGINNING for gap in simulation.gaps if gap.reason != DROPPED_BEFORE)


def test_what_a_source_has_dropped_before_it_is_first_asked_is_a_gap() -> None:
    """Absence is not guessed from a log that no longer has these events: a match that one could spoil is marked."""
    table = drawn_table(random.Random(2), 120, 400)
    world = World.of("complex Q on A as a, B as b, C as c event seq(a, !b, c; 20)", table)
    logs = {name: replace(log, retention=20 if name == "left" else None) for name, log in world.logs().items()}
    running = Acquisition([world.program(naive(world.tree.root), logs)])
    first = running.start()
    results = [running.receive([logs[r.source].answer(r, r.begin, 150) for r in first.requests])]
    results.append(running.receive([logs[r.source].answer(r, 151, pushed=True) for r in first.requests]))
    gaps = {(gap.source, gap.stream): (gap.begin, gap.end) for result in results for gap in result.gaps}
    assert gaps == {("left", kind): (BEGINNING, 129) for kind in "ABC"}
    matches = pa.concat_tables([result.matches[0] for result in results])
    certain = rows(matches.filter(pa.compute.invert(matches[UNCERTAIN])))
    assert 0 < len(certain) < matches.num_rows
    assert set(certain) <= set(world.expected()) and not set(rows(matches)) <= set(world.expected())
    assert all(row["match_start"] - 41 <= 129 for row in matches.to_pylist() if row[UNCERTAIN])


def test_an_answer_that_comes_after_its_gap_counts_once() -> None:
    """A push that was late, after a pull has said that the source no longer has these events, and comes twice."""
    world = World.of("complex Q on A as a, B as b event seq(a, b; 20)", drawn_table(random.Random(2), 200, 200))
    logs = world.logs()
    running = Acquisition([world.program(naive(world.tree.root), logs)])
    (request,) = [r for r in running.start().requests if (r.source, r.stream) == ("left", "B")]
    late = logs["left"].answer(request, 50, 99, pushed=True)
    assert late.events.num_rows > 1
    running.receive([logs["left"].answer(request, request.begin, 49)])
    known = running.counts.events
    dropped = replace(late, retained=100, events=late.events.slice(0, 0))
    assert [(gap.begin, gap.end) for gap in running.receive([dropped]).gaps] == [(50, 99)]
    for _ in range(2):
        assert not running.receive([late]).gaps
    channel = running.channels["left", "B"]
    assert sum(batch.num_rows for batch in channel.events) == known + late.events.num_rows
    assert running.counts.repeated == late.events.num_rows
    assert not channel.lost


def test_an_answer_that_does_not_fit_is_refused() -> None:
    world = negated_world()
    logs = world.logs()
    running = Acquisition([world.program(naive(world.tree.root), logs)])
    request = running.start().requests[0]
    answer = logs[request.source].answer(request, request.begin)
    wrong = (
        (replace(answer, complete=-5), "outside of the interval that it answers"),
        (replace(answer, stream="Z"), "which it was not asked for"),
        (replace(answer, events=answer.events.rename_columns(["type", "ts", "other"])), "sends the columns `other`"),
        (replace(answer, events=answer.events.drop_columns(["ts"])), "null"),
        (replace(answer, events=pa.record_batch({"type": ["A"], "ts": ["x"], "id": [1]})), "Failed to parse"),
    )
    for number, (garbage, reason) in enumerate(wrong, 1):
        assert running.receive([garbage]).matches[0].num_rows == 0
        assert reason in running.refused[garbage.source, garbage.stream]
        assert running.unanswered(request)
        assert running.counts.refused == number
    running.receive([answer])
    assert not running.unanswered(request)


def test_an_answer_covers_what_its_request_asks_for_and_no_more() -> None:
    """A source that claims to know the future would hide the events of later requests."""
    request, events = Request(1, "s", "A", 10, 20), pa.record_batch({"ts": [12]})
    assert answer_of(request, events, b'{"begin": 10, "complete": 15, "retained": 0}').complete == 15
    for claimed in (b'{"begin": 9, "complete": 15, "retained": 0}', b'{"begin": 10, "complete": 21, "retained": 0}'):
        with pytest.raises(InputProblem, match="answers more than it was asked for"):
            answer_of(request, events, claimed)


def test_an_identity_over_all_time_has_no_plan() -> None:
    text = "source A schema int id\nsource B schema int id\nprimitive X on A as s schema event_id as s.id\n"
    text += "complex Q on X as x, B as b event seq(x, b; 6)"
    with pytest.raises(NotAvailable, match="count once for each `event_id`, however far apart"):
        World.of(text, drawn_table(random.Random(1), 10, 50))


def test_a_type_without_a_source_is_refused() -> None:
    table = negated_world().table.filter(pa.compute.equal(negated_world().table["type"], "A"))
    with pytest.raises(InputProblem, match="no source has events of type `B`, `C`"):
        detection("complex Q on A as a, B as b, C as c event seq(a, b, c; 20)", {"only": table}, DEFAULT_COLUMNS)


# --- measured and modelled --------------------------------------------------------------------------------------------


def poisson(rng: np.random.Generator, rate: float, length: int) -> list[int]:
    return sorted(rng.integers(0, length, rng.poisson(rate * length)).tolist())


def bursts(rng: np.random.Generator, rate: float, length: int) -> list[int]:
    """Ten events in each burst, 20 ticks apart."""
    return sorted(begin + 20 * i for begin in poisson(rng, rate / 10, length) for i in range(10))


def fetched(text: str, streams: dict[str, list[int]], plan_name: str) -> tuple[float, float]:
    """The share of events that a plan fetches, and the share that the model of fitted streams expects."""
    drawn_rows = sorted((time, kind) for kind, times in streams.items() for time in times)
    table = pa.table({"type": [r[1] for r in drawn_rows], "ts": [r[0] for r in drawn_rows]})
    found = detection(text, {"all": table}, DEFAULT_COLUMNS, plan=plan_name)
    running = Running(found)
    for _ in running.matches():
        """Only the counts are read."""
    rate = sum(found.only.costs.streams[kind].model.rate for kind in streams)
    return running.counts.events / len(drawn_rows), found.only.choice.chosen.cost / rate


LOADS = [pytest.param(load, marks=[pytest.mark.slow] if load in (0.1, 10.0) else []) for load in (0.01, 0.1, 1.0, 10.0)]


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(
    ("text", "plan_name"),
    [
        ("and(A, B; {w})", "A → B"),
        ("seq(A, B; {w})", "B → A"),
        ("and(A, B, C; {w})", "A → B → C"),
        ("seq(A, B, C; {w})", "B → A, C"),
        ("and(A, B, !C, !D; {w})", "A → B → !C → !D"),
        ("seq(A, B, C, D; {w})", "A → B → C → D"),
    ],
)
def test_plans_fetch_what_the_model_expects(text: str, plan_name: str, load: float) -> None:
    """`load` is the rate of A times the window; that of the others is up to twice as high."""
    rng = np.random.default_rng(3)
    length, count = 1_000_000, 150 if load > 5 else 1_000
    window = int(load * length / count)
    shares = {"A": 1.0, "B": 1.5, "C": 2.0, "D": 1.2}
    used = {kind: share for kind, share in shares.items() if kind in text}
    streams = {kind: poisson(rng, share * count / length, length) for kind, share in used.items()}
    measured, expected = fetched(f"complex Q event {text.format(w=window)}", streams, plan_name)
    assert measured == pytest.approx(expected, rel=0.15)
    assert measured <= 1


def test_bursts_are_modelled_as_bursts() -> None:
    rng = np.random.default_rng(1)
    length = 2_000_000
    streams = {"A": bursts(rng, 0.0005, length), "B": poisson(rng, 0.002, length)}
    measured, expected = fetched("complex Q event and(A, B; 500)", streams, "A → B")
    assert measured == pytest.approx(expected, rel=0.15)
    independent = 0.2 + 0.8 * (1 - math.exp(-2 * 500 * 0.0005))
    assert measured < 0.85 * independent


@pytest.mark.parametrize("kind", ["and", "seq"])
@pytest.mark.parametrize(("draw", "load", "other"), [("poisson", 0.1, 3.0), ("bursts", 0.1, 3.0), ("bursts", 1.0, 1.0)])
def test_complex_subevents_come_in_clusters(kind: str, draw: str, load: float, other: float) -> None:
    """One A completes a subevent with each B near it; as independent ones they would cover up to 2.8 times as much."""
    rng = np.random.default_rng(5)
    window, length = 100, 400_000 if other > 1 else 200_000
    drawing = {"poisson": poisson, "bursts": bursts}[draw]
    streams = {
        "A": drawing(rng, load / window, length),
        "B": drawing(rng, other / window, length),
        "C": poisson(rng, 3 / window, length),
    }
    declared = f"complex P on A as a, B as b event {kind}(a, b; {window})\n"
    query = f"{declared}complex Q on P as p, C as c event and(p, c; {window})"
    measured, expected = fetched(query, streams, f"{kind}(a → b) → c")
    assert measured == pytest.approx(expected, rel=0.16)


def test_negated_events_are_fetched_only_for_what_is_left() -> None:
    rng = np.random.default_rng(8)
    streams = {kind: poisson(rng, rate, 300_000) for kind, rate in (("A", 0.0005), ("B", 0.003), ("C", 0.01))}
    text = "complex Q event and(A, !B, !C; 400)"
    together, _ = fetched(text, streams, "A → !B, !C")
    staged, expected = fetched(text, streams, "A → !B → !C")
    assert staged < 0.8 * together
    assert staged == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("kind", ["and", "seq"])
def test_a_negated_event_inside_is_fetched_on_both_sides(kind: str) -> None:
    """Up to a window before B and a window after it, whether B comes before or after A."""
    rng = np.random.default_rng(3)
    streams = {name: poisson(rng, rate, 1_000_000) for name, rate in (("A", 0.001), ("B", 0.0015), ("C", 0.002))}
    text = f"complex Q event {kind}(A, and(B, !C; 100); 100)"
    measured, expected = fetched(text, streams, "A → and(B, !C)")
    assert measured == pytest.approx(expected, rel=0.03)
