"""Rejects: rows that are not events."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from cepheid.errors import shown
from cepheid.types import type_of

REASON = "reject_reason"
"""The column of the reasons, in the rejected rows of a table or a DataFrame."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that is not an event. `line` counts from 1: the line in a text file, the row in a columnar file."""

    source: str
    line: int
    reason: str
    raw: str


_OTHER_NUMBER = re.compile(r", not the string \"[-+]?[0-9][0-9.,' \u00a0\u202f]*[0-9]\"")


def reject_hint(reject: Reject, in_python: bool) -> str | None:
    """What to write so that a row is not rejected for this reason. None if no option helps."""
    reason = reject.reason
    if reject.line == 1 and reject.raw.lstrip().startswith("[") and "JSON" in reason:
        return "a file with one array of events has the suffix .json: rename it"
    if "several arrays" in reason:
        return "write each array to a file of its own"
    if "not UTF-8 text" in reason:
        return f"name the encoding of the file: {'' if in_python else '--'}encoding{_equals(in_python, 'latin-1')}"
    if " is a number, " in reason and _OTHER_NUMBER.search(reason):
        dashes, comma = "" if in_python else "--", _equals(in_python, "comma")
        return f"numbers such as 10,5 need {dashes}decimal{comma}, and 1,200.00 needs {dashes}thousands{comma}"
    return None


def _equals(in_python: bool, value: str) -> str:
    return f'="{value}"' if in_python else f" {value}"


class Malformed(Exception):
    """The row is not an event; the message is the reason."""


def shown_value(value: object) -> str:
    return f"the {type_of(value).noun} {shown(json.dumps(value, ensure_ascii=False, default=str))}"


def no_time(column: str) -> str:
    return f"no time: `{shown(column)}` is null"


def no_start(column: str) -> str:
    return f"no start: `{shown(column)}` is null"


def after_end(start_column: str, time_column: str) -> str:
    return f"the start is after the end: `{shown(start_column)}` is later than `{shown(time_column)}`"


def no_type(column: str) -> str:
    return f"no event type: the column `{shown(column)}` is missing or null"
