"""Rows of text files that do not fit the columns of the others: rejects, with the reasons that the row reader gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cepheid.events import UNTYPED
from cepheid.io.formats.text import TextTable
from cepheid.io.inputs import Columns
from cepheid.io.rejects import Malformed, Reject
from cepheid.io.rows import is_moment
from cepheid.io.times import TimeKind, event_time
from cepheid.io.values import event_type, flatten, misfit, typed_values
from cepheid.types import from_arrow

_MOST = 3
"""For each row that is refused, its event type must have this many others. So there is no doubt about the types of its
attributes, which the most common values of all rows decide."""


def rejects_of(text: TextTable, path: str, columns: Columns, type: str | None, is_tabular: bool) -> list[Reject] | None:
    """The broken and the refused rows of a file. None if the row reader might accept one of them, or reject others."""
    found = [Reject(path, row.line, row.reason, row.raw) for row in text.broken]
    has_types = columns.type in text.rows.column_names and text.rows.column(columns.type).type != pa.null()
    checked = _Refusals(text.rows, columns, type, has_types)
    for row in text.refused:
        reason = checked.reason(row.values)
        if reason is None:
            return None
        found.append(Reject(path, row.line, reason, row.raw or ""))
    if text.refused and (columns.start is not None or not checked.are_certain(len(text.refused), is_tabular)):
        return None
    return sorted(found, key=lambda reject: reject.line)


class _Refusals:
    def __init__(self, rows: pa.Table, columns: Columns, type: str | None, has_types: bool) -> None:
        self.rows, self.columns, self.type, self.has_types = rows, columns, type, has_types
        self.kind = TimeKind.TIMESTAMP if is_moment(rows.schema.field(columns.time).type) else TimeKind.INTEGER
        others = [field for field in rows.schema if field.name not in columns.times and field.type != pa.null()]
        self.nouns = {field.name: from_arrow(field.type).noun for field in others}
        self.types: Counter[str] = Counter()
        self.has_fractions = False
        self.values: dict[str, dict[str, None]] = {}
        """The attributes of refused events that are not null, by event type."""

    def reason(self, values: Mapping[str, Any]) -> str | None:
        """Why the row reader rejects a row of these values; None if it might not."""
        time = values.get(self.columns.time)
        self.has_fractions |= isinstance(time, float) and not time.is_integer()
        try:
            kind, _ = event_time(values, self.columns.time)
            if kind is not self.kind:
                return self.kind.rejects(time)
            of_type = self.type or (event_type(values, self.columns.type) if self.has_types else UNTYPED)
            attributes, records = flatten(values)
        except Malformed as problem:
            return str(problem)
        self.types[of_type] += 1
        self.values.setdefault(of_type, {}).update(dict.fromkeys(n for n, v in attributes.items() if v is not None))
        for name, found, value in typed_values(values, attributes, records, self.columns.times):
            if name != self.columns.type and found.noun != self.nouns.get(name, found.noun):
                return misfit(name, of_type, f"is a {self.nouns[name]}", value)
        return None

    def are_certain(self, count: int, is_tabular: bool) -> bool:
        """Whether the refused rows cannot change what the row reader finds about the others. Epochs with fractions
        become timestamps, and an event type of a table has the columns that any of its rows fills."""
        if self.has_fractions or _MOST * count > self.rows.num_rows:
            return False
        for of_type, refused in self.types.items():
            for name in self.values[of_type]:
                if name in self.columns.times or name == self.columns.type:
                    continue
                if (name in self.nouns or is_tabular) and self._filled(of_type, name) < _MOST * refused:
                    return False
        return True

    def _filled(self, of_type: str, name: str) -> int:
        """The number of accepted events of a type in which an attribute is not null."""
        if name not in self.nouns:
            return 0
        is_filled = self.rows.column(name).is_valid()
        if self.type is None and self.has_types:
            is_filled = pc.and_(is_filled, pc.equal(self.rows.column(self.columns.type), of_type))
        return int(pc.sum(is_filled).as_py() or 0)
