"""Times of events: integers, ISO 8601 timestamps, units."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.events import CALENDAR_WORDS, COLUMN_UNITS, MICROSECONDS, UNIT_WORDS, epoch_unit, moment_of, timestamp
from cepheid.io.nested import value_of
from cepheid.io.rejects import Malformed, shown_value


class TimeKind(Enum):
    INTEGER = "integers"
    TIMESTAMP = "timestamps"

    def rejects(self, time: object, noun: str = "time") -> str:
        """The reason to reject a time of the other kind."""
        return f"the {noun} `{shown(str(time))}` is not like the others, which are {self.value}"


class MixedTimes(InputProblem):
    """Some inputs have integer times, and others timestamps."""


_NANOSECOND_WORDS = ("ns", "nsec", "nsecs", "nanosecond", "nanoseconds")


def unit_of(word: str) -> str:
    """The unit of an integer time column, by its name."""
    if not isinstance(word, str):
        raise InputProblem(
            f"the unit of times is a {type(word).__name__}",
            expected=f"one of {listing(COLUMN_UNITS)}",
            hint='write time_unit="s" for times in seconds',
        )
    plain = word.strip().lower()
    unit = "ns" if plain in _NANOSECOND_WORDS else UNIT_WORDS.get(plain)
    if unit not in COLUMN_UNITS:
        raise InputProblem(
            f"`{shown(word)}` is not a unit of time",
            expected=f"one of {listing(COLUMN_UNITS)}",
            hint=f"a {plain.removesuffix('s')} has no fixed length"
            if plain in CALENDAR_WORDS
            else did_you_mean(word, UNIT_WORDS),
        )
    return unit


_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")

NO_TIME = "neither an integer nor an ISO 8601 timestamp"
"""The reason to reject a value that is no time."""
_DATES = tuple(
    (re.compile(form), format)
    for form, format in (
        (r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4}", "%d.%m.%Y"),
        (r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{2}", "%d.%m.%y"),
        (r"(?:1[3-9]|2[0-9]|3[01])/[0-9]{1,2}/[0-9]{4}", "%d/%m/%Y"),
        (r"[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}", "%m/%d/%Y"),
        (r"(?:1[3-9]|2[0-9]|3[01])/[0-9]{1,2}/[0-9]{2}", "%d/%m/%y"),
        (r"[0-9]{1,2}/[0-9]{1,2}/[0-9]{2}", "%m/%d/%y"),
        (r"[0-9]{4}/[0-9]{1,2}/[0-9]{1,2}", "%Y/%m/%d"),
        (r"[0-9]{4}\.[0-9]{1,2}\.[0-9]{1,2}", "%Y.%m.%d"),
        (r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}", "%Y-%m-%d"),
        (r"(?:0?[1-9]|1[0-2])-(?:1[3-9]|2[0-9]|3[01])-[0-9]{4}", "%m-%d-%Y"),
        (r"[0-9]{1,2}-[0-9]{1,2}-[0-9]{4}", "%d-%m-%Y"),
        (r"[0-9]{1,2}/[A-Za-z]{3}/[0-9]{4}", "%d/%b/%Y"),
        (r"[0-9]{1,2}-[A-Za-z]{3}-[0-9]{4}", "%d-%b-%Y"),
        (r"[0-9]{1,2}-[A-Za-z]{3}-[0-9]{2}", "%d-%b-%y"),
        (r"[0-9]{1,2} [A-Za-z]{3} [0-9]{4}", "%d %b %Y"),
        (r"[A-Za-z]{3}, [0-9]{1,2} [A-Za-z]{3} [0-9]{4}", "%a, %d %b %Y"),
        (r"[A-Za-z]{3} [0-9]{1,2}, [0-9]{4}", "%b %d, %Y"),
        (r"[A-Za-z]{3} [0-9]{1,2} [0-9]{4}", "%b %d %Y"),
        (r"[A-Za-z]{4,} [0-9]{1,2}, [0-9]{4}", "%B %d, %Y"),
        (r"[0-9]{1,2} [A-Za-z]{4,} [0-9]{4}", "%d %B %Y"),
    )
)
_CLOCKS = tuple(
    (re.compile(form), format)
    for form, format in (
        ("", ""),
        (r"[0-9]{1,2}:[0-9]{2}:[0-9]{2}\.[0-9]{1,6}", "%H:%M:%S.%f"),
        (r"[0-9]{1,2}:[0-9]{2}:[0-9]{2},[0-9]{1,6}", "%H:%M:%S,%f"),
        (r"[0-9]{1,2}:[0-9]{2}:[0-9]{2}", "%H:%M:%S"),
        (r"[0-9]{1,2}:[0-9]{2}", "%H:%M"),
        (r"[0-9]{1,2}:[0-9]{2}:[0-9]{2} [AaPp][Mm]", "%I:%M:%S %p"),
        (r"[0-9]{1,2}:[0-9]{2}:[0-9]{2}[AaPp][Mm]", "%I:%M:%S%p"),
        (r"[0-9]{1,2}:[0-9]{2} [AaPp][Mm]", "%I:%M %p"),
        (r"[0-9]{1,2}:[0-9]{2}[AaPp][Mm]", "%I:%M%p"),
    )
)
_JOINED = re.compile(
    r"(?P<between>[ T:]|, | - |)(?P<clock>[0-9:.,]*(?: ?[AaPp][Mm])?)(?P<zone> ?[+-][0-9]{2}:?[0-9]{2}|)"
)
_ZONED = re.compile(r"(?P<zone> (?:UTC|GMT)|Z)$")
_MOST_SEEN = 1_000
"""How many times a hint looks at."""
_WHOLE = ("%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S %z %Y")
_NO_DAY = re.compile(r"[0-9]{1,2}:[0-9]{2}.*")
_NO_YEAR = re.compile(r"[A-Za-z]{3} +[0-9]{1,2} [0-9]{1,2}:[0-9]{2}.*|[0-9]{1,2} [A-Za-z]{3} [0-9]{1,2}:[0-9]{2}.*")


def guessed_format(time: str) -> str | None:
    """The format of a time, in directives of strptime: the first of the usual ones that reads it."""
    whole = next((format for format in _WHOLE if parses(time, format)), None)
    if whole is not None:
        return whole
    word = _ZONED.search(time)
    plain, literal = (time, "") if word is None else (time[: word.start()], word["zone"])
    for form, day in _DATES:
        date = form.match(plain)
        rest = None if date is None else _JOINED.fullmatch(plain, date.end())
        if rest is None:
            continue
        clock = next((format for form, format in _CLOCKS if form.fullmatch(rest["clock"])), None)
        zone = " %z" if rest["zone"].startswith(" ") else "%z" if rest["zone"] else ""
        format = f"{day}{rest['between']}{clock}{zone}{literal}"
        if clock is not None and parses(time, format):
            return format
    return None


def parses(time: str, format: str) -> bool:
    try:
        datetime.strptime(time, format)
    except ValueError:
        return False
    return True


def _read_most(times: Sequence[str]) -> str | None:
    """Of the formats that some times seem to have, the one that reads most of them. The day or the month may be first
    in those that are guessed alike."""
    guesses = dict.fromkeys(guess for time in times if (guess := guessed_format(time)) is not None)
    formats = dict.fromkeys(format for guess in guesses for format in (guess, _swapped(guess)))
    return max(formats, key=lambda format: sum(parses(time, format) for time in times), default=None)


def _swapped(format: str) -> str:
    """The format with the day in place of the month."""
    return format.replace("%m", "%_").replace("%d", "%m").replace("%_", "%d") if "%m" in format else format


_SHOWN = re.compile(r"[`\"]([^`\"]*)[`\"]")


def time_hint(reasons: Iterable[str], format: str | None = None, in_python: bool = True) -> str:
    """How to read times that are not recognised, with the format that they seem to have, or that is declared. The
    reasons to reject them show them in backquotes."""
    shown_times = (_SHOWN.search(reason) for reason in islice(reasons, _MOST_SEEN))
    times = [time for found in shown_times if found and (time := found[1].strip())] or [""]
    if format is not None:
        seen = _read_most(times)
        option = f'time_format="{seen}"' if in_python else f"--time-format '{seen}'"
        meant = f"they seem to have {option}" if seen else "correct it, or the times"
        if seen == format:
            meant = "correct the others, or drop their rows"
        return f"the times are declared to have the format {shown(format)}; {meant}"
    if all(map(_NUMBER.fullmatch, times)):
        converted = "float64" if any("." in time for time in times) else "int64"
        return "a number is written without quotes" + (
            f', and a column of strings converted first, in pandas with column.astype("{converted}")'
            if in_python
            else ""
        )
    lacks = "a day" if _NO_DAY.fullmatch(times[0]) else "a year" if _NO_YEAR.fullmatch(times[0]) else None
    if lacks is not None:
        return (
            f"it has no {lacks[2:]}; add {lacks} to the column first, in pandas with "
            f"pd.to_datetime('{'2024-03-01' if lacks == 'a day' else '2024'} ' + column)"
        )
    guessed = _read_most(times) or "%d.%m.%Y"
    option = f'time_format="{guessed}"' if in_python else f"--time-format '{guessed}'"
    swapped = _swapped(guessed)
    if "." not in guessed.partition("%Y")[0] and swapped != guessed and all(parses(time, swapped) for time in times):
        option += f" (or '{swapped}', if the {'day' if guessed.startswith('%m') else 'month'} comes first)"
    return (
        f"name their format, such as {option}; or write times as 2024-03-01 08:00:00 or 2024-03-01, "
        "or as integers, such as seconds since 1970"
    )


_SKIPPED = " does not exist in "
OTHER_ZONE = 'if the times are of another zone, name it, such as zone="UTC"; otherwise drop such rows first'
"""What to do about times that clocks skip."""


def usual_time(text: str, format: str | None, zone: str | None) -> str | None:
    """A time in another format, or of a zone, in ISO 8601, with its offset if a zone is given. None if it is no such
    time. Of two times that clocks show alike when they are set back, it is the earlier one. A time that clocks skip
    becomes a text that is no time, which `event_time` explains."""
    if format is None:
        moment = moment_of(text)
    else:
        try:
            moment = datetime.strptime(text.strip(), format)
        except ValueError:
            return None
    if moment is None or (format is None and moment.tzinfo is not None):
        return None
    if zone is None or moment.tzinfo is not None:
        return moment.isoformat()
    there = moment.replace(tzinfo=ZoneInfo(zone))
    try:
        whole = there.astimezone(UTC)
        if whole.astimezone(there.tzinfo).replace(tzinfo=None, fold=0) != moment:
            return f"{text.strip()}{_SKIPPED}{zone}"
    except OverflowError:  # the first or the last day of all years
        return f"{text.strip()}{_SKIPPED}{zone}"
    offset = there.isoformat()
    return offset if timestamp(offset) is not None else whole.isoformat()  # before zones, offsets had seconds


def skipped_time(text: str, noun: str = "time") -> str | None:
    """The reason to reject a time that the clocks of its zone skip. None for any other text."""
    time, skips, zone = text.partition(_SKIPPED)
    return skipped_time_reason(time, zone, noun) if skips else None


def skipped_time_reason(time: str, zone: str, noun: str = "time") -> str:
    return f"the {noun} `{shown(time)}` does not exist in {shown(zone)}: clocks were set forward over it"


LAST_TIME = 2**61
"""Times lie between -2^61 and 2^61 ticks, so that no sum of a time and a window overflows."""


def fraction_unit(first: float, last: float, declared: str | None = None) -> str | None:
    """The unit of times with fractions: the declared one, or seconds or milliseconds if they are epochs in these."""
    if declared is not None:
        return declared if declared in MICROSECONDS else None
    unit = epoch_unit(math.floor(first), math.ceil(last))
    return unit if unit in ("s", "ms") else None


_FINER = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")
_LOOKED_AT = 100


def has_nanoseconds(times: Iterable[object]) -> bool:
    """Whether one of the first times is a text with digits that microseconds lack."""
    return any(isinstance(time, str) and _FINER.search(time) for time in islice(times, _LOOKED_AT))


_MISSING = object()


def unfit_time(time: str, noun: str = "time", format: str | None = None) -> str:
    """The reason to reject a text that is no time, and not of the declared format."""
    unfit = "" if format is None else f"does not fit the format {shown(format)}, and "
    return f"the {noun} `{shown(time)}` {unfit}is {NO_TIME}"


def event_time(
    values: Mapping[str, Any], column: str, noun: str = "time", format: str | None = None
) -> tuple[TimeKind, int]:
    """The time in a column of a row. Malformed, with the `noun` of the time in the reason, if there is none; the
    `format` is the declared one."""
    value = value_of(values, column, _MISSING)
    if value is None or value is _MISSING:
        state = "null" if value is None else "missing"
        raise Malformed(f"no {noun}: `{shown(column)}` is {state}")
    if isinstance(value, str):
        ticks = timestamp(value)
        if ticks is None and _NUMBER.fullmatch(value):  # in JSON: CSV has no quotes around numbers
            text = f'the {noun} is the string "{shown(value)}", {NO_TIME}'
            raise Malformed(f"{text}; write it without quotes")
        if ticks is None and (reason := skipped_time(value, noun)) is not None:
            raise Malformed(reason)
        if ticks is None:
            raise Malformed(unfit_time(value, noun, format))
        return TimeKind.TIMESTAMP, ticks
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Malformed(f"the {noun} is {shown_value(value)}, {NO_TIME}")
    if abs(value) > LAST_TIME:
        raise Malformed(out_of_range(value, noun))
    return TimeKind.INTEGER, value


def out_of_range(time: object, noun: str = "time") -> str:
    return f"the {noun} {shown(str(time))} does not fit: it must lie between -2^61 and 2^61"


def not_whole(time: object, noun: str = "time") -> str:
    return f"the {noun} {shown(str(time))} is not a whole number"
