"""Inputs as the user specifies them: files, and the columns of the type and the time. Imports no library."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.io.times import unit_of

NO_COLUMN = "\0none"
"""The name of the type column of an input that has none. No input has such a column, because a NUL is refused."""


@dataclass(frozen=True)
class Columns:
    """The names of the columns with the type and the time of an event. If its events have a duration, `start` names the
    column of their start, and the time is their end. `delimiter` separates the cells of CSV files; None if their
    headers show it. If `event_type` is set, all events have this type, and no column holds it. `unit` is the declared
    unit of integer times; None if the options of the run decide."""

    type: str = "type"
    time: str = "ts"
    start: str | None = None
    delimiter: str | None = None
    event_type: str | None = None
    unit: str | None = None

    @classmethod
    def of(cls, type_column: str | None, time_column: str, start_column: str | None, type: str | None) -> Columns:
        """The keyword arguments of `match`, `explain` and `stream`."""
        return cls(NO_COLUMN if type_column is None else type_column, time_column, start_column, event_type=type)

    @cached_property
    def times(self) -> tuple[str, ...]:
        """The columns that hold times."""
        return (self.time,) if self.start is None else (self.time, self.start)


DEFAULT_COLUMNS = Columns()

_OPTIONS: Mapping[str, str] = {
    "type": "type",
    "type-column": "type_column",
    "time": "time_column",
    "start": "start_column",
    "unit": "time_unit",
    "sep": "delimiter",
    "format": "format",
}
"""The options of an input on the command line, each with its field."""
INPUT_OPTIONS = ", ".join(_OPTIONS)
_DELIMITERS = {"\\t": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}


@dataclass(frozen=True, slots=True)
class Input:
    """One input of events: the path of a file, a directory or a glob, or a table or DataFrame, and how to read it.

    All rows are events of `type`, if it is set; otherwise the column `type_column` holds their type. `format` is that
    of files whose names do not show it. The options of the run decide fields that are None."""

    data: Any
    type: str | None = None
    type_column: str | None = None
    time_column: str | None = None
    start_column: str | None = None
    time_unit: str | None = None
    delimiter: str | None = None
    format: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", read_delimiter(self.delimiter))
        if self.time_unit is not None:
            object.__setattr__(self, "time_unit", unit_of(self.time_unit))

    @property
    def path(self) -> str:
        return str(os.fspath(self.data))

    @classmethod
    def parse(cls, text: str) -> Input:
        """`PATH`, `TYPE=PATH`, or either with options: `logins.csv,type=Login,time=ts,unit=s`. A path that exists is a
        path, whatever characters it has (`day=1/events.csv`)."""
        if exists(text):
            return cls(text)
        path, *options = re.split(r",(?=[A-Za-z_-]+=)", text)
        values: dict[str, str] = {}
        for option in options:
            name, _, value = option.partition("=")
            field = _OPTIONS.get(name.replace("_", "-").lower())
            if field is None:
                raise InputProblem(
                    f"`{shown(name)}` is not an option of an input",
                    expected=f"one of {listing(_OPTIONS)}: logins.csv,type=Login,time=ts,unit=s",
                    hint=did_you_mean(name, _OPTIONS) or "the columns of events are named in the query",
                )
            if not value or field in values:
                what = "has no value" if not value else "is given twice"
                raise InputProblem(f"the option `{shown(name)}` of `{shown(path)}` {what}", expected=f"{name}=VALUE")
            values[field] = value
        name, equals, file = path.partition("=")
        if equals and re.fullmatch(r"[\w.\-]+", name) and not exists(path):
            if "type" in values:
                raise InputProblem(
                    f"`{shown(text)}` has two types", expected=f"either {name}={file} or {file},type={values['type']}"
                )
            path, values["type"] = file, name
        if not path:
            raise InputProblem(f"`{shown(text)}` names no file", expected="TYPE=PATH, such as Shelf=shelf.csv")
        return cls(path, **values)

    def columns(self, others: Columns) -> Columns:
        """The columns of this input; `others` are those of the run."""
        kind = self.type if self.type is not None or self.type_column is not None else others.event_type
        return replace(
            others,
            type=self.type_column or others.type,
            time=self.time_column or others.time,
            start=self.start_column or others.start,
            delimiter=self.delimiter or others.delimiter,
            event_type=kind,
            unit=self.time_unit or others.unit,
        )

    @property
    def name(self) -> str:
        """For messages."""
        if isinstance(self.data, str | os.PathLike):
            return shown(os.fspath(self.data), 200)
        return self.type or f"a {type(self.data).__name__}"


def read_delimiter(text: str) -> str:
    """A character, or the name of one that is hard to type in a shell: `\\t`, `tab`, `semicolon`."""
    delimiter = _DELIMITERS.get(text.lower(), text)
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
