"""Serves a log of events over Arrow Flight: descriptions, pulls and subscriptions.

Requests are hostile until they are checked. A server listens on the loopback address unless it has a token."""

from __future__ import annotations

import hmac
import ipaddress
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from cepheid.acquire.requests import Answer, Request
from cepheid.detection.source_filter import Filters
from cepheid.errors import CepheidError, InputProblem, shown
from cepheid.io.event_columns import ticks_of
from cepheid.io.event_log import Keep
from cepheid.io.flight_messages import (
    COLUMNS_CHANGED,
    DESCRIBE,
    answer_metadata,
    description_bytes,
    filters_of_bytes,
    request_of,
)
from cepheid.io.growing_log import GrowingLog

MAX_EVENTS = 100_000
"""Events in one message: an answer with more is split."""
_TOKEN = "authorization"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server is reached, and what it does to its messages for experiments."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    beat: float = 0.2
    """Seconds after which a subscription reports that nothing has happened."""
    delay: float = 0.0
    """Seconds by which each message is delayed, one way."""
    loss: float = 0.0
    """The share of answers that are not sent."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.token is None and not _is_loopback(self.host):
            raise InputProblem(
                f"a source that listens on `{shown(self.host)}` without a token",
                expected="a token, or a loopback address such as 127.0.0.1",
                hint="set a token: --token-file FILE",
            )
        if (self.certificate is None) != (self.key is None):
            raise InputProblem("TLS with a certificate or a key alone", expected="--tls-certificate and --tls-key")
        if not 0 <= self.loss < 1:
            raise InputProblem(f"a loss of {self.loss}", expected="a share from 0 to below 1")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Tokens(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses calls without the token."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: Any) -> None:
        found = [value for name, values in headers.items() if name.lower() == _TOKEN for value in values]
        given = found[0] if found else ""
        if not hmac.compare_digest(given.encode() if isinstance(given, str) else given, self._expected):
            raise flight.FlightUnauthenticatedError("no or wrong token")


@dataclass(slots=True)
class _Serving:
    """What the calls of a server share."""

    log: GrowingLog
    options: ServerOptions
    random: random.Random
    _filters: Filters | None = None

    @property
    def filters(self) -> Filters:
        return self._filters_of(self.log.described_schema())

    def _filters_of(self, schema: pa.Schema) -> Filters:
        if self._filters is None or self._filters.schema != schema:
            self._filters = Filters(schema, self.log.columns)
        return self._filters

    def schema(self, request: Request) -> pa.Schema:
        """The columns of the answers of a request."""
        return _sent_columns(request, self.log.described_schema())

    def answers(self, request: Request, schema: pa.Schema) -> Iterator[Answer]:
        """The answers of a request, in these columns; those of a subscription until its end."""
        time.sleep(self.options.delay)
        keep = self._keep(request, schema)
        answer = self.log.answer(request, request.begin, False, keep)
        yield from _split(answer, self.log)
        while request.follow and answer.complete < request.end:
            reported = max(answer.complete, request.begin - 1)
            self.log.wait(reported, self.options.beat)
            answer = self.log.answer(request, reported + 1, True, keep)
            yield from _split(answer, self.log)

    def _keep(self, request: Request, schema: pa.Schema) -> Keep:
        """Applies the condition of a request to events in the columns that the log has then. If these change what is
        sent, the answer ends: it has the columns with which it began."""

        def keep(events: pa.RecordBatch) -> pa.RecordBatch:
            if _sent_columns(request, events.schema) != schema:
                raise InputProblem(COLUMNS_CHANGED)
            return self._filters_of(events.schema).kept_of(request, events)

        return keep

    def messages(self, request: Request, schema: pa.Schema) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        try:
            for answer in _delayed(self.answers(request, schema), self.options.delay):
                if self.random.random() >= self.options.loss:
                    yield answer.events.cast(schema), answer_metadata(answer)
        except CepheidError as problem:
            raise flight.FlightServerError(problem.what) from None


def _sent_columns(request: Request, schema: pa.Schema) -> pa.Schema:
    """The columns of a log that a request asks for."""
    if request.columns is None:
        return schema
    return pa.schema([schema.field(name) for name in dict.fromkeys(request.columns) if name in schema.names])


def _delayed(answers: Iterator[Answer], delay: float) -> Iterator[Answer]:
    """The answers, each so many seconds after it was made. Those that follow are made meanwhile."""
    if not delay:
        yield from answers
        return
    made: queue.SimpleQueue[tuple[float, Answer | Exception | None]] = queue.SimpleQueue()
    stopped = threading.Event()

    def make() -> None:
        try:
            for answer in answers:
                made.put((time.monotonic() + delay, answer))
                if stopped.is_set():
                    return
            made.put((time.monotonic(), None))
        except Exception as problem:  # it is raised where the answers are read
            made.put((time.monotonic(), problem))

    threading.Thread(target=make, daemon=True).start()
    try:
        while True:
            due, item = made.get()
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            time.sleep(max(due - time.monotonic(), 0.0))
            yield item
    finally:
        stopped.set()


def _split(answer: Answer, log: GrowingLog) -> Iterator[Answer]:
    """Answers of at most MAX_EVENTS events, each about a range of time of its own. Events of one time stay together."""
    if answer.events.num_rows <= MAX_EVENTS:
        yield answer
        return
    times = ticks_of(answer.events.column(log.columns.time), log.columns.time)
    begin, row = answer.begin, 0
    while row < len(times):
        last = int(np.searchsorted(times, times[min(row + MAX_EVENTS, len(times)) - 1], "right"))
        complete = answer.complete if last >= len(times) else int(times[last]) - 1
        yield replace(answer, begin=begin, complete=complete, events=answer.events.slice(row, last - row))
        begin, row = complete + 1, last


class FlightLog(flight.FlightServerBase):  # type: ignore[misc]
    """A server of one log. It answers from when it is made until `shutdown`.

    Nobody calls `serve`, which only waits for signals: when it ends, Arrow shuts down the server of the process that
    began to wait last, whichever that is."""

    def __init__(self, log: GrowingLog, options: ServerOptions) -> None:
        scheme = "grpc" if options.certificate is None else "grpc+tls"
        settings: dict[str, Any] = {}
        if options.token is not None:
            settings["middleware"] = {"token": _Tokens(options.token)}
        if options.certificate is not None:
            settings["tls_certificates"] = [(options.certificate, options.key)]
        host = f"[{options.host}]" if ":" in options.host else options.host
        super().__init__(f"{scheme}://{host}:{options.port}", **settings)
        self.address = f"{scheme}://{host}:{self.port}"
        self._serving = _Serving(log, options, random.Random(options.seed))

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        if action.type != DESCRIBE:
            raise flight.FlightServerError(f"no action `{shown(action.type)}`")
        filters = _checked(lambda: filters_of_bytes(action.body.to_pybytes()))
        description = _checked(lambda: self._serving.log.describe(self._serving.filters.kept(filters)))
        return iter([description_bytes(description), description.schema.serialize().to_pybytes()])

    def do_get(self, context: Any, ticket: Any) -> Any:
        request = _checked(lambda: request_of(ticket.ticket))
        log = self._serving.log
        schema = _checked(lambda: self._serving.schema(request))
        if log.columns.time not in schema.names:
            raise flight.FlightServerError(f"the columns of a request include `{log.columns.time}`")
        _checked(lambda: self._serving.filters.keep(request))
        return flight.GeneratorStream(schema, self._serving.messages(request, schema))


def _checked(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except CepheidError as problem:
        raise flight.FlightServerError(str(problem.what)) from None
