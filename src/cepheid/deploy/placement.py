"""Placement of operators on nodes (NEXT §4.4), as data.

The cost of a placement is the paper's (§4.2): messages between nodes, the CPU of operators that are new on their node,
and the CPU of the others there. Its δ is misprinted: it has to count operands on *different* nodes, as the text says.
Keyed queries are not placed: their events are spread over all nodes by key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from cepheid.deploy.operator_graph import OperatorTree, PlacedOperator
from cepheid.errors import InputProblem, did_you_mean, listing, shown

MESSAGE = 60.0
"""Nanoseconds to pass a composite event to another node: half of it where it is sent, half where it is received."""


class Placed(NamedTuple):
    """An operator on a node, for the queries that use it. `reads` are the placed operators that it reads."""

    operator: PlacedOperator
    node: int
    queries: tuple[str, ...]
    reads: tuple[int, ...]
    """Numbers of other placed operators."""


class Placement(NamedTuple):
    """Operators on nodes, each after those that it reads."""

    strategy: str
    nodes: int
    operators: tuple[Placed, ...]

    @property
    def loads(self) -> list[float]:
        """The nanoseconds of each node for an event of the input."""
        found = [0.0] * self.nodes
        for placed in self.operators:
            found[placed.node] += placed.operator.cpu
        for sender, receiver, rate in self.messages:
            found[sender] += MESSAGE / 2 * rate
            found[receiver] += MESSAGE / 2 * rate
        return found

    @property
    def messages(self) -> list[tuple[int, int, float]]:
        """From node, to node, and the composite events for each event of the input. A node receives those of an
        operator once."""
        sent: dict[tuple[int, int], float] = {}
        for placed in self.operators:
            for number in placed.reads:
                other = self.operators[number]
                if other.node != placed.node:
                    sent[number, placed.node] = other.operator.rate
        return [(self.operators[number].node, node, rate) for (number, node), rate in sent.items()]

    @property
    def capacity(self) -> float:
        """The events of the input for each second that the busiest node can process."""
        return 1e9 / max(max(self.loads, default=0.0), 1e-9)


@dataclass(slots=True)
class Placer:
    """Places the operators of one query after the other. `choose` selects the node of an operator whose operands are
    placed; with `reuses`, an operator that is placed already is used again."""

    nodes: int
    choose: Callable[[Placer, PlacedOperator, Sequence[int]], int]
    reuses: bool
    placed: list[Placed] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    """The CPU of the operators on each node and of its messages."""
    known: dict[str, int] = field(default_factory=dict)
    sent: set[tuple[int, int]] = field(default_factory=set)
    """The operators whose composite events a node receives."""

    def __post_init__(self) -> None:
        self.loads = [0.0] * self.nodes

    def add(self, tree: OperatorTree) -> None:
        """Top down, the largest operators that are placed already are found; the others are placed bottom up."""
        needed = self._needed(tree)
        numbers: dict[str, int] = {name: self.known[name] for name in needed if self.reuses and name in self.known}
        for operator in tree.operators:
            if operator.name in numbers or operator.name not in needed:
                continue
            reads = tuple(numbers[name] for name in operator.uses)
            node = self.choose(self, operator, reads)
            numbers[operator.name] = self.known[operator.name] = len(self.placed)
            self.placed.append(Placed(operator, node, (), reads))
            self.loads[node] += operator.cpu
            self._send(reads, node)
        for name, number in numbers.items():
            if name in needed:
                one = self.placed[number]
                self.placed[number] = one._replace(queries=(*one.queries, tree.query))

    def _send(self, reads: Sequence[int], node: int) -> None:
        for number in reads:
            other = self.placed[number]
            if other.node != node and (number, node) not in self.sent:
                self.sent.add((number, node))
                for end in (other.node, node):
                    self.loads[end] += MESSAGE / 2 * other.operator.rate

    def _needed(self, tree: OperatorTree) -> set[str]:
        """The operators that are not below one that is placed already."""
        by_name = {operator.name: operator for operator in tree.operators}
        waiting, found = [tree.operators[-1].name], set[str]()
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                if not (self.reuses and name in self.known):
                    waiting += by_name[name].uses
        return found


def cheapest_node(placer: Placer, operator: PlacedOperator, reads: Sequence[int]) -> int:
    """The node of least deployment cost (§4.2), in O(nodes)."""
    senders = [placer.placed[number] for number in reads]

    def cost(node: int) -> float:
        messages = sum(MESSAGE * one.operator.rate for one in senders if one.node != node)  # δ
        return messages + operator.cpu + placer.loads[node]

    return min(range(placer.nodes), key=cost)


def next_node(placer: Placer, operator: PlacedOperator, reads: Sequence[int]) -> int:
    return len(placer.placed) % placer.nodes


def greedy(trees: Sequence[OperatorTree], nodes: int) -> Placement:
    """Greedy, and an operator that runs already is used again."""
    return _placed("greedy", trees, Placer(nodes, cheapest_node, reuses=True))


def greedy_without_reuse(trees: Sequence[OperatorTree], nodes: int) -> Placement:
    return _placed("greedy-without-reuse", trees, Placer(nodes, cheapest_node, reuses=False))


def round_robin(trees: Sequence[OperatorTree], nodes: int) -> Placement:
    return _placed("round-robin", trees, Placer(nodes, next_node, reuses=False))


def annealing(trees: Sequence[OperatorTree], nodes: int, steps: int = 20_000, seed: int = 1) -> Placement:
    """Greedy, then improved by moves to other nodes (the paper's future work). The busiest node counts, and the others
    by their squares, so that moves away from busy nodes are improvements too."""
    start = greedy(trees, nodes)
    found, chance = list(start.operators), Random(seed)
    current = best = _energy(start)
    kept = list(found)
    steps = min(steps, 200 * len(found)) if nodes > 1 else 0
    for step in range(min(steps, 40_000_000 // max(len(found), 1) ** 2 + 200)):
        number, node = chance.randrange(len(found)), chance.randrange(nodes)
        one = found[number]
        found[number] = Placed(one.operator, node, one.queries, one.reads)
        energy = _energy(Placement("annealing", nodes, tuple(found)))
        heat = 0.1 * best * (1 - step / steps)
        if energy <= current or chance.random() < math.exp((current - energy) / max(heat, 1e-12)):
            current = energy
            if energy < best:
                best, kept = energy, list(found)
        else:
            found[number] = one
    return Placement("annealing", nodes, tuple(kept))


def _energy(placement: Placement) -> float:
    loads = placement.loads
    return max(loads) + math.sqrt(sum(load * load for load in loads) / len(loads))


def _placed(name: str, trees: Sequence[OperatorTree], placer: Placer) -> Placement:
    for tree in trees:
        placer.add(tree)
    return Placement(name, placer.nodes, tuple(placer.placed))


STRATEGIES: Mapping[str, Callable[[Sequence[OperatorTree], int], Placement]] = {
    "greedy": greedy,
    "greedy-without-reuse": greedy_without_reuse,
    "round-robin": round_robin,
    "annealing": annealing,
}


def placement(trees: Sequence[OperatorTree], nodes: int, strategy: str = "greedy") -> Placement:
    """The operators of queries on nodes, by a strategy."""
    if nodes < 1:
        raise InputProblem(f"no placement on {nodes} nodes", expected="at least one node")
    require_strategy(strategy)
    return STRATEGIES[strategy](trees, nodes)


def require_strategy(strategy: str) -> None:
    if strategy not in STRATEGIES:
        raise InputProblem(
            f"no placement `{shown(strategy)}`",
            expected=f"one of {listing(STRATEGIES)}",
            hint=did_you_mean(strategy, STRATEGIES),
        )


# --- the simulator ----------------------------------------------------------------------------------------------------


def supported(trees: Sequence[OperatorTree], rate: float, placer: Placer) -> int:
    """The number of queries, in their order, that run on the nodes without overload, at a rate of events for each
    second. A node is overloaded when its operators and messages take longer than the time that passes."""
    limit = 1e9 / rate
    for count, tree in enumerate(trees):
        placer.add(tree)
        if max(placer.loads) > limit:
            return count
    return len(trees)
