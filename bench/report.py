"""The report of a benchmark: its samples, as a table and as Markdown."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rich.table import Table

from bench.measure import Sample, require_agreement


@dataclass(frozen=True, slots=True)
class Column:
    """An additional column of the table, specific to a benchmark."""

    title: str
    cell: Callable[[Sample], str]


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one benchmark. `baseline` is the variant that the ratios refer to."""

    name: str
    title: str
    point: str
    """What varies from row to row."""
    samples: tuple[Sample, ...]
    paper: str
    """The values to compare with: the target, or the numbers in the text of the paper (its figures are images)."""
    baseline: str | None = None
    columns: tuple[Column, ...] = ()
    value: Callable[[Sample], float] = lambda sample: sample.throughput
    value_title: str = "events/s (CPU)"
    log_x: bool = False
    log_y: bool = True

    def __post_init__(self) -> None:
        require_agreement(self.samples)

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(sample.variant for sample in self.samples))

    @property
    def points(self) -> tuple[Hashable, ...]:
        return tuple(dict.fromkeys(sample.point for sample in self.samples))

    def ratio(self, sample: Sample) -> float | None:
        """The ratio to the throughput of the baseline at the same point."""
        if self.baseline is None:
            return None
        of_baseline = [s for s in self.samples if s.variant == self.baseline and s.point == sample.point]
        return sample.throughput / of_baseline[0].throughput if of_baseline else None

    def table(self) -> Table:
        table = Table(title=f"{self.name}: {self.title}", caption=f"For comparison: {self.paper}", title_justify="left")
        table.caption_justify = "left"
        table.add_column(self.point, no_wrap=True)
        table.add_column("variant", no_wrap=True)
        titles = ["events", "matches", "events/s (CPU)", "events/s (wall)"]
        if self.baseline is not None:
            titles.append(f"x {self.baseline}")
        for title in [*titles, *(column.title for column in self.columns)]:
            table.add_column(title, justify="right")
        for point in self.points:
            for sample in (s for s in self.samples if s.point == point):
                table.add_row(*self._row(sample))
            table.add_section()
        return table

    def section(self, picture: str) -> str:
        """The page of the report, in Markdown."""
        command = f"`make bench ARGS={self.name}`"
        return (
            f"# {self.name}: {self.title}\n\n{self.markdown()}\n"
            f"For comparison: {self.paper}\n\n![{self.title}]({picture})\n\nMeasured with {command} on {machine()}.\n"
        )

    def markdown(self) -> str:
        """The table in Markdown."""
        head = [str(column.header) for column in self.table().columns]
        rule = ["---" if number < 2 else "---:" for number in range(len(head))]
        rows = [self._row(sample) for point in self.points for sample in self.samples if sample.point == point]
        return "".join(f"| {' | '.join(row)} |\n" for row in [head, rule, *rows])

    def _row(self, sample: Sample) -> list[str]:
        row = [
            shown(sample.point),
            sample.variant,
            shown(sample.events),
            shown(sample.outcome.matches),
            rate(sample.throughput),
            rate(sample.events / sample.wall),
        ]
        if self.baseline is not None:
            ratio = self.ratio(sample)
            row.append("" if ratio is None else f"{ratio:.3g}")
        return [*row, *(column.cell(sample) for column in self.columns)]


def machine() -> str:
    """The machine and the versions of the measurement."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.processor() or platform.machine()
    packages = ", ".join(f"{name} {version(name)}" for name in ("numba", "pyarrow", "pyspark"))
    return f"{os.cpu_count()} cores ({model}), Python {platform.python_version()}, {packages}"


def shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def rate(per_second: float) -> str:
    """A rate with a unit prefix."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if per_second >= size:
            return f"{per_second / size:.3g}{unit}"
    return f"{per_second:.3g}"


def counted(name: str, title: str, per: int = 1) -> Column:
    """A column with a counter of the kernel per `per` events."""

    def cell(sample: Sample) -> str:
        if name not in sample.outcome.counted:
            return ""
        return f"{sample.outcome.counted[name] * per / sample.events:,.4g}"

    return Column(title, cell)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark: its name, its description, and the function that runs it (with small streams if True)."""

    name: str
    about: str
    run: Callable[[bool], Report]


def growth_report(name: str, title: str, samples: Sequence[Sample]) -> Report:
    """The time of each event, for ten times the events."""
    return Report(
        name,
        title,
        "events",
        tuple(samples),
        "the target is at most twelve times the time.",
        value=lambda sample: sample.microseconds,
        value_title="microseconds per event (CPU)",
    )
