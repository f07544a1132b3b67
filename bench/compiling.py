"""Compilation latency of a query: from scratch, and from the cache on disk.

Each sample runs in its own process with its own caches. The set-up compiles the shared helpers; the first variant runs
without it. All variants but the last include the time to load the compiler, once per process. Parsing and the run are
excluded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from bench.measure import Outcome, Sample
from bench.report import Benchmark, Column, Report

_EVENTS = 30_000
"""Enough events that no kernel is interpreted."""
_PROGRAM = "import sys; from bench.compiling import report_first_run; report_first_run(*sys.argv[1:])"

_STOCK = "Stock+ a[], Stock b"
QUERIES = {
    "stacks": "EVENT SEQ(E1, E2, E3) WHERE [attr1] WITHIN 10000",
    "stacks, negation": "EVENT SEQ(E1, !(E2), E3) WHERE [attr1] WITHIN 10000",
    "runs": f"PATTERN SEQ({_STOCK}) WHERE skip_till_next_match(a[], b) {{ [symbol] and a[1].price % 500 == 0 "
    "and a[i].price > a[i-1].price and b.volume < 150 } WITHIN 500 events",
    "any_runs": f"PATTERN SEQ({_STOCK}) WHERE skip_till_any_match(a[], b) {{ [symbol] and a[1].price % 500 == 0 "
    "and a[i].volume < 10 and b.volume < 15 } WITHIN 500 events",
    "tree": "PATTERN E1; E2; E3 WHERE E1.attr1 > E2.attr1 AND E2.attr1 = E3.attr1 WITHIN 100",
}


def _table(query: str) -> pa.Table:
    from cepheid.datasets import stock, synthetic

    return stock(_EVENTS, seed=1) if "Stock" in query else synthetic(_EVENTS, 20, (100,), seed=1)


def report_first_run(name: str, *before: str) -> None:
    """Runs in the process of a sample: prints the time of the first run minus that of a second run."""
    import cepheid

    for other in before:
        cepheid.match(QUERIES[other], _table(QUERIES[other]), output="positions")
    table = _table(QUERIES[name])
    cepheid.parse(QUERIES[name])
    spent = []
    for _ in range(2):
        wall, cpu = time.perf_counter(), time.process_time()
        matches = cepheid.match(QUERIES[name], table, output="positions").num_rows
        spent.append((time.perf_counter() - wall, time.process_time() - cpu))
    (first_wall, first_cpu), (wall, cpu) = spent
    print(json.dumps({"wall": first_wall - wall, "cpu": first_cpu - cpu, "matches": matches}))


def _environment(caches: Path, kernels: str = "kernels") -> dict[str, str]:
    return {**os.environ, "CEPHEID_CACHE": str(caches / kernels), "NUMBA_CACHE_DIR": str(caches / "numba")}


def _set_up(caches: Path) -> None:
    environment = _environment(caches, "kernels of set-up")
    subprocess.run([sys.executable, "-m", "cepheid.app.warm_up"], env=environment, capture_output=True, check=True)


def _sample(name: str, variant: str, caches: Path, *before: str) -> Sample:
    environment = _environment(caches)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, name, *before], env=environment, capture_output=True, text=True, check=True
    )
    measured = json.loads(done.stdout)
    return Sample(name, variant, _EVENTS, Outcome(measured["matches"]), max(measured["cpu"], 1e-9), measured["wall"])


def compiling(quick: bool) -> Report:
    samples = []
    with tempfile.TemporaryDirectory() as shared:
        if not quick:
            _set_up(Path(shared))
        names = list(QUERIES)[: 1 if quick else None]
        caches = Path(shared)
        for name in names:
            with tempfile.TemporaryDirectory() as directory:
                samples.append(_sample(name, "first time, without set-up", Path(directory)))
            samples += [_sample(name, "first time", caches), _sample(name, "from disk", caches)]
        for name, other in zip(names, [*names[1:], names[0]], strict=True):
            samples.append(_sample(name, "from disk, compiler loaded", caches, other))
    return Report(
        "compiling",
        "compilation latency of a query, from scratch and from the cache",
        "evaluator",
        tuple(samples),
        "the targets are 5 s for the first time and 0.3 s from disk.",
        columns=(Column("CPU seconds", lambda s: f"{s.cpu:.2f}"), Column("wall seconds", lambda s: f"{s.wall:.2f}")),
        value=lambda sample: sample.wall,
        value_title="seconds (wall)",
    )


BENCHMARKS = (
    Benchmark("compiling", "target: compilation latency of a query, from scratch and from the cache", compiling),
)
