"""`cepheid batch-run`: many queries in one process."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cepheid.app import report
from cepheid.app.cli import options as cli
from cepheid.errors import CepheidError, InputProblem, counted, shown

if TYPE_CHECKING:
    from cepheid.engine.prepare import RunOptions
    from cepheid.io.inputs import Columns

INTERNAL_ERROR = 1


@cli.with_shared_options
def batch_run_command(
    cases_dir: Annotated[
        Path, typer.Argument(help="The directory of the cases: CASE/query.txt, dialect.txt (optional), events.jsonl.")
    ],
    out_dir: Annotated[Path, typer.Argument(help="The output directory: CASE.jsonl, or CASE.error with the message.")],
    backend: cli.Backend = "local",
    events: cli.EventOptions = cli.EVENT_OPTIONS,
) -> None:
    """Run many queries in one process, one for each subdirectory of CASES_DIR.

    \b
    Example:
      cepheid batch-run cases/ results/"""
    if not cases_dir.is_dir():
        raise InputProblem(f"there is no directory `{shown(str(cases_dir), 200)}`")
    from cepheid.io.sinks import make_directory

    make_directory(out_dir)
    options, columns = events.run_options(), events.columns
    cases = sorted(case for case in cases_dir.iterdir() if case.is_dir() and not case.name.startswith("."))
    tally = {"done": 0, "refused": 0, "failed": 0}
    with report.progress("running", len(cases), "cases") as progress:
        for number, case in enumerate(cases):
            tally[_run_case(case, out_dir, columns, options, backend)] += 1
            progress(number + 1, 0)
    report.note(
        f"{counted(len(cases), 'case')}: {tally['done']} with matches written, "
        f"{tally['refused']} with an error message, {tally['failed']} failed inside Cepheid; in {out_dir}"
    )
    if tally["failed"]:
        raise typer.Exit(INTERNAL_ERROR)


def _run_case(case: Path, out_dir: Path, columns: Columns, options: RunOptions, backend: str) -> str:
    """Writes CASE.jsonl or CASE.error, and removes the other one of an earlier run."""
    from cepheid.io.sinks import replacing

    output, message, rejects = (out_dir / f"{case.name}{ending}" for ending in (".jsonl", ".error", ".rejects.jsonl"))
    try:
        write_case(case, output, rejects, columns, options, backend)
    except CepheidError as error:
        result, text = "refused", str(error)
    except Exception:
        # A bug in one case must not cost the results of the others. It is written to CASE.error and sets the exit code.
        result, text = "failed", f"error: a bug in Cepheid\n{traceback.format_exc()}"
    else:
        message.unlink(missing_ok=True)
        return "done"
    output.unlink(missing_ok=True)
    rejects.unlink(missing_ok=True)
    with replacing(message) as file:
        file.write(text.encode(errors="backslashreplace") + b"\n")
    return result


def write_case(case: Path, output: Path, rejects: Path, columns: Columns, options: RunOptions, backend: str) -> None:
    from cepheid.app.file_run import FileRun
    from cepheid.engine.layout import column_names
    from cepheid.io.inputs import Input
    from cepheid.io.sinks import replacing, write_rejects

    dialect_file = case / "dialect.txt"
    dialect = cli.read_query(str(dialect_file), "").text if dialect_file.exists() else "auto"
    written = cli.read_query(str(case / "query.txt"), dialect)
    parsed = written.parse()
    column_names(parsed)
    opened = FileRun.open(written, parsed, [Input(str(case / "events.jsonl"))], columns, options, backend)
    with written.located_errors(), replacing(output) as file:
        opened.write(file, "jsonl")
    if opened.source.rejected:
        write_rejects(str(rejects), opened.source.rejects())
    else:
        rejects.unlink(missing_ok=True)
