"""Sources behind Arrow Flight: the same matches and counts as in memory, and what is refused."""

import itertools
import json
import random
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from detection.running import rows
from ports import free_port
from pyarrow import flight

import cepheid
from cepheid.acquire.requests import Request
from cepheid.detection.api import detection
from cepheid.detection.flight_server import FlightLog, ServerOptions
from cepheid.detection.run import Running
from cepheid.errors import InputProblem
from cepheid.io.asked_source import PROTOCOL
from cepheid.io.flight_client import FlightSource
from cepheid.io.growing_log import GrowingLog
from cepheid.io.inputs import DEFAULT_COLUMNS

QUERY = "complex Q on A as a, B as b, C as c event and(a, b, c; 100) where a.id = b.id and c.id > 1"


def stream(kind: str, count: int) -> pa.Table:
    rng = random.Random(kind)
    times = sorted(rng.sample(range(20_000), count))
    return pa.table({"type": [kind] * count, "ts": times, "id": [rng.randint(1, 3) for _ in times]})


TABLES = {"first": stream("A", 12), "second": stream("B", 400), "third": stream("C", 1500)}


def log_of(name: str, table: pa.Table, ended: bool = True, retention: int | None = None) -> GrowingLog:
    log = GrowingLog(name, DEFAULT_COLUMNS, retention)
    log.append(table)
    if ended:
        log.end()
    return log


@contextmanager
def served(*logs: GrowingLog, **options: object) -> Iterator[list[FlightLog]]:
    servers = [FlightLog(log, ServerOptions(beat=0.05, port=free_port(), **options)) for log in logs]  # type: ignore[arg-type]
    try:
        yield servers
    finally:
        for log in logs:
            log.end()  # ends the subscriptions
        for server in servers:
            server.shutdown()


def listed(directory: Path, servers: list[FlightLog], **fields: object) -> str:
    entries = [{"name": s._serving.log.name, "address": s.address, "latency": 5, **fields} for s in servers]
    path = directory / "sources.json"
    path.write_text(json.dumps({"sources": entries}))
    return str(path)


def test_flight_gives_the_matches_and_counts_of_memory(tmp_path: Path) -> None:
    expected = cepheid.match(QUERY, pa.concat_tables(TABLES.values()))
    logs = [log_of(name, table) for name, table in TABLES.items()]
    with served(*logs, token="secret") as servers:
        found = detection(QUERY, listed(tmp_path, servers, token="secret"), DEFAULT_COLUMNS)
        running = Running(found)
        matches = pa.concat_tables([running.schema.empty_table(), *running.matches()])
    assert rows(matches) == rows(expected)
    assert matches.num_rows > 20
    in_memory = Running(detection(QUERY, TABLES, DEFAULT_COLUMNS))
    assert sum(part.num_rows for part in in_memory.matches()) == matches.num_rows
    assert running.counts.by_stream == in_memory.counts.by_stream
    assert running.counts.events == sum(log.sent.events for log in logs) < 0.35 * 1912
    assert running.counts.bytes == sum(log.sent.bytes for log in logs)
    # The condition on c is tested at its source.
    assert logs[2].sent.events < 0.8 * sum(1 for _ in range(1500)) * 0.3


def test_a_subscription_reports_events_as_they_come() -> None:
    log = log_of("live", pa.table({"type": ["A"], "ts": [10], "id": [1]}), ended=False)
    answers: list[object] = []
    began, came = threading.Event(), threading.Event()

    def deliver(answer: object) -> None:
        answers.append(answer)
        began.set()
        if getattr(answer, "complete", 0) >= 2**61:
            came.set()

    with served(log) as (server,):
        source = FlightSource("live", server.address)
        source.ask(Request(1, "live", "A", 0, 2**62, follow=True), deliver)
        assert began.wait(20)
        log.append(pa.table({"type": ["A", "B"], "ts": [20, 25], "id": [2, 1]}))
        log.append(pa.table({"type": ["A"], "ts": [30], "id": [3]}))
        log.append(pa.table({"type": ["A"], "ts": [5], "id": [9]}))
        log.end()
        assert came.wait(20)
        source.close()
    times = [time for answer in answers for time in answer.events.column("ts").to_pylist()]  # type: ignore[attr-defined]
    assert times == [10, 20, 30]
    assert log.late == 1
    begins = [(a.begin, a.complete) for a in answers]  # type: ignore[attr-defined]
    assert all(end + 1 == begin for (_, end), (begin, _) in itertools.pairwise(begins))


def test_the_end_of_a_server_does_not_end_the_next() -> None:
    for number in range(30):
        with served(log_of(f"log {number}", TABLES["first"])) as (server,):
            source = FlightSource("log", server.address)
            for _ in range(5):
                assert source.describe().types["A"].count == 12
            source.close()


def test_lost_messages_are_asked_for_again(tmp_path: Path) -> None:
    expected = cepheid.match(QUERY, pa.concat_tables(TABLES.values()))
    logs = [log_of(name, table) for name, table in TABLES.items()]
    with served(*logs, loss=0.3, seed=4) as servers:
        path = listed(tmp_path, servers)
        found = cepheid.detect(QUERY, path, timeout=0.3, attempts=30).read_all()
    assert rows(found) == rows(expected)


def test_a_server_that_dies_is_a_gap(tmp_path: Path) -> None:
    logs = [log_of(name, table) for name, table in TABLES.items()]
    with served(*logs) as servers:
        running = Running(detection(QUERY, listed(tmp_path, servers), DEFAULT_COLUMNS, timeout=0.2, attempts=2))
        servers[1].shutdown()
        matches = list(running.matches())
    assert not any(table.num_rows for table in matches)
    assert {(gap.source, gap.stream) for gap in running.gaps} == {("second", "B")}
    assert "connect" in running.gaps[0].reason.lower() or "closed" in running.gaps[0].reason.lower()


def test_a_server_that_accepts_and_never_answers_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start it is an error with the address; later, its intervals are gaps."""
    monkeypatch.setattr("cepheid.io.flight_client._CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(InputProblem, match=f"`mute` at {address} cannot be reached"):
            FlightSource("mute", address).describe()
    monkeypatch.undo()
    over = threading.Event()
    with served(*(log_of(name, table) for name, table in TABLES.items())) as servers:
        running = Running(
            detection(QUERY, listed(tmp_path, servers), DEFAULT_COLUMNS, plan="a -> b -> c", timeout=0.2, attempts=2)
        )
        answer = FlightLog.do_get

        def hanging(log: FlightLog, context: object, ticket: object) -> object:
            if log is servers[1]:
                over.wait(30)
            return answer(log, context, ticket)

        monkeypatch.setattr(FlightLog, "do_get", hanging)
        matches = list(running.matches())
        over.set()
    assert not any(table.num_rows for table in matches)
    assert {(gap.source, gap.stream, gap.reason) for gap in running.gaps} == {("second", "B", "no answer")}


# --- what is refused --------------------------------------------------------------------------------------------------


def test_wrong_tokens_and_addresses_are_refused_with_the_address(tmp_path: Path) -> None:
    with served(log_of("first", TABLES["first"]), token="right") as (server,):
        for token in (None, "wrong"):
            with pytest.raises(InputProblem, match="refuses the token") as problem:
                FlightSource("first", server.address, token).describe()
            assert server.address in str(problem.value)
    with pytest.raises(InputProblem, match="cannot be reached"):
        FlightSource("gone", "grpc://127.0.0.1:1").describe()
    with pytest.raises(InputProblem, match="is no address of a source"):
        FlightSource("odd", "").describe()


def test_a_server_listens_elsewhere_only_with_a_token() -> None:
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
        with pytest.raises(InputProblem, match="without a token"):
            ServerOptions(host)
        assert ServerOptions(host, token="t").host == host
    assert [ServerOptions(host).token for host in ("127.0.0.1", "localhost", "::1")] == [None] * 3
    with pytest.raises(InputProblem, match="TLS with a certificate or a key alone"):
        ServerOptions(certificate=b"x")


BAD = {"no JSON": b"\xff", "a list": b"[]", "version": b'{"protocol": 99}', "missing": b'{"protocol": 1, "number": 1}'}


@pytest.mark.parametrize("name", BAD)
def test_garbage_is_refused(name: str) -> None:
    with served(log_of("first", TABLES["first"])) as (server,), flight.connect(server.address) as client:
        with pytest.raises(flight.FlightError, match=r"not JSON|object|version|complete"):
            client.do_get(flight.Ticket(BAD[name])).read_all()
        with pytest.raises(flight.FlightError, match="no action"):
            list(client.do_action(flight.Action("shutdown", b"")))


OTHER = {
    "id string": pa.table({"type": ["C"], "ts": [1], "id": ["x"]}),
    "ts timestamp[us]": pa.table({"type": ["C"], "ts": pa.array([1], pa.timestamp("us")), "id": [1]}),
    "type int64": pa.table({"type": [3], "ts": [1], "id": [1]}),
}


@pytest.mark.parametrize("name", OTHER)
def test_a_source_with_another_schema_is_refused_with_its_address(name: str, tmp_path: Path) -> None:
    column, _, kind = name.partition(" ")
    with served(log_of("first", TABLES["first"]), log_of("other", OTHER[name])) as servers:
        with pytest.raises(InputProblem, match="one type in all inputs") as problem:
            detection(QUERY, listed(tmp_path, servers), DEFAULT_COLUMNS)
        text = str(problem.value)
        assert f"the column `{column}` is " in text
        assert f"and {kind} in the source `other` at {servers[1].address}" in text
        assert f" in the source `first` at {servers[0].address}" in text


FOREIGN = {
    "one result": ([b"hello"], ""),
    "no JSON": ([b"hello", b"you"], ": the description of `x` is not JSON"),
    "version": ([b'{"protocol": 99}', b"you"], ": `x` speaks version 99 of the protocol"),
    "no types": ([f'{{"protocol": {PROTOCOL}}}'.encode(), b"you"], ": the description of `x` is not complete"),
    "no action": (None, ""),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_server_that_is_no_source_is_refused_with_its_address(name: str) -> None:
    results, reason = FOREIGN[name]

    class Foreign(flight.FlightServerBase):  # type: ignore[misc]
        def do_action(self, context: object, action: object) -> Iterator[bytes]:
            if results is None:
                raise NotImplementedError
            return iter(results)

    server = Foreign("grpc://127.0.0.1:0")
    address = f"grpc://127.0.0.1:{server.port}"
    with pytest.raises(InputProblem) as problem:
        FlightSource("x", address).describe()
    server.shutdown()
    assert f"`x` at {address} is no source of this version of Cepheid{reason}" in str(problem.value)
    assert "Traceback" not in str(problem.value)


HOSTILE = (
    "1 = 1\ncomplex G event A",
    "e.id > 1 schema x as e.id",
    "e.id >",
    "e.nothing > 1",
    "f.id > 1",
    "(" * 5_000 + "1" + ")" * 5_000,
    "e.id > 1 " + "and e.id > 1 " * 3_000,
)


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_hostile_condition_is_refused(number: int) -> None:
    from cepheid.io.flight_messages import request_bytes

    with served(log_of("first", TABLES["first"])) as (server,), flight.connect(server.address) as client:
        request = Request(1, "first", "A", 0, 20_000, filter=HOSTILE[number])
        with pytest.raises(flight.FlightError) as problem:
            client.do_get(flight.Ticket(request_bytes(request))).read_all()
        assert "Traceback" not in str(problem.value)
        fine = Request(1, "first", "A", 0, 20_000, filter="e.id > 1", columns=("ts",))
        table = client.do_get(flight.Ticket(request_bytes(fine))).read_all()
        assert table.column_names == ["ts"]
        assert table.num_rows == sum(1 for value in TABLES["first"]["id"].to_pylist() if value > 1)


def test_a_pull_has_both_ends_and_large_answers_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    from cepheid.detection import flight_server
    from cepheid.io.flight_messages import request_bytes

    monkeypatch.setattr(flight_server, "MAX_EVENTS", 100)
    with served(log_of("third", TABLES["third"])) as (server,), flight.connect(server.address) as client:
        with pytest.raises(flight.FlightError, match="a pull without both ends"):
            client.do_get(flight.Ticket(request_bytes(Request(1, "third", "C", 0, 2**62)))).read_all()
        reader = client.do_get(flight.Ticket(request_bytes(Request(1, "third", "C", 0, 20_000))))
        chunks = [(chunk.data.num_rows, json.loads(chunk.app_metadata.to_pybytes())) for chunk in reader]
    assert [count for count, _ in chunks] == [100] * 15
    ends = [metadata for _, metadata in chunks]
    assert all(a["complete"] + 1 == b["begin"] for a, b in itertools.pairwise(ends))
    assert (ends[0]["begin"], ends[-1]["complete"]) == (0, 20_000)


def test_a_log_drops_what_is_older_than_its_retention() -> None:
    log = GrowingLog("short", DEFAULT_COLUMNS, retention=100)
    for time in range(0, 2_000, 10):
        log.append(pa.table({"type": ["A"], "ts": [time], "id": [1]}))
    assert log.retained == 1_890
    answer = log.answer(Request(1, "short", "A", 0, 1_950), 0, False, None)
    assert answer.retained == 1_890
    assert answer.complete == 1_950
    assert log.describe().types["A"].count < 90


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_tls_needs_the_certificate_of_the_server(tmp_path: Path) -> None:
    made = {}
    for name in ("right", "wrong"):
        key, certificate = tmp_path / f"{name}.key", tmp_path / f"{name}.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(command, check=True, capture_output=True)
        made[name] = (key, certificate)
    key, certificate = made["right"]
    options = {"host": "localhost", "certificate": certificate.read_bytes(), "key": key.read_bytes(), "token": "t"}
    with served(log_of("first", TABLES["first"]), **options) as (server,):
        assert server.address.startswith("grpc+tls://localhost:")
        described = FlightSource("first", server.address, "t", str(certificate)).describe()
        assert described.types["A"].count == 12
        for untrusted in (None, str(made["wrong"][1])):
            with pytest.raises(InputProblem, match="cannot be reached") as problem:
                FlightSource("first", server.address, "t", untrusted).describe()
            assert server.address in str(problem.value)


def test_a_source_without_new_events_is_no_gap(tmp_path: Path) -> None:
    """It says that nothing has come: also for longer than requests may take. What comes then is found."""
    query = "complex Q on A as a, B as b event and(a, b; 10)"
    logs = [log_of(kind, pa.table({"type": [kind], "ts": [5]}), ended=False) for kind in "AB"]
    found: list[pa.Table] = []
    with served(*logs) as servers:
        options: dict[str, Any] = {"timeout": 0.2, "attempts": 2, "plan": "a -> b", "adapt_every": None}
        running = Running(detection(query, listed(tmp_path, servers), DEFAULT_COLUMNS, **options))
        logs[1].append(pa.table({"type": ["B"], "ts": [100]}))  # `A` is silent meanwhile

        def feed() -> None:
            threading.Event().wait(2)
            logs[0].append(pa.table({"type": ["A"], "ts": [95]}))
            for log in logs:
                log.end()

        threading.Thread(target=feed, daemon=True).start()
        found = list(running.matches())
    assert running.gaps == []
    assert sorted(end for table in found for end in table["match_end"].to_pylist()) == [5, 100]
