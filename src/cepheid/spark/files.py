"""The command line's Spark backend: a prepared query over files that were opened as a source.

Files of columns are read by the workers. Rows that were read one by one travel to Spark with the columns of the plan
only: Spark finds the positions of the events of each match, and the matches show the rows of the source.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from cepheid.engine import oracle
from cepheid.engine.adaptation import ignore
from cepheid.engine.positions import MatchPositions
from cepheid.engine.prepare import Prepared
from cepheid.engine.run import Progress, Result, objects_of, read_by_plan, run, shown_columns
from cepheid.io.files import EventFile, FileSource, TextFile
from cepheid.io.formats import format_of
from cepheid.io.inputs import Columns
from cepheid.io.rows import ROW, TIME, TYPE
from cepheid.io.shares import StoredColumns, StoredFile
from cepheid.io.source import Source, columns_read, readable_schema
from cepheid.kernels.registry import kernel_for
from cepheid.optimize.distribution import distribution
from cepheid.physical import REFERENCE
from cepheid.spark.batch import SparkJob
from cepheid.spark.catalyst import column
from cepheid.spark.events import TYPES, SparkEvents
from cepheid.spark.session import session
from cepheid.spark.worker import POSITION

TIMES = "__cepheid_time"

_FOR_SMALL_JOBS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Events that are read one by one are few, and the JVM's optimising compiler costs more than it gains."""
_ROW_GROUP = 1 << 18
"""Rows that are read at once: few enough that all cores get some."""


def run_on_spark(prepared: Prepared, source: Source, *, as_text: bool = False, progress: Progress = ignore) -> Result:
    """The matches, as `engine.run` gives them."""
    by_task = oracle.makes_output(prepared.query) or prepared.kernel is None or not source.count
    if by_task or (isinstance(source, FileSource) and not _tells_types(prepared, source)):
        schema = run(prepared, source, as_text=as_text).schema
        return Result(schema, _in_one_task(prepared, source, as_text), objects_of(prepared))
    if isinstance(source, FileSource):
        schema = _job(prepared, source, []).schema
        return Result(schema, _by_files(prepared, source, progress), objects_of(prepared))
    schema = oracle.match_batch(prepared, [], as_text).schema
    return Result(schema, _by_rows(prepared, source, as_text), objects_of(prepared))


# --- files of columns -------------------------------------------------------------------------------------------------


def _job(prepared: Prepared, source: FileSource, stored: Sequence[StoredFile]) -> SparkJob:
    schema = readable_schema(source.schema)
    events = SparkEvents(
        frame=session().createDataFrame([], from_arrow_schema(schema)),
        columns=source.columns,
        schema=schema,
        of_type={name: tuple(columns) for name, columns in source.attributes.items()},
        files=StoredColumns.of(stored, source.columns.time),
        typed=True,
    )
    return SparkJob(prepared, events, distribution(prepared.plan))


def _tells_types(prepared: Prepared, source: FileSource) -> bool:
    """Whether the rows of the output tell which columns their events have: by their type column, or because all have
    the same."""
    differ = any(TYPE in names for names in shown_columns(prepared, as_text=True).values())
    return not differ or all(file.type is None for file in source.files)


def _by_files(prepared: Prepared, source: FileSource, progress: Progress) -> Iterator[pa.RecordBatch]:
    with _in_parquet(source.files) as stored:
        job = _job(prepared, source, stored)
        found = job.matches().toArrow()
    progress(source.count, found.num_rows)
    yield from found.cast(job.schema).to_batches()


@contextmanager
def _in_parquet(files: Sequence[EventFile]) -> Iterator[list[StoredFile]]:
    """The files that workers read. A text file was read to find the types of its columns, and is not read again."""
    with tempfile.TemporaryDirectory(prefix="cepheid-") as directory:
        stored = []
        for number, file in enumerate(files):
            # Workers have a working directory of their own.
            path = Path(os.path.abspath(file.path))
            if isinstance(file, TextFile):
                path = Path(directory) / f"{number}.parquet"
                pq.write_table(file.table, path, compression="none", row_group_size=_ROW_GROUP)
            stored.append(StoredFile(str(path), file.type, format_of(path)))
        yield stored


# --- rows -------------------------------------------------------------------------------------------------------------


def _by_rows(prepared: Prepared, source: Source, as_text: bool) -> Iterator[pa.RecordBatch]:
    matches = oracle.matches_at(prepared, [_positions(prepared, source)], source.rows([ROW]))
    yield oracle.match_batch(prepared, matches, as_text)


def _positions(
    prepared: Prepared, source: Source, spark: SparkSession | None = None, partitions: int | None = None
) -> MatchPositions:
    keys = columns_read([key for plan in prepared.plans for key in plan.key], source.schema)
    names = list(dict.fromkeys([*read_by_plan(prepared, source.schema), *keys]))
    events = pa.Table.from_batches(source.batches(names))
    arrays = [_plain(events.column(name)) for name in [*names, TYPE, TIME]]
    table = pa.table([*arrays, pa.array(np.arange(len(events)))], names=[*names, TYPES, TIMES, POSITION])
    spark = spark or session(settings=_FOR_SMALL_JOBS)
    shown = table.drop_columns([POSITION, TYPES]).schema
    read = SparkEvents(spark.createDataFrame(table), Columns(TYPES, TIMES), shown)
    job = SparkJob(prepared, read, distribution(prepared.plan), partitions)
    found = job.positions(column(POSITION)).toArrow()
    variables = {var: found.column(var).combine_chunks() for var in prepared.variables}
    unused = np.zeros(found.num_rows, np.int64)
    return MatchPositions(variables, unused, unused)


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Spark has neither dictionaries nor columns of no type."""
    if pa.types.is_null(values.type):
        return values.cast(pa.float64())
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


# --- one task ---------------------------------------------------------------------------------------------------------


def _in_one_task(prepared: Prepared, source: Source, as_text: bool) -> Iterator[pa.RecordBatch]:
    """A row about all matches, matches of events that are no row of the input, or matches that the oracle finds."""
    if isinstance(source, FileSource):
        # Workers have a working directory of their own.
        source = replace(source, files=tuple(replace(f, path=os.path.abspath(f.path)) for f in source.files))  # type: ignore[type-var]
    work = (replace(prepared, kernel=None), source, as_text)
    (batches,) = session(settings=_FOR_SMALL_JOBS).sparkContext.parallelize([work], 1).map(_run_in_task).collect()
    yield from batches


def _run_in_task(work: tuple[Prepared, Source, bool]) -> list[pa.RecordBatch]:
    prepared, source, as_text = work
    kernel = None if prepared.plan.evaluator == REFERENCE else kernel_for(prepared.plan)
    return list(run(replace(prepared, kernel=kernel), source, as_text=as_text).batches)
