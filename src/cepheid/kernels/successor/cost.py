"""The cost of the core operators, in nanoseconds for each event of the input as for the other evaluators (`optimize`).

Each composite event that an operator puts out has a rate, in events of the input. An instance is inserted once; where
keys decide, it is visited once, and otherwise until φ holds. `bench eql` measures the operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from cepheid.expr import Aggregate, Attr, Compare, Expr, OccursWithin, walk
from cepheid.kernels.successor.operators import Exception_, Iteration, Leaf, Next, Operator, Selection, Timer, Union
from cepheid.optimize.cost import EVENT
from cepheid.optimize.stats import Stats

LOOK_UP = 18.0
"""Nanoseconds to find the list of a key, among tens of thousands of keys."""
INSERT = 4.0
"""Nanoseconds to let a composite event wait."""
VISIT = 3.0
"""Nanoseconds to test an instance that an event may succeed."""
CHAIN = 150.0
"""Nanoseconds to add an item to a chain or a group."""
FIRE = 36.0
"""Nanoseconds to start a timer and let it fire."""
WRITE = 3.0
"""Nanoseconds for each event of a match."""
_LONGEST = 0.9
"""The largest share of chains that are expected to go on."""


def successor_cost(root: Operator, stats: Stats) -> float:
    """Nanoseconds for each event."""
    rate, cost = _Rates(stats).of(root)
    return EVENT + cost + WRITE * rate * len(root.variables)


class _Rates:
    def __init__(self, stats: Stats) -> None:
        self.stats = stats

    def of(self, op: Operator) -> tuple[float, float]:
        """The composite events of an operator for each event of the input, and the nanoseconds that they cost."""
        match op:
            case Leaf():
                return self._share(op), 0.0
            case Union():
                parts = [self.of(item) for item in op.items]
                return sum(rate for rate, _ in parts), sum(cost for _, cost in parts)
            case Selection():
                rate, cost = self.of(op.item)
                return rate * self._passing(op.keep), cost + VISIT * rate * len(op.keep)
            case Timer():
                rate, cost = self.of(op.item)
                return rate, cost + FIRE * rate
            case Exception_():
                rate, cost = self.of(op.item)
                cancelling, more = self.of(op.cancel)
                return rate / 2, cost + more + LOOK_UP * (rate + cancelling)
            case Next():
                return self._next(op)
            case Iteration():
                return self._iteration(op)
            case _:
                raise AssertionError(f"no core operator: {op.text}")

    def _share(self, leaf: Leaf) -> float:
        """The share of events that a leaf accepts."""
        total = self.stats.total_rate or sum(self.stats.rates.values()) or 1.0
        rate = min(self.stats.rates.get(leaf.var, total) / total, 1.0)
        known = self.stats.passing.get(leaf.var)
        return rate * (self._passing(leaf.tests) if known is None else known)

    def _passing(self, predicates: Sequence[Expr]) -> float:
        windows = [p for p in predicates if isinstance(p, OccursWithin)]
        return prod(self.stats.selectivity(p) for p in predicates if p not in windows) * 0.5 ** len(windows)

    def _next(self, op: Next) -> tuple[float, float]:
        (left, left_cost), (right, right_cost) = self.of(op.left), self.of(op.right)
        visits = left / self._passing([p for p in op.skip if not _is_key(p)])
        kept = left * self._passing((*op.keep, *getattr(op.right, "keeps", ())))
        cost = left_cost + right_cost + INSERT * left + VISIT * visits
        cost += LOOK_UP * (left + right) if any(map(_is_key, op.skip)) else 0.0
        if op.cancel is not None:
            cancelling, more = self.of(op.cancel)
            cost += more + LOOK_UP * (kept + cancelling)
            kept /= 2
        return kept, cost

    def _iteration(self, op: Iteration) -> tuple[float, float]:
        item, cost = self.of(op.item)
        going_on = min(self._passing(op.keep), _LONGEST)
        chains = item / (1 - going_on)
        waiting = chains if _tells_chains_apart(op) else item
        cost += (CHAIN + INSERT) * waiting + VISIT * waiting / self._passing([p for p in op.skip if not _is_key(p)])
        return chains, cost + (2 * LOOK_UP * item if any(map(_is_key, op.skip)) else 0.0)


def _is_key(predicate: Expr) -> bool:
    return (
        isinstance(predicate, Compare)
        and predicate.op == "="
        and all(any(isinstance(node, Attr) for node in walk(side)) for side in (predicate.left, predicate.right))
    )


def _tells_chains_apart(op: Iteration) -> bool:
    """Whether an aggregate is read of each chain, so that chains do not wait in groups."""
    above = op.parent.keep if isinstance(op.parent, Selection) else ()
    return any(isinstance(node, Aggregate) for p in (*op.skip, *op.keep, *above) for node in walk(p))
