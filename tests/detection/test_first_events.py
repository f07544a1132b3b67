"""Sources that go on: a node may have its first event of a type, or the first one with a column, after the start."""

import json
import queue
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from detection.running import rows
from detection.test_flight import listed, served
from detection.waiting import wait_until
from pyarrow import flight

import cepheid
from cepheid.acquire.intervals import END
from cepheid.acquire.requests import Answer, Request
from cepheid.detection.api import detection
from cepheid.detection.run import Running
from cepheid.errors import InputProblem, SourceUnreachable
from cepheid.io.asked_source import Failure
from cepheid.io.feeds import Gathered, Lines
from cepheid.io.flight_client import FlightSource
from cepheid.io.flight_messages import COLUMNS_CHANGED
from cepheid.io.growing_log import GrowingLog
from cepheid.io.inputs import DEFAULT_COLUMNS

Events = Sequence[dict[str, Any]]
QUERY = "complex Q on A as a, B as b, C as c event {} where a.id = b.id and a.v > 1"
BEFORE: Mapping[str, Events] = {
    "one": ({"type": "B", "ts": 4, "id": 1}, {"type": "C", "ts": 5, "id": 1}),
    "two": ({"type": "A", "ts": 1, "id": 1, "v": 2}, {"type": "C", "ts": 5, "id": 2}),
}
AFTER: Mapping[str, Events] = {
    "one": (
        {"type": "A", "ts": 50, "id": 1, "v": 2.0},
        {"type": "A", "ts": 51, "id": 1, "v": 0},
        {"type": "C", "ts": 53, "id": 1},
        {"type": "B", "ts": 57, "id": 1},
        {"type": "A", "ts": 70, "id": 1, "v": 5},
        {"type": "B", "ts": 90, "id": 1},
    ),
    "two": ({"type": "B", "ts": 52, "id": 1}, {"type": "C", "ts": 73, "id": 1}, {"type": "B", "ts": 75, "id": 1}),
}
"""`one` has no A at the start, and none of its events has `v`; `two` has no B."""


def lines(log: GrowingLog) -> Lines:
    def rejected(line: str, reason: str) -> None:
        raise AssertionError(f"{reason}: {line}")

    return Lines(log, None, rejected)


def add_all(logs: Mapping[str, GrowingLog], events: Mapping[str, Events]) -> None:
    """As a feed of standard input: line by line."""
    for name, own in events.items():
        for event in own:
            lines(logs[name]).add([json.dumps(event)])


def detected(query: str, path: str, logs: Mapping[str, GrowingLog], plan: str | None) -> pa.Table:
    """The matches, where events come once the sources have been asked."""
    running = Running(detection(query, path, DEFAULT_COLUMNS, adapt_every=None, timeout=5.0, plan=plan))

    def feed() -> None:
        wait_until(lambda: running.counts.answers > 1, lambda: running.counts.answers, 20.0)
        add_all(logs, AFTER)
        for log in logs.values():
            log.end()

    threading.Thread(target=feed, daemon=True).start()
    found = pa.concat_tables([running.schema.empty_table(), *running.matches()])
    assert not running.gaps
    return found


@pytest.mark.parametrize("event", ["and(a, b, c; 9)", "seq(a, !b, c; 9)", "seq(c, !a, b; 9)"])
@pytest.mark.parametrize("plan", [None, "push"])
def test_a_source_is_asked_for_types_that_it_has_not_had(event: str, plan: str | None, tmp_path: Path) -> None:
    """Absence is not guessed from what a source has had at the start."""
    query = QUERY.format(event)
    logs = {name: GrowingLog(name, DEFAULT_COLUMNS) for name in BEFORE}
    add_all(logs, BEFORE)
    with served(*logs.values()) as servers:
        found = detected(query, listed(tmp_path, servers), logs, plan)
    events = [event for own in (BEFORE, AFTER) for part in own.values() for event in part]
    whole = pa.table({n: [event.get(n) for event in events] for n in ("type", "ts", "id", "v")}).sort_by("ts")
    expected = cepheid.match(query, whole, evaluator="reference")
    assert expected.num_rows > 0
    assert ends(found) == ends(expected)


def ends(matches: pa.Table) -> list[tuple[int, int]]:
    return sorted((row["match_start"], row["match_end"]) for row in matches.to_pylist())


def test_a_source_may_be_asked_for_some_types_only(tmp_path: Path) -> None:
    logs = {name: GrowingLog(name, DEFAULT_COLUMNS) for name in BEFORE}
    add_all(logs, BEFORE)
    query = "complex Q on A as a, C as c event and(a, c; 9)"
    with served(*logs.values()) as servers:
        path = Path(listed(tmp_path, servers))
        data = json.loads(path.read_text())
        data["sources"][0]["types"], data["sources"][1]["types"] = ["C"], ["A", "B"]
        path.write_text(json.dumps(data))
        sources = detection(query, str(path), DEFAULT_COLUMNS).only.program.sources
        assert sources == {"A": ("two",), "C": ("one",)}
        data["sources"][1]["types"] = ["B"]
        path.write_text(json.dumps(data))
        with pytest.raises(InputProblem, match="no source has events of type `A`"):
            detection(query, str(path), DEFAULT_COLUMNS)
        data["sources"][1]["types"] = "B"
        path.write_text(json.dumps(data))
        with pytest.raises(InputProblem, match="types of the source `two`"):
            detection(query, str(path), DEFAULT_COLUMNS)


def test_a_source_that_has_ended_is_not_asked_for_what_it_lacks() -> None:
    tables = {kind: pa.table({"type": [kind], "ts": [1]}) for kind in "AB"}
    chosen = detection("complex Q on A as a, B as b event and(a, b; 9)", tables, DEFAULT_COLUMNS)
    assert chosen.only.program.sources == {"A": ("A",), "B": ("B",)}


FED = (
    '{"type": "A", "ts": 1, "v": null}',
    '{"type": "B", "ts": 2, "s": "x"}',
    '{"type": "A", "ts": 3, "v": 5}',
    '{"type": "A", "ts": 4, "v": 5.5, "s": null}',
)
FED_ROWS = [
    {"type": "A", "ts": 1, "v": None, "s": None},
    {"type": "B", "ts": 2, "v": None, "s": "x"},
    {"type": "A", "ts": 3, "v": 5.0, "s": None},
    {"type": "A", "ts": 4, "v": 5.5, "s": None},
]


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_a_feed_has_the_columns_of_all_its_events(at_once: int) -> None:
    """Not of its first line, or of the first of its lines."""
    log = GrowingLog("log", DEFAULT_COLUMNS)
    gathered = Gathered("gathered", DEFAULT_COLUMNS)
    for first in range(0, len(FED), at_once):
        lines(log).add(FED[first : first + at_once])
        Lines(gathered, None, lambda *_: None).add(FED[first : first + at_once])
    table = gathered.table()
    assert table is not None and table.select(["type", "ts", "v", "s"]).to_pylist() == FED_ROWS
    schema = log.describe().schema
    assert {name: str(schema.field(name).type) for name in ("v", "s")} == {"v": "double", "s": "string"}
    kept = [row for kind in "AB" for row in log._whole(kind).events.to_pylist()]
    assert sorted(rows(pa.Table.from_pylist(kept).select(["type", "ts", "v", "s"]))) == sorted(map(repr, FED_ROWS))


def test_events_that_the_log_cannot_take_leave_it_as_it_was() -> None:
    """A float beside an integer that no float holds exactly, also where other types come first."""
    log, left_out = GrowingLog("log", DEFAULT_COLUMNS), []
    fed = Lines(log, None, lambda line, _: left_out.append(json.loads(line)["ts"]))
    for event in (("B", 1, 5), ("A", 2, 2**60 + 1), ("C", 3, 5.5), ("B", 4, 6), ("A", 5, 7)):
        fed.add([json.dumps(dict(zip(("type", "ts", "v"), event, strict=True)))])
    assert left_out == [3]
    assert {kind: log._whole(kind).events["v"].to_pylist() for kind in "AB"} == {"A": [2**60 + 1, 7], "B": [5, 6]}


def test_both_ends_count_the_same_events_if_columns_change() -> None:
    log = GrowingLog("log", DEFAULT_COLUMNS)
    lines(log).add(['{"type": "A", "ts": 1, "v": 1}'])
    items: queue.SimpleQueue[Answer | Failure] = queue.SimpleQueue()
    with served(log) as (server,):
        source = FlightSource("log", server.address)
        source.ask(Request(1, "log", "A", 0, END, follow=True, columns=("ts", "v")), items.put)
        events = 0
        for time in range(2, 12):
            value = time + 0.5 if time > 5 else time  # an integer until 5
            lines(log).add([json.dumps({"type": "A", "ts": time, "v": value})])
            while True:
                answer = items.get(timeout=20)
                assert isinstance(answer, Answer)
                events += answer.events.num_rows
                if answer.complete >= time - 1:
                    break
        assert events == log.sent.events == 10
        source.close()


def test_a_source_whose_columns_never_stop_to_change_fails() -> None:
    """It is asked again a number of times, and not for ever."""

    class Restless(flight.FlightServerBase):  # type: ignore[misc]
        def do_get(self, context: object, ticket: object) -> object:
            raise flight.FlightServerError(COLUMNS_CHANGED)

    server = Restless("grpc://127.0.0.1:0")
    items: queue.SimpleQueue[Answer | Failure] = queue.SimpleQueue()
    source = FlightSource("restless", f"grpc://127.0.0.1:{server.port}")
    source.ask(Request(1, "restless", "A", 0, END, follow=True), items.put)
    try:
        assert isinstance(items.get(timeout=60), Failure)
    finally:
        source.close()
        server.shutdown()


def test_a_source_without_events_needs_columns(tmp_path: Path) -> None:
    """The error says how it gets them: from a file without rows. Its first event comes after the start."""
    logs = {name: GrowingLog(name, DEFAULT_COLUMNS) for name in ("one", "two")}
    first = ({"type": "A", "ts": 1, "id": 1}, {"type": "B", "ts": 2, "id": 2})
    add_all(logs, {"two": first})
    query = "complex Q on A as a, B as b event and(a, b; 9) where a.id = b.id"
    with served(*logs.values()) as servers:
        path = listed(tmp_path, servers)
        with pytest.raises(SourceUnreachable) as problem:
            detection(query, path, DEFAULT_COLUMNS, attempts=1)
        assert f"`one` at {servers[0].address} has no events yet" in str(problem.value)
        assert "a Parquet file with its columns and no rows" in str(problem.value)
        logs["one"].append(pa.table({"type": ["A"], "ts": [0], "id": [0]}).slice(1))
        found = detected(query, path, logs, None)
    events = [*first, *(event for own in AFTER.values() for event in own)]
    whole = pa.table({n: [event[n] for event in events] for n in ("type", "ts", "id")}).sort_by("ts")
    expected = cepheid.match(query, whole, evaluator="reference")
    assert expected.num_rows > 0
    assert ends(found) == ends(expected)
