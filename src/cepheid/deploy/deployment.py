"""A deployment as data: the operators of many queries, each named by its content, and the output of each query.

Queries whose operators have the same content are one operator, whatever their names, variables, RETURN and LIMIT. The
operators of the queries that others use are nodes of `graph.py`, which are named by content too.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cepheid import expr as ex
from cepheid.engine.event_types import require_event_types
from cepheid.engine.layout import column_names
from cepheid.engine.prepare import Prepared, RunOptions, prepare
from cepheid.engine.query_text import require_settled_classes
from cepheid.errors import CepheidError, InputProblem, shown
from cepheid.expr import Aggregate, Attr, Expr, OccursWithin, Whole
from cepheid.io.source import SourceDescription
from cepheid.pattern import Query, map_classes

QUERY = "query"
"""The column of the output that names the query of a match."""


@dataclass(frozen=True, slots=True)
class Output:
    """The queries that show the matches of an operator in the same way."""

    prepared: Prepared
    """Its query has the variables, the RETURN and the LIMIT of these queries."""
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """A query that runs once for all its outputs. `name` is a hash of its content."""

    name: str
    prepared: Prepared
    outputs: tuple[Output, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The queries that it answers."""
        return tuple(name for output in self.outputs for name in output.names)


@dataclass(frozen=True, slots=True)
class Deployment:
    """The operators of many queries over one input."""

    operators: tuple[Operator, ...]
    refused: Mapping[str, CepheidError] = field(default_factory=dict)
    """The queries that cannot run, each with the reason."""


def deploy(
    queries: Mapping[str, Query],
    source: SourceDescription,
    options: RunOptions,
    *,
    texts: Mapping[str, str] | None = None,
    sharing: bool = True,
) -> Deployment:
    """Plans the queries, equal ones once. `texts` are their texts, for errors. Without `sharing` each query has
    operators of its own."""
    found: dict[str, list[tuple[str, Prepared]]] = {}
    refused: dict[str, CepheidError] = {}
    for name, query in queries.items():
        try:
            prepared = _prepared(name, query, source, options)
        except CepheidError as error:
            if texts is not None and name in texts:
                error.within(texts[name], name)
            refused[name] = error
            continue
        found.setdefault(content_name(prepared) if sharing else name, []).append((name, prepared))
    made = [Operator(key, _operator(of), tuple(_outputs(of))) for key, of in found.items()]
    return Deployment(tuple(made), refused)


def _prepared(name: str, query: Query, source: SourceDescription, options: RunOptions) -> Prepared:
    if source.attributes is None:
        require_settled_classes(query, "a bounded input (a table, a file)")
    prepared = prepare(query, source, options)
    require_event_types(prepared.written, source)
    require_free_column(name, prepared.written)
    return prepared


def require_free_column(name: str, query: Query) -> None:
    """Refuses a query with a column of the name that the output needs."""
    if QUERY in column_names(query):
        raise InputProblem(
            f"the query `{shown(name)}` has a column `{QUERY}`, the column that names the query of a match",
            hint="rename the column or the variable",
        )


def _outputs(queries: list[tuple[str, Prepared]]) -> list[Output]:
    """The outputs of queries over one operator. Queries that show the same columns in the same order are one."""
    groups: dict[str, list[tuple[str, Prepared]]] = {}
    for name, prepared in queries:
        groups.setdefault(repr((prepared.query.roles, prepared.query.output, prepared.query.limit)), []).append(
            (name, prepared)
        )
    return [Output(group[0][1], tuple(name for name, _ in group)) for group in groups.values()]


def _operator(queries: list[tuple[str, Prepared]]) -> Prepared:
    """The one of equal queries whose matches contain those of the others: LIMIT may stop a kernel early."""
    return max((prepared for _, prepared in queries), key=lambda prepared: _limit(prepared.query))


def _limit(query: Query) -> float:
    return math.inf if query.limit is None else query.limit


# --- content ----------------------------------------------------------------------------------------------------------


def content_name(prepared: Prepared) -> str:
    """A hash of what decides the matches of a query: neither names nor, except in a summary, its output."""
    query = prepared.written
    output = query.output if query.summarizes else None
    limit = query.limit if query.summarizes else None
    content = renamed(replace(query, output=output, limit=limit, name=None))
    return hashlib.blake2b(f"{content!r} {query.summarizes}".encode(), digest_size=8).hexdigest()


def renamed(query: Query) -> Query:
    """The query with its variables named by their order in the pattern."""
    names = {var: f"v{number}" for number, var in enumerate(query.roles)}

    def change(node: Expr) -> Expr:
        match node:
            case Attr(var=var) | Whole(var=var) | Aggregate(var=var) if var in names:
                return replace(node, var=names[var])
            case OccursWithin():
                return replace(node, first=names[node.first], second=names[node.second])
            case _:
                return node

    pattern = map_classes(query.pattern, lambda c: replace(c, var=names[c.var]))
    where = tuple(ex.transform(predicate, change) for predicate in query.where)
    output = query.output and tuple(c._replace(expr=ex.transform(c.expr, change)) for c in query.output)
    return replace(query, pattern=pattern, where=where, output=output)
