"""Checks that the input has the event types of a query, before the query runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.events import UNTYPED
from cepheid.io.rows import ROW
from cepheid.io.source import SourceDescription
from cepheid.pattern import EventClass, Query, SourceStream


def require_event_types(query: Query, source: SourceDescription, in_python: bool = True) -> None:
    """Refuses a bound query that names event types if the events have no types, or if none of its types occurs. The
    hint is for a caller in Python, or for the command line."""
    classes = [item for item in _positive_classes(query) if item.types]
    if not classes:
        return
    known, column = source.attributes, source.columns.type
    is_untyped = column not in source.schema.names if known is None else set(known) == {UNTYPED}
    if is_untyped:
        names = [name for name in source.schema.names if name != ROW]
        raise InputProblem(
            f"the events have no column `{shown(column)}`, and the query names event types",
            span=classes[0].span,
            expected=f"the type column; there are {listing(names)}",
            hint=did_you_mean(column, names) or _naming_types(column, in_python),
        )
    are_typed = all(item.types for item in _positive_classes(query))
    if known and source.count and are_typed and not any(name in known for item in classes for name in item.types):
        types = list(dict.fromkeys(name for item in classes for name in item.types))
        raise InputProblem(
            f"no event has a type of the query ({listing(types)})",
            span=classes[0].span,
            expected=f"some of {listing(known)}",
            hint=_swapped(classes, known) or did_you_mean(types[0], list(known)),
        )


def _naming_types(column: str, in_python: bool) -> str:
    if not in_python:
        return "name the type column (--type-column), or give all rows one type (--input TYPE=PATH)"
    keyword = shown(column) if column.isidentifier() else "type"
    return f'name the type column (type_column=...), or give all rows one type: df.assign({keyword}="...")'


def _swapped(classes: Iterable[EventClass], known: Collection[str]) -> str | None:
    """The hint for a type and its variable in the wrong order."""
    swapped = next((item for item in classes if item.var in known), None)
    if swapped is None:
        return None
    return f"the type comes first, then the variable: {swapped.var} {swapped.types[0]}"


def _positive_classes(query: Query) -> Iterator[EventClass]:
    """The classes of events of the input that the query and its inner queries bind."""
    derived = {item.name for item in query.inputs if not isinstance(item, SourceStream)}
    for role in query.roles.values():
        if not role.negated and not derived.intersection(role.event_class.types):
            yield role.event_class
    for item in query.inputs:
        if isinstance(item, Query):
            yield from _positive_classes(item)
