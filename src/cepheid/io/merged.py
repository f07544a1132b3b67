"""Several inputs as one source of events, each with its own columns, unit of time and format.

Inputs whose columns of type and time have the same names and the same unit are read together (`io.files`). Others are
opened one by one and merged by time. If their times differ in kind or unit, all become timestamps: an integer column
needs a unit then, declared or recognised (ruling 1). An event keeps the columns of its own input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from cepheid.codegen.typed_columns import from_json, to_arrow
from cepheid.errors import InputProblem, shown
from cepheid.events import EMPTY_SCHEMA, NANOSECONDS, Clock, Schema
from cepheid.io.decoding import united_schema
from cepheid.io.event_columns import EPOCH_TIMESTAMP, in_stream_order, with_type_and_time
from cepheid.io.files import open_files
from cepheid.io.formats import expand
from cepheid.io.inputs import PLAIN_TEXT, Columns, Input
from cepheid.io.rejects import Reject
from cepheid.io.rows import ROW, START, TIME, TYPE, RecentRows, aligned, is_moment
from cepheid.io.source import JSON, Attributes, Source, TableSource, clock_of
from cepheid.io.stream_rows import plain_schema
from cepheid.io.times import LAST_TIME, MixedTimes, unit_of
from cepheid.runtime.kernel import Array
from cepheid.types import from_arrow

MERGED_TIME, MERGED_START, MERGED_TYPE = "\ue000time", "\ue000start", "\ue000type"
"""The columns of the time, the start and the type of inputs whose own have several names. No event type has them as
attributes."""


def open_inputs(
    inputs: Sequence[Input], columns: Columns, unit: str | None = None, declared: Schema = EMPTY_SCHEMA
) -> Source:
    """The events of all files. `columns` and `unit` hold for inputs without their own. `declared` holds the types that
    the query declares."""
    _require_once(inputs)
    own = [item.columns(replace(columns, unit=columns.unit or unit)) for item in inputs]
    typed = [replace(item, type=of.event_type) for item, of in zip(inputs, own, strict=True)]
    shared = {replace(of, text=PLAIN_TEXT, event_type=None) for of in own}
    if len(shared) == 1:
        # Inputs may be written in their own way, which their values hold.
        together = own[0] if len(own) == 1 else replace(shared.pop(), text=columns.text)
        try:
            return open_files(typed, together, declared)
        except MixedTimes:
            if len(inputs) == 1:
                raise
    return merged(_opened_alone(typed, own, declared), [item.name for item in inputs], unit)


def _require_once(inputs: Sequence[Input]) -> None:
    """Refuses a file that is there twice, maybe as a link: each of its events would be two. Inputs that read it in
    different ways are welcome: rows of a log may be events of two types."""
    seen: dict[tuple[int, int, Input], Path] = {}
    for item in inputs:
        for path, _ in expand(item.path, item.format):
            status = path.stat()
            other = seen.setdefault((status.st_dev, status.st_ino, replace(item, data=None)), path)
            if other is path or not status.st_ino:
                continue
            same = "it" if str(other) == str(path) else f"`{shown(str(other), 200)}`"
            raise InputProblem(
                f"the file `{shown(str(path), 200)}` is read twice: {same} is the same file and an input too",
                expected="each file once; twice, each of its events would be two events",
                hint="name the files or directories that do not overlap, or give the inputs different types: "
                "Login=log.csv and Logout=log.csv",
            )


def _opened_alone(inputs: Sequence[Input], columns: Sequence[Columns], declared: Schema) -> list[Source]:
    return [as_columns(open_files([item], of, declared), item.name) for item, of in zip(inputs, columns, strict=True)]


def without_rows(source: Source) -> Source:
    """A source that was read row by row, as columns. If some values fit no column, it has to keep its rows."""
    if ROW not in source.schema.names or not isinstance(source, TableSource) or JSON in source.schema.types:
        return source
    table = source.table.drop_columns([ROW])
    attributes = {kind: {name: table.schema.field(name).type for name in of} for kind, of in source.attributes.items()}
    return replace(source, table=table, attributes=attributes, omits_nulls=True)


def as_columns(source: Source, name: str) -> Source:
    """A source as columns, to be merged with others. Lists and records are JSON text. A column of several types that
    the query reads is an error, because its values would lose their types."""
    if ROW not in source.schema.names or not isinstance(source, TableSource):
        return source
    dropped, table = [ROW], source.table
    for at, field in enumerate(table.schema):
        if field.type != JSON:
            continue
        of_types = types_mixed(field.name, source.attributes)
        if len(of_types) > 1 and source.columns.reads(field.name):
            raise several_types(field.name, of_types, name)
        dropped += [field.name] if len(of_types) > 1 else []
        kind = next(iter(of_types), JSON)
        is_text = kind == JSON or len(of_types) > 1
        column = table.column(at)
        column = (
            column.cast(pa.string()) if is_text else to_arrow(from_json(column, from_arrow(kind)), len(column), kind)
        )
        table = table.set_column(at, field.name, column)
    attributes = {kind: {n: of for n, of in own.items() if n not in dropped} for kind, own in source.attributes.items()}
    return without_rows(replace(source, table=table.drop_columns(dropped[1:]), attributes=attributes))


def types_mixed(name: str, attributes: Attributes) -> dict[pa.DataType, str]:
    """The types of a column, each with the first event type that has it. Lists and records are one: JSON text."""
    of_types: dict[pa.DataType, str] = {}
    for kind, own in attributes.items():
        if name in own and not pa.types.is_null(own[name]):
            of_types.setdefault(JSON if pa.types.is_list(own[name]) else own[name], kind)
    return of_types


def several_types(column: str, of_types: Mapping[pa.DataType, str], name: str) -> InputProblem:
    """The error of a column of several types in one of several inputs."""
    types = " and ".join(
        f"{'lists or records' if of == JSON else of} in `{shown(kind)}`" for of, kind in of_types.items()
    )
    return InputProblem(
        f"the column `{shown(column)}` of {name} holds values of several types: {types}",
        expected="one type in each column that is read, because the events of several inputs or sources share columns",
        hint="write the values of one type to a column with another name; one input alone, or several whose columns "
        "of type and time have the same names and unit, may mix types in `match` and `cepheid run`",
    )


def latest_tick(unit: str) -> int:
    """The latest time in a unit that microseconds can hold."""
    return LAST_TIME * 1000 // NANOSECONDS[unit]


def in_microseconds(ticks: Array, unit: str) -> Array:
    length = NANOSECONDS[unit]
    return ticks * (length // 1000) if length >= 1000 else ticks // (1000 // length)


@dataclass(frozen=True, slots=True)
class MergedInput:
    """One of several inputs, and the conversion of its times."""

    name: str
    source: Source
    clock: Clock
    as_timestamps: bool
    """Whether its times are integers that become timestamps."""

    def ticks(self, own: Array) -> Array:
        """Times in the ticks of the merged source."""
        unit = self.clock.unit
        if not self.as_timestamps or unit is None:
            return own
        if len(own) and int(np.abs(own).max()) > latest_tick(unit):
            raise InputProblem(
                f"a time of {self.name} does not fit: {int(np.abs(own).max())} {unit} since 1970",
                expected="times between -2^61 and 2^61 microseconds",
                hint="declare another unit of this input",
            )
        return in_microseconds(own, unit)


@dataclass(frozen=True, slots=True)
class MergedSource:
    """Several sources, merged by time; events with equal times are in the order of the inputs."""

    inputs: tuple[MergedInput, ...]
    schema: pa.Schema
    columns: Columns
    attributes: Attributes
    is_closed: bool = False
    epoch_unit: None = None
    extreme_times: None = None

    @property
    def count(self) -> int | None:
        counts = [item.source.count for item in self.inputs]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def omits_nulls(self) -> bool:
        return any(item.source.omits_nulls for item in self.inputs)

    @property
    def has_nanoseconds(self) -> bool:
        return any(item.source.has_nanoseconds for item in self.inputs)

    @property
    def rejected(self) -> int:
        return sum(item.source.rejected for item in self.inputs)

    def rejects(self) -> Iterator[Reject]:
        for item in self.inputs:
            yield from item.source.rejects()

    def sample(self, names: Sequence[str], size: int) -> pa.RecordBatch | None:
        parts = []
        for item in self.inputs:
            part = item.source.sample(self._own_names(item, names), size)
            if part is None:
                return None
            parts.append(self._aligned(item, part, names))
        return _in_order(parts).slice(0, size)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Merges the inputs. Events before the bound are certain: no input that can still be read has earlier ones."""
        arriving = {at: self._of(item, names) for at, item in enumerate(self.inputs)}
        waiting: dict[int, pa.RecordBatch] = {}
        while arriving:
            lasting = {at: _last(waiting[at]) for at in arriving if at in waiting}
            bound = min(lasting.values(), default=0)
            for at in [at for at in arriving if at not in lasting or lasting[at] == bound]:
                more = next(arriving[at], None)
                if more is None:
                    del arriving[at]
                else:
                    waiting[at] = _joined([waiting[at], more]) if at in waiting else more
            if all(at in waiting for at in arriving):
                bound = min((_last(waiting[at]) for at in arriving), default=LAST_TIME + 1)
                cuts = {at: int(np.searchsorted(np.asarray(b.column(TIME)), bound)) for at, b in waiting.items()}
                ready = [waiting[at].slice(0, cut) for at, cut in sorted(cuts.items()) if cut]
                waiting = {at: b.slice(cuts[at]) for at, b in waiting.items() if cuts[at] < b.num_rows}
                if ready:
                    yield _in_order(ready)

    def _of(self, item: MergedInput, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in item.source.batches(self._own_names(item, names)):
            if batch.num_rows:
                yield self._aligned(item, batch, names)

    def _own_names(self, item: MergedInput, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in item.source.schema.names]

    def _aligned(self, item: MergedInput, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """The batch with the columns and the times of the merged source."""
        ticks = item.ticks(np.asarray(batch.column(TIME)))
        starts = None
        if self.columns.start is not None:
            starts = item.ticks(np.asarray(batch.column(START))) if START in batch.schema.names else ticks
        own = item.source.columns
        of_times = {MERGED_TIME: ticks, MERGED_START: starts, own.start: starts, own.time: ticks}
        times = {name: pa.array(of) for name, of in of_times.items() if name is not None and of is not None}
        whole = aligned(batch, pa.schema([self.schema.field(name) for name in names]), times)
        types = batch.column(TYPE)
        return with_type_and_time(whole, names, types.dictionary_decode(), ticks, starts)

    def rows(self, names: Sequence[str]) -> RecentRows:
        return RecentRows(names)


def merged(sources: Sequence[Source], names: Sequence[str], unit: str | None) -> MergedSource:
    """`names` are those of the inputs, for messages; `unit` is that of integer times without their own."""
    declared = None if unit is None else unit_of(unit)
    clocks = _clocks(sources, declared)
    conversions = become_timestamps(names, [source.columns for source in sources], clocks)
    inputs = [MergedInput(*each) for each in zip(names, sources, clocks, conversions, strict=True)]
    schema = united_schema(zip(names, map(_schema, inputs), strict=True), sources[0].columns.reads)
    schema, columns = with_times(schema, [source.columns for source in sources], clocks)
    return MergedSource(tuple(inputs), schema, columns, _attributes(inputs, schema))


def become_timestamps(names: Sequence[str], columns: Sequence[Columns], clocks: Sequence[Clock]) -> list[bool]:
    """Whether the times of each input are integers that become timestamps, as all do if they differ in kind or unit."""
    converts = _are_converted(columns, clocks)
    for name, own, clock in zip(names, columns, clocks, strict=True):
        if converts and clock.unit is None:
            known = next(c for c in clocks if c.unit is not None)
            other = "timestamps" if known.is_timestamp else f"integers in {known.unit}"
            raise InputProblem(
                f"the unit of the times `{shown(own.time)}` of {name} is not known, and others are {other}",
                expected="a unit for each column of integers",
                hint=f"declare it: --input {name},unit=ms, or cepheid.Input(..., time_unit='ms')",
            )
    return [converts and not clock.is_timestamp for clock in clocks]


def _are_converted(columns: Sequence[Columns], clocks: Sequence[Clock]) -> bool:
    is_of_one_kind = len({(clock.unit, clock.is_timestamp) for clock in clocks}) == 1
    return not is_of_one_kind or (len({own.time for own in columns}) > 1 and clocks[0].unit is not None)


def with_times(schema: pa.Schema, of_inputs: Sequence[Columns], clocks: Sequence[Clock]) -> tuple[pa.Schema, Columns]:
    """The schema of merged inputs with one column for the time and one for the start, and the names of its columns."""
    columns = of_inputs[0]
    timed, starts = {own.time for own in of_inputs}, {own.start for own in of_inputs}
    if len(timed) > 1:
        schema = schema.append(pa.field(MERGED_TIME, EPOCH_TIMESTAMP if clocks[0].unit is not None else pa.int64()))
        columns = replace(columns, time=MERGED_TIME)
    if starts != {None} and (len(starts) > 1 or len(timed) > 1):
        schema = schema.append(pa.field(MERGED_START, schema.field(columns.time).type))
        columns = replace(columns, start=MERGED_START)
    unit = None if _are_converted(of_inputs, clocks) else columns.unit if clocks[0].is_timestamp else clocks[0].unit
    return schema, replace(columns, event_type=None, unit=unit)


def _clocks(sources: Sequence[Source], unit: str | None) -> list[Clock]:
    """The unit of the times of each input. Any fits an input without events: it has the unit of the other integers."""
    clocks = [clock_of(source, unit) for source in sources]
    is_open = [s.count == 0 and not c.is_timestamp for s, c in zip(sources, clocks, strict=True)]
    known = (c for c, is_any in zip(clocks, is_open, strict=True) if not is_any and not c.is_timestamp)
    shared = next(known, None)
    return [c if shared is None or not is_any else shared for c, is_any in zip(clocks, is_open, strict=True)]


def _schema(item: MergedInput) -> pa.Schema:
    """The columns of an input, with its times as the merged source shows them."""
    return with_merged_times(plain_schema(item.source.schema), item.source.columns, item.as_timestamps)


def with_merged_times(schema: pa.Schema, columns: Columns, as_timestamps: bool) -> pa.Schema:
    return pa.schema(
        [
            field.with_type(_time_type(field.type, as_timestamps)) if field.name in columns.times else field
            for field in schema
        ]
    )


def _time_type(kind: pa.DataType, as_timestamps: bool) -> pa.DataType:
    """Timestamps of all inputs have one type. Those without a zone are in UTC."""
    if as_timestamps or is_moment(kind):
        return EPOCH_TIMESTAMP
    return pa.int64()


def _attributes(inputs: Sequence[MergedInput], schema: pa.Schema) -> Attributes:
    attributes: dict[str, dict[str, pa.DataType]] = {}
    for item in inputs:
        for kind, own in (item.source.attributes or {}).items():
            known = {name: schema.field(name).type for name in own if name in schema.names}
            attributes.setdefault(kind, {}).update(known)
    return attributes


def units_of(inputs: Sequence[MergedInput]) -> Mapping[str, Clock]:
    """The inputs whose integer times became timestamps."""
    return {item.name: item.clock for item in inputs if item.as_timestamps}


def _last(batch: pa.RecordBatch) -> int:
    return int(batch.column(TIME)[-1].as_py())


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    filled = [batch for batch in batches if batch.num_rows]
    if len(filled) < 2:
        return filled[0] if filled else batches[0]
    return pa.concat_batches(filled)


def _in_order(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The events of all parts by end, then start, then input, with their types encoded."""
    whole = _joined(parts)
    starts = np.asarray(whole.column(START)) if START in whole.schema.names else None
    order = in_stream_order(np.asarray(whole.column(TIME)), starts)
    whole = whole if order is None else whole.take(pa.array(order))
    at = whole.schema.get_field_index(TYPE)
    return whole.set_column(at, TYPE, whole.column(at).dictionary_encode())
