"""Checks Spark's files in a checkpoint before a stream resumes, so that an error names the file that is damaged.

Spark itself reports some damage in hundreds of lines, and repeats or skips input after other damage. Checked is what
Spark reads when it resumes: the newest entries of its logs (`offsets`, `commits`), and the state after the last
committed batch. Hadoop keeps the checksums of a file `12` in `.12.crc` on a local disk.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any

from cepheid.errors import InputProblem, shown
from cepheid.streaming.storage import Directory

METADATA = "metadata"
"""The file that Spark writes when a stream first starts."""
_CRC_HEADER = b"crc\0"
_STATE_FILE = re.compile(r"(\d+)\.(changelog|zip)")
_RESTORE = (
    "restore it from a copy of the checkpoint and start again; "
    "without a copy, use a new checkpoint and a new output, and all input is read again"
)


@dataclass(frozen=True, slots=True)
class SparkFiles:
    """The files of Spark in a checkpoint."""

    directory: Directory
    path: str
    """As the user wrote it, for messages."""

    @property
    def has_started(self) -> bool:
        """Whether a stream ever ran on the checkpoint."""
        return self.directory.read(METADATA) is not None or bool(self.batches("offsets") or self.batches("commits"))

    def batches(self, log: str) -> list[int]:
        """The numbers of the entries of a log, in order."""
        directory = self.directory.inside(log)
        for name in directory.directories():
            if name.isdecimal():
                raise self.damaged(f"{log}/{name}", "it is a directory")
        return sorted(int(name) for name in directory.names() if name.isdecimal())

    def require_intact(self) -> None:
        """Raises an error that names the first file that is damaged or missing."""
        self.json_object(METADATA, self._verified(METADATA))
        offsets, commits = self.batches("offsets"), self.batches("commits")
        for log, numbers in (("offsets", offsets), ("commits", commits)):
            for number in numbers:
                self.log_entry(f"{log}/{number}")
        if commits and commits[-1] not in offsets:
            raise self.missing(f"offsets/{commits[-1]}")
        if len(offsets) > 1 and offsets[-2] != offsets[-1] - 1:
            raise self.missing(f"offsets/{offsets[-1] - 1}")
        if len(offsets) == 1 and offsets[0] > 0:
            raise self.missing(f"offsets/{offsets[0] - 1}")
        if commits:
            self._require_state(commits[-1] + 1)

    def log_entry(self, name: str) -> list[Any]:
        """The lines of an entry of a log: a version, then JSON (or `-` for a source without an offset)."""
        version, *lines = self._verified(name).split(b"\n")
        if not re.fullmatch(rb"v\d+", version):
            raise self.damaged(name, "it does not begin with a version")
        try:
            return [None if line == b"-" else json.loads(line) for line in lines if line]
        except ValueError as problem:
            raise self.damaged(name, "a line is not JSON") from problem

    def _require_state(self, version: int) -> None:
        operator = "state/0"
        name = f"{operator}/_metadata/metadata"
        entry = self.log_entry(name)
        try:
            partitions = entry[0]["stateStoreInfo"][0]["numPartitions"]
        except (IndexError, KeyError, TypeError) as problem:
            raise self.damaged(name, "it names no partitions") from problem
        self._verified(f"{operator}/0/_metadata/schema")
        for partition in range(partitions):
            self._require_version(f"{operator}/{partition}", version)

    def _require_version(self, store: str, version: int) -> None:
        """A version is a snapshot and the changes since then, or all changes."""
        names = self._at(store).names()
        if any(re.match(r"\d+_", name) for name in names):
            return  # versions with other file names, as a later Spark may write them: Spark checks them
        found = [match for name in names if (match := _STATE_FILE.fullmatch(name))]
        changes = {int(match[1]) for match in found if match[2] == "changelog"}
        snapshots = {int(match[1]) for match in found if match[2] == "zip"}
        start = max((number for number in snapshots if number <= version), default=0)
        for number in range(start + 1, version + 1):
            if number not in changes:
                is_first = start == 0 and changes and number < min(changes)
                lacking = f"{store}/{min(changes) - 1 if is_first else number}"
                raise self.missing(f"{lacking}.changelog` or `{lacking}.zip" if is_first else f"{lacking}.changelog")
            self._verified(f"{store}/{number}.changelog")
        if start:
            self._require_snapshot(store, f"{store}/{start}.zip")

    def _require_snapshot(self, store: str, name: str) -> None:
        try:
            with zipfile.ZipFile(io.BytesIO(self._verified(name))) as snapshot:
                damaged = snapshot.testzip()
                listed = snapshot.read("metadata").partition(b"\n")[2]
        except (zipfile.BadZipFile, KeyError, EOFError, zlib.error) as problem:
            raise self.damaged(name, "it is not a complete ZIP file") from problem
        if damaged is not None:
            raise self.damaged(name, f"its part `{shown(damaged)}` is damaged")
        for file in self.json_object(name, listed).get("sstFiles") or ():
            # The file has a local name and one in the checkpoint, whose key differs between versions of Spark.
            for own in (value for key, value in file.items() if key.startswith("dfs")):
                self._verified(f"{store}/SSTs/{own}")

    # --- files --------------------------------------------------------------------------------------------------------

    def _at(self, path: str) -> Directory:
        directory = self.directory
        for part in path.split("/"):
            directory = directory.inside(part)
        return directory

    def _verified(self, name: str) -> bytes:
        """The content of a file that agrees with its checksums, if it has any."""
        place, _, own = name.rpartition("/")
        directory = self._at(place) if place else self.directory
        content = directory.read(own)
        if content is None:
            raise self.missing(name)
        sums = directory.read(f".{own}.crc")
        if sums is not None and sums.startswith(_CRC_HEADER) and not _agrees(content, sums):
            raise self.damaged(name, f"it does not agree with its checksums in `.{own}.crc`")
        return content

    def json_object(self, name: str, content: bytes) -> dict[str, Any]:
        try:
            value = json.loads(content)
        except ValueError as problem:
            raise self.damaged(name, "it is not JSON") from problem
        if not isinstance(value, dict):
            raise self.damaged(name, "it is not a JSON object")
        return value

    def damaged(self, name: str, reason: str) -> InputProblem:
        return InputProblem(f"`{name}` in the checkpoint `{shown(self.path, 200)}` is damaged: {reason}", hint=_RESTORE)

    def missing(self, name: str) -> InputProblem:
        return InputProblem(f"`{name}` in the checkpoint `{shown(self.path, 200)}` is missing", hint=_RESTORE)


def _agrees(content: bytes, sums: bytes) -> bool:
    """Whether every chunk of a file has its checksum: a header, the size of a chunk, and four bytes for each chunk."""
    header = len(_CRC_HEADER) + 4
    size = int.from_bytes(sums[len(_CRC_HEADER) : header], "big")
    if size <= 0:
        return False
    chunks = range(0, len(content), size)
    found = b"".join(zlib.crc32(content[at : at + size]).to_bytes(4, "big") for at in chunks)
    return found == sums[header:]
