"""How a benchmark measures: CPU time beside wall time, the best of several runs, compilation paid before the first.

CPU time is the figure to read on a machine that does other work too. It counts all threads of the process, so it is
also the time that one core would need.
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
from cepheid.codegen.columns import schema_kinds
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
class Found:
    """What one run over a stream found: the matches, the events in them all together (the paper's output complexity),
    and what the kernel counted."""

    matches: int
    length: int = 0
    counted: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """One variant at one point of an experiment. Variants that are asked the same question must give one answer."""

    point: Hashable
    variant: str
    events: int
    found: Found
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
    """One way to do something, at a point of an experiment."""

    point: Hashable
    name: str
    events: int
    run: Callable[[], Found]
    question: str = ""


def in_turn(
    variants: Sequence[Variant],
    *,
    repeats: int = REPEATS,
    warm: bool = True,
    cpu: Callable[[], float] = time.process_time,
    enough: float = math.inf,
    in_a_row: int = 1,
    typical: bool = False,
) -> list[Sample]:
    """The best of several runs of each variant, after one that is not measured (unless not `warm`: for what compiles
    nothing), or the one in the middle (`typical`: for differences that are smaller than what one run has of luck).
    Variants take turns, so that a machine that is slow for a while is slow for all of them, of some runs each where one
    leaves work behind for the next. What has taken `enough` seconds is not run again, once it has been run twice."""
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
                found = variant.run()
                spent, wall = max(cpu() - spent, 1e-9), time.perf_counter() - wall
                told = variant.point, variant.name, variant.events
                runs[at].append(Sample(*told, found, spent, wall, variant.question))
    finally:
        gc.enable()
    ordered = [sorted(samples, key=lambda sample: sample.cpu) for samples in runs]
    return [samples[len(samples) // 2 if typical else 0] for samples in ordered if samples]


def measure(
    point: Hashable,
    variant: str,
    events: int,
    run: Callable[[], Found],
    *,
    question: str = "",
    repeats: int = REPEATS,
    warm: bool = True,
) -> Sample:
    """One variant by itself."""
    (sample,) = in_turn([Variant(point, variant, events, run, question)], repeats=repeats, warm=warm)
    return sample


@dataclass(frozen=True, slots=True)
class Prepared:
    """A query compiled for an input with these columns, in one variant of an evaluator."""

    kernel: Kernel

    def run(self, table: pa.Table, batch_rows: int | None = None, piece: int | None = None) -> Found:
        """From Arrow memory to the positions of every match; the encoding of the columns is part of it. Of a batch,
        `piece` events at a time are given to the kernel, which bounds the matches that are held at once."""
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
        state, positions = kernel.advance(state, END_OF_TIME)
        counted = counters(state) | (own_counters(state) if kernel.plan.evaluator == "runs" else {})
        counted |= {"state_bytes": sum(array.nbytes for array in state)}  # arrays grow and never shrink
        return Found(matches + len(positions), length + len(positions.values), counted)

    def can_begin(self, table: pa.Table) -> int:
        """How many events can be the first component, by what they say of themselves."""
        plan = self.kernel.plan
        bit = np.uint64(1 << plan.steps[0].begin)
        return sum(int(np.count_nonzero(masks(plan, batch, "type") & bit)) for batch in table.to_batches())


_NO_OPTIONS: Mapping[str, str] = {}
_NOT_DECLARED = Schema({})
"""In the streams of the benchmarks every type has every attribute."""


def prepare(query: str, table: pa.Table, options: Mapping[str, str] = _NO_OPTIONS) -> Prepared:
    """The query as the optimiser would plan it, but for the options, which the papers' comparisons are about."""
    plan = lower(
        bind(parse(query), _NOT_DECLARED),
        schema_kinds(table.schema),
        _NOT_DECLARED,
        Clock(),
        EVALUATORS,
        options=options,
    )
    return Prepared(kernel_for(plan))


def oracle(query: str, table: pa.Table) -> Found:
    """The reference evaluation, as the floor: what any evaluator must beat."""
    rows = table.to_pylist()
    events = in_order(primitive(row["type"], row["ts"], position, row) for position, row in enumerate(rows))
    return Found(sum(1 for _ in evaluate(bind(parse(query), _NOT_DECLARED), events)))


class Disagreement(Exception):
    """Variants that are compared found different things: their times mean nothing."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        found = ", ".join(f"{s.variant}: {s.found.matches} matches" for s in samples)
        super().__init__(f"variants disagree at {samples[0].point} over {samples[0].events} events: {found}")


def require_agreement(samples: Sequence[Sample]) -> None:
    """Whoever was asked the same about the same events must have found the same number of matches."""
    groups: dict[tuple[Hashable, str, int], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.point, sample.question, sample.events), []).append(sample)
    for group in groups.values():
        if len({sample.found.matches for sample in group}) > 1:
            raise Disagreement(group)
