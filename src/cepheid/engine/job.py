"""One query over one set of files, from text to matches: parse, check, read, bind, run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cepheid.binding import bind, warnings_for
from cepheid.engine.backend import backend
from cepheid.errors import CepheidError, InputProblem, shown
from cepheid.events import Schema, Type
from cepheid.io.formats import expand
from cepheid.io.inputs import Input
from cepheid.io.matches import column_names
from cepheid.io.row_reader import Loaded, read_events
from cepheid.lang import parse
from cepheid.pattern import Query, SourceStream
from cepheid.physical import Plan
from cepheid.semantics import Match

if TYPE_CHECKING:
    from cepheid.optimize.adapt import Switch
    from cepheid.optimize.stats import Stats


@dataclass(frozen=True, slots=True)
class Settings:
    """Where it runs, how the files are read, and the values of the query's parameters."""

    backend: str = "reference"
    type_column: str = "type"
    time_column: str = "ts"
    time_unit: str | None = "ms"
    params: Mapping[str, Any] = field(default_factory=dict)
    adaptive: bool = False
    """Whether the plan may change while it runs."""
    stats: Stats | None = None
    """What is known about the events."""


@dataclass(frozen=True, slots=True)
class QueryText:
    """A query as written, and where it was found."""

    text: str
    source: str = "query"
    dialect: str = "auto"

    def parse(self) -> Query:
        return parse(self.text, dialect=_dialect(self.dialect), source=self.source)

    @contextmanager
    def located_errors(self) -> Iterator[None]:
        """Errors that know a place in this text show it."""
        try:
            yield
        except CepheidError as error:
            error.within(self.text, self.source)
            raise


_OTHER_NAMES = {"": "auto", "saseplus": "sase+", "sase-plus": "sase+", "sase_plus": "sase+", "next": "eql"}


def _dialect(name: str) -> str:
    """The name of a language however people write it."""
    folded = name.strip().lower()
    return _OTHER_NAMES.get(folded, folded)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The query as bound to the data, what was read, and what was found."""

    query: Query
    loaded: Loaded
    matches: list[Match]
    warnings: list[str]
    plan: Plan | None = None
    switches: tuple[Switch, ...] = ()


def load(query: Query, inputs: Sequence[Input], settings: Settings) -> Loaded:
    return read_events(
        inputs, settings.type_column, settings.time_column, settings.time_unit, declared=declared_types(query)
    )


def execute(written: QueryText, inputs: Sequence[Input], settings: Settings) -> Outcome:
    """All that can be found wrong with the query by itself is found before any data is read."""
    query = written.parse()
    column_names(query)
    run = backend(settings.backend, settings.adaptive, settings.stats)
    loaded = load(query, inputs, settings)
    with written.located_errors():
        bound = bind(query, loaded.schema, settings.params)
        answer = run(query, loaded, settings.params)
    warnings = warnings_for(bound, loaded.schema)
    return Outcome(bound, loaded, answer.matches, warnings, answer.plan, answer.switches)


def declared_types(query: Query) -> Schema:
    """The sources that the query declares, and those of the queries it is made of."""
    types: dict[str, Mapping[str, Type]] = {}
    for item in query.inputs:
        if isinstance(item, SourceStream):
            types[item.name] = dict(item.attributes)
        elif isinstance(item, Query):
            types.update(declared_types(item).types)
    return Schema(types)


def require_distinct(output: str, inputs: Sequence[Input]) -> None:
    """A slip of the keyboard must not replace the data by its matches."""
    place = Path(output)
    for item in inputs:
        for file, _ in expand(item.path):
            if place.exists() and os.path.samefile(place, file):
                raise InputProblem(f"`{shown(output, 200)}` is an input; the output would replace it")
