"""Inputs as the user specifies them: files, and the columns of the type and the time. Imports no library."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

from cepheid.errors import InputProblem, did_you_mean, listing, require_strings, shown
from cepheid.io.times import unit_of
from cepheid.io.zones import require_zone

NO_COLUMN = "\0none"
"""The name of the type column of an input that has none. No input has such a column, because a NUL is refused."""


_TEXTS = ("delimiter", "decimal", "thousands", "time_format", "encoding")
_NAMES = ("type", "type_column", "time_column", "start_column", "format")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """How text files are written. Fields that are None are the usual: UTF-8, 1234.5, times in ISO 8601."""

    delimiter: str | None = None
    """The character between the cells of CSV files; None: the header shows it."""
    decimal: str | None = None
    """The character before the fraction of numbers in CSV files."""
    thousands: str | None = None
    """The character between groups of three digits in CSV files; `.` with a decimal comma."""
    time_format: str | None = None
    """The format of times, in the directives of Python's `strptime`, such as `%d.%m.%Y %H:%M`."""
    encoding: str | None = None
    zone: str | None = None
    """The zone of times without an offset, such as `Europe/Berlin`, also in tables; None: UTC."""

    def __post_init__(self) -> None:
        for name in _TEXTS:
            if not isinstance(value := getattr(self, name), str | None):
                require_strings({name: value})
        for name in ("delimiter", "decimal", "thousands"):
            if (text := getattr(self, name)) is not None:
                object.__setattr__(self, name, _read_character(text, name))
        if self.decimal is not None and self.decimal in (self.thousands, self.delimiter):
            other = "between groups of digits" if self.decimal == self.thousands else "between cells"
            raise InputProblem(
                f"`{self.decimal}` is the decimal character, so it cannot stand {other}",
                hint="files with a decimal comma have `;` or a tab between the cells" * (self.decimal == self.delimiter)
                or None,
            )
        if self.decimal == "," and self.thousands is None:  # `1.234` is no fraction then
            object.__setattr__(self, "thousands", ".")
        if self.encoding is not None:
            _require_encoding(self.encoding)
        if self.time_format is not None:
            _require_time_format(self.time_format)
        if self.zone is not None:
            require_zone(self.zone, self.time_format)

    @property
    def rewrites_times(self) -> bool:
        """Whether times are brought into the usual form: ISO 8601, with an offset unless they are in UTC."""
        return self.time_format is not None or self.zone is not None

    def over(self, others: TextOptions) -> TextOptions:
        """These options, and `others` where they are not set."""
        return TextOptions(**{f.name: getattr(self, f.name) or getattr(others, f.name) for f in fields(TextOptions)})


PLAIN_TEXT = TextOptions()


class TextKeywords(TypedDict, total=False):
    """`TextOptions` as keyword arguments."""

    delimiter: str | None
    decimal: str | None
    thousands: str | None
    time_format: str | None
    encoding: str | None
    zone: str | None


@dataclass(frozen=True)
class Columns:
    """The names of the columns with the type and the time of an event. If its events have a duration, `start` names the
    column of their start, and the time is their end. If `event_type` is set, all events have this type, and no column
    holds it. `unit` is the declared unit of integer times; None if the options of the run decide. `read` are the
    attributes that the queries read; None if that is all: whole events are output."""

    type: str = "type"
    time: str = "ts"
    start: str | None = None
    event_type: str | None = None
    unit: str | None = None
    text: TextOptions = PLAIN_TEXT
    read: frozenset[str] | None = None

    @classmethod
    def of(
        cls,
        type_column: str | None,
        time_column: str,
        start_column: str | None,
        type: str | None,
        text: TextOptions = PLAIN_TEXT,
    ) -> Columns:
        """The keyword arguments of `match`, `explain` and `stream`."""
        for option, value in (("type_column", type_column), ("start_column", start_column), ("type", type)):
            if not isinstance(value, str | None):
                require_strings({option: value})
        if not isinstance(time_column, str):
            require_strings({"time_column": time_column}, is_optional=False)
        name = NO_COLUMN if type_column is None else type_column
        return cls(name, time_column, start_column, event_type=type, text=text)

    @cached_property
    def times(self) -> tuple[str, ...]:
        """The columns that hold times."""
        return (self.time,) if self.start is None else (self.time, self.start)

    def reads(self, name: str) -> bool:
        """Whether an attribute, or one inside it, is read. A value that is not may be anything: it is null."""
        if self.read is None or name in self.read or name == self.type or name in self.times:
            return True
        return any(name.startswith(f"{other}.") or other.startswith(f"{name}.") for other in self.read)


DEFAULT_COLUMNS = Columns()

_OPTIONS: Mapping[str, str] = {
    "type": "type",
    "type-column": "type_column",
    "time": "time_column",
    "start": "start_column",
    "unit": "time_unit",
    "sep": "delimiter",
    "delimiter": "delimiter",
    "format": "format",
    "time-format": "time_format",
    "decimal": "decimal",
    "thousands": "thousands",
    "encoding": "encoding",
    "zone": "zone",
}
"""The options of an input on the command line, each with its field."""
INPUT_OPTIONS = ", ".join(name for name in _OPTIONS if name != "delimiter")
_CHARACTERS = {
    "\\t": "\t",
    "tab": "\t",
    "comma": ",",
    "semicolon": ";",
    "pipe": "|",
    "space": " ",
    "point": ".",
    "dot": ".",
    "apostrophe": "'",
}
_TIME_FORMAT = "directives such as `%d.%m.%Y %H:%M` or `%m/%d/%Y %I:%M %p`"
_ROLES = {
    "delimiter": ("separate the cells of a CSV file", r"one character, such as ; or | or \t"),
    "decimal": ("stand before the fraction of a number", "`,` or `.`"),
    "thousands": ("stand between groups of digits", "`.`, `,`, `'` or `space`"),
}


@dataclass(frozen=True, slots=True)
class Input(TextOptions):
    """One input of events: the path of a file, a directory or a glob, or a table or DataFrame, and how to read it.

    All rows are events of `type`, if it is set; otherwise the column `type_column` holds their type. `format` is that
    of files whose names do not show it. The options of the run decide fields that are None."""

    data: Any
    type: str | None = None
    type_column: str | None = None
    time_column: str | None = None
    start_column: str | None = None
    time_unit: str | None = None
    format: str | None = None

    def __new__(cls, *_: Any, **given: Any) -> Input:
        names = [f.name for f in fields(cls)] if given else []
        unknown = next((name for name in given if name not in names), None)
        if unknown is not None:
            raise unknown_option("Input", unknown, names)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        TextOptions.__post_init__(self)
        for name in _NAMES:
            if not isinstance(value := getattr(self, name), str | None):
                require_strings({name: value})
        if self.time_unit is not None:
            object.__setattr__(self, "time_unit", unit_of(self.time_unit))

    @property
    def text(self) -> TextOptions:
        return self.over(PLAIN_TEXT)

    @property
    def path(self) -> str:
        return str(os.fspath(self.data))

    @classmethod
    def parse(cls, text: str) -> Input:
        """`PATH`, `TYPE=PATH`, or either with options: `logins.csv,type=Login,time=ts,unit=s`. A path that exists is a
        path, whatever characters it has (`day=1/events.csv`)."""
        if exists(text):
            return cls(text)
        path, *options = re.split(r"\s*,\s*(?=[A-Za-z_-]+=)", text)
        values: dict[str, str] = {}
        for option in options:
            name, _, value = option.partition("=")
            field = _OPTIONS.get(name.replace("_", "-").lower())
            if field is None:
                plain = name.replace("-", "_").lower()
                near = "sep" if plain.startswith("sep") else next((o for o, f in _OPTIONS.items() if f == plain), name)
                raise InputProblem(
                    f"`{shown(name)}` is not an option of an input",
                    expected=f"one of {listing(_OPTIONS)}: logins.csv,type=Login,time=ts,unit=s",
                    hint=did_you_mean(near, _OPTIONS) or "the columns of events are named in the query",
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
            event_type=kind,
            unit=self.time_unit or others.unit,
            text=self.text.over(others.text),
        )

    @property
    def name(self) -> str:
        """For messages."""
        if isinstance(self.data, str | os.PathLike):
            return shown(os.fspath(self.data), 200)
        return self.type or f"a {type(self.data).__name__}"


def unknown_option(of: str, name: str, names: Sequence[str]) -> InputProblem:
    """The error of a keyword argument that `of` does not have."""
    column = f"{name}_column"
    hint = f"did you mean `{column}`?" if column in names else did_you_mean(name, names)
    if name == "backend" and "evaluator" in names:
        hint = 'give a Spark DataFrame, or `session=` for a path, to run on Spark; evaluator="reference" for the oracle'
    return InputProblem(
        f"`{of}` has no option `{shown(name)}`", expected=f"one of {listing(names, len(names))}", hint=hint
    )


def _read_character(text: str, role: str) -> str:
    """A character, or the name of one that is hard to type in a shell: `\\t`, `tab`, `semicolon`."""
    character = _CHARACTERS.get(text.lower(), text)
    is_allowed = character in ",." if role == "decimal" else character not in '"\r\n\0'
    if (
        len(character) != 1
        or character.isalnum()
        or not is_allowed
        or (role == "delimiter" and not character.isascii())
    ):
        what, expected = _ROLES[role]
        raise InputProblem(f"`{shown(text)}` cannot {what}", expected=expected)
    return character


def _require_encoding(name: str) -> None:
    try:
        is_text = codecs.lookup(name)._is_text_encoding
    except LookupError:
        is_text = False
    if not is_text:
        raise InputProblem(f"`{shown(name)}` is not an encoding of text", expected="utf-8, latin-1, cp1252, utf-16 ...")


_LETTERS = {
    "yyyy": "%Y", "YYYY": "%Y", "yy": "%y", "MMM": "%b", "MM": "%m", "M": "%m", "dd": "%d", "DD": "%d", "d": "%d",
    "HH": "%H", "hh": "%I", "mm": "%M", "ss": "%S", "SSSSSS": "%f", "SSS": "%f", "a": "%p", "XXX": "%z", "Z": "%z",
}  # fmt: skip


def _as_directives(format: str) -> str | None:
    """A format in the letters of Java, Spark and Excel (`dd.MM.yyyy HH:mm`) in directives. None if it is no such."""
    parts = re.findall(r"[A-Za-z]+|[^A-Za-z]+", format.replace("'T'", "T"))
    written = [_LETTERS.get(part, part) if part.isalpha() and part != "T" else part for part in parts]
    directives = "".join(written)
    is_known = {"%d", "%m"} <= set(written) or {"%d", "%b"} <= set(written)
    return f"in directives it is {shown(directives)}" if is_known else None


def _require_time_format(format: str) -> None:
    """Refuses a format that does not give a day, or that Python does not know."""
    if "%" not in format:
        raise InputProblem(
            f"`{shown(format)}` is not a format of times",
            expected=_TIME_FORMAT,
            hint=_as_directives(format) or "times of ISO 8601 and integers since 1970 need no format",
        )
    if "%Z" in format.replace("%%", ""):
        raise InputProblem(
            f"the format of times `{shown(format)}` has the name of a zone, which may mean several offsets",
            expected="%z for an offset such as +0200, or the word itself, such as %H:%M UTC",
        )
    moment = datetime(2031, 12, 23, 17, 48, 59, tzinfo=UTC)
    try:
        parsed = datetime.strptime(moment.strftime(format), format)
    except ValueError as problem:
        raise InputProblem(f"`{shown(format)}` is not a format of times: {problem}", expected=_TIME_FORMAT) from None
    if parsed.replace(tzinfo=None).date() != moment.date():
        raise InputProblem(
            f"the format of times `{shown(format)}` has no day, month or year",
            expected=_TIME_FORMAT,
            hint="times of a day need their day: join two columns first, or add it, in pandas with pd.to_datetime",
        )


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
