"""Runs a random case on every backend and compares the results: the reference, each compiled evaluator (interpreted and
compiled), Spark, and simulated streams.

`python tests/differential.py --cases 20000 --seed 7` runs until the cases are done and prints each kind of difference
once, with the smallest case found for it (`make explore`).
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv, feather, orc
from random_cases import LANGUAGES, SHARES, Case, case
from random_values import PROFILES, TYPES

import cepheid
from cepheid.app.file_run import FileRun
from cepheid.engine import stepping
from cepheid.engine.query_text import QueryText
from cepheid.errors import CepheidError
from cepheid.io.inputs import Columns, Input
from cepheid.kernels.registry import EVALUATORS
from cepheid.values import without_zeros

TOLERANCE = 1e-12
"""For floats that are summed in another order."""
VARIANTS: Mapping[str, list[dict[str, str | bool]]] = {
    "stacks": [
        {"algorithm": "basic"},
        {"equalities": "first"},
        {"equalities": "none"},
        {"others": "late"},
        {"others": "multi"},
        {"window": "late"},
    ],
    "runs": [{"algorithm": "backtrack"}, {"merge": "off"}],
    "tree": [{"shape": "left-deep"}, {"shape": "right-deep"}, {"shape": "bushy"}, {"negation": "top"}],
    "any_runs": [],
}

# --- results as values ------------------------------------------------------------------------------------------------


def _counted(kind: pa.DataType) -> pa.DataType:
    """The type with times as numbers: Python's dates hold fewer of them."""
    is_ = pa.types
    if is_.is_struct(kind):
        return pa.struct([pa.field(f.name, _counted(f.type)) for f in kind])
    if is_.is_list(kind) or is_.is_large_list(kind):
        return pa.list_(_counted(kind.value_type))
    if is_.is_dictionary(kind):
        return _counted(kind.value_type)
    if is_.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.duration("us") if is_.is_duration(kind) else kind


def _integers(kind: pa.DataType) -> pa.DataType:
    is_ = pa.types
    if is_.is_struct(kind):
        return pa.struct([pa.field(f.name, _integers(f.type)) for f in kind])
    if is_.is_list(kind):
        return pa.list_(_integers(kind.value_type))
    return pa.int64() if is_.is_timestamp(kind) or is_.is_duration(kind) else kind


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    for change in (_counted, _integers):
        table = table.cast(pa.schema([pa.field(f.name, change(f.type)) for f in table.schema]))
    return [plain(row) for row in table.to_pylist()]


def plain(value: Any) -> Any:
    """The value in one form: NaN and -0.0 are values of their own, and equal decimals print alike."""
    match value:
        case float():
            return repr(value) if value != value or str(value) == "-0.0" else value
        case Decimal():
            return without_zeros(value) if value else Decimal(0)
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case _:
            return value


def are_equal(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return one == two or math.isclose(one, two, rel_tol=TOLERANCE)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(are_equal, one, two))
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(are_equal(one[name], two[name]) for name in one)
    return type(one) is type(two) and bool(one == two)


def _rough(value: Any) -> str:
    return repr(value) if not isinstance(value, float) else f"{value:.6g}"


def _order(row: Mapping[str, Any]) -> str:
    return repr([(name, _rough(value) if isinstance(value, float) else value) for name, value in sorted(row.items())])


def difference(expected: pa.Table, found: pa.Table, types: bool = True) -> str | None:
    """The first difference between two results, whose rows may be in any order."""
    if types and expected.schema.types != found.schema.types:
        pairs = zip(expected.schema, found.schema, strict=False)
        return "types: " + "; ".join(f"{a.name}: {a.type} / {b.type}" for a, b in pairs if a.type != b.type)
    return different_rows(rows_of(expected), rows_of(found))


def different_rows(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> str | None:
    if len(expected) != len(found):
        return f"{len(expected)} rows / {len(found)} rows"
    for a, b in zip(*(sorted(rows, key=_order) for rows in (expected, found)), strict=True):
        if not are_equal(a, b):
            names = [name for name in a if not are_equal(a[name], b.get(name))]
            return "; ".join(f"{name}: {a[name]!r} / {b.get(name)!r}" for name in names)
    return None


# --- backends ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    backend: str
    what: str
    detail: str
    """What differs, or where it was raised."""
    case: Case

    @property
    def signature(self) -> tuple[str, str]:
        """What findings have in common that probably have one cause."""
        return ("" if self.what.startswith("raises") else self.backend.partition(" ")[0]), self.what

    def __str__(self) -> str:
        return f"{self.backend}: {self.what}\n  {self.detail}\n{self.case!r}"


class Refused(Exception):
    """The backend cannot run the query, and says so."""


def outcome(run: Callable[[], Any]) -> Any:
    """The result, or an error as text. A refusal by an error of ours is `Refused`."""
    try:
        return run()
    except CepheidError as problem:
        raise Refused(str(problem)) from problem
    except Exception as problem:
        frames = traceback.extract_tb(problem.__traceback__)
        ours = [f for f in frames if "cepheid" in f.filename] or frames
        return (
            f"{type(problem).__name__} in {os.path.basename(ours[-1].filename)}:{ours[-1].name}: {str(problem)[:200]}"
        )


def match(drawn: Case, **options: Any) -> Any:
    return cepheid.match(drawn.text, drawn.table, start_column=drawn.start_column, **options)


def reference(drawn: Case) -> pa.Table:
    result: pa.Table = match(drawn, evaluator="reference")
    return result


@contextmanager
def compiled(always: bool) -> Iterator[None]:
    """Kernels over few events are interpreted, unless `always`."""
    little, jit = stepping.FEW_EVENTS, os.environ.get("CEPHEID_JIT")
    stepping.FEW_EVENTS = 0 if always else 1 << 60
    os.environ["CEPHEID_JIT"] = "1" if always else "0"
    try:
        yield
    finally:
        stepping.FEW_EVENTS = little
        os.environ.pop("CEPHEID_JIT") if jit is None else os.environ.__setitem__("CEPHEID_JIT", jit)


@dataclass
class Comparison:
    """One case on all backends. `ran` counts the runs by backend, so that a test can require some of each."""

    case: Case
    expected: pa.Table
    only: str | None = None
    """The only backend that is to run."""
    ran: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def check(self, backend: str, run: Callable[[], pa.Table], types: bool = True) -> None:
        if self.only not in (None, backend):
            return
        try:
            found = outcome(run)
        except Refused:
            self.ran[f"{backend.partition(' ')[0]} refused"] += 1
            return
        self.ran[backend.partition(" ")[0]] += 1
        if isinstance(found, str):
            self.findings.append(Finding(backend, "raises " + found.partition(":")[0], found, self.case))
            return
        try:
            differs = difference(self.expected, found, types)
        except Exception as problem:
            differs = f"results cannot be compared: {problem!r}"
        if differs is not None:
            what = "types" if differs.startswith("types") else "rows" if " rows / " in differs else "values"
            self.findings.append(Finding(backend, what, differs, self.case))

    def local(self, jit: bool = False) -> None:
        drawn, rng = self.case, random.Random(self.case.seed)
        suffix = " compiled" if jit else ""
        with compiled(jit):
            self.check("local" + suffix, lambda: match(drawn))
            for evaluator in EVALUATORS:
                name = evaluator.NAME
                self.check(name + suffix, lambda n=name: match(drawn, evaluator=n))  # type: ignore[misc]
                variants = [{}, {"rewrite": "off"}, *VARIANTS.get(name, [])]
                options = rng.choice(variants)
                if options and not jit:
                    self.check(
                        f"{name} {options}",
                        lambda n=name, o=options: match(drawn, evaluator=n, options=o),  # type: ignore[misc]
                    )
            if not jit and rng.randrange(3) == 0:
                self.check("adaptive", lambda: match(drawn, adaptive=True))

    def stream(self, streams: int = 2) -> None:
        """Simulated streams, cut anywhere, with a save and a restore of the state at every cut. A stream in which
        nothing ever comes has no summary."""
        if not self.case.table.num_rows or _is_far(self.case.table) or self.only not in (None, "stream"):
            return
        with compiled(False):
            try:
                found = outcome(
                    lambda: cepheid.verify(
                        self.case.text,
                        self.case.table,
                        streams=streams,
                        seed=self.case.seed,
                        start_column=self.case.start_column,
                    )
                )
            except Refused:
                self.ran["stream refused"] += 1
                return
        self.ran["stream"] += 1
        if isinstance(found, str):
            self.findings.append(Finding("stream", "raises " + found.partition(":")[0], found, self.case))
        elif not found.agrees:
            self.findings.append(Finding("stream", "differs from batch", f"{found} {found.differences[:1]}", self.case))

    def spark(self, session: Any) -> None:
        drawn = self.case
        if (held := for_spark(drawn.table)) is not None:
            frame, start = session.createDataFrame(held), drawn.start_column
            self.check("spark", lambda: cepheid.match(drawn.text, frame, start_column=start).toArrow(), types=False)


def for_spark(table: pa.Table) -> pa.Table | None:
    """The table in types that a DataFrame can be made of; None if it has unsigned 64-bit integers."""
    if any(pa.types.is_uint64(field.type) for field in table.schema):
        return None
    return table.cast(pa.schema([(field.name, _spark_type(field.type)) for field in table.schema]))


def _spark_type(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_unsigned_integer(kind) else _counted(kind)


def _is_far(table: pa.Table) -> bool:
    """Whether times lie beyond what a stream accepts."""
    return any(abs(t) > 1 << 50 for t in table.column("ts").cast(pa.int64()).to_pylist())


def compare(
    drawn: Case, *, jit: bool = False, stream: bool = True, session: Any = None, only: str | None = None
) -> Comparison | None:
    """All backends against the reference; None where the query is refused."""
    try:
        expected = outcome(lambda: reference(drawn))
    except Refused:
        return None
    if isinstance(expected, str):
        comparison = Comparison(drawn, pa.table({}))
        comparison.findings.append(Finding("reference", "raises " + expected.partition(":")[0], expected, drawn))
        return comparison
    comparison = Comparison(drawn, expected, only)
    comparison.ran["reference"] += 1
    comparison.ran["matches"] += expected.num_rows > 0
    comparison.local()
    if jit:
        comparison.local(jit=True)
    if stream:
        comparison.stream()
    if session is not None:
        comparison.spark(session)
    return comparison


# --- files ------------------------------------------------------------------------------------------------------------

FORMATS = ("jsonl", "csv", "parquet", "arrow", "orc")


def write_file(table: pa.Table, format: str, path: Path, rng: random.Random) -> None:
    """The events as a file. In JSON Lines, some types lack some attributes, and nulls may be left out."""
    match format:
        case "jsonl":
            lacking = {(rng.choice(TYPES), rng.choice("vwsbk")) for _ in range(rng.randrange(4))}
            lines = []
            for row in table.to_pylist():
                has = {
                    n: v
                    for n, v in row.items()
                    if (row["type"], n) not in lacking and (v is not None or rng.randrange(2))
                }
                lines.append(json.dumps(has, default=str) + "\n")
            path.write_text("".join(lines), encoding="utf-8")
        case "csv":
            csv.write_csv(table, path)
        case "parquet":
            pq.write_table(table, path, row_group_size=max(table.num_rows // 2, 1))
        case "arrow":
            feather.write_feather(table, str(path))
        case _:
            orc.write_table(table, str(path))


def of_file(drawn: Case, path: Path, backend: str) -> list[dict[str, Any]]:
    """The matches in a file, as the command line writes them."""
    query, written, columns = QueryText(drawn.text), io.BytesIO(), Columns(start=drawn.start_column)
    FileRun.open(query, query.parse(), [Input(str(path))], columns, backend=backend).write(written, "jsonl")
    return [json.loads(line) for line in written.getvalue().decode().splitlines()]


def compare_files(
    drawn: Case, format: str, backends: Sequence[str] = ("local",), only: str | None = None
) -> Comparison | None:
    """The backends on a file of the events; None where the format cannot hold them or the query is refused."""
    comparison = Comparison(drawn, pa.table({}), only)
    with tempfile.TemporaryDirectory() as directory, compiled(False):
        path = Path(directory) / f"events.{format}"
        try:
            write_file(drawn.table, format, path, random.Random(drawn.seed))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError):
            return None
        try:
            expected = outcome(lambda: of_file(drawn, path, "reference"))
        except Refused:
            return None
        comparison.ran[f"{format} reference"] += 1
        for backend in ("reference", *backends):
            name = f"{format}-{backend}"
            try:
                found = expected if backend == "reference" else outcome(lambda b=backend: of_file(drawn, path, b))  # type: ignore[misc]
            except Refused as refusal:
                if "no evaluator can run" in str(refusal):  # only the reference runs every query
                    comparison.ran[f"{name} refused"] += 1
                    continue
                found = f"Refused: {refusal}"
            comparison.ran[name] += 1
            differs = (
                found
                if isinstance(found, str)
                else None
                if isinstance(expected, str)
                else different_rows(expected, found)
            )
            if differs is not None:
                what = f"raises {differs.partition(':')[0]}" if isinstance(found, str) else "differs"
                comparison.findings.append(Finding(name, what, differs, drawn))
    return comparison


def smallest(finding: Finding, again: Callable[[Case], Comparison | None], patience: int = 60) -> Finding:
    """The finding with parts of the case left out that it does not need."""
    tries = 0
    while tries < patience:
        for smaller in finding.case.smaller():
            tries += 1
            comparison = again(smaller)
            same = [f for f in (comparison.findings if comparison else ()) if f.signature == finding.signature]
            if same:
                finding = same[0]
                break
            if tries >= patience:
                return finding
        else:
            return finding
    return finding


# --- exploring --------------------------------------------------------------------------------------------------------


def explore(
    cases: int,
    seed: int,
    jit_every: int,
    spark_every: int,
    each: int,
    profile: str,
    only: str | None,
    format: str | None,
    language: str | None = None,
) -> int:
    session = cepheid.session("local[2]") if spark_every else None
    found: dict[tuple[str, str], list[Finding]] = {}
    ran: Counter[str] = Counter()
    began = time.monotonic()
    for number in range(cases):
        rng = random.Random(f"{seed} {number}")
        drawn = case(rng, PROFILES[profile], [language] if language else SHARES)
        with_jit = bool(jit_every) and number % jit_every == 0
        with_spark = session if spark_every and number % spark_every == 0 else None
        if format is None:
            comparison = compare(drawn, jit=with_jit, session=with_spark, only=only)
        else:
            comparison = compare_files(drawn, format, ("local", "spark") if with_spark else ("local",))
        ran["cases"] += 1
        if comparison is None:
            ran["refused"] += 1
            continue
        ran.update(comparison.ran)
        for finding in comparison.findings:
            known = found.setdefault(finding.signature, [])
            if len(known) < each:

                def again(smaller: Case, f: Finding = finding) -> Comparison | None:
                    if format is not None:
                        return compare_files(
                            smaller, format, ("local", "spark") if "spark" in f.backend else ("local",)
                        )
                    on_spark = session if f.backend == "spark" else None
                    return compare(
                        smaller,
                        jit="compiled" in f.backend,
                        stream=f.backend == "stream",
                        session=on_spark,
                        only=f.backend,
                    )

                known.append(smallest(finding, again, 20 if "spark" in finding.backend else 80))
                print(f"--- case {seed} {number}: {known[-1]}", flush=True)
            else:
                known.append(finding)
    print(f"{time.monotonic() - began:.0f} s:", dict(sorted(ran.items())))
    for signature, many in sorted(found.items(), key=lambda item: -len(item[1])):
        print(f"{len(many):6} {' '.join(signature)}")
    return 1 if found else 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--cases", type=int, default=int(os.environ.get("CEPHEID_CASES", "1000")))
    arguments.add_argument("--seed", type=int, default=int(time.time()))
    arguments.add_argument("--jit-every", type=int, default=200)
    arguments.add_argument("--spark-every", type=int, default=0)
    arguments.add_argument("--each", type=int, default=1, help="how many of one kind are shown")
    arguments.add_argument("--profile", default="mixed", choices=PROFILES)
    arguments.add_argument("--only", help="one backend")
    arguments.add_argument("--language", choices=LANGUAGES, help="queries of one language")
    arguments.add_argument("--format", choices=FORMATS, help="files instead of tables in memory")
    chosen = arguments.parse_args()
    sys.exit(
        explore(
            chosen.cases,
            chosen.seed,
            chosen.jit_every,
            chosen.spark_every,
            chosen.each,
            chosen.profile,
            chosen.only,
            chosen.format,
            chosen.language,
        )
    )
