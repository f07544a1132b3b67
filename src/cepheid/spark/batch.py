"""A query over Spark DataFrames. What Spark can do is left to Spark (types, single-event tests, projections, shuffle);
what it hands to Python is few columns of few events, once for each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import NullType, StructType

from cepheid.checks import summarises
from cepheid.engine.gather import Gatherer
from cepheid.engine.oracle import makes_output, sums_up
from cepheid.engine.prepare import DEFAULT_OPTIONS, InputShape, Prepared, RunOptions, prepare_shape
from cepheid.expr import Whole
from cepheid.io.formats.csv import StoredCsv
from cepheid.io.shares import StoredFiles
from cepheid.io.source import columns_read
from cepheid.io.times import unit_of
from cepheid.optimize.distribution import Distribution, Keyed, Sliced, Undivided, distribution, may_drop
from cepheid.pattern import Query
from cepheid.physical import REFERENCE
from cepheid.spark.catalyst import EventColumns, column, ticks
from cepheid.spark.events import SparkEvents
from cepheid.spark.reading import FIRST, LAST, LINE, PATH, CsvRejects, ReadAndMatch, ReadTask, ReadTimes
from cepheid.spark.worker import (
    BUCKET,
    MASKS,
    NO_EVENT,
    ORDER,
    PACKED,
    POSITION,
    SLICE,
    ImpliedTypes,
    KernelTask,
    Slices,
    WholeTask,
)

REASON = "reject_reason"
"""The column that says why a row is no event."""

_LARGEST_PARTITION = 128 << 20
_WORTH_DIVIDING = 1 << 20
"""Bytes of input below which one task is done before several have started."""
_FEW_ROWS = 2_000_000
"""Rows of files that one task has read and matched before they would have been shuffled."""
_LONGEST_RANGE = 1 << 62
_WORTH_A_TASK = 8 << 20
"""The bytes of input below which another task costs more than it saves."""
_TASKS_PER_CORE = 2
_SHARES_PER_CORE = 4
"""Row groups are of unequal use: smaller shares even it out."""


@dataclass(frozen=True, slots=True)
class SparkJob:
    """A query prepared for events in Spark. Nothing runs before its DataFrames are asked for rows, but for one small
    aggregate over the time column where time is to be cut into slices."""

    prepared: Prepared
    events: SparkEvents
    distribution: Distribution
    partitions: int | None = None
    """How many tasks share the work; None leaves it to the size of the input."""

    @classmethod
    def of(
        cls,
        query: Query,
        events: SparkEvents,
        options: RunOptions = DEFAULT_OPTIONS,
        partitions: int | None = None,
    ) -> SparkJob:
        unit = None if options.time_unit is None else unit_of(options.time_unit)
        shape = InputShape(events.schema, events.columns)
        prepared = prepare_shape(query, shape, events.schema_for(query), events.clock(unit), options)
        return cls(prepared, events, distribution(prepared.plan), partitions)

    # --- what comes out -----------------------------------------------------------------------------------------------

    def matches(self) -> DataFrame:
        """One row for each match, in any order."""
        if self._as_a_whole:
            return self._whole_matches()
        gatherer = self._gatherer()
        frame = self._run(gatherer.needed(), gatherer)
        limit = self.prepared.query.limit
        return frame if limit is None else frame.orderBy(ORDER).limit(limit).drop(ORDER)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the matches, in Arrow."""
        if self._as_a_whole:
            return self._whole_task().schema
        return self._gatherer().schema

    def positions(self, position: Column) -> DataFrame:
        """The value of `position` for each event of each match."""
        return self._run([], None, position)

    def rejects(self) -> DataFrame:
        """The rows that are not events, as they are, with the reason."""
        time = self.events.columns.time
        if isinstance(self.events.files, StoredCsv):
            return self._rejected_lines(self.events.files)
        broken = self.events.frame.filter(column(time).isNull())
        return broken.withColumn(REASON, F.lit(f"no time: `{time}` is null"))

    def _rejected_lines(self, files: StoredCsv) -> DataFrame:
        """The lines from which a column that the query needs cannot be read; the reference evaluator needs all."""
        names = self.events.schema.names if self._as_a_whole else self._names(self._gatherer().needed())
        read = self._reading(files, names)
        task = CsvRejects(files.reader, read.shares, tuple(read.needed), self.events.columns.time, REASON)
        return self._by_shares(read).mapInArrow(task, f"{PATH} string, {LINE} string, {REASON} string")

    def notes(self) -> list[str]:
        """How the work is divided, and why not further."""
        if self.events.files is not None and not self._as_a_whole and self._at_once(self.events.files):
            return [
                f"one task reads the files and evaluates them: {self.events.files.rows:,} rows are not worth dividing"
            ]
        match self.distribution:
            case Keyed(attributes):
                divided = f"shuffled by {', '.join(attributes)}; every task evaluates all keys of its partition at once"
            case Sliced(before, after):
                back = f" and {before} before" if before else ""
                divided = f"time is cut into slices; each also sees the {after} ticks after it{back}"
            case Undivided(reason):
                divided = f"one task sees all events: {reason}"
        dropped = "events that can play no part are dropped before that" if may_drop(self.prepared.plan) else None
        oracle = "the reference evaluator runs inside that task" if self._runs_oracle else None
        return [note for note in (divided, dropped, oracle) if note is not None]

    # --- by kernels ---------------------------------------------------------------------------------------------------

    def _run(self, shown: Sequence[str], gatherer: Gatherer | None, position: Column | None = None) -> DataFrame:
        plan, time = self.prepared.plan, self.events.columns.time
        types = ImpliedTypes.of(self.prepared, self.events.type_column) if self._types_are_in_column else None
        names = [name for name in self._names(shown) if types is None or name != types.column]
        if self.events.files is not None and position is None:
            return self._read_and_run(self.events.files, names, gatherer, types)
        carried = [*(column(name) for name in names), self._event_columns.mask(plan).alias(MASKS)]
        if position is not None or self._goes_by_arrival:
            carried.append((F.monotonically_increasing_id() if position is None else position).alias(POSITION))
        frame, slices = self._divided(self._relevant().select(*carried))
        task = KernelTask(self._shipped, time, gatherer, slices, types=types)
        return frame.mapInArrow(task, self._declared(task))

    @property
    def _types_are_in_column(self) -> bool:
        """Where files have a type as a whole, the column is like any other."""
        files = self.events.files
        return files is None or all(file.type is None for file in files.reader.files)

    def _names(self, shown: Sequence[str]) -> list[str]:
        """The columns that the kernel and the output need."""
        plan = self.prepared.plan
        return columns_read([*plan.columns, *plan.key, *shown, self.events.columns.time], self.events.schema)

    @property
    def _goes_by_arrival(self) -> bool:
        """Whether it matters which of two events of the same time came first: where events of the same time can follow
        one another, are counted, or decide which matches are the first."""
        query, plan = self.prepared.query, self.prepared.plan
        return query.dialect.ordered_by_position or plan.counts_events or query.limit is not None

    def _read_and_run(
        self, files: StoredFiles, names: Sequence[str], gatherer: Gatherer | None, types: ImpliedTypes | None
    ) -> DataFrame:
        """The same, with the files read by the workers; few of them by one, which finds the matches too."""
        at_once = self._at_once(files)
        count = 1 if at_once else self._partitions()
        slices = None
        if isinstance(self.distribution, Sliced) and count > 1:
            times = files.times or self._times(self._reading(files, []))
            slices = None if times is None else self._slices_of(*times, self.distribution, count)
        count = slices.count if slices is not None else count if isinstance(self.distribution, Keyed) else 1
        read = self._reading(files, names, count, slices)
        task = KernelTask(self._shipped, self.events.columns.time, gatherer, slices, packed=True, types=types)
        shown = self._declared(task)
        if at_once:
            return self._by_shares(read, 1).mapInArrow(ReadAndMatch(read, task), shown)
        packed = self._by_shares(read).mapInArrow(read, PACKED)
        return packed.repartitionById(count, column(BUCKET)).mapInArrow(task, shown)

    def _declared(self, task: KernelTask) -> StructType:
        """The columns as Spark is told of them. Where a field of an event is never null (its time, a type that the mask
        tells, a key), Spark does not look for a null in every match."""
        declared = from_arrow_schema(task.schema)
        never = {self.events.columns.time, *([task.types.column] if task.types is not None else [])}
        if isinstance(self.distribution, Keyed):
            never.update(self.distribution.attributes)
        columns = task.gatherer.columns if task.gatherer is not None else ()
        events = {c.name for c in columns if isinstance(c.shows, Whole) and c.shows.var in self.prepared.variables}
        for field in declared:
            if field.name in events and isinstance(field.dataType, StructType):
                for inner in field.dataType:
                    inner.nullable = inner.name not in never or isinstance(inner.dataType, NullType)
        return declared

    def _reading(
        self, files: StoredFiles, names: Sequence[str], partitions: int = 1, slices: Slices | None = None
    ) -> ReadTask:
        return ReadTask(
            plan=self.prepared.plan,
            columns=self.events.columns,
            schema=self.events.schema,
            names=tuple(names),
            reader=files.reader,
            shares=tuple(files.shares(self._tasks(files.size, _SHARES_PER_CORE))),
            distribution=self.distribution,
            partitions=partitions,
            slices=slices,
            numbered=self.prepared.query.limit is not None,
            typed=self.events.typed,
        )

    def _by_shares(self, read: ReadTask, tasks: int | None = None) -> DataFrame:
        """The numbers of the shares, for as many tasks."""
        count = len(read.shares)
        return self.events.frame.sparkSession.range(0, count, 1, max(count, 1) if tasks is None else tasks)

    def _relevant(self) -> DataFrame:
        """The events that can be part of a match, as far as one event tells."""
        plan = self.prepared.plan
        conditions = [column(self.events.columns.time).isNotNull()]
        matters = self._event_columns.matters(plan) if may_drop(plan) else None
        if matters is not None:
            conditions.append(matters)
        if isinstance(self.distribution, Keyed):
            conditions.extend(self._event_columns.is_there(name) for name in self.distribution.attributes)
        return self.events.frame.filter(reduce(and_, conditions))

    @property
    def _event_columns(self) -> EventColumns:
        return EventColumns(self.events.frame.schema, self.events.type_column, self.prepared.plan.lacks)

    def _divided(self, frame: DataFrame) -> tuple[DataFrame, Slices | None]:
        count = self._partitions()
        match self.distribution:
            case Keyed(attributes) if count > 1:
                return frame.repartition(count, *(self._event_columns.value(name) for name in attributes)), None
            case Sliced() as wanted if count > 1:
                slices = self._slices(wanted, count)
                if slices is not None:
                    return self._sliced(frame, slices), slices
        return together(frame, self._input_bytes()), None

    # --- slices of time -----------------------------------------------------------------------------------------------

    def _slices(self, wanted: Sliced, count: int) -> Slices | None:
        edges = self._relevant().agg(F.min(self._ticks).alias("first"), F.max(self._ticks).alias("last")).first()
        assert edges is not None
        return None if edges["first"] is None else self._slices_of(edges["first"], edges["last"], wanted, count)

    def _times(self, read: ReadTask) -> tuple[int, int] | None:
        """The first and the last time in files that do not say."""
        edges = self._by_shares(read).mapInArrow(ReadTimes(read), f"{FIRST} long, {LAST} long")
        found = edges.agg(F.min(FIRST).alias(FIRST), F.max(LAST).alias(LAST)).first()
        return None if found is None or found[FIRST] is None else (found[FIRST], found[LAST])

    def _slices_of(self, first: int, last: int, wanted: Sliced, most: int) -> Slices | None:
        """Slices of equal length, none shorter than the window; None where one is enough. LIMIT takes the first
        matches, which one task finds without looking at the rest."""
        length = max(-(-(last - first + 1) // most), wanted.after, 1)
        count = -(-(last - first + 1) // length)
        is_too_long = last - first + wanted.before + wanted.after >= _LONGEST_RANGE
        if count < 2 or is_too_long or self.prepared.query.limit is not None:
            return None
        return Slices(first, length, count, wanted.before, wanted.after)

    @property
    def _ticks(self) -> Column:
        return ticks(column(self.events.columns.time), self.events.time_type)

    def _sliced(self, frame: DataFrame, slices: Slices) -> DataFrame:
        """Every event, once for each slice whose matches it can decide about."""
        since = self._ticks - F.lit(slices.origin)
        lowest = F.greatest(_whole_part(since - F.lit(slices.after), slices.length), F.lit(0))
        highest = F.least(_whole_part(since + F.lit(slices.before), slices.length), F.lit(slices.count - 1))
        numbers = F.sequence(lowest.cast("int"), highest.cast("int"))
        sliced = frame.withColumn(SLICE, F.explode(numbers))
        return sliced.repartitionById(slices.count, column(SLICE))

    # --- how many tasks -----------------------------------------------------------------------------------------------

    def _partitions(self) -> int:
        if self.partitions is not None:
            return self.partitions
        size = self._input_bytes()
        if size < _WORTH_DIVIDING:
            return 1
        session = self.events.frame.sparkSession
        most = max(int(session.conf.get("spark.sql.shuffle.partitions") or 200), 1)
        return max(min(-(-size // _LARGEST_PARTITION), most), self._tasks(size, _TASKS_PER_CORE))

    def _at_once(self, files: StoredFiles) -> bool:
        return self.partitions is None and files.rows <= _FEW_ROWS and files.size <= _LARGEST_PARTITION

    def _tasks(self, size: int, most_per_core: int) -> int:
        """All cores have something to do, and more than once where there is enough of it."""
        cores = self.events.frame.sparkSession.sparkContext.defaultParallelism
        return max(min(size // _WORTH_A_TASK, most_per_core * cores), cores)

    def _input_bytes(self) -> int:
        """What Spark thinks the input holds, or what the files say."""
        if self.events.files is not None:
            return self.events.files.size
        return int(str(self.events.frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))

    # --- in one task ------------------------------------------------------------------------------------------------

    @property
    def _runs_oracle(self) -> bool:
        made = makes_output(self.prepared.query) and not sums_up(self.prepared)
        return made or self.prepared.plan.evaluator == REFERENCE

    @property
    def _as_a_whole(self) -> bool:
        return self._runs_oracle or makes_output(self.prepared.query)

    def _whole_task(self) -> WholeTask:
        gatherer = None if makes_output(self.prepared.query) else self._gatherer()
        return WholeTask(self._shipped, self.events.columns, self.events.schema, gatherer)

    def _whole_matches(self) -> DataFrame:
        task = self._whole_task()
        frame = self.events.frame.filter(column(self.events.columns.time).isNotNull())
        frame = frame.withColumn(POSITION, F.monotonically_increasing_id())
        if summarises(self.prepared.query):
            frame = frame.unionByName(_no_event(frame))
        return together(frame, self._input_bytes()).mapInArrow(task, from_arrow_schema(task.schema))

    @property
    def _shipped(self) -> Prepared:
        """What goes to the workers, each of which makes the kernel for itself."""
        return replace(self.prepared, kernel=None)

    def _gatherer(self) -> Gatherer:
        shown = {var: self.events.shown_by(role.event_class.types) for var, role in self.prepared.variables.items()}
        return Gatherer.of(self._shipped, self.events.schema, self.events.columns.time, shown)


def _no_event(frame: DataFrame) -> DataFrame:
    """A row that is no event: there is one row about all matches even where Spark has no partition to make it in."""
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema if field.name != POSITION]
    return frame.sparkSession.range(1).select(*nulls, F.lit(NO_EVENT).cast("long").alias(POSITION))


def together(frame: DataFrame, size: int) -> DataFrame:
    """All rows in one partition. A large input is still read by all cores."""
    return frame.repartition(1) if size >= _WORTH_DIVIDING else frame.coalesce(1)


def _whole_part(of: Column, by: int) -> Column:
    return F.call_function("div", of, F.lit(by).cast("long"))
