"""A query over files, for the command line and the demo. The files are opened once and the query is prepared once."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from cepheid.analysis import Analysis
from cepheid.cautions import warnings_for, zone_cautions
from cepheid.engine.adaptation import ignore
from cepheid.engine.event_types import require_event_types
from cepheid.engine.match_ids import noticing_repeats
from cepheid.engine.passing import Progress
from cepheid.engine.prepare import DEFAULT_OPTIONS, Prepared, RunOptions, prepare, require_used
from cepheid.engine.query_text import QueryText, declared_types
from cepheid.engine.run import Result, analyze, run
from cepheid.engine.shapes import EVENTS, EVENTS_ONLY, OutputOptions
from cepheid.engine.text_order import order_cautions
from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.io.formats import expand, unknown_files
from cepheid.io.inputs import Columns, Input
from cepheid.io.merged import open_inputs
from cepheid.io.sinks import write_batches
from cepheid.io.source import Source
from cepheid.optimize.adapt import Switch
from cepheid.pattern import Query
from cepheid.physical import REFERENCE

BACKENDS = (REFERENCE, "local", "spark")
_MOST_ANALYZED = 10_000_000
"""The most events that the driver reads again, to say why Spark has found no match."""


@dataclass(frozen=True, slots=True)
class FileRun:
    """A query that is ready to run over its files."""

    source: Source
    prepared: Prepared
    backend: str
    switches: list[Switch] = field(default_factory=list)
    """The plan changes, after the run."""
    analyses: list[Analysis] = field(default_factory=list)
    """The counters of a run without a match."""
    shape: str = EVENTS
    unread: tuple[Path, ...] = ()
    """Files in the directories of the inputs that have no known format."""
    inputs: tuple[str, ...] = ()
    """The names of the inputs."""
    text: str | None = None
    """The text of the query."""
    repeats: list[str] = field(default_factory=list)
    """That matches share an identifier, after the run."""

    @classmethod
    def open(
        cls,
        written: QueryText,
        query: Query,
        inputs: Sequence[Input],
        columns: Columns,
        options: RunOptions = DEFAULT_OPTIONS,
        backend: str = "local",
        output: OutputOptions = EVENTS_ONLY,
    ) -> FileRun:
        """`query` is the parsed text."""
        require_backend(backend, options)
        if backend == REFERENCE:
            options = replace(options, evaluator=REFERENCE)
        columns = replace(columns, read=output.names_read([query]))
        source = open_inputs(inputs, columns, options.time_unit, declared_types(query))
        with written.located_errors():
            require_used(options.params, query)
            prepared = prepare(query, source, options)
            require_event_types(prepared.written, source, in_python=False)
            unread = tuple(file for item in inputs if item.format is None for file in unknown_files(item.path))
            return cls(
                source,
                output.of(prepared),
                backend,
                shape=output.shape,
                unread=unread,
                inputs=tuple(i.name for i in inputs),
                text=written.text,
            )

    @property
    def warnings(self) -> list[str]:
        found = warnings_for(self.prepared.written, self.prepared.schema, self.prepared.clock)
        found += order_cautions(self.prepared.written, self.source)
        if (zone := self.source.columns.text.zone) is not None:
            found += zone_cautions(self.prepared.written, zone, self.text)
        return [f"warning: {text}" for text in found]

    def write(self, file: IO[bytes], format: str, progress: Progress = ignore) -> int:
        """Writes the matches incrementally. Returns their number."""
        matches, result = self.result(format in ("jsonl", "csv"), progress)
        write_batches(file, format, result.schema, result.batches, result.objects)
        return sum(matches)

    def first_rows(self, limit: int, progress: Progress = ignore) -> tuple[int, int, list[dict[str, Any]]]:
        """The number of matches, the number of output rows, and the first rows as JSON objects. Reads all matches."""
        matches, result = self.result(True, progress)
        lines, sizes = io.BytesIO(), [0]

        def first() -> Iterator[pa.RecordBatch]:
            for batch in result.batches:
                yield batch.slice(0, max(limit - sum(sizes), 0))
                sizes.append(batch.num_rows)

        write_batches(lines, "jsonl", result.schema, first(), result.objects)
        return sum(matches), sum(sizes), [json.loads(line) for line in lines.getvalue().splitlines()]

    def result(self, as_text: bool, progress: Progress = ignore) -> tuple[list[int], Result]:
        """The matches in the shape of the output, and their number in each batch that has been read."""
        result = self._result(as_text and self.shape == EVENTS, progress)
        matches: list[int] = []

        def counted() -> Iterator[pa.RecordBatch]:
            ids, batches = self.prepared.match_ids, result.batches
            if ids is not None and ids.events.column is not None:
                batches = noticing_repeats(batches, ids.events.column, self.repeats.append)
            for batch in batches:
                matches.append(batch.num_rows)
                yield batch

        return matches, replace(result, batches=counted()).shaped(self.shape)

    def _result(self, as_text: bool, progress: Progress) -> Result:
        if self.backend == "spark":
            from cepheid.spark.batch import run_files  # lazily: Spark takes seconds to load

            return run_files(self.prepared, self.source, as_text=as_text, progress=progress)
        on_switch, on_empty = self.switches.append, self.analyses.append
        return run(
            self.prepared, self.source, as_text=as_text, progress=progress, on_switch=on_switch, on_empty=on_empty
        )

    def analyze_empty(self) -> Analysis | None:
        """The counters of a run without matches; after a run on Spark, from a second run here. None where no kernel can
        run, where there are too many events for it, or where the query asks for no match."""
        if self.analyses:
            return self.analyses[-1]
        prepared, count = self.prepared, self.source.count
        is_small = count is not None and count <= _MOST_ANALYZED
        if self.backend != "spark" or prepared.kernel is None or prepared.query.limit == 0 or not is_small:
            return None
        return analyze(prepared, self.source)


def require_backend(name: str, options: RunOptions) -> None:
    if name not in BACKENDS:
        raise InputProblem(
            f"unknown backend `{shown(name)}`",
            expected=f"one of {listing(BACKENDS)}",
            hint=did_you_mean(name, BACKENDS),
        )
    if options.adaptive is not None and name != "local":
        raise InputProblem(
            "only the backend `local` can change the plan during a run", expected="--backend local with --adaptive"
        )


def require_distinct(output: str, inputs: Sequence[Input]) -> None:
    """Refuses an output path that is an input: a slip must not overwrite the data."""
    if not output:
        raise InputProblem("the name of an output file is empty", expected="--output PATH, --rejects PATH")
    for item in inputs:
        for file, _ in expand(item.path, item.format):
            if Path(output).exists() and os.path.samefile(output, file):
                raise InputProblem(f"`{shown(output, 200)}` is an input; the output would replace it")
