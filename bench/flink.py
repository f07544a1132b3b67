"""Card fraud on Spark beside PyFlink's MATCH_RECOGNIZE: the same files, the same cores, the same matches.

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
import pyarrow.parquet
import pyspark

import cepheid
from bench.measure import Found, Sample, Variant
from bench.report import Benchmark, Report
from bench.spark import measured, running
from cepheid.datasets import cards

_VERSION = "2.3.0"
_FLINK = f"apache-flink=={_VERSION}"
_PARQUET = ("org.apache.flink", "flink-sql-parquet", _VERSION)
"""Flink's reader of Parquet, which its package does not have."""
_HOME = Path("build/flink")
"""Flink's packages contradict ours: it has an environment of its own, made the first time (300 MB)."""
_BASELINE = "Flink, MATCH_RECOGNIZE"
_CORES = 2
_ROW_GROUPS = 4
"""Of the Parquet file: more than cores, since a row group is read by one."""
_COLUMNS = ["type", "ts", "acc", "amount"]
_SCHEMA = "type string, ts long, acc long, amount double"
_QUERY = (
    "PATTERN SEQ(t s1, t s2, t l) WHERE partition_contiguity(s1, s2, l) "
    "{ [acc] and s1.amount < 100 and s2.amount < 100 and l.amount > 250 } WITHIN 43200000 "
    "RETURN s1.acc AS acc, s1.ts AS ts1, s2.ts AS ts2, l.ts AS ts3"
)


def _python() -> Path:
    python = _HOME / "bin" / "python"
    if not python.exists():
        print(f"setting up {_FLINK} in {_HOME}", file=sys.stderr)
        venv.create(_HOME, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", _FLINK], check=True)
    return python.absolute()


def _parquet_classes() -> str:
    """Flink's reader of Parquet, brought by the Ivy that comes with Spark, and Hadoop's classes, which it needs."""
    spark = Path(pyspark.__file__).parent
    _, module, version = _PARQUET
    reader = _HOME / f"{module}-{version}.jar"
    if not reader.exists():
        print(f"bringing {':'.join(_PARQUET)} to {_HOME}", file=sys.stderr)
        ivy = [spark / "bin" / "spark-class", "org.apache.ivy.Main", "-warn", "-cache", _HOME / "ivy"]
        wanted = ["-dependency", *_PARQUET, "-confs", "master", "-retrieve", f"{_HOME}/[artifact]-[revision].[ext]"]
        subprocess.run([*ivy, *wanted], stdout=sys.stderr, check=True)
    return os.pathsep.join(map(str, [reader.absolute(), *(spark / "jars").glob("hadoop-client-*.jar")]))


def _by_flink(file: Path, point: str, events: int) -> Sample:
    target = file.with_name("found")
    command = [str(_python()), "-m", "bench.flink_job", str(file), str(target), str(_CORES)]
    environment = {**os.environ, "PYTHONPATH": "."}
    if file.suffix == ".parquet":
        environment["HADOOP_CLASSPATH"] = _parquet_classes()  # which PyFlink adds to that of its JVM
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    return Sample(point, _BASELINE, events, Found(_lines(target)), told["cpu"], told["wall"])


def _lines(directory: Path) -> int:
    """Of all files, but for those that are not meant to be seen."""
    parts = [part for part in directory.rglob("*") if part.is_file() and part.name[0] not in "._"]
    return sum(part.read_bytes().count(b"\n") for part in parts)


def _by_cepheid(file: Path, point: str, events: int) -> Sample:
    with running(f"local[{_CORES}]") as session:
        source = str(file) if file.suffix == ".parquet" else session.read.csv(str(file), schema=_SCHEMA)

        def run() -> Found:
            target = file.with_name("found-by-cepheid")
            cepheid.match(_QUERY, source, session=session).write.mode("overwrite").csv(str(target))
            return Found(_lines(target))

        (sample,) = measured(session, [Variant(point, "Cepheid on Spark", events, run)])
        return sample


def flink(quick: bool) -> Report:
    events, accounts = (2_000, 20) if quick else (1_000_000, 20_000)
    transactions = cards(events, accounts, seed=1).select(_COLUMNS)
    in_csv, in_parquet = f"{events:,} transactions, CSV", f"{events:,} transactions, Parquet"
    with tempfile.TemporaryDirectory() as directory:
        csv, parquet = Path(directory) / "transactions.csv", Path(directory) / "transactions.parquet"
        pyarrow.csv.write_csv(transactions, csv, pyarrow.csv.WriteOptions(include_header=False))
        pyarrow.parquet.write_table(transactions, parquet, row_group_size=events // _ROW_GROUPS)
        samples = [
            _by_flink(csv, in_csv, events),
            _by_cepheid(csv, in_csv, events),
            *([] if quick else [_by_flink(parquet, in_parquet, events)]),  # no download for a test
            _by_cepheid(parquet, in_parquet, events),
        ]
    return Report(
        "flink",
        "small, small, large transactions of one account in a row, from one file",
        "file",
        tuple(samples),
        "the target is 10x Flink.",
        baseline=_BASELINE,
    )


BENCHMARKS = (Benchmark("flink", "Spark batch beside PyFlink's MATCH_RECOGNIZE", flink),)
