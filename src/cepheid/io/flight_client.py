"""A source behind Arrow Flight, as the base sees it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from cepheid.acquire.requests import Request
from cepheid.errors import CepheidError, InputProblem, SourceUnreachable, shown
from cepheid.io.asked_source import NO_COLUMNS, NO_FILTERS, Deliver, Description, Failure, without_columns
from cepheid.io.flight_messages import (
    COLUMNS_CHANGED,
    DESCRIBE,
    answer_of,
    description_of,
    filters_bytes,
    request_bytes,
)

_CONNECT_SECONDS = 10.0
_MOST_CHANGES = 50
"""How often a request is asked again at once because the columns have changed. More often it has failed."""


@dataclass(slots=True)
class FlightSource:
    """A server at an address (`grpc://host:port`, or `grpc+tls://` with a certificate)."""

    name: str
    address: str
    token: str | None = None
    certificate: str | None = None
    _client: Any = field(default=None, repr=False)
    _readers: dict[Any, int] = field(default_factory=dict, repr=False)
    """The open calls, with the numbers of their requests."""
    _cancelled: int = 0
    """Requests up to this number are cancelled."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _closed: bool = False

    @property
    def client(self) -> Any:
        if self._client is None:
            options: dict[str, Any] = {}
            if self.certificate is not None:
                try:
                    options["tls_root_certs"] = Path(self.certificate).read_bytes()
                except OSError as problem:
                    raise InputProblem(f"the certificate of `{shown(self.name)}` cannot be read: {problem}") from None
            try:
                self._client = flight.connect(self.address, **options)
            except (ValueError, flight.FlightError, OSError) as problem:
                raise InputProblem(f"`{shown(self.address)}` is no address of a source: {problem}") from None
        return self._client

    def _options(self, timeout: float | None = None) -> Any:
        headers = [] if self.token is None else [(b"authorization", f"Bearer {self.token}".encode())]
        return flight.FlightCallOptions(timeout=timeout, headers=headers)

    def describe(self, filters: Mapping[str, str] = NO_FILTERS) -> Description:
        action = flight.Action(DESCRIBE, filters_bytes(filters))
        try:
            results = list(self.client.do_action(action, self._options(_CONNECT_SECONDS)))
        except flight.FlightUnauthenticatedError:
            raise InputProblem(
                f"`{shown(self.name)}` at {self.address} refuses the token", expected="the token of its server"
            ) from None
        except (flight.FlightError, OSError) as problem:
            if NO_COLUMNS in str(problem):
                raise without_columns(self.name, f" at {self.address}") from None
            raise SourceUnreachable(
                f"`{shown(self.name)}` at {self.address} cannot be reached: {_first_line(problem)}",
                hint="is `cepheid source serve` running there, and does the certificate fit?",
            ) from None
        except pa.ArrowException:  # it has no such action, or fails in it
            raise self._foreign() from None
        if len(results) != 2:
            raise self._foreign()
        data, schema = (result.body.to_pybytes() for result in results)
        try:
            return description_of(self.name, data, schema)
        except InputProblem as problem:
            raise self._foreign(f": {problem.what}", problem.expected) from None

    def _foreign(self, reason: str = "", expected: str | None = None) -> InputProblem:
        return InputProblem(
            f"`{shown(self.name)}` at {self.address} is no source of this version of Cepheid{reason}",
            expected=expected or "the address of `cepheid source serve`",
        )

    def ask(self, request: Request, deliver: Deliver) -> None:
        threading.Thread(target=self._read, args=(request, deliver), daemon=True).start()

    def _read(self, request: Request, deliver: Deliver) -> None:
        """Reads the answers of a request, of a subscription until it ends."""
        left: Request | None = request
        for _ in range(_MOST_CHANGES):
            if left is None:
                return
            left = self._read_alike(left, deliver)
        if left is not None:
            deliver(Failure(left, COLUMNS_CHANGED))

    def _read_alike(self, request: Request, deliver: Deliver) -> Request | None:
        """Reads answers that have the same columns. Returns the rest of the request if later events have others."""
        reader, begin = None, request.begin
        try:
            reader = self.client.do_get(flight.Ticket(request_bytes(request)), self._options())
            with self._lock:
                self._readers[reader] = request.number
            while not self._closed and request.number > self._cancelled:
                chunk = reader.read_chunk()
                metadata = b"" if chunk.app_metadata is None else chunk.app_metadata.to_pybytes()
                answer = answer_of(request, chunk.data, metadata)
                begin = max(begin, answer.complete + 1)
                deliver(answer)
        except StopIteration:
            """The server has sent all."""
        except (CepheidError, flight.FlightError, OSError) as problem:
            if self._closed or request.number <= self._cancelled:
                return None
            if COLUMNS_CHANGED in str(problem) and begin <= request.end:
                return replace(request, begin=begin)
            deliver(Failure(request, _first_line(problem)))
        finally:
            with self._lock:
                self._readers.pop(reader, None)
        return None

    def cancel(self, last: int) -> None:
        self._cancelled = max(self._cancelled, last)
        with self._lock:
            readers = [reader for reader, number in self._readers.items() if number <= last]
        for reader in readers:
            reader.cancel()

    def close(self) -> None:
        self._closed = True
        with self._lock:
            readers = list(self._readers)
        for reader in readers:
            reader.cancel()


def _first_line(problem: Exception) -> str:
    return (
        str(problem).splitlines()[0].split(". gRPC client debug context")[0] if str(problem) else type(problem).__name__
    )
