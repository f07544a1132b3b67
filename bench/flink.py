"""Card fraud on Spark compared with PyFlink's MATCH_RECOGNIZE: the same files, the same cores, the same matches.

Flink's SQL can express two queries: three consecutive transactions of an account, small, small and large; and the same
with others in between (W4).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet
import pyspark

import cepheid
from bench.measure import Outcome, Sample, Variant
from bench.report import Benchmark, Report
from bench.spark import measured, running
from cepheid.datasets import cards

_VERSION = "2.3.0"
_FLINK = f"apache-flink=={_VERSION}"
_PARQUET = ("org.apache.flink", "flink-sql-parquet", _VERSION)
"""Flink's Parquet reader, which is not part of its package."""
_HOME = Path("build/flink")
"""Flink has its own environment (300 MB), created on first use, because its dependencies conflict with ours."""
_BASELINE = "Flink, MATCH_RECOGNIZE"
_CORES = 2
_ROW_GROUPS = 4
"""The row groups of the Parquet file: more than cores, because one task reads a row group."""
_COLUMNS = ["type", "ts", "acc", "amount"]
_SCHEMA = "type string, ts long, acc long, amount double"
_CONDITIONS = "[acc] and s1.amount < 100 and s2.amount < 100 and l.amount > 250"
_RETURN = "RETURN s1.acc AS acc, s1.ts AS ts1, s2.ts AS ts2, l.ts AS ts3"


@dataclass(frozen=True, slots=True)
class _Query:
    """A query as a SASE+ strategy and as a MATCH_RECOGNIZE pattern, with the number of runs in Flink."""

    name: str
    strategy: str
    pattern: str
    runs: int

    @property
    def text(self) -> str:
        where = f"WHERE {self.strategy}(s1, s2, l) {{ {_CONDITIONS} }}"
        return f"PATTERN SEQ(t s1, t s2, t l) {where} WITHIN 43200000 {_RETURN}"


_IN_A_ROW = _Query("in a row", "partition_contiguity", "S1 S2 L", runs=5)
_SKIPPING = _Query("others between", "skip_till_next_match", "S1 A*? S2 B*? L", runs=2)


def _python() -> Path:
    python = _HOME / "bin" / "python"
    if not python.exists():
        print(f"setting up {_FLINK} in {_HOME}", file=sys.stderr)
        venv.create(_HOME, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", _FLINK], check=True)
    return python.absolute()


def _parquet_classes() -> str:
    """The class path of Flink's Parquet reader, which Spark's Ivy downloads, and of Hadoop."""
    spark = Path(pyspark.__file__).parent
    _, module, version = _PARQUET
    reader = _HOME / f"{module}-{version}.jar"
    if not reader.exists():
        print(f"downloading {':'.join(_PARQUET)} to {_HOME}", file=sys.stderr)
        ivy = [f"{spark}/bin/spark-class", "org.apache.ivy.Main", "-warn", "-cache", f"{_HOME}/ivy"]
        wanted = ["-dependency", *_PARQUET, "-confs", "master", "-retrieve", f"{_HOME}/[artifact]-[revision].[ext]"]
        subprocess.run([*ivy, *wanted], stdout=sys.stderr, check=True)
    return os.pathsep.join(map(str, [reader.absolute(), *(spark / "jars").glob("hadoop-client-*.jar")]))


def _by_flink(query: _Query, file: Path, point: str, events: int) -> Sample:
    target = file.with_name("found")
    command = [str(_python()), "-m", "bench.flink_job", str(file), str(target), str(_CORES)]
    command += [query.pattern, str(query.runs)]
    environment = {**os.environ, "PYTHONPATH": "."}
    if file.suffix == ".parquet":
        environment["HADOOP_CLASSPATH"] = _parquet_classes()  # PyFlink adds it to the class path of its JVM
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    return Sample(point, _BASELINE, events, Outcome(_lines(target)), told["cpu"], told["wall"])


def _lines(directory: Path) -> int:
    """The number of lines of all files that are not hidden."""
    parts = [part for part in directory.rglob("*") if part.is_file() and part.name[0] not in "._"]
    return sum(part.read_bytes().count(b"\n") for part in parts)


def _by_cepheid(query: _Query, file: Path, point: str, events: int) -> list[Sample]:
    with running(f"local[{_CORES}]") as session:
        target = file.with_name("found-by-cepheid")

        def run(source: Any) -> Outcome:
            cepheid.match(query.text, source, session=session).write.mode("overwrite").csv(str(target))
            return Outcome(_lines(target))

        if file.suffix == ".parquet":
            sources: dict[str, Any] = {"Cepheid on Spark": str(file)}
        else:
            frame = session.read.csv(str(file), schema=_SCHEMA)
            sources = {"Cepheid on Spark": cepheid.CsvFiles(str(file), _SCHEMA), "Cepheid, read by Spark": frame}
        variants = [Variant(point, name, events, partial(run, source)) for name, source in sources.items()]
        return measured(session, variants)


def flink(quick: bool) -> Report:
    sizes = ((2_000, 20), (1_000, 10)) if quick else ((1_000_000, 20_000), (250_000, 5_000))
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory() as directory:
        for query, (events, accounts) in zip((_IN_A_ROW, _SKIPPING), sizes, strict=True):
            transactions = cards(events, accounts, seed=1).select(_COLUMNS)
            csv, parquet = Path(directory) / "transactions.csv", Path(directory) / "transactions.parquet"
            pyarrow.csv.write_csv(transactions, csv, pyarrow.csv.WriteOptions(include_header=False))
            pyarrow.parquet.write_table(transactions, parquet, row_group_size=events // _ROW_GROUPS)
            for file in (csv, parquet):
                point = f"{query.name}, {events:,}, {file.suffix[1:]}"
                if not (quick and file == parquet):  # no download for a test
                    samples.append(_by_flink(query, file, point, events))
                samples += _by_cepheid(query, file, point, events)
    return Report(
        "flink",
        "small, small, large transactions of one account, from one file",
        "query, transactions, file",
        tuple(samples),
        "the target is 10x Flink.",
        baseline=_BASELINE,
    )


BENCHMARKS = (Benchmark("flink", "Spark batch compared with PyFlink's MATCH_RECOGNIZE", flink),)
