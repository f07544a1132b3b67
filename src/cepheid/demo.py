"""The tour: generated data as in the papers' experiments, and a query in each language over it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from cepheid import datasets, report
from cepheid.backends.files import Input
from cepheid.backends.job import QueryText, Settings, execute
from cepheid.backends.matches import make_directory, replacing, write_matches
from cepheid.explanation import LANGUAGE_NAMES


@dataclass(frozen=True, slots=True)
class Example:
    """A query shipped with the package, and the data it is shown on."""

    file: str
    data: str
    generate: Callable[[], pa.Table]
    time_unit: str = "ms"
    params: Mapping[str, Any] = field(default_factory=dict)


EXAMPLES = (
    Example("shoplifting.sase", "retail", lambda: datasets.retail(600, tags=60, seed=1)),
    Example("contamination.saseplus", "shipments", lambda: datasets.shipments(1_500, sites=40, seed=1)),
    Example("rising-price.saseplus", "stock", lambda: datasets.stock(1_000, seed=1)),
    Example("price-fall.zstream", "ticks", lambda: datasets.ticks(300, seed=1), params={"x": 0.5, "y": 0.5}),
    Example("card-fraud.eql", "cards", lambda: datasets.cards(500, accounts=20, seed=1)),
    Example("running-person.ced", "persons", lambda: datasets.persons(1_000, seed=1), time_unit="s"),
)


def example_text(name: str) -> str:
    return (files("cepheid") / "examples" / name).read_text(encoding="utf-8")


def show(directory: Path, console: Console) -> None:
    """Writes data, queries and matches into the directory, and shows them on the console."""
    make_directory(directory)
    for example in EXAMPLES:
        _show(example, directory, console)
    report.say(console, f"The events, the queries and all matches are in {directory}/.", "bold")


def _show(example: Example, directory: Path, console: Console) -> None:
    text = example_text(example.file)
    events, output = directory / f"{example.data}.parquet", directory / f"{example.file.split('.')[0]}.jsonl"
    datasets.write(example.generate(), events)
    with replacing(directory / example.file) as file:
        file.write(text.encode())
    settings = Settings(time_unit=example.time_unit, params=example.params)
    began = time.perf_counter()
    outcome = execute(QueryText(text, example.file), [Input(str(events))], settings)
    seconds = time.perf_counter() - began
    write_matches(str(output), outcome.query, outcome.matches, outcome.loaded)

    console.rule(f"{LANGUAGE_NAMES[outcome.query.language]}: {example.file}", align="left")
    report.say(console, text.rstrip(), "cyan")
    if example.params:
        report.say(console, ", ".join(f"{name} = {value}" for name, value in example.params.items()), "cyan")
    found = report.count(len(outcome.matches), "match", "matches")
    read = report.count(len(outcome.loaded.events), "event")
    report.say(console, f"\n{found} in {read} ({events.name}, {seconds:.1f} s)", "bold")
    console.print(report.match_rows(outcome.query, outcome.matches, outcome.loaded))
    console.print()
