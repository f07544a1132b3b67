"""What the queries of a deployment show of the matches of their operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.deploy.deployment import QUERY, Output
from cepheid.engine import oracle
from cepheid.engine.first_matches import FirstMatches
from cepheid.engine.gather import Gatherer
from cepheid.engine.positions import MatchPositions, position_columns
from cepheid.engine.prepare import Prepared
from cepheid.engine.run import gatherer_for, objects_of, require_rows_shown, times_as_written
from cepheid.engine.shapes import (
    EVENTS,
    FLAT,
    LONG,
    NUMBER,
    FlatColumn,
    LongLayout,
    flat,
    flat_columns,
    for_shape,
    long,
)
from cepheid.engine.stepping import Stepper
from cepheid.engine.summary import Summary, merged_row, part_of, sums_up
from cepheid.errors import Explosion, NotAvailable, listing, shown
from cepheid.io.json_text import joined, json_texts, member
from cepheid.io.rows import ROW, TYPE, Rows
from cepheid.io.sinks import Objects
from cepheid.io.source import Source, columns_read
from cepheid.runtime.kernel import Array, Positions


def stopped_text(names: Sequence[str], problem: Explosion) -> str:
    """That an operator was stopped, and why, in one line."""
    what = f"the query `{names[0]}` is" if len(names) == 1 else f"the queries {listing(names)} are"
    return f"{what} stopped: {problem.what}"


@dataclass(frozen=True, slots=True)
class ShapeTable:
    """The matches of all queries with the same columns. The first column names the query."""

    schema: pa.Schema
    queries: tuple[str, ...]
    batches: Sequence[pa.RecordBatch]
    objects: Objects
    """Shows the rows as JSON objects."""


def tables(outputs: Sequence[OutputRun], names: Sequence[str]) -> list[ShapeTable]:
    """The outputs by their columns, in the order of the queries."""
    order = {name: number for number, name in enumerate(names)}
    outputs = sorted(outputs, key=lambda one: order[one.output.names[0]])
    groups: dict[str, list[OutputRun]] = {}
    for output in outputs:
        groups.setdefault(output.schema.to_string(), []).append(output)
    return [
        ShapeTable(
            group[0].schema,
            tuple(name for one in group for name in one.output.names),
            [batch for one in group for batch in one.batches],
            group[0].objects,
        )
        for group in groups.values()
    ]


@dataclass(slots=True)
class OutputRun:
    """The matches of an operator as some of its queries show them."""

    output: Output
    prepared: Prepared
    """The query in the shape of the output."""
    gatherer: Gatherer | None
    """None for a summary, and for rows that were read one by one."""
    shape: FlatColumns | LongLayout | None
    retained: list[str]
    """The columns of the rows that are shown."""
    steps: Mapping[str, str]
    """The variable of the query for each one of the operator."""
    schema: pa.Schema
    is_text: bool = False
    """Whether matches are JSON texts, which show the rows of a text file unchanged."""
    texts: Mapping[int, Any] = field(default_factory=dict)
    """The times of derived events, as the rows of the input write them."""
    first: FirstMatches | None = None
    """The first matches, if the queries have a LIMIT."""
    summary: Summary | None = None
    """The summary of all matches, unless the kernel computes it."""
    matches: int = 0
    batches: list[pa.RecordBatch] = field(default_factory=list)

    @classmethod
    def of(
        cls, output: Output, operator: Prepared, shape: str, rows_of: Source | None = None, is_text: bool = False
    ) -> OutputRun:
        """`rows_of` is a source that was read row by row. Its rows are shown unchanged in texts."""
        try:
            prepared = for_shape(output.prepared, shape)
        except NotAvailable as error:
            raise NotAvailable(f"the query `{shown(output.names[0])}`: {error.what}", hint=error.hint) from None
        steps = dict(zip(operator.variables, prepared.variables, strict=True))
        if prepared.query.summarizes:
            summary = None if sums_up(prepared) else Summary.of(prepared.query)
            schema = oracle.match_batch(prepared, [], is_text).schema
            read = [] if summary is None else columns_read(summary.attributes, prepared.input.schema)
            return cls(output, prepared, None, None, read, steps, _with_query(schema), is_text, summary=summary)
        if rows_of is not None:
            require_rows_shown(prepared)
            ids = () if prepared.match_ids is None else prepared.match_ids.columns
            retained = list(dict.fromkeys([ROW, *oracle.derived_columns(prepared), *ids]))
            schema = oracle.match_batch(prepared, [], is_text).schema
            layout = None if is_text else _layout(schema, objects_of(prepared).types, shape)
            schema = _with_query(schema if layout is None else layout.schema)
            of_times = times_as_written(prepared, rows_of) if is_text else {}
            first = _first(prepared, operator, steps)
            return cls(output, prepared, None, layout, retained, steps, schema, is_text, of_times, first)
        gatherer = gatherer_for(prepared, False, shape == LONG and prepared.graph is None)
        retained = [name for name in gatherer.needed() if name != TYPE]
        layout = _layout(gatherer.schema, objects_of(prepared).types, shape)
        schema = gatherer.schema if layout is None else layout.schema
        first = _first(prepared, operator, steps)
        return cls(output, prepared, gatherer, layout, retained, steps, _with_query(schema), first=first)

    @property
    def objects(self) -> Objects:
        """Other shapes than that of events have values only."""
        shown = objects_of(self.prepared)
        return shown if self.shape is None else replace(shown, types={})

    @property
    def oldest(self) -> int | None:
        """The position of the oldest row that is still to be shown."""
        return None if self.first is None else self.first.oldest()

    def add(self, positions: Positions, start: Array, end: Array, rows: Rows) -> None:
        """Matches of the operator, which belong to each of the queries."""
        own = replace(positions, steps=tuple(self.steps[step] for step in positions.steps))
        if self.first is not None:
            self.first.add(own, start, end)
            return
        columns = position_columns(own, self.prepared.binding)
        self.show(MatchPositions(columns, start, end, positions.reasons), rows)

    def show(self, matches: MatchPositions, rows: Rows, queries: pa.Array | None = None) -> None:
        """Shows matches; `queries` is the name of the query of each, if not each is one of every query."""
        if self.summary is not None:
            self.summary.add(matches, rows, self.prepared.input.schema)
        elif self.gatherer is not None and len(matches.start):
            self._emit(self.gatherer.table(matches, rows), queries)
        elif not self.prepared.query.summarizes and len(matches.start):
            found = oracle.matches_at(self.prepared, [matches], rows)
            self._emit(oracle.match_batch(self.prepared, found, self.is_text, self.texts, rows), queries)

    def finish(self, rows: Rows, stepper: Stepper) -> None:
        """Shows what the end of the input decides: the first matches of LIMIT, and summaries."""
        if self.first is not None:
            positions, start, end = self.first.positions()
            self.show(MatchPositions(position_columns(positions, self.prepared.binding), start, end), rows)
        elif self.prepared.query.summarizes:
            prepared = replace(self.prepared, kernel=stepper.compiled)
            summary = self.summary or Summary.of(prepared.query)
            row = merged_row(prepared, [part_of(prepared, stepper, summary)])
            self._emit(oracle.match_batch(self.prepared, [row][: self.prepared.query.limit], self.is_text), None)

    def _emit(self, table: pa.RecordBatch, queries: pa.Array | None) -> None:
        count = table.num_rows
        numbers: Array = np.arange(count)
        match self.shape:
            case FlatColumns():
                table = flat(table, self.shape.columns)
            case LongLayout():
                table = long(table, self.shape, self.matches)
                numbers = np.asarray(table.column(NUMBER)) - self.matches
        self.matches += count
        for name in self.output.names if queries is None else ("",):
            each = pa.array([name] * len(numbers), pa.string()) if queries is None else queries.take(pa.array(numbers))
            columns = table.columns
            if self.is_text:
                columns = [*columns[:-1], _with_name(each, columns[-1])]
            self.batches.append(pa.RecordBatch.from_arrays([each, *columns], schema=self.schema))


@dataclass(frozen=True, slots=True)
class FlatColumns:
    """The columns of the flat shape."""

    columns: Sequence[FlatColumn]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(column.name, column.type) for column in self.columns])


def _layout(schema: pa.Schema, variables: Mapping[str, Sequence[str]], shape: str) -> FlatColumns | LongLayout | None:
    if shape == EVENTS:
        return None
    return FlatColumns(flat_columns(schema, variables)) if shape == FLAT else LongLayout.of(schema, variables)


def _first(prepared: Prepared, operator: Prepared, steps: Mapping[str, str]) -> FirstMatches | None:
    if prepared.query.limit is None:
        return None
    assert operator.kernel is not None
    return FirstMatches.of(prepared.query.limit, tuple(steps[step] for step in operator.kernel.steps), prepared.binding)


def _with_name(names: pa.Array, lines: pa.Array) -> pa.Array:
    """JSON objects with the name of their query as the first member."""
    first = joined(["{", member(QUERY, json_texts(names)), ", "])
    return pc.binary_join_element_wise(first, pc.utf8_slice_codeunits(lines, 1), "")


def _with_query(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(QUERY, pa.string()), *schema])
