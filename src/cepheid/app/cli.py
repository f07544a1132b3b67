"""The command line. Data goes to standard output, everything said about it to standard error.

Exit codes: 0, done; 1, a bug in Cepheid; 2, something for the user to put right.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress
from typer.core import TyperGroup

from cepheid.app import cli_stream, report
from cepheid.app.cli_options import (
    STANDARD,
    Adaptive,
    Backend,
    Dialect,
    Inputs,
    Params,
    QueryArgument,
    Statistics,
    TimeColumn,
    TimeUnit,
    TypeColumn,
    query_argument,
    read_params,
    read_query,
)
from cepheid.binding import bind, warnings_for
from cepheid.engine.job import Outcome, QueryText, Settings, execute, load, require_distinct
from cepheid.errors import CepheidError, InputProblem, shown
from cepheid.explanation import explain
from cepheid.io.formats import format_of
from cepheid.io.inputs import Input
from cepheid.io.matches import (
    column_names,
    make_directory,
    replacing,
    require_writable_name,
    write_json_lines,
    write_matches,
    write_rejects,
)
from cepheid.io.rejects import Reject
from cepheid.lang import to_text
from cepheid.version import __version__

if TYPE_CHECKING:
    from cepheid.engine.columnar_job import ColumnJob
    from cepheid.optimize.stats import Stats

USER_ERROR = 2
INTERNAL_ERROR = 1


class _Commands(TyperGroup):
    """Tells what Cepheid refuses to do as a message, not as a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CepheidError as error:
            report.say(_errors(), error.render(), "red")
            raise typer.Exit(USER_ERROR) from error


app = typer.Typer(
    cls=_Commands,
    help="Cepheid finds complex events, patterns over time, in event data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _errors() -> Console:
    """Made anew each time: tests and pipes replace sys.stderr."""
    return Console(stderr=True, highlight=False)


def _note(text: str, style: str = "") -> None:
    report.say(_errors(), text, style)


def main() -> None:
    # A terminal that cannot show a sign of a query shows its number: no reason to stop.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="cepheid")


# --- commands ---------------------------------------------------------------------------------------------------------


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cepheid {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """Cepheid finds complex events, patterns over time, in event data."""


@app.command("check")
def check_command(
    query: QueryArgument,
    dialect: Dialect = "auto",
    input: Inputs = None,
    type_column: TypeColumn = "type",
    time_column: TimeColumn = "ts",
    time_unit: TimeUnit = "ms",
    param: Params = None,
) -> None:
    """Is this a query? Prints its language, its variables and its canonical text; or what is wrong, and where.

    With --input it is also held against the types and attributes of the data.
    """
    written = query_argument(query, dialect)
    parsed = written.parse()
    if input:
        settings = Settings(
            type_column=type_column, time_column=time_column, time_unit=time_unit, params=read_params(param)
        )
        loaded = load(parsed, [Input.parse(text) for text in input], settings)
        with written.located_errors():
            bound = bind(parsed, loaded.schema, settings.params)
        for warning in warnings_for(bound, loaded.schema):
            _note(f"warning: {warning}", "yellow")
        _tell_rejects(loaded.rejects)
    typer.echo(f"language: {parsed.dialect.title}")
    typer.echo("variables:")
    for line in report.variable_lines(parsed):
        typer.echo(line)
    typer.echo("query:")
    for line in to_text(parsed).splitlines():
        typer.echo(f"  {line}")


@app.command("explain")
def explain_command(
    query: QueryArgument,
    format: Annotated[str, typer.Option(help="text, mermaid, dot or html.")] = "text",
    code: Annotated[bool, typer.Option("--code", help="Show the code generated for the query; needs --input.")] = False,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run the query and show what each operator did; needs --input.")
    ] = False,
    stats: Statistics = None,
    dialect: Dialect = "auto",
    input: Inputs = None,
    type_column: TypeColumn = "type",
    time_column: TimeColumn = "ts",
    time_unit: TimeUnit = "ms",
    param: Params = None,
) -> None:
    """What a query means: its pattern, window and selection, what each predicate speaks of and where it is tested; for
    SASE+ the NFA^b automaton too.

    With --input the names are settled against the data first, and the plan is shown: which evaluator runs and why, what
    is decided for each event alone, and which columns travel; with --analyze also what each operator did on the data,
    beside what was expected of it.
    """
    written = query_argument(query, dialect)
    parsed = written.parse()
    if not input:
        if code or analyze or stats is not None:
            raise InputProblem("the plan depends on the data's columns and types", expected="--input [TYPE=]PATH")
        typer.echo(explain(parsed, format), nl=False)
        return
    from cepheid.engine.local_events import analysis_of, prepare_events  # pyarrow, which plain explanations do without
    from cepheid.engine.prepare import Wishes, code_of
    from cepheid.optimize.stats import NO_STATS

    settings = Settings(
        type_column=type_column, time_column=time_column, time_unit=time_unit, params=read_params(param)
    )
    loaded = load(parsed, [Input.parse(text) for text in input], settings)
    with written.located_errors():
        known = NO_STATS if stats is None else _read_stats(stats)
        prepared = prepare_events(parsed, loaded, Wishes(settings.params, stats=known))
        analysis = analysis_of(prepared, loaded) if analyze else None
        text = code_of(prepared) if code else explain(prepared.query, format, prepared.plan, analysis)
    typer.echo(text, nl=False)


@app.command("run")
def run_command(
    query_file: Annotated[str | None, typer.Option(metavar="FILE", help="The query, in a file (- for stdin).")] = None,
    query: Annotated[str | None, typer.Option(metavar="TEXT", help="The query itself.")] = None,
    dialect: Dialect = "auto",
    input: Inputs = None,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="PATH", help="Matches: .parquet, .csv or .jsonl; - for JSON on stdout."),
    ] = STANDARD,
    backend: Backend = "reference",
    type_column: TypeColumn = "type",
    time_column: TimeColumn = "ts",
    time_unit: TimeUnit = "ms",
    param: Params = None,
    stats: Statistics = None,
    adaptive: Adaptive = False,
    rejects: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Malformed rows and why; next to the output unless told otherwise."),
    ] = None,
) -> None:
    """Find the matches of a query in files of events.

    Rows may be in any order: the stream is ordered by time, then by arrival. Malformed rows are set aside with the
    reason, counted at the end, and never stop the run.
    """
    if (query is None) == (query_file is None):
        raise InputProblem("there is no query" if query is None else "there are two queries", expected=_QUERY_OPTIONS)
    if not input:
        raise InputProblem("there are no events to look at", expected="--input [TYPE=]PATH, at least once")
    written = QueryText(query, "query", dialect) if query is not None else read_query(query_file or "", dialect)
    inputs = [Input.parse(text) for text in input]
    known = None if stats is None else _read_stats(stats)
    settings = Settings(backend, type_column, time_column, time_unit, read_params(param), adaptive, known)
    parsed = written.parse()
    if output != STANDARD:
        require_writable_name(output)
        require_distinct(output, inputs)
    if rejects is not None:
        require_distinct(rejects, inputs)
    if adaptive and backend != "local":
        raise InputProblem("plans change on the backend `local` only", expected="--backend local with --adaptive")
    if backend in ("local", "spark"):
        from cepheid.engine.columnar_job import columnar_job  # pyarrow and NumPy, which the reference does without

        column_names(parsed)
        job = columnar_job(written, parsed, inputs, settings)
        if job is not None and backend == "spark":
            from cepheid.spark.columnar_job import SparkColumnJob  # Spark, which takes seconds to start

            job = SparkColumnJob.of(job)
        if job is not None:
            _run_columns(job, output, rejects)
            return
    outcome = execute(written, inputs, settings)
    if output == STANDARD:
        write_json_lines(sys.stdout.buffer, outcome.query, outcome.matches, outcome.loaded)
        sys.stdout.buffer.flush()
    else:
        write_matches(output, outcome.query, outcome.matches, outcome.loaded)
    loaded = outcome.loaded
    ran = report.Ran(
        outcome.query,
        len(loaded.events),
        len(outcome.matches),
        len(loaded.rejects),
        loaded.clock,
        loaded.time_column,
        outcome.plan,
        outcome.switches,
    )
    _finish(ran, outcome.warnings, loaded.rejects, _write_rejects(loaded.rejects, output, rejects))


def _read_stats(path: str) -> Stats:
    from cepheid.optimize.stats import read_stats  # pyarrow, which the reference does without

    return read_stats(path)


_QUERY_OPTIONS = "either --query-file FILE or --query TEXT"


def _run_columns(job: ColumnJob, output: str, rejects: str | None) -> None:
    with _progress(job.source.count) as progress:
        if output == STANDARD:
            matches = job.write(sys.stdout.buffer, "jsonl", progress)
            sys.stdout.buffer.flush()
        else:
            with replacing(Path(output)) as file:
                matches = job.write(file, format_of(Path(output)), progress)
    source, prepared = job.source, job.prepared
    found = list(source.rejects())
    time_column = source.columns.time
    read = source.count
    ran = report.Ran(
        prepared.query, read, matches, len(found), prepared.clock, time_column, prepared.plan, job.switches
    )
    _finish(ran, job.warnings, found, _write_rejects(found, output, rejects))


@contextmanager
def _progress(expected: int) -> Iterator[Callable[[int, int], None]]:
    """Events, matches and speed, for people who wait; nothing where nobody watches."""
    console = _errors()
    columns = (TextColumn("{task.completed:,} of {task.total:,} events"), BarColumn(), TextColumn("{task.description}"))
    with RichProgress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown_progress:
        task = shown_progress.add_task("", total=expected)

        def tell(events: int, matches: int) -> None:
            elapsed = shown_progress.tasks[0].elapsed or 0.0
            speed = f", {events / elapsed:,.0f} events/s" if elapsed else ""
            shown_progress.update(task, completed=events, description=f"{matches:,} matches{speed}")

        yield tell


def _write_rejects(found: list[Reject], output: str, asked_for: str | None) -> str | None:
    """Where the rejects are, if they are in a file. A file left by an earlier run must not speak for this one."""
    if asked_for is not None:
        write_rejects(asked_for, found)
        return asked_for
    if output == STANDARD:
        return None
    beside = f"{output}.rejects.jsonl"
    if not found:
        Path(beside).unlink(missing_ok=True)
        return None
    write_rejects(beside, found)
    return beside


def _finish(ran: report.Ran, warnings: list[str], rejects: list[Reject], rejects_at: str | None) -> None:
    for warning in warnings:
        _note(f"warning: {warning}", "yellow")
    if rejects_at is None:
        _tell_rejects(rejects)
    for line in report.summary(ran, rejects_at):
        _note(line)


def _tell_rejects(rejects: list[Reject]) -> None:
    for line in report.reject_lines(rejects):
        _note(line, "yellow")


@app.command("batch-run")
def batch_run_command(
    cases_dir: Annotated[Path, typer.Argument(help="One directory per case: query.txt, dialect.txt, events.jsonl.")],
    out_dir: Annotated[Path, typer.Argument(help="Where CASE.jsonl, or CASE.error with the message, is written.")],
    backend: Backend = "reference",
    type_column: TypeColumn = "type",
    time_column: TimeColumn = "ts",
    time_unit: TimeUnit = "ms",
    param: Params = None,
) -> None:
    """Run many queries in one process: every CASES_DIR/CASE/{query.txt,dialect.txt,events.jsonl}."""
    if not cases_dir.is_dir():
        raise InputProblem(f"there is no directory `{shown(str(cases_dir), 200)}`")
    make_directory(out_dir)
    settings = Settings(backend, type_column, time_column, time_unit, read_params(param))
    cases = sorted(case for case in cases_dir.iterdir() if case.is_dir() and not case.name.startswith("."))
    tally = {"done": 0, "refused": 0, "failed": 0}
    console = _errors()
    with RichProgress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for case in progress.track(cases, description="cases"):
            tally[_run_case(case, out_dir, settings)] += 1
    _note(
        f"{report.count(len(cases), 'case')}: {tally['done']} with matches written, "
        f"{tally['refused']} with an error message, {tally['failed']} failed inside Cepheid; in {out_dir}"
    )
    if tally["failed"]:
        raise typer.Exit(INTERNAL_ERROR)


def _run_case(case: Path, out_dir: Path, settings: Settings) -> str:
    """Leaves either CASE.jsonl or CASE.error, whatever was there before."""
    answer, message, rejects = (out_dir / f"{case.name}{ending}" for ending in (".jsonl", ".error", ".rejects.jsonl"))
    try:
        outcome = _execute_case(case, settings)
        write_matches(str(answer), outcome.query, outcome.matches, outcome.loaded)
    except CepheidError as error:
        result, text = "refused", error.render()
    except Exception:
        # A bug met by one case must not cost the answers of the others; it is written down and decides the exit code.
        result, text = "failed", f"error: a bug in Cepheid\n{traceback.format_exc()}"
    else:
        message.unlink(missing_ok=True)
        if outcome.loaded.rejects:
            write_rejects(str(rejects), outcome.loaded.rejects)
        else:
            rejects.unlink(missing_ok=True)
        return "done"
    answer.unlink(missing_ok=True)
    rejects.unlink(missing_ok=True)
    with replacing(message) as file:
        file.write(text.encode(errors="backslashreplace") + b"\n")
    return result


def _execute_case(case: Path, settings: Settings) -> Outcome:
    dialect_file = case / "dialect.txt"
    dialect = read_query(str(dialect_file), "").text if dialect_file.exists() else "auto"
    return execute(read_query(str(case / "query.txt"), dialect), [Input(str(case / "events.jsonl"))], settings)


app.command("stream")(cli_stream.stream_command)
app.command("state")(cli_stream.state_command)


@app.command("demo")
def demo_command(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the data and the matches go.")
    ] = Path("demo-output"),
    stream: Annotated[bool, typer.Option(help="Also show a stream that is killed and started again.")] = True,
) -> None:
    """A tour: generates events as in the papers' experiments, runs a query of each language over them on Spark, and
    kills a stream to start it again."""
    from cepheid.app import demo  # numpy, the generators and Spark, which few other commands need

    demo.show(output, Console(highlight=False), stream)
