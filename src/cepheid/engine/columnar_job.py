"""One query over files of columns (Parquet, large texts) on the local backend, from text to a file of matches: beside
what a text takes as a table, memory is bounded by the window and the batch, whatever the size of the input and of
the output."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from cepheid.binding import warnings_for
from cepheid.codegen.columns import schema_kinds
from cepheid.engine.job import QueryText, Settings, declared_types
from cepheid.engine.local import Progress, Run, is_made_by_oracle, silent
from cepheid.engine.prepare import Prepared, Wishes, prepare
from cepheid.engine.sampling import sampled
from cepheid.engine.summaries import sums_up
from cepheid.expr import Whole
from cepheid.io.files import FileSource, TextFile, column_source
from cepheid.io.inputs import Columns, Input
from cepheid.io.matches import cell, dumps
from cepheid.io.rows import plain
from cepheid.io.source import clock_of, readable_schema, schema_of
from cepheid.io.times import unit_of
from cepheid.optimize.adapt import Switch, policy_of
from cepheid.optimize.stats import NO_STATS
from cepheid.pattern import Query


class Answers(Protocol):
    """The matches of a query, and their columns."""

    @property
    def schema(self) -> pa.Schema: ...

    def events(self) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class ColumnJob:
    """A query that is ready to run over its files."""

    source: FileSource
    prepared: Prepared
    warnings: list[str]
    switches: list[Switch] = field(default_factory=list)
    """How the plan changed, once it ran."""

    def write(self, file: IO[bytes], format: str, progress: Progress = silent) -> int:
        """The matches, as they are found; gives how many they are."""
        run = self.run(progress)
        sink = _SINKS[format](file, run.schema, _Objects(self.source, self._types_of_columns()))
        matches = 0
        for batch in run.events():
            sink.write(batch)
            matches += batch.num_rows
        sink.close()
        return matches

    def run(self, progress: Progress) -> Answers:
        return Run(self.prepared, self.source, progress, self._shows(), self.switches.append)

    def _types(self) -> dict[str, tuple[str, ...]]:
        """The types that the event of each variable may have."""
        return {
            var: role.event_class.types or tuple(self.source.attributes)
            for var, role in self.prepared.variables.items()
        }

    @property
    def shows_rows_as_they_are(self) -> bool:
        """Whether every event is shown with the columns that its own row has. An event whose type is in no column does
        not tell its type, so where a variable may have several types these need the same columns."""
        types_differ = len({frozenset(has) for has in self.source.attributes.values()}) > 1
        tells_type = all(file.type is None for file in self.source.files)
        is_clear = tells_type or not types_differ or all(len(types) == 1 for types in self._types().values())
        return self.source.omits_nulls or (self.source.is_uniform and is_clear)

    def _types_of_columns(self) -> dict[str, tuple[str, ...]]:
        """The same for the columns of the output that hold events."""
        types, output = self._types(), self.prepared.query.output
        if output is None:
            return types
        whole = {c.name: c.expr.var for c in output if isinstance(c.expr, Whole)}
        return {name: types[var] for name, var in whole.items() if var in types}

    def _shows(self) -> dict[str, tuple[str, ...]]:
        has = self.source.attributes
        return {
            var: tuple(n for n in self.source.schema.names if any(n in has.get(t, ()) for t in types))
            for var, types in self._types().items()
        }


def columnar_job(written: QueryText, query: Query, inputs: Sequence[Input], settings: Settings) -> ColumnJob | None:
    """None where the rows have to be read one by one: the files are not all of columns, times or types are text or
    numbers in disguise, or no kernel evaluates the query."""
    columns = Columns(settings.type_column, settings.time_column)
    source = column_source(inputs, columns, declared_types(query))
    if source is None:
        return None
    kinds = schema_kinds(readable_schema(source.schema))
    unit = None if settings.time_unit is None else unit_of(settings.time_unit)
    schema = schema_of(source, ())
    with written.located_errors():
        clock = clock_of(source, unit)
        wishes = Wishes(settings.params, stats=settings.stats or NO_STATS, adaptive=policy_of(settings.adaptive))
        wishes = sampled(query, kinds, schema, clock, wishes, source)
        prepared = prepare(query, kinds, schema, clock, wishes)
    if prepared.kernel is None or (is_made_by_oracle(prepared.query) and not sums_up(prepared)):
        return None
    job = ColumnJob(source, prepared, warnings_for(prepared.query, schema))
    has_text = any(isinstance(file, TextFile) for file in source.files)
    return None if has_text and not job.shows_rows_as_they_are else job


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Objects:
    """Rows of the output as JSON objects: an event shows the columns that its own type has."""

    source: FileSource
    types: Mapping[str, tuple[str, ...]]
    """The types that an event in each column may have; columns that hold no events are not here."""

    def of(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        for row in batch.to_pylist():
            yield {
                name: self._events(value, self.types[name]) if name in self.types else plain(value)
                for name, value in row.items()
            }

    def _events(self, value: Any, types: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [self._events(item, types) for item in value]
        if value is None:
            return None
        if self.source.omits_nulls:
            return {name: plain(item) for name, item in value.items() if item is not None}
        kind = value.get(self.source.columns.type) if len(types) > 1 else types[0]
        has = self.source.attributes.get(kind, value.keys())
        return {name: plain(item) for name, item in value.items() if name in has}


class _Sink(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _JsonLines:
    file: IO[bytes]
    schema: pa.Schema
    objects: _Objects

    def write(self, batch: pa.RecordBatch) -> None:
        self.file.writelines(dumps(row).encode() + b"\n" for row in self.objects.of(batch))

    def close(self) -> None:
        self.file.flush()


@dataclass(frozen=True, slots=True)
class _Csv:
    file: IO[bytes]
    schema: pa.Schema
    objects: _Objects

    def __post_init__(self) -> None:
        self._write([self.schema.names])

    def write(self, batch: pa.RecordBatch) -> None:
        self._write([[cell(value) for value in row.values()] for row in self.objects.of(batch)])

    def close(self) -> None:
        self.file.flush()

    def _write(self, rows: Sequence[Sequence[Any]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self.file.write(text.getvalue().encode())


@dataclass(slots=True)
class _Parquet:
    file: IO[bytes]
    schema: pa.Schema
    objects: _Objects
    writer: pq.ParquetWriter = field(init=False)

    def __post_init__(self) -> None:
        self.writer = pq.ParquetWriter(self.file, self.schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self.writer.write_batch(batch)

    def close(self) -> None:
        self.writer.close()


_SINKS: Mapping[str, Callable[[IO[bytes], pa.Schema, _Objects], _Sink]] = {
    "jsonl": _JsonLines,
    "csv": _Csv,
    "parquet": _Parquet,
}
