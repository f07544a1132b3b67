"""Inputs as the user specifies them: files, and the columns of the type and the time. Imports no library."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cepheid.errors import InputProblem, shown


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns with the type and the time of an event. If its events have a duration, `start` names the
    column of their start, and the time is their end. `delimiter` separates the cells of CSV files; None if their
    headers show it."""

    type: str = "type"
    time: str = "ts"
    start: str | None = None
    delimiter: str | None = None

    @property
    def times(self) -> tuple[str, ...]:
        """The columns that hold times."""
        return (self.time,) if self.start is None else (self.time, self.start)


DEFAULT_COLUMNS = Columns()


@dataclass(frozen=True, slots=True)
class Input:
    """Files to read, and the event type of their rows if no column holds it."""

    path: str
    type: str | None = None

    @classmethod
    def parse(cls, text: str) -> Input:
        """`PATH` or `TYPE=PATH`. A path that exists is a path, whatever characters it has (`day=1/events.csv`)."""
        name, equals, path = text.partition("=")
        if not equals or not re.fullmatch(r"[\w.\-]+", name) or exists(text):
            return cls(text)
        if not path:
            raise InputProblem(f"`{shown(text)}` names no file", expected="TYPE=PATH, such as Shelf=shelf.csv")
        return cls(path, name)


def read_delimiter(text: str) -> str:
    """A character, or `\\t` for a tab, which is hard to type in a shell."""
    delimiter = "\t" if text == "\\t" else text
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter.isalnum() or delimiter in '"\r\n\0':
        raise InputProblem(
            f"`{shown(text)}` cannot separate the cells of a CSV file", expected=r"one character, such as ; or | or \t"
        )
    return delimiter


def exists(path: str) -> bool:
    """Whether the file or directory exists. False for a string that cannot be a path (a NUL, 1 MB of query)."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def neighbours(path: str) -> list[str]:
    """The names in the parent directory of a path, for suggestions."""
    parent = str(Path(path).parent)
    return sorted(entry.name for entry in Path(parent).iterdir()) if exists(parent) and Path(parent).is_dir() else []
