"""`cepheid.stream`: queries over a streaming DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pyarrow as pa

from cepheid.engine.event_types import settled
from cepheid.engine.prepare import RunOptions
from cepheid.engine.query_text import QueryText, require_settled_classes
from cepheid.engine.shapes import OutputOptions
from cepheid.errors import InputProblem
from cepheid.events import UNTYPED
from cepheid.io.inputs import Columns
from cepheid.lang import parse
from cepheid.optimize.adapt import Policy
from cepheid.pattern import Query, types_named
from cepheid.spark.hadoop import open_directory
from cepheid.spark.source import SparkEvents, SparkSource
from cepheid.spark.stream import RunningStream, SparkStream, Trigger, Writer, buckets_of, tasks_of
from cepheid.spark.workers import require_workers
from cepheid.spark.writers import BatchDirectories
from cepheid.streaming.checkpoint import Checkpoint
from cepheid.streaming.delivery import Sinks
from cepheid.streaming.metrics import Metrics
from cepheid.streaming.plan import StreamSource, plan_stream
from cepheid.streaming.reader import RowReader
from cepheid.streaming.sinks import FORMATS, FileSink, HookSink, Sink

ONE = "query"
"""The name of the one query of a stream."""

Hook = Callable[[Mapping[str, Any], str], None]


def stream(
    query: str | Query | Mapping[str, str | Query],
    events: SparkEvents,
    *,
    watermark: str | int,
    checkpoint: str,
    output: str | None = None,
    late_output: str | None = None,
    reject_output: str | None = None,
    format: str = "parquet",
    writer: Writer | Mapping[str, Writer] | None = None,
    on_match: Hook | Mapping[str, Hook] | None = None,
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
) -> RunningStream:
    """Starts a query (or several, by name, in one pass) on a streaming DataFrame.

    `watermark` is the allowed lateness: an event may be up to this much older than the newest one (`"10 minutes"`, or a
    number in the unit of the time column). Later events go to `late_output` (and `on_late`), rows without a time to
    `reject_output`; all are counted. `max_ahead` bounds how far ahead of the wall clock an event may be: one from the
    far future would make all others late. An event beyond it is rejected.
    Matches go to files under `output` (a directory for each query where there are several), to a Spark `writer(df,
    batch_id)`, and to `on_match(row, batch)`, each of which may be a mapping by query name. `format` is parquet or
    jsonl, with a file for each batch, or any other that Spark can write, with a directory for each. From `checkpoint`
    the stream resumes after a stop or a crash. `on_progress` is called with the stream's metrics after every batch.

    `events` is a streaming DataFrame, a dictionary with one for each event type, or `cepheid.Input` values with their
    own type, columns of time and unit. `type` is the type of all events, if no column holds it.

    Events with a duration have their start in `start_column` and their end in `time_column`, which decides whether they
    are late. Those of one end are ordered by their start.

    Events of the same time are ordered by the columns `order_by`, or else by all their columns. `types` are the event
    types of the input, for queries whose names may or may not be types. With `adaptive=True` (or an `Adaptive` with
    other thresholds) plans change between batches when the stream does; `metrics().switches` lists the changes.

    A directory with the output of another stream is refused; `moved=True` confirms that it is that of this one.

    `output_shape`, `detected_at`, `match_id` and `id_column` select the columns of the output, as `output` and the
    options of the same names do in `match`. The long shape of a stream has identifiers in place of numbers of matches.

    An event that completes more matches than `options={"max_matches": ...}` stops the stream. With `drop_keys=True`,
    the events of its key are ignored from then on instead; `metrics().dropped` lists the keys."""
    queries = _parsed(query, dialect)
    columns = settled(Columns.of(type_column, time_column, start_column, type), queries.values())
    input = SparkSource.of(events, columns, time_unit)
    run_options = RunOptions.of(params, evaluator, options, None, adaptive, time_unit)
    session = input.frame.sparkSession
    require_workers(session)
    saved = Checkpoint(open_directory(checkpoint, session), checkpoint)
    spread = buckets or buckets_of(saved, tasks_of(session, partitions))
    with QueryText(query).located_errors() if isinstance(query, str) else nullcontext():
        source = stream_source(input, queries.values(), types)
        plan = plan_stream(
            queries,
            source,
            watermark,
            run_options,
            order=order_by,
            buckets=spread,
            max_ahead=max_ahead,
            drops_keys=drop_keys,
            output=OutputOptions(output_shape, detected_at, match_id, id_column),
        )
    several = isinstance(query, Mapping)
    by_spark = format not in FORMATS
    own = "parquet" if by_spark else format
    paths = {name: _inside(output, name if several else None) for name in queries}
    writers = {name: [write] if (write := _of(writer, name)) is not None else [] for name in queries}
    if by_spark:
        for name, path in paths.items():
            writers[name] += [] if path is None else [BatchDirectories.of(path, format, session)]

    def sinks_of(path: str | None, hook: Hook | None) -> list[Sink]:
        files: list[Sink] = [] if path is None else [FileSink(open_directory(path, session), own)]
        return files if hook is None else [*files, HookSink(hook)]

    sinks = Sinks(
        {name: sinks_of(None if by_spark else paths[name], _of(on_match, name)) for name in queries},
        sinks_of(late_output, on_late),
        sinks_of(reject_output, None),
    )
    planned = SparkStream(plan, input.frame, saved, sinks, writers, partitions, moved)
    return planned.start(Trigger(available_now, interval), on_progress)


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


def _parsed(query: str | Query | Mapping[str, str | Query], dialect: str) -> dict[str, Query]:
    named = query if isinstance(query, Mapping) else {ONE: query}
    if not named:
        raise InputProblem("there is no query", expected="at least one: {'name': 'EVENT ...'}")
    return {name: parse(query, dialect) if isinstance(query, str) else query for name, query in named.items()}


def _of(by_name: Any, name: str) -> Any:
    return by_name.get(name) if isinstance(by_name, Mapping) else by_name


def _inside(path: str | None, inside: str | None) -> str | None:
    return path if path is None or inside is None else f"{path.rstrip('/')}/{inside}"
