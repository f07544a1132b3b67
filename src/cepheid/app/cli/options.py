"""Options that several commands share."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from cepheid.engine.query_text import QueryText
from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.io.formats import NAMES, known_format
from cepheid.io.inputs import INPUT_OPTIONS, Columns, TextOptions, exists, neighbours
from cepheid.lang import DIALECTS
from cepheid.limits import LIMITS

if TYPE_CHECKING:
    from cepheid.engine.prepare import RunOptions

USER_ERROR = 2
"""The exit code."""
STANDARD = "-"

Dialect = Annotated[str, typer.Option(help=f"The language: auto, {', '.join(d.name for d in DIALECTS)}.")]
QueryArgument = Annotated[
    str | None,
    typer.Argument(metavar="[QUERY]", help="The file with the query, the text of the query, or - for stdin."),
]
QueryFile = Annotated[str | None, typer.Option(metavar="FILE", help="The file with the query (- for stdin).")]
QueryOption = Annotated[str | None, typer.Option("--query", metavar="TEXT", help="The text of the query.")]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="PATH[,OPTION=VALUE...]",
        help=f"The events: a file ({NAMES}), a directory, or a quoted glob; may be repeated. An input may have options "
        f"of its own: {INPUT_OPTIONS}, such as 'logins.csv,type=Login,time=at,unit=s'. TYPE=PATH is short for "
        "PATH,type=TYPE: every row is an event of that type.",
    ),
]
Backend = Annotated[str, typer.Option(help="The backend: reference, local or spark.")]
Type = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="The type of all events, if no column holds it.")
]
TypeColumn = Annotated[str, typer.Option(help="The column of the event type: text or whole numbers.")]
TimeColumn = Annotated[str, typer.Option(help="The column of the event time: integers or ISO 8601.")]
StartColumn = Annotated[
    str | None,
    typer.Option(help="The column of the start of each event, if events have a duration; the time is their end."),
]
TimeUnit = Annotated[
    str | None,
    typer.Option(
        help="The unit of an integer time column: ns, us, ms, s, min, h, d or w. By default it is recognised if all "
        "times fall into the years 2000 to 2100."
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        help=r"The character between the cells of CSV files. By default the header shows it: , or ; or \t or |.",
    ),
]
TimeFormat = Annotated[
    str | None,
    typer.Option(metavar="FORMAT", help="The format of times that are not ISO 8601, such as '%d.%m.%Y %H:%M'."),
]
Zone = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The zone of times without an offset, such as Europe/Berlin; UTC by default."),
]
Decimal = Annotated[
    str | None, typer.Option(metavar="CHARACTER", help="The decimal character of numbers in CSV files, such as comma.")
]
Thousands = Annotated[
    str | None, typer.Option(metavar="CHARACTER", help="The character between groups of digits in CSV files.")
]
Encoding = Annotated[
    str | None, typer.Option(metavar="NAME", help="The encoding of text files, such as latin-1; by default UTF-8.")
]
OutputPath = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="The output: .jsonl, .csv, .parquet or .arrow; - for stdout (JSON Lines; "
        "`run` shows a table on a terminal).",
    ),
]
OutputShape = Annotated[
    str,
    typer.Option(
        help="The columns of the output: events (an object for each variable), flat (a column for each variable and "
        "attribute) or long (a row for each match and event)."
    ),
]
DetectedAt = Annotated[
    bool,
    typer.Option("--detected-at", help="Add the column detected_at: the event time at which a match became certain."),
]
MatchId = Annotated[
    bool,
    typer.Option("--match-id", help="Add the column match_id: a hash of the query and the events, equal in every run."),
]
IdColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="A column with unique values that identifies events, for --match-id."),
]
Adaptive = Annotated[
    bool, typer.Option("--adaptive", help="Change the plan when rates or selectivities do (queries with WITHIN only).")
]
Statistics = Annotated[
    str | None, typer.Option("--stats", metavar="FILE", help="Statistics of the events, as JSON: rates, selectivities.")
]
MaxMatches = Annotated[
    str | None,
    typer.Option(metavar="N", help="The most matches that one event may complete, or off; by default 1,000,000."),
]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="NAME=VALUE", help="The value of a query parameter; may be repeated."),
]


@dataclass(frozen=True, slots=True)
class EventOptions:
    """The options of every command that reads events."""

    type: Type = None
    type_column: TypeColumn = "type"
    time_column: TimeColumn = "ts"
    start_column: StartColumn = None
    time_unit: TimeUnit = None
    delimiter: Delimiter = None
    time_format: TimeFormat = None
    decimal: Decimal = None
    thousands: Thousands = None
    encoding: Encoding = None
    zone: Zone = None
    param: Params = None

    @property
    def columns(self) -> Columns:
        text = TextOptions(**{field.name: getattr(self, field.name) for field in fields(TextOptions)})
        return Columns.of(self.type_column, self.time_column, self.start_column, self.type, text)

    def run_options(
        self,
        *,
        stats: str | None = None,
        adaptive: bool = False,
        max_matches: str | None = None,
        limits: Sequence[str] = (),
    ) -> RunOptions:
        """The options of a run. `stats` is the path of a file; limits are written as `max_memory=1 GB`."""
        from cepheid.engine.prepare import RunOptions  # lazily: help and errors in queries do not need pyarrow
        from cepheid.optimize.stats import read_stats

        known = None if stats is None else read_stats(stats)
        options = {} if max_matches is None else {"max_matches": max_matches}
        options |= dict(map(_limit, limits))
        return RunOptions.of(read_params(self.param), None, options, known, adaptive, self.time_unit)


def _limit(text: str) -> tuple[str, str]:
    name, is_given, value = (part.strip() for part in text.partition("="))
    if not is_given or name not in LIMITS:
        raise InputProblem(
            f"there is no limit `{shown(text)}`",
            expected=f"NAME=VALUE, with one of {listing(LIMITS)}",
            hint=did_you_mean(name, LIMITS),
        )
    return name, value


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The options of every command with one query: an argument, or one of two options."""

    argument: QueryArgument = None
    query: QueryOption = None
    query_file: QueryFile = None
    dialect: Dialect = "auto"

    def read(self) -> QueryText:
        written = [item for item in (self.argument, self.query, self.query_file) if item is not None]
        if len(written) != 1:
            raise InputProblem(f"there {'are two queries' if written else 'is no query'}", expected=_QUERIES)
        if self.query is not None:
            return QueryText(self.query, "query", self.dialect)
        if self.query_file is not None:
            return read_query(self.query_file, self.dialect)
        return _query_argument(written[0], self.dialect)


EVENT_OPTIONS = EventOptions()
QUERY_OPTIONS = QueryOptions()


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of EventOptions and QueryOptions in place of its parameters of these types."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if hint in (EventOptions, QueryOptions)}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            shared = get_type_hints(groups[name], include_extras=True)
            parameters += [
                Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=shared[field.name])
                for field in fields(groups[name])
            ]
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))

    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run


def read_params(values: list[str] | None) -> dict[str, Any]:
    """Parses numbers, true, false and null as JSON. Other values are strings, with or without double quotes."""
    params: dict[str, Any] = {}
    for text in values or ():
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputProblem(f"`{shown(text)}` is not a parameter value", expected="NAME=VALUE")
        try:
            read = json.loads(value, parse_constant=str)
        except (ValueError, RecursionError):
            read = value
        params[name] = read if isinstance(read, str | int | float | None) else value
    return params


_QUERIES = "the query once: as an argument (its text, its file, or - for stdin), with --query or with --query-file"


def _query_argument(argument: str, dialect: str) -> QueryText:
    if argument == STANDARD or (exists(argument) and Path(argument).is_file()):
        return read_query(argument, dialect)
    if exists(argument):
        raise InputProblem(
            f"`{shown(argument, 200)}` is a directory",
            expected="the file or the text of one query",
            hint=f"all queries in it: cepheid deploy {shown(argument, 200)}",
        )
    if _PATH.fullmatch(argument):
        raise InputProblem(
            f"there is no query file `{shown(argument, 200)}`", expected="a file, or the text of a query in quotes"
        )
    return QueryText(argument, "query", dialect)


_PATH = re.compile(r"\S*(?:\.\w+|[/\\]\S*)")
"""A word with an extension or a directory, which no query is."""


def read_query(path: str, dialect: str) -> QueryText:
    if path != STANDARD and known_format(Path(path)) is not None:
        raise InputProblem(
            f"`{shown(path, 200)}` is a file of events by its name, not of a query",
            hint=f"name it with --input {shown(path)}",
        )
    try:
        content = sys.stdin.buffer.read() if path == STANDARD else Path(path).read_bytes()
        return QueryText(content.decode("utf-8-sig"), "stdin" if path == STANDARD else path, dialect)
    except UnicodeDecodeError as problem:
        raise InputProblem(f"`{shown(path, 200)}` is not UTF-8 text (byte {problem.start})") from problem
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        is_missing = isinstance(problem, FileNotFoundError)
        raise InputProblem(
            f"cannot read the query file `{shown(path, 200)}`: {reason}",
            hint=did_you_mean(Path(path).name, neighbours(path)) if is_missing else None,
        ) from problem


def named_queries(files: list[str] | None, text: str | None, dialect: str) -> dict[str, QueryText]:
    """The queries of files, by the names of these, or one that is written out."""
    if bool(files) == (text is not None):
        raise InputProblem(
            "there are two queries" if files else "there is no query", expected="--query-file FILE or --query TEXT"
        )
    if text is not None:
        return {"query": QueryText(text, "query", dialect)}
    named: dict[str, QueryText] = {}
    for path in files or ():
        name = Path(path).stem
        if name in named:
            raise InputProblem(f"two queries are named `{shown(name)}`", hint="rename one of the files")
        named[name] = read_query(path, dialect)
    return named
