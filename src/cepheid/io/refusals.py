"""Rows of text files that do not fit the columns of the others: rejects, with the reasons that the row reader gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cepheid.events import UNTYPED
from cepheid.io.formats.text import TextTable
from cepheid.io.inputs import Columns
from cepheid.io.nested import value_of
from cepheid.io.rejects import Malformed, Reject, after_end
from cepheid.io.rows import is_moment
from cepheid.io.times import LAST_TIME, TimeKind, event_time, fraction_unit
from cepheid.io.values import event_type, flatten_read, misfit, typed_values
from cepheid.types import from_arrow


def rejects_of(text: TextTable, path: str, columns: Columns, type: str | None, is_tabular: bool) -> list[Reject] | None:
    """The broken and the refused rows of a file. None if the row reader might accept one of them, or reject others."""
    found = [Reject(path, row.line, row.reason, row.raw) for row in text.broken]
    checked = _Refusals(text.rows, columns, type)
    for row in text.refused:
        reason = checked.reason(row.values)
        if reason is None:
            return None
        found.append(Reject(path, row.line, reason, row.raw or ""))
    if text.refused and not checked.are_certain(is_tabular):
        return None
    return sorted(found, key=attrgetter("line"))


class _Refusals:
    """The row reader lets the most common values of all rows decide about kinds of times and types of attributes. Here
    the accepted rows decide, and the refused ones are counted, to see that the row reader decides alike."""

    def __init__(self, rows: pa.Table, columns: Columns, type: str | None) -> None:
        has_types = columns.type in rows.column_names and rows.column(columns.type).type != pa.null()
        self.rows, self.columns, self.type = rows, columns, type
        self.type_column = columns.type if type is None and has_types else None
        self.kind = TimeKind.TIMESTAMP if is_moment(rows.schema.field(columns.time).type) else TimeKind.INTEGER
        others = [field for field in rows.schema if field.name not in columns.times and field.type != pa.null()]
        self.nouns = {field.name: from_arrow(field.type).noun for field in others}
        self.kinds = {name: Counter({self.kind: rows.num_rows}) for name in columns.times}
        self.numbers: list[float] = []
        """The times of refused rows that are numbers."""
        self.has_other_types = False
        self.votes: dict[tuple[str, str], Counter[str]] = {}
        """The types of the attributes of refused events, by event type and attribute."""

    def reason(self, values: Mapping[str, Any]) -> str | None:
        """Why the row reader rejects a row of these values; None if it might not."""
        times = map(values.get, self.columns.times)
        self.numbers += (time for time in times if isinstance(time, int | float) and not isinstance(time, bool))
        try:
            end = self._time(values, self.columns.time, "time")
            start = end if self.columns.start is None else self._time(values, self.columns.start, "start")
            if start > end:
                return after_end(self.columns.start or "", self.columns.time)
            of_type = self._type(values)
            values, attributes, records = flatten_read({**values}, self.columns)
        except Malformed as problem:
            return str(problem)
        reason = None
        for name, found, value in typed_values(values, attributes, records, self.columns.times):
            if name == self.type_column or not self.columns.reads(name):
                continue
            votes = self.votes.get((of_type, name))
            if votes is None:
                votes = self.votes[of_type, name] = Counter()
            votes[found.noun] += 1
            if reason is None and found.noun != self.nouns.get(name, found.noun):
                reason = misfit(name, of_type, f"is a {self.nouns[name]}", value)
        return reason

    def _time(self, values: Mapping[str, Any], column: str, noun: str) -> int:
        kind, ticks = event_time(values, column, noun, self.columns.text.time_format)
        self.kinds[column][kind] += 1
        if kind is not self.kind:
            raise Malformed(self.kind.rejects(values[column], noun))
        return ticks

    def _type(self, values: Mapping[str, Any]) -> str:
        if self.type is not None:
            return self.type
        if self.type_column is not None:
            return event_type(value_of(values, self.type_column), self.type_column)
        self.has_other_types |= values.get(self.columns.type) is not None
        return UNTYPED

    def are_certain(self, is_tabular: bool) -> bool:
        """Whether the refused rows cannot change what the row reader finds about the others. If they can, or might, the
        row reader reads the file."""
        if not self.rows.num_rows or self.has_other_types or self._has_epochs():
            return False
        if any(2 * counted[self.kind] <= counted.total() for counted in self.kinds.values()):
            return False
        for (of_type, name), votes in self.votes.items():
            noun = self.nouns.get(name)
            filled = 0 if noun is None else self._filled(of_type, name)
            # An event type of a table has the columns that any of its rows fills.
            if is_tabular and not filled:
                return False
            if noun is None and len(votes) > 1:
                return False
            if noun is not None and 2 * (filled + votes[noun]) <= filled + votes.total():
                return False
        return True

    def _has_epochs(self) -> bool:
        """Whether the row reader might take numbers with fractions for epochs, which become timestamps."""
        if all(isinstance(number, int) or number.is_integer() for number in self.numbers):
            return False
        times = [self.rows.column(name) for name in self.columns.times if self.kind is TimeKind.INTEGER]
        numbers = [*self.numbers, *(edge(time).as_py() for time in times for edge in (pc.min, pc.max))]
        unit = fraction_unit(min(numbers), max(numbers), self.columns.unit)
        return max(map(abs, numbers)) <= LAST_TIME and unit is not None

    def _filled(self, of_type: str, name: str) -> int:
        """The number of accepted events of a type in which an attribute is not null."""
        is_filled = self.rows.column(name).is_valid()
        if self.type_column is not None:
            is_filled = pc.and_(is_filled, pc.equal(self.rows.column(self.type_column), of_type))
        return int(pc.sum(is_filled).as_py() or 0)
