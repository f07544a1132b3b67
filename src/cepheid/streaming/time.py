"""Event time in a stream: the watermark in ticks of the time column.

Spark counts a watermark in milliseconds since 1970, starts at 0 and never goes back. A time column may hold integers of
any unit, negative ones included, so Spark sees ticks shifted far into the future: before the first event the watermark
then precedes every event. A watermark w means that no event before w is still to come. An event at w may come: one that
is exactly as late as allowed is not late, and events of equal time are never separated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cepheid.errors import InputProblem, did_you_mean, shown
from cepheid.events import EVENTS, MICROSECONDS, OWN_UNIT, UNIT_WORDS, Clock, Duration
from cepheid.runtime.kernel import END_OF_TIME

SHIFT = 4_500_000_000_000_000
"""Milliseconds by which times are shifted inside Spark: half the range of its timestamps."""
_MICROS_A_MILLI = 1_000
_FINE, _COARSE = SHIFT - 3_000_000_000_000, 1_000_000
"""Integers beyond the first, on either side of 0, are counted in multiples of the second: all times of a batch fit."""


@dataclass(frozen=True, slots=True)
class EventTime:
    """Converts ticks of a time column to Spark's milliseconds and back. An integer tick is one millisecond, whatever
    its unit, except that nanoseconds count in thousands and very large integers in millions: they would not fit. A
    timestamp is truncated to milliseconds, so a watermark is never too early."""

    clock: Clock

    @property
    def ticks_a_milli(self) -> int:
        return _MICROS_A_MILLI if self.clock.is_timestamp or self.clock.unit == "ns" else 1

    def to_spark_micros(self, ticks: int) -> int:
        """A tick as a Spark timestamp, in microseconds."""
        if self.clock.is_timestamp:
            return ticks + SHIFT * _MICROS_A_MILLI
        count = ticks // self.ticks_a_milli
        beyond = count - max(-_FINE, min(count, _FINE))
        return (count - beyond + beyond // _COARSE + SHIFT) * _MICROS_A_MILLI

    def watermark(self, milliseconds: int) -> int:
        """Spark's watermark in ticks; before the first event, the earliest tick."""
        if milliseconds <= 0:
            return -END_OF_TIME
        count = milliseconds - SHIFT
        beyond = 0 if self.clock.is_timestamp else count - max(-_FINE, min(count, _FINE))
        return (count - beyond + beyond * _COARSE) * self.ticks_a_milli

    def watermark_after(self, latest: int | None, delay: int) -> int:
        """The watermark, in ticks, that Spark computes for the next batch from the time of the latest event."""
        if latest is None:
            return -END_OF_TIME
        return self.watermark(self.to_spark_micros(latest) // _MICROS_A_MILLI - delay)

    def delay(self, text: str | int) -> int:
        """The allowed lateness in Spark's milliseconds."""
        return -(-self.ticks(text, "watermark") // self.ticks_a_milli)

    def ticks(self, text: str | int, option: str) -> int:
        """The value of an option that is a duration, in ticks, rounded up."""
        ticks = self.clock.ticks(parse_duration(text))
        if ticks < 0:
            raise InputProblem(f"the {option} `{shown(str(text))}` is negative", expected="a duration, or 0")
        return -int(-ticks // 1)


_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([^\W\d]*)\s*")


def parse_duration(text: str | int) -> Duration:
    """`10 minutes`, `10min`, or a bare number in the time column's own unit."""
    if isinstance(text, int):
        return Duration(text)
    parts = _DURATION.fullmatch(text)
    if parts is None:
        raise InputProblem(
            f"`{shown(text)}` is not a duration", expected="a number and a unit, such as 10min, or a number"
        )
    amount, word = parts.groups()
    unit = UNIT_WORDS.get(word.lower()) if word else OWN_UNIT
    if unit is None or unit == EVENTS:
        raise InputProblem(
            f"`{shown(word)}` is not a unit of time",
            expected=f"one of {', '.join(MICROSECONDS)}, or none",
            hint=did_you_mean(word, UNIT_WORDS),
        )
    return Duration(float(amount) if "." in amount else int(amount), unit)
