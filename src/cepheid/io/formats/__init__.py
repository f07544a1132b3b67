"""The file formats that events are read from, by the suffix of the file's name.

A format is a module of this package with a value `FORMAT`: a `columnar.ColumnFormat` (the file has a schema and is read
as columns) or a `text.TextFormat` (the file is parsed). Adding a format takes the module and a line in the table below.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cepheid.errors import InputProblem, NotAvailable, did_you_mean, listing, shown
from cepheid.io.delta import delta_files, is_delta
from cepheid.io.inputs import Columns, exists, neighbours

if TYPE_CHECKING:
    from cepheid.io.stream_rows import StreamReader

_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "parquet": (".parquet",),
    "csv": (".csv", ".tsv"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "arrow": (".arrow", ".feather", ".ipc"),
    "orc": (".orc",),
}
FORMATS: Mapping[str, str] = {suffix: name for name, suffixes in _SUFFIXES.items() for suffix in suffixes}
COMPRESSED = ".gz"
"""The suffix of compressed text: `events.csv.gz`."""
TABS = ".tsv"
_TEXT = ("csv", "jsonl")
NAMES = f"{', '.join(FORMATS)}; text also compressed: .csv{COMPRESSED}, .jsonl{COMPRESSED}"
"""The names of event files, for help and errors."""
_EXPECTED = f"a file named {NAMES}"


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row of a file. `raw` is its line, or None in a binary file."""

    line: int
    raw: str | None
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A row that cannot be parsed."""

    line: int
    reason: str
    raw: str


def require_times(file: Path, names: Iterable[str], columns: Columns) -> None:
    """Raises if a file lacks the time column, or the start column of events with duration."""
    for noun, column in zip(("time", "start"), columns.times, strict=False):
        if column not in names:
            raise InputProblem(
                f"`{shown(str(file), 200)}` has no column `{shown(column)}`",
                expected=f"the {noun} column; the file has {listing(names)}",
                hint=_meant(file, column, list(names)) or f"name it with --{noun}-column, or {noun}_column='...'",
            )


def _meant(file: Path, column: str, names: Sequence[str]) -> str | None:
    """What to do about a header without the time column: it may be another line, or have another delimiter."""
    meant = did_you_mean(column, names)
    if meant is not None or not names:
        return meant
    if suffix_of(file) in _SUFFIXES["csv"]:
        if names[0].startswith(("#", "//")):
            return f"the first line is `{shown(names[0])}`: remove the lines before the names of the columns"
        if any(_VALUE.fullmatch(name) for name in names):
            return "the first line seems to be an event: write a line with the names of the columns before it"
        odd = (
            re.search(rf"{re.escape(column)}([^\w\s.\"])|([^\w\s.\"]){re.escape(column)}", names[0])
            if len(names) == 1
            else None
        )
        if odd is not None:
            option = f"delimiter={odd[1] or odd[2]}"
            if option == "delimiter=,":
                return "a comma separates its cells: leave the delimiter out, or write comma for it"
            return f"name the delimiter: --input {shown(str(file), 200)},{option}, or delimiter='{odd[1] or odd[2]}'"
    return None


_VALUE = re.compile(r"-?[0-9][0-9.,:/TZ +-]*")
"""A number or a time."""


class Format(Protocol):
    @property
    def title(self) -> str: ...

    @property
    def is_tabular(self) -> bool:
        """Whether every row has every column of the file."""

    def rows(self, file: Path, columns: Columns, type: str | None) -> Iterable[RawRow | BrokenRow]:
        """The rows one by one, with plain values. `type` is the type of all events, where no column holds it."""

    @property
    def stream(self) -> StreamReader | None:
        """Reads files of a stream. None if the format cannot be streamed."""


def format_named(name: str) -> Format:
    """The format. Its module is imported on first use, because it may import a large library."""
    format: Format = import_module(f"{__name__}.{name}").FORMAT
    return format


def suffix_of(path: Path) -> str:
    """The suffix that names the format, also of a compressed file."""
    suffixes = path.suffixes[-2:]
    return suffixes[0].lower() if len(suffixes) == 2 and suffixes[1].lower() == COMPRESSED else path.suffix.lower()


def known_format(path: Path) -> str | None:
    """The format of a file by its name; None if it has none that is known."""
    name = FORMATS.get(suffix_of(path))
    return None if path.suffix.lower() == COMPRESSED and name not in _TEXT else name


def format_of(path: Path) -> str:
    name = known_format(path)
    if name is None:
        raise InputProblem(
            f"the format of `{shown(str(path), 200)}` is not known by its name",
            expected=_EXPECTED,
            hint="save the sheet as CSV, or read it with pandas.read_excel"
            if path.suffix.lower() in (".xlsx", ".xls", ".ods")
            else "make lines of a log a table first (docs/how-to/python.md, Logs); a file of cells needs format=csv"
            if path.suffix.lower() == ".log" or "log" in path.name.lower()
            else f"name the format: --input {shown(str(path), 200)},format=csv, or cepheid.Input(..., format='csv')",
        )
    return name


def format_by_name(name: str) -> str:
    """The format that a user names: `csv`, or a suffix such as `.ndjson`."""
    format = FORMATS.get(f".{name.lower().removeprefix('.')}")
    if format is None:
        names = [suffix.removeprefix(".") for suffix in FORMATS]
        raise InputProblem(
            f"`{shown(name)}` is not a format of event files",
            expected=f"one of {listing(names)}",
            hint=did_you_mean(name, names),
        )
    return format


def expand(path: str, format: str | None = None) -> list[tuple[Path, str]]:
    """The files of a path (a file, a directory, a Delta table or a glob), sorted by name, each with its format: that of
    its name, or the one that the user names."""
    named = None if format is None else format_by_name(format)
    if exists(path):
        root = Path(path)
        if not root.is_dir():
            return [(root, named or format_of(root))]
        if is_delta(root):
            return [(Path(file), "parquet") for file in _plain_files(root)]
        files = [file for file in _stored(root) if named is not None or known_format(file) is not None]
        if not files:
            raise InputProblem(f"the directory `{shown(path, 200)}` holds no event files", expected=_EXPECTED)
        return [(file, named or format_of(file)) for file in files]
    if any(character in path for character in "*?[") and (matches := sorted(glob.glob(path, recursive=True))):
        return [pair for name in matches for pair in expand(name, format)]
    if os.path.islink(path):
        target = shown(os.readlink(path), 200)
        raise InputProblem(f"the link `{shown(path, 200)}` leads nowhere: there is no `{target}`")
    raise no_file(path)


def no_file(path: str) -> InputProblem:
    """The error of a path that does not exist."""
    remote = re.match(r"(\w+)://", path)
    if remote is None:
        is_glob = any(character in path for character in "*?[")
        hint = None if is_glob else did_you_mean(Path(path).name, neighbours(path), _ALIKE)
    elif remote[1] == "file":
        hint = f"write the path alone: {shown(path.removeprefix('file://'), 200)}"
    else:
        hint = "files are local: download it first, or read it into a table, as pandas.read_csv does, and match that"
    return InputProblem(f"there is no file `{shown(path, 200)}`", hint=hint)


_ALIKE = 0.8
"""How similar the name of another file is: `n.csv` is not `ns.csv`."""


def _plain_files(root: Path) -> tuple[str, ...]:
    """The files of a Delta table that hold all of its columns."""
    table = delta_files(root)
    if table.partitioned:
        raise NotAvailable(
            f"the Delta table `{shown(str(root), 200)}`, which is partitioned by {listing(table.partitioned)}",
            expected="on this backend, a table without partitions",
            hint="run it on Spark: cepheid.match(query, path, session=spark)",
        )
    if not table.files:
        raise InputProblem(f"the Delta table `{shown(str(root), 200)}` is empty")
    return table.files


def unknown_files(path: str) -> list[Path]:
    """The files in a directory, or in those of a glob, that are not read because no format has their names."""
    roots = [path] if exists(path) else sorted(glob.glob(path, recursive=True))
    directories = [Path(root) for root in roots if Path(root).is_dir() and not is_delta(root)]
    return [file for root in directories for file in _stored(root) if known_format(file) is None]


def _stored(root: Path) -> list[Path]:
    """The files of a directory, without the markers that Spark writes beside the data (_SUCCESS, .crc)."""
    return [
        file
        for file in sorted(root.rglob("*"))
        if not any(part.startswith(("_", ".")) for part in file.relative_to(root).parts) and file.is_file()
    ]
