"""Spark's log of the slips that it has read, in a checkpoint on a local disk.

`sources/0/12` names the slips of batch 12 of the source, `sources/0/19.compact` those of all batches up to 19, one JSON
object per line. Spark never shortens the list; entries of slips that no longer exist are removed here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from cepheid.streaming.integrity import SparkFiles
from cepheid.streaming.storage import Directory

_LOG = "sources/0"
_COMPACT = ".compact"
_INTERVAL = 10
"""Every so many batches, Spark writes a compact file."""
_LEAST = 1000
"""Entries that are not worth removing."""


@dataclass(frozen=True, slots=True)
class SourceLog:
    files: SparkFiles

    @property
    def _directory(self) -> Directory:
        return self.files.directory.inside("sources").inside("0")

    def _names(self) -> dict[int, str]:
        """The files of the log by their numbers, in order."""
        names = {name.removesuffix(_COMPACT): name for name in self._directory.names()}
        return {int(number): names[number] for number in sorted(filter(str.isdecimal, names), key=int)}

    def _entries(self, name: str) -> list[dict[str, Any]]:
        entries = self.files.log_entry(f"{_LOG}/{name}")
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("path"), str) or "batchId" not in entry:
                raise self.files.damaged(f"{_LOG}/{name}", "a line names no file")
        return entries

    def require_intact(self) -> None:
        """Raises an error that names a damaged or missing file of the log, as far as Spark reads it."""
        names, offset = self._names(), self._offset(self.files.batches("offsets"))
        newest = max(names, default=-1)
        if offset is not None and newest < offset:
            raise self.files.missing(f"{_LOG}/{offset}")
        start = max((number for number, name in names.items() if name.endswith(_COMPACT)), default=0)
        for number in range(start, newest + 1):
            if number not in names:
                lacking = min(names) - 1 if number < min(names) else number
                raise self.files.missing(f"{_LOG}/{lacking}{_COMPACT if (lacking + 1) % _INTERVAL == 0 else ''}")
            self._entries(names[number])

    def _offset(self, batches: list[int]) -> int | None:
        """The number of the source's batch in the newest of some batches of the stream."""
        if not batches:
            return None
        name = f"offsets/{batches[-1]}"
        entry = self.files.log_entry(name)
        offset = entry[1].get("logOffset") if len(entry) > 1 and isinstance(entry[1], dict) else None
        if not isinstance(offset, int):
            raise self.files.damaged(name, "it has no offset of the input")
        return offset

    # --- slips --------------------------------------------------------------------------------------------------------

    def location(self) -> Path | None:
        """The directory of the slips that Spark has read last; None if it has read none."""
        entries = [entry for name in list(self._names().values())[-1:] for entry in self._entries(name)]
        return _path(entries[-1]).parent if entries else None

    def handed(self) -> int:
        """The number of the newest slip that Spark has read."""
        last = list(self._names().values())[-1:]
        return max((_number(entry) for name in last for entry in self._entries(name)), default=0)

    def processed(self) -> int:
        """The number of the newest slip of a committed batch."""
        offset = self._offset(self.files.batches("commits"))
        if offset is None:
            return 0
        later = [name for number, name in self._names().items() if number >= offset]
        for name in later:
            numbers = [_number(entry) for entry in self._entries(name) if entry["batchId"] <= offset]
            if numbers:
                return max(numbers)
        return 0

    def trim(self, removed: int) -> None:
        """Forgets the slips up to a number, which do not exist any more."""
        compact = [name for name in self._names().values() if name.endswith(_COMPACT)]
        if not compact:
            return
        entries = self._entries(compact[-1])
        kept = [entry for entry in entries if _number(entry) > removed]
        if len(entries) - len(kept) >= _LEAST:
            self._rewrite(compact[-1], kept)

    def relocate(self, slips: Path) -> None:
        """Names the slips by the directory in which they are now."""
        for name in self._names().values():
            entries = self._entries(name)
            self._rewrite(name, [{**entry, "path": (slips / _path(entry).name).as_uri()} for entry in entries])

    def _rewrite(self, name: str, entries: list[dict[str, Any]]) -> None:
        """The checksums go first: at no moment does the file have those of another content."""
        lines = ["v1", *(json.dumps(entry, separators=(",", ":"), ensure_ascii=False) for entry in entries)]
        self._directory.remove(f".{name}.crc")
        self._directory.write(name, "\n".join(lines).encode())


def _path(entry: dict[str, Any]) -> Path:
    return Path(unquote(urlsplit(entry["path"]).path))


def _number(entry: dict[str, Any]) -> int:
    stem = _path(entry).stem
    return int(stem) if stem.isdecimal() else 0
