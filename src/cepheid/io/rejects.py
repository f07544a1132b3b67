"""Rejects: rows that are not events."""

from __future__ import annotations

import json
from dataclasses import dataclass

from cepheid.errors import shown
from cepheid.types import type_of


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that is not an event. `line` counts from 1: the line in a text file, the row in a columnar file."""

    source: str
    line: int
    reason: str
    raw: str


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
