"""Compiled kernels on disk: found again by content, shared by processes, never stale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cepheid.codegen import compile as compiling

SOURCE = """
def step(now, values):
    values[0] = now + 1
    return values, slot_of(values, values, now)
"""
PROGRAM = f"""
import sys
import numpy as np
from cepheid.codegen.compile import compiled
step = compiled({SOURCE!r}, ["int", "int64!"])
values, _ = step(41, np.full(4, -1, np.int64))
print(values[0], "numba" in sys.modules)
"""


def run(cache: Path, **environment: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "CEPHEID_CACHE": str(cache), **environment}
    return subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True)


def machine_code(cache: Path) -> dict[str, int]:
    """The files that hold machine code, and when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in cache.rglob("*.nbc")}


def test_several_processes_compile_once_and_share(tmp_path: Path) -> None:
    first = [run(tmp_path) for _ in range(3)]
    assert [process.communicate()[0].split()[0] for process in first] == ["42"] * 3
    written = machine_code(tmp_path)
    assert len(written) == 1
    assert run(tmp_path).communicate()[0].split()[0] == "42"
    assert machine_code(tmp_path) == written


def test_with_the_jit_off_nothing_is_compiled(tmp_path: Path) -> None:
    assert run(tmp_path, CEPHEID_JIT="0").communicate()[0].split() == ["42", "False"]
    assert not machine_code(tmp_path)


def test_the_name_depends_on_everything_the_code_depends_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CEPHEID_CACHE", str(tmp_path))
    here = compiling._surroundings()
    assert compiling._digest("a", here) != compiling._digest("b", here)
    compiling._surroundings.cache_clear()
    monkeypatch.setattr("numba.__version__", "0.0.0")
    assert compiling._surroundings() != here
    compiling._surroundings.cache_clear()


def test_a_half_written_kernel_is_never_seen(tmp_path: Path) -> None:
    target = tmp_path / "kernel.py"
    compiling._write_whole(target, "x = 1\n")
    assert target.read_text() == "x = 1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["kernel.py"]
