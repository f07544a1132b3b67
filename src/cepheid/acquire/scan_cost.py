"""The cost of reading a table in steps, and of one scan, in nanoseconds of one core.

Constants were measured on Parquet with PyArrow and PySpark; only their relation matters."""

from __future__ import annotations

import math
from typing import NamedTuple

JOB = 3e8
"""A job of Spark, before it reads anything."""
TYPE = 4.0
"""A row whose type is read."""
VALUE = 8.0
"""A value of another column that is decoded."""
MOVED = 250.0
"""A row that is packed, shuffled, sorted and evaluated."""
MOVED_VALUE = 30.0
COLLECTED = 1_000.0
"""An event that the driver collects."""
SURVEY_SHARE = 0.04
"""A first step that costs less than this share of one scan is tried whatever it is expected to save."""

WORTHWHILE = 0.7
"""Steps are taken if they are expected to cost less than this share of one scan: estimates err."""


class TableShape(NamedTuple):
    """A table: its rows, the columns that are read besides type and time, the ticks from its first to its last row, and
    the row groups."""

    rows: int
    columns: int
    ticks: int
    groups: int
    passing: float
    """The share of the rows that can be part of a match by themselves."""

    def decoding(self, rows: float) -> float:
        return rows * VALUE * (self.columns + 1)

    def moving(self, rows: float) -> float:
        return rows * (MOVED + MOVED_VALUE * self.columns)

    @property
    def scan(self) -> float:
        return JOB + self.rows * TYPE + self.decoding(self.rows) + self.moving(self.rows * self.passing)

    def survey(self, events: float) -> float:
        """The first step: the types of all rows, and the times and keys of the row groups that have its events."""
        groups = self.expected(events, 0)[0]
        return JOB + self.rows * TYPE + 2 * VALUE * self.rows * groups / max(self.groups, 1) + COLLECTED * events

    def rest(self, decoded: float, moved: float) -> float:
        """The last step, which reads some rows and moves fewer."""
        return JOB + self.decoding(decoded) + self.moving(moved)

    def expected(self, events: float, window: int) -> tuple[float, float, float]:
        """The row groups and rows that are decoded, and the rows that are moved, around events that are spread
        evenly."""
        rate = events / max(self.ticks, 1)
        groups = self.groups * -math.expm1(-rate * (self.ticks / max(self.groups, 1) + 2 * window))
        moved = self.rows * self.passing * -math.expm1(-2 * rate * window)
        return groups, self.rows * groups / max(self.groups, 1), moved

    def is_surveyed(self, events: float, window: int) -> bool:
        """Whether the first step is taken: it costs little, or all steps together are expected to cost less than one
        scan."""
        _, decoded, moved = self.expected(events, window)
        survey = self.survey(events)
        return survey < SURVEY_SHARE * self.scan or survey + self.rest(decoded, moved) < WORTHWHILE * self.scan
