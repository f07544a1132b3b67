"""What set-up compiles is what the kernels of queries share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cepheid.app import warm_up
from cepheid.datasets import synthetic

FIRST_QUERY = """
import cepheid
from cepheid.datasets import stock, synthetic
cepheid.match("EVENT SEQ(E4, E5, !(E6), E7) WHERE [attr1] WITHIN 50", synthetic(30_000, 20, (500,), seed=2))
cepheid.match(
    "PATTERN SEQ(Stock a, Stock+ b[]) WHERE skip_till_next_match(a, b[]) "
    "{ [symbol] and a.volume < 5 and b[i].volume < 90 } WITHIN 40", stock(30_000, seed=2))
"""


def helpers(cache: Path) -> set[str]:
    """The names of the files that hold machine code of helpers."""
    return {path.name for path in cache.rglob("*.code") if not path.name.startswith("kernel-")}


@pytest.mark.slow
def test_after_set_up_a_query_compiles_no_more_than_itself(tmp_path: Path) -> None:
    def run(*program: str, kernels: str) -> None:
        places = {"CEPHEID_CACHE": str(tmp_path / kernels), "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
        subprocess.run([sys.executable, *program], env={**os.environ, **places}, capture_output=True, check=True)

    run("-m", "cepheid.app.warm_up", kernels="of set-up")
    before = helpers(tmp_path)
    run("-c", FIRST_QUERY, kernels="of the user")
    assert before and helpers(tmp_path) == before


def test_set_up_does_not_report_that_its_queries_find_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warm_up, "_one_of_each", lambda: [("EVENT SEQ(E1, E2) WITHIN 0", synthetic(10, 20, (5,)))])
    warm_up.warm_up()  # a warning of this package is an error in tests
    output = capfd.readouterr()
    assert output.out == "" and "no match" not in output.err
