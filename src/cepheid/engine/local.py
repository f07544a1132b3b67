"""The local backend: compiled kernels over Arrow, in one process.

Memory is bounded by the window and the batch where the input is read in batches (a Parquet file in the order of time,
an iterator), and by the input where it is in memory anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cepheid import expr as ex
from cepheid.checks import summarises
from cepheid.codegen.columns import schema_kinds, types_of
from cepheid.engine.adaptation import Listener, stepper_for, unheard
from cepheid.engine.analysis import analysed
from cepheid.engine.gather import Gatherer
from cepheid.engine.layout import match_table
from cepheid.engine.limit import FirstMatches, first_matches
from cepheid.engine.positions import Found, first_and_last, from_matches, position_columns
from cepheid.engine.prepare import NO_WISHES, Prepared, Wishes, prepare
from cepheid.engine.sampling import sampled
from cepheid.engine.stepping import PIECE, Stepper
from cepheid.engine.summaries import summary_of, sums_up
from cepheid.errors import NotAvailable
from cepheid.events import Event
from cepheid.io.row_reader import Loaded
from cepheid.io.rows import TIME, TYPE, Rows, events_of
from cepheid.io.source import Source, clock_of, columns_read, for_kernel, plain_layout, readable_schema, schema_of
from cepheid.pattern import Query, SourceStream, roles
from cepheid.physical import Analysis
from cepheid.runtime.kernel import Kernel, Positions
from cepheid.semantics import Match, evaluate

Progress = Callable[[int, int], None]
"""Told after each batch how many events have been read and how many matches found."""


def silent(events: int, matches: int) -> None:
    """No progress is shown."""


def prepare_for(query: Query, source: Source, unit: str | None, wishes: Wishes = NO_WISHES) -> Prepared:
    named = {name for role in roles(query.pattern).values() for name in role.event_class.types}
    kinds = schema_kinds(readable_schema(source.schema))
    schema, clock = schema_of(source, sorted(named)), clock_of(source, unit)
    return prepare(query, kinds, schema, clock, sampled(query, kinds, schema, clock, wishes, source))


def is_made_by_oracle(query: Query) -> bool:
    """Whether the output is not rows of the input: a summary of all matches, or events that other queries made. All but
    the summaries that a kernel makes come from the oracle."""
    return summarises(query) or any(not isinstance(item, SourceStream) for item in query.inputs)


@dataclass(frozen=True, slots=True)
class Run:
    """A prepared query over one source."""

    prepared: Prepared
    source: Source
    progress: Progress = silent
    shows: Mapping[str, tuple[str, ...]] | None = None
    """The columns that the events of each variable have; all, unless told."""
    listener: Listener = unheard
    """Told whenever the plan changes."""

    @property
    def schema(self) -> pa.Schema:
        return self._made([]).schema if is_made_by_oracle(self.prepared.query) else self._gatherer().schema

    def events(self) -> Iterator[pa.RecordBatch]:
        """One row for each match: the events that it binds, or the columns that the query returns."""
        if is_made_by_oracle(self.prepared.query):
            yield from self._made(self._made_matches()).to_batches()
            return
        gatherer = self._gatherer()
        kept = gatherer.needed()
        rows = self.source.rows(kept)
        for found in self._found(rows, kept):
            if len(found.start):
                yield gatherer.table(found, rows)

    def positions(self) -> Iterator[pa.RecordBatch]:
        """One row for each match: the row numbers of the events that it binds."""
        if is_made_by_oracle(self.prepared.query):
            raise NotAvailable(
                "positions of what is not in the input: a summary, or events that other queries made",
                hint='ask for output="events"',
            )
        rows = self.source.rows([])
        if self.prepared.kernel is None or self.prepared.query.limit is not None:
            for found in self._found(rows, []):
                yield self._input_rows(found.variables, rows)
            return
        for positions in self._steps(self._stepper(self.prepared.kernel), rows, None):
            if len(positions):
                yield self._input_rows(self._columns(positions), rows)

    @property
    def position_schema(self) -> pa.Schema:
        many = self.prepared.many
        return pa.schema(
            [(var, pa.list_(pa.int64()) if var in many else pa.int64()) for var in self.prepared.variables]
        )

    def _input_rows(self, variables: Mapping[str, pa.Array], rows: Rows) -> pa.RecordBatch:
        arrays = []
        for field in self.position_schema:
            positions = variables[field.name]
            if pa.types.is_list(positions.type):
                mask = positions.is_null() if positions.null_count else None
                flat = rows.input_rows(positions.values)
                arrays.append(pa.ListArray.from_arrays(positions.offsets, flat, mask=mask))
            else:
                arrays.append(rows.input_rows(positions))
        return pa.RecordBatch.from_arrays(arrays, schema=self.position_schema)

    # --- by a kernel --------------------------------------------------------------------------------------------------

    def _found(self, rows: Rows, kept: Sequence[str]) -> Iterator[Found]:
        if self.prepared.kernel is None:
            matches = evaluate(self.prepared.query, self._oracle_events(rows, kept), self.prepared.clock)
            yield from_matches(matches, list(self.prepared.variables), self.prepared.many)
            return
        stepper = self._stepper(self.prepared.kernel)
        if self.prepared.query.limit is not None:
            yield self._first_found(self.prepared.query.limit, stepper, rows, kept)
            return
        for positions in self._steps(stepper, rows, kept):
            if not len(positions):
                continue
            first, last = first_and_last(positions)
            variables = self._columns(positions)
            yield Found(variables, rows.ticks(first), rows.ticks(last))

    def _columns(self, positions: Positions) -> dict[str, pa.Array]:
        return position_columns(positions, self.prepared.binding)

    def _first_found(self, limit: int, stepper: Stepper, rows: Rows, kept: Sequence[str]) -> Found:
        """LIMIT: the first matches. No event is read once they are certain."""
        first = FirstMatches(limit, stepper.kernel.steps)
        answers = self._steps(stepper, rows, kept, PIECE, first.oldest)
        positions, start, end = first_matches(stepper, answers, limit, rows.ticks, first)
        return Found(self._columns(positions), start, end)

    def _stepper(self, kernel: Kernel) -> Stepper:
        return stepper_for(self.prepared, kernel, self.source.count, self.listener)

    def _steps(
        self,
        stepper: Stepper,
        rows: Rows,
        kept: Sequence[str] | None,
        piece: int | None = None,
        held: Callable[[], int | None] = lambda: None,
    ) -> Iterator[Positions]:
        """The kernel's answers, piece by piece. `kept` are the columns to keep in the rows (None: no rows at all);
        `held` tells the position from which on they are kept for matches that are not yet given out."""
        read_by_plan = self._read_by_plan()
        read = matches = 0
        for batch in self.source.batches(list(dict.fromkeys([*read_by_plan, *(kept or ())]))):
            if kept is not None:
                rows.add(batch)
            for positions in stepper.step(for_kernel(batch, read_by_plan), piece):
                matches += len(positions)
                yield positions
            rows.forget(min(stepper.oldest, *(at for at in [held()] if at is not None), stepper.oldest))
            read += batch.num_rows
            self.progress(read, matches)
        yield from stepper.finish_lazily()

    def analysis(self) -> Analysis:
        """What the plan does on the events, operator by operator."""
        names = self._read_by_plan()
        batches = (for_kernel(batch, names) for batch in self.source.batches(names))
        return analysed(self.prepared, batches, self.source.count)

    def _read_by_plan(self) -> list[str]:
        names: list[str] = []
        for plan in self.prepared.plans:
            tests = [node for bit in plan.bits for test in bit.tests for node in ex.walk(test)]
            keys = plan.key if plan.counts_events else ()
            names += [*(node.name for node in tests if isinstance(node, ex.Attr)), *plan.columns, *keys]
        return columns_read(names, self.source.schema)

    def _gatherer(self) -> Gatherer:
        everything = dict.fromkeys(self.prepared.variables, tuple(self.source.schema.names))
        shown = everything if self.shows is None else self.shows
        return Gatherer.of(self.prepared, self.source.schema, self.source.columns.time, shown)

    # --- by the oracle ------------------------------------------------------------------------------------------------

    def _oracle_events(self, rows: Rows | None = None, kept: Sequence[str] = ()) -> list[Event]:
        events: list[Event] = []
        names = self.source.schema.names
        for batch in self.source.batches(names):
            if rows is not None:
                rows.add(batch)
            types, codes = types_of(batch, TYPE)
            positions = range(len(events), len(events) + batch.num_rows)
            kinds = [types[code] for code in codes.tolist()]
            ticks = batch.column(TIME).to_pylist()
            events.extend(events_of(batch.select(names), kinds, ticks, positions, self.source.columns.time))
            self.progress(len(events), 0)
        return events

    # --- what is not rows of the input --------------------------------------------------------------------------------

    def _made_matches(self) -> list[Match]:
        query, kernel = self.prepared.query, self.prepared.kernel
        if kernel is None or not sums_up(self.prepared):
            return evaluate(query, self._oracle_events(), self.prepared.clock)
        stepper = self._stepper(kernel)
        for _ in self._steps(stepper, self.source.rows([]), None):
            """The kernel sums up as it goes."""
        return [summary_of(self.prepared, stepper)][: query.limit]

    def _made(self, matches: list[Match]) -> pa.Table:
        query, schema, clock = self.prepared.query, self.prepared.schema, self.prepared.clock
        loaded = Loaded([], schema, clock, time_column=self.source.columns.time)
        return match_table(query, matches, loaded, dict.fromkeys(schema.types, plain_layout(self.source.schema)))
