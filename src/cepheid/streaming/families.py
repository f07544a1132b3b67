"""The families of one key in the buckets of a stream (see `deploy.families`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cepheid.codegen.columns import types_of
from cepheid.deploy.family_layout import Families
from cepheid.deploy.family_run import FamilyRun, RuleMatches, SavedFamilies
from cepheid.engine.positions import MatchPositions
from cepheid.io.event_columns import types_column
from cepheid.io.inputs import Columns
from cepheid.io.rows import TYPE, Rows
from cepheid.kernels.family.event_bits import WORD
from cepheid.limits import NO_LIMITS, Limits
from cepheid.runtime.kernel import END_OF_TIME, Array
from cepheid.streaming.compact import read_numbers, read_parts, write_numbers, write_parts
from cepheid.streaming.outputs import StreamOutput

_KEY = "key"


@dataclass(frozen=True, slots=True)
class StreamGroup:
    """The families of one key, and the outputs of their queries. `answers` has for each output the number of the query
    (in its names) that a rule answers, or -1; equal queries take several lines."""

    key: tuple[str, ...]
    families: Families
    rule_names: Array
    """A hash of the content of each rule: a state belongs to the rules that it names."""
    outputs: tuple[StreamOutput, ...]
    answers: tuple[tuple[Array, ...], ...]
    read: tuple[str, ...]
    """The columns that the tests and the key read."""
    types: frozenset[str] | None
    """The event types that can matter; None: all."""
    window: int | None
    """The longest window in ticks; None: some rule has none."""
    slot: int = 0
    """The bucket of families without a key among those of the stream."""
    limits: Limits = NO_LIMITS
    ties_matter: bool = False
    """Whether the order of events of the same time can change the matches."""

    @property
    def names(self) -> list[str]:
        return [name for output in self.outputs for name in output.names]

    def queries_of(self, rule: int) -> list[str]:
        """The queries that a rule answers."""
        of = zip(self.outputs, self.answers, strict=True)
        return [output.names[line[rule]] for output, lines in of for line in lines if line[rule] >= 0]

    def relevant(self, events: pa.RecordBatch, columns: Columns) -> Array | None:
        """The events that can be part of a match; None: all may."""
        if self.types is None:
            return None
        typed = pa.RecordBatch.from_arrays([types_column(events, columns)], names=[TYPE])
        names, codes = types_of(typed, TYPE)
        chosen: Array = np.array([name in self.types for name in names], bool)[codes]
        return chosen

    def matches(self, running: FamilyRun, events: pa.RecordBatch | None, last: int) -> Iterator[RuleMatches]:
        """The matches of the released events, and of those that are certain since no event comes up to `last`."""
        if events is not None:
            yield from running.step(events)
        if last > -END_OF_TIME:
            yield running.advance(last)

    def rows(self, found: RuleMatches, rows: Rows) -> Iterator[tuple[int, pa.RecordBatch, Counter[str]]]:
        """The matches as rows of their tables, and how many each query has."""
        for output, lines in zip(self.outputs, self.answers, strict=True):
            for line in lines if len(found) else ():
                numbers = line[found.rules]
                chosen = np.flatnonzero(numbers >= 0)
                if not len(chosen):
                    continue
                own, variables = found.of(chosen), output.prepared.binding.variables
                columns = {var: pa.array(own.rows[:, at]) for at, var in enumerate(variables)}
                assert output.gatherer is not None
                table = output.gatherer.table(MatchPositions(columns, own.start, own.end), rows)
                queries = pa.array(output.names, pa.string()).take(pa.array(numbers[chosen]))
                yield output.table, output.named(table, queries), Counter(queries.to_pylist())

    # --- the state ----------------------------------------------------------------------------------------------------

    def saved(self, running: FamilyRun, last: int) -> bytes:
        """The state after all events of times up to `last`; empty without any instance or rule that is stopped."""
        state = running.saved(last)
        if not len(state.arena) and not state.stopped:
            return b""
        names, stopped = np.append(self.rule_names, state.rows), self.rule_names[[*state.stopped]]
        parts = [write_numbers(part) for part in (state.arena, state.layout.reshape(-1), names, stopped)]
        return write_parts([*parts, _written(state.keys)])

    def restored(self, data: bytes, rows: int) -> FamilyRun:
        """The families with a saved state, or at the row `rows` without one. Rules that the state does not name begin
        here."""
        if not data:
            running = FamilyRun.start(self.families, self.limits)
            running.rows = rows
            return running
        *parts, keys = read_parts(data)
        arena, layout, names, *stopped = map(read_numbers, parts)  # states of before have no stopped rules
        now = {name: number for number, name in enumerate(self.rule_names.tolist()) if name}
        still = tuple(now[name] for known in stopped for name in known.tolist() if name in now)
        state = SavedFamilies(arena, _read(bytes(keys)), int(names[-1]), layout.reshape(-1, 4), still)
        before = names[:-1]
        if np.array_equal(before, self.rule_names) and np.array_equal(state.layout, self.families.layout):
            return FamilyRun.restored(self.families, state, limits=self.limits)
        carried = np.array([now.get(name, -1) for name in before.tolist()], np.int64)
        assert len(carried) % WORD == 0
        return FamilyRun.restored(self.families, state, carried, self.limits)


def _written(keys: list[object]) -> bytes:
    """The keys with their type, which is that of an integer, a string or another value that has a code."""
    batch = pa.RecordBatch.from_arrays([pa.array(keys)], names=[_KEY])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _read(data: bytes) -> list[object]:
    keys: list[object] = pa.ipc.open_stream(pa.py_buffer(data)).read_all().column(0).to_pylist()
    return keys
