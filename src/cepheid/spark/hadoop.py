"""Directories in any file system that Spark's Hadoop libraries know (hdfs, s3a, gs, abfs)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from cepheid.errors import InputProblem, shown
from cepheid.spark.workers import require_jvm
from cepheid.streaming.storage import Directory, is_local, local_directory


@dataclass(frozen=True, slots=True)
class HadoopDirectory(Directory):
    session: SparkSession
    uri: str

    @property
    def name(self) -> str:
        return self.uri

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
        return [status.getPath().getName() for status in self._statuses() if status.isFile()]

    def directories(self) -> list[str]:
        return sorted(status.getPath().getName() for status in self._statuses() if status.isDirectory())

    def _statuses(self) -> list[Any]:
        files, path = self._at("")
        return list(files.listStatus(path)) if files.exists(path) else []

    def remove(self, name: str) -> None:
        files, path = self._at(name)
        files.delete(path, False)

    def inside(self, name: str) -> HadoopDirectory:
        return HadoopDirectory(self.session, f"{self.uri.rstrip('/')}/{name}")

    @property
    def _jvm(self) -> Any:
        return self.session._jvm

    def _at(self, name: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self.uri.rstrip('/')}/{name}" if name else self.uri)
        return path.getFileSystem(self.session._jsc.hadoopConfiguration()), path


def open_directory(path: str, session: SparkSession) -> Directory:
    if is_local(path):
        return local_directory(path)
    require_jvm(session, f"the directory `{shown(path, 200)}`")
    return HadoopDirectory(session, path)
