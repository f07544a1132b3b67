"""Sources of events in Spark: DataFrames, tables, and files that workers read."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from cepheid.binding import slip
from cepheid.engine.query_text import declared_types
from cepheid.errors import InputProblem, shown
from cepheid.events import MICROSECONDS, NANOSECONDS, UNTYPED, epoch_unit
from cepheid.expr import attributes_in
from cepheid.io.delta import delta_files, is_delta
from cepheid.io.event_columns import schema_with_epochs
from cepheid.io.files import ColumnFile, EventFile, FileSource, TextFile
from cepheid.io.formats import format_of, known_format
from cepheid.io.formats.columnar import column_format, stored_columns
from cepheid.io.formats.csv import stored_csv
from cepheid.io.frames import inputs_of
from cepheid.io.inputs import Columns, Input
from cepheid.io.merged import MERGED_START, MERGED_TIME
from cepheid.io.rejects import after_end, no_start, no_time
from cepheid.io.shares import MOST_FILES, StoredFile, StoredFiles
from cepheid.io.source import Attributes, Source
from cepheid.io.storage import is_readable
from cepheid.io.times import LAST_TIME, fraction_unit, not_whole, out_of_range
from cepheid.pattern import EventClass, Query, durations, partition_attributes, queries_of, types_named, walk
from cepheid.spark.catalyst import column, ticks
from cepheid.spark.dataframes import (
    CsvFiles,
    files_shown,
    frame_of,
    in_zone,
    is_narrow,
    is_path,
    local_times,
    read_stored,
    require_frame,
    require_times,
    schema_of,
    with_string_types,
)
from cepheid.spark.session import session as running_session
from cepheid.spark.worker import spark_types

SparkEvents = DataFrame | Input | Sequence[Input] | Mapping[str, DataFrame | Input]
SparkInput = SparkEvents | str | os.PathLike[str] | CsvFiles
"""A DataFrame, a DataFrame for each event type, a path or table of Parquet files, or CSV files with a schema."""
_FIRST = (1_000, 10_000)
"""The numbers of events whose types are compared with those that a query names: the second, if some are not among the
first."""
TYPES = "\ue000type"
"""The column with the event type, if each type has its own DataFrame."""


@dataclass(frozen=True, slots=True)
class SparkSource:
    """Events in Spark, for `prepare` (see `io.source.Source`) and `spark.batch.run`.

    `schema` has the columns of the user. If each type has its own DataFrame, `attributes` has the columns of each: a
    type lacks the columns that only other types have (ruling 13)."""

    frame: DataFrame
    columns: Columns
    schema: pa.Schema
    attributes: Attributes | None = None
    is_closed: bool = False
    files: StoredFiles | None = None
    """The files of the frame, if workers can read them without Spark's readers."""
    drops_untyped: bool = False
    """Whether rows of the files without a type are rejected."""
    local: Source | None = None
    """The source that a single task reads instead of the frame, if the work cannot be divided."""
    omits_nulls: bool = False
    epoch_unit: str | None = None
    extreme_times: tuple[int, int] | None = None
    of_files: bool = False
    """Whether the frame has the rows of files: a type lacks the columns that are empty for its events."""
    count: None = None

    @classmethod
    def open(
        cls, events: SparkInput, columns: Columns, session: SparkSession | None = None, unit: str | None = None
    ) -> SparkSource:
        """Opens files in this session, in the running session, or in a new one."""
        is_typed = columns.event_type is not None
        if isinstance(events, CsvFiles) and not is_typed:
            return cls._csv(events, session or running_session(), columns)
        if isinstance(events, str | os.PathLike) and not is_typed:
            return cls._stored(os.fspath(events), session or running_session(), columns)
        inputs = inputs_of(events) or [Input(events)]
        return cls.of([replace(item, data=frame_of(item.data, session)) for item in inputs], columns, unit)

    @classmethod
    def of(cls, events: SparkEvents, columns: Columns, unit: str | None = None) -> SparkSource:
        """`unit` is that of integer times, of inputs without their own."""
        inputs = inputs_of(events) or [Input(events)]
        own = inputs[0].columns(columns)
        if len(inputs) > 1 or own.event_type is not None:
            return united(inputs, columns, unit)
        frame = in_zone(with_string_types(require_frame(inputs[0]), own.type), own)
        source = cls(frame, own, schema_of(frame))
        require_times(frame, source.schema, own)
        return source

    @classmethod
    def _stored(cls, name: str, session: SparkSession, columns: Columns) -> SparkSource:
        """Parquet files by their path, or a table."""
        known = known_format(Path(name))
        if known not in (None, "parquet"):
            raise InputProblem(
                f"`{shown(name, 200)}` is a file of the format {known}",
                expected="Parquet files or a table, for a path that Spark reads",
                hint='leave `session` out, read it with spark.read, or use cepheid.CsvFiles(path, "type string, ...")',
            )
        frame = read_stored(name, session)
        source = cls.of(frame, columns)
        if local_times(frame, columns):  # Spark reads them
            return source
        names = source.frame.columns
        if is_path(name) and is_delta(name) and not delta_files(name).partitioned:
            # A column that was added later is null in the files before.
            names = [own for own in names if own in (columns.type, *columns.times)]
        return replace(source, files=_stored_parquet(source.frame, columns.time, names), of_files=is_path(name))

    @classmethod
    def _csv(cls, files: CsvFiles, session: SparkSession, columns: Columns) -> SparkSource:
        """If Spark reads the files itself, it drops the lines that workers would reject."""
        reader = session.read.schema(files.schema).options(header=files.header, mode="DROPMALFORMED")
        source = cls.of(reader.csv(files.path), columns)
        return replace(source, files=stored_csv(sorted(source.frame.inputFiles()), source.schema, files.header))

    def for_query(self, query: Query, time_unit: str | None = None) -> SparkSource:
        """Adds the attributes of the types that the query names, and recognises the unit of time. A Spark job collects
        the types of the first rows of a DataFrame, one those of all rows if the query has names that may be types or
        not (ruling 8) or may have misspelt some, and another one the first and the last time if the query needs the
        unit and the files have no statistics. Of files with nulls, another one finds the columns that a type lacks."""
        return self.for_queries([query], time_unit)

    def for_queries(self, queries: Sequence[Query], time_unit: str | None = None) -> SparkSource:
        """`for_query` of several queries, with the same jobs for all of them."""
        time_unit, source = self.columns.unit or time_unit, self
        if isinstance(self.time_type, T.FractionalType):
            source = self._with_fractions(time_unit)
        else:
            for query in queries:
                source = source._with_unit(query) if time_unit is None and source.epoch_unit is None else source
        if source.attributes is not None:
            return source
        columns = {field.name: field.type for field in source.schema}
        if self.type_column is None:
            return replace(source, attributes={UNTYPED: columns})
        lacking = source._lacking(queries)
        known = source._known_types(queries) if lacking is None else lacking
        own: dict[str, set[str]] = {kind: set() if lacking is None else lacking[kind] for kind in known}
        return replace(source, attributes={k: {n: t for n, t in columns.items() if n not in own[k]} for k in known})

    def _lacking(self, queries: Sequence[Query]) -> dict[str, set[str]] | None:
        """The columns that each type of the files lacks: those that are empty for its events, and not for those of
        another type, as everywhere where files are read (ruling 13). A Spark job reads the columns that a query reads,
        or all if it shows whole events, and that have nulls in the files. None if it is not needed."""
        names = self._with_nulls(queries) if self.of_files else []
        if not names:
            return None
        events = self.frame.where(self.is_event)
        filled = [F.max(column(name).isNotNull()).alias(str(at)) for at, name in enumerate(names)]
        rows = events.groupBy(self._type.alias("type")).agg(*filled).collect()
        of_types = {
            UNTYPED if kind is None else kind: {name for at, name in enumerate(names) if row[str(at)]}
            for kind, row in zip(self._type_names(rows), rows, strict=True)
        }
        used = set().union(*of_types.values())
        return {kind: used - own for kind, own in of_types.items()}

    def _with_nulls(self, queries: Sequence[Query]) -> list[str]:
        """The columns with nulls that decide the matches or the columns of the output."""
        asked: set[str] = set()
        for query in (part for whole in queries for part in queries_of(whole)):
            if query.output is None:
                asked.update(self.schema.names)
            read = attributes_in([*query.where, *(item.expr for item in query.output or ())])
            asked.update(name.partition(".")[0] if name not in self.schema.names else name for name in read)
            asked.update(partition_attributes(query))
        names = [n for n in self.schema.names if n in asked and n not in (self.columns.type, *self.columns.times)]
        if self.files is None:
            return names
        sparse: set[str] = set()
        for path in dict.fromkeys(file.path for file in self.files.reader.files):
            sparse.update(ColumnFile(path, None, "parquet", self.schema).sparse)
            if sparse.issuperset(names):
                break
        return [name for name in names if name in sparse]

    def _known_types(self, queries: Sequence[Query]) -> list[str]:
        """The types of the events, or else those that the queries name: the types of the first events decide whether a
        job that reads all types is worth its time. They are not read if the queries declare their types, or if Spark
        would compute the whole DataFrame for them (a join, an aggregation)."""
        named = list(dict.fromkeys(name for query in queries for name in types_named(query)))
        declared = {name for query in queries for name in declared_types(query).types}
        asks = any(map(_asks_for_types, queries))
        if not asks and (declared.issuperset(named) or not is_narrow(self.frame)):
            return [*named, UNTYPED]
        is_odd = False
        for size in _FIRST:
            first = self._first_types(size)
            seen = _names_of(set(first))
            if first and len(first) < size:
                return seen
            others, missing = set(seen) - set(named) - {UNTYPED}, [name for name in named if name not in seen]
            is_odd = bool(others) and (len(missing) == len(named) or any(slip(name, others) for name in missing))
            if not is_odd:
                break
        if asks or is_odd:
            return _names_of(self._type_names(self._types.distinct().collect()))
        return [*named, UNTYPED]

    def _first_types(self, size: int) -> list[str | None]:
        """The types of the first rows. A job would cost more than matching a small file, so files are read here."""
        found: list[str | None] = []
        paths = self._files_of_types
        for path in paths:
            if self.columns.type not in column_format("parquet").schema(path).names:  # a file of before it was added
                break
            for batch in ColumnFile(path, None, "parquet", self.schema).read([self.columns.type]):
                found += batch.column(0)[: size - len(found)].cast(pa.string()).to_pylist()
                if len(found) == size:
                    return found
        else:
            if paths:
                return found
        return self._type_names(self._types.limit(size).collect())

    @property
    def _files_of_types(self) -> Collection[str]:
        """The files whose rows have the types of the events, where they can be read without Spark."""
        if not pa.types.is_string(self.schema.field(self.columns.type).type):
            return ()
        if self.files is None:
            return files_shown(self.frame, self.columns.type)
        return dict.fromkeys(file.path for file in self.files.reader.files) if self.of_files else ()

    def _with_unit(self, query: Query) -> SparkSource:
        needs_unit = any(duration.unit in MICROSECONDS for duration in durations(query))
        if not needs_unit or not isinstance(self.time_type, T.IntegralType):
            return self
        times = self.files.times if self.files is not None else None
        if times is None:
            time = column(self.columns.time)
            row = self.frame.agg(F.min(time), F.max(time)).first()
            times = (row[0], row[1]) if row is not None and row[0] is not None else None
        return self if times is None else self._within(*times)

    def _within(self, first: int, last: int) -> SparkSource:
        return replace(self, epoch_unit=epoch_unit(first, last), extreme_times=(first, last))

    def _with_fractions(self, declared: str | None) -> SparkSource:
        """Times with fractions as timestamps (ruling 1). Spark reads them, also from files."""
        times = [column(name) for name in self.columns.times]
        if any(not isinstance(self.frame.schema[name].dataType, T.NumericType) for name in self.columns.times):
            return self
        time = F.when(F.abs(times[0]) <= LAST_TIME, times[0].cast("double"))
        row = self.frame.agg(F.min(time), F.max(time), F.max(F.floor(time) != time)).first()
        if row is None or row[0] is None:
            return self
        if not row[2]:
            return self if declared is not None else self._within(int(row[0]), int(row[1]))
        unit = fraction_unit(row[0], row[1], declared)
        if unit is None:
            return self
        names = {
            name: F.timestamp_micros(F.rint(of.cast("double") * MICROSECONDS[unit]).cast("long"))
            for name, of in zip(self.columns.times, times, strict=True)
        }
        frame = self.frame.withColumns(names)
        schema = schema_with_epochs(self.schema, self.columns.times)
        attributes = self.attributes and {
            kind: {name: schema.field(name).type for name in own} for kind, own in self.attributes.items()
        }
        return replace(self, frame=frame, schema=schema, attributes=attributes, files=None, epoch_unit=unit)

    def sample(self, names: Sequence[str], size: int) -> None:
        """None, because a sample would take a Spark job. `cepheid.statistics` counts all events in one job."""

    @property
    def type_column(self) -> str | None:
        return self.columns.type if self.columns.type in self.frame.columns else None

    @property
    def time_type(self) -> T.DataType:
        return self.frame.schema[self.columns.time].dataType

    @property
    def is_event(self) -> Column:
        """Whether a row is an event: true, or else false or null. In its plain form files decide it; a number with a
        fraction is looked at in order, because Spark fails where it casts one that is too large."""
        kinds = [self.frame.schema[name].dataType for name in self.columns.times]
        if any(isinstance(kind, T.FractionalType) for kind in kinds):
            return self.reject_reason.isNull()
        return reduce(and_, (~fault for fault, _ in self._faults))

    @property
    def reject_reason(self) -> Column:
        """The reason why a row is not an event; null for an event."""
        (fault, reason), *others = self._faults
        return reduce(lambda found, other: found.when(*other), others, F.when(fault, reason))

    @property
    def _faults(self) -> list[tuple[Column, Column | str]]:
        """What keeps a row from being an event, with the reason. The first that is true counts; one after it may be
        null."""
        name, start = self.columns.time, self.columns.start
        faults = _faults_of_time(name, self.time_type, no_time(name), "time")
        if start is not None:
            kind, end = self.frame.schema[start].dataType, ticks(column(name), self.time_type)
            faults += _faults_of_time(start, kind, no_start(start), "start")
            faults.append((ticks(column(start), kind) > end, after_end(start, name)))
        return faults

    @property
    def _types(self) -> DataFrame:
        return self.frame.select(self._type.alias("type"))

    @property
    def _type(self) -> Column:
        kind = column(self.columns.type)
        return kind if self._has_float_types else kind.cast("string")

    @property
    def _has_float_types(self) -> bool:
        return isinstance(self.frame.schema[self.columns.type].dataType, T.DoubleType | T.FloatType)

    def _type_names(self, rows: Sequence[Row]) -> list[str | None]:
        """The types in rows of Spark, named as in the match: of a float, Spark makes `1.0`, and Arrow `1`."""
        values = [row.type for row in rows]
        if not self._has_float_types:
            return values
        names: list[str | None] = (
            pa.array(values, self.schema.field(self.columns.type).type).cast(pa.string()).to_pylist()
        )
        return names


def _faults_of_time(name: str, kind: T.DataType, missing: str, what: str) -> list[tuple[Column, Column | str]]:
    """What keeps a column from being a time."""
    time = column(name)
    faults: list[tuple[Column, Column | str]] = [(time.isNull(), missing)]
    if isinstance(kind, T.DoubleType | T.FloatType):
        faults.append((F.isnan(time), missing))
    if isinstance(kind, T.NumericType):
        of = ticks(time, kind) if isinstance(kind, T.IntegralType) else time.cast("double")
        faults.append(((of > LAST_TIME) | (of < -LAST_TIME), out_of_range("of this row", what)))
    if isinstance(kind, T.FractionalType):
        faults.append((F.floor(time) != time, not_whole("of this row", what)))
    return faults


def _names_of(types: Iterable[str | None]) -> list[str]:
    return sorted({UNTYPED if name is None else name for name in types})


# --- files of the command line ----------------------------------------------------------------------------------------

_ROW_GROUP = 1 << 18
"""Rows in a row group: few enough to divide them among all cores."""


@contextmanager
def file_source(source: Source, session: SparkSession) -> Iterator[SparkSource]:
    """The files of a source for Spark. Workers read shares of columnar files while this context is open. Rows that were
    read one by one go to a single task."""
    schema = spark_types(source.schema)
    frame = (
        session.createDataFrame([], from_arrow_schema(schema)) if isinstance(source, FileSource) else session.range(0)
    )
    spark = SparkSource(frame, source.columns, schema, source.attributes, omits_nulls=source.omits_nulls, local=source)
    if not isinstance(source, FileSource):
        yield spark
        return
    with tempfile.TemporaryDirectory(prefix="cepheid-") as directory:
        # Workers have another working directory.
        absolute = [replace(file, path=os.path.abspath(file.path)) for file in source.files]
        stored = [_stored_file(file, Path(directory) / f"{number}.parquet") for number, file in enumerate(absolute)]
        files = stored_columns(stored, source.columns.time)
        yield replace(spark, files=files, drops_untyped=True, local=replace(source, files=tuple(absolute)))


def _stored_file(file: EventFile, temporary: Path) -> StoredFile:
    """The file that workers read. The parsed table of a text file is written to a temporary file."""
    path = Path(file.path)
    if isinstance(file, ColumnFile) and file.zone is not None:
        with pq.ParquetWriter(temporary, file.schema, compression="none") as writer:
            for batch in file.read(file.schema.names):
                writer.write_batch(batch, row_group_size=_ROW_GROUP)
        return StoredFile(str(temporary), file.type, format_of(temporary))
    if isinstance(file, TextFile):
        path = temporary
        pq.write_table(file.table, path, compression="none", row_group_size=_ROW_GROUP)
    return StoredFile(str(path), file.type, file.format if isinstance(file, ColumnFile) else format_of(path))


# --- DataFrames -------------------------------------------------------------------------------------------------------


def _stored_parquet(frame: DataFrame, time_column: str, names: Sequence[str]) -> StoredFiles | None:
    """The files of a DataFrame. None if only Spark can read them: other storage, columns of these names that some file
    lacks (they may come from the names of directories, or differ in case), or too many files."""
    paths = sorted(frame.inputFiles())
    if not paths or len(paths) > MOST_FILES or not all(is_readable(path) for path in paths):
        return None
    return stored_columns([StoredFile(path) for path in paths], time_column, names)


# --- several inputs ---------------------------------------------------------------------------------------------------


def united(inputs: Sequence[Input], columns: Columns, unit: str | None = None) -> SparkSource:
    """DataFrames with their own types, columns of time and units as one (see `io.merged`). A column must have the same
    type in all of them."""
    if not inputs:
        raise InputProblem("there are no DataFrames", expected="at least one: {'Shelf': df}")
    parts = [_Part.of(item, columns, unit) for item in inputs]
    timed, started = {part.columns.time for part in parts}, {part.columns.start for part in parts}
    if len(timed) > 1 or len({(part.unit, part.is_timestamp) for part in parts}) > 1:
        parts = [part.recognised() for part in parts]
    clocks = {(part.unit, part.is_timestamp) for part in parts}
    converts = len(clocks) > 1 or (len(timed) > 1 and None not in {known for known, _ in clocks})
    if converts:
        parts = [part.as_timestamps() for part in parts]
    merged = columns if len(inputs) > 1 else parts[0].columns
    merged = replace(merged, type=TYPES, event_type=None, time=parts[0].columns.time, start=parts[0].columns.start)
    if len(timed) > 1:
        merged = replace(merged, time=MERGED_TIME)
        parts = [part.with_column(MERGED_TIME, part.columns.time) for part in parts]
    if len(started) > 1 or (started != {None} and len(timed) > 1):
        merged = replace(merged, start=MERGED_START)
        parts = [part.with_column(MERGED_START, part.columns.start or part.columns.time) for part in parts]
    _require_same_types(parts)
    whole = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), (part.frame for part in parts))
    schema = schema_of(whole.drop(TYPES))
    hidden = (TYPES, MERGED_TIME, MERGED_START)
    attributes: dict[str, dict[str, pa.DataType]] = {}
    for part in parts:
        own = {name: schema.field(name).type for name in part.frame.columns if name not in hidden}
        for kind in part.kinds:
            attributes.setdefault(kind, {}).update(own)
    merged = replace(merged, unit=None if converts else parts[0].unit)
    return SparkSource(whole, merged, schema, attributes, is_closed=all(part.columns.event_type for part in parts))


@dataclass(frozen=True, slots=True)
class _Part:
    """One of several DataFrames. `unit` is that of its integer times, if it is known."""

    name: str
    frame: DataFrame
    columns: Columns
    unit: str | None
    is_timestamp: bool

    @classmethod
    def of(cls, item: Input, columns: Columns, unit: str | None) -> _Part:
        own = item.columns(columns)
        frame = in_zone(require_frame(item), own)
        require_times(frame, schema_of(frame), own)
        if own.event_type is None and own.type not in frame.columns:
            raise InputProblem(
                f"the events of {item.name} have no column `{shown(own.type)}`",
                expected="the type column, or a type for all events",
                hint="set the type: cepheid.Input(df, type='...'), or {'...': df}",
            )
        kinds = F.lit(own.event_type) if own.event_type is not None else column(own.type).cast("string")
        time = frame.schema[own.time].dataType
        is_timestamp = not isinstance(time, T.NumericType)
        known = None if is_timestamp else own.unit or unit
        return cls(item.name, frame.withColumn(TYPES, kinds), own, known, is_timestamp)

    def recognised(self) -> _Part:
        """The part with the unit of its times, by the first and the last of them (ruling 1). A stream has none yet."""
        if self.is_timestamp or self.unit is not None or self.frame.isStreaming:
            return self
        time = column(self.columns.time)
        row = self.frame.agg(F.min(time), F.max(time)).first()
        if row is None or row[0] is None:
            return self
        return replace(self, unit=epoch_unit(math.floor(row[0]), math.ceil(row[1])))

    @property
    def kinds(self) -> list[str]:
        if self.columns.event_type is not None:
            return [self.columns.event_type]
        if self.frame.isStreaming:
            raise InputProblem(
                f"the event types of {self.name} are not known yet", expected="one type for each of several streams"
            )
        return [row[0] for row in self.frame.select(column(TYPES)).distinct().collect() if row[0] is not None]

    def as_timestamps(self) -> _Part:
        """The part with its times as timestamps: numbers count from 1970, timestamps without a zone are in UTC."""
        if not self.is_timestamp and self.unit is None:
            raise InputProblem(
                f"the unit of the times `{shown(self.columns.time)}` of {self.name} is not known, and others have one",
                expected="a unit for each column of numbers",
                hint="declare it: cepheid.Input(df, time_unit='ms')",
            )
        frame = self.frame.withColumns({name: self._timestamp(name) for name in self.columns.times})
        return replace(self, frame=frame, unit="us", is_timestamp=True)

    def _timestamp(self, name: str) -> Column:
        if self.is_timestamp:
            return F.timestamp_micros(ticks(column(name), self.frame.schema[name].dataType))
        length = NANOSECONDS[self.unit or "us"]
        if length < 1000:
            return F.timestamp_micros(F.floor(column(name) / (1000 // length)).cast("long"))
        is_whole = isinstance(self.frame.schema[name].dataType, T.IntegralType)
        micros = column(name) * F.lit(length // 1000)
        return F.timestamp_micros(micros.cast("long") if is_whole else F.rint(micros).cast("long"))

    def with_column(self, name: str, of: str) -> _Part:
        return replace(self, frame=self.frame.withColumn(name, column(of)))


def _require_same_types(parts: Sequence[_Part]) -> None:
    kinds: dict[str, tuple[str, T.DataType]] = {}
    for part in parts:
        for field in part.frame.schema:
            other, expected = kinds.setdefault(field.name, (part.name, field.dataType))
            if expected != field.dataType:
                raise InputProblem(
                    f"the column `{shown(field.name)}` is {expected.simpleString()} in the events of `{shown(other)}` "
                    f"and {field.dataType.simpleString()} in those of `{shown(part.name)}`",
                    hint="cast one of them",
                )


# --- the types that a query names -------------------------------------------------------------------------------------


def _asks_for_types(query: Query) -> bool:
    return any(isinstance(node, EventClass) and node.by_name for q in queries_of(query) for node in walk(q.pattern))
