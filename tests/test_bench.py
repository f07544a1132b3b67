"""Every benchmark runs, prints its table and draws its picture. How fast it is, is not for tests to say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import flink, next_paced, readme, spark, spark_languages, spark_rules, spark_steps, streaming
from bench.__main__ import BENCHMARKS, app
from bench.measure import Disagreement, Outcome, Sample, require_agreement
from bench.report import Report, rate

ON_SPARK = [
    b.name
    for module in (spark, spark_languages, spark_rules, spark_steps, flink, streaming, next_paced)
    for b in module.BENCHMARKS
]


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_SPARK)
def test_quick_run_on_spark(name: str, tmp_path: Path) -> None:
    """In a process of its own, since it starts and stops sessions."""
    command = [sys.executable, "-m", "bench", name, "--quick", "--output", str(tmp_path)]
    subprocess.run(command, check=True, cwd=Path(__file__).parent.parent)
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in ON_SPARK])
def test_quick_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPHEID_JIT", "0")
    report = BENCHMARKS[name].run(True)
    assert report.name == name
    assert len(report.samples) >= 2
    assert any(sample.outcome.matches for sample in report.samples) or name in ("open-runs", "ced-model")
    # Only this one: its name may be a prefix of that of a benchmark that starts and stops Spark's session.
    monkeypatch.setattr("bench.__main__.BENCHMARKS", {name: type(BENCHMARKS[name])(name, "", lambda quick: report)})
    result = CliRunner().invoke(app, [name, "--quick", "--output", str(tmp_path)], catch_exceptions=False)
    assert report.title[:30] in result.output
    assert all(variant in result.output for variant in report.variants)
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_variants_must_find_the_same() -> None:
    one = Sample(100, "one", 10, Outcome(3), 1.0, 1.0)
    two = Sample(100, "two", 10, Outcome(4), 1.0, 1.0)
    require_agreement([one, Sample(100, "fewer events", 5, Outcome(1), 1.0, 1.0)])
    with pytest.raises(Disagreement, match="one: 3 matches, two: 4 matches"):
        require_agreement([one, two])


def test_names_choose_by_their_start() -> None:
    result = CliRunner().invoke(app, ["sase-plus", "--list"])
    assert "sase-plus-8a" in result.output
    assert "w1" not in result.output


def test_unknown_name() -> None:
    result = CliRunner().invoke(app, ["nothing"])
    assert result.exit_code == 2


@pytest.mark.parametrize(("number", "text"), [(12.0, "12"), (1_234.0, "1.23 k"), (25_100_000.0, "25.1 M")])
def test_rates(number: float, text: str) -> None:
    assert rate(number) == text


def test_the_ratios_of_the_readme() -> None:
    """The list is rewritten as it stands, so that a new measurement changes figures only."""

    def report(name: str, baseline: str | None, samples: list[tuple[str, float]]) -> Report:
        made = tuple(Sample("p", variant, 1000, Outcome(1), cpu, cpu) for variant, cpu in samples)
        return Report(name, "", "stream", made, "", baseline)

    kernel = [
        (v + n, c) for v in ("Cepheid, DataFrame", "Cepheid, Parquet") for n, c in (("", 1.1), (", no kernel", 1.0))
    ]
    reports = {
        "flink": report("flink", "F", [("F", 30.0), ("Cepheid on Spark", 1.0), ("Cepheid, read by Spark", 3.0)]),
        "spark-joins": report("spark-joins", "J", [("J", 7.0), ("Cepheid, Parquet", 1.0)]),
        "spark-kernel": report("spark-kernel", None, kernel),
    }
    measured = readme.ratios(reports)
    assert "**30 times**" in measured and "it is 10 times" in measured and "**7 times**" in measured
    assert "**91 % to 91 %**" in measured
    page = (Path(__file__).parent.parent / "README.md").read_text()
    changed = readme.replaced(page, measured)
    figures = r"[0-9]+(?: %)?(?: to [0-9]+(?: %)?)?"
    assert re.sub(figures, "N", changed).split() == re.sub(figures, "N", page).split()
