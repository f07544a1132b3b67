"""Checks that the input has the event types of a query, before the query runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.events import UNTYPED
from cepheid.io.inputs import NO_COLUMN, Columns
from cepheid.io.rows import ROW
from cepheid.io.source import SourceDescription
from cepheid.pattern import EventClass, Query, SourceStream, queries_of


def require_event_types(query: Query, source: SourceDescription, in_python: bool = True) -> None:
    """Refuses a bound query that names event types if the events have no types, or if none of its types occurs. The
    hint is for a caller in Python, or for the command line."""
    positive = _positive_classes(query)
    classes = [item for item in positive if item.types]
    if not classes:
        return
    known, column = source.attributes, source.columns.type
    is_untyped = column not in source.schema.names if known is None else set(known) == {UNTYPED}
    is_untyped = is_untyped and source.columns.event_type is None
    if is_untyped:
        names = [name for name in source.schema.names if name != ROW]
        raise InputProblem(
            f"the events have no column `{shown(column)}`, and the query names event types",
            span=classes[0].span,
            expected=f"the type column; there are {listing(names)}",
            hint=did_you_mean(column, names) or _naming_types(classes[0].types, in_python),
        )
    if (
        known
        and source.count
        and classes == positive
        and not any(name in known for item in classes for name in item.types)
    ):
        types = list(dict.fromkeys(name for item in classes for name in item.types))
        raise InputProblem(
            f"no event has a type of the query ({listing(types)})",
            span=classes[0].span,
            expected=f"some of {listing(known)}",
            hint=_swapped(classes, known) or _similar(types, known),
        )


def _naming_types(types: Sequence[str], in_python: bool) -> str:
    kind = types[0]
    if not in_python:
        return f"name the type column (--type-column), or give all rows one type (--type {shown(kind)})"
    return f'name the type column (type_column=...), or give all rows one type: type="{shown(kind)}"'


def settled(columns: Columns, queries: Iterable[Query]) -> Columns:
    """The columns of events without a type column (`type_column=None`): all have the one type that the queries name."""
    if columns.type != NO_COLUMN or columns.event_type is not None:
        return columns
    classes = [item for query in queries for item in _positive_classes(query) if item.types]
    names = list(dict.fromkeys(name for item in classes for name in item.types))
    if len(names) > 1:
        raise InputProblem(
            f"the events have no type column, and the query names the types {listing(names)}",
            span=classes[0].span,
            expected="one type, because all events have the same",
            hint="name the type column, or give each type an input of its own: {'A': table, 'B': table}",
        )
    return replace(columns, event_type=names[0]) if names else columns


def _swapped(classes: Iterable[EventClass], known: Collection[str]) -> str | None:
    """The hint for a type and its variable in the wrong order."""
    swapped = next((item for item in classes if item.var in known), None)
    if swapped is None:
        return None
    return f"the type comes first, then the variable: {swapped.var} {swapped.types[0]}"


def _similar(types: Iterable[str], known: Collection[str]) -> str | None:
    """The hint for types that are written in another way: numbers that are equal, and then similar names."""
    for kind in types:
        equal = next((name for name in known if kind.isdecimal() and name.isdecimal() and int(name) == int(kind)), None)
        if equal is not None:
            return f"did you mean `{shown(equal)}`?"
    return next((hint for kind in types if (hint := did_you_mean(kind, list(known)))), None)


def _positive_classes(query: Query) -> list[EventClass]:
    """The classes of events of the input that the query and its inner queries bind. An inner query may read a stream
    that only the query around it lists among its inputs."""
    parts = queries_of(query)
    derived = {item.name for part in parts for item in part.inputs if not isinstance(item, SourceStream)}
    positive = [role.event_class for part in parts for role in part.roles.values() if not role.negated]
    return [item for item in positive if not derived.intersection(item.types)]
