"""`cepheid.stream`: queries over a streaming DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from cepheid.engine.prepare import RunOptions
from cepheid.errors import CepheidError, InputProblem
from cepheid.events import UNTYPED, Schema
from cepheid.io.inputs import Columns
from cepheid.io.source import attribute_types, clock_of, schema_of
from cepheid.io.times import unit_of
from cepheid.lang import parse
from cepheid.optimize.adapt import Policy, policy_of
from cepheid.pattern import EventClass, Query, walk
from cepheid.spark.hadoop import open_directory
from cepheid.spark.source import SparkSource, types_named
from cepheid.spark.stream import RunningStream, SparkStream, Trigger, Writer, buckets_of, tasks_of
from cepheid.spark.writers import BatchDirectories
from cepheid.streaming.checkpoint import Checkpoint
from cepheid.streaming.delivery import Sinks
from cepheid.streaming.metrics import Metrics
from cepheid.streaming.plan import Shape, plan_stream
from cepheid.streaming.reader import RowReader
from cepheid.streaming.sinks import FORMATS, FileSink, HookSink, Sink

ONE = "query"
"""The name of the one query of a stream."""

Hook = Callable[[Mapping[str, Any], str], None]


def stream(
    query: str | Query | Mapping[str, str | Query],
    events: DataFrame | Mapping[str, DataFrame],
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
    type_column: str = "type",
    time_column: str = "ts",
    time_unit: str | None = None,
    types: Sequence[str] | None = None,
    order_by: Sequence[str] = (),
    buckets: int | None = None,
    partitions: int | None = None,
    available_now: bool = False,
    interval: str | None = None,
    params: Mapping[str, Any] | None = None,
    evaluator: str | None = None,
    options: Mapping[str, str | bool] | None = None,
    adaptive: bool | Policy = False,
) -> RunningStream:
    """Starts a query (or several, by name, in one pass) on a streaming DataFrame.

    `watermark` says how much later than the latest event one may come: `"10 minutes"`, or a number in the time column's
    own unit. Later ones go to `late_output` (and `on_late`), rows without a time to `reject_output`; all are counted.
    Matches go to files under `output` (a directory for each query where there are several), to a Spark `writer(df,
    batch_id)`, and to `on_match(row, batch)`, each of which may be a mapping by query name. `format` is parquet or
    jsonl, with a file for each batch, or any other that Spark can write, with a directory for each. `checkpoint` is
    where the stream goes on after a stop or a crash. `on_progress` is told the stream's metrics after every batch.

    Events of the same time are ordered by the columns `order_by`, or else by all their columns. `types` are the event
    types of the input, for queries whose names may or may not be types. With `adaptive=True` (or an `Adaptive` with
    other thresholds) plans change between batches when the stream does; `metrics().switches` tells when and why."""
    queries = _parsed(query, dialect)
    found = SparkSource.of(events, Columns(type_column, time_column))
    unit = None if time_unit is None else unit_of(time_unit)
    shape = shape_of(found, unit, types)
    wishes = RunOptions(params or {}, evaluator, options or {}, adaptive=policy_of(adaptive))
    session = found.frame.sparkSession
    saved = Checkpoint(open_directory(checkpoint, session), checkpoint)
    spread = buckets or buckets_of(saved, tasks_of(session, partitions))
    with _located(query):
        plan = plan_stream(queries, shape, watermark, wishes=wishes, order=order_by, buckets=spread)
    several = isinstance(query, Mapping)
    by_spark = format not in FORMATS
    own = "parquet" if by_spark else format
    paths = {name: _inside(output, name if several else None) for name in queries}
    writers = {name: [write] if (write := _of(writer, name)) is not None else [] for name in queries}
    if by_spark:
        for name, path in paths.items():
            writers[name] += [] if path is None else [BatchDirectories.of(path, format, session)]
    sinks = Sinks(
        {name: _sinks(None if by_spark else paths[name], own, _of(on_match, name), session) for name in queries},
        _sinks(late_output, own, on_late, session),
        _sinks(reject_output, own, None, session),
    )
    planned = SparkStream(plan, found.frame, saved, sinks, writers, partitions)
    return planned.start(Trigger(available_now, interval), on_progress)


def shape_of(events: SparkSource, unit: str | None, types: Sequence[str] | None) -> Shape:
    def attributes_for(query: Query) -> Schema:
        if events.attributes is not None or events.type_column is None:
            return schema_of(events.for_query(query), ())
        if types is None:
            require_settled_classes(query)
        named = types if types is not None else types_named(query)
        return Schema(dict.fromkeys([*named, UNTYPED], attribute_types(events.schema)))

    def shown_by(kinds: Iterable[str]) -> tuple[str, ...]:
        if events.attributes is None:
            return tuple(events.schema.names)
        wanted = {name for kind in kinds or events.attributes for name in events.attributes.get(kind, ())}
        return tuple(name for name in events.schema.names if name in wanted)

    schema = events.schema
    if events.columns.type not in schema.names and events.type_column is not None:
        # The type of an event is the DataFrame that it comes from.
        schema = schema.append(pa.field(events.columns.type, pa.string()))
    return Shape(RowReader(schema, events.columns), clock_of(events, unit), attributes_for, shown_by)


def require_settled_classes(query: Query) -> None:
    for node in walk(query.pattern):
        if isinstance(node, EventClass) and node.by_name:
            raise InputProblem(
                f"whether `{node.var}` is an event type is not known before the events come",
                span=node.span,
                expected=f"`{node.var} {node.var}` for the type, or the types of the stream",
                hint=f'say which types there are: types=["{node.var}", ...]',
            )


def _parsed(query: str | Query | Mapping[str, str | Query], dialect: str) -> dict[str, Query]:
    named = query if isinstance(query, Mapping) else {ONE: query}
    if not named:
        raise InputProblem("there is no query", expected="at least one: {'name': 'EVENT ...'}")
    return {name: parse(given, dialect) if isinstance(given, str) else given for name, given in named.items()}


@dataclass(frozen=True, slots=True)
class _located:
    """Errors show their place in the text of the query, where there is one query and it was text."""

    given: object

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, CepheidError) and isinstance(self.given, str):
            error.within(self.given)


def _of(given: Any, name: str) -> Any:
    return given.get(name) if isinstance(given, Mapping) else given


def _inside(path: str | None, inside: str | None) -> str | None:
    return path if path is None or inside is None else f"{path.rstrip('/')}/{inside}"


def _sinks(path: str | None, format: str, hook: Hook | None, session: Any) -> list[Sink]:
    sinks: list[Sink] = []
    if path is not None:
        sinks.append(FileSink(open_directory(path, session), format))
    if hook is not None:
        sinks.append(HookSink(hook))
    return sinks
