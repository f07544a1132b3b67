"""NEXT's figure 11 (§6): queries on up to 40 nodes, real on one and two executors, and simulated.

Real: executors of a local cluster of Spark, each a process with one core. Each runs the queries that greedy placement
puts on its slot, one after the other, in kernels of their own; the CPU time of a query is the share of the slot that it
needs. Queries are placed as wholes, since one kernel runs all operators of a query. Simulated: the operators of
`deploy/operator_graph.py`, one by one, with the paper's placements. The costs of the compiled operators are measured at
the beginning, on queries other than those of the figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from bench.measure import Outcome, Sample, Variant, interleaved
from bench.next_workload import TOTAL, Runnable, Tree, core_of, events, leaves, plan_of, queries, stats_of
from bench.report import Benchmark, Column, Report
from cepheid.deploy.operator_graph import USUAL, Calibration, OperatorTree, operator_tree
from cepheid.deploy.placement import Placer, cheapest_node, next_node, supported
from cepheid.optimize.core_cost import CompiledModel
from cepheid.spark.session import session

FAST = 4_000
"""The sources are so many times as fast as the paper's: a node then supports tens of queries, not tens of thousands.
Twice as fast, one operator of a query as issued would need more than a node."""
RATE = FAST * TOTAL
MOST = {"next": {False: 40, True: 130}, "union": {False: 70, True: 70}}
"""The queries that are tried for real, as issued and rewritten."""
FORMS = {False: "as issued", True: "rewritten"}
_SEED = 3
"""Of the queries that the costs are measured on."""
_OTHERS = 8

_STRATEGIES = {
    "round robin": (False, next_node, False),
    "greedy": (False, cheapest_node, False),
    "greedy, rewritten": (True, cheapest_node, False),
    "reuse": (False, cheapest_node, True),
    "reuse, rewritten": (True, cheapest_node, True),
}


# --- real -------------------------------------------------------------------------------------------------------------


def nanoseconds(tree: Tree, rewritten: bool, table: pa.Table, repeats: int) -> float:
    """The CPU time of a query for each event of the stream. An operator reads the events of its sources only."""
    read = table.filter(pc.is_in(table["type"], pa.array(leaves(tree))))
    runnable = Runnable(plan_of(tree, rewritten=rewritten), read)

    def run() -> Outcome:
        return Outcome(runnable.run().matches)

    (sample,) = interleaved([Variant(0, "", table.num_rows, run)], repeats=repeats)
    return 1e9 * sample.cpu / sample.events


@cache
def _table(count: int) -> pa.Table:
    return events(count)


class Work(NamedTuple):
    """The queries of a slot, by their numbers. `limit` is the load at which it stops: it is overloaded."""

    kind: str
    rewritten: bool
    numbers: tuple[int, ...]
    events: int
    repeats: int
    seed: int = 1
    limit: float = 1.0

    def measured(self) -> Iterator[tuple[int, float]]:
        trees = queries(self.kind, 5, max(self.numbers, default=0) + 1, self.seed)
        spent = 0.0
        for number in self.numbers:
            found = nanoseconds(trees[number], self.rewritten, _table(self.events), self.repeats)
            yield number, found
            spent += found * RATE * 1e-9
            if spent > self.limit:
                return


@contextmanager
def executors(slots: int) -> Iterator[SparkSession]:
    """A session with so many executors of one core. They are other processes, which import this package from here."""
    root = Path(__file__).parent.parent
    settings = {"spark.executorEnv.PYTHONPATH": f"{root}:{root / 'src'}", "spark.cores.max": str(slots)}
    spark = session(f"local-cluster[{slots},1,1024]", settings)
    try:
        yield spark
    finally:
        spark.stop()


def on_executors(works: Sequence[Work], spark: SparkSession) -> dict[int, float]:
    """The nanoseconds of queries, each slot measured by an executor of its own, at the same time. A slot that is
    overloaded measures no more."""
    return dict(spark.sparkContext.parallelize(works, len(works)).flatMap(Work.measured).collect())


class Real(NamedTuple):
    """A real point: the queries that the slots support, their load, and the load that the simulator expects."""

    slots: int
    rewritten: bool
    supported: int
    load: float
    expected: float


def real(kind: str, slots: int, costs: Calibration, count: int, repeats: int) -> list[Real]:
    with executors(slots) as spark:
        return [_real(kind, slots, form, costs, count, repeats, MOST[kind][form], spark) for form in FORMS]


def _real(
    kind: str, slots: int, rewritten: bool, costs: Calibration, count: int, repeats: int, most: int, spark: SparkSession
) -> Real:
    """Queries are placed in their order, each on the slot with the least expected load."""
    trees = queries(kind, 5, most)
    expected = [_operators(tree, "", rewritten, costs).cpu * RATE * 1e-9 for tree in trees]
    loads, placed = [0.0] * slots, []
    for own in expected:
        slot = loads.index(min(loads))
        loads[slot] += own
        placed.append(slot)
    works = [
        Work(kind, rewritten, tuple(i for i, of in enumerate(placed) if of == slot), count, repeats)
        for slot in range(slots)
    ]
    found = on_executors(works, spark)
    spent, total, wanted = [0.0] * slots, 0.0, 0.0
    for number, slot in enumerate(placed):
        if number not in found or spent[slot] + found[number] * RATE * 1e-9 > 1.0:
            return Real(slots, rewritten, number, total, wanted)
        spent[slot] += found[number] * RATE * 1e-9
        total += found[number] * RATE * 1e-9
        wanted += expected[number]
    return Real(slots, rewritten, most, total, wanted)


# --- simulated --------------------------------------------------------------------------------------------------------


def calibrated(kind: str, count: int, repeats: int, others: int, spark: SparkSession | None) -> Calibration:
    """The costs on this machine, from other queries of the same kind, measured where the real points are: by an
    executor. A compiled union passes events on at no cost of its own, so its queries give what it costs to read and to
    write an event; those of next give the rest."""
    rows = []
    for form in FORMS:
        works = [Work(kind, form, tuple(range(others)), count, repeats, _SEED, math.inf)]
        measured = dict(works[0].measured()) if spark is None else on_executors(works, spark)
        for number, tree in enumerate(queries(kind, 5, others, _SEED)):
            parts = (Calibration(1, 0, 0, 0), Calibration(0, 1, 0, 0), Calibration(0, 0, 0, 1))
            rows.append([_operators(tree, "", form, part).cpu / measured[number] for part in parts])
    # The sum of the squares of relative errors is least: the heaviest query does not decide.
    reads, writes, works = np.array(rows).T
    if kind == "union":
        # Both are proportional to the rate of the sources. The least relative error of a share of the time would
        # follow the fastest queries; the median does not.
        scale = float(np.median(1 / (USUAL.leaf * reads + USUAL.write * writes)))
        return Calibration(USUAL.leaf * scale, USUAL.write * scale, 0.0, 1.0)
    fitted = np.linalg.lstsq(np.stack([reads, works], axis=1), 1.0 - USUAL.write * writes, rcond=None)[0]
    leaf, work = (max(float(value), 0.0) for value in fitted)
    return USUAL._replace(leaf=leaf, union=0.0, work=work)


def _operators(tree: Tree, name: str, rewritten: bool, costs: Calibration) -> OperatorTree:
    model = CompiledModel(stats_of(tree))
    core = core_of(tree, model if rewritten else None)
    return operator_tree(name, core, model, is_rewritten=rewritten, costs=costs)


def simulated(kind: str, count: int, nodes: Sequence[int], costs: Calibration) -> list[Sample]:
    trees = queries(kind, 5, count)
    graphs = {
        rewritten: [_operators(tree, str(number), rewritten, costs) for number, tree in enumerate(trees)]
        for rewritten in FORMS
    }
    samples = []
    for several in nodes:
        for name, (rewritten, choose, reuses) in _STRATEGIES.items():
            found = supported(graphs[rewritten], RATE, Placer(several, choose, reuses))
            samples.append(_point(several, f"{name}, simulated", found))
    return samples


def _point(nodes: int, variant: str, found: int) -> Sample:
    return Sample(nodes, variant, int(RATE), Outcome(found), 1.0, 1.0, variant)


# --- the figure -------------------------------------------------------------------------------------------------------


def figure_11(kind: str, quick: bool) -> Report:
    count, repeats, others = (300, 1, 1) if quick else (100_000, 2, _OTHERS)
    if quick:
        calibrated(kind, count, repeats, others, None)
        costs = USUAL  # kernels are interpreted
    else:
        with executors(1) as spark:
            costs = calibrated(kind, count, repeats, others, spark)
    points = [] if quick else [point for slots in (1, 2) for point in real(kind, slots, costs, count, repeats)]
    for point in points:
        print(point, costs, flush=True)
    samples = [_point(p.slots, f"greedy, {FORMS[p.rewritten]}, real", p.supported) for p in points]
    nodes, tried = ((1, 4), 30) if quick else ((1, 2, 5, 10, 20, 30, 40), 5_000)
    samples += simulated(kind, tried, nodes, costs)
    by_point = {(sample.point, sample.variant): sample.outcome.matches for sample in samples}
    last = {name: by_point[nodes[-1], f"{name}, simulated"] for name in _STRATEGIES}
    gains = ", ".join(f"{name} x {last[f'{name}, rewritten'] / max(last[name], 1):.2f}" for name in ("greedy", "reuse"))
    loads = "; ".join(f"{p.slots} slots {FORMS[p.rewritten]} {p.expected / max(p.load, 1e-9):.2f}" for p in points)
    paper = "x 1.24 and x 1.34 for next" if kind == "next" else "up to x 1.5 of greedy for union"
    return Report(
        "next-11" if kind == "next" else "next-11-union",
        f"{kind} queries of 5 operators supported, {int(RATE):,} events/s; real and simulated",
        "nodes",
        tuple(samples),
        f"rewriting on {nodes[-1]} nodes: {gains}; in the paper {paper} (figure 11). At most {tried:,} queries were "
        f"tried for the simulation, and {MOST[kind][False]} as issued and {MOST[kind][True]} rewritten for real. "
        f"Simulated load as a share of the real one: {loads or 'not measured'} (target 0.8 to 1.2). Measured costs: "
        f"{costs.leaf:.2g} ns to read and {costs.write:.2g} ns to write an event, and {costs.work:.2f} times "
        "the rest of the model.",
        columns=(
            Column("queries supported", lambda sample: f"{sample.outcome.matches:,}"),
            Column("point", lambda sample: sample.variant.rpartition(", ")[2]),
        ),
        value=lambda sample: max(float(sample.outcome.matches), 1.0),
        value_title="queries supported",
    )


_ABOUT: Mapping[str, str] = {"next": "next-11", "union": "next-11-union"}
BENCHMARKS = tuple(
    Benchmark(name, f"NEXT figure 11: {kind} queries on up to 40 nodes, real and simulated", partial(figure_11, kind))
    for kind, name in _ABOUT.items()
)
