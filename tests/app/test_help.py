"""The help of the commands: each has an example."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from text_harness import cepheid
from typer.testing import CliRunner

from cepheid.app import cli


@pytest.mark.parametrize(
    "command",
    ["run", "check", "explain", "deploy", "stream", "state", "detect", "batch-run", "source serve", "source stats"],
)
def test_the_help_has_an_example_whose_options_exist(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # no file of the example exists
    found = cepheid(*command.split(), "--help")
    (example,) = re.findall(r"Example:\n\s+(cepheid .*)", found.stdout)
    done = cepheid(*shlex.split(example)[1:])
    assert done.exit_code == 2 and done.stderr.startswith("error: "), done.output


def test_a_query_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "theft.sase").write_text("EVENT SEQ(A a, B b)")
    (tmp_path / "events.csv").write_text("type,ts\n")
    missing = CliRunner().invoke(cli.app, ["check", "--query-file", str(tmp_path / "theft.sas")])
    assert missing.exit_code == 2 and "did you mean `theft.sase`?" in missing.stderr
    events = CliRunner().invoke(cli.app, ["check", "--query-file", str(tmp_path / "events.csv")])
    assert events.exit_code == 2 and "is a file of events by its name" in events.stderr and "--input" in events.stderr
