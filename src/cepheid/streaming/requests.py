"""Requests to change the queries of a stream, as files in its checkpoint.

`_cepheid/requests/ID.json` is a request, which the process that runs the stream takes and answers with
`_cepheid/requests/ID.answer`. A request to a stream that does not run is taken at its next start.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from cepheid.deploy.changes import Change
from cepheid.deploy.deployment import Written
from cepheid.errors import CepheidError, InputProblem
from cepheid.streaming.storage import Directory

_REQUEST, _ANSWER = ".json", ".answer"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request: the version that it made, or the reason why it was refused."""

    version: int | None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests in a checkpoint."""

    directory: Directory

    def send(self, change: Change) -> str:
        """Writes a request; returns its name."""
        name = f"{time.time_ns():020d}"
        content = {"add": _data(change.add), "remove": list(change.remove), "replace": _data(change.replace)}
        content["move"] = dict(change.move)
        self.directory.write(f"{name}{_REQUEST}", json.dumps(content).encode())
        return name

    def waiting(self) -> list[str]:
        """The names of the requests without an answer, in their order."""
        return sorted(name.removesuffix(_REQUEST) for name in self.directory.names() if name.endswith(_REQUEST))

    def change(self, name: str) -> Change:
        content = self.directory.read(f"{name}{_REQUEST}") or b""
        try:
            data = json.loads(content)
            move = {str(query): int(slot) for query, slot in data.get("move", {}).items()}
            return Change(_written(data["add"]), tuple(data["remove"]), _written(data["replace"]), move)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise InputProblem("the request cannot be read", hint="send it again") from problem

    def answer(self, name: str, version: int | None, error: CepheidError | None = None) -> None:
        """The answer is written first: a request that is answered twice changes nothing, since it is refused."""
        data = {"version": version, "refused": None if error is None else str(error)}
        self.directory.write(f"{name}{_ANSWER}", json.dumps(data).encode())
        self.directory.remove(f"{name}{_REQUEST}")

    def answered(self, name: str) -> Answer | None:
        content = self.directory.read(f"{name}{_ANSWER}")
        return None if content is None else Answer(**json.loads(content))

    def unread(self) -> list[str]:
        """The names of the requests that were answered, and whose answers nobody has read."""
        return sorted(name.removesuffix(_ANSWER) for name in self.directory.names() if name.endswith(_ANSWER))

    def forget(self, name: str) -> None:
        self.directory.remove(f"{name}{_ANSWER}")


def _data(queries: Any) -> dict[str, dict[str, str]]:
    return {name: {"text": str(written.source), "dialect": written.dialect} for name, written in queries.items()}


def _written(data: Any) -> dict[str, Written]:
    return {name: Written(name, str(of["text"]), str(of["dialect"])) for name, of in data.items()}
