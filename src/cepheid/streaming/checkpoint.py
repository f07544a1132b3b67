"""The checkpoint directory of a stream: Spark's files, and Cepheid's beside them.

`_cepheid/stream.json` describes the stream that the checkpoint belongs to. Another stream is refused before it runs.
`_cepheid/owner.json` names the driver that owns the checkpoint. Of two drivers on one checkpoint the second is refused,
if the file system has locks; otherwise the second takes over, and the first stops before it writes again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any

from cepheid.errors import InputProblem, shown
from cepheid.io.stream_rows import RESUME
from cepheid.streaming.bucket_context import NOTHING, Moved
from cepheid.streaming.integrity import SparkFiles
from cepheid.streaming.parts import read_moved, write_moved
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.sinks import require_empty
from cepheid.streaming.state import STATE_FORMAT
from cepheid.streaming.storage import Directory, LocalDirectory
from cepheid.streaming.versions import SavedVersion
from cepheid.version import __version__

OWN_DIRECTORY = "_cepheid"
_STREAM, _OWNER, _LOCK = "stream.json", "owner.json", "lock"
_CHECKSUM = "checksum"
DIRECTORY = "directory"
"""The resolved path of the input, or those of several, in the description of the input."""
_MOVED = "moved"
"""The directory of the states of queries that were moved, each file named by its version."""
REQUESTS = "requests"
"""The directory of requests to change the queries."""
VERSIONS = "versions"
"""The versions of the queries, in the description."""
OUTPUTS = "outputs"
"""The paths of the outputs, in the description."""
_NEW_ONE = "use a new checkpoint directory, or the query and options that this one was written with"


@dataclass(frozen=True, slots=True)
class Checkpoint(SparkFiles):
    """Spark's files, and those of Cepheid beside them."""

    @property
    def own(self) -> Directory:
        return self.directory.inside(OWN_DIRECTORY)

    @property
    def location(self) -> str:
        """The path for Spark."""
        return str(self.directory.path) if isinstance(self.directory, LocalDirectory) else self.path

    # --- the description ----------------------------------------------------------------------------------------------

    def description(self) -> dict[str, Any] | None:
        """The content of `stream.json`; None if the checkpoint is new, or no stream ever ran on it."""
        if not self.has_started:
            return None
        content, name = self.own.read(_STREAM), f"{OWN_DIRECTORY}/{_STREAM}"
        if content is None:
            if self.own.names():
                raise self.missing(name)
            raise InputProblem(
                f"the checkpoint `{shown(self.path, 200)}` was not written by Cepheid", hint="use another one"
            )
        description = self.json_object(name, content)
        checksum = description.pop(_CHECKSUM, None)  # version 0.1 wrote none
        if checksum is not None and checksum != _checksum(description):
            raise self.damaged_description("it does not agree with its checksum")
        known = description.get("stream")
        if not isinstance(known, dict) or not isinstance(known.get("buckets"), int) or "cepheid" not in description:
            raise self.damaged_description("it does not describe a stream")
        if known.get("state format") != STATE_FORMAT:
            raise InputProblem(
                f"the checkpoint `{shown(self.path, 200)}` has state format {known.get('state format')}, written by "
                f"Cepheid {description['cepheid']}; this version reads format {STATE_FORMAT}",
                hint="finish the stream with the version that wrote it, or use a new checkpoint and a new output",
            )
        return description

    def damaged_description(self, reason: str) -> InputProblem:
        return self.damaged(f"{OWN_DIRECTORY}/{_STREAM}", reason)

    def require_intact(self) -> None:
        """Raises an error that names a file of the checkpoint that is damaged or missing."""
        if self.has_started:
            self.description()
            SparkFiles.require_intact(self)

    def settle(self, description: Mapping[str, Any], more: Mapping[str, Any]) -> None:
        """Writes the description to a new checkpoint, with `more`. Refuses a checkpoint with another description."""
        known = self.description()
        if known is None:
            self._write({"cepheid": __version__, "stream": description, **more})
            return
        changes = list(_changes(known["stream"], json.loads(json.dumps(description))))
        if changes:
            raise InputProblem(
                f"the checkpoint `{shown(self.path, 200)}` belongs to another stream: {'; '.join(changes)}",
                expected=f"the stream that wrote it, with Cepheid {known['cepheid']} (this is {__version__})",
                hint=_NEW_ONE,
            )

    # --- versions -----------------------------------------------------------------------------------------------------

    @property
    def next_batch(self) -> int:
        """The first batch that has no events yet. One that has is repeated with the queries that it had."""
        return max(self.batches("offsets"), default=-1) + 1

    @property
    def first_uncommitted(self) -> int:
        """The first batch that is not complete."""
        return max(self.batches("commits"), default=-1) + 1

    def versions(self) -> list[SavedVersion]:
        """The versions that a batch may still need, the newest last; none for a new checkpoint."""
        known = self.description()
        try:
            saved = [] if known is None else [SavedVersion.of_data(data) for data in known.get(VERSIONS, ())]
        except (LookupError, TypeError) as problem:
            raise self.damaged_description("it does not describe the queries") from problem
        needed = [one for one, later in pairwise(saved) if later.first_batch > self.first_uncommitted]
        return [*needed, *saved[-1:]]

    def record_version(self, plan: StreamPlan, first_batch: int) -> None:
        """Stores a version that holds from a batch on. It replaces one that no batch had."""
        known = self.description()
        assert known is not None, "a stream that changes has started"
        versions = [
            *(one for one in self.versions() if one.first_batch < first_batch),
            SavedVersion.of(plan, first_batch),
        ]
        data = [one.to_data() for one in versions]
        self._write({**known, "stream": plan.description(), **plan.for_inspection(), VERSIONS: data})

    # --- states of queries that move ----------------------------------------------------------------------------------

    def moved(self, plan: StreamPlan) -> Moved:
        """The states that the version of the last move began with."""
        if not plan.moved:
            return NOTHING
        name = str(plan.moved)
        content = self.own.inside(_MOVED).read(name)
        if content is None:
            raise self.missing(f"{OWN_DIRECTORY}/{_MOVED}/{name}")
        return read_moved(content, plan.fingerprint())

    def write_moved(self, plan: StreamPlan, moved: Moved) -> None:
        """Before the version itself is recorded; the files of versions that no batch needs are removed."""
        directory = self.own.inside(_MOVED)
        directory.write(str(plan.moved), write_moved(moved, plan.fingerprint()))
        needed = {str(plan.moved), *(str(one.lineage.moved) for one in self.versions())}
        for name in directory.names():
            if name not in needed:
                directory.remove(name)

    def require_outputs(self, directories: Iterable[Directory]) -> None:
        """Refuses a directory with output that is not of this stream."""
        known = self.description() or {OUTPUTS: ()}
        if OUTPUTS in known:  # version 0.1 did not record them
            for directory in directories:
                if directory.name not in known[OUTPUTS]:
                    require_empty(directory, self.path)

    def record(self, input: str | Sequence[str] | None, outputs: Iterable[Directory]) -> None:
        """Records where the input is now, and to which directories the stream writes."""
        known = self.description()
        if known is None:
            return
        names = sorted({*known.get(OUTPUTS, ()), *(directory.name for directory in outputs)})
        moved = {} if input is None else {DIRECTORY: input}
        now = {**known, "input": {**known["input"], **moved}, OUTPUTS: names}
        if now != known:
            self._write(now)

    def _write(self, description: Mapping[str, Any]) -> None:
        content = {**description, _CHECKSUM: _checksum(description)}
        self.own.write(_STREAM, json.dumps(content, indent=1).encode())

    @property
    def is_in_use(self) -> bool:
        """Whether a process runs the stream, if the file system has locks."""
        own = self.own
        if not isinstance(own, LocalDirectory) or not (own.path / _LOCK).exists():
            return False
        with (own.path / _LOCK).open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

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
        at = shown(str(problem.filename or path), 200)
        raise InputProblem(
            f"cannot use the checkpoint `{shown(path, 200)}`: `{at}`: {problem.strerror}", hint=RESUME
        ) from problem
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


def _checksum(description: Mapping[str, Any]) -> str:
    text = json.dumps(description, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


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
