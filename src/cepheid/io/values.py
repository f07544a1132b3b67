"""Values of a row: the event type, the attributes (nested objects by dotted names), and their types."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from types import NoneType
from typing import Any

from cepheid.errors import shown
from cepheid.io.inputs import Columns
from cepheid.io.rejects import Malformed, no_type, shown_value
from cepheid.types import LONG_DIGITS, RECORD, Type, type_of

DEEPEST = 32
"""The nesting depth of a value: more than real data has, and well within Python's recursion limit."""
_LONGEST = 10**LONG_DIGITS


def flatten(values: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The attributes (those of nested objects by dotted names), and the names of the nested objects."""
    flat: dict[str, Any] = {}
    records: list[str] = []
    waiting: list[tuple[str, Any, int]] = list(zip(values.keys(), values.values(), repeat(0)))[::-1]
    while waiting:
        name, value, depth = waiting.pop()
        if depth > DEEPEST:
            raise Malformed(f"the attribute `{shown(name)}` is nested more than {DEEPEST} deep")
        if isinstance(value, dict):
            records.append(name)
            waiting.extend((f"{name}.{key}", inner, depth + 1) for key, inner in reversed(value.items()))
            continue
        kind = type(value)
        is_plain = (
            kind in (bool, NoneType)
            or (kind is int and -_LONGEST < value < _LONGEST)
            or (kind is str and value.isascii())
        )
        if not (is_plain and name.isascii()):
            _require_plain(name, name, depth)
            _require_plain(name, value, depth)
        if name in flat:
            raise Malformed(f"the attribute `{shown(name)}` appears twice")
        flat[name] = value
    return flat, tuple(records)


def flatten_read(values: dict[str, Any], columns: Columns) -> tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]:
    """The values, attributes and nested objects of a row. A malformed row has those alone that the queries read."""
    try:
        return values, *flatten(values)
    except Malformed:
        read = {name: value for name, value in values.items() if columns.reads(name)}
        if len(read) == len(values):
            raise
        return read, *flatten(read)


def _require_plain(name: str, value: Any, depth: int) -> None:
    """Numbers must be finite, integers have at most 38 digits and strings be valid Unicode. Sinks could not write other
    values."""
    if isinstance(value, int) and not -_LONGEST < value < _LONGEST:
        raise Malformed(f"the attribute `{shown(name)}` is an integer of more than {LONG_DIGITS} digits")
    if isinstance(value, float) and not math.isfinite(value):
        raise Malformed(f"the attribute `{shown(name)}` is not a finite number")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as problem:
            raise Malformed(f"the attribute `{shown(name)}` holds half a character") from problem
    if isinstance(value, list | dict):
        if depth > DEEPEST:
            raise Malformed(f"the attribute `{shown(name)}` is nested more than {DEEPEST} deep")
        for item in value.values() if isinstance(value, dict) else value:
            _require_plain(name, item, depth + 1)


def event_type(kind: Any, column: str) -> str:
    """The event type by its value in the column of types."""
    if isinstance(kind, str) and kind:
        return kind
    if kind is None or kind == "":
        raise Malformed(no_type(column))
    if isinstance(kind, int | float) and not isinstance(kind, bool) and kind == kind // 1:
        return str(int(kind))
    raise Malformed(f"the event type {shown_value(kind)} is neither a string nor an integer")


def typed_values(
    values: Mapping[str, Any], attributes: Mapping[str, Any], records: Sequence[str], times: Sequence[str]
) -> Iterator[tuple[str, Type, Any]]:
    """The attributes that are not null, and the nested objects, each with its type. The times are left out."""
    for name, value in attributes.items():
        if value is not None and name not in times:
            yield name, type_of(value), value
    for name in records:
        yield name, RECORD, values.get(name)


def misfit(name: str, event_type: str, expected: str, value: Any) -> str:
    """The reason to reject a row because of the type of an attribute."""
    of = f" of `{shown(event_type)}`" if event_type else ""
    return f"the attribute `{shown(name)}`{of} {expected}, not {shown_value(value)}"
