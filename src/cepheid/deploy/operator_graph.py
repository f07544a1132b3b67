r"""The core operators of many queries as a graph, for their placement (NEXT §4.4).

An operator is named by its content: its kind, its predicates and what it reads, without the names of variables. So
equal operators of several queries have one name, and queries that are rewritten first have more operators in common.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cepheid import expr as ex
from cepheid import pattern as pt
from cepheid.optimize.core_cost import LEAF, TOUCH, WRITE, Estimate, Model
from cepheid.pattern import Pattern, positives


class PlacedOperator(NamedTuple):
    """An operator that can run on a node of its own. `uses` are the names of the operators that it reads; sources are
    read everywhere. `cpu` is its own cost, and `rate` that of its composite events, for each event of the input."""

    name: str
    uses: tuple[str, ...]
    cpu: float
    rate: float


class OperatorTree(NamedTuple):
    """The operators of one query, each after those that it uses; the last one puts out the matches."""

    query: str
    operators: tuple[PlacedOperator, ...]

    @property
    def cpu(self) -> float:
        return sum(operator.cpu for operator in self.operators)


class Calibration(NamedTuple):
    """What the operators cost on a machine: the nanoseconds to read an event of a source, to write one of a match, and
    to pass one through a union, and the rest as a multiple of the model's. `bench next-11` measures them."""

    leaf: float = LEAF
    write: float = WRITE
    union: float = TOUCH
    work: float = 1.0


USUAL = Calibration()


def operator_tree(
    query: str, core: Pattern, model: Model, *, is_rewritten: bool, costs: Calibration = USUAL
) -> OperatorTree:
    """The operators of a query's core form. A union of a rewritten query is a binary tree by figure 3, since its nodes
    may be shared and placed apart."""
    builder = _Builder(model, is_rewritten, costs)
    root = builder.add(core)
    if not builder.operators:  # a single source
        builder.put(root.name, (), costs.leaf * root.estimate.rate, root.estimate.rate)
    last = builder.operators[root.name]
    builder.operators[root.name] = last._replace(cpu=last.cpu + costs.write * last.rate * len(root.variables))
    return OperatorTree(query, tuple(builder.operators.values()))


@dataclass(frozen=True, slots=True)
class _Part:
    """A source or an operator: its name, its variables in the order of its leaves, and its estimate."""

    name: str
    variables: tuple[str, ...]
    estimate: Estimate
    is_source: bool = False


class _Builder:
    def __init__(self, model: Model, is_rewritten: bool, costs: Calibration) -> None:
        self.model = model
        self.costs = costs
        self.is_rewritten = is_rewritten
        self.operators: dict[str, PlacedOperator] = {}

    def put(self, name: str, uses: Sequence[str], cpu: float, rate: float) -> None:
        self.operators[name] = PlacedOperator(name, tuple(uses), cpu, rate)

    def add(self, pattern: Pattern) -> _Part:
        estimate = self.model.of(pattern)
        match pattern:
            case pt.EventClass():
                return _Part(" or ".join(pattern.types) or "any", (pattern.var,), estimate, is_source=True)
            case pt.Filtered(item=pt.EventClass() as item):
                # A test on one event is a bit of its mask, which every node computes.
                part = self.add(item)
                return replace(part, name=f"{part.name}[{_shown(pattern.keep, part.variables)}]", estimate=estimate)
            case pt.Disj() if self.is_rewritten:
                return self._huffman([self.add(item) for item in _alternatives(pattern)])
            case pt.Disj():
                return self._union([self.add(item) for item in pattern.items])
            case pt.Next(right=pt.Unless()):
                return self._awaited(pattern, self.add(pattern.left), estimate)
            case _:
                parts = [self.add(part) for part in pt.subpatterns(pattern)]
                names = tuple(var for part in parts for var in part.variables)
                name = f"{_KINDS[type(pattern)].format(*(part.name for part in parts))}{_tests(pattern, names)}"
                self._put(name, parts, estimate)
                return _Part(name, names, estimate)

    def _awaited(self, pattern: pt.Next, left: _Part, estimate: Estimate) -> _Part:
        r"""`E1; (E2 \ E3)` is one operator with three operands."""
        assert isinstance(pattern.right, pt.Unless)
        parts = [left, self.add(pattern.right.item), self.add(pattern.right.cancel)]
        names = tuple(var for part in parts for var in part.variables)
        tests = _tests(pattern, names) + _tests(pattern.right, names)
        name = "({}; ({} \\ {}))".format(*(part.name for part in parts)) + tests
        self._put(name, parts, estimate)
        return _Part(name, names, estimate)

    def _put(self, name: str, parts: Sequence[_Part], estimate: Estimate, work: float | None = None) -> None:
        uses = [part.name for part in parts if not part.is_source]
        own = max(estimate.cost - sum(part.estimate.cost for part in parts), 0.0)
        read = sum(self.costs.leaf * part.estimate.rate for part in parts if part.is_source)
        self.put(name, uses, (self.costs.work if work is None else work) * own + read, estimate.rate)

    def _union(self, parts: Sequence[_Part]) -> _Part:
        rate, cost = sum(part.estimate.rate for part in parts), sum(part.estimate.cost for part in parts)
        bursts = sum(part.estimate.burst_rate for part in parts)
        estimate = replace(parts[0].estimate, rate=rate, burst_rate=bursts, cost=cost + self.costs.union * rate)
        name = f"({' | '.join(sorted(part.name for part in parts))})"
        self._put(name, parts, estimate, work=1.0)
        return _Part(name, tuple(var for part in parts for var in part.variables), estimate)

    def _huffman(self, parts: Sequence[_Part]) -> _Part:
        """Figure 3: the two rarest operands are joined first, so that frequent events pass through few unions."""
        heap = [(part.estimate.rate, part.name, number, part) for number, part in enumerate(parts)]
        heapq.heapify(heap)
        for number in range(len(parts), 2 * len(parts) - 1):
            one, other = heapq.heappop(heap)[-1], heapq.heappop(heap)[-1]
            joined = self._union([one, other])
            heapq.heappush(heap, (joined.estimate.rate, joined.name, number, joined))
        return heap[0][-1]


_KINDS: Mapping[type[Pattern], str] = {
    pt.Next: "({}; {})",
    pt.Unless: "({} \\ {})",
    pt.Iteration: "{}+",
    pt.Timer: "({} @)",
    pt.Filtered: "{}",
}


def _alternatives(pattern: pt.Disj) -> Iterator[Pattern]:
    for item in pattern.items:
        if isinstance(item, pt.Disj):
            yield from _alternatives(item)
        else:
            yield item


def _tests(pattern: Pattern, names: Sequence[str]) -> str:
    match pattern:
        case pt.Next() | pt.Iteration():
            tests = f"{_shown(pattern.skip, names)}/{_shown(pattern.keep, names)}"
        case pt.Unless():
            tests = _shown(pattern.when, [*names, *positives(pattern.cancel)])
        case pt.Filtered():
            tests = _shown(pattern.keep, names)
        case pt.Timer():
            tests = str(pattern.delay.amount)
        case _:
            tests = ""
    return "" if tests in ("", "/") else f"[{tests}]"


def _shown(predicates: Sequence[ex.Expr], names: Sequence[str]) -> str:
    """Predicates with the numbers of variables in place of their names."""
    numbers = {name: f"${number}" for number, name in enumerate(names)}

    def change(node: ex.Expr) -> ex.Expr:
        match node:
            case ex.Attr() | ex.Aggregate():
                return replace(node, var=numbers.get(node.var, node.var))
            case ex.OccursWithin():
                return replace(
                    node, first=numbers.get(node.first, node.first), second=numbers.get(node.second, node.second)
                )
            case _:
                return node

    return ", ".join(sorted(ex.to_text(ex.transform(predicate, change)) for predicate in predicates))
