"""Infers the schema of Parquet files from one footer, with the same result as Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

_WRITTEN_BY_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
_PLAIN: dict[pa.DataType, T.DataType] = {
    pa.bool_(): T.BooleanType(),
    pa.int8(): T.ByteType(),
    pa.int16(): T.ShortType(),
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
    pa.float32(): T.FloatType(),
    pa.float64(): T.DoubleType(),
    pa.string(): T.StringType(),
    pa.date32(): T.DateType(),
    pa.timestamp("us"): T.TimestampNTZType(),
    pa.timestamp("us", "UTC"): T.TimestampType(),
}
"""The types that Arrow and Spark read in the same way. Spark converts other types (unsigned, nested, decimal,
nanoseconds) by its own rules and settings."""


def spark_schema(path: str) -> T.StructType | None:
    """The schema of the files. None if only Spark can infer it: storage other than local files, nested directories
    (their names may be columns), or other types than those above."""
    file = _a_file(Path(path))
    if file is None:
        return None
    try:
        schema = pq.read_schema(file)
    except (pa.ArrowInvalid, OSError):
        return None  # Spark reports the error
    if written := (schema.metadata or {}).get(_WRITTEN_BY_SPARK):
        return _nullable(T.StructType.fromJson(json.loads(written)))
    if len({name.lower() for name in schema.names}) < len(schema.names):
        return None
    if not all(field.type in _PLAIN for field in schema):
        return None
    return T.StructType([T.StructField(field.name, _PLAIN[field.type]) for field in schema])


def unreadable_column(path: str) -> pa.Field | None:
    """The first column of the files whose type Spark does not know: nanoseconds, or a time of day."""
    file = _a_file(Path(path))
    for field in [] if file is None else pq.read_schema(file):
        if pa.types.is_time(field.type) or (pa.types.is_timestamp(field.type) and field.type.unit == "ns"):
            return field
    return None


def _a_file(path: Path) -> Path | None:
    if path.is_file():
        return path
    if not path.is_dir():
        return None
    entries = [entry for entry in path.iterdir() if not entry.name.startswith((".", "_"))]
    is_flat = entries and all(entry.is_file() for entry in entries)
    return min(entries) if is_flat else None


def _nullable(schema: T.StructType) -> T.StructType | None:
    """The schema with nullable fields. Spark reads files this way, because they may lack columns."""
    plain = tuple(type(kind) for kind in _PLAIN.values())
    if not all(isinstance(field.dataType, plain) for field in schema):
        return None
    return T.StructType([T.StructField(field.name, field.dataType, True, field.metadata) for field in schema])
