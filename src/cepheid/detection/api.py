"""`cepheid.detect` and its explanation: complex events across sources that are asked for as few events as possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from cepheid.acquire.search import SearchOptions
from cepheid.deploy.deployment import QUERY
from cepheid.detection.links import listed_links, table_links
from cepheid.detection.options import DetectOptions
from cepheid.detection.partials import REGION
from cepheid.detection.planned import Detection
from cepheid.detection.run import Running
from cepheid.engine.prepare import RunOptions
from cepheid.engine.query_text import QueryText
from cepheid.errors import InputProblem, shown
from cepheid.io.inputs import Columns
from cepheid.io.source_list import duration, read_source_list
from cepheid.pattern import Query


def detect(
    query: str | Query | Mapping[str, str | Query],
    sources: str | Mapping[str, Any],
    *,
    type_column: str = "type",
    time_column: str = "ts",
    start_column: str | None = None,
    time_unit: str | None = None,
    params: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Detects a complex event across sources that are asked for as few events as possible (CED's language).

    `sources` is the path of a file that names them (docs/how-to/detect.md), or tables by name. The result, a
    `RecordBatchReader`, is read as matches are detected. The column `uncertain` says whether a gap, an interval that a
    source could not answer, could change a match. Options: `deadline` ("2s") bounds the latency, `plan` forces a plan
    by its text (`"push"`: push everything), `model` is `"coverage"` or `"paper"`, `algorithm` is `"dp"` or
    `"heuristic"`, `limit` and `strategy` bound the plans of subevents, `timeout` (seconds) and `attempts` bound
    retries. `gaps="hold"` holds back matches that a gap could change. `state` is a directory: a detection that was
    interrupted goes on from the state saved there, after the matches that were read before. `regions` has the region of
    tables by name, which is the column `region` of their events, or `region_column`.

    `query` may be a dictionary of named queries. They are planned together, and an event is fetched once for all of
    them. The result is an iterator of record batches, each with the matches of one query; their first column, `query`,
    is its name."""
    columns = Columns(type_column, time_column, start_column)
    running = Running(detection(query, sources, columns, time_unit, params, **options))
    if isinstance(query, Mapping):
        return _named_batches(running)
    batches = (batch for matches in running.matches() for batch in matches.to_batches())
    return pa.RecordBatchReader.from_batches(running.schema, batches)


def _named_batches(running: Running) -> Iterator[pa.RecordBatch]:
    for found in running.named_matches():
        for name, matches in found.items():
            names = pa.array([name] * matches.num_rows, pa.string())
            yield from matches.add_column(0, QUERY, names).to_batches()


_ALONE = "query"
"""The name of a query that has none."""


def _text_of(name: object, query: str | QueryText) -> QueryText:
    if not isinstance(name, str):
        raise InputProblem(f"the name of a query is `{shown(repr(name))}`", expected="a string")
    return query if isinstance(query, QueryText) else QueryText(query, name, "auto")


def explain_detection(
    query: str | Query | Mapping[str, str | Query],
    sources: str | Mapping[str, Any],
    *,
    format: str = "text",
    type_column: str = "type",
    time_column: str = "ts",
    start_column: str | None = None,
    time_unit: str | None = None,
    params: Mapping[str, Any] | None = None,
    **options: Any,
) -> str:
    """Explains the plan of `detect`: what is subscribed, what is pulled on what, expected events and latency, and why
    other plans lost; of several queries also what they share. `format` is `"text"`, `"svg"`, `"html"`, `"mermaid"` or
    `"dot"`."""
    columns = Columns(type_column, time_column, start_column)
    return detection(query, sources, columns, time_unit, params, **options).explain(format)


def detection(
    query: str | QueryText | Query | Mapping[str, str | QueryText | Query],
    sources: str | Mapping[str, Any],
    columns: Columns,
    time_unit: str | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    deadline: str | int | float | None = None,
    algorithm: str = "auto",
    limit: int | None = None,
    strategy: str = "mixture",
    regions: Mapping[str, str] | None = None,
    region_column: str = REGION,
    **options: Any,
) -> Detection:
    """The sources, opened, and the plans that were chosen for them."""
    given: Mapping[str, str | QueryText | Query] = query if isinstance(query, Mapping) else {_ALONE: query}
    texts = {name: _text_of(name, one) for name, one in given.items() if not isinstance(one, Query)}
    written = {name: texts[name].parse() if not isinstance(one, Query) else one for name, one in given.items()}
    if not isinstance(query, Mapping):
        written = {written[_ALONE].name or _ALONE: written[_ALONE]}
        texts = dict.fromkeys(written, texts[_ALONE]) if texts else {}
    chosen = DetectOptions(
        None if deadline is None else duration(deadline, "the deadline"),
        search=SearchOptions(algorithm, limit, strategy),
        **options,
    )
    known = None
    if isinstance(sources, str):
        listed = read_source_list(sources)
        links, columns, region_column = listed_links(listed), listed.columns, listed.region
        time_unit = time_unit or listed.time_unit
        known = None if listed.statistics is None else listed.statistics
    else:
        links = table_links(sources, columns, regions or {})
    run_options = RunOptions(params=params or {}, time_unit=time_unit)
    return Detection.of(written, links, columns, chosen, run_options, known, region_column, texts)
