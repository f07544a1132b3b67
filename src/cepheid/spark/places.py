"""Directories that a stream writes to: on this machine, or wherever Spark can write. A file is there whole or not at
all."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from cepheid.errors import InputProblem, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Place(ABC):
    """A directory, made when the first file is written."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The content of a file; None where there is none."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Puts a file there, in place of one of that name."""

    @abstractmethod
    def _files(self) -> list[str]: ...

    def names(self) -> list[str]:
        """The files that are there."""
        return sorted(name for name in self._files() if name[0] not in "._")

    def hidden(self) -> list[str]:
        """The files that are not meant to be seen: half-written ones, sums of others."""
        return sorted(name for name in self._files() if name[0] in "._")

    @abstractmethod
    def remove(self, name: str) -> None:
        """Takes a file away, if it is there."""

    @abstractmethod
    def inside(self, name: str) -> Place: ...


@dataclass(frozen=True, slots=True)
class LocalPlace(Place):
    directory: Path

    def read(self, name: str) -> bytes | None:
        try:
            return (self.directory / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise _cannot("read", self.directory / name, problem) from problem

    def write(self, name: str, content: bytes) -> None:
        """The content is on the disk before the name is: a file that survives a crash of the machine is whole."""
        target = self.directory / name
        temporary = self.directory / f".{name}.{os.getpid()}.part"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as problem:
            raise _cannot("write", target, problem) from problem

    def _files(self) -> list[str]:
        return [path.name for path in self.directory.iterdir() if path.is_file()] if self.directory.is_dir() else []

    def remove(self, name: str) -> None:
        try:
            (self.directory / name).unlink(missing_ok=True)
        except OSError as problem:
            raise _cannot("remove", self.directory / name, problem) from problem

    def inside(self, name: str) -> LocalPlace:
        return LocalPlace(self.directory / name)


def _cannot(what: str, path: Path, problem: OSError) -> InputProblem:
    return InputProblem(
        f"cannot {what} `{shown(str(path), 200)}`: {problem.strerror or problem}",
        hint="put that right and start again: the stream goes on where it stopped",
    )


@dataclass(frozen=True, slots=True)
class HadoopPlace(Place):
    """A directory in any file system that Spark's Hadoop libraries know (hdfs, s3a, gs, abfs)."""

    session: SparkSession
    uri: str

    def read(self, name: str) -> bytes | None:
        files, path = self._at(name)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        files, target = self._at(name)
        _, temporary = self._at(f".{name}.part")
        stream = files.create(temporary, True)
        try:
            stream.write(content)
        finally:
            stream.close()
        files.delete(target, False)
        if not files.rename(temporary, target):
            raise InputProblem(f"cannot write `{shown(name)}` in `{shown(self.uri, 200)}`")

    def _files(self) -> list[str]:
        files, path = self._at("")
        if not files.exists(path):
            return []
        return [status.getPath().getName() for status in files.listStatus(path) if status.isFile()]

    def remove(self, name: str) -> None:
        files, path = self._at(name)
        files.delete(path, False)

    def inside(self, name: str) -> HadoopPlace:
        return HadoopPlace(self.session, f"{self.uri.rstrip('/')}/{name}")

    @property
    def _jvm(self) -> Any:
        return self.session._jvm

    def _at(self, name: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self.uri.rstrip('/')}/{name}" if name else self.uri)
        return path.getFileSystem(self.session._jsc.hadoopConfiguration()), path


def place(path: str, session: SparkSession | None = None) -> Place:
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return LocalPlace(Path(unquote(parts.path) if parts.scheme else path))
    if session is None:
        raise InputProblem(f"`{shown(path, 200)}` can only be reached through Spark", expected="a directory")
    return HadoopPlace(session, path)
