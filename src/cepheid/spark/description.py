"""What EXPLAIN says about a query on Spark: how the work is divided, and why not further."""

from __future__ import annotations

from cepheid.errors import NotAvailable
from cepheid.optimize.distribution import Keyed, Sliced, Undivided, may_drop
from cepheid.physical import REFERENCE
from cepheid.spark.acquiring import OPTION, SCAN, STEPS, is_wanted, why_not
from cepheid.spark.batch import SparkBatch
from cepheid.spark.reading import read_text


def notes(batch: SparkBatch) -> list[str]:
    """How the work is divided."""
    return [*_steps(batch), *_tasks(batch)]


def analyzed(batch: SparkBatch) -> list[str]:
    """How the work is divided, and what was read of the files."""
    batch = batch.acquired()
    read = batch.counted()
    if read is None:
        raise NotAvailable(
            "level `analyze` of this query on Spark: only what workers read of files is counted",
            expected="a path or table of Parquet files, and a query without others",
            hint="analyze a sample outside Spark: `explain(query, df.limit(100_000).toArrow(), ...)`",
        )
    return [*notes(batch), read_text("actual", read)]


def _steps(batch: SparkBatch) -> list[str]:
    if batch.steps is not None:
        return batch.steps.notes()
    if batch.scans is not None:
        return [f"one scan, not steps: {batch.scans}"]
    option, files = batch.prepared.plan.options.get(OPTION), batch.source.files
    if batch.is_whole or option == SCAN or why_not(batch.prepared, batch.source) is not None:
        return []
    if option == STEPS or (files is None and is_wanted(batch.prepared, batch.source)):
        return ["in steps: the rarest events first, then the rows around them"]
    if files is None or batch.tasks.one_reads(files):
        return []
    return ["in steps or in one scan: a sample of the row groups decides"]


def _tasks(batch: SparkBatch) -> list[str]:
    files, prepared = batch.source.files, batch.prepared
    if files is not None and not batch.is_whole and batch.tasks.one_reads(files):
        return [f"one task reads the files and evaluates them: {files.rows:,} rows are too few to divide"]
    match batch.distribution:
        case Keyed(attributes=attributes):
            divided = f"shuffled by {', '.join(attributes)}; every task evaluates all keys of its partition at once"
        case Sliced(before, after):
            back = f" and {prepared.clock.length(before)} before" if before else ""
            divided = f"time is cut into slices; each also sees {prepared.clock.length(after)} after it{back}"
        case Undivided(reason):
            divided = f"one task sees all events: {reason}"
    dropped = "irrelevant events are dropped first" if may_drop(prepared.plan) else None
    merging = "each task summarises its matches, and one task merges the summaries" if batch.is_merged else None
    oracle = "the reference evaluator runs inside that task" if prepared.plan.evaluator == REFERENCE else None
    return [note for note in (divided, dropped, merging, oracle) if note is not None]
