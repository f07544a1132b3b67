"""Names that appear in directories, as Linux reports them (inotify). On other systems there are no reports."""

from __future__ import annotations

import ctypes
import os
import struct
import weakref
from collections.abc import Iterator

_CREATED, _MOVED_IN, _DELETED, _MOVED_OUT = 0x100, 0x80, 0x200, 0x40
_APPEARED = _CREATED | _MOVED_IN
_OVERFLOW, _ONLY_DIRECTORIES = 0x4000, 0x1000000
_WITHOUT_BLOCKING = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_EVENT = struct.Struct("iIII")
_MOST = 1 << 16
"""Bytes to read at once."""


class Overflow(Exception):
    """There were too many changes to report."""


class Reports:
    """Reports of the changes in some directories."""

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None
        try:
            library = ctypes.CDLL(None, use_errno=True)
            self._descriptor = library.inotify_init1(_WITHOUT_BLOCKING)
        except (AttributeError, OSError, TypeError):  # another system than Linux
            return
        if self._descriptor >= 0:
            self._library = library
            weakref.finalize(self, os.close, self._descriptor)

    def watch(self, path: str) -> int | None:
        """Watches a directory; returns the number by which it is reported. None if its changes are not reported."""
        if self._library is None:
            return None
        changes = _APPEARED | _DELETED | _MOVED_OUT | _ONLY_DIRECTORIES
        number = self._library.inotify_add_watch(self._descriptor, os.fsencode(path), changes)
        return int(number) if number >= 0 else None

    def read(self) -> Iterator[tuple[int, str | None]]:
        """The directories with changes since the last call, each with the name that has appeared, if one has. Overflow
        if changes are missing."""
        while self._library is not None:
            try:
                content = os.read(self._descriptor, _MOST)
            except BlockingIOError:
                return
            at = 0
            while at < len(content):
                number, change, _, size = _EVENT.unpack_from(content, at)
                at += _EVENT.size
                name = content[at : at + size].rstrip(b"\0")
                at += size
                if change & _OVERFLOW:
                    raise Overflow
                yield number, os.fsdecode(name) if change & _APPEARED else None
