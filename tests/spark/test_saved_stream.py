"""A stream that an earlier version of Cepheid left in the middle of its input goes on in this one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from saved_stream import FORMATS, SAVED_BEFORE, command, matches, read_rest, unpack
from typer.testing import CliRunner

from cepheid.app.cli import app
from cepheid.streaming.state import STATE_FORMAT

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("format", FORMATS)
def test_a_saved_checkpoint_is_resumed_exactly_once(spark: SparkSession, tmp_path: Path, format: str) -> None:
    unpack(format, tmp_path)
    before, complete = matches(tmp_path / "output"), matches(tmp_path / "complete")
    assert all(complete[name] and before[name] != complete[name] for name in complete)
    read_rest(tmp_path)
    ended = CliRunner().invoke(app, command(tmp_path))
    assert ended.exit_code == 0, ended.output
    assert "3 batches" in ended.output
    assert matches(tmp_path / "output") == complete


@pytest.mark.parametrize("format", FORMATS)
def test_a_checkpoint_of_version_0_1_is_refused_with_what_to_do(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    unpack(format, tmp_path, SAVED_BEFORE)
    before = matches(tmp_path / "output")
    ended = CliRunner().invoke(app, command(tmp_path))
    assert ended.exit_code == 2 and matches(tmp_path / "output") == before
    first, *rest = ended.stderr.splitlines()
    assert f"has state format 4, written by Cepheid 0.1.0; this version reads format {STATE_FORMAT}" in first
    assert rest == [
        "  hint: finish the stream with the version that wrote it, or use a new checkpoint and a new output"
    ]
