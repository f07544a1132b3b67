"""The DataFrames that users pass: how their times, types and columns are read, and what is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from cepheid.errors import InputProblem, shown, type_name
from cepheid.io.delta import delta_files, is_delta
from cepheid.io.event_columns import require_time_column
from cepheid.io.inputs import Columns, Input, TextOptions
from cepheid.io.storage import is_readable
from cepheid.spark.arrow_schema import arrow_schema
from cepheid.spark.catalyst import column, ticks
from cepheid.spark.file_schema import spark_schema, unreadable_column
from cepheid.spark.session import session as running_session
from cepheid.spark.workers import is_remote

_USUAL: Mapping[str, str] = {
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
}
"""With these settings Spark infers the schema in the footer of one file."""


@dataclass(frozen=True, slots=True)
class CsvFiles:
    """CSV files with a declared schema. `path` is a file, a directory or a glob. `schema` has the names and types of
    the columns in Spark's notation (`"type string, ts long"`). With `header`, the first line of each file is skipped.
    Values may be quoted but may not contain line breaks. The declaration decides: every event has all columns."""

    path: str
    schema: str
    header: bool = False


def is_path(name: str) -> bool:
    """Whether a name is that of Parquet files. Others are those of tables."""
    return "/" in name or name.lower().endswith(".parquet")


def read_stored(name: str, session: SparkSession) -> DataFrame:
    """Parquet files by their path, or a table."""
    try:
        frame = read_parquet(name, session) if is_path(name) else session.table(name)
        _ = frame.schema  # over Spark Connect, nothing is read before
        return frame
    except AnalysisException as problem:
        if problem.getCondition() == "PATH_NOT_FOUND":
            raise InputProblem(f"there is no file or directory `{shown(name, 200)}`, as Spark sees it") from None
        if problem.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            raise InputProblem(
                f"there is no table `{shown(name, 200)}` in Spark's catalog",
                hint="a path has a slash or ends with .parquet: './events'",
            ) from None
        raise


def read_parquet(path: str, session: SparkSession) -> DataFrame:
    """The files as a DataFrame. Spark's inference of the schema is a job that costs more than a small query, so Arrow
    infers it if the result is the same. Of a Delta table these are the files in its log."""
    if is_delta(path):
        table = delta_files(path)
        known = from_arrow_schema(table.schema)
        if not table.files:
            return session.createDataFrame([], known)
        return session.read.schema(known).option("basePath", path).parquet(*table.files)
    as_usual = all(session.conf.get(name) == value for name, value in _USUAL.items())
    schema = spark_schema(path) if as_usual else None
    if schema is not None:
        return session.read.schema(schema).parquet(path)
    try:
        frame = session.read.parquet(path)
        _ = frame.schema  # over Spark Connect, nothing is read before
        return frame
    except PySparkException as problem:
        refused = unreadable_column(path)
        if refused is None:
            raise
        raise InputProblem(
            f"Spark cannot read the column `{shown(refused.name)}` of `{shown(path, 200)}`, of type {refused.type}",
            hint="write timestamps in microseconds (`pq.write_table(..., coerce_timestamps='us')`) and times of day as "
            "numbers, or match the file outside Spark",
        ) from problem


def frame_of(data: Any, session: SparkSession | None) -> Any:
    """One of several inputs as a DataFrame, which Spark reads."""
    if isinstance(data, CsvFiles):
        reader = (session or running_session()).read.schema(data.schema).options(header=data.header)
        return reader.options(mode="DROPMALFORMED").csv(data.path)
    if not isinstance(data, str | os.PathLike):
        return data
    return read_stored(os.fspath(data), session or running_session())


def require_frame(item: Input) -> DataFrame:
    if isinstance(item.data, DataFrame):
        refuse_text_options(item.text)
        return item.data
    raise InputProblem(
        f"the events of `{item.name}` are of type {type_name(item.data)}",
        expected="a DataFrame of Spark",
        hint="spark.createDataFrame(...) makes one of a table",
    )


def refuse_text_options(text: TextOptions) -> None:
    asked = [field.name for field in fields(text) if field.name != "zone" and getattr(text, field.name) is not None]
    if asked:
        raise InputProblem(
            f"`{asked[0]}` of a DataFrame, whose values Spark has read",
            hint="options of `spark.read.csv` read such files, and `to_timestamp(column, format)` such times",
        )


def require_times(frame: DataFrame, schema: pa.Schema, columns: Columns) -> None:
    """Times of DataFrames are no strings: Spark reads texts in other ways than files are read here, by its session."""
    for name, what in ((columns.time, "time"), (columns.start, "start")):
        if name in frame.columns and isinstance(frame.schema[name].dataType, T.StringType):
            raise InputProblem(
                f"the {what} column `{shown(name)}` of the DataFrame holds strings",
                expected="timestamps or whole numbers",
                hint=f"convert it: df.withColumn({name!r}, F.to_timestamp({name!r})), for other formats "
                f"F.to_timestamp({name!r}, 'dd.MM.yyyy HH:mm'); a time without an offset is in the zone of the session",
            )
    require_time_column(schema, columns)


def schema_of(frame: DataFrame) -> pa.Schema:
    twice = [name for name in frame.columns if frame.columns.count(name) > 1]
    if twice:
        raise InputProblem(f"the DataFrame has two columns `{shown(twice[0])}`", hint="rename one of them")
    return arrow_schema(frame)


def with_string_types(frame: DataFrame, type_column: str) -> DataFrame:
    """The DataFrame with event types as strings, if they are integers."""
    fields = {field.name: field.dataType for field in frame.schema}
    is_integral = isinstance(fields.get(type_column), T.IntegralType)
    return frame.withColumn(type_column, column(type_column).cast("string")) if is_integral else frame


def in_zone(frame: DataFrame, columns: Columns) -> DataFrame:
    """The DataFrame with times without a zone as those of the declared one, null where its clocks skipped them. Of two
    moments with one time, when clocks are set back, it is the earlier one."""
    local = local_times(frame, columns)
    if not local:  # Spark Connect refuses to replace no columns
        return frame
    return frame.withColumns({name: _moment(column(name), columns.text.zone or "UTC") for name in local})


def local_times(frame: DataFrame, columns: Columns) -> list[str]:
    naive = (T.TimestampNTZType, T.DateType)
    names = columns.times if columns.text.zone is not None else ()
    return [name for name in names if name in frame.columns and isinstance(frame.schema[name].dataType, naive)]


def _moment(of: Column, zone: str) -> Column:
    there = of.cast("timestamp_ntz")
    whole = F.convert_timezone(F.lit(zone), F.lit("UTC"), there)
    is_shown = F.convert_timezone(F.lit("UTC"), F.lit(zone), whole) == there
    return F.when(is_shown, F.timestamp_micros(ticks(whole, T.TimestampNTZType())))


_NARROW = re.compile(
    r"Project|Filter|Sample|Union|Range|LogicalRDD|LocalLimit|\w*EvalPython|MapIn\w+|\w*Relation|\w*Scan"
)
"""The nodes of Spark's plans whose first rows need no others."""


def is_narrow(frame: DataFrame) -> bool:
    """Whether the first rows of a DataFrame cost little. Over Spark Connect its plan is unknown."""
    if is_remote(frame.sparkSession):
        return True
    plans: list[Any] = [frame._jdf.queryExecution().optimizedPlan()]
    for plan in plans:
        if _NARROW.match(plan.nodeName()) is None:
            return False
        children = plan.children()
        plans += [children.apply(at) for at in range(children.size())]
    return True


def files_shown(frame: DataFrame, name: str) -> list[str]:
    """The Parquet files whose rows a DataFrame shows unchanged, if their column of this name can be read here. Over
    Spark Connect its plan is unknown."""
    if is_remote(frame.sparkSession) or frame._jdf.queryExecution().optimizedPlan().nodeName() != "LogicalRelation":
        return []
    paths = sorted(frame.inputFiles())
    # A directory may give its files a column: `type=A/part.parquet`.
    is_plain = all(is_readable(path) and path.endswith(".parquet") and f"/{name}=" not in path for path in paths)
    return paths if is_plain else []
