"""The Spark session of Cepheid, where the user has none."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from cepheid.spark.workers import trust

ARROW_BATCHES: Mapping[str, str] = {
    # A row crosses into Python as part of an Arrow batch: the larger, the less it costs.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
    # With a limit of bytes, Spark would compute the size of the whole batch again after every row.
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
}
UNCOMPARED: Mapping[str, str] = {
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}
"""Spark hashes every row that it shuffles, to detect that a repeated task returns other rows. This is not needed
where no task is repeated, or where the input is deterministic."""
WITHOUT_COMMANDS: Mapping[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
"""On a local disk Spark's own choice starts the command `readlink` four times or more for each file of a checkpoint: a
tenth of a second and more for each batch."""
_SETTINGS: Mapping[str, str] = {
    **ARROW_BATCHES,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Spark would note for every part of every expression which line of Python made it, in three calls to the JVM each.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Attributes that differ only in the case of a letter are two attributes.
    "spark.sql.caseSensitive": "true",
    "spark.sql.shuffle.partitions": "8",
}
_ON_THIS_MACHINE: Mapping[str, str] = {
    # A session on this machine needs no other address, whatever its host name resolves to.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    **WITHOUT_COMMANDS,
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_NO_SETTINGS: Mapping[str, str] = {}

_COLLECTOR = "-XX:+UseParallelGC"
"""The garbage collector that needs the least CPU on few cores: a quarter of Java's default for a micro-batch. Its
longer pauses do not matter here."""


def session(master: str = "local[*]", settings: Mapping[str, str] = _NO_SETTINGS) -> SparkSession:
    """The session that is running, or a new one, on this machine unless the master is elsewhere: quiet, in UTC, its
    workers running this Python."""
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    # Workers would otherwise run whatever python3 is on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    here = master.startswith(("local", "spark://127.0.0.1:"))
    if here:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    in_one_process = master.startswith("local") and not master.startswith("local-cluster")  # which cannot lose a part
    wanted = {**_SETTINGS, **(_ON_THIS_MACHINE if here else {}), **(UNCOMPARED if in_one_process else {}), **settings}
    chosen = wanted.get(_JAVA_OPTIONS, "")
    collector = _COLLECTOR if here and not _chooses_collector(chosen) else ""
    wanted[_JAVA_OPTIONS] = " ".join(filter(None, (quiet, collector, chosen)))
    builder = SparkSession.builder.appName("cepheid").master(master)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    if in_one_process and os.environ["PYSPARK_PYTHON"] == sys.executable:
        trust(started)
    return started


def _chooses_collector(options: str) -> bool:
    """Whether the user chooses the garbage collector: Java refuses to start with two choices."""
    everywhere = (options, *(os.environ.get(name, "") for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")))
    return re.search(r"-XX:[+-]Use\w*GC\b", " ".join(everywhere)) is not None
