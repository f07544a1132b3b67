"""Events and sources for tests of plans."""

from __future__ import annotations

import random

from cepheid.acquire.cost import MODELS, CostModel, StreamModel
from cepheid.acquire.models import Poisson
from cepheid.acquire.tree import Kind, Node, Operator, Primitive


def flat(count: int, kind: Kind, negated: int = 0, window: int = 100) -> Operator:
    """An operator over primitive events, the last of which are negated."""
    items = tuple(Primitive(f"r.e{i}", f"E{i}") for i in range(count))
    return Operator("r", kind, items, window, tuple(i >= count - negated for i in range(count)))


def nested(rng: random.Random, operators: int) -> Operator:
    """A random event with this many operators."""
    leaves = 0

    def leaf() -> Primitive:
        nonlocal leaves
        leaves += 1
        return Primitive(f"r.e{leaves - 1}", f"E{leaves - 1}")

    def build(left: int, name: str) -> Operator:
        count = rng.choice((2, 3))
        shares = [0] * count
        for _ in range(left - 1):
            shares[rng.randrange(count)] += 1
        items: list[Node] = [build(share, f"{name}.{i}") if share else leaf() for i, share in enumerate(shares)]
        kind = rng.choice((Kind.AND, Kind.SEQ, Kind.OR))
        return Operator(name, kind, tuple(items), None if kind is Kind.OR else rng.choice((10, 100, 1000)))

    return build(operators, "r")


def drawn_model(rng: random.Random, count: int, name: str = "coverage") -> CostModel:
    streams = {
        f"E{i}": StreamModel(Poisson(10 ** rng.uniform(-4, -1)), latency=rng.choice((1, 1, 2, 5))) for i in range(count)
    }
    return MODELS[name](streams)
