"""Shapes of the output of a batch query as Catalyst expressions: no row goes back to Python."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from cepheid.engine.shapes import INDEX, NUMBER, VARIABLE, LongLayout, flat_columns
from cepheid.spark.arrow_schema import arrow_schema
from cepheid.spark.catalyst import column

_EVENTS = "\ue000events"


def flat(matches: DataFrame, variables: Collection[str], is_numbered: bool = True) -> DataFrame:
    """A row for each match. `variables` are the columns that hold events."""
    columns = flat_columns(arrow_schema(matches), variables)
    paths = {c.name: [c.column] if c.attribute is None else [c.column, c.attribute] for c in columns}
    return matches.select(*(column(*path).alias(name) for name, path in paths.items()))


def long(matches: DataFrame, variables: Collection[str], is_numbered: bool = True) -> DataFrame:
    """A row for each event of each match. The numbers of the matches, if they have some, are unique and have gaps."""
    layout = LongLayout.of(arrow_schema(matches), variables)
    own = StructType([StructField(VARIABLE, StringType()), StructField(INDEX, LongType())])
    row = StructType([*own, *from_arrow_schema(layout.attributes)])
    events = F.concat(*(_rows(var, matches.schema[var].dataType, row) for var in layout.variables))
    of_match = [column(name) for name in layout.of_match.names]
    numbered = matches.select(F.monotonically_increasing_id().alias(NUMBER), events.alias(_EVENTS), *of_match)
    exploded = numbered.withColumn(_EVENTS, F.explode(_EVENTS))
    numbers = [NUMBER] if is_numbered else []
    return exploded.select(*numbers, *(column(_EVENTS, field.name).alias(field.name) for field in row), *of_match)


def _rows(var: str, kind: DataType, row: StructType) -> Column:
    """The events of a variable as an array of rows; empty for a branch not taken."""
    event = kind.elementType if isinstance(kind, ArrayType) else kind

    def of(events: Column, index: Column) -> Column:
        values = {VARIABLE: F.lit(var), INDEX: index}
        for field in row.fields[len(values) :]:
            if not isinstance(event, StructType):
                values[field.name] = events
            else:
                values[field.name] = events.getField(field.name) if field.name in event.names else F.lit(None)
        return F.struct(*(values[field.name].cast(field.dataType).alias(field.name) for field in row))

    if isinstance(kind, ArrayType):
        listed = F.transform(column(var), lambda events, at: of(events, at + 1))
    else:
        listed = F.when(column(var).isNotNull(), F.array(of(column(var), F.lit(1))))
    return F.coalesce(listed.cast(ArrayType(row)), F.array().cast(ArrayType(row)))
