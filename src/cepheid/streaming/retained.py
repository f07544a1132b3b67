"""The released events of a bucket that a later match may contain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.io.event_columns import types_column
from cepheid.io.inputs import Columns
from cepheid.io.rows import START, TIME, TYPE, Rows
from cepheid.runtime.kernel import Array


@dataclass(frozen=True, slots=True)
class RetainedRows(Rows):
    """The released events that a later match may still contain. `first` is the position of the first of them."""

    table: pa.RecordBatch
    first: int
    columns: Columns

    def ticks(self, positions: Array) -> Array:
        times: Array = np.asarray(self.table.column(TIME))[positions - self.first]
        return times

    def starts(self, positions: Array) -> Array | None:
        if START not in self.table.schema.names:
            return None
        starts: Array = np.asarray(self.table.column(START))[positions - self.first]
        return starts

    def take(self, names: Sequence[str], positions: pa.Array) -> pa.RecordBatch:
        stored = [name for name in names if name != TYPE]
        taken = self.table.select(stored).take(pc.subtract(positions, self.first))
        if TYPE not in names:
            return taken
        types = self.table.take(pc.subtract(positions, self.first))
        return taken.append_column(TYPE, types_column(types, self.columns)).select(list(names))

    def first_of_time(self, positions: Array) -> Array:
        times = np.asarray(self.table.column(TIME))
        first: Array = self.first + np.searchsorted(times, times[positions - self.first])
        return first

    def after(self, position: int, retains_ties: bool = False) -> RetainedRows:
        """Without the rows before a position. Rows of its time stay, if equal events are counted."""
        cut = min(max(position - self.first, 0), self.table.num_rows)
        if retains_ties and cut < self.table.num_rows:
            cut = int(self.first_of_time(np.array([self.first + cut]))[0]) - self.first
        return replace(self, table=self.table.slice(cut), first=self.first + cut)

    @property
    def end(self) -> int:
        return self.first + int(self.table.num_rows)
