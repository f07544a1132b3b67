"""What Python programs call: match a query against tables, parse it, explain it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from cepheid.engine.adaptation import ignore
from cepheid.engine.prepare import Prepared, RunOptions, code_of, prepare
from cepheid.engine.run import analyze, run, run_positions
from cepheid.errors import CepheidError, InputProblem, listing, shown
from cepheid.explanation import explain as explain_query
from cepheid.io import frames
from cepheid.io.inputs import Columns
from cepheid.io.source import Source
from cepheid.lang import parse
from cepheid.optimize.adapt import Policy, Switch, policy_of
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.pattern import EventClass, Query, walk
from cepheid.streaming.sinks import read_rows
from cepheid.streaming.storage import Directory, local_directory

OUTPUTS = ("events", "positions")
LEVELS = ("query", "plan", "code", "analyze")


def match(
    query: str | Query,
    events: Any,
    *,
    dialect: str = "auto",
    type_column: str = "type",
    time_column: str = "ts",
    time_unit: str | None = None,
    output: str = "events",
    evaluator: str | None = None,
    params: Mapping[str, Any] | None = None,
    options: Mapping[str, str | bool] | None = None,
    session: Any = None,
    partitions: int | None = None,
    rejects: bool = False,
    adaptive: bool | Policy = False,
    on_switch: Callable[[Switch], None] | None = None,
    stats: Stats | None = None,
) -> Any:
    """The matches of a query in a table of events, as a table of the same kind, one row for each match.

    `events` is a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or Polars DataFrame, the path of a Parquet
    file (the answer is an Arrow table), or an iterator of batches in the order of time (the answer is an iterator of
    record batches, read as they are asked for). Rows of tables and files may be in any order: the stream is ordered by
    `time_column`, which holds timestamps or whole numbers of `time_unit`, then by row. Every event has all columns.

    With `output="events"` there is a struct for each variable (a list of structs where it binds many events, null for a
    branch that was not taken), or what the query returns; then `match_start` and `match_end`. With
    `output="positions"` there are only the row numbers of the events. Matches come in the order in which they are
    found. `evaluator` and `options` force a choice that is otherwise made by the plan (see `explain`). With
    `adaptive=True` (or an `Adaptive` with other thresholds) the plan changes when the stream does; `on_switch` is
    called with every change. `stats` are known statistics of the events (see `statistics`); without them the first
    events are sampled.

    A Spark DataFrame, a dictionary of one for each event type, `CsvFiles`, or (with `session`) the path or table of
    Parquet files is matched in Spark, by `partitions` tasks, and the answer is a DataFrame; with `rejects=True` it
    comes with a second one of the rows that are no events."""
    if output not in OUTPUTS:
        raise InputProblem(f"there is no output `{shown(output)}`", expected=f"one of {listing(OUTPUTS)}")
    columns = Columns(type_column, time_column)
    run_options = RunOptions(params or {}, evaluator, options or {}, stats or NO_STATS, policy_of(adaptive), time_unit)
    if session is not None or is_spark(events):
        if adaptive is not False:
            raise InputProblem(
                "a query over tables in Spark has the same plan all the time",
                expected="`adaptive` for events outside Spark, or for `cepheid.stream`",
            )
        from cepheid.spark import api as spark_api  # Spark, which takes seconds to load

        job = spark_api.spark_job(
            query, events, columns, run_options, dialect=dialect, session=session, partitions=partitions
        )
        return spark_api.match(job, output, rejects)
    parsed = parse(query, dialect) if isinstance(query, str) else query
    opened = frames.opened(events, columns)
    if opened is None:
        return iter(())
    prepared = _prepared(query, parsed, opened.source, run_options)
    if output == "positions":
        result = run_positions(prepared, opened.source, on_switch or ignore)
    else:
        result = run(prepared, opened.source, on_switch=on_switch or ignore)
    return opened.give(result.schema, result.batches)


def matches(query: str | Query, **options: Any) -> Callable[[Any], Any]:
    """`match` for `DataFrame.transform`: `df.transform(cepheid.matches("EVENT SEQ(A x, B y) WITHIN 10"))`."""
    return lambda events: match(query, events, **options)


def explain(
    query: str | Query,
    events: Any = None,
    *,
    dialect: str = "auto",
    level: str | None = None,
    format: str = "text",
    type_column: str = "type",
    time_column: str = "ts",
    time_unit: str | None = None,
    evaluator: str | None = None,
    params: Mapping[str, Any] | None = None,
    options: Mapping[str, str | bool] | None = None,
    adaptive: bool | Policy = False,
    stats: Stats | None = None,
) -> str:
    """What a query means (`level="query"`), how it is evaluated on events like these (`"plan"`, the default where there
    are events), the code generated for it (`"code"`), or what each operator did on the events beside what was expected
    of it (`"analyze"`, which runs the query)."""
    level = level or ("query" if events is None else "plan")
    if level not in LEVELS:
        raise InputProblem(f"there is no level `{shown(level)}`", expected=f"one of {listing(LEVELS)}")
    columns = Columns(type_column, time_column)
    run_options = RunOptions(params or {}, evaluator, options or {}, stats or NO_STATS, policy_of(adaptive), time_unit)
    if is_spark(events):
        from cepheid.spark import api as spark_api

        return spark_api.explain(
            spark_api.spark_job(query, events, columns, run_options, dialect=dialect), level, format
        )
    parsed = parse(query, dialect) if isinstance(query, str) else query
    if events is None:
        if level != "query":
            raise InputProblem(
                f"the {level} depends on the events: their columns and types decide it", expected="events"
            )
        return explain_query(parsed, format)
    opened = frames.opened(events, columns)
    if opened is None:
        raise InputProblem("the iterator of events is empty", expected="at least one batch, to know the columns")
    prepared = _prepared(query, parsed, opened.source, run_options)
    if level == "code":
        return code_of(prepared)
    analysis = analyze(prepared, opened.source) if level == "analyze" else None
    return explain_query(prepared.query, format, prepared.plan if level != "query" else None, analysis)


def statistics(
    query: str | Query,
    events: Any,
    *,
    dialect: str = "auto",
    type_column: str = "type",
    time_column: str = "ts",
    time_unit: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> Stats:
    """What a table of events says about a query: the rates of its classes and the selectivities of its predicates, for
    `match(..., stats=...)`. Of a Spark DataFrame they are counted in one pass over its rows."""
    parsed = parse(query, dialect) if isinstance(query, str) else query
    columns, options = Columns(type_column, time_column), RunOptions(params or {}, time_unit=time_unit)
    if is_spark(events):
        from cepheid.spark import stats as spark_stats

        return spark_stats.statistics(parsed, events, columns, options)
    opened = frames.opened(events, columns)
    if opened is None:
        raise InputProblem("the iterator of events is empty", expected="at least one batch")
    return _prepared(query, parsed, opened.source, options).stats


def _prepared(written: str | Query, query: Query, source: Source, options: RunOptions) -> Prepared:
    """Errors show their position in the text of the query."""
    try:
        if source.attributes is None:
            _require_settled_classes(query)
        return prepare(query, source, options)
    except CepheidError as error:
        if isinstance(written, str):
            error.within(written)
        raise


def _require_settled_classes(query: Query) -> None:
    for node in walk(query.pattern):
        if isinstance(node, EventClass) and node.by_name:
            raise InputProblem(
                f"whether `{node.var}` is an event type is not known before all events have been read",
                span=node.span,
                expected=f"`{node.var} {node.var}` for the type, or events that are all there (a table, a file)",
            )


def is_spark(events: Any) -> bool:
    """Whether these events are in Spark, found out without loading Spark for those who do not use it."""
    if isinstance(events, Mapping):
        return bool(events) and all(is_spark(item) for item in events.values())
    return type(events).__module__.startswith(("pyspark.sql.", "cepheid.spark."))


def read_output(path: str, session: Any = None) -> pa.Table:
    """All rows that a stream has written to a directory, the batches in order. A directory that only Spark can reach
    needs a `session`."""
    if session is None:
        directory: Directory = local_directory(path)
    else:
        from cepheid.spark.hadoop import open_directory

        directory = open_directory(path, session)
    rows = read_rows(directory)
    if rows is None:
        raise InputProblem(f"the directory `{shown(path, 200)}` has no output of a stream yet")
    return rows
