"""Values of a row by the names of columns: a field of a nested object has a dotted name, as its attribute has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def value_of(values: Mapping[str, Any], column: str, default: Any = None) -> Any:
    if column in values or "." not in column:
        return values.get(column, default)
    outer = _outer(values, column)
    return default if outer is None else value_of(values[outer], column.removeprefix(f"{outer}."), default)


def column_of(rows: Iterable[Mapping[str, Any]], column: str) -> list[Any]:
    """The value of each row in a column; null where a row has none."""
    is_plain = "." not in column
    return [row.get(column) if is_plain else value_of(row, column) for row in rows]


def with_value(values: Mapping[str, Any], column: str, value: Any) -> dict[str, Any]:
    """A copy of the row with another value in a column that it has."""
    outer = None if column in values else _outer(values, column)
    if outer is None:
        return {**values, column: value}
    return {**values, outer: with_value(values[outer], column.removeprefix(f"{outer}."), value)}


def _outer(values: Mapping[str, Any], column: str) -> str | None:
    """The nested object that holds the column."""
    return next((n for n, inner in values.items() if isinstance(inner, dict) and column.startswith(f"{n}.")), None)
