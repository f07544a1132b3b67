"""Measurement: CPU time and wall time, the best of several runs, after a warm-up run that compiles.

On a busy machine CPU time is more reliable. It is the sum over all threads of the process, so it is the time that one
core would need.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cepheid.binding import bind
from cepheid.codegen.columns import schema_types
from cepheid.codegen.encoder import Encoder
from cepheid.codegen.masks import masks
from cepheid.events import Clock, Schema, in_order, primitive
from cepheid.kernels.registry import EVALUATORS, kernel_for
from cepheid.kernels.runs.evaluator import own_counters
from cepheid.lang import parse
from cepheid.optimize.lower import lower
from cepheid.runtime.kernel import END_OF_TIME, Kernel, counters
from cepheid.semantics import evaluate

REPEATS = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run over a stream: the number of matches, the number of events in all of them (the output
    complexity of the paper), and the counters of the kernel."""

    matches: int
    length: int = 0
    counted: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """A measurement of one variant at one point of an experiment. Variants with the same `question` must find the same
    number of matches."""

    point: Hashable
    variant: str
    events: int
    outcome: Outcome
    cpu: float
    wall: float
    question: str = ""

    @property
    def throughput(self) -> float:
        """Events per second of CPU time."""
        return self.events / self.cpu

    @property
    def microseconds(self) -> float:
        """CPU time per event."""
        return 1e6 * self.cpu / self.events


@dataclass(frozen=True, slots=True)
class Variant:
    """One implementation at one point of an experiment."""

    point: Hashable
    name: str
    events: int
    run: Callable[[], Outcome]
    question: str = ""


def interleaved(
    variants: Sequence[Variant],
    *,
    repeats: int = REPEATS,
    warm: bool = True,
    cpu: Callable[[], float] = time.process_time,
    enough: float = math.inf,
    in_a_row: int = 1,
    typical: bool = False,
    by: Callable[[Sample], float] = lambda sample: sample.cpu,
) -> list[Sample]:
    """The best of several runs of each variant, or the median (`typical`, for differences smaller than the noise of one
    run). With `warm` each variant first has a run that is not measured. Runs of the variants are interleaved, so that a
    slow phase of the machine affects all of them; `in_a_row` runs of a variant stay together, for variants that leave
    work behind for the next run. A variant stops after `enough` seconds, but not before its second run. Runs are
    compared by their CPU time; where several cores share work, the run of least CPU time is the one in which they
    overlapped least, and `by` is the wall time."""
    if warm:
        for variant in variants:
            variant.run()
    runs: list[list[Sample]] = [[] for _ in variants]
    gc.disable()
    try:
        for at in [at for _ in range(repeats // in_a_row) for at in range(len(variants)) for _ in range(in_a_row)]:
            if len(runs[at]) < 2 or sum(sample.wall for sample in runs[at]) <= enough:
                variant = variants[at]
                wall, spent = time.perf_counter(), cpu()
                outcome = variant.run()
                spent, wall = max(cpu() - spent, 1e-9), time.perf_counter() - wall
                runs[at].append(
                    Sample(variant.point, variant.name, variant.events, outcome, spent, wall, variant.question)
                )
    finally:
        gc.enable()
    ordered = [sorted(samples, key=by) for samples in runs]
    return [samples[len(samples) // 2 if typical else 0] for samples in ordered if samples]


def measure(
    point: Hashable,
    variant: str,
    events: int,
    run: Callable[[], Outcome],
    *,
    question: str = "",
    repeats: int = REPEATS,
    warm: bool = True,
) -> Sample:
    """Measures one variant."""
    (sample,) = interleaved([Variant(point, variant, events, run, question)], repeats=repeats, warm=warm)
    return sample


@dataclass(frozen=True, slots=True)
class Prepared:
    """A query compiled for an input with these columns, in one variant of an evaluator."""

    kernel: Kernel

    def run(self, table: pa.Table, batch_rows: int | None = None, piece: int | None = None) -> Outcome:
        """Encodes the columns and finds the positions of all matches. The kernel gets `piece` events of a batch at a
        time, which bounds the matches in memory."""
        kernel = self.kernel
        encoder = Encoder(kernel.plan, "type", "ts", kernel.texts, kernel.needs_ranks)
        state = kernel.initial()
        matches = length = 0
        for batch in table.to_batches(max_chunksize=batch_rows):
            encoded = encoder.encode(batch)
            for start in range(0, len(encoded), piece or len(encoded)):
                state, positions = kernel.step(state, encoded.cut(start, start + (piece or len(encoded))))
                matches += len(positions)
                length += len(positions.values)
        state, positions = kernel.advance(state, END_OF_TIME, encoder.codes())
        counted = counters(state) | (own_counters(state) if kernel.plan.evaluator == "runs" else {})
        counted |= {"state_bytes": sum(array.nbytes for array in state)}  # arrays grow and never shrink
        return Outcome(matches + len(positions), length + len(positions.values), counted)

    def can_begin(self, table: pa.Table) -> int:
        """The number of events that pass the single-event predicates of the first component."""
        plan = self.kernel.plan
        bit = np.uint64(1 << plan.steps[0].begin)
        return sum(int(np.count_nonzero(masks(plan, batch, "type") & bit)) for batch in table.to_batches())


_NO_OPTIONS: Mapping[str, str] = {}
_NOT_DECLARED = Schema({})
"""In the streams of the benchmarks every type has every attribute."""


def prepare(query: str, table: pa.Table, options: Mapping[str, str] = _NO_OPTIONS) -> Prepared:
    """Plans the query with the options that the experiments of the papers compare."""
    plan = lower(
        bind(parse(query), _NOT_DECLARED),
        schema_types(table.schema),
        _NOT_DECLARED,
        Clock(),
        EVALUATORS,
        options=options,
    )
    return Prepared(kernel_for(plan))


def oracle(query: str, table: pa.Table) -> Outcome:
    """The oracle, as a lower bound for the throughput of evaluators."""
    rows = table.to_pylist()
    events = in_order(primitive(row["type"], row["ts"], position, row) for position, row in enumerate(rows))
    return Outcome(sum(1 for _ in evaluate(bind(parse(query), _NOT_DECLARED), events)))


class Disagreement(Exception):
    """Compared variants found different numbers of matches, so their times are not comparable."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        counts = ", ".join(f"{s.variant}: {s.outcome.matches} matches" for s in samples)
        super().__init__(f"variants disagree at {samples[0].point} over {samples[0].events} events: {counts}")


def require_agreement(samples: Sequence[Sample]) -> None:
    """Requires that variants with the same question about the same events have the same number of matches."""
    groups: dict[tuple[Hashable, str, int], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.point, sample.question, sample.events), []).append(sample)
    for group in groups.values():
        if len({sample.outcome.matches for sample in group}) > 1:
            raise Disagreement(group)
