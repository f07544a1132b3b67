"""Runs batch queries as a client of Spark Connect and prints their results: a process of its own, because PySpark is a
client everywhere in a process or nowhere. The server runs in another process, on this machine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

import cepheid

COLUMNS = "type string, ts long, tag_id long, place string, v double"
KINDS = ["Shelf", "Register", "Exit"]
ROWS = [(KINDS[n * n * 7 % 13 % 3], n, n * n % 5 % 4, "AB"[n * 5 % 7 % 2], n * 37 % 101 / 10) for n in range(1, 150)]
WINDOW = " WITHIN 12 units"
PAIR = "EVENT SEQ(Shelf x, Exit z) WHERE [tag_id]" + WINDOW
THEFT = "EVENT SEQ(Shelf x, !(Register y), Exit z) WHERE [tag_id]" + WINDOW
CED = """complex lifted on Shelf as s, Register as r, Exit as e
event seq(s, !r, e; 12 ms) where s.tag_id = e.tag_id and s.tag_id = r.tag_id
"""

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "a key": (THEFT, {}),
    "no key": ("EVENT SEQ(Shelf x, !(Register y), Exit z) WHERE x.place = 'A'" + WINDOW, {}),
    "no key and no window": ("EVENT SEQ(Shelf x, Exit z) WHERE x.ts < 20 AND z.ts < 40", {}),
    "a trailing negation": ("EVENT SEQ(Shelf x, !(Exit z)) WHERE [tag_id]" + WINDOW, {"detected_at": True}),
    "a closure": (
        "PATTERN SEQ(Shelf x, Register+ y[], Exit z) WHERE skip_till_next_match(x, y[], z) {[tag_id]}"
        f"{WINDOW} RETURN x.ts AS began, y.LEN AS n, max(y[].v) AS most",
        {},
    ),
    "a conjunction": ("PATTERN Shelf x & Exit z WHERE x.tag_id = z.tag_id" + WINDOW, {}),
    "functions": (PAIR.replace("[tag_id]", "[tag_id] AND round(x.v) BETWEEN 2 AND 8"), {}),
    "a summary by key": (PAIR + " RETURN count(*) AS n, max(z.v) AS most", {}),
    "a summary without a key": ("EVENT SEQ(Shelf x, Exit z)" + WINDOW + " RETURN count(*) AS n, max(z.v) AS most", {}),
    "non-overlapping": (
        "PATTERN SEQ(Shelf x, Exit z) WHERE skip_till_any_match(x, z) {[tag_id]}" + WINDOW + " OUTPUT NON-OVERLAPPING",
        {},
    ),
    "a limit": (PAIR + " LIMIT 3", {}),
    "parameters": (PAIR.replace("[tag_id]", "[tag_id] AND x.v > $least"), {"params": {"least": 5}}),
    "flat": (PAIR, {"output": "flat"}),
    "identifiers": (PAIR, {"match_id": True}),
    "the reference": (PAIR.replace("[tag_id]", "[tag_id] AND x.ts < 30"), {"evaluator": "reference"}),
    "a composition": (
        f"pair: {PAIR} RETURN x.tag_id AS tag_id\npairs: EVENT SEQ(pair a, pair b) WHERE [tag_id] WITHIN 30 units",
        {},
    ),
    "EQL": ("SELECT * FROM Shelf a ; Exit b WHERE FILTER(a.tag_id = b.tag_id) AND a.v < 8", {}),
    "an iteration of EQL": ("SELECT * FROM Shelf a+ ; Exit b WHERE ALL(a.place) <> b.place", {}),
    "CED": (CED, {"time_unit": "ms"}),
    "a composition of CED": (
        CED + "complex crowd on lifted as a, lifted as b\nevent and(a, b; 40 ms)",
        {"time_unit": "ms"},
    ),
}
"""Queries that must find the same over Connect as in this process, and their options."""

SPARK_ALONE: dict[str, dict[str, Any]] = {"partitions": {"partitions": 3}, "steps": {"options": {"acquire": "steps"}}}
"""Options that only Spark has, with the query for pairs."""


def rows(found: Any) -> list[str]:
    """Rows in an order of their own, as text."""
    table = pa.Table.from_pandas(found, preserve_index=False) if isinstance(found, pd.DataFrame) else found
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in table.to_pylist())


def report(name: str, of: Callable[[], Any]) -> None:
    try:
        result = {"result": of()}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps({"name": name, **result}, default=str), flush=True)


def main(address: str, directory: Path) -> None:
    from pyspark.sql import SparkSession

    # A client of a server is no session of Cepheid's: settings of a user alone.
    spark = SparkSession.builder.remote(address).getOrCreate()
    events = spark.createDataFrame(ROWS, COLUMNS)
    table = pa.Table.from_pandas(pd.DataFrame(ROWS, columns=[column.split()[0] for column in COLUMNS.split(", ")]))

    for name, (query, options) in CASES.items():

        def both(query: str = query, options: dict[str, Any] = options) -> list[list[str]]:
            return [
                rows(cepheid.match(query, table, **options)),
                rows(cepheid.match(query, events, **options).toArrow()),
            ]

        report(name, both)
    for name, options in SPARK_ALONE.items():

        def spark_alone(options: dict[str, Any] = options) -> list[list[str]]:
            return [rows(cepheid.match(PAIR, table)), rows(cepheid.match(PAIR, events, **options).toArrow())]

        report(name, spark_alone)

    path = str(directory / "events.parquet")
    events.write.parquet(path)
    events.createOrReplaceTempView("readings")
    by_type = {kind: events.filter(events.type == kind).drop("type") for kind in ("Shelf", "Exit")}
    local = rows(cepheid.match(PAIR, table))
    counts: dict[str, Callable[[], Any]] = {
        "parquet": lambda: cepheid.match(PAIR, path, session=spark),
        "a view": lambda: cepheid.match(PAIR, "readings", session=spark),
        "a DataFrame by type": lambda: cepheid.match(PAIR, by_type),
        "transform": lambda: events.transform(cepheid.matches(PAIR)),
        "rejects": lambda: cepheid.match(PAIR, events, rejects=True)[0],
    }
    for name, of in counts.items():

        def counted(of: Callable[[], Any] = of) -> list[int]:
            return [len(local), of().count()]

        report(name, counted)
    long = ["match_variable", "match_index", "ts", "match_start"]
    report(
        "long",
        lambda: [
            rows(cepheid.match(PAIR, table, output="long").select(long)),
            rows(cepheid.match(PAIR, events, output="long").select(*long).toArrow()),
        ],
    )
    several = {"theft": THEFT, "pair": PAIR, "count": PAIR + " RETURN count(*) AS n"}
    report(
        "several queries",
        lambda: [
            sorted(line for found in cepheid.match(several, table) for line in rows(found)),
            sorted(line for found in cepheid.match(several, events) for line in rows(found.toArrow())),
        ],
    )
    report("explain", lambda: cepheid.explain(PAIR, events))
    report("explain html", lambda: cepheid.explain(PAIR, events, format="html"))
    report("explain several", lambda: cepheid.explain(several, events))
    report("analyze", lambda: cepheid.explain(PAIR, events, level="analyze"))
    report("statistics", lambda: cepheid.statistics(PAIR, events).rates)
    report("no file", lambda: cepheid.match(PAIR, str(directory / "none.parquet"), session=spark))
    report("no table", lambda: cepheid.match(PAIR, "nothing", session=spark))

    endless = spark.readStream.format("rate").load().selectExpr("'Shelf' AS type", "timestamp AS ts", "value AS tag_id")
    places: dict[str, Any] = {"checkpoint": str(directory / "checkpoint"), "output": str(directory / "output")}
    seconds = PAIR.replace("units", "seconds")
    report("a stream", lambda: cepheid.stream(seconds, endless, watermark="1 minute", **places))
    report("a stream of files", lambda: cepheid.stream(seconds, path, watermark="1 minute", **places))
    report("a directory elsewhere", lambda: cepheid.read_output("hdfs://host/output", session=spark))


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    main(sys.argv[1], Path(sys.argv[2]))
