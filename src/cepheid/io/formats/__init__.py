"""The file formats that events are read from, by the suffix of the file's name.

A format is a module of this package with a value `FORMAT`: a `columnar.ColumnFormat` (the file has a schema and is read
as columns) or a `text.TextFormat` (the file is parsed). Adding a format takes the module and a line in the table below.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cepheid.errors import InputProblem, did_you_mean, shown
from cepheid.io.inputs import Columns, exists, neighbours

if TYPE_CHECKING:
    from cepheid.io.stream_rows import Read, StreamLayout

_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "parquet": (".parquet",),
    "csv": (".csv",),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "arrow": (".arrow", ".feather", ".ipc"),
    "orc": (".orc",),
}
FORMATS: Mapping[str, str] = {suffix: name for name, suffixes in _SUFFIXES.items() for suffix in suffixes}
_EXPECTED = f"a file named {', '.join(list(FORMATS)[:-1])} or {list(FORMATS)[-1]}"


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row of a file. `raw` is its text, or None where the file is not text."""

    line: int
    raw: str | None
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A row that cannot be parsed."""

    line: int
    reason: str
    raw: str


class Format(Protocol):
    @property
    def title(self) -> str: ...

    @property
    def is_tabular(self) -> bool:
        """Whether every row has every column of the file."""

    def rows(self, file: Path, columns: Columns, type: str | None) -> Iterable[RawRow | BrokenRow]:
        """The rows one by one, with plain values. `type` is the type of all events, where no column holds it."""

    def stream(self, paths: Sequence[str], layout: StreamLayout, earliest: int, latest: int) -> Read:
        """The events of files of a stream, with the columns of the layout."""


def format_named(name: str) -> Format:
    """The format, whose module is loaded only now: reading a format may take a library."""
    format: Format = import_module(f"{__name__}.{name}").FORMAT
    return format


def format_of(path: Path) -> str:
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise InputProblem(f"the format of `{shown(str(path), 200)}` is not known by its name", expected=_EXPECTED)
    return found


def expand(path: str) -> list[tuple[Path, str]]:
    """The files that a path stands for (a file, a directory, a glob), in order of name, each with its format."""
    if exists(path):
        root = Path(path)
        if not root.is_dir():
            return [(root, format_of(root))]
        # Spark's markers (_SUCCESS, .crc) lie beside the data it writes.
        files = [
            file
            for file in sorted(root.rglob("*"))
            if not any(part.startswith(("_", ".")) for part in file.relative_to(root).parts)
            and file.suffix.lower() in FORMATS
            and file.is_file()
        ]
        if not files:
            raise InputProblem(f"the directory `{shown(path, 200)}` holds no event files", expected=_EXPECTED)
        return [(file, format_of(file)) for file in files]
    if any(character in path for character in "*?[") and (matches := sorted(glob.glob(path, recursive=True))):
        return [pair for name in matches for pair in expand(name)]
    raise InputProblem(f"there is no file `{shown(path, 200)}`", hint=did_you_mean(Path(path).name, neighbours(path)))
