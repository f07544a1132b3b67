"""Runs a prepared query over its source in one process, with a compiled kernel or the oracle.

A source that is read in batches (a Parquet file in time order, an iterator) takes memory for the window and a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from cepheid.analysis import Analysis
from cepheid.engine import oracle
from cepheid.engine.adaptation import OnSwitch, ignore, stepper_for
from cepheid.engine.consumption import Consuming
from cepheid.engine.derivation import ComposedSource, composed
from cepheid.engine.first_matches import FirstMatches, first_matches
from cepheid.engine.gather import Gatherer, with_types
from cepheid.engine.no_match import Tally
from cepheid.engine.passing import Progress, one_pass
from cepheid.engine.positions import MatchPositions, intervals, position_columns
from cepheid.engine.prepare import Prepared, position_type
from cepheid.engine.shapes import EVENTS, shaped
from cepheid.engine.stepping import PIECE, Stepper, encoder_for
from cepheid.engine.summary import PartialSummary, Summary, merged_row, part_of, sums_up
from cepheid.errors import NotAvailable
from cepheid.expr import Whole
from cepheid.graph import is_composed
from cepheid.io.event_columns import for_kernel
from cepheid.io.rows import INPUT_ROW, ROW, TYPE, Rows
from cepheid.io.sinks import Objects
from cepheid.io.source import Source, columns_read
from cepheid.kernels.any_runs.compact_store import ROW as NODE_ROW
from cepheid.kernels.any_runs.lazy_matches import Compressed, LazyKernel
from cepheid.kernels.successor.failures import shows_failures
from cepheid.runtime.kernel import END_OF_TIME, Array, Kernel, Positions


@dataclass(frozen=True, slots=True)
class Result:
    """The matches of a query: one row per match or, in the long shape, one per match and event."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    objects: Objects
    """Shows the rows as JSON objects."""

    def shaped(self, shape: str) -> Result:
        """The same matches in another shape. Its columns hold values, and no events."""
        if shape == EVENTS:
            return self
        schema, batches = shaped(self.schema, self.batches, self.objects.types, shape)
        return Result(schema, batches, replace(self.objects, types={}))


OnEmpty = Callable[[Analysis], None]
"""Gets the counters of a run without a match."""


def run(
    prepared: Prepared,
    source: Source,
    *,
    as_text: bool = False,
    numbered: bool = False,
    progress: Progress = ignore,
    on_switch: OnSwitch = ignore,
    on_empty: OnEmpty | None = None,
) -> Result:
    """The matches as record batches, with the events of each match or the RETURN columns of the query. With `as_text`
    they are prepared for text output, which shows the events of a text file unchanged. With `numbered`, events
    that are rows of the input have their row number, for the long shape. After a run without a match, `on_empty` gets
    the counters."""
    running = _Run(prepared, composed(prepared, source), progress, on_switch, on_empty)
    built = _builds_rows(prepared)
    if built:
        require_rows_shown(prepared)
        return Result(output_schema(prepared, as_text), running.built_rows(as_text), objects_of(prepared))
    gatherer = gatherer_for(prepared, as_text, numbered and prepared.graph is None)
    return Result(gatherer.schema, running.gathered(gatherer), objects_of(prepared))


def require_rows_shown(prepared: Prepared) -> None:
    """Refuses what rows cannot show."""
    if shows_failures(prepared.plan):
        raise NotAvailable(
            "failed detections of events that are not columns", hint="read the events from a table, Parquet or Arrow"
        )


def times_as_written(prepared: Prepared, source: Source) -> Mapping[int, object]:
    """The times of derived events as the rows of the input write them."""
    if ROW not in source.schema.names or not prepared.input.derived or not prepared.clock.is_timestamp:
        return oracle.NO_TEXTS
    return oracle.time_texts(prepared, source.batches([ROW]))


def partial_summary(prepared: Prepared, source: Source, owns: Callable[[Array], Array] | None = None) -> PartialSummary:
    """The summary of the matches in a part of the events, to be merged with that of others. `owns` selects matches by
    their start."""
    assert prepared.kernel is not None
    return _Run(prepared, composed(prepared, source), ignore, ignore).summary(prepared.kernel, owns)


def output_schema(prepared: Prepared, as_text: bool = False) -> pa.Schema:
    """The columns of the matches, known before the run."""
    if _builds_rows(prepared):
        return oracle.text_schema(prepared) if as_text else oracle.match_batch(prepared, []).schema
    return gatherer_for(prepared, as_text).schema


def _builds_rows(prepared: Prepared) -> bool:
    """Whether output rows are built event by event, instead of gathered from columns of the input."""
    return oracle.makes_output(prepared.query) or ROW in prepared.input.schema.names


def run_positions(prepared: Prepared, source: Source, on_switch: OnSwitch = ignore) -> Result:
    """The row numbers of the events that each match binds."""
    if oracle.makes_output(prepared.written):
        raise NotAvailable(
            "positions of a summary, or of events that other queries derive: they are not rows of the input",
            hint='use output="events"',
        )
    running = _Run(prepared, source, ignore, on_switch)
    schema = pa.schema([(var, position_type(prepared, var)) for var in prepared.variables])
    return Result(schema, running.positions(schema), objects_of(prepared))


def run_matches(prepared: Prepared, source: Source, names: Sequence[str] = ()) -> Iterator[tuple[MatchPositions, Rows]]:
    """The matches as positions, with the rows that have their times and some columns. Both are valid until the next
    ones are read."""
    running = _Run(prepared, composed(prepared, source), ignore, ignore)
    rows = running.source.rows(list(names))
    for matches in running._matches(rows, list(names)):
        yield matches, rows


def run_compressed(prepared: Prepared, source: Source) -> Iterator[Compressed]:
    """The matches in the form of the compact store, batch by batch; the rows of their nodes are those of the input."""
    kernel = prepared.kernel
    is_composed = prepared.graph is not None
    if not isinstance(kernel, LazyKernel) or kernel.summary.asked or prepared.query.limit is not None or is_composed:
        raise NotAvailable(
            "compressed matches of this query",
            expected="a sequence with closures under skip till any match, without a summary and without LIMIT",
        )
    return _compressed(prepared, source, kernel)


def _compressed(prepared: Prepared, source: Source, kernel: LazyKernel) -> Iterator[Compressed]:
    names, rows = read_by_plan(prepared, source.schema), source.rows([])
    state, encoder = kernel.initial(), encoder_for(kernel)
    for batch in source.batches(names):
        state, compressed = kernel.step_compressed(state, encoder.encode(for_kernel(batch, names)))
        yield _with_input_rows(compressed, rows)
    _, compressed = kernel.advance_compressed(state, END_OF_TIME, encoder.codes())
    yield _with_input_rows(compressed, rows)


def _with_input_rows(compressed: Compressed, rows: Rows) -> Compressed:
    nodes = compressed.nodes.copy()
    nodes[:, NODE_ROW] = rows.input_rows(pa.array(nodes[:, NODE_ROW])).to_numpy(zero_copy_only=False)
    return replace(compressed, nodes=nodes)


def analyze(prepared: Prepared, source: Source) -> Analysis:
    """EXPLAIN ANALYZE: runs the plan and counts what each operator does."""
    if prepared.kernel is None:
        raise NotAvailable(
            "the reference evaluator runs this query, and it has no counters",
            hint="; ".join(prepared.plan.reasons) or None,
        )
    source = composed(prepared, source)
    stepper, tally = Stepper.start(prepared.kernel, source.count), Tally.of(prepared.plan)
    names = read_by_plan(prepared, source.schema)
    for batch in source.batches(names):
        for _ in stepper.step(for_kernel(batch, names), observe=partial(tally.add, prepared.plan, batch)):
            """Only the counters are read."""
    for _ in stepper.finish_lazily():
        """Matches that wait for the end of the input are counted too."""
    return tally.analysis(stepper)


# --- the columns that are read and shown ------------------------------------------------------------------------------


def read_by_plan(prepared: Prepared, schema: pa.Schema) -> list[str]:
    """The columns that the masks and kernels of the plan read."""
    return columns_read(prepared.attributes, schema)


def types_of_variables(prepared: Prepared) -> dict[str, tuple[str, ...]]:
    """The types that the event of each variable may have."""
    known = tuple(name for name in prepared.input.attributes or () if name not in prepared.input.derived)
    return {var: role.event_class.types or known for var, role in prepared.variables.items()}


def shown_columns(prepared: Prepared, as_text: bool) -> dict[str, tuple[str, ...]]:
    """The columns that the events of each variable show. For text output the type comes along where the types of a
    variable have different columns."""
    source, names = prepared.input, prepared.input.schema.names
    shown: dict[str, tuple[str, ...]] = {}
    for var, types in types_of_variables(prepared).items():
        has = [source.attributes[name] for name in types if name in source.attributes] if source.attributes else []
        shown[var] = tuple(n for n in names if any(n in columns for columns in has)) if has else tuple(names)
        if as_text and len({frozenset(columns) for columns in has}) > 1:
            shown[var] = (*shown[var], TYPE)
    return shown


def gatherer_for(prepared: Prepared, as_text: bool = False, numbered: bool = False) -> Gatherer:
    """With `numbered` every event shows its row number in the input."""
    source, shown = prepared.input, shown_columns(prepared, as_text)
    schema = with_types(source.schema)
    if numbered:
        schema = schema.append(pa.field(INPUT_ROW, pa.int64()))
        shown = {var: (*names, INPUT_ROW) for var, names in shown.items()}
    return Gatherer.of(prepared, schema, source.columns.time, shown)


def objects_of(prepared: Prepared) -> Objects:
    types, output = types_of_variables(prepared), prepared.query.output
    if output is not None:
        whole = {c.name: c.expr.var for c in output if isinstance(c.expr, Whole)}
        types = {name: types[var] for name, var in whole.items() if var in types}
    source = prepared.input
    shown = {kind: [attribute.name for attribute in of] for kind, of in source.derived.items()}
    return Objects(types, {**(source.attributes or {}), **shown}, source.columns.type, source.omits_nulls)


# --- evaluation -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Stepping:
    """The kernel of one query in a pass over its source (see `passing.Operating`)."""

    stepper: Stepper
    names: Sequence[str]
    """The columns that the kernel reads."""
    input_columns: Sequence[str]
    piece: int | None
    oldest: Callable[[], int | None]
    """The position of the first row that a match needs that is not yet output."""
    tally: Tally | None
    matches: int = 0

    @property
    def oldest_input(self) -> int:
        first = self.oldest()
        return self.stepper.oldest if first is None else min(self.stepper.oldest, first)

    def step(self, batch: pa.RecordBatch, rows: Rows) -> Iterator[Positions]:
        observe = (
            partial(self.tally.add, self.stepper.kernel.plan, batch)
            if self.tally is not None and not self.matches
            else None
        )
        return self._counted(self.stepper.step(for_kernel(batch, self.names), self.piece, observe))

    def finish(self, rows: Rows) -> Iterator[Positions]:
        return self._counted(self.stepper.finish_lazily())

    def _counted(self, parts: Iterator[Positions]) -> Iterator[Positions]:
        for positions in parts:
            self.matches += len(positions)
            yield positions


@dataclass(frozen=True, slots=True)
class _Run:
    prepared: Prepared
    source: Source
    progress: Progress
    on_switch: OnSwitch
    on_empty: OnEmpty | None = None

    def gathered(self, gatherer: Gatherer) -> Iterator[pa.RecordBatch]:
        """The output, gathered from rows of the input."""
        names = [name for name in gatherer.needed() if name != TYPE]
        rows = self.source.rows(names)
        for part in self._matches(rows, names):
            if len(part.start):
                yield gatherer.table(part, rows)

    def positions(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        rows = self.source.rows([])
        if self.prepared.kernel is None or self.prepared.query.limit is not None or self.prepared.query.consumes:
            for part in self._matches(rows, []):
                yield _input_rows(part.variables, rows, schema)
            return
        for positions in self._steps(self._stepper(self.prepared.kernel), rows, None):
            if len(positions):
                yield _input_rows(position_columns(positions, self.prepared.binding), rows, schema)

    # --- by a kernel --------------------------------------------------------------------------------------------------

    def _matches(self, rows: Rows, names: Sequence[str]) -> Iterator[MatchPositions]:
        if self.prepared.kernel is None:
            yield oracle.match_positions(self.prepared, oracle.matches(self.prepared, self._all_batches(rows)))
            return
        stepper = self._stepper(self.prepared.kernel)
        if self.prepared.query.consumes:
            yield from self._consuming(stepper, rows, names)
            return
        if self.prepared.query.limit is not None:
            yield self._limited(self.prepared.query.limit, stepper, rows, names)
            return
        for positions in self._steps(stepper, rows, names):
            if len(positions):
                columns = position_columns(positions, self.prepared.binding)
                yield MatchPositions(columns, *intervals(positions, rows), positions.reasons)

    def _limited(self, limit: int, stepper: Stepper, rows: Rows, names: Sequence[str]) -> MatchPositions:
        """LIMIT: the first matches. No event is read once they are certain."""
        first = FirstMatches.of(limit, stepper.kernel.steps, self.prepared.binding)
        steps = self._steps(stepper, rows, names, PIECE, first.oldest)
        positions, start, end = first_matches(stepper, steps, limit, rows, first)
        return MatchPositions(position_columns(positions, self.prepared.binding), start, end)

    def _consuming(self, stepper: Stepper, rows: Rows, names: Sequence[str]) -> Iterator[MatchPositions]:
        """Each event in at most one match."""
        consuming = Consuming.of(stepper.kernel.steps, self.prepared.binding)
        steps = self._steps(stepper, rows, names, PIECE, consuming.oldest)
        for positions, start, end in consuming.output(stepper, steps, rows):
            yield MatchPositions(position_columns(positions, self.prepared.binding), start, end)

    def _stepper(self, kernel: Kernel) -> Stepper:
        return stepper_for(self.prepared, kernel, self.source.count, self.on_switch)

    def _steps(
        self,
        stepper: Stepper,
        rows: Rows,
        retained: Sequence[str] | None,
        piece: int | None = None,
        oldest: Callable[[], int | None] = ignore,
    ) -> Iterator[Positions]:
        """The kernel's matches, piece by piece. `retained` are the columns of the rows to retain (None: no rows);
        `oldest` returns the position of the first row that a match needs that is not yet output."""
        names = read_by_plan(self.prepared, self.source.schema)
        tally = Tally.of(stepper.kernel.plan) if self._reports_emptiness() else None
        columns = list(dict.fromkeys([*names, *(retained or ())]))
        operator = _Stepping(stepper, names, columns, piece, oldest, tally)
        yield from one_pass(self.source, [operator], rows, self.progress, retains=retained is not None)
        if tally is not None and self.on_empty is not None and not operator.matches:
            self.on_empty(tally.analysis(stepper))

    def _reports_emptiness(self) -> bool:
        """A summary has a row in any case, and LIMIT 0 asks for no match."""
        query = self.prepared.query
        return self.on_empty is not None and not (query.summarizes or query.limit == 0)

    # --- by the oracle, or from rows that are shown unchanged ---------------------------------------------------------

    def built_rows(self, as_text: bool) -> Iterator[pa.RecordBatch]:
        prepared, kernel = self.prepared, self.prepared.kernel
        rows: Rows | None = None
        if kernel is None:
            ids = None if is_composed(prepared.query) else prepared.match_ids
            rows = None if ids is None else self.source.rows([ROW, *ids.columns])
            matches = oracle.matches(prepared, self._all_batches(rows))
        elif prepared.query.summarizes:
            matches = [merged_row(prepared, [self.summary(kernel)])][: prepared.query.limit]
        else:
            identifying = () if prepared.match_ids is None else prepared.match_ids.columns
            names = list(dict.fromkeys([ROW, *oracle.derived_columns(prepared), *identifying]))
            rows = self.source.rows(names)
            parts = list(self._matches(rows, names))
            matches = oracle.matches_at(prepared, parts, rows)
        yield oracle.match_batch(prepared, matches, as_text, self._texts(), rows)

    def _texts(self) -> Mapping[int, object]:
        if isinstance(self.source, ComposedSource):
            return times_as_written(self.prepared, self.source.source)
        return oracle.NO_TEXTS

    def summary(self, kernel: Kernel, owns: Callable[[Array], Array] | None = None) -> PartialSummary:
        """Aggregates over all matches, from their positions; or over those that the task `owns`, by their start."""
        summary, schema, stepper = Summary.of(self.prepared.query), self.source.schema, self._stepper(kernel)
        if sums_up(self.prepared):
            for _ in self._steps(stepper, self.source.rows([]), None):
                """The kernel updates the summary at each step."""
            return part_of(self.prepared, stepper, summary)
        names = columns_read(summary.attributes, schema)
        rows = self.source.rows(names)
        for positions in self._steps(stepper, rows, names):
            summary.add_found(positions, self.prepared.binding, rows, schema, owns)
        return summary

    def _all_batches(self, rows: Rows | None = None) -> Iterator[pa.RecordBatch]:
        """All columns of all events, or their rows if the source was read row by row."""
        names = list(self.source.schema.names)
        if ROW in names:
            names = [ROW] if self.prepared.match_ids is None else [ROW, *self.prepared.match_ids.columns]
        read = 0
        for batch in self.source.batches(names):
            if rows is not None:
                rows.add(batch)
            yield batch
            read += batch.num_rows
            self.progress(read, 0)


def _input_rows(variables: Mapping[str, pa.Array], rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    """The row numbers of the input at these positions of the stream."""
    arrays = []
    for name in schema.names:
        positions = variables[name]
        if pa.types.is_list(positions.type):
            mask = positions.is_null() if positions.null_count else None
            flat = rows.input_rows(positions.values)
            arrays.append(pa.ListArray.from_arrays(positions.offsets, flat, mask=mask))
        else:
            arrays.append(rows.input_rows(positions))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
