"""The output of the queries of a stream: rows of matches, in a table for each set of columns."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from cepheid.engine.gather import Gatherer
from cepheid.engine.oracle import made_batch
from cepheid.engine.positions import MatchPositions, match_order
from cepheid.engine.prepare import Prepared
from cepheid.engine.run import objects_of
from cepheid.engine.shapes import EVENTS, shaped

QUERY = "query"
"""The column that names the query of a match, where there may be several."""
TABLE = "table-"
"""The names of tables begin with it."""


@dataclass(frozen=True, slots=True)
class OutputTable:
    """The matches of all queries with the same columns. The name of that of one query is empty."""

    name: str
    schema: pa.Schema

    @classmethod
    def of(cls, schema: pa.Schema) -> OutputTable:
        """Named by its columns, so that it is the same whatever queries there are."""
        digest = hashlib.blake2b(str(schema.remove_metadata()).encode(), digest_size=4).hexdigest()
        return cls(f"{TABLE}{digest}", schema)


@dataclass(frozen=True, slots=True)
class StreamOutput:
    """How queries show their matches."""

    names: tuple[str, ...]
    """The queries that show the same matches in the same way."""
    prepared: Prepared
    """Without its kernel, which every worker makes for itself."""
    gatherer: Gatherer | None
    """None where the output is not made of input columns: lines of JSON, or derived events."""
    shape: str = EVENTS
    table: int = 0
    """The number of its table."""
    is_named: bool = False
    """Whether the rows have the name of their query."""

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def event_columns(self) -> Collection[str]:
        """The columns of the output that hold events."""
        return objects_of(self.prepared).types

    @property
    def counts_equals(self) -> bool:
        """Whether events may be identified by their number among equal ones."""
        ids = self.prepared.match_ids
        return ids is not None and not ids.is_carried and ids.columns != (ids.events.column,)

    @property
    def output_schema(self) -> pa.Schema:
        """The columns of matches before they are shaped."""
        return made_batch(self.prepared, []).schema if self.gatherer is None else self.gatherer.schema

    @property
    def row_schema(self) -> pa.Schema:
        """The columns of its table."""
        none = pa.RecordBatch.from_pylist([], self.output_schema)
        return self.named(none, pa.array([], pa.string())).schema if self.is_named else self._shaped(none).schema

    def in_table(self, tables: Sequence[OutputTable]) -> Self:
        """With the number of its table."""
        name = OutputTable.of(self.row_schema).name if self.is_named else ""
        return replace(self, table=[table.name for table in tables].index(name))

    def rows(self, matches: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Matches as rows of its table, for each query."""
        if not self.is_named:
            yield self._shaped(matches)
            return
        for name in self.names:
            yield self.named(matches, pa.array([name] * matches.num_rows, pa.string()))

    def named(self, matches: pa.RecordBatch, queries: pa.Array) -> pa.RecordBatch:
        """Matches of these queries as rows of its table."""
        rows = self._shaped(matches.append_column(QUERY, queries))
        return rows.select([QUERY, *(name for name in rows.schema.names if name != QUERY)])

    def _shaped(self, matches: pa.RecordBatch) -> pa.RecordBatch:
        if self.shape == EVENTS:
            return matches
        schema, made = shaped(matches.schema, iter([matches]), self.event_columns, self.shape, is_numbered=False)
        return pa.RecordBatch.from_arrays(next(made).columns, schema=schema)


def tables_of(schemas: Sequence[pa.Schema]) -> list[OutputTable]:
    """One for each set of columns."""
    found: dict[str, OutputTable] = {}
    for schema in schemas:
        table = OutputTable.of(schema)
        found.setdefault(table.name, table)
    return list(found.values())


def first_positions(positions: MatchPositions, count: int) -> MatchPositions:
    """The first matches by end, then by start, then by their events."""
    rows = list(zip(*(column.to_pylist() for column in positions.variables.values()), strict=True))
    groups = [[at if isinstance(at, list) else [] if at is None else [at] for at in row] for row in rows]
    orders = [(positions.end[i], positions.start[i], *match_order(group)) for i, group in enumerate(groups)]
    order = sorted(range(len(orders)), key=orders.__getitem__)[: max(count, 0)]
    chosen = pa.array(order, pa.int64())
    variables = {var: column.take(chosen) for var, column in positions.variables.items()}
    reasons = None if positions.reasons is None else positions.reasons[order]
    return MatchPositions(variables, positions.start[order], positions.end[order], reasons)
