"""The Arrow schema of a DataFrame, as workers receive its rows."""

from __future__ import annotations

from inspect import signature

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

_TAKES_ZONE = "timezone" in signature(to_arrow_schema).parameters
"""Spark 4.1 converts timestamps to UTC, though it sends them to workers in the time zone of the session."""


def arrow_schema(frame: DataFrame) -> pa.Schema:
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    if _TAKES_ZONE:
        return to_arrow_schema(frame.schema, timezone=zone)
    return pa.schema([_field_in(zone, field) for field in to_arrow_schema(frame.schema)])


def _field_in(zone: str | None, field: pa.Field) -> pa.Field:
    return field.with_type(_in(zone, field.type))


def _in(zone: str | None, kind: pa.DataType) -> pa.DataType:
    """The type with its timestamps in another time zone; those without one stay."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, zone)
    if pa.types.is_struct(kind):
        return pa.struct([_field_in(zone, field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_field_in(zone, kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_field_in(zone, kind.key_field), _field_in(zone, kind.item_field))
    return kind
