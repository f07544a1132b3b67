"""Card fraud on Spark beside PyFlink's MATCH_RECOGNIZE: the same file, the same cores, the same matches.

The query is one that Flink's SQL can express: three transactions of an account in a row, small, small and large.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import pyarrow.csv

import cepheid
from bench.measure import Found, Sample, Variant
from bench.report import Benchmark, Report
from bench.spark import counted, measured, running
from cepheid.datasets import cards

_FLINK = "apache-flink==2.3.0"
_HOME = Path("build/flink")
"""Flink's packages contradict ours: it has an environment of its own, made the first time (300 MB)."""
_CORES = 2
_COLUMNS = ["type", "ts", "acc", "amount"]
_SCHEMA = "type string, ts long, acc long, amount double"
_QUERY = (
    "PATTERN SEQ(t s1, t s2, t l) WHERE partition_contiguity(s1, s2, l) "
    "{ [acc] and s1.amount < 100 and s2.amount < 100 and l.amount > 250 } WITHIN 43200000"
)


def _python() -> Path:
    python = _HOME / "bin" / "python"
    if not python.exists():
        print(f"setting up {_FLINK} in {_HOME}", file=sys.stderr)
        venv.create(_HOME, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", _FLINK], check=True)
    return python.absolute()


def _by_flink(file: Path, events: int) -> Sample:
    target = file.with_name("found")
    command = [str(_python()), "-m", "bench.flink_job", str(file), str(target), str(_CORES)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": "."}, stdout=subprocess.PIPE, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    matches = sum(len(part.read_text().splitlines()) for part in target.rglob("*") if part.is_file())
    return Sample(events, "Flink, MATCH_RECOGNIZE", events, Found(matches), told["cpu"], told["wall"])


def _by_cepheid(file: Path, events: int) -> Sample:
    with running(f"local[{_CORES}]") as session:
        frame = session.read.csv(str(file), schema=_SCHEMA)

        def run() -> Found:
            return counted(cepheid.match(_QUERY, frame))

        (sample,) = measured(session, [Variant(events, "Cepheid on Spark", events, run)])
        return sample


def flink(quick: bool) -> Report:
    events, accounts = (2_000, 20) if quick else (1_000_000, 20_000)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "transactions.csv"
        options = pyarrow.csv.WriteOptions(include_header=False)
        pyarrow.csv.write_csv(cards(events, accounts, seed=1).select(_COLUMNS), file, options)
        samples = (_by_flink(file, events), _by_cepheid(file, events))
    return Report(
        "flink",
        "small, small, large transactions of one account in a row, from one CSV file",
        "transactions",
        samples,
        "the target is 10x Flink.",
        baseline="Flink, MATCH_RECOGNIZE",
    )


BENCHMARKS = (Benchmark("flink", "Spark batch beside PyFlink's MATCH_RECOGNIZE", flink),)
