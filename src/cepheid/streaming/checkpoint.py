"""The checkpoint directory of a stream: Spark's files, and Cepheid's beside them.

`_cepheid/stream.json` describes the stream that the checkpoint belongs to. Another stream is refused before it runs.
`_cepheid/owner.json` names the driver that owns the checkpoint. Of two drivers on one checkpoint the second is refused,
if the file system has locks; otherwise the second takes over, and the first stops before it writes again.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from cepheid.errors import InputProblem, shown
from cepheid.streaming.storage import Directory, LocalDirectory
from cepheid.version import __version__

OWN_DIRECTORY = "_cepheid"
_STREAM, _OWNER, _LOCK = "stream.json", "owner.json", "lock"
_SPARK_METADATA = "metadata"
"""The file that Spark writes when a stream first starts."""
_NEW_ONE = "use a new checkpoint directory, or the query and options that this one was written with"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    directory: Directory
    path: str
    """As the user wrote it."""

    @property
    def own(self) -> Directory:
        return self.directory.inside(OWN_DIRECTORY)

    # --- the description ----------------------------------------------------------------------------------------------

    def description(self) -> dict[str, Any] | None:
        """The content of `stream.json`; None if the checkpoint is new, or no stream ever ran on it."""
        content, by_spark = self.own.read(_STREAM), self.directory.read(_SPARK_METADATA)
        started = by_spark is not None
        if content is None and started:
            raise InputProblem(
                f"the checkpoint `{shown(self.path, 200)}` was not written by Cepheid", hint="use another one"
            )
        if content is None or not started:
            return None
        self._object(_SPARK_METADATA, by_spark)
        return self._object(f"{OWN_DIRECTORY}/{_STREAM}", content)

    def _object(self, name: str, content: bytes | None) -> dict[str, Any]:
        try:
            parsed = json.loads(content or b"")
        except ValueError as problem:
            raise self._damaged(name) from problem
        if not isinstance(parsed, dict):
            raise self._damaged(name)
        return parsed

    def _damaged(self, name: str) -> InputProblem:
        return InputProblem(
            f"`{name}` in the checkpoint `{shown(self.path, 200)}` is damaged",
            hint="restore it from a copy, or use a new checkpoint directory and a new output",
        )

    def settle(self, description: Mapping[str, Any], more: Mapping[str, Any]) -> None:
        """Writes the description to a new checkpoint, with `more`. Refuses a checkpoint with another description."""
        known = self.description()
        if known is None:
            content = {"cepheid": __version__, "stream": description, **more}
            self.own.write(_STREAM, json.dumps(content, indent=1).encode())
            return
        changes = list(_changes(known["stream"], json.loads(json.dumps(description))))
        if changes:
            raise InputProblem(
                f"the checkpoint `{shown(self.path, 200)}` belongs to another stream: {'; '.join(changes)}",
                expected=f"the stream that wrote it, with Cepheid {known['cepheid']} (this is {__version__})",
                hint=_NEW_ONE,
            )

    # --- the owner ----------------------------------------------------------------------------------------------------

    def take(self) -> Ownership:
        lock: IO[str] | None = None
        own = self.own
        if isinstance(own, LocalDirectory):
            lock = _locked(own, self.path)
        ownership = Ownership(self, f"{socket.gethostname()} process {os.getpid()} {uuid.uuid4().hex}", lock)
        try:
            own.write(_OWNER, json.dumps({"owner": ownership.name}).encode())
        except BaseException:
            ownership.release()
            raise
        return ownership


@dataclass(frozen=True, slots=True)
class Ownership:
    """The right to write the output of a checkpoint's stream."""

    checkpoint: Checkpoint
    name: str
    lock: IO[str] | None

    def require(self) -> None:
        content = self.checkpoint.own.read(_OWNER)
        owner = _named_in(content, "nobody")
        if owner != self.name:
            raise InputProblem(
                f"another driver has taken over the checkpoint `{shown(self.checkpoint.path, 200)}`: "
                f"{shown(owner, 100)}",
                hint="stop one of the two; nothing was written twice",
            )

    def release(self) -> None:
        if self.lock is not None:
            self.lock.close()


def _locked(own: LocalDirectory, path: str) -> IO[str]:
    """The lock ends with the process, however that ends."""
    try:
        own.path.mkdir(parents=True, exist_ok=True)
        handle = (own.path / _LOCK).open("a")
    except OSError as problem:
        raise InputProblem(f"cannot use the checkpoint `{shown(path, 200)}`: {problem.strerror}") from problem
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        handle.close()
        owner = _named_in(own.read(_OWNER), "another process")
        raise InputProblem(
            f"the checkpoint `{shown(path, 200)}` is in use by {shown(owner.rpartition(' ')[0] or owner, 100)}",
            hint="wait until that stream has stopped, or stop it",
        ) from problem
    return handle


def _named_in(content: bytes | None, otherwise: str) -> str:
    """The owner that a file names; `otherwise` if the file is damaged."""
    try:
        return str(json.loads(content or b"")["owner"])
    except (ValueError, KeyError, TypeError):
        return otherwise


def _changes(known: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*known, *now]):
        before, after = known.get(name), now.get(name)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            for inner in dict.fromkeys([*before, *after]):
                if before.get(inner) != after.get(inner):
                    yield f"{name} of `{shown(inner)}`: {_value(before.get(inner))}, now {_value(after.get(inner))}"
        else:
            yield f"{name}: {_value(before)}, now {_value(after)}"


def _value(value: Any) -> str:
    if value is None:
        return "nothing"
    return f"`{shown(' '.join(value.split()) if isinstance(value, str) else json.dumps(value), 160)}`"
