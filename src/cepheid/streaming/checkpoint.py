"""A checkpoint directory of a stream: Spark's own files, and beside them what Cepheid must know of it.

`_cepheid/stream.json` says what the checkpoint was made by; a stream that differs is refused before anything runs.
`_cepheid/owner.json` says who works on it: of two drivers on one checkpoint, the one that came first is left in peace
where a lock can tell, and elsewhere the one that came last goes on and the other stops before it writes.
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
_BY_SPARK = "metadata"
"""The file that Spark writes when a stream first starts."""
_NEW_ONE = "use a new checkpoint directory, or the query and settings that this one was made with"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    directory: Directory
    path: str
    """As the user wrote it."""

    @property
    def own(self) -> Directory:
        return self.directory.inside(OWN_DIRECTORY)

    # --- what it was made by ------------------------------------------------------------------------------------------

    def description(self) -> dict[str, Any] | None:
        """What the checkpoint was made by; None if it is new, or nothing ever ran on it."""
        content, by_spark = self.own.read(_STREAM), self.directory.read(_BY_SPARK)
        started = by_spark is not None
        if content is None and started:
            raise InputProblem(
                f"the checkpoint `{shown(self.path, 200)}` was not made by Cepheid", hint="use another one"
            )
        if content is None or not started:
            return None
        self._object(_BY_SPARK, by_spark)
        return self._object(f"{OWN_DIRECTORY}/{_STREAM}", content)

    def _object(self, name: str, content: bytes | None) -> dict[str, Any]:
        try:
            found = json.loads(content or b"")
        except ValueError as problem:
            raise self._damaged(name) from problem
        if not isinstance(found, dict):
            raise self._damaged(name)
        return found

    def _damaged(self, name: str) -> InputProblem:
        return InputProblem(
            f"`{name}` in the checkpoint `{shown(self.path, 200)}` is damaged",
            hint="restore it from a copy, or use a new checkpoint directory and a new output",
        )

    def settle(self, description: Mapping[str, Any], more: Mapping[str, Any]) -> None:
        """Makes the checkpoint that of this stream, or refuses it if it is another's. `more` is kept with it from the
        first start on."""
        known = self.description()
        if known is None:
            made = {"cepheid": __version__, "stream": description, **more}
            self.own.write(_STREAM, json.dumps(made, indent=1).encode())
            return
        changes = list(_changes(known["stream"], json.loads(json.dumps(description))))
        if changes:
            raise InputProblem(
                f"the checkpoint `{shown(self.path, 200)}` belongs to another stream: {'; '.join(changes)}",
                expected=f"what it was made with, by Cepheid {known['cepheid']} (this is {__version__})",
                hint=_NEW_ONE,
            )

    # --- who works on it ----------------------------------------------------------------------------------------------

    def take(self) -> Ownership:
        held: IO[str] | None = None
        own = self.own
        if isinstance(own, LocalDirectory):
            held = _locked(own, self.path)
        ownership = Ownership(self, f"{socket.gethostname()} process {os.getpid()} {uuid.uuid4().hex}", held)
        try:
            own.write(_OWNER, json.dumps({"owner": ownership.name}).encode())
        except BaseException:
            ownership.release()
            raise
        return ownership


@dataclass(frozen=True, slots=True)
class Ownership:
    """The right to write what a checkpoint's stream gives out."""

    checkpoint: Checkpoint
    name: str
    held: IO[str] | None

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
        if self.held is not None:
            self.held.close()


def _locked(own: LocalDirectory, path: str) -> IO[str]:
    """The lock goes with the process, however it ends."""
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
    """The owner that a file names; a damaged one names none."""
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
