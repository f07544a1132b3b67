"""The workloads of NEXT's evaluation (§6): eight sources, and random queries of the kinds next, union and mix."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import comb
from random import Random

import numpy as np
import pyarrow as pa

from cepheid.binding import bind
from cepheid.codegen.columns import schema_types
from cepheid.codegen.encoder import Encoder
from cepheid.events import Clock, Schema
from cepheid.kernels.registry import EVALUATORS, kernel_for
from cepheid.lang import parse
from cepheid.optimize.core_cost import Model
from cepheid.optimize.core_rules import CoreInput, rewritten_core
from cepheid.optimize.lower import lower
from cepheid.optimize.stats import Stats
from cepheid.pattern import Disj, EventClass, Next, Pattern
from cepheid.physical import Plan
from cepheid.runtime.kernel import END_OF_TIME, Batch, Kernel, operator_counts

RATES = {f"S{k}": float(2**k) for k in range(8)}
"""Events for each second of each source: 1 to 128."""
TOTAL = sum(RATES.values())
SECOND = 1_000_000
KINDS = ("next", "union", "mix")
_PIECE = 1 << 16


def events(n: int, seed: int = 1) -> pa.Table:
    """Poisson-distributed events of all sources; times in microseconds."""
    chance = np.random.default_rng(seed)
    names = np.array(list(RATES))
    kinds = chance.choice(len(names), n, p=np.array(list(RATES.values())) / TOTAL)
    times = np.cumsum(np.maximum(chance.exponential(SECOND / TOTAL, n), 1.0)).astype(np.int64)
    types = pa.DictionaryArray.from_arrays(pa.array(kinds.astype(np.int32)), pa.array(names))
    return pa.table({"type": types.cast(pa.string()), "ts": times})


# --- queries ----------------------------------------------------------------------------------------------------------

Tree = str | tuple[str, "Tree", "Tree"]
"""A source, or an operator (`;` or `|`) with two operands."""


def queries(kind: str, size: int, count: int, seed: int = 1) -> list[Tree]:
    """Random queries of so many operators: trees of `;` or of `|`, all equally likely, with random sources; of the kind
    mix, trees of two operators nested in one another, each of `;` or of `|`."""
    rng = Random(f"{kind} {size} {seed}")
    return [_drawn(kind, size, rng) for _ in range(count)]


def _drawn(kind: str, size: int, rng: Random) -> Tree:
    if kind == "mix":
        if size <= 2:
            return _tree(rng.choice(";|"), size, rng)
        operator, rest = rng.choice(";|"), size - 2
        parts = [0, 0, 0]
        parts[rng.randrange(3)] = rest
        one, two, three = (_drawn("mix", part, rng) for part in parts)
        return (operator, (operator, one, two), three) if rng.randrange(2) else (operator, one, (operator, two, three))
    return _tree({"next": ";", "union": "|"}[kind], size, rng)


@cache
def _trees(size: int) -> int:
    """The number of binary trees with so many operators (Catalan)."""
    return comb(2 * size, size) // (size + 1)


def _tree(operator: str, size: int, rng: Random) -> Tree:
    if size == 0:
        return rng.choice(list(RATES))
    weights = [_trees(left) * _trees(size - 1 - left) for left in range(size)]
    (left,) = rng.choices(range(size), weights)
    return operator, _tree(operator, left, rng), _tree(operator, size - 1 - left, rng)


def text_of(tree: Tree) -> str:
    """The query in EQL, with variables in the order of the leaves."""
    return f"SELECT * FROM {_pattern(tree, itertools.count())}"


def _pattern(tree: Tree, numbers: Iterator[int]) -> str:
    if isinstance(tree, str):
        return f"{tree} x{next(numbers)}"
    operator, left, right = tree
    return f"({_pattern(left, numbers)} {operator} {_pattern(right, numbers)})"


def leaves(tree: Tree) -> list[str]:
    return [tree] if isinstance(tree, str) else [*leaves(tree[1]), *leaves(tree[2])]


# --- plans ------------------------------------------------------------------------------------------------------------


def stats_of(tree: Tree) -> Stats:
    """The statistics of the sources, by variable, in events for each microsecond."""
    rates = {f"x{number}": RATES[name] / SECOND for number, name in enumerate(leaves(tree))}
    return Stats(rates, dict.fromkeys(rates, 1.0), total_rate=TOTAL / SECOND)


def core_of(tree: Tree, model: Model | None = None) -> Pattern:
    """The core form of a query; with a model, rewritten by it."""
    core = _core(tree, itertools.count())
    return core if model is None else rewritten_core(core, CoreInput(model=model)).core


def _core(tree: Tree, numbers: Iterator[int]) -> Pattern:
    if isinstance(tree, str):
        return EventClass(f"x{next(numbers)}", types=(tree,))
    operator, left, right = tree
    parts = _core(left, numbers), _core(right, numbers)
    return Next(*parts) if operator == ";" else Disj(parts)


def plan_of(tree: Tree, *, rewritten: bool) -> Plan:
    schema = Schema({name: {} for name in RATES})
    types = schema_types(pa.schema([("type", pa.string()), ("ts", pa.int64())]))
    options = {"rewrite": "on" if rewritten else "off"}
    query = bind(parse(text_of(tree)), schema)
    return lower(query, types, schema, Clock(), EVALUATORS, options=options, stats=stats_of(tree))


@dataclass(frozen=True, slots=True)
class Ran:
    matches: int
    composites: int
    """The composite events that all operators made."""


class Runnable:
    """A plan, its kernel, and the events as the kernel reads them."""

    def __init__(self, plan: Plan, table: pa.Table) -> None:
        self.plan = plan
        self.kernel: Kernel = kernel_for(plan)
        encoder = Encoder(plan, "type", "ts", self.kernel.texts, self.kernel.needs_ranks)
        self.events: Batch = encoder.encode(table.combine_chunks().to_batches()[0])
        self.codes = encoder.codes()

    def run(self) -> Ran:
        state, matches = self.kernel.initial(), 0
        for start in range(0, len(self.events), _PIECE):
            state, positions = self.kernel.step(state, self.events.cut(start, start + _PIECE))
            matches += len(positions)
        state, positions = self.kernel.advance(state, END_OF_TIME, self.codes)
        made = sum(count.made for count in operator_counts(self.kernel, state).values())
        return Ran(matches + len(positions), made)
