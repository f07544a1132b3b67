"""The file formats that events are read from, by the suffix of the file's name."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path

from cepheid.errors import InputProblem, did_you_mean, shown
from cepheid.io.inputs import exists, neighbours

FORMATS: Mapping[str, str] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}


def expand(path: str) -> list[tuple[Path, str]]:
    """The files that a path stands for (a file, a directory, a glob), in order of name, each with its format."""
    if exists(path):
        place = Path(path)
        if not place.is_dir():
            return [(place, format_of(place))]
        # Spark's markers (_SUCCESS, .crc) lie beside the data it writes.
        found = [
            file
            for file in sorted(place.rglob("*"))
            if not any(part.startswith(("_", ".")) for part in file.relative_to(place).parts)
            and file.suffix.lower() in FORMATS
            and file.is_file()
        ]
        if not found:
            raise InputProblem(f"the directory `{shown(path, 200)}` holds no event files", expected=_EXTENSIONS)
        return [(file, format_of(file)) for file in found]
    if any(sign in path for sign in "*?[") and (matches := sorted(glob.glob(path, recursive=True))):
        return [pair for name in matches for pair in expand(name)]
    raise InputProblem(f"there is no file `{shown(path, 200)}`", hint=did_you_mean(Path(path).name, neighbours(path)))


_EXTENSIONS = "a file named .parquet, .csv, .jsonl, .ndjson or .json"


def format_of(path: Path) -> str:
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise InputProblem(f"the format of `{shown(str(path), 200)}` is not known by its name", expected=_EXTENSIONS)
    return found
