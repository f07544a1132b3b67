"""Conditions that a source applies itself. The base writes them; the source reads them as hostile text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from cepheid.acquire.requests import Request
from cepheid.acquire.tree import EventTree
from cepheid.detection.partials import Asked
from cepheid.engine.prepare import Prepared, prepare
from cepheid.engine.run import run_matches
from cepheid.errors import CepheidError, InputProblem, shown
from cepheid.expr import Aggregate, Attr, Expr, Whole, replaced, to_text, type_name_text, variables, walk
from cepheid.io.asked_source import Kept
from cepheid.io.event_log import Keep
from cepheid.io.inputs import Columns
from cepheid.lang import ced
from cepheid.pattern import EventClass, Neg, Query, SourceStream

EVENT = "e"
"""The name of the event in a condition."""
MAX_LENGTH = 20_000
"""The characters of a condition."""


# --- at the base ------------------------------------------------------------------------------------------------------


def filters_of(tree: EventTree, asked: Asked, source: str) -> dict[str, str]:
    """The condition of each type at a source: that of any of its subevents. A type without one is sent as a whole.
    Left to the base are conditions on columns that it adds, on attributes that a type lacks (they do not apply, ruling
    4), and on those that this source does not have."""
    held = asked.held.get(source, frozenset(asked.schema.names)) - asked.added

    def applies(stream: str, read: frozenset[str]) -> bool:
        return {name.split(".")[0] for name in read} <= held & (asked.attributes or {}).get(stream, {}).keys()

    return _filters(tree, applies)


def regional_filters(tree: EventTree, region: str) -> dict[str, str]:
    """The condition on the region of each event type."""
    return _filters(tree, lambda _, read: read == {region})


OfInterest = Callable[[str, frozenset[str]], bool]
"""Whether the conditions on some attributes of a type are."""


def _filters(tree: EventTree, is_of_interest: OfInterest) -> dict[str, str]:
    found: dict[str, list[str] | None] = {}
    for part in tree.parts.values():
        derived = {stream.name for stream in part.query.inputs if not isinstance(stream, SourceStream)}
        for item in getattr(part.pattern, "items", (part.pattern,)):
            leaf = item.item if isinstance(item, Neg) else item
            if isinstance(leaf, EventClass) and leaf.types[0] not in derived:
                stream = leaf.types[0]
                _add(found, stream, _condition(leaf.var, part.query, partial(is_of_interest, stream)))
    _without_projected(tree, found)
    return {
        stream: " or ".join(f"({text})" for text in dict.fromkeys(texts)) for stream, texts in found.items() if texts
    }


def any_of(conditions: Sequence[str | None]) -> str | None:
    """The condition of events that several queries read; None: some query reads all of them, or it is too long."""
    if None in conditions:
        return None
    texts = list(dict.fromkeys(text for text in conditions if text is not None))
    whole = texts[0] if len(texts) == 1 else " or ".join(f"({text})" for text in texts)
    return whole if len(whole) <= MAX_LENGTH else None


def _add(found: dict[str, list[str] | None], stream: str, text: str | None) -> None:
    known = found.get(stream, [])
    found[stream] = None if text is None or known is None else [*known, text]


def _without_projected(tree: EventTree, found: dict[str, list[str] | None]) -> None:
    """The events of a `primitive` have other attributes than those of its source."""
    for part in tree.parts.values():
        for stream in part.query.inputs:
            source = getattr(stream, "source", None)
            if source is not None:
                found[source] = None


def _condition(var: str, query: Query, is_of_interest: Callable[[frozenset[str]], bool]) -> str | None:
    """The conjuncts about one event only, as text that reads back as the same. Those that read other attributes than
    those of interest are left out."""
    own = [p for p in query.where if variables(p) == {var} and not _is_special(p) and is_of_interest(_attributes(p))]
    named = [_renamed(predicate, var) for predicate in own]
    texts = [to_text(predicate) for predicate in named]
    kept = [text for text in texts if _reads_back(text)]
    return " and ".join(f"({text})" for text in kept) or None


def _attributes(predicate: Expr) -> frozenset[str]:
    return frozenset(node.name for node in walk(predicate) if isinstance(node, Attr))


def _is_special(predicate: Expr) -> bool:
    return any(isinstance(node, Aggregate | Whole) for node in walk(predicate))


def _renamed(predicate: Expr, var: str) -> Expr:
    return replaced(predicate, Attr, lambda node: replace(node, var=EVENT) if node.var == var else node)


def _reads_back(text: str) -> bool:
    try:
        return [to_text(p) for p in parsed("T", text).where] == [to_text(p) for p in parsed("T", f"({text})").where]
    except CepheidError:
        return False


def columns_of(query: Query, columns: Columns, added: frozenset[str] = frozenset()) -> tuple[str, ...] | None:
    """The columns that a query reads and returns, without those that the base adds; None: all. Events that are shown as
    a whole need all of them."""
    if query.output is None or any(not isinstance(stream, SourceStream) for stream in query.inputs):
        return None
    exprs: Sequence[Expr] = (*query.where, *(column.expr for column in query.output))
    attributes: list[str] = []
    for expr in exprs:
        for node in walk(expr):
            if isinstance(node, Attr) and node.var in query.roles:
                attributes.append(node.name.split(".")[0])
            elif not isinstance(node, Attr) and hasattr(node, "name") and getattr(node, "var", None) is None:
                attributes.append(str(node.name))
            elif isinstance(node, Whole) or (isinstance(node, Attr) and node.var not in query.roles):
                return None
    return tuple(dict.fromkeys(n for n in (columns.type, *columns.times, *attributes) if n not in added))


# --- at the source ----------------------------------------------------------------------------------------------------


def parsed(stream: str, text: str) -> Query:
    """The query of a condition. Raises CepheidError if the text is anything but a condition on one event."""
    if len(text) > MAX_LENGTH:
        raise InputProblem(f"a condition of {len(text):,} characters", expected=f"at most {MAX_LENGTH:,}")
    query = ced.parse(f"complex F on {type_name_text(stream)} as {EVENT} event {EVENT} where {text}")
    is_alone = isinstance(query.pattern, EventClass) and query.pattern.var == EVENT
    is_alone &= all(variables(predicate) <= {EVENT} for predicate in query.where)
    if not is_alone or query.inputs or query.name != "F" or query.output is not None or not query.where:
        raise InputProblem(f"`{shown(text)}` is not a condition on the attributes of one event")
    return query


@dataclass(frozen=True, slots=True)
class SourceFilter:
    """A condition, prepared for the events of a source."""

    prepared: Prepared
    asked: Asked

    @classmethod
    def of(cls, stream: str, text: str, asked: Asked) -> SourceFilter:
        """Raises CepheidError if the condition does not fit the events."""
        return cls(prepare(parsed(stream, text), asked), asked)

    def keep(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """The events that satisfy the condition, in order."""
        if not events.num_rows:
            return events
        positions = [
            np.asarray(matches.variables[EVENT], np.int64)
            for matches, _ in run_matches(self.prepared, self.asked.table(pa.Table.from_batches([events])))
        ]
        rows = np.sort(np.concatenate([np.empty(0, np.int64), *positions]))
        return events.take(pa.array(rows))


MAX_FILTERS = 100


@dataclass(slots=True)
class Filters:
    """The conditions that a source was asked to apply, prepared once."""

    schema: pa.Schema
    columns: Columns
    _known: dict[tuple[str, str], SourceFilter] = field(default_factory=dict, repr=False)

    def keep(self, request: Request) -> Keep | None:
        """Applies the condition of a request."""
        return None if request.filter is None else self._filter(request.stream, request.filter).keep

    def kept_of(self, request: Request, events: pa.RecordBatch) -> pa.RecordBatch:
        """The events that satisfy the condition of a request."""
        keep = self.keep(request)
        return events if keep is None else keep(events)

    def kept(self, filters: Mapping[str, str]) -> Kept | None:
        """Applies the conditions of some types."""
        if not filters:
            return None
        return lambda kind, events: self._filter(kind, filters[kind]).keep(events) if kind in filters else events

    def _filter(self, stream: str, text: str) -> SourceFilter:
        key = (stream, text)
        if key not in self._known:
            if len(self._known) >= MAX_FILTERS:
                self._known.clear()
            attributes = {column.name: column.type for column in self.schema}
            self._known[key] = SourceFilter.of(stream, text, Asked(self.schema, self.columns, {stream: attributes}))
        return self._known[key]
