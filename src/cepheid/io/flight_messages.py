"""Requests and answers as Arrow Flight carries them. What comes from outside is checked before it is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from cepheid.acquire.intervals import BEGINNING, END
from cepheid.acquire.keyed import MAX_KEYS
from cepheid.acquire.models import from_data, to_data
from cepheid.acquire.requests import Answer, Request, RequestKey
from cepheid.errors import InputProblem, shown
from cepheid.io.asked_source import PROTOCOL, Description, TypeDescription

DESCRIBE = "describe"
COLUMNS_CHANGED = "events have columns that none had before: ask again"
"""What a server says where it cannot go on with the columns that its answers have."""


def request_bytes(request: Request) -> bytes:
    return json.dumps({"protocol": PROTOCOL, **asdict(request)}).encode()


def request_of(data: bytes) -> Request:
    """Raises InputProblem if the bytes are no request."""
    fields = _object(data, "the request")
    require_protocol(fields.pop("protocol", None), "the base")
    try:
        columns = fields["columns"]
        request = Request(
            int(fields["number"]),
            str(fields["source"]),
            str(fields["stream"]),
            int(fields["begin"]),
            int(fields["end"]),
            bool(fields["follow"]),
            None if fields["filter"] is None else str(fields["filter"]),
            None if columns is None else tuple(str(name) for name in columns),
            _key(fields["key"]),
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise InputProblem(f"the request is not complete: {problem}") from None
    if not BEGINNING <= request.begin <= request.end <= END:
        raise InputProblem("the request ends before it begins")
    if not request.follow and (request.begin <= BEGINNING or request.end >= END):
        raise InputProblem("a pull without both ends", expected="the beginning and the end of a range of time")
    return request


def _key(data: Any) -> RequestKey | None:
    if data is None:
        return None
    name, keys = data
    if not isinstance(keys, list) or not all(isinstance(key, int | str) for key in keys) or len(keys) > MAX_KEYS:
        raise ValueError(f"keys are at most {MAX_KEYS} integers or strings")
    return str(name), tuple(keys)


def require_protocol(version: object, who: str) -> None:
    if version != PROTOCOL:
        raise InputProblem(
            f"{who} speaks version {shown(str(version))} of the protocol", expected=f"version {PROTOCOL}"
        )


def answer_metadata(answer: Answer) -> bytes:
    return json.dumps({"begin": answer.begin, "complete": answer.complete, "retained": answer.retained}).encode()


def answer_of(request: Request, events: pa.RecordBatch, metadata: bytes) -> Answer:
    fields = _object(metadata, "the answer")
    try:
        begin, complete, retained = (int(fields[name]) for name in ("begin", "complete", "retained"))
    except (KeyError, TypeError, ValueError) as problem:
        raise InputProblem(f"the answer of `{request.source}` is not complete: {problem}") from None
    if begin < request.begin or complete > request.end:
        raise InputProblem(
            f"`{request.source}` answers more than it was asked for",
            expected=f"an interval in {request.begin} to {request.end}",
        )
    return Answer(
        request.source,
        request.stream,
        begin,
        complete,
        retained,
        events,
        None if request.key is None else request.key[1],
    )


def description_bytes(description: Description) -> bytes:
    types = {
        kind: {**asdict(of), "model": to_data(of.model), "columns": list(of.columns), "distinct": dict(of.distinct)}
        for kind, of in description.types.items()
    }
    data = {
        "protocol": PROTOCOL,
        "name": description.name,
        "complete": description.complete,
        "retained": description.retained,
        "types": types,
    }
    return json.dumps(data).encode()


def filters_bytes(filters: Mapping[str, str]) -> bytes:
    return json.dumps({"protocol": PROTOCOL, "filters": dict(filters)}).encode()


def filters_of_bytes(data: bytes) -> dict[str, str]:
    """The conditions of a request for a description."""
    fields = _object(data, "the request")
    require_protocol(fields.get("protocol"), "the base")
    filters = fields.get("filters")
    if not isinstance(filters, dict):
        raise InputProblem("the request has no conditions", expected="an object, which may be empty")
    return {str(stream): str(text) for stream, text in filters.items()}


def description_of(name: str, data: bytes, schema: bytes) -> Description:
    """What a source says of itself, under the name that the base knows it by."""
    fields = _object(data, f"the description of `{name}`")
    require_protocol(fields.get("protocol"), f"`{name}`")
    try:
        types = {
            str(kind): TypeDescription(
                int(of["count"]),
                int(of["first"]),
                int(of["last"]),
                float(of["bytes"]),
                from_data(of["model"]),
                tuple(map(str, of["columns"])),
                {str(column): max(int(count), 1) for column, count in of["distinct"].items()},
            )
            for kind, of in fields["types"].items()
        }
        known = pa.ipc.read_schema(pa.py_buffer(schema))
        return Description(name, known, types, int(fields["complete"]), int(fields["retained"]))
    except (KeyError, TypeError, ValueError, AttributeError, pa.ArrowInvalid) as problem:
        raise InputProblem(f"the description of `{name}` is not complete: {problem}") from None


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as problem:
        raise InputProblem(f"{what} is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise InputProblem(f"{what} is not a JSON object")
    return found
