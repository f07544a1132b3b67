"""Events in Spark: one DataFrame, or one for each event type, as one DataFrame with what Cepheid must know of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from cepheid.errors import InputProblem, shown
from cepheid.events import TIMESTAMP_CLOCK, UNTYPED, Clock, Schema
from cepheid.io.formats.csv import StoredCsv
from cepheid.io.inputs import Columns
from cepheid.io.shares import MOST_FILES, StoredColumns, StoredFile, StoredFiles
from cepheid.io.source import attribute_types, require_time_column
from cepheid.io.storage import is_readable
from cepheid.pattern import DerivedStream, EventClass, Query, SourceStream, walk
from cepheid.spark.catalyst import column
from cepheid.spark.schema import plain_schema
from cepheid.spark.session import session as running_session

_USUAL: Mapping[str, str] = {
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
}
"""The settings by which one footer says what Spark would find."""


@dataclass(frozen=True, slots=True)
class CsvFiles:
    """CSV files whose columns are known: `path` is a file, a directory or a pattern, `schema` the names and types of
    the columns as Spark writes them (`"type string, ts long"`). With `header` the first line of each file is passed
    over. A value may be quoted, and may not contain a line break."""

    path: str
    schema: str
    header: bool = False


SparkInput = DataFrame | Mapping[str, DataFrame] | str | os.PathLike[str] | CsvFiles
"""A DataFrame, one for each event type, the path or table of Parquet files, or CSV files with known columns."""
TYPES = "__cepheid_type"
"""The type of events whose type is the DataFrame that they come from."""


@dataclass(frozen=True, slots=True)
class SparkEvents:
    """`schema` is that of the columns that users see. Where each type has a DataFrame of its own, `of_type` holds the
    columns of each: a type lacks those that only others have (ruling 13)."""

    frame: DataFrame
    columns: Columns
    schema: pa.Schema
    of_type: Mapping[str, tuple[str, ...]] | None = None
    files: StoredFiles | None = None
    """The files that the frame is, where workers can read them themselves."""
    typed: bool = False
    """Whether a row of the files without a type is no event."""

    @classmethod
    def opened(cls, events: SparkInput, columns: Columns, session: SparkSession | None = None) -> SparkEvents:
        """Files are opened in the session that is given, or else the one that is running or is started for them."""
        if isinstance(events, CsvFiles):
            return cls.in_csv(events, session or running_session(), columns)
        if isinstance(events, str | os.PathLike):
            return cls.stored(os.fspath(events), session or running_session(), columns)
        return cls.of(events, columns)

    @classmethod
    def of(cls, events: DataFrame | Mapping[str, DataFrame], columns: Columns) -> SparkEvents:
        if isinstance(events, DataFrame):
            found = cls(events, columns, _arrow_schema(events))
        else:
            found = _united(events, columns)
        require_time_column(found.schema, columns)
        return found

    @classmethod
    def stored(cls, name: str, session: SparkSession, columns: Columns) -> SparkEvents:
        """Parquet files at a path, or a table of them."""
        is_path = "/" in name or name.lower().endswith(".parquet")
        found = cls.of(_read(name, session) if is_path else session.table(name), columns)
        return replace(found, files=_stored_parquet(found.frame, columns.time))

    @classmethod
    def in_csv(cls, given: CsvFiles, session: SparkSession, columns: Columns) -> SparkEvents:
        """CSV files with known columns. Where Spark itself reads them it drops what workers would reject."""
        reader = session.read.schema(given.schema).options(header=given.header, mode="DROPMALFORMED")
        found = cls.of(reader.csv(given.path), columns)
        return replace(found, files=StoredCsv.of(sorted(found.frame.inputFiles()), found.schema, given.header))

    @property
    def clock_is_timestamp(self) -> bool:
        kind = self.schema.field(self.columns.time).type
        return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))

    def clock(self, unit: str | None) -> Clock:
        return TIMESTAMP_CLOCK if self.clock_is_timestamp else Clock(unit)

    @property
    def type_column(self) -> str | None:
        return self.columns.type if self.columns.type in self.frame.columns else None

    @property
    def time_type(self) -> T.DataType:
        return self.frame.schema[self.columns.time].dataType

    def schema_for(self, query: Query) -> Schema:
        """The attributes of every type that the query names. Only a query whose names may or may not be types
        (ruling 8) needs to know which types there are, which Spark must be asked."""
        attributes = attribute_types(self.schema)
        if self.of_type is not None:
            of_types = {name: attribute_types(_chosen(self.schema, own)) for name, own in self.of_type.items()}
            return Schema(of_types, open=False)
        if self.type_column is None:
            return Schema({UNTYPED: attributes})
        named = self._distinct_types() if _asks_for_types(query) else [*types_named(query), UNTYPED]
        return Schema(dict.fromkeys(named, attributes))

    def shown_by(self, types: Iterable[str]) -> tuple[str, ...]:
        """The columns that an event of these types shows."""
        if self.of_type is None:
            return tuple(self.schema.names)
        wanted = {name for kind in types or self.of_type for name in self.of_type.get(kind, ())}
        return tuple(name for name in self.schema.names if name in wanted)

    def _distinct_types(self) -> list[str]:
        kinds = self.frame.select(column(self.columns.type).cast("string").alias("type")).distinct().collect()
        return sorted({UNTYPED if row.type is None else row.type for row in kinds})


def _read(path: str, session: SparkSession) -> DataFrame:
    """The files as a DataFrame. Spark finds out their schema by a job of its own, which costs more than a small query;
    where Arrow sees it as well, Spark is told."""
    as_usual = all(session.conf.get(name) == value for name, value in _USUAL.items())
    schema = plain_schema(path) if as_usual else None
    return session.read.parquet(path) if schema is None else session.read.schema(schema).parquet(path)


def _stored_parquet(frame: DataFrame, time_column: str) -> StoredColumns | None:
    """None where only Spark knows how to read the files: another storage, columns that are not in every file (they may
    be named after directories, or differ in case), or too many files to open them all."""
    paths = sorted(frame.inputFiles())
    if not paths or len(paths) > MOST_FILES or not all(is_readable(path) for path in paths):
        return None
    return StoredColumns.of([StoredFile(path) for path in paths], time_column, frame.columns)


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    twice = [name for name in frame.columns if frame.columns.count(name) > 1]
    if twice:
        raise InputProblem(f"the DataFrame has two columns `{shown(twice[0])}`", hint="rename one of them")
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    return to_arrow_schema(frame.schema, timezone=zone)


def _chosen(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


def _united(events: Mapping[str, DataFrame], columns: Columns) -> SparkEvents:
    """The DataFrames of several types as one. Where a column has two types, no predicate could be right."""
    if not events:
        raise InputProblem("there are no DataFrames", expected="at least one: {'Shelf': df}")
    kinds: dict[str, tuple[str, T.DataType]] = {}
    for kind, frame in events.items():
        if not isinstance(frame, DataFrame):
            raise InputProblem(f"the events of `{shown(kind)}` are a {type(frame).__name__}", expected="a DataFrame")
        require_time_column(_arrow_schema(frame), columns)
        for field in frame.schema:
            other, found = kinds.setdefault(field.name, (kind, field.dataType))
            if found != field.dataType:
                raise InputProblem(
                    f"the column `{shown(field.name)}` is {found.simpleString()} in the events of `{shown(other)}` "
                    f"and {field.dataType.simpleString()} in those of `{shown(kind)}`",
                    hint="cast one of them",
                )
    typed = [frame.withColumn(TYPES, F.lit(kind)) for kind, frame in events.items()]
    whole = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), typed)
    schema = _arrow_schema(whole.drop(TYPES))
    own = {kind: tuple(frame.columns) for kind, frame in events.items()}
    return SparkEvents(whole, replace(columns, type=TYPES), schema, own)


# --- the types that a query speaks of ---------------------------------------------------------------------------------


def _asks_for_types(query: Query) -> bool:
    return any(isinstance(node, EventClass) and node.by_name for q in _queries(query) for node in walk(q.pattern))


def _queries(query: Query) -> Iterator[Query]:
    yield query
    for item in query.inputs:
        if isinstance(item, Query):
            yield from _queries(item)


def types_named(query: Query) -> list[str]:
    """Every event type that a query, or a query that it is made of, names."""
    names: dict[str, None] = {}
    for part in _queries(query):
        for node in walk(part.pattern):
            if isinstance(node, EventClass):
                names.update(dict.fromkeys(node.types))
        for item in part.inputs:
            if isinstance(item, DerivedStream):
                names[item.source] = None
            elif isinstance(item, SourceStream):
                names[item.name] = None
    return list(names)
