"""Opens the sources of a detection: tables in memory, files, and Flight servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cepheid.detection.delta_source import DeltaSource
from cepheid.detection.kafka_source import KafkaSource, Topic
from cepheid.detection.log_source import LogSource
from cepheid.detection.options import Link
from cepheid.errors import InputProblem, listing, shown
from cepheid.events import OWN_UNIT, TIMESTAMP_CLOCK, Duration
from cepheid.io import frames
from cepheid.io.files import open_files
from cepheid.io.inputs import Columns, Input
from cepheid.io.source_list import SourceEntry, SourceList


def table_links(tables: Mapping[str, Any], columns: Columns, regions: Mapping[str, str]) -> list[Link]:
    """Sources whose events are tables of any kind that `match` reads, with their regions."""
    if not isinstance(tables, Mapping):
        raise InputProblem(
            f"the sources are a {type(tables).__name__}",
            expected="the path of a file that names them, or tables by name: {'name': table}",
        )
    if not tables:
        raise InputProblem("there are no sources", expected="at least one")
    for name in regions:
        if name not in tables:
            raise InputProblem(f"there is no source `{shown(name)}` in a region", expected=f"one of {listing(tables)}")
    found = []
    for name, events in tables.items():
        opened = frames.opened(events, columns)
        if opened is None:
            raise InputProblem(f"the source `{shown(name)}` has no events", expected="a table")
        found.append(Link(LogSource.of(name, opened.source), region=regions.get(name)))
    return found


def listed_links(listed: SourceList) -> list[Link]:
    """The sources of a file."""
    return [
        replace(_link(entry, listed.columns, listed.time_unit), types=entry.types, address=_address(entry))
        for entry in listed.sources
    ]


def _address(entry: SourceEntry) -> str:
    if entry.kafka is not None:
        return f"{entry.kafka}, topic `{shown(entry.topic or '')}`"
    return entry.address or shown(entry.file or entry.delta or "", 200)


def _seconds(length: Duration) -> float:
    if length.unit == OWN_UNIT:
        raise InputProblem(f"a lateness of {length.amount}", expected="a length of time with its unit, such as 500 ms")
    return float(TIMESTAMP_CLOCK.ticks(length)) / 1_000_000


def _link(entry: SourceEntry, columns: Columns, unit: str | None) -> Link:
    if entry.delta is not None:
        table = DeltaSource.open(entry.name, entry.delta, columns, entry.type)
        return Link(table, entry.latency, entry.retention, entry.region)
    if entry.kafka is not None:
        assert entry.topic is not None
        lateness = 1.0 if entry.lateness is None else _seconds(entry.lateness)
        topic = Topic(entry.kafka, entry.topic, columns, unit, entry.type, lateness, entry.settings)
        return Link(KafkaSource.open(entry.name, topic), entry.latency, entry.retention, entry.region)
    if entry.file is not None:
        source = open_files([Input(entry.file, entry.type)], columns)
        return Link(LogSource.of(entry.name, source), entry.latency, entry.retention, entry.region)
    from cepheid.io.flight_client import FlightSource  # lazily: gRPC takes a while to load

    assert entry.address is not None
    return Link(
        FlightSource(entry.name, entry.address, entry.token, entry.certificate),
        entry.latency,
        entry.retention,
        entry.region,
    )
