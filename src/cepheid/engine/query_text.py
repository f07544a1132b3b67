"""The text of a query, its source and its language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from cepheid.errors import CepheidError, InputProblem
from cepheid.events import Schema
from cepheid.lang import parse
from cepheid.pattern import EventClass, Query, SourceStream, queries_of, walk
from cepheid.types import Type


@dataclass(frozen=True, slots=True)
class QueryText:
    text: str
    source: str = "query"
    dialect: str = "auto"

    def parse(self) -> Query:
        return parse(self.text, self.dialect, self.source)

    @contextmanager
    def located_errors(self) -> Iterator[None]:
        """Adds the excerpt of the text to errors that have a position in it."""
        try:
            yield
        except CepheidError as error:
            error.within(self.text, self.source)
            raise


def declared_types(query: Query) -> Schema:
    """The event types that the query and its inner queries declare."""
    types: dict[str, Mapping[str, Type]] = {}
    for part in queries_of(query):
        types.update({item.name: dict(item.attributes) for item in part.inputs if isinstance(item, SourceStream)})
    return Schema(types)


def require_settled_classes(query: Query, needed: str, hint: str | None = None) -> None:
    """Refuses a query whose names may or may not be event types (ruling 8), if the types are not known."""
    for node in walk(query.pattern):
        if isinstance(node, EventClass) and node.by_name:
            raise InputProblem(
                f"`{node.var}` is an event type or a class over all events; the types of this input are not known yet",
                span=node.span,
                expected=f"`{node.var} {node.var}` for the type, or {needed}",
                hint=hint,
            )
