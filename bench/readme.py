"""The three ratios of the README, from the reports of three benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.report import Report

NAME = "readme"
BENCHMARKS = ("flink", "spark-joins", "spark-kernel")
_BEGIN, _END = "<!-- measured by `make bench ARGS=readme` -->\n", "<!-- end of the measured ratios -->\n"


def ratios(reports: Mapping[str, Report]) -> str:
    """The list of the README in Markdown."""
    flink, joins, kernel = (reports[name] for name in BENCHMARKS)
    limits = [
        _throughput(kernel, variant, point) / _throughput(kernel, f"{variant}, no kernel", point)
        for variant in ("Cepheid, DataFrame", "Cepheid, Parquet")
        for point in kernel.points
    ]
    alone, by_spark = (_times(_against(flink, v)) for v in ("Cepheid on Spark", "Cepheid, read by Spark"))
    joined = _times(_against(joins, "Cepheid, Parquet"))
    return (
        f"- **{alone} times** the throughput of Flink's MATCH_RECOGNIZE, both from one file "
        "(`make bench ARGS=flink`,\n  [figures](docs/benchmarks/flink.md))."
        f" If Spark instead of Cepheid reads a CSV file, it is {by_spark} times.\n"
        f"- **{joined} times** the throughput of the same pattern as Spark SQL joins "
        "(`make bench ARGS=spark-joins`,\n  [figures](docs/benchmarks/spark-joins.md)).\n"
        f"- **{min(limits):.0%} to {max(limits):.0%}** of the throughput of the same Spark job with a kernel that does "
        "nothing, the limit of any evaluator\n"
        "  (`make bench ARGS=spark-kernel`, [figures](docs/benchmarks/spark-kernel.md)).\n"
    ).replace("%", " %")


def replaced(readme: str, measured: str) -> str:
    """The README with these ratios in place of its own."""
    before, _, rest = readme.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    if not after:
        raise ValueError("the README has no place for the ratios")
    return f"{before}{_BEGIN}{measured}{_END}{after}"


def write(reports: Mapping[str, Report], output: Path, readme: Path | None) -> str:
    """Writes the ratios beside the reports and, if it is given, into the README."""
    measured = ratios(reports)
    (output / f"{NAME}.md").write_text(measured, encoding="utf-8")
    if readme is not None:
        readme.write_text(replaced(readme.read_text(encoding="utf-8"), measured), encoding="utf-8")
    return measured


def _throughput(report: Report, variant: str, point: object) -> float:
    return next(s.throughput for s in report.samples if s.variant == variant and s.point == point)


def _against(report: Report, variant: str) -> list[float]:
    found = [report.ratio(sample) for sample in report.samples if sample.variant == variant]
    return [ratio for ratio in found if ratio is not None]


def _times(found: Sequence[float]) -> str:
    low, high = (f"{value:.0f}" if value >= 3 else f"{value:.1f}" for value in (min(found), max(found)))
    return low if low == high else f"{low} to {high}"
