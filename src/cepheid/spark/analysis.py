"""EXPLAIN ANALYZE of a DataFrame: every task counts what the plan does with its events, and the driver adds up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from cepheid.analysis import Analysis, OperatorCounts, VariableCounts
from cepheid.engine.run import analyze
from cepheid.errors import NotAvailable
from cepheid.optimize.distribution import Keyed
from cepheid.spark.catalyst import column
from cepheid.spark.worker import POSITION, Renamed, WholeTask

if TYPE_CHECKING:
    from cepheid.spark.batch import SparkBatch

_COUNTED = "analysis"


@dataclass(frozen=True, slots=True)
class AnalysisTask:
    """What the plan does with the events of a partition, as JSON."""

    whole: WholeTask

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source, _ = self.whole.opened(batches)
        if source is not None:
            counted = analyze(self.whole.compiled, source)
            operators = {name: (of.made, of.tried, of.predicates) for name, of in counted.operators.items()}
            text = json.dumps((dict(counted.counters), operators, dict(counted.variables), counted.windows))
            yield pa.RecordBatch.from_pydict({_COUNTED: [text]})


def analysis(batch: SparkBatch) -> Analysis:
    """Runs the query over all events of a DataFrame, by its key or in one task, and adds up the counters."""
    if batch.is_whole or batch.is_fed:
        raise NotAvailable(
            "level `analyze` of this query on Spark",
            expected="a query that does not use others, and that a compiled evaluator runs",
            hint="analyze a sample outside Spark: `explain(query, df.limit(100_000).toArrow(), ...)`",
        )
    frame, key = batch.source.frame.filter(batch.source.is_event), batch.distribution
    names = [*batch.names_of_whole(), POSITION]
    frame = frame.select(*map(column, names[:-1]), F.monotonically_increasing_id().alias(POSITION))
    if isinstance(key, Keyed):
        keys = [column for column in batch.key_columns(key) if column is not None]
        frame = frame.repartition(batch.tasks.count, *keys)
    else:
        frame = batch.tasks.in_one(frame)
    task = Renamed(AnalysisTask(WholeTask(batch.shipped, None, False)), tuple(names))
    renamed = frame.toDF(*(f"c{number}" for number in range(len(names))))
    return _sum([json.loads(row[0]) for row in renamed.mapInArrow(task, f"{_COUNTED} string").collect()], batch)


def _sum(parts: list[list[object]], batch: SparkBatch) -> Analysis:
    counters, of_type, passed = Counter[str](), Counter[str](), Counter[str]()
    operators: dict[str, OperatorCounts] = {}
    windows: float | None = None
    for part in parts:
        counted, of_operators, variables, own = part
        counters.update(counted)  # type: ignore[call-overload]
        for name, (made, tried, tested) in of_operators.items():  # type: ignore[attr-defined]
            known = operators.get(name, OperatorCounts(0, None if tried is None else 0, None if tested is None else 0))
            operators[name] = OperatorCounts(
                known.made + made, _plus(known.tried, tried), _plus(known.predicates, tested)
            )
        for name, (types, passing) in variables.items():  # type: ignore[attr-defined]
            of_type[name] += types
            passed[name] += passing
        windows = own if windows is None or (own is not None and own > windows) else windows  # type: ignore[assignment, operator]
    variables = {step.var: VariableCounts(of_type[step.var], passed[step.var]) for step in batch.prepared.plan.steps}
    return Analysis(counters, operators, variables, windows)


def _plus(one: int | None, two: int | None) -> int | None:
    return two if one is None else one if two is None else one + two
