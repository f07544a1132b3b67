"""The states of a stream in Spark's state store, and the errors of a stream that Spark reports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cepheid.spark.hadoop import open_directory
from cepheid.spark.workers import require_jvm
from cepheid.streaming.bucket_context import BucketContext, Moved
from cepheid.streaming.bucket_state import number_of
from cepheid.streaming.checkpoint import Checkpoint
from cepheid.streaming.failures import failure
from cepheid.streaming.inspection import StreamState, decoded
from cepheid.streaming.parts import moved_states
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.storage import LocalDirectory

_PLAIN = re.compile(r"[\w./:&+,;'$=@!~()*-]*", re.ASCII)
"""Paths whose characters no URI encodes."""


@contextmanager
def spark_failures(checkpoint: Checkpoint, session: SparkSession) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as problem:
        raise failure(str(problem), checkpoint.path, lambda: damaged_state(checkpoint.location, session)) from problem


@contextmanager
def state_frame(checkpoint: Checkpoint, session: SparkSession) -> Iterator[DataFrame | None]:
    """The state of each bucket after the last completed batch; None before the first."""
    if not checkpoint.directory.inside("commits").names():
        yield None
        return
    with ExitStack() as stack:
        location = checkpoint.location
        if isinstance(checkpoint.directory, LocalDirectory) and not _PLAIN.fullmatch(location):
            # Spark's reader of states encodes the characters of a path twice. It reads through a link.
            link = Path(stack.enter_context(TemporaryDirectory(prefix="cepheid-"))) / "checkpoint"
            link.symlink_to(location)
            location = str(link)
        yield session.read.format("statestore").load(location).select("value.groupState.s")


def read_state(path: str, session: SparkSession) -> StreamState:
    """The state of a stream after the last completed batch, read from its checkpoint."""
    require_jvm(session, "the state of a stream")
    checkpoint = Checkpoint(open_directory(path, session), path)
    checkpoint.require_intact()
    with spark_failures(checkpoint, session), state_frame(checkpoint, session) as states:
        return decoded(checkpoint, () if states is None else (bytes(row["s"]) for row in states.toLocalIterator()))


def moved_between(before: StreamPlan, after: StreamPlan, checkpoint: Checkpoint, session: SparkSession) -> Moved:
    """The states that move between two versions, after the last completed batch."""
    with spark_failures(checkpoint, session), state_frame(checkpoint, session) as states:
        rows = [] if states is None else [bytes(row["s"]) for row in states.toLocalIterator()]
    context = BucketContext(before, checkpoint.moved(before))
    return moved_states(context, {number_of(data): data for data in rows}, after)


def damaged_state(checkpoint: str, session: SparkSession) -> Iterator[str]:
    """The change logs of the state that cannot be decompressed."""
    jvm: Any = session._jvm
    root = jvm.org.apache.hadoop.fs.Path(checkpoint, "state")
    # A file system of our own: others must go on verifying checksums, which lie in files of their own.
    files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(root.toUri(), session._jsc.hadoopConfiguration())
    files.setVerifyChecksum(False)
    codec_name = session.conf.get("spark.sql.streaming.stateStore.compression.codec")
    codec = jvm.org.apache.spark.io.CompressionCodec.createCodec(session._jsc.sc().conf(), codec_name)
    listed = files.listFiles(root, True)
    while listed.hasNext():
        path = listed.next().getPath()
        if not path.getName().endswith(".changelog"):
            continue
        stream = files.open(path)
        try:
            jvm.org.apache.commons.io.IOUtils.consume(codec.compressedInputStream(stream))
        except Py4JJavaError:
            yield str(path.toUri().getPath())
        finally:
            stream.close()
