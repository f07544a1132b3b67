"""Plots of reports: lines if the points are numbers, bars if they are names."""

from __future__ import annotations

import textwrap
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.report import Report

matplotlib.use("Agg")

_SIZE = (7.0, 4.2)
_DOTS_PER_INCH = 80
"""A low resolution, for small files in the documentation."""
_CAPTION_WIDTH, _TITLE_WIDTH = 110, 80


def draw(report: Report, directory: Path) -> Path:
    """Draws the plot of a report, with the reference values as its caption."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    if all(isinstance(point, int | float) for point in report.points):
        _lines(axes, report)
    else:
        _bars(axes, report)
    if report.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(report.point)
    axes.set_ylabel(report.value_title)
    figure.suptitle("\n".join(textwrap.wrap(report.title, _TITLE_WIDTH)), fontsize=10)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right center", fontsize=8)  # inside the axes it would hide bars
    figure.supxlabel("For comparison: " + "\n".join(textwrap.wrap(report.paper, _CAPTION_WIDTH)), fontsize=7)
    path = directory / f"{report.name}.png"
    figure.savefig(path, dpi=_DOTS_PER_INCH)
    return path


def _lines(axes: Axes, report: Report) -> None:
    for variant in report.variants:
        samples = [s for s in report.samples if s.variant == variant]
        places = [s.point for s in samples if isinstance(s.point, int | float)]
        axes.plot(places, [report.value(s) for s in samples], marker="o", label=variant)
    if report.log_x:
        axes.set_xscale("log")


def _bars(axes: Axes, report: Report) -> None:
    width = 0.8 / len(report.variants)
    for number, variant in enumerate(report.variants):
        samples = [s for s in report.samples if s.variant == variant]
        places = [report.points.index(s.point) + (number - (len(report.variants) - 1) / 2) * width for s in samples]
        axes.bar(places, [report.value(s) for s in samples], width, label=variant)
    axes.set_xticks(range(len(report.points)), [str(point) for point in report.points], fontsize=8)
