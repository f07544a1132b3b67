"""One run path: a query is parsed, bound, sampled and lowered once, and its input is opened once."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.app import cli
from cepheid.engine.sampling import MIN_EVENTS

ROOT = str(Path(cepheid.__file__).parent) + "/"
QUERY = "PATTERN A;B;C WHERE A.v > C.v WITHIN 3 units"
EVENTS = pa.table(
    {
        "type": ["ABC"[number % 3] for number in range(MIN_EVENTS)],
        "ts": list(range(MIN_EVENTS)),
        "v": [number % 7 for number in range(MIN_EVENTS)],
    }
)
STAGES = {
    "lang/__init__.py parse": "parse",
    "binding.py bind": "bind",
    "engine/sampling.py _observed": "sample",
    "optimize/lower.py lower": "lower",
    "io/files.py open_files": "open",
}
PLANNED = {"parse": 1, "bind": 1, "sample": 1, "lower": 1}


def stages(call: Callable[[], Any]) -> Counter[str]:
    """How often each stage ran."""
    counted = Counter[str]()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT):
            stage = STAGES.get(f"{code.co_filename.removeprefix(ROOT)} {code.co_qualname}")
            if stage is not None:
                counted[stage] += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    return counted


def command(*arguments: object) -> Callable[[], None]:
    def call() -> None:
        done = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
        assert done.exit_code == 0, done.stderr

    return call


@pytest.fixture(params=["jsonl", "csv", "parquet"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"events.{request.param}"
    if request.param == "parquet":
        pq.write_table(EVENTS, path)
    elif request.param == "csv":
        rows = [",".join(map(str, row.values())) for row in EVENTS.to_pylist()]
        path.write_text("\n".join([",".join(EVENTS.column_names), *rows, ""]))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in EVENTS.to_pylist()))
    return path


def test_match_and_explain_plan_once() -> None:
    assert stages(lambda: cepheid.match(QUERY, EVENTS)) == PLANNED
    assert stages(lambda: cepheid.explain(QUERY, EVENTS)) == PLANNED
    assert stages(lambda: cepheid.explain(QUERY, EVENTS, level="analyze")) == PLANNED
    assert stages(lambda: cepheid.statistics(QUERY, EVENTS)) == PLANNED


def test_run_explain_and_check_plan_once(file: Path) -> None:
    once = {**PLANNED, "open": 1}
    assert stages(command("run", "--query", QUERY, "--input", file, "--backend", "local")) == once
    assert stages(command("explain", QUERY, "--input", file)) == once
    assert stages(command("check", QUERY, "--input", file)) == {name: 1 for name in once if name != "sample"}


def test_the_reference_backend_goes_the_same_path(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in EVENTS.slice(0, 20).to_pylist()))
    found = stages(command("run", "--query", QUERY, "--input", file, "--backend", "reference"))
    assert found == {"parse": 1, "bind": 1, "lower": 1, "open": 1}


def test_batch_run_plans_once_for_each_case(tmp_path: Path) -> None:
    for name in ("a", "b"):
        case = tmp_path / "cases" / name
        case.mkdir(parents=True)
        (case / "query.txt").write_text(QUERY)
        (case / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in EVENTS.to_pylist()))
    call = command("batch-run", tmp_path / "cases", tmp_path / "out", "--backend", "local")
    assert stages(call) == {**dict.fromkeys(PLANNED, 2), "open": 2}


def test_the_plan_that_explain_shows_is_the_plan_that_runs(file: Path) -> None:
    explained = CliRunner().invoke(cli.app, ["explain", QUERY, "--input", str(file)]).stdout
    summary = CliRunner().invoke(cli.app, ["run", "--query", QUERY, "--input", str(file), "--backend", "local"]).stderr
    evaluator = summary.rpartition("`")[0].rpartition("`")[2]
    assert f"evaluator: {evaluator}" in explained
