"""Why a stream stopped, in words that name the file and say what to do.

Spark tells of a failure in hundreds of lines: its own conditions, the JVM's causes, and the traces of Python workers,
one inside the other. What matters in them is one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from cepheid.errors import CepheidError, InputProblem, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GO_ON = "start again with the same checkpoint: the stream goes on where it stopped"
_OWN = re.compile(r"^cepheid\.errors\.\w+: error: (.*(?:\n  .*)*)", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: ([\w.$]+)(?:: (.*))?$", re.MULTILINE)
_CONDITION = re.compile(r"\[[A-Z_]+(?:\.[A-Z_]+)*\] .*")
_LOG_FILE = re.compile(r"(?:Failed to read log file|Checksum error:) (\S+?)\.? (?:\[|at \d)")
_FULL = "No space left on device"
_STATE = "CANNOT_LOAD_STATE_STORE"
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """What Spark raised, and the stream that it happened to."""

    text: str
    checkpoint: str
    session: SparkSession

    def problem(self) -> CepheidError:
        own = _OWN.search(self.text)
        if own is not None:
            return _as_it_was(own[1])
        at = f"the checkpoint `{shown(self.checkpoint, 200)}`"
        if _FULL in self.text:
            return InputProblem(
                f"the stream stopped: the disk is full; {at} or Spark's own directory (spark.local.dir) has no room",
                hint=f"make room and {GO_ON}",
            )
        if _STATE in self.text:
            damaged = ", ".join(f"`{shown(path, 200)}`" for path in self._damaged_state())
            return InputProblem(
                f"the stream stopped: the state in {at} cannot be read: {self._reason()}"
                + (f"; damaged: {damaged}" if damaged else ""),
                hint=f"restore the file from a copy of the checkpoint and {GO_ON}; "
                "without a copy, use a new checkpoint and a new output, and all input is read again",
            )
        log = _LOG_FILE.search(self.text)
        if log is not None:
            return InputProblem(
                f"the stream stopped: `{shown(log[1].removeprefix('file:'), 200)}` in {at} is damaged",
                hint=f"restore it from a copy of the checkpoint and {GO_ON}",
            )
        return InputProblem(f"the stream stopped: {self._reason()}", hint=f"put that right and {GO_ON}")

    def _reason(self) -> str:
        """The innermost cause that says something; without any, Spark's own words."""
        said = [match[2] for match in _CAUSE.finditer(self.text) if match[2] and "Python Proxy" not in match[2]]
        conditions = _CONDITION.findall(self.text)
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return shown([*(lines[:1] or ["Spark gave no reason"]), *conditions[-1:], *said[-1:]][-1], _LONGEST)

    def _damaged_state(self) -> Iterator[str]:
        """Spark does not always say which file it could not read: those that cannot be unpacked."""
        jvm: Any = self.session._jvm
        root = jvm.org.apache.hadoop.fs.Path(self.checkpoint, "state")
        # A file system of our own: others must go on looking at checksums, which lie in files of their own.
        files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(root.toUri(), self.session._jsc.hadoopConfiguration())
        files.setVerifyChecksum(False)
        found = files.listFiles(root, True)
        while found.hasNext():
            path = found.next().getPath()
            if path.getName().endswith(".changelog") and not self._unpacks(files, path):
                yield str(path.toUri().getPath())

    def _unpacks(self, files: Any, path: Any) -> bool:
        jvm: Any = self.session._jvm
        codec = self.session.conf.get("spark.sql.streaming.stateStore.compression.codec")
        spark_codec = jvm.org.apache.spark.io.CompressionCodec.createCodec(self.session._jsc.sc().conf(), codec)
        stream = files.open(path)
        try:
            jvm.org.apache.commons.io.IOUtils.consume(spark_codec.compressedInputStream(stream))
        except Py4JJavaError:
            return False
        finally:
            stream.close()
        return True


def _as_it_was(told: str) -> CepheidError:
    """An error of Cepheid that a worker raised, from its text."""
    what, *more = told.split("\n  ")
    parts = dict(line.split(": ", 1) for line in more if line.startswith(("expected: ", "hint: ")))
    return InputProblem(
        f"the stream stopped: {what}",
        expected=parts.get("expected"),
        hint=parts.get("hint") or f"put that right and {GO_ON}",
    )
