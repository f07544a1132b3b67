"""The same transactions in PyFlink, by MATCH_RECOGNIZE. Runs in an environment with Flink."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from bench.processes import cpu_of_family

_SOURCE = """
CREATE TABLE transactions (
    `type` STRING, ts BIGINT, acc BIGINT, amount DOUBLE,
    at_time AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR at_time AS at_time - INTERVAL '0.001' SECOND
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = '{format}')
"""
_SINK = """
CREATE TABLE found (acc BIGINT, ts1 BIGINT, ts2 BIGINT, ts3 BIGINT)
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
"""
_QUERY = """
INSERT INTO found SELECT acc, ts1, ts2, ts3 FROM transactions MATCH_RECOGNIZE (
    PARTITION BY acc ORDER BY at_time
    MEASURES S1.ts AS ts1, S2.ts AS ts2, L.ts AS ts3
    ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
    PATTERN ({pattern}) WITHIN INTERVAL '12' HOUR
    DEFINE S1 AS S1.amount < 100, S2 AS S2.amount < 100, L AS L.amount > 250
)
"""


def main(source: str, target: str, cores: str, pattern: str, runs: str) -> None:
    """The best of several runs, after a warm-up run."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    environment: Any = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    environment.get_config().set("parallelism.default", cores)
    environment.execute_sql(_SOURCE.format(path=source, format=Path(source).suffix[1:]))
    environment.execute_sql(_SINK.format(path=target))
    best: dict[str, float] = {}
    for number in range(1 + int(runs)):
        shutil.rmtree(target, ignore_errors=True)
        wall, cpu = time.perf_counter(), cpu_of_family(os.getpid())
        environment.execute_sql(_QUERY.format(pattern=pattern)).wait()
        spent = {"wall": time.perf_counter() - wall, "cpu": cpu_of_family(os.getpid()) - cpu}
        if number and (not best or spent["cpu"] < best["cpu"]):
            best = spent
    print(json.dumps(best))


if __name__ == "__main__":
    main(*sys.argv[1:6])
