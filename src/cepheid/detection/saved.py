"""The saved state of a detection: the plans, what its sources said of themselves, the acquisition (known events,
intervals open and covered, matches that may be found again), the gaps, and how much of the output belongs to it.

It is one file, replaced as a whole. A process that is killed goes on from the last one: what had been asked for and not
answered is asked for again, and output after the saved offset is written again."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import IO, Any, NamedTuple

from cepheid.acquire.plans import Plan
from cepheid.acquire.requests import Gap
from cepheid.errors import InputProblem, shown
from cepheid.io.asked_source import Description
from cepheid.io.flight_messages import description_bytes, description_of

FORMAT = 3
_FILE = "detection.state"
_MAGIC = b"cepheid detection\n"


class SavedPart(NamedTuple):
    """The plan of a query for a region, or for all."""

    name: str
    region: str | None
    plan: Plan


class SavedDetection(NamedTuple):
    """`queries` has their texts by name, `offset` is the length of the output in bytes."""

    queries: Mapping[str, str]
    parts: tuple[SavedPart, ...]
    descriptions: tuple[Description, ...]
    gaps: tuple[Gap, ...]
    offset: int
    acquisition: bytes

    def write(self, directory: str) -> None:
        """Replaces the saved state. It is on disk when this returns."""
        data = {
            "format": FORMAT,
            "queries": dict(self.queries),
            "parts": [[part.name, part.region, _plan_data(part.plan)] for part in self.parts],
            "descriptions": [
                [d.name, description_bytes(d).decode(), _text(d.schema.serialize().to_pybytes())]
                for d in self.descriptions
            ],
            "gaps": [astuple(gap) for gap in self.gaps],
            "offset": self.offset,
        }
        head = json.dumps(data).encode()
        content = head + b"\n" + self.acquisition
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        with durable(path / _FILE) as file:
            file.write(_MAGIC + hashlib.sha256(content).hexdigest().encode() + b"\n" + content)

    @classmethod
    def read(cls, directory: str) -> SavedDetection | None:
        """The saved state in a directory; None if there is none."""
        path = Path(directory) / _FILE
        where = f"the state of a detection in `{shown(directory, 200)}`"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise InputProblem(f"{where} cannot be read: {problem}") from None
        digest, _, rest = content.removeprefix(_MAGIC).partition(b"\n")
        if not content.startswith(_MAGIC) or hashlib.sha256(rest).hexdigest().encode() != digest:
            raise InputProblem(f"{where} is damaged", hint="remove the directory to detect from the beginning")
        head, _, acquisition = rest.partition(b"\n")
        data = json.loads(head)
        if data["format"] != FORMAT:
            raise InputProblem(f"{where} has format {data['format']}", expected=f"format {FORMAT}")
        descriptions = [
            description_of(name, text.encode(), base64.b64decode(schema)) for name, text, schema in data["descriptions"]
        ]
        gaps = tuple(Gap(*gap) for gap in data["gaps"])
        parts = tuple(SavedPart(name, region, _plan(plan)) for name, region, plan in data["parts"])
        return cls(data["queries"], parts, tuple(descriptions), gaps, data["offset"], acquisition)

    def require(self, queries: Mapping[str, str], sources: Sequence[str], directory: str) -> None:
        """Refuses the state of another detection."""
        known = [d.name for d in self.descriptions]
        what = "another query" if len(queries) == 1 else "other queries"
        self._require(dict(queries) == dict(self.queries), what, directory)
        self._require(sorted(sources) == sorted(known), "other sources", directory)

    def require_parts(self, parts: Sequence[tuple[str, str | None]], directory: str) -> None:
        """Refuses the state of a detection whose sources had other regions."""
        known = [(part.name, part.region) for part in self.parts]
        self._require(list(map(tuple, parts)) == known, "other regions", directory)

    def _require(self, is_known: bool, what: str, directory: str) -> None:
        if not is_known:
            raise InputProblem(
                f"the state in `{shown(directory, 200)}` belongs to a detection with {what}",
                hint="choose another directory for the state",
            )


@contextmanager
def durable(path: Path) -> Iterator[IO[bytes]]:
    """A file that replaces the one at the path when it is complete and on disk."""
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _plan_data(plan: Plan) -> list[Any]:
    return [plan.steps, [_plan_data(below) for below in plan.below]]


def _plan(data: list[Any]) -> Plan:
    steps, below = data
    return Plan(tuple(tuple(step) for step in steps), tuple(_plan(part) for part in below))
