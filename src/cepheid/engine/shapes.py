"""Shapes of the output: from a struct for each variable to flat columns, or to a row for each event of a match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid import expr as ex
from cepheid.engine.detected_at import with_detection
from cepheid.engine.prepare import Prepared, with_match_ids
from cepheid.errors import InputProblem, NotAvailable, listing, require_strings, shown
from cepheid.io.rows import INPUT_ROW
from cepheid.pattern import Query
from cepheid.runtime.kernel import Array

EVENTS, FLAT, LONG = "events", "flat", "long"
SHAPES = (EVENTS, FLAT, LONG)

NUMBER, VARIABLE, INDEX, ROW_NUMBER = "match_number", "match_variable", "match_index", "match_row"
"""The columns of the long shape before those of the events: the number of the match, the variable, the number of the
event in its variable (1 is the first, as in `a[1]`), and the row number of the event in the input."""
WHOLE = "event"
"""The column of the long shape for an event without known attributes, which is JSON text."""


def for_shape(prepared: Prepared, shape: str) -> Prepared:
    """The query whose output has this shape. The long shape has the events of a match, whatever the query returns."""
    if shape != LONG:
        return prepared
    if prepared.written.summarizes:
        raise NotAvailable(
            "rows of the events of a summary: it is about all matches", hint='use output="flat", or another RETURN'
        )
    query, graph = replace(prepared.query, output=None), prepared.graph
    if graph is not None:
        graph = replace(graph, query=replace(graph.query, output=None))
    return replace(prepared, query=query, graph=graph)


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The shape of the output, and the columns that it has by request."""

    shape: str = EVENTS
    detected_at: bool = False
    match_id: bool = False
    id_column: str | None = None
    """The column that identifies events, for `match_id`; None: all their columns do."""

    def __post_init__(self) -> None:
        if not isinstance(self.id_column, str | None):
            require_strings({"id_column": self.id_column})
        if not isinstance(self.shape, str):
            require_strings({"output_shape": self.shape}, is_optional=False)
        if self.shape not in SHAPES:
            raise InputProblem(f"unknown output shape `{shown(self.shape)}`", expected=f"one of {listing(SHAPES)}")

    def names_read(self, queries: Iterable[Query]) -> frozenset[str] | None:
        """The attributes that the queries read and return. None if they are all: whole events are output or identify
        the matches, or a query reads the matches of others."""
        if self.shape != EVENTS or (self.match_id and self.id_column is None):
            return None
        names = {self.id_column} if self.id_column is not None else set()
        for query in queries:
            if query.output is None or query.inputs:
                return None
            for expression in (*query.where, *(column.expr for column in query.output)):
                for node in ex.walk_reads(expression):
                    if isinstance(node, ex.Whole):
                        return None
                    if isinstance(node, ex.Attr | ex.Aggregate | ex.Same) and node.name is not None:
                        names.add(node.name)
        return frozenset(names)

    def of(self, prepared: Prepared) -> Prepared:
        """The query with this output."""
        if self.detected_at:
            prepared = with_detection(prepared)
        if self.match_id or self.id_column is not None:
            prepared = with_match_ids(prepared, self.id_column)
        return for_shape(prepared, self.shape)


EVENTS_ONLY = OutputOptions()


@dataclass(frozen=True, slots=True)
class FlatColumn:
    """A column of the flat shape: a column of the output (`attribute` is None), or an attribute of the events in it."""

    name: str
    column: str
    attribute: str | None
    type: pa.DataType


def flat_columns(schema: pa.Schema, variables: Iterable[str]) -> list[FlatColumn]:
    """The columns of the flat shape of matches. `variables` are the columns that hold events. A closure has a list for
    each attribute."""
    columns: list[FlatColumn] = []
    for field in schema:
        event = event_type(field.type)
        if field.name not in set(variables) or not pa.types.is_struct(event):
            columns.append(FlatColumn(field.name, field.name, None, field.type))
            continue
        for own in event:
            kind = pa.list_(own.type) if pa.types.is_list(field.type) else own.type
            columns.append(FlatColumn(f"{field.name}.{own.name}", field.name, own.name, kind))
    _require_distinct([column.name for column in columns], "rename the column in RETURN: `... AS name`")
    return columns


def flat(batch: pa.RecordBatch, columns: Sequence[FlatColumn]) -> pa.RecordBatch:
    """A row for each match."""
    flattened = {c.column: _fields(batch.column(c.column)) for c in columns if c.attribute is not None}
    arrays = [batch.column(c.column) if c.attribute is None else flattened[c.column][c.attribute] for c in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([(c.name, c.type) for c in columns]))


def _fields(events: pa.Array) -> dict[str, pa.Array]:
    """The attributes of events; those of a list of events are lists."""
    if not pa.types.is_list(events.type):
        return dict(zip((field.name for field in events.type), events.flatten(), strict=True))
    lengths = np.asarray(events.value_lengths().fill_null(0))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    mask = events.is_null() if events.null_count else None
    own = _fields(events.flatten())
    return {name: pa.ListArray.from_arrays(offsets, values, mask=mask) for name, values in own.items()}


def event_type(kind: pa.DataType) -> pa.DataType:
    """The type of one event in a column of events."""
    return kind.value_type if pa.types.is_list(kind) else kind


@dataclass(frozen=True, slots=True)
class LongLayout:
    """The columns of the long shape: those of NUMBER and the others, then the attributes of the events, then those of
    the match (its interval)."""

    variables: tuple[str, ...]
    attributes: pa.Schema
    of_match: pa.Schema
    has_rows: bool
    is_numbered: bool = True
    """Whether matches have numbers. Those of a stream have identifiers instead, which a replay repeats."""

    @classmethod
    def of(cls, schema: pa.Schema, variables: Iterable[str], is_numbered: bool = True) -> LongLayout:
        names = [name for name in schema.names if name in set(variables)]
        known: dict[str, tuple[str, pa.DataType]] = {}
        for var in names:
            for field in _attributes(event_type(schema.field(var).type)):
                first, kind = known.setdefault(field.name, (var, field.type))
                if kind != field.type:
                    raise InputProblem(
                        f"the attribute `{field.name}` is {kind} in `{first}` and {field.type} in `{var}`",
                        expected="one type for each column of the long output; `flat` has a column for each variable",
                    )
        of_match = pa.schema([field for field in schema if field.name not in names])
        attributes = pa.schema([(name, kind) for name, (_, kind) in known.items() if name != INPUT_ROW])
        layout = cls(tuple(names), attributes, of_match, INPUT_ROW in known, is_numbered)
        _require_distinct(layout.schema.names, "rename the column of the input")
        return layout

    @property
    def schema(self) -> pa.Schema:
        own = [(VARIABLE, pa.string()), (INDEX, pa.int64())]
        own = [(NUMBER, pa.int64()), *own] if self.is_numbered else own
        return pa.schema(
            [*own, *([(ROW_NUMBER, pa.int64())] if self.has_rows else []), *self.attributes, *self.of_match]
        )


def _attributes(event: pa.DataType) -> list[pa.Field]:
    return list(event) if pa.types.is_struct(event) else [pa.field(WHOLE, event)]


def long(batch: pa.RecordBatch, layout: LongLayout, first: int) -> pa.RecordBatch:
    """A row for each event of each match, in the order of the pattern. `first` is the number of the first match."""
    numbers: list[Array] = []
    indices: list[Array] = []
    fields: list[dict[str, pa.Array]] = []
    for var in layout.variables:
        events = batch.column(var)
        if pa.types.is_list(events.type):
            lengths = np.asarray(events.value_lengths().fill_null(0), np.int64)
            values = events.flatten()
        else:
            lengths = np.asarray(events.is_valid(), np.int64)
            values = events.drop_null() if events.null_count else events
        numbers.append(np.repeat(np.arange(len(lengths)), lengths))
        indices.append(np.arange(1, len(values) + 1) - np.repeat(np.cumsum(lengths) - lengths, lengths))
        fields.append(_fields(values) if pa.types.is_struct(values.type) else {WHOLE: values})
    sizes = [len(part) for part in numbers]
    of_rows = np.concatenate([np.empty(0, np.int64), *numbers])
    order = np.argsort(of_rows, kind="stable")
    chosen = pa.array(of_rows[order])

    def attribute(name: str, kind: pa.DataType) -> pa.Array:
        parts = [own.get(name, pa.nulls(size, kind)) for own, size in zip(fields, sizes, strict=True)]
        return pa.concat_arrays(parts).take(pa.array(order))

    codes = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)[order]
    arrays = [
        *([pc.add(chosen, first)] if layout.is_numbered else []),
        pa.array(layout.variables, pa.string()).take(pa.array(codes)),
        pa.array(np.concatenate([np.empty(0, np.int64), *indices])[order]),
        *([attribute(INPUT_ROW, pa.int64())] if layout.has_rows else []),
        *(attribute(field.name, field.type) for field in layout.attributes),
        *(batch.column(name).take(chosen) for name in layout.of_match.names),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=layout.schema)


def shaped(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], variables: Iterable[str], shape: str, is_numbered: bool = True
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Matches in another shape, batch by batch."""
    if shape == FLAT:
        columns = flat_columns(schema, variables)
        return pa.schema([(c.name, c.type) for c in columns]), (flat(batch, columns) for batch in batches)
    layout = LongLayout.of(schema, variables, is_numbered)
    return layout.schema, _numbered(batches, layout)


def _numbered(batches: Iterator[pa.RecordBatch], layout: LongLayout) -> Iterator[pa.RecordBatch]:
    matches = 0
    for batch in batches:
        yield long(batch, layout, matches)
        matches += batch.num_rows


def _require_distinct(names: Sequence[str], hint: str) -> None:
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise InputProblem(f"the output has two columns {listing(doubled)}", hint=hint)
