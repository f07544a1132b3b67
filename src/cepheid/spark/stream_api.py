"""`cepheid.stream`: queries over a streaming DataFrame, or over directories in which files appear."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cepheid.deploy.deployment import Written, representatives
from cepheid.engine.event_types import settled
from cepheid.engine.prepare import RunOptions
from cepheid.engine.query_text import QueryText, require_settled_classes
from cepheid.engine.shapes import OutputOptions
from cepheid.errors import InputProblem, listing, type_name
from cepheid.events import UNTYPED
from cepheid.io.frames import inputs_of
from cepheid.io.inputs import Columns, Input
from cepheid.optimize.adapt import Policy
from cepheid.pattern import Query, types_named
from cepheid.spark.file_stream import FileStream, StreamPaths
from cepheid.spark.hadoop import open_directory
from cepheid.spark.source import SparkEvents, SparkSource
from cepheid.spark.stream import RunningStream, SparkStream, Trigger, Writer, buckets_of, tasks_of
from cepheid.spark.workers import require_jvm, require_workers
from cepheid.spark.writers import BatchDirectories
from cepheid.streaming.checkpoint import Checkpoint
from cepheid.streaming.delivery import Sinks
from cepheid.streaming.metrics import Metrics
from cepheid.streaming.planning import StreamOptions, StreamSource
from cepheid.streaming.reader import RowReader
from cepheid.streaming.sinks import FORMATS, FileSink, Hook, HookSink, Sink
from cepheid.streaming.slots import GREEDY
from cepheid.streaming.storage import local_directory
from cepheid.streaming.versions import Planner

ONE = "query"
"""The name of the one query of a stream."""

Path = str | os.PathLike[str]
Directories = Path | Sequence[Path | Input] | Mapping[str, Path | Input]


def stream(
    query: str | Query | Mapping[str, str | Query] | None,
    events: SparkEvents | Directories,
    *,
    watermark: str | int,
    checkpoint: str,
    output: str | None = None,
    late_output: str | None = None,
    reject_output: str | None = None,
    format: str = "parquet",
    writer: Writer | None = None,
    on_match: Hook | None = None,
    on_late: Hook | None = None,
    on_progress: Callable[[Metrics], None] | None = None,
    dialect: str = "auto",
    type: str | None = None,
    type_column: str | None = "type",
    time_column: str = "ts",
    start_column: str | None = None,
    time_unit: str | None = None,
    types: Sequence[str] | None = None,
    order_by: Sequence[str] = (),
    buckets: int | None = None,
    partitions: int | None = None,
    available_now: bool = False,
    end_of_time: bool = True,
    interval: str | None = None,
    max_ahead: str | int | None = None,
    params: Mapping[str, Any] | None = None,
    evaluator: str | None = None,
    options: Mapping[str, str | bool] | None = None,
    adaptive: bool | Policy = False,
    moved: bool = False,
    drop_keys: bool = False,
    output_shape: str = "events",
    detected_at: bool = False,
    match_id: bool = False,
    id_column: str | None = None,
    placement: str = GREEDY,
    follow_rates: bool = True,
) -> RunningStream:
    """Starts a query (or several, by name, in one pass) on a streaming DataFrame.

    `watermark` is the allowed lateness: an event may be up to this much older than the newest one (`"10 minutes"`, or a
    number in the unit of the time column). Later events go to `late_output` (and `on_late`), rows without a time to
    `reject_output`; all are counted. `max_ahead` bounds how far ahead of the wall clock an event may be: one from the
    far future would make all others late. An event beyond it is rejected.
    Matches go to files under `output`, to a Spark `writer(df, batch_id)`, and to `on_match(row, batch)`. `format` is
    parquet or jsonl, with a file for each batch, or any other that Spark can write, with a directory for each. From
    `checkpoint` the stream resumes after a stop or a crash. `on_progress` is called with the stream's metrics after
    every batch.

    With `available_now` the stream ends when it has read what is there, and `wait()` then writes the matches that would
    follow if no further event came, as the batch `end-of-time`: to files and `on_match`, not to writers of Spark. Those
    files are removed when the stream resumes. `end_of_time=False` omits them.

    `query` may be a dictionary of named queries. What they have in common runs once. Their matches are one table for
    each set of columns, with the name of the query in the column `query`: `output` has a directory for each table, and
    the writer is called for each, `writer(df, batch_id, table)`. `add`, `remove` and `replace` of the result change the
    queries while the stream runs; the checkpoint stores them, and `query=None` resumes with those that it has.

    `events` is a streaming DataFrame, a dictionary with one for each event type, or `cepheid.Input` values with their
    own type, columns of time and unit. `type` is the type of all events, if no column holds it.

    `events` may also be the path of a directory in which files appear, or several: a list of paths, a dictionary with
    one for each event type, or `cepheid.Input` values. They are read as by `cepheid stream`: late events and rejects go
    beside `output`, which they need, and the call returns when the first event has settled the columns.

    Events with a duration have their start in `start_column` and their end in `time_column`, which decides whether they
    are late. Those of one end are ordered by their start.

    Events of the same time are ordered by the columns `order_by`, or else by all their columns. `types` are the event
    types of the input, for queries whose names may or may not be types. With `adaptive=True` (or an `Adaptive` with
    other thresholds) plans change between batches when the stream does; `metrics().switches` lists the changes.

    A directory with the output of another stream is refused; `moved=True` confirms that it is that of this one.

    `output_shape`, `detected_at`, `match_id` and `id_column` select the columns of the output, as `output` and the
    options of the same names do in `match`. The long shape of a stream has identifiers in place of numbers of matches.

    Queries without a key are placed on the buckets, which tasks process in parallel, by the strategy `placement`
    (greedy, greedy-without-reuse, round-robin or annealing). With `follow_rates`, they move between two batches, with
    their state, when the measured loads of the buckets drift apart; `move` of the result does so by hand.

    An event that completes more matches than `options={"max_matches": ...}` stops the stream. With `drop_keys=True`,
    the events of its key are ignored from then on instead; `metrics().dropped` lists the keys."""
    several = query is None or isinstance(query, Mapping)
    inputs = inputs_of(events)
    if inputs is not None and any(isinstance(item.data, str | os.PathLike) for item in inputs):
        _require_directories(inputs, output, order_by, types, buckets, partitions)
        stored = Checkpoint(local_directory(checkpoint), checkpoint).versions() if query is None else []
        shown = OutputOptions(output_shape, detected_at, match_id, id_column)
        with QueryText(query).located_errors() if isinstance(query, str) else nullcontext():
            written = stored[-1].queries if stored else _written(query, dialect)
            if not several:  # stored as the command line does: spaces do not matter
                written = {name: replace(one, source=one.query) for name, one in written.items()}
            opened = FileStream.open(
                written,
                inputs,
                StreamPaths(
                    tuple(item.path for item in inputs), checkpoint, str(output), late_output, reject_output, format
                ),
                Columns.of(type_column, time_column, start_column, type),
                RunOptions.of(params, evaluator, options, None, adaptive, time_unit),
                is_several=several,
                follows=query is None,
                watermark=watermark,
                files_per_batch=None,
                max_ahead=max_ahead,
                wait=not available_now,
                is_moved=moved,
                drops_keys=drop_keys,
                output=shown,
                placement=placement,
            )
        if opened is None:
            raise InputProblem(
                f"there is no event yet in {listing(item.path for item in inputs)}",
                expected="at least one event in each directory: it settles the columns",
                hint="without available_now=True, the stream waits for the first event",
            )
        return opened.observed(on_match, on_late, writer, follow_rates).followed(
            Trigger(available_now, interval, end_of_time), on_progress
        )
    _require_frames([Input(events)] if inputs is None else inputs)
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    require_jvm(session, "streams")
    saved = Checkpoint(open_directory(checkpoint, session), checkpoint)
    known = saved.versions() if several else []
    queries = known[-1].queries if query is None and known else _written(query, dialect)
    examples = representatives(queries) if several else [written.query for written in queries.values()]
    columns = settled(Columns.of(type_column, time_column, start_column, type), examples)
    input = SparkSource.of(cast(SparkEvents, events), columns, time_unit)
    run_options = RunOptions.of(params, evaluator, options, None, adaptive, time_unit)
    session = input.frame.sparkSession
    require_workers(session)
    spread = buckets or buckets_of(saved, tasks_of(session, partitions))
    with QueryText(query).located_errors() if isinstance(query, str) else nullcontext():
        source = stream_source(input, examples, types)
        shown = OutputOptions(output_shape, detected_at, match_id, id_column)
        chosen = StreamOptions(watermark, run_options, tuple(order_by), spread, max_ahead, drop_keys, shown, placement)
        planner = Planner(source, chosen)
        if several:
            versions, refused = planner.started(queries, known)
        else:
            plan, refused = planner.plan(queries, is_several=False)
            versions = [(0, plan)]
        for error in refused.values():
            raise error
    by_spark = format not in FORMATS
    own = "parquet" if by_spark else format
    writers = [] if writer is None else [writer]
    if by_spark and output is not None:
        writers.append(BatchDirectories.of(output, format, session))

    def sinks_of(path: str | None, hook: Hook | None) -> list[Sink]:
        files: list[Sink] = [] if path is None else [FileSink(open_directory(path, session), own)]
        return files if hook is None else [*files, HookSink(hook)]

    sinks = Sinks(
        sinks_of(None if by_spark else output, on_match), sinks_of(late_output, on_late), sinks_of(reject_output, None)
    )
    planned = SparkStream(versions[-1][1], input.frame, saved, sinks, writers, partitions, moved)
    if several:
        planned = replace(planned, planner=planner, moves=follow_rates).with_versions(versions)
    return planned.start(Trigger(available_now, interval, end_of_time), on_progress)


def _require_directories(
    inputs: Sequence[Input],
    output: str | None,
    order_by: Sequence[str],
    types: Sequence[str] | None,
    buckets: int | None,
    partitions: int | None,
) -> None:
    if not all(isinstance(item.data, str | os.PathLike) for item in inputs):
        raise InputProblem(
            "some inputs of the stream are directories, and some DataFrames",
            expected="directories only, or streaming DataFrames only",
            hint="read the directories with spark.readStream",
        )
    if output is None:
        raise InputProblem(
            "a stream of directories needs an output", expected="output=DIRECTORY; late events and rejects go beside it"
        )
    given = {"order_by": order_by, "types": types, "buckets": buckets, "partitions": partitions}
    of_frames = [name for name, value in given.items() if value]
    if of_frames:
        raise InputProblem(
            f"{listing(of_frames)} {'is an option' if len(of_frames) == 1 else 'are options'} of streaming DataFrames",
            expected="none of them for directories: their files have an order, and settle the types",
        )


def _require_frames(inputs: Sequence[Input]) -> None:
    """Refuses other inputs before a session starts."""
    for item in inputs:
        if not isinstance(item.data, DataFrame):
            raise InputProblem(
                f"the events of a stream are of type {type_name(item.data)}",
                expected="a streaming DataFrame of Spark, a directory, or several of one kind",
                hint="cepheid.match(query, events) runs over a table at once; spark.readStream, or the path of a "
                "directory in which files appear, is a stream",
            )


def stream_source(events: SparkSource, queries: Iterable[Query], types: Sequence[str] | None) -> StreamSource:
    schema, attributes = events.schema, events.attributes
    if events.columns.type not in schema.names and events.type_column is not None:
        # The type of an event is the DataFrame that it comes from.
        schema = schema.append(pa.field(events.columns.type, pa.string()))
    if attributes is None:
        named: Iterable[str] = ()
        if events.type_column is not None:
            named = [name for query in queries for name in _settled_types(query)] if types is None else types
        columns = {field.name: field.type for field in events.schema}
        attributes = dict.fromkeys([*named, UNTYPED], columns)
    return StreamSource(RowReader(schema, events.columns), attributes, events.is_closed)


def _settled_types(query: Query) -> list[str]:
    require_settled_classes(query, "the types of the stream", hint="list the types: types=[...]")
    return types_named(query)


def _written(query: str | Query | Mapping[str, str | Query] | None, dialect: str) -> dict[str, Written]:
    named = {} if query is None else query if isinstance(query, Mapping) else {ONE: query}
    if not named:
        raise InputProblem("there is no query", expected="at least one: {'name': 'EVENT ...'}")
    return {name: Written(name, text, dialect) for name, text in named.items()}
