"""A stream that an earlier version of Cepheid left in the middle of its input goes on in this one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from saved_stream import FORMATS, command, matches, read_rest, unpack
from typer.testing import CliRunner

from cepheid.app.cli import app

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("format", FORMATS)
def test_an_old_checkpoint_is_resumed_exactly_once(spark: SparkSession, tmp_path: Path, format: str) -> None:
    unpack(format, tmp_path)
    before, complete = matches(tmp_path / "output"), matches(tmp_path / "complete")
    assert all(complete[name] and before[name] != complete[name] for name in complete)
    read_rest(tmp_path)
    ended = CliRunner().invoke(app, command(tmp_path))
    assert ended.exit_code == 0, ended.output
    assert "3 batches" in ended.output
    assert matches(tmp_path / "output") == complete


def test_an_old_state_format_is_refused_with_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    unpack("jsonl", tmp_path)
    description = tmp_path / "checkpoint" / "_cepheid" / "stream.json"
    made = json.loads(description.read_text())
    made["stream"]["state format"] = 3
    description.write_text(json.dumps(made))
    ended = CliRunner().invoke(app, command(tmp_path))
    assert ended.exit_code != 0
    assert "state format: `3`, now `4`" in ended.output
    assert "use a new checkpoint directory" in ended.output
