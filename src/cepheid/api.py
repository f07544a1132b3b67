"""The Python interface: match a query against events, explain it, collect statistics, read the output of a stream."""

from __future__ import annotations

import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from cepheid.analysis import Analysis
from cepheid.builder import QueryBuilder
from cepheid.cautions import warnings_for, zone_cautions
from cepheid.deploy.deployment import Deployment, Written, representatives
from cepheid.deploy.description import explain_deployment
from cepheid.deploy.outputs import stopped_text
from cepheid.deploy.run import run as run_deployment
from cepheid.deploy.unions import deploy_together
from cepheid.engine.adaptation import ignore
from cepheid.engine.event_types import require_event_types, settled
from cepheid.engine.layout import column_names
from cepheid.engine.match_ids import noticing_repeats
from cepheid.engine.prepare import Prepared, RunOptions, code_of, feeds_of, prepare, require_used
from cepheid.engine.query_text import declared_types, require_settled_classes
from cepheid.engine.run import analyze, run, run_compressed, run_positions
from cepheid.engine.sampling import first_statistics
from cepheid.engine.shapes import EVENTS, FLAT, LONG, SHAPES, OutputOptions
from cepheid.engine.text_order import order_cautions
from cepheid.errors import (
    CepheidError,
    CepheidWarning,
    Explosion,
    InputProblem,
    NotAvailable,
    listing,
    require_strings,
    shown,
)
from cepheid.explanation import Explained, no_match_lines, require_text
from cepheid.explanation import explain as explain_query
from cepheid.io import frames
from cepheid.io.inputs import Columns, Input, TextKeywords, TextOptions, unknown_option
from cepheid.io.merged import MergedSource
from cepheid.io.source import SourceDescription, digits_caution, unit_caution
from cepheid.io.stream_rows import reject_rows
from cepheid.kernels.registry import SEARCHING
from cepheid.lang import parse
from cepheid.limits import Limits
from cepheid.optimize.adapt import Policy, Switch
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.pattern import Query
from cepheid.streaming.sinks import has_rows, read_rows
from cepheid.streaming.storage import Directory, local_directory

if TYPE_CHECKING:
    from cepheid.spark.batch import SparkBatch

OUTPUTS = (*SHAPES, "positions", "compressed")
_FILE = re.compile(r"[\w./\\-]+\.(?:sase|saseplus|zstream|eql|ced|txt|sql|query|q)", re.IGNORECASE)
LEVELS = ("query", "plan", "code", "analyze")


def match(
    query: str | Query | Mapping[str, str | Query],
    events: Any,
    *,
    dialect: str = "auto",
    type: str | None = None,
    type_column: str | None = "type",
    time_column: str = "ts",
    start_column: str | None = None,
    time_unit: str | None = None,
    output: str = "events",
    detected_at: bool = False,
    match_id: bool = False,
    id_column: str | None = None,
    evaluator: str | None = None,
    params: Mapping[str, Any] | None = None,
    options: Mapping[str, str | bool] | None = None,
    session: Any = None,
    partitions: int | None = None,
    rejects: bool = False,
    adaptive: bool | Policy = False,
    on_switch: Callable[[Switch], None] | None = None,
    stats: Stats | Mapping[str, Any] | None = None,
    **text: Unpack[TextKeywords],
) -> Any:
    """Returns the matches of a query, one row per match, in the same kind of table as the events.

    `events` is a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or Polars DataFrame, the path of a Parquet,
    Arrow or ORC file (the result is an Arrow table), or an iterator of batches in time order (the result is a lazy
    iterator of record batches). Rows of tables and files may be in any order. They are ordered by `time_column`, which
    holds timestamps or integers in `time_unit`, then by row number. Every event of a table has all columns. In a file,
    a type lacks a column that is empty for all its events, but not for all events of another type. Events with a
    duration have their start in `start_column` and their end in `time_column`; those of one end are ordered by start.

    A pandas DataFrame of matches has Arrow-backed columns if the events have some; otherwise structs are dictionaries.

    With `output="events"` a match has a struct for each variable (a list of structs for a variable that binds many
    events, null for a branch not taken) or the RETURN columns of the query; then `match_start` and `match_end`.
    `output="flat"` has a column `x.price` for each variable and attribute instead, with lists for a variable that binds
    many events. `output="long"` has a row for each match and event: `match_number`, `match_variable`, `match_index`
    (the number of the event in its variable, from 1), `match_row` (its row number in a table), the columns of the
    event, and the interval of the match. With `output="positions"` a match has only the row numbers of its events.
    A result without a match comes with a `CepheidWarning` that says how far the events got; of an iterator, at its end.
    Matches are in order of detection. With
    `output="compressed"` the result is an iterator of `Compressed`: the matches of a closure under skip till any match
    in space that does not grow with their number; `decompressed()` enumerates their row numbers.

    With `detected_at=True` a match has a column `detected_at`: the event time at which it became certain, which is the
    end of the window after a negation at the end of the pattern, and `match_end` otherwise.

    With `match_id=True` a match has a column `match_id`: a hash of the query and of its events, the same in every run,
    in streams and on Spark. Events are identified by all their columns, and equal ones by their number; or by
    `id_column`, a column with unique values (an event with a null there by all its columns).

    `evaluator` and `options` override the choices of the optimizer (see `explain`). With `adaptive=True` (or an
    `Adaptive` with other thresholds) the plan follows changes in the stream, and every change is passed to `on_switch`.
    `stats` are known statistics of the events (see `statistics`), or a dictionary of the form of `--stats`; by default
    the first events are sampled.

    Spark runs the query if `events` is a Spark DataFrame, a dictionary with a DataFrame for each event type, `CsvFiles`
    or, with `session`, a path or table of Parquet files. It uses `partitions` tasks and returns a DataFrame.

    With `rejects=True` the result is a pair: the matches, and the rows that are no events (without a valid time) in a
    table of the same kind, with the column `reject_reason`. Of files it has their file, line, reason and text.

    `time_format` (`"%d.%m.%Y %H:%M"`), `decimal`, `thousands`, `delimiter` and `encoding` say how text is
    written, and `zone` says where times without an offset were written: see `cepheid.Input`, which has them for one
    input.

    `query` may be a dictionary of named queries in any languages. They run in one pass over the events, and what they
    have in common runs once. The result is a list of tables, one for each set of output columns. Their first column,
    `query`, is the name of the query. A query that exceeds a limit (`max_matches`, `max_memory`, `max_total_memory`) is
    stopped with a `CepheidWarning`, and the others go on."""
    require_strings({"output": output}, is_optional=False)
    require_strings({"evaluator": evaluator})
    _require_flags(rejects=rejects, match_id=match_id, detected_at=detected_at)
    if partitions is not None and session is None and not is_spark(events):
        raise InputProblem(
            "`partitions` is the number of Spark's tasks, and the events are not in Spark",
            expected="a Spark DataFrame, or session=... with a path of Parquet files",
            hint="leave it out",
        )
    if partitions is not None and (not isinstance(partitions, int) or isinstance(partitions, bool)):
        raise InputProblem(f"`partitions` is {shown(repr(partitions))}", expected="a whole number")
    if partitions is not None and partitions < 1:
        raise InputProblem(f"`partitions` is {partitions}", expected="at least 1")
    if output not in OUTPUTS:
        raise InputProblem(f"unknown output `{shown(output)}`", expected=f"one of {listing(OUTPUTS)}")
    columns = Columns.of(type_column, time_column, start_column, type, _text(match, text))
    run_options = RunOptions.of(params, evaluator, options, stats, adaptive, time_unit)
    if isinstance(query, Mapping):
        if session is not None or is_spark(events):
            if rejects or adaptive is not False or output not in (EVENTS, FLAT):
                raise NotAvailable(
                    "`rejects`, `adaptive` and other outputs of several queries on Spark", hint="run the query alone"
                )
            shown_as = OutputOptions(output, detected_at, match_id, id_column)
            return _spark_many(_named(query, dialect), events, columns, run_options, shown_as, session, partitions)
        given = {"detected_at": detected_at, "match_id": match_id, "id_column": id_column is not None}
        given |= {"rejects": rejects, f'output="{output}"': output not in SHAPES}
        asked = [name for name, is_given in given.items() if is_given]
        if asked:
            raise NotAvailable(f"`{asked[0]}` of several queries in one pass", hint="run the query alone")
        planned = _deployed(query, events, dialect, columns, run_options)
        if planned is None:
            return []
        made = run_deployment(
            planned[0],
            planned[1].source,
            shape=output,
            on_switch=on_switch or ignore,
            on_stop=_warn_of_stop,
            limits=Limits.of(run_options.options),
        )
        return [planned[1].convert(table.schema, iter(table.batches)) for table in made]
    parsed = _parsed(query, dialect)
    wanted = OutputOptions(output if output in SHAPES else EVENTS, detected_at, match_id, id_column)
    columns = replace(_columns(query, parsed, columns), read=wanted.names_read([parsed]))
    if session is not None or is_spark(events):
        if adaptive is not False:
            raise InputProblem(
                "the plan of a batch query on Spark cannot change during the run",
                expected="`adaptive` for events outside Spark, or for `cepheid.stream`",
            )
        if output not in SHAPES:
            raise NotAvailable(
                f"{output} matches of a Spark DataFrame: its rows have no numbers",
                hint="add a column with row numbers, and RETURN it",
            )
        batch = _spark_batch(query, parsed, events, columns, run_options, session, partitions, on_workers=True)
        written = query if isinstance(query, str) else None
        _warn(batch.prepared, *zone_cautions(batch.prepared.written, columns.text.zone, written))
        # The shape is an expression of Spark, on the matches.
        batch = replace(batch, prepared=OutputOptions(EVENTS, detected_at, match_id, id_column).of(batch.prepared))
        matches = batch.shaped(output)
        return (matches, batch.rejects()) if rejects else matches
    opened = frames.opened(events, columns, run_options.time_unit, declared_types(parsed), rejects)
    if opened is None:
        return iter(())
    if output not in SHAPES and isinstance(opened.source, MergedSource):
        raise NotAvailable(
            f"{output} matches of several inputs: their rows have no common numbers",
            expected=f"one of {listing(SHAPES)}",
        )
    prepared = _prepared(query, parsed, opened.source, run_options)
    cautions = unit_caution(opened.source, prepared.clock), digits_caution(opened.source)
    zone, written = opened.source.columns.text.zone, query if isinstance(query, str) else None
    about_texts = order_cautions(prepared.written, opened.source) + zone_cautions(prepared.written, zone, written)
    _warn(prepared, *cautions, *about_texts)
    if (detected_at or match_id or id_column is not None) and output not in SHAPES:
        column = "detected_at" if detected_at else "match_id"
        raise NotAvailable(f"`{column}` of {output} matches", expected=f"one of the outputs {listing(SHAPES)}")
    if output == "compressed":
        return run_compressed(prepared, opened.source)
    on_empty = partial(_warn_of_no_match, prepared)
    if output == "positions":
        result = run_positions(prepared, opened.source, on_switch or ignore)
    else:
        prepared = OutputOptions(output, detected_at, match_id, id_column).of(prepared)
        numbered = output == LONG and not isinstance(opened.source, MergedSource)
        result = run(prepared, opened.source, numbered=numbered, on_switch=on_switch or ignore, on_empty=on_empty)
        batches = noticing_repeats(result.batches, id_column, _warn_of_repeat)
        result = replace(result, batches=batches).shaped(output)
    matches = opened.convert(result.schema, result.batches)
    if not rejects:
        return matches
    if opened.rejected is not None:
        return matches, opened.rejected
    return matches, pa.Table.from_batches([reject_rows([asdict(reject) for reject in opened.source.rejects()])])


def _require_flags(**flags: object) -> None:
    """Refuses other values than True and False, which would count as one of them: the name of a file or a column."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise InputProblem(f"`{name}` is {shown(repr(flag))}", expected="True or False", hint=_FLAG_HINTS.get(name))


_FLAG_HINTS = {
    "rejects": "with rejects=True, match returns the rejected rows beside the matches: `matches, rejects = ...`",
    "match_id": "the column is always called match_id; id_column=... names a column that identifies the events",
}


def _warn(prepared: Prepared, *cautions: str | None) -> None:
    """Warns the caller of `match` of what is suspicious."""
    for text in (*warnings_for(prepared.written, prepared.schema, prepared.clock), *filter(None, cautions)):
        warnings.warn(text, CepheidWarning, stacklevel=3)


def _warn_of_no_match(prepared: Prepared, analysis: Analysis) -> None:
    """How far the events got, where the caller calls `match` or, if the matches are an iterator, reads the last one."""
    text = "\n".join(no_match_lines(prepared.query, prepared.plan, analysis))
    warnings.warn(text, CepheidWarning, stacklevel=_depth_of_caller())


def _warn_of_repeat(text: str) -> None:
    """Where the caller calls `match` or reads the matches."""
    warnings.warn(text, CepheidWarning, stacklevel=_depth_of_caller())


def _warn_of_stop(names: Sequence[str], problem: Explosion) -> None:
    """Where the caller calls `match`."""
    text = f"{stopped_text(names, problem)}; its matches are not complete"
    warnings.warn(text, CepheidWarning, stacklevel=_depth_of_caller())


def _depth_of_caller() -> int:
    """For `warnings.warn` in the function that calls this: the first frame outside of this package."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, depth = frame.f_back, depth + 1
    return depth


def _parsed(query: Any, dialect: str) -> Query:
    _require_query(query)
    return parse(query, dialect) if isinstance(query, str) else query


def _require_query(query: Any) -> None:
    if isinstance(query, os.PathLike) or (isinstance(query, str) and _FILE.fullmatch(query)):
        name = os.fspath(query)
        raise InputProblem(
            f"`{shown(name, 200)}` is the name of a file, not a query",
            expected="the text of a query",
            hint=f"read the file: open({shown(name, 200)!r}).read()",
        )
    if not isinstance(query, str | Query):
        raise InputProblem(
            f"the query is a {type(query).__name__}",
            expected="the text of a query, or a parsed one, before the events: match(query, events)",
            hint="call .build() on it" if isinstance(query, QueryBuilder) else None,
        )


def _deployed(
    queries: Mapping[str, str | Query], events: Any, dialect: str, columns: Columns, options: RunOptions
) -> tuple[Deployment, frames.Opened] | None:
    """The queries planned together, and their events. None for an empty iterator of events."""
    written = _named(queries, dialect)
    opened = frames.opened(events, settled(columns, representatives(written)), options.time_unit)
    if opened is None:
        return None
    deployment = deploy_together(written, opened.source, options)
    for error in deployment.refused.values():
        raise error
    return deployment, opened


def _named(queries: Mapping[str, str | Query], dialect: str) -> dict[str, Written]:
    if not queries:
        raise InputProblem("there are no queries", expected="at least one: {'name': query}")
    for name in queries:
        if not isinstance(name, str):
            raise InputProblem(f"the name of a query is `{shown(repr(name))}`", expected="a string")
        _require_query(queries[name])
    return {name: Written(name, query, dialect) for name, query in queries.items()}


def _spark_many(
    queries: Mapping[str, Written],
    events: Any,
    columns: Columns,
    options: RunOptions,
    output: OutputOptions,
    session: Any,
    partitions: int | None,
) -> list[Any]:
    from cepheid.spark.many import run_many  # lazily: Spark takes seconds to load
    from cepheid.spark.source import SparkSource
    from cepheid.spark.workers import require_workers

    opened = SparkSource.open(events, settled(columns, representatives(queries)), session, options.time_unit)
    require_workers(opened.frame.sparkSession)
    return run_many(queries, opened, options, output, partitions)


def matches(query: str | Query, **options: Any) -> Callable[[Any], Any]:
    """`match` for `DataFrame.transform`: `df.transform(cepheid.matches("EVENT SEQ(A x, B y) WITHIN 10"))`."""
    return lambda events: match(query, events, **options)


def explain(
    query: str | Query | Mapping[str, str | Query],
    events: Any = None,
    *,
    dialect: str = "auto",
    level: str | None = None,
    format: str = "text",
    type: str | None = None,
    type_column: str | None = "type",
    time_column: str = "ts",
    start_column: str | None = None,
    time_unit: str | None = None,
    evaluator: str | None = None,
    params: Mapping[str, Any] | None = None,
    options: Mapping[str, str | bool] | None = None,
    adaptive: bool | Policy = False,
    stats: Stats | Mapping[str, Any] | None = None,
    session: Any = None,
    **text: Unpack[TextKeywords],
) -> str:
    """Explains a query as text. A dictionary of named queries shows what they share, what they do not, and why.

    `level="query"` shows its meaning (the default without events), `"plan"` the plan for these events (the default with
    events), `"code"` the generated code. `"analyze"` runs the query and shows the counters of each operator beside the
    estimates; of a Spark DataFrame without matches, also how far the events got; of Parquet files on Spark, the row
    groups and rows that are read. `format` is `"text"`, `"svg"`, `"html"`, `"mermaid"` or `"dot"`; notebooks show the
    picture. `match` describes the other options."""
    if isinstance(query, Mapping):
        if events is None:
            raise InputProblem("the plan of several queries depends on the events", expected="events")
        columns = Columns.of(type_column, time_column, start_column, type, _text(explain, text))
        run_options = RunOptions.of(params, evaluator, options, stats, adaptive, time_unit)
        planned = _deployed(query, events, dialect, columns, run_options)
        if planned is None:
            raise InputProblem("the iterator of events is empty, so the columns are unknown", expected="one batch")
        written = [Written(str(name), text, dialect) for name, text in query.items()]
        return explain_deployment(planned[0], written, planned[1].source, format)
    require_strings({"level": level})
    level = level or ("query" if events is None else "plan")
    if level not in LEVELS:
        raise InputProblem(f"unknown level `{shown(level)}`", expected=f"one of {listing(LEVELS)}")
    parsed = _parsed(query, dialect)
    columns = _columns(query, parsed, Columns.of(type_column, time_column, start_column, type, _text(explain, text)))
    run_options = RunOptions.of(params, evaluator, options, stats, adaptive, time_unit)
    if session is not None or is_spark(events):
        is_analyzed = level == "analyze"
        batch = _spark_batch(query, parsed, events, columns, run_options, session, on_workers=is_analyzed)
        counted = _spark_analysis(batch) if is_analyzed and batch.source.files is None else None
        notes = _spark_notes(batch, is_analyzed) if is_analyzed or (level == "plan" and format == "text") else []
        if counted is not None and not counted.counters["matches"]:
            notes += no_match_lines(batch.prepared.query, batch.prepared.plan, counted)
        found = _explained(batch.prepared, "plan" if is_analyzed else level, format, counted)
        if not notes or not isinstance(found, Explained):
            return found
        return Explained.of(found + "".join(["on spark:\n", *(f"  {note}\n" for note in notes)]), found.description)
    if events is None:
        if level != "query":
            raise InputProblem(f"the {level} depends on the columns and types of the events", expected="events")
        return explain_query(parsed, format)
    opened = frames.opened(events, columns, time_unit, declared_types(parsed))
    if opened is None:
        raise InputProblem("the iterator of events is empty, so the columns are unknown", expected="at least one batch")
    prepared = _prepared(query, parsed, opened.source, run_options)
    return _explained(prepared, level, format, analyze(prepared, opened.source) if level == "analyze" else None)


def _explained(prepared: Prepared, level: str, format: str, analysis: Analysis | None = None) -> str:
    if level == "code":
        require_text(format)
        return code_of(prepared)
    plan = prepared.plan if level != "query" else None
    return explain_query(prepared.written, format, plan, analysis, feeds_of(prepared))


def statistics(
    query: str | Query,
    events: Any,
    *,
    dialect: str = "auto",
    params: Mapping[str, Any] | None = None,
    type: str | None = None,
    type_column: str | None = "type",
    time_column: str = "ts",
    start_column: str | None = None,
    time_unit: str | None = None,
    **text: Unpack[TextKeywords],
) -> Stats:
    """Returns the statistics of the events for a query: rates of its event classes and selectivities of its predicates.
    Pass them to `match(..., stats=...)`. They are those of the first events; a Spark DataFrame is counted in one
    pass."""
    parsed = _parsed(query, dialect)
    columns = _columns(query, parsed, Columns.of(type_column, time_column, start_column, type, _text(statistics, text)))
    options = RunOptions(params=params or {}, time_unit=time_unit)
    if is_spark(events):
        from cepheid.spark.stats import statistics as spark_statistics

        batch = _spark_batch(query, parsed, events, columns, replace(options, evaluator=SEARCHING[0]))
        return spark_statistics(batch.prepared, batch.source)
    opened = frames.opened(events, columns, time_unit, declared_types(parsed))
    if opened is None:
        raise InputProblem("the iterator of events is empty, so the columns are unknown", expected="at least one batch")
    prepared = _prepared(query, parsed, opened.source, options)
    if prepared.graph is not None:
        raise NotAvailable(
            "statistics are of one query over the input, and this one uses other queries or declarations",
            hint="ask for the statistics of each query that reads the input alone",
        )
    return first_statistics(prepared.plan, opened.source) if prepared.stats == NO_STATS else prepared.stats


def _spark_batch(
    source_text: str | Query,
    query: Query,
    events: Any,
    columns: Columns,
    options: RunOptions,
    session: Any = None,
    partitions: int | None = None,
    on_workers: bool = False,
) -> SparkBatch:
    from cepheid.spark.batch import SparkBatch  # lazily: Spark takes seconds to load
    from cepheid.spark.dataframes import refuse_text_options
    from cepheid.spark.source import SparkSource
    from cepheid.spark.workers import require_workers

    refuse_text_options(columns.text)
    opened = SparkSource.open(events, columns, session, options.time_unit)
    if opened.frame.isStreaming:
        raise InputProblem(
            "the events are a streaming DataFrame",
            expected="a DataFrame of a batch",
            hint="cepheid.stream(query, events, watermark='10 minutes', checkpoint='...', output='...') runs over it",
        )
    if on_workers:
        require_workers(opened.frame.sparkSession)
    source = opened.for_query(query, options.time_unit)
    return SparkBatch(_prepared(source_text, query, source, options), source, partitions)


def _spark_notes(batch: SparkBatch, is_analyzed: bool) -> list[str]:
    from cepheid.spark.description import analyzed, notes  # lazily: Spark takes seconds to load

    return analyzed(batch) if is_analyzed and batch.source.files is not None else notes(batch)


def _spark_analysis(batch: SparkBatch) -> Analysis:
    from cepheid.spark.analysis import analysis

    return analysis(batch)


def _prepared(source_text: str | Query, query: Query, source: SourceDescription, options: RunOptions) -> Prepared:
    """Prepares the query. Errors show their position in its text."""
    try:
        if source.attributes is None:
            require_settled_classes(query, "a bounded input (a table, a file)")
        require_used(options.params, query)
        prepared = prepare(query, source, options)
        require_event_types(prepared.written, source)
        column_names(prepared.query)
        return prepared
    except CepheidError as error:
        if isinstance(source_text, str):
            error.within(source_text)
        raise


def _text(of: Callable[..., Any], keywords: Mapping[str, Any]) -> TextOptions:
    """How text files are written. Refuses a keyword argument that the function does not have."""
    parameters = inspect.signature(of).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    names += TextKeywords.__annotations__
    unknown = next((name for name in keywords if name not in names), None)
    if unknown is not None:
        raise unknown_option(of.__name__, unknown, names)
    return TextOptions(**keywords)


def _columns(source_text: str | Query, query: Query, columns: Columns) -> Columns:
    """The columns, with the type of events that have no type column. Errors show their position in the text."""
    try:
        return settled(columns, [query])
    except CepheidError as error:
        raise error.within(source_text) if isinstance(source_text, str) else error from None


def is_spark(events: Any) -> bool:
    """Whether the events are in Spark. Decided by the name of the type, so that Spark is not loaded."""
    if isinstance(events, Mapping):
        return _are_spark(list(events.values()))
    if isinstance(events, list | tuple):
        return all(isinstance(item, Input) for item in events) and _are_spark(events)
    if isinstance(events, Input):
        return is_spark(events.data)
    return bool(events.__class__.__module__.startswith(("pyspark.sql.", "cepheid.spark.")))


def _are_spark(items: Sequence[Any]) -> bool:
    """Whether several inputs are in Spark. Tables of other libraries beside them are an error."""
    in_spark = [is_spark(item) for item in items]
    if any(in_spark) and not all(in_spark):
        raise InputProblem(
            "some of the inputs are Spark DataFrames, and others are not",
            expected="inputs of one kind",
            hint="make each a DataFrame: spark.createDataFrame(...) or spark.read, or none: df.toPandas()",
        )
    return bool(items) and all(in_spark)


def read_output(path: str, session: Any = None, *, query: str | None = None) -> pa.Table:
    """Returns all rows that a stream has written to a directory, in batch order. The rows of several queries have the
    columns of all tables; with `query`, those of one query have its own columns. A directory that only Spark can read
    needs a `session`."""
    if session is None:
        directory: Directory = local_directory(path)
    else:
        from cepheid.spark.hadoop import open_directory

        directory = open_directory(path, session)
    rows = read_rows(directory, query)
    if rows is None:
        if query is not None and has_rows(directory):
            raise InputProblem(
                f"the directory `{shown(path, 200)}` contains no match of a query `{shown(query)}`",
                hint="the query has found none yet, or has another name",
            )
        raise InputProblem(f"the directory `{shown(path, 200)}` contains no output of a stream")
    return rows
