"""NEXT's evaluation (§6): query rewriting on one core (figures 9 and 10), and the cost of rewritten queries.

Figures 9 and 10 are real: every query runs in a kernel of its own on one core, and CPU time counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

import pyarrow as pa

from bench.measure import Outcome, Sample, Variant, interleaved
from bench.next_workload import KINDS, TOTAL, Runnable, Tree, events, plan_of, queries, stats_of
from bench.report import Benchmark, Column, Report, rate
from cepheid.optimize.core_cost import CompiledModel

ISSUED, REWRITTEN = "as issued", "rewritten"
FORMS = {ISSUED: False, REWRITTEN: True}


def _total(runnables: Sequence[Runnable]) -> Outcome:
    ran = [runnable.run() for runnable in runnables]
    counted = {"composites": float(sum(each.composites for each in ran))}
    return Outcome(sum(each.matches for each in ran), counted=counted)


def _variants(point: Hashable, trees: Sequence[Tree], table: pa.Table, question: str) -> list[Variant]:
    """The queries one after the other, nothing shared, as issued and rewritten."""
    found = []
    for name, rewritten in FORMS.items():
        runnables = [Runnable(plan_of(tree, rewritten=rewritten), table) for tree in trees]
        run = partial(_total, runnables)
        found.append(Variant(point, name, table.num_rows, run, question))
    return found


_COMPOSITES = Column("composite events", lambda sample: f"{sample.outcome.counted['composites']:,.0f}")


# --- figure 9 ---------------------------------------------------------------------------------------------------------


def figure_9(quick: bool) -> Report:
    n, count, sizes = (400, 2, (2,)) if quick else (100_000, 4, (1, 3, 5))  # each query takes seconds to compile
    table, samples = events(n), []
    for kind in KINDS:
        for size in sizes:
            variants = _variants(f"{kind} {size}", queries(kind, size, count), table, kind)
            samples += interleaved(variants, repeats=1 if quick else 3)

    def operators(sample: Sample) -> float:
        """The operators whose CPU time is that of the stream: its seconds pass while a core is busy."""
        size = int(str(sample.point).split()[1])
        return size * count * (sample.events / TOTAL) / sample.cpu

    return Report(
        "next-9",
        f"operators that one core supports at NEXT's rates (255 events/s), mean of {count} queries; real",
        "workload and operators",
        tuple(samples),
        "the effect of rewriting is significant for next and increases with the size, is smaller for union, and is "
        "between both for mix (NEXT, figure 9). A compiled union passes events on at no cost: nothing is left to gain.",
        baseline=ISSUED,
        columns=(Column("operators supported", lambda sample: rate(operators(sample))), _COMPOSITES),
        value=operators,
        value_title="operators supported by one core",
    )


# --- figure 10 --------------------------------------------------------------------------------------------------------


def figure_10(quick: bool) -> Report:
    n, counts = (400, (1, 2)) if quick else (100_000, (3, 6, 12))
    table, samples = events(n), []
    for kind in KINDS:
        for count in counts:
            variants = _variants(f"{kind} {count}", queries(kind, 5, count), table, kind)
            samples += interleaved(variants, repeats=1 if quick else 3)
    return Report(
        "next-10",
        "throughput of one core by the number of queries of 5 operators, nothing shared; real",
        "workload and queries",
        tuple(samples),
        "rewriting doubles the throughput of next in many cases, and adds about 20 % for union (NEXT, figure 10).",
        baseline=ISSUED,
        columns=(
            Column("complex events/s (CPU)", lambda sample: rate(sample.outcome.matches / sample.cpu)),
            _COMPOSITES,
        ),
    )


# --- cost -------------------------------------------------------------------------------------------------------------


def next_cost(quick: bool) -> Report:
    """Queries of 5 operators: estimated and measured, as issued and rewritten."""
    n, count = (400, 2) if quick else (200_000, 16)
    table, estimates = events(n), dict[tuple[object, str], float]()
    variants: list[Variant] = []
    for number, tree in enumerate(queries("next", 5, count, seed=7), 1):
        for variant in _variants(number, [tree], table, str(number)):
            plan = plan_of(tree, rewritten=FORMS[variant.name])
            assert plan.core is not None
            estimates[number, variant.name] = CompiledModel(stats_of(tree)).whole(plan.core)
            variants.append(variant)
    samples = interleaved(variants, repeats=1 if quick else 9)
    measured = {(sample.point, sample.variant): sample for sample in samples}
    correlation = rank_correlation([estimates[key] for key in measured], [sample.cpu for sample in measured.values()])
    made = {name: sum(s.outcome.counted["composites"] for s in samples if s.variant == name) for name in FORMS}
    slower = max(measured[p, REWRITTEN].cpu / measured[p, ISSUED].cpu for p, _ in measured)
    return Report(
        "next-cost",
        "next queries of 5 operators: estimated and measured cost",
        "query",
        tuple(samples),
        f"rank correlation of cost and time {correlation:.3f} (target 0.9); composite events in all "
        f"{made[ISSUED] / max(made[REWRITTEN], 1):.2f} times fewer (target 2); the slowest rewritten query takes "
        f"{slower:.2f} of the time as issued (target at most 1.05).",
        baseline=ISSUED,
        columns=(
            Column("ns/event", lambda sample: f"{1e9 * sample.cpu / sample.events:.1f}"),
            Column("estimated", lambda sample: f"{estimates[sample.point, sample.variant]:.1f}"),
            _COMPOSITES,
        ),
    )


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's: the correlation of the ranks."""
    ranks = [[sorted(values).index(value) for value in values] for values in (one, other)]
    centred = [[rank - sum(each) / len(each) for rank in each] for each in ranks]
    product = sum(a * b for a, b in zip(*centred, strict=True))
    return product / (sum(a * a for a in centred[0]) * sum(b * b for b in centred[1])) ** 0.5 or 0.0


BENCHMARKS = (
    Benchmark("next-9", "NEXT figure 9: operators that one core supports", figure_9),
    Benchmark("next-10", "NEXT figure 10: throughput by the number of queries", figure_10),
    Benchmark("next-cost", "target: the cost of rewritten next queries", next_cost),
)
