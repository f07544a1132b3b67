"""The help of the commands: each has an example."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from text_harness import cepheid


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
