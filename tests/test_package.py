"""The wheel, installed without the checkout, is a working Cepheid."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import cepheid

ROOT = Path(__file__).parents[1]


def command(*words: object, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_installed_wheel_works(tmp_path: Path) -> None:
    """The dependencies are those of this environment: its path file, which leads to the checkout, is not read."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    command(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("cepheid-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    data = {
        str(file.relative_to(ROOT / "src"))
        for file in (ROOT / "src" / "cepheid").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert data <= names and {"cepheid/py.typed", "cepheid/spark/log4j2.properties"} <= data

    command(sys.executable, "-m", "venv", "--without-pip", "env", cwd=tmp_path)
    (site,) = tmp_path.glob("env/lib/python*/site-packages")
    command(*pip, "install", "--no-deps", "--target", site, wheel, cwd=tmp_path)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = tmp_path / "env" / "bin" / "python"
    assert command(python, "-c", "import cepheid; print(cepheid.__file__)", cwd=tmp_path).startswith(str(site))

    (tmp_path / "events.csv").write_text("type,ts,id\nA,1,7\nB,2,7\n")
    program = (python, site / "bin" / "cepheid")
    assert command(*program, "--version", cwd=tmp_path).strip().endswith(cepheid.__version__)
    run = ("run", "--query", "EVENT SEQ(A x, B y) WHERE [id] WITHIN 5", "--input", "events.csv", "--backend", "local")
    assert '"id": 7' in command(*program, *run, cwd=tmp_path)
