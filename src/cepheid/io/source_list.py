"""The file that names the sources of a detection: addresses or files, with latency, retention, region and token."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.events import OWN_UNIT, UNIT_WORDS, Duration
from cepheid.io.inputs import DEFAULT_COLUMNS, Columns

_FIELDS = (
    *("name", "address", "file", "delta", "kafka", "topic", "settings", "lateness", "type", "region"),
    *("types", "token", "token_file", "certificate", "latency", "retention"),
)
_PLACES = ("address", "file", "delta", "kafka")
_TOP = ("sources", "columns", "time_unit", "statistics")
NO_TIME = Duration(0)
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]*)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """One source. It has an address (of a Flight server), a file, a Delta table, or a topic of Kafka."""

    name: str
    address: str | None = None
    file: str | None = None
    delta: str | None = None
    kafka: str | None = None
    """The servers."""
    topic: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of Kafka's client."""
    lateness: Duration | None = None
    """How long after its time an event of a topic may come."""
    type: str | None = None
    region: str | None = None
    token: str | None = None
    certificate: str | None = None
    latency: Duration = NO_TIME
    """The longest time that a message takes, one way."""
    retention: Duration | None = None
    """How long it keeps its events; None: for ever."""
    types: frozenset[str] | None = None
    """The event types that it is asked for; None: all."""


@dataclass(frozen=True, slots=True)
class SourceList:
    sources: tuple[SourceEntry, ...]
    columns: Columns = DEFAULT_COLUMNS
    region: str = "region"
    """The column with the region of a source."""
    time_unit: str | None = None
    statistics: str | None = None
    """The file with the answer of `cepheid source stats`."""


def duration(text: object, what: str) -> Duration:
    """`50 ms`, `2s`, or a number of ticks."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return Duration(text)
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    unit = UNIT_WORDS.get(found[2].lower()) if found is not None and found[2] else OWN_UNIT
    if found is None or unit is None or unit == "events":
        raise InputProblem(f"{what} is `{shown(str(text))}`", expected="a length of time, such as 50 ms or 2s")
    number = float(found[1])
    return Duration(int(number) if number.is_integer() else number, unit)


def read_source_list(path: str) -> SourceList:
    """Reads a file of JSON."""
    where = f"`{shown(path, 200)}`"
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise InputProblem(f"the sources in {where} cannot be read: {problem}") from None
    except ValueError as problem:
        raise InputProblem(f"the sources in {where} are not JSON: {problem}") from None
    return source_list(data, where, Path(path).parent)


def source_list(data: object, where: str, directory: Path = Path()) -> SourceList:
    """The sources of parsed JSON. Paths are relative to the directory."""
    if not isinstance(data, dict) or not isinstance(data.get("sources"), list) or not data["sources"]:
        raise InputProblem(f"{where} names no sources", expected='{"sources": [{"name": ..., "address": ...}, ...]}')
    _require_known(data, _TOP, where)
    entries: list[SourceEntry] = []
    for item in data["sources"]:
        entry = _entry(item, where, directory)
        if any(other.name == entry.name for other in entries):
            raise InputProblem(f"{where} names the source `{shown(entry.name)}` twice")
        entries.append(entry)
    columns = data.get("columns", {})
    _require_known(columns, ("type", "time", "start", "region"), f"the columns in {where}")
    statistics = data.get("statistics")
    return SourceList(
        tuple(entries),
        Columns(columns.get("type", "type"), columns.get("time", "ts"), columns.get("start")),
        columns.get("region", "region"),
        data.get("time_unit"),
        None if statistics is None else str(directory / statistics),
    )


def _entry(item: Any, where: str, directory: Path) -> SourceEntry:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str) or not item["name"]:
        raise InputProblem(f"a source in {where} has no name", expected='{"name": ..., "address": ...}')
    name = item["name"]
    what = f"the source `{shown(name)}` in {where}"
    _require_known(item, _FIELDS, what)
    places = [name for name in _PLACES if name in item]
    if len(places) != 1:
        has = " and ".join(places) if places else "no address"
        raise InputProblem(f"{what} has {has}", expected="one of address, file, delta and kafka")
    settings = item.get("settings", {})
    if ("kafka" in item) != ("topic" in item) or not isinstance(settings, dict):
        raise InputProblem(
            f"{what} has no topic of Kafka", expected='{"kafka": "host:9092", "topic": ..., "settings": {...}}'
        )
    types = item.get("types")
    if types is not None and not (isinstance(types, list) and types and all(isinstance(one, str) for one in types)):
        raise InputProblem(f"the types of {what} are no names", expected='a list of event types, such as ["Alarm"]')
    token = item.get("token")
    if "token_file" in item:
        try:
            token = (directory / item["token_file"]).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as problem:
            raise InputProblem(f"the token of {what} cannot be read: {problem}") from None
    return SourceEntry(
        name,
        item.get("address"),
        None if "file" not in item else str(directory / item["file"]),
        None if "delta" not in item else _place(item["delta"], directory),
        item.get("kafka"),
        item.get("topic"),
        settings,
        None if "lateness" not in item else duration(item["lateness"], f"the lateness of {what}"),
        item.get("type"),
        item.get("region"),
        token,
        None if "certificate" not in item else str(directory / item["certificate"]),
        duration(item.get("latency", 0), f"the latency of {what}"),
        None if "retention" not in item else duration(item["retention"], f"the retention of {what}"),
        None if types is None else frozenset(types),
    )


def _place(path: str, directory: Path) -> str:
    return path if "://" in path else str(directory / path)


def _require_known(data: Mapping[str, Any], names: tuple[str, ...], what: str) -> None:
    for name in data:
        if name not in names:
            raise InputProblem(
                f"{what} has the field `{shown(name)}`",
                expected=f"some of {listing(names)}",
                hint=did_you_mean(name, names),
            )
