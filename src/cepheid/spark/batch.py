"""A query over events in Spark, in batch. Spark evaluates what it can (types, single-event predicates, projections,
shuffles) and hands few columns of few events to Python, once for each task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import NullType, StructType

from cepheid.engine.adaptation import ignore
from cepheid.engine.consumption import require_whole
from cepheid.engine.derivation import Wiring
from cepheid.engine.gather import Gatherer
from cepheid.engine.passing import Progress
from cepheid.engine.prepare import Prepared
from cepheid.engine.run import Result, gatherer_for, objects_of, output_schema, shown_columns
from cepheid.engine.shapes import EVENTS, FLAT, for_shape
from cepheid.engine.spread import input_types, spread
from cepheid.engine.summary import Summary
from cepheid.errors import NotAvailable
from cepheid.expr import Whole, attributes_in
from cepheid.io.formats.csv import CsvReader
from cepheid.io.rejects import REASON
from cepheid.io.rows import ROW, TYPE
from cepheid.io.shares import StoredFiles
from cepheid.io.source import Source, columns_read
from cepheid.io.stream_rows import plain_schema
from cepheid.kernels.successor.failures import shows_failures
from cepheid.optimize.distribution import Distribution, Keyed, Sliced, Undivided, may_drop, slices
from cepheid.pattern import Disj, Filtered, Iteration, Next, Unless, partition_attributes, walk
from cepheid.physical import REFERENCE
from cepheid.spark.acquiring import OPTION, SCAN, STEPS, Steps, candidates, is_wanted, steps_of, why_not
from cepheid.spark.catalyst import EventColumns, column, ticks, whole_part
from cepheid.spark.file_steps import Stepping
from cepheid.spark.reading import (
    COUNTED,
    FIRST,
    LAST,
    LINE,
    PATH,
    CountedRead,
    CsvRejects,
    CsvRows,
    ReadCounts,
    ReadTask,
    ReadTimes,
)
from cepheid.spark.session import session
from cepheid.spark.shapes import flat, long
from cepheid.spark.source import SparkSource, file_source
from cepheid.spark.summaries import MergeTask, SummaryTask, merged
from cepheid.spark.tasks import Tasks
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
    Renamed,
    Slices,
    WholeTask,
    spark_types,
)
from cepheid.streaming.failures import worker_error

Batches = Iterator[pa.RecordBatch]
Task = TypeVar("Task", KernelTask, WholeTask)


_LONGEST_RANGE = 1 << 62
_SHARES_PER_CORE = 4
"""Row groups contain different numbers of relevant events; smaller shares balance them."""
_READ_OTHERWISE = frozenset("*.`")
"""Characters of a column name that PySpark does not take for a part of the name."""
_SMALL_JOBS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""For sources that were read row by row, which are small: the JVM's optimizing compiler costs more than it gains."""


def run(prepared: Prepared, source: SparkSource, partitions: int | None = None, *, as_text: bool = False) -> DataFrame:
    """The matches, one row each, in any order. The DataFrame is lazy, except for one aggregate over the time
    column where time is divided into slices and the files have no statistics. `as_text` is as in `engine.run`."""
    return SparkBatch(prepared, source, partitions, as_text).matches()


def run_files(prepared: Prepared, source: Source, *, as_text: bool, progress: Progress = ignore) -> Result:
    """The matches in a source of files, collected, as `engine.run` returns them."""
    require_whole(prepared, "on Spark")
    schema = plain_schema(output_schema(prepared, as_text))
    prepared = replace(prepared, input=replace(prepared.input, schema=spark_types(prepared.input.schema)))

    def batches() -> Iterator[pa.RecordBatch]:
        spark = session(settings=_SMALL_JOBS if ROW in source.schema.names else {})
        with file_source(source, spark) as events:
            try:
                matches = run(prepared, events, as_text=as_text).toArrow()
            except PySparkException as problem:
                raise worker_error(str(problem)) or problem from None
        progress(source.count or 0, matches.num_rows)
        yield from matches.cast(schema).to_batches()

    return Result(schema, batches(), objects_of(prepared))


@dataclass(frozen=True, slots=True)
class SparkBatch:
    """A prepared query and its source, and how the work is divided among tasks."""

    prepared: Prepared
    source: SparkSource
    partitions: int | None = None
    """The number of tasks; None leaves it to the size of the input."""
    as_text: bool = False
    steps: Steps | None = None
    """The intervals outside of which no row matters, if the rarest events were read first."""
    scans: str | None = None
    """Why one scan is expected to cost less than steps, if that was considered."""

    def __post_init__(self) -> None:
        require_whole(self.prepared, "on Spark")

    @property
    def distribution(self) -> Distribution:
        divided = spread(self.prepared)
        if not isinstance(divided, Keyed) or not divided.computed or self.source.files is not None:
            return divided
        is_known = all(column is not None for column in self.key_columns(divided))
        return divided if is_known else slices(self.prepared.plan)

    def key_columns(self, key: Keyed) -> list[Column | None]:
        of = self._event_columns
        return [of.computed(key.computed[n]) if n in key.computed else of.value(n) for n in key.attributes]

    @property
    def session(self) -> SparkSession:
        return self.source.frame.sparkSession

    @property
    def tasks(self) -> Tasks:
        return Tasks(self.source, self.partitions)

    def acquired(self) -> SparkBatch:
        """The query over the rows around its rarest events, if it runs in steps."""
        if self.steps is not None or self.scans is not None:
            return self
        option = self.prepared.plan.options.get(OPTION)
        reason = "one task reads all events" if self.is_whole else why_not(self.prepared, self.source)
        if option == STEPS and reason is not None:
            raise NotAvailable(f"this query in steps: {reason}", hint=f'leave the option out, or set it to "{SCAN}"')
        if option == SCAN or reason is not None:
            return self
        files = self.source.files
        if files is None:
            wanted = is_wanted(self.prepared, self.source)
            return replace(self, steps=steps_of(self.prepared, self.source)) if wanted else self
        if option is None and self.tasks.one_reads(files):
            return self
        names = self.names_of_whole() if self.is_merged else self._names(gatherer_for(self.shipped))
        others = {self.source.columns.type, *self.source.columns.times}
        read = self._reading(files, [])
        columns = len({*names, *read.needed} - others)
        found = Stepping(
            self.prepared, files, read, columns, candidates(self.prepared), self._collected, option == STEPS
        ).steps()
        if isinstance(found, str):
            return replace(self, scans=found)
        steps = Steps(found.taken, found.within, found.key, found)
        left = replace(files, parts=found.parts, rows=found.expected.rows)
        return replace(self, steps=steps, source=replace(self.source, files=left))

    def _collected(self, read: ReadTask) -> tuple[pa.Table | None, ReadCounts]:
        """The events that a job reads, and what it read for them."""
        return self._counted(read, with_events=True)

    def _counted(self, read: ReadTask, with_events: bool) -> tuple[pa.Table | None, ReadCounts]:
        rows = self._by_shares(read).mapInArrow(CountedRead(read, with_events), COUNTED).toArrow()
        counts = ReadCounts(*(pc.sum(rows.column(name)).as_py() or 0 for name in rows.schema.names[:-1]))
        found = [pa.ipc.open_stream(part.as_buffer()).read_all() for part in rows.column("events") if part.is_valid]
        return (pa.concat_tables(found) if found else None), counts

    def counted(self) -> ReadCounts | None:
        """Reads what the matches are found in, and counts it; None where Spark reads it."""
        files = self.source.files
        if files is None or self.is_whole or self.is_fed:
            return None
        names = self.names_of_whole() if self.is_merged else self._names(gatherer_for(self.shipped))
        return self._counted(self._reading(files, names), with_events=False)[1]

    def matches(self) -> DataFrame:
        if self.steps is None and self.scans is None:
            acquired = self.acquired()
            if acquired is not self:
                return acquired.matches()
        if self.is_merged:
            events, whole = self._by_rows()
            partials = _mapped(events, SummaryTask(whole), from_arrow_schema(SummaryTask(whole).schema))
            return merged(partials).mapInArrow(MergeTask(whole), self._declared(whole))
        events, task = self._whole() if self.is_whole else self._by_rows() if self.is_fed else self._divided()
        matches, limit = _mapped(events, task, self._declared(task)), self.prepared.query.limit
        if limit is None or isinstance(task, WholeTask):
            return matches
        return matches.orderBy(ORDER).limit(limit).drop(ORDER)

    def shaped(self, shape: str) -> DataFrame:
        """The matches in one of the shapes of `engine/shapes.py`."""
        if shape == EVENTS:
            return self.matches()
        batch = replace(self, prepared=for_shape(self.prepared, shape))
        variables = objects_of(batch.prepared).types
        return flat(batch.matches(), variables) if shape == FLAT else long(batch.matches(), variables)

    def rejects(self) -> DataFrame:
        """The rows that are not events, with the reason. Of CSV files these are the lines from which a column that the
        query reads cannot be parsed; the reference evaluator reads all columns."""
        files = self.source.files
        if files is None or not isinstance(files.reader, CsvReader):
            return self.source.frame.withColumn(REASON, self.source.reject_reason).filter(column(REASON).isNotNull())
        reads_rows = self.is_whole or self.is_fed or self.is_merged
        names = self.names_of_whole() if reads_rows else self._names(gatherer_for(self.shipped))
        read = self._reading(files, names)
        task = CsvRejects(files.reader, read.shares, tuple(read.needed), self.source.columns, REASON)
        return self._by_shares(read).mapInArrow(task, f"{PATH} string, {LINE} string, {REASON} string")

    def _declared(self, task: KernelTask | WholeTask) -> StructType:
        """The schema for Spark. Fields of an event that are never null (its time, a type that the mask implies, a key)
        are declared so: Spark then does not test them in every match. The event of a branch that was not taken is null,
        and Arrow wants all its fields to allow null then."""
        declared = from_arrow_schema(task.schema)
        may_lack = shows_failures(self.prepared.plan) or any(
            isinstance(n, Disj) for n in walk(self.prepared.query.pattern)
        )
        if isinstance(task, WholeTask) or may_lack:
            return declared
        never = {*self.source.columns.times, *([task.types.column] if task.types is not None else [])}
        if isinstance(self.distribution, Keyed) and not self.distribution.nulls_match:
            never.update(self.distribution.attributes)
        columns, variables = task.gatherer.columns, self.prepared.variables
        events = {c.name for c in columns if isinstance(c.shows, Whole) and c.shows.var in variables}
        for field in declared:
            if field.name in events and isinstance(field.dataType, StructType):
                for inner in field.dataType:
                    inner.nullable = inner.name not in never or isinstance(inner.dataType, NullType)
        return declared

    # --- one task for all events --------------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """Whether one task runs the query over all events, as `engine.run` does: the oracle evaluates it, or the rows
        do not show which attributes their events have, or nothing divides the queries that feed it or its summary."""
        prepared = self.prepared
        if prepared.plan.evaluator == REFERENCE or ROW in prepared.input.schema.names:
            return True
        if self.source.local is not None and self.source.files is None:  # inputs that are merged by time
            return True
        if prepared.query.summarizes:
            return isinstance(self.distribution, Undivided)
        if self.is_fed:
            return isinstance(self.distribution, Undivided) or prepared.query.limit is not None
        if not self.as_text or self._types_are_in_column:
            return False
        return any(TYPE in names for names in shown_columns(prepared, as_text=True).values())

    @property
    def is_merged(self) -> bool:
        """Whether each task summarises its matches."""
        return self.prepared.query.summarizes and not self.is_whole

    def _whole(self) -> tuple[DataFrame, WholeTask]:
        task = WholeTask(self.shipped, self.source.local, self.as_text)
        if self.source.local is not None:
            return self.session.range(1, numPartitions=1), task
        frame = self._rows().filter(self.source.is_event)
        frame = frame.withColumn(POSITION, F.monotonically_increasing_id())
        if self.prepared.query.summarizes:
            frame = frame.unionByName(_no_event(frame))
        return self.tasks.in_one(frame), task

    @property
    def is_fed(self) -> bool:
        """Whether other queries feed the query."""
        return self.prepared.graph is not None

    def _by_rows(self) -> tuple[DataFrame, WholeTask]:
        """Each task evaluates the whole graph, or summarises its matches, over some keys or a slice of time."""
        names, task = self.names_of_whole(), WholeTask(self.shipped, None, self.as_text)
        if self.source.files is not None:
            return self._from_files(self.source.files, names, task)
        carried = [*map(column, names), F.monotonically_increasing_id().alias(POSITION)]
        frame, slices = self._shuffled(self._relevant().select(*carried))
        return frame, replace(task, slices=slices)

    def _rows(self) -> DataFrame:
        """The rows of the input. Workers parse CSV files, so that they reject lines as in other runs."""
        files = self.source.files
        if files is None or not isinstance(files.reader, CsvReader):
            return self.source.frame
        read = self._reading(files, [])
        task = CsvRows(files.reader, read.shares, tuple(self.names_of_whole()))
        return self._by_shares(read).mapInArrow(task, self.source.frame.schema)

    def names_of_whole(self) -> list[str]:
        """The columns that the oracle, or the queries of a graph, and the output read."""
        if not self.is_whole:
            summarizes = self.prepared.query.summarizes
            shown = Summary.of(self.prepared.query).attributes if summarizes else gatherer_for(self.shipped).needed()
            read = columns_read([*self.prepared.plan.attributes, *shown], self.prepared.input.schema)
            if self.is_fed:
                read = list(Wiring.of(self.prepared, read, self.source.schema).input_columns)
            keys = self.distribution.attributes if isinstance(self.distribution, Keyed) else ()
            own = [self.source.columns.type, *self.source.columns.times, *keys]
            return columns_read([*own, *read], self.source.schema)
        query, schema, columns = self.prepared.written, self.source.schema, self.source.columns
        tests_inside = any(isinstance(node, Filtered | Next | Iteration | Unless) for node in walk(query.pattern))
        shows_events = query.output is None or any(isinstance(c.expr, Whole) for c in query.output)
        if query.inputs or tests_inside or shows_events:
            return list(schema.names)
        names = attributes_in([*query.where, *(c.expr for c in query.output or ())])
        return columns_read([columns.type, *columns.times, *partition_attributes(query), *names], schema)

    @property
    def shipped(self) -> Prepared:
        """For the workers, each of which makes the kernel itself."""
        return self.prepared.without_kernels()

    # --- many tasks ---------------------------------------------------------------------------------------------------

    def _divided(self) -> tuple[DataFrame, KernelTask]:
        gatherer, plan = gatherer_for(self.shipped), self.prepared.plan
        files = self.source.files
        mask = self._event_columns.mask(plan) if files is None else None
        is_masked = files is not None or mask is not None
        types = ImpliedTypes.of(self.prepared, self.source.type_column) if self._types_are_in_column else None
        task = KernelTask(self.shipped, gatherer, types if is_masked else None)
        names = [name for name in self._names(gatherer) if task.types is None or name != task.types.column]
        if files is not None:
            return self._from_files(files, names, task)
        if mask is None:
            task, names = replace(task, type_column=self.source.type_column), self._names_of_masks(names)
        carried = [*(column(name) for name in names), *([] if mask is None else [mask.alias(MASKS)])]
        if self._arrival_matters:
            carried.append(F.monotonically_increasing_id().alias(POSITION))
        frame, slices = self._shuffled(self._relevant().select(*carried))
        return frame, replace(task, slices=slices)

    def _names_of_masks(self, names: Sequence[str]) -> list[str]:
        """These columns and those that workers need to compute masks."""
        tested = columns_read(self.prepared.plan.tested, self.source.schema)
        types = [] if self.source.type_column is None else [self.source.type_column]
        return list(dict.fromkeys([*names, *tested, *types]))

    def _names(self, gatherer: Gatherer) -> list[str]:
        """The columns that the kernel and the output read."""
        plan = self.prepared.plan
        read = [*plan.read, *plan.key, *gatherer.needed(), *self.source.columns.times]
        return columns_read(read, self.source.schema)

    @property
    def _types_are_in_column(self) -> bool:
        """Whether no file has one type for all its rows."""
        files = self.source.files
        return files is None or all(file.type is None for file in files.reader.files)

    @property
    def _arrival_matters(self) -> bool:
        """Whether the order of events of equal time matters: they can follow one another, they are counted, or they
        decide which matches come first."""
        query, plan = self.prepared.query, self.prepared.plan
        return query.dialect.ordered_by_position or plan.counts_events or query.limit is not None

    def _relevant(self) -> DataFrame:
        """The events that can be part of a match, by tests of single events."""
        plan = self.prepared.plan
        conditions = [self.source.is_event]
        if self.is_fed:
            types, type_column = input_types(self.prepared), self.source.type_column
            matters = None if types is None or type_column is None else column(type_column).isin(*types)
        else:
            matters = self._event_columns.matters(plan) if may_drop(plan) else None
        if matters is not None:
            conditions.append(matters)
        if isinstance(self.distribution, Keyed) and not self.distribution.nulls_match:
            conditions.extend(self._event_columns.is_there(name) for name in self.distribution.attributes)
        events = self.source.frame.filter(reduce(and_, conditions))
        return events if self.steps is None else self.steps.filtered(events, self._ticks)

    @property
    def _event_columns(self) -> EventColumns:
        return EventColumns(self.source.frame.schema, self.source.type_column, self.prepared.plan.lacks)

    def _shuffled(self, frame: DataFrame) -> tuple[DataFrame, Slices | None]:
        count = self.tasks.count
        match self.distribution:
            case Keyed() as key if count > 1:
                return frame.repartition(count, *(c for c in self.key_columns(key) if c is not None)), None
            case Sliced() as wanted if count > 1:
                slices = self._slices(wanted, count)
                if slices is not None:
                    return self._sliced(frame, slices), slices
        return self.tasks.in_one(frame), None

    # --- files that workers read --------------------------------------------------------------------------------------

    def _from_files(self, files: StoredFiles, names: Sequence[str], task: Task) -> tuple[DataFrame, Task]:
        """Small files are read by the task that matches them; others by shares, and shuffled."""
        is_small = self.tasks.one_reads(files)
        count = 1 if is_small else self.tasks.count
        slices = None
        if isinstance(self.distribution, Sliced) and count > 1:
            times = files.times or self._times(self._reading(files, []))
            slices = None if times is None else self._slices_of(*times, self.distribution, count)
        count = slices.count if slices is not None else count if isinstance(self.distribution, Keyed) else 1
        read = self._reading(files, names, count, slices, masked=isinstance(task, KernelTask))
        task = replace(task, slices=slices, packed=True)
        if is_small:
            return self._by_shares(read, 1), replace(task, read=read)
        packed = self._by_shares(read).mapInArrow(read, PACKED)
        return packed.repartitionById(count, column(BUCKET)), task

    def _reading(
        self,
        files: StoredFiles,
        names: Sequence[str],
        partitions: int = 1,
        slices: Slices | None = None,
        *,
        masked: bool = True,
    ) -> ReadTask:
        return ReadTask(
            plan=None if self.is_fed else self.prepared.plan,
            columns=self.source.columns,
            schema=self.source.schema,
            names=tuple(names),
            reader=files.reader,
            shares=tuple(files.shares(self.tasks.of_size(files.size, _SHARES_PER_CORE))),
            distribution=self.distribution,
            partitions=partitions,
            slices=slices,
            numbered=masked and self.prepared.query.limit is not None,
            masked=masked,
            types=input_types(self.prepared) if self.is_fed else None,
            typed=self.source.drops_untyped,
            within=None if self.steps is None else self.steps.within,
            near_key=None if self.steps is None else self.steps.key,
        )

    def _by_shares(self, read: ReadTask, tasks: int | None = None) -> DataFrame:
        """The numbers of the shares, for as many tasks."""
        count = len(read.shares)
        return self.session.range(0, count, 1, max(count, 1) if tasks is None else tasks)

    def _times(self, read: ReadTask) -> tuple[int, int] | None:
        """The first and the last time in files without statistics."""
        edges = self._by_shares(read).mapInArrow(ReadTimes(read), f"{FIRST} long, {LAST} long")
        row = edges.agg(F.min(FIRST).alias(FIRST), F.max(LAST).alias(LAST)).first()
        return None if row is None or row[FIRST] is None else (row[FIRST], row[LAST])

    # --- slices of time -----------------------------------------------------------------------------------------------

    def _slices(self, wanted: Sliced, count: int) -> Slices | None:
        edges = self._relevant().agg(F.min(self._ticks).alias("first"), F.max(self._ticks).alias("last")).first()
        assert edges is not None
        return None if edges["first"] is None else self._slices_of(edges["first"], edges["last"], wanted, count)

    def _slices_of(self, first: int, last: int, wanted: Sliced, most: int) -> Slices | None:
        """Slices of equal length, none shorter than the window; None where one is enough. LIMIT takes the first
        matches, which one task finds without reading the rest."""
        length = max(-(-(last - first + 1) // most), wanted.after, 1)
        count = -(-(last - first + 1) // length)
        is_too_long = last - first + wanted.before + wanted.after >= _LONGEST_RANGE
        if count < 2 or is_too_long or self.prepared.query.limit is not None:
            return None
        return Slices(first, length, count, wanted.before, wanted.after)

    @property
    def _ticks(self) -> Column:
        return ticks(column(self.source.columns.time), self.source.time_type)

    def _sliced(self, frame: DataFrame, slices: Slices) -> DataFrame:
        """Every event, once for each slice whose matches it can affect."""
        since = self._ticks - F.lit(slices.origin)
        lowest = F.greatest(whole_part(since - F.lit(slices.after), slices.length), F.lit(0))
        highest = F.least(whole_part(since + F.lit(slices.before), slices.length), F.lit(slices.count - 1))
        numbers = F.sequence(lowest.cast("int"), highest.cast("int"))
        sliced = frame.withColumn(SLICE, F.explode(numbers))
        return sliced.repartitionById(slices.count, column(SLICE))


def _mapped(events: DataFrame, task: Callable[[Batches], Batches], declared: StructType) -> DataFrame:
    """The output of a task for each partition."""
    if all(name and not _READ_OTHERWISE & set(name) for name in events.columns):
        return events.mapInArrow(task, declared)
    generated = events.toDF(*(f"c{number}" for number in range(len(events.columns))))
    return generated.mapInArrow(Renamed(task, tuple(events.columns)), declared)


def _no_event(frame: DataFrame) -> DataFrame:
    """A row that is not an event: a summary of no matches needs a partition to be made in."""
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema if field.name != POSITION]
    return frame.sparkSession.range(1).select(*nulls, F.lit(NO_EVENT).cast("long").alias(POSITION))
