"""Compiled kernels on disk: identified by content, shared by processes, never stale, damaged or of somebody else."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cepheid.codegen import compile as compiling
from cepheid.runtime import code_cache, jit

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
    environment = {**os.environ, "CEPHEID_JIT": "1", "CEPHEID_CACHE": str(cache), **environment}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, **pipes)


def result(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output.split()[0]


def machine_code(cache: Path) -> dict[str, int]:
    """The files that hold machine code, and when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in cache.rglob("*.code")}


def test_several_processes_compile_once_and_share(tmp_path: Path) -> None:
    assert [result(process) for process in [run(tmp_path) for _ in range(3)]] == ["42"] * 3
    written = machine_code(tmp_path)
    assert len(written) == 1
    assert result(run(tmp_path)) == "42"
    assert machine_code(tmp_path) == written


def test_with_the_jit_off_nothing_is_compiled(tmp_path: Path) -> None:
    assert run(tmp_path, CEPHEID_JIT="0").communicate()[0].split() == ["42", "False"]
    assert not machine_code(tmp_path)


def test_the_name_depends_on_everything_the_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(source: str = "a", types: tuple[str, ...] = ("int",)) -> Path:
        return compiling._cache(source, types).paths(None)[0]

    here = entry()
    assert len({here, entry("b"), entry(types=("int64",))}) == 3
    with monkeypatch.context() as changed:
        changed.setattr(compiling, "_helpers", lambda: "other helpers")
        assert entry() != here
    with monkeypatch.context() as changed:
        changed.setattr(code_cache, "environment", lambda: "another processor")
        assert entry() != here
    assert entry() == here


def test_the_code_of_a_helper_depends_on_the_helpers_that_it_calls() -> None:
    def program(factor: int, doc: str) -> dict[str, Any]:
        module: dict[str, Any] = {}
        exec(f"FACTOR = {factor}\ndef inner(x): return x * FACTOR\ndef outer(x):\n  '{doc}'\n  return inner(x)", module)
        return module

    one, other, documented = program(1, "a"), program(2, "a"), program(1, "b")
    assert jit.content(one["outer"]) == jit.content(documented["outer"]) != jit.content(other["outer"])


# --- faults -----------------------------------------------------------------------------------------------------------


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def _replace_by_a_pickle(path: Path) -> None:
    """Machine code of somebody else: unpickling it would end the process."""
    path.write_bytes(b"cos\n_exit\n(I7\ntR.")


def _let_others_write(path: Path) -> None:
    path.chmod(0o666)


def _be_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage", [_empty, _truncate, _flip_a_bit, _replace_by_a_pickle, _let_others_write, _be_a_directory]
)
def test_a_damaged_entry_is_compiled_again(damage: Callable[[Path], None], tmp_path: Path) -> None:
    places = {"NUMBA_CACHE_DIR": str(tmp_path / "helpers")}
    assert result(run(tmp_path, **places)) == "42"
    entries = sorted(tmp_path.rglob("*.code"))
    assert len(entries) >= 2  # the kernel and its helper
    for entry in entries:
        damage(entry)
    assert result(run(tmp_path, **places)) == "42"
    repaired = [entry for entry in entries if entry.is_file() and code_cache.read(entry) is not None]
    assert repaired == ([] if damage is _be_a_directory else entries)


def test_the_code_of_another_entry_is_not_accepted(tmp_path: Path) -> None:
    one, other = tmp_path / "kernel-1.code", tmp_path / "kernel-2.code"
    assert code_cache.write(one, b"code")
    assert code_cache.read(one) == b"code"
    other.write_bytes(one.read_bytes())
    assert code_cache.read(other) is None


def _file_in_its_place(directory: Path) -> Path:
    directory.write_text("")
    return directory


def _below_a_file(directory: Path) -> Path:
    directory.write_text("")
    return directory / "cache"


def _writable_by_others(directory: Path) -> Path:
    directory.mkdir()
    directory.chmod(0o777)
    return directory


def _of_another_user(directory: Path) -> Path:
    directory.mkdir()
    if os.getuid() != 0:
        pytest.skip("only root can give a directory away")
    os.chown(directory, 12345, -1)
    return directory


@pytest.mark.parametrize("make", [_file_in_its_place, _below_a_file, _writable_by_others, _of_another_user])
def test_without_a_usable_directory_kernels_are_cached_in_a_private_one(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    cache, temporary = make(tmp_path / "cache"), tmp_path / "temporary"
    temporary.mkdir()
    for _ in range(2):
        process = run(cache, TMPDIR=str(temporary))
        output, errors = process.communicate()
        assert (process.returncode, output.split()[:1]) == (0, ["42"])
        assert errors.count("the kernel cache") == 1 and str(cache) in errors
    (private,) = temporary.iterdir()
    assert private.stat().st_mode & 0o777 == 0o700
    assert len(machine_code(private)) == 1
    assert not (cache.is_dir() and machine_code(cache))


def test_a_cache_that_cannot_be_written_costs_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert not code_cache.write(tmp_path / "kernel-1.code", b"code")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_helpers_are_kept_where_nobody_else_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """In a directory of everybody, another user could put links under the names of files to be written."""
    (tmp_path / "cepheid").mkdir()
    (tmp_path / "cepheid").chmod(mode)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CEPHEID_CACHE", str(tmp_path / "kernels"))
    kernels = tmp_path / "kernels"
    assert code_cache.helper_directories() == ((tmp_path / "cepheid") if mode == 0o755 else kernels, kernels)
