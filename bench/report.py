"""What a benchmark hands back: its samples, and how they are shown as a table and as a plot."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rich.table import Table

from bench.measure import Sample, require_agreement


@dataclass(frozen=True, slots=True)
class Column:
    """A further column of the table, for what only this benchmark can say of a sample."""

    title: str
    cell: Callable[[Sample], str]


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one benchmark. `baseline` is the variant that the others are divided by, where there is one."""

    name: str
    title: str
    point: str
    """What varies from row to row."""
    samples: tuple[Sample, ...]
    paper: str
    """What to compare it with: what the paper's text says (its figures are images, so only the numbers in the text are
    given), or the target."""
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
        """How many times the baseline's throughput at the same point."""
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
        """The report as a section of a document."""
        command = f"`make bench ARGS={self.name}`"
        return (
            f"# {self.name}: {self.title}\n\n{self.markdown()}\n"
            f"For comparison: {self.paper}\n\n![{self.title}]({picture})\n\nMeasured with {command} on {machine()}.\n"
        )

    def markdown(self) -> str:
        """The table as text for a document."""
        head = [str(column.header) for column in self.table().columns]
        rule = ["---" if number < 2 else "---:" for number in range(len(head))]
        rows = [self._row(sample) for point in self.points for sample in self.samples if sample.point == point]
        return "".join(f"| {' | '.join(row)} |\n" for row in [head, rule, *rows])

    def _row(self, sample: Sample) -> list[str]:
        row = [
            shown(sample.point),
            sample.variant,
            shown(sample.events),
            shown(sample.found.matches),
            rate(sample.throughput),
            rate(sample.events / sample.wall),
        ]
        if self.baseline is not None:
            ratio = self.ratio(sample)
            row.append("" if ratio is None else f"{ratio:.3g}")
        return [*row, *(column.cell(sample) for column in self.columns)]


def machine() -> str:
    """What the figures were measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.processor() or platform.machine()
    packages = ", ".join(f"{name} {version(name)}" for name in ("numba", "pyarrow", "pyspark"))
    return f"{os.cpu_count()} cores ({model}), Python {platform.python_version()}, {packages}"


def shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def rate(per_second: float) -> str:
    """Events per second, as people say it."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if per_second >= size:
            return f"{per_second / size:.3g}{unit}"
    return f"{per_second:.3g}"


def counted(name: str, title: str, per: int = 1) -> Column:
    """A counter of the kernel, per so many events."""

    def cell(sample: Sample) -> str:
        if name not in sample.found.counted:
            return ""
        return f"{sample.found.counted[name] * per / sample.events:,.4g}"

    return Column(title, cell)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A command: its name, what it is about, and the function that runs it, small if asked to be quick."""

    name: str
    about: str
    run: Callable[[bool], Report]
