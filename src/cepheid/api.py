"""What Python programs call: match a query against tables, parse it, explain it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cepheid.engine.adaptation import ignore
from cepheid.engine.prepare import Prepared, RunOptions, code_of, prepare
from cepheid.engine.query_text import require_settled_classes
from cepheid.engine.run import analyze, run, run_positions
from cepheid.errors import CepheidError, InputProblem, NotAvailable, listing, shown
from cepheid.explanation import explain as explain_query
from cepheid.io import frames
from cepheid.io.inputs import Columns
from cepheid.io.source import SourceDescription
from cepheid.kernels.registry import SEARCHING
from cepheid.lang import parse
from cepheid.optimize.adapt import Policy, Switch, policy_of
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.pattern import Query
from cepheid.physical import Analysis
from cepheid.streaming.sinks import read_rows
from cepheid.streaming.storage import Directory, local_directory

if TYPE_CHECKING:
    from cepheid.spark.batch import SparkBatch

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
    record batches, read lazily). Rows of tables and files may be in any order: the stream is ordered by
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
    parsed = parse(query, dialect) if isinstance(query, str) else query
    run_options = RunOptions(
        params=params or {},
        evaluator=evaluator,
        options=options or {},
        stats=stats or NO_STATS,
        adaptive=policy_of(adaptive),
        time_unit=time_unit,
    )
    if session is not None or is_spark(events):
        if adaptive is not False:
            raise InputProblem(
                "a query over tables in Spark has the same plan all the time",
                expected="`adaptive` for events outside Spark, or for `cepheid.stream`",
            )
        if output != "events":
            raise NotAvailable(
                "positions in a DataFrame: its rows have no numbers",
                hint="add a column that numbers them, and RETURN it",
            )
        if partitions is not None and partitions < 1:
            raise InputProblem(f"{partitions} partitions", expected="at least one")
        batch = _spark_batch(query, parsed, events, columns, run_options, session, partitions)
        return (batch.matches(), batch.rejects()) if rejects else batch.matches()
    opened = frames.opened(events, columns)
    if opened is None:
        return iter(())
    prepared = _prepared(query, parsed, opened.source, run_options)
    if output == "positions":
        result = run_positions(prepared, opened.source, on_switch or ignore)
    else:
        result = run(prepared, opened.source, on_switch=on_switch or ignore)
    return opened.convert(result.schema, result.batches)


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
    parsed = parse(query, dialect) if isinstance(query, str) else query
    run_options = RunOptions(
        params=params or {},
        evaluator=evaluator,
        options=options or {},
        stats=stats or NO_STATS,
        adaptive=policy_of(adaptive),
        time_unit=time_unit,
    )
    if is_spark(events):
        if level == "analyze":
            raise NotAvailable(
                "what a plan does in Spark is counted in its tasks, and not brought together",
                hint="analyze a part of the events outside Spark: `explain(query, df.limit(100_000).toArrow(), ...)`",
            )
        batch = _spark_batch(query, parsed, events, columns, run_options)
        text = _explained(batch.prepared, level, format)
        notes = batch.notes() if level == "plan" and format == "text" else []
        return text + "".join(["on spark:\n", *(f"  {note}\n" for note in notes)] if notes else [])
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
    return _explained(prepared, level, format, analyze(prepared, opened.source) if level == "analyze" else None)


def _explained(prepared: Prepared, level: str, format: str, analysis: Analysis | None = None) -> str:
    if level == "code":
        return code_of(prepared)
    return explain_query(prepared.query, format, prepared.plan if level != "query" else None, analysis)


def statistics(
    query: str | Query,
    events: Any,
    *,
    dialect: str = "auto",
    params: Mapping[str, Any] | None = None,
    type_column: str = "type",
    time_column: str = "ts",
    time_unit: str | None = None,
) -> Stats:
    """What a table of events says about a query: the rates of its classes and the selectivities of its predicates, for
    `match(..., stats=...)`. Of a Spark DataFrame they are counted in one pass over its rows."""
    parsed = parse(query, dialect) if isinstance(query, str) else query
    columns, options = Columns(type_column, time_column), RunOptions(params=params or {}, time_unit=time_unit)
    if is_spark(events):
        from cepheid.spark.stats import statistics as spark_statistics

        batch = _spark_batch(query, parsed, events, columns, replace(options, evaluator=SEARCHING[0]))
        return spark_statistics(batch.prepared, batch.source)
    opened = frames.opened(events, columns)
    if opened is None:
        raise InputProblem("the iterator of events is empty", expected="at least one batch")
    return _prepared(query, parsed, opened.source, options).stats


def _spark_batch(
    written: str | Query,
    query: Query,
    events: Any,
    columns: Columns,
    options: RunOptions,
    session: Any = None,
    partitions: int | None = None,
) -> SparkBatch:
    from cepheid.spark.batch import SparkBatch  # Spark, which takes seconds to load
    from cepheid.spark.source import SparkSource

    source = SparkSource.open(events, columns, session).for_query(query)
    return SparkBatch(_prepared(written, query, source, options), source, partitions)


def _prepared(written: str | Query, query: Query, source: SourceDescription, options: RunOptions) -> Prepared:
    """Errors show their position in the text of the query."""
    try:
        if source.attributes is None:
            require_settled_classes(query, "events that are all there (a table, a file)")
        return prepare(query, source, options)
    except CepheidError as error:
        if isinstance(written, str):
            error.within(written)
        raise


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
