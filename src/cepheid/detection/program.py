"""A plan for one query with the kernels that it needs: what an acquisition executes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cepheid.acquire.plans import Plan
from cepheid.acquire.tree import EventTree, Kind, Node, Operator, Primitive, nodes, span, streams, tree_of
from cepheid.detection.partials import Asked, Stage, require_acquirable, stages_of
from cepheid.detection.source_filter import columns_of, filters_of
from cepheid.engine.prepare import Prepared, RunOptions, prepare
from cepheid.pattern import Query


class Program(NamedTuple):
    """A plan with the kernels that it needs."""

    tree: EventTree
    plan: Plan
    prepared: Prepared
    stages: tuple[Stage, ...]
    asked: Asked
    sources: Mapping[str, tuple[str, ...]]
    """The sources of each stream. One without a source has no events."""
    reach: int | None
    """How long an event can matter, before and after its time. None: without limit."""
    filters: Mapping[tuple[str, str], str]
    """The conditions that each source applies itself to a stream."""
    columns: tuple[str, ...] | None
    """The columns that sources send; None: all."""
    keys: Mapping[str, str]
    """The streams that are asked for by the values of an attribute, and the attribute."""
    trail: int
    """How long after the end of a match an event may come that spoils it."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The event types that the query reads."""
        return streams(self.tree.root)

    @classmethod
    def of(
        cls,
        prepared: Prepared,
        tree: EventTree,
        plan: Plan,
        asked: Asked,
        sources: Mapping[str, tuple[str, ...]],
        options: RunOptions,
    ) -> Program:
        root = tree.root
        length = span(root)
        stages = tuple(stages_of(root, plan, tree, asked, options))
        trail = _trail(root)
        reach = None if length is None else length + trail + max(_windows(root), default=0) + 1
        columns = columns_of(prepared.written, asked.columns, asked.added)
        names = {source for of in sources.values() for source in of}
        filters = {(name, kind): text for name in names for kind, text in filters_of(tree, asked, name).items()}
        return cls(tree, plan, prepared, stages, asked, sources, reach, filters, columns, _keys(stages), trail)


def bound_tree(query: Query, asked: Asked, options: RunOptions) -> tuple[Prepared, EventTree]:
    """The query prepared for its sources, and its tree."""
    prepared = prepare(query, asked, options)
    require_acquirable(prepared.written)
    return prepared, tree_of(prepared.written, prepared.clock)


def _keys(stages: Sequence[Stage]) -> dict[str, str]:
    """The attribute by which each stream is asked for."""
    found: dict[str, str] = {}
    for stage in stages:
        for index, test in stage.keys.items():
            item = stage.operator.items[index]
            assert isinstance(item, Primitive)
            found[item.stream] = test.attribute
    return found


def _windows(root: Node) -> list[int]:
    return [node.window or 0 for node in nodes(root) if isinstance(node, Operator)]


def _trail(root: Node) -> int:
    """The longest window at whose end an event must not occur."""
    found = [0]
    for node in nodes(root):
        if isinstance(node, Operator) and (node.negated[-1] or (node.kind is Kind.AND and any(node.negated))):
            found.append(node.window or 0)
    return sum(found)
