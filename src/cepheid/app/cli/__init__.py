"""The command line. Data goes to standard output, messages to standard error.

Exit codes: 0 for success, 1 for a bug in Cepheid (of `doctor`: for a problem on this machine), 2 for a user error.
"""

from __future__ import annotations

import io
import os
import re
import select
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cepheid.app import report
from cepheid.app.cli.batch_run import batch_run_command
from cepheid.app.cli.check import check_command
from cepheid.app.cli.demo import demo_command
from cepheid.app.cli.deploy import deploy_command
from cepheid.app.cli.detect import detect_command
from cepheid.app.cli.doctor import doctor_command
from cepheid.app.cli.explain import explain_command
from cepheid.app.cli.options import USER_ERROR
from cepheid.app.cli.run import run_command
from cepheid.app.cli.source import source_app
from cepheid.app.cli.state import state_command
from cepheid.app.cli.stream import stream_command
from cepheid.errors import CepheidError, InputProblem, shown
from cepheid.version import __version__

_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""Typer does not export the base of its errors in arguments."""
_TAKE_EVENTS = ("run", "check", "explain", "deploy")
_TAKE_QUERIES = ("stream", "detect")
"""The commands whose query is no argument."""


def _problem(error: Exception) -> InputProblem | None:
    """An error in the arguments with a hint; None if there is none."""
    extra = re.fullmatch(r"Got unexpected extra argument\S* \((.*)\)", getattr(error, "message", ""))
    command = getattr(getattr(error, "ctx", None), "info_name", None)
    if extra is not None and command in _TAKE_EVENTS:
        given = f"--input {extra[1].split()[0]}"
        return InputProblem(f"unexpected `{shown(extra[1])}`", hint=f"events are given with {given}")
    if extra is not None and command in _TAKE_QUERIES:
        return InputProblem(
            f"unexpected `{shown(extra[1])}`", hint="a query is given with --query TEXT or --query-file FILE"
        )
    if command == "explain" and getattr(error, "option_name", None) in ("-o", "--output"):
        return InputProblem(
            "`explain` has no output file",
            hint="it writes to standard output: cepheid explain ... --format svg > a.svg",
        )
    return None


class _Commands(TyperGroup):
    """Shows an error of the user as a message, not as a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CepheidError as error:
            report.note(str(error), "red")
            raise typer.Exit(USER_ERROR) from error
        except BrokenPipeError:
            if not _is_closed(sys.stdout):
                raise
            # The interpreter flushes standard output at its end, which would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit from None
        except _USAGE_ERROR as error:
            problem = _problem(error)
            if problem is None:
                raise
            report.note(str(problem), "red")
            raise typer.Exit(USER_ERROR) from error


app = typer.Typer(
    cls=_Commands,
    help="Cepheid finds complex events, patterns over time, in event data.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    # A terminal that cannot show a character of a query shows its code point instead of an error.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="cepheid")


def _is_closed(stream: Any) -> bool:
    """Whether the reader of a stream, such as `head`, has closed its pipe. Another pipe may have broken instead, such
    as that to Spark."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
    except (AttributeError, OSError, ValueError):  # a system without poll, or no file
        return False
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cepheid {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Cepheid finds complex events, patterns over time, in event data."""


app.command("check")(check_command)
app.command("explain")(explain_command)
app.command("run")(run_command)
app.command("batch-run")(batch_run_command)
app.command("deploy")(deploy_command)
app.command("stream")(stream_command)
app.command("state")(state_command)
app.command("detect")(detect_command)
app.add_typer(source_app, name="source")
app.command("demo")(demo_command)
app.command("doctor")(doctor_command)
