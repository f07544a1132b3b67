"""Delta tables: the files that the log of a table says are its rows now.

A directory of a Delta table also holds files of earlier versions, so that its Parquet files must not be read as they
stand. The log is read by the package `deltalake`, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cepheid.errors import InputProblem, NotAvailable, listing, shown

if TYPE_CHECKING:
    import pyarrow as pa

LOG = "_delta_log"
_FEATURES = frozenset({"timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck"})
"""The features of tables whose files are plain Parquet files."""


class DeltaFiles(NamedTuple):
    """The live files of a table, and its columns. The files lack `partitioned`, whose values the log has."""

    files: tuple[str, ...]
    schema: pa.Schema
    partitioned: tuple[str, ...]


def is_delta(path: str | Path) -> bool:
    """Whether this is the directory of a Delta table."""
    return (Path(path) / LOG).is_dir()


def delta_files(path: str | Path) -> DeltaFiles:
    """The newest version of a table."""
    import pyarrow as pa  # lazily: the command line looks at paths before it reads them

    try:
        import deltalake
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise NotAvailable(
            f"`{shown(str(path), 200)}` as a Delta table: the package deltalake is not installed",
            hint="pip install 'cepheid[delta]', or read it with Spark: spark.read.format('delta').load(...)",
        ) from None
    try:
        table = deltalake.DeltaTable(str(path))
        metadata, protocol = table.metadata(), table.protocol()
        schema = pa.schema(table.schema().to_arrow())
    except DeltaError as problem:
        raise InputProblem(f"the log of the Delta table `{shown(str(path), 200)}` cannot be read: {problem}") from None
    features = set(protocol.reader_features or ()) - _FEATURES
    if (metadata.configuration or {}).get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    if features:
        raise NotAvailable(
            f"the Delta table `{shown(str(path), 200)}` with {listing(features)}",
            expected="a table whose files are plain Parquet",
            hint="read it with Spark: spark.read.format('delta').load(...)",
        )
    return DeltaFiles(tuple(sorted(table.file_uris())), schema, tuple(metadata.partition_columns))
