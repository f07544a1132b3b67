"""Directories that hold the checkpoint and the output of a stream. A file appears in them completely or not at all."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cepheid.errors import InputProblem, shown
from cepheid.io.sinks import atomic
from cepheid.io.stream_rows import RESUME


class Directory(ABC):
    """A directory that is created when the first file is written."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The path, for messages."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it does not exist."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Writes a file, or replaces the one of that name."""

    @abstractmethod
    def _files(self) -> list[str]: ...

    def names(self) -> list[str]:
        """The visible files."""
        return sorted(name for name in self._files() if name[0] not in "._")

    def hidden(self) -> list[str]:
        """Partially written files and checksums."""
        return sorted(name for name in self._files() if name[0] in "._")

    @abstractmethod
    def directories(self) -> list[str]:
        """The directories inside."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""

    @abstractmethod
    def inside(self, name: str) -> Directory: ...


@dataclass(frozen=True, slots=True)
class LocalDirectory(Directory):
    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise _cannot("read", self.path / name, problem) from problem

    def write(self, name: str, content: bytes) -> None:
        """The content is on disk before the name is, so a file that survives a crash of the machine is complete."""
        try:
            with atomic(self.path / name) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as problem:
            raise _cannot("write", self.path / name, problem) from problem

    def _files(self) -> list[str]:
        return [path.name for path in self.path.iterdir() if path.is_file()] if self.path.is_dir() else []

    def directories(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir() if path.is_dir()) if self.path.is_dir() else []

    def remove(self, name: str) -> None:
        try:
            (self.path / name).unlink(missing_ok=True)
        except OSError as problem:
            raise _cannot("remove", self.path / name, problem) from problem

    def inside(self, name: str) -> LocalDirectory:
        return LocalDirectory(self.path / name)


def _cannot(what: str, path: Path, problem: OSError) -> InputProblem:
    return InputProblem(f"cannot {what} `{shown(str(path), 200)}`: {problem.strerror or problem}", hint=RESUME)


def is_local(path: str) -> bool:
    return path.startswith("file:/") or not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path)


def local_directory(path: str) -> LocalDirectory:
    """The directory of a path or of a `file:` URI, with links resolved, so that one directory has one path."""
    if not is_local(path):
        raise InputProblem(f"`{shown(path, 200)}` can only be reached through Spark", expected="a directory")
    try:
        resolved = Path(unquote(urlsplit(path).path) if path.startswith("file:/") else path).resolve()
        str(resolved).encode()
    except (OSError, RuntimeError, ValueError) as problem:  # a loop of links, a NUL, a name that is not UTF-8
        raise InputProblem(
            f"`{shown(path, 200)}` cannot be the path of a directory: {shown(str(problem), 100)}"
        ) from problem
    return LocalDirectory(resolved)
