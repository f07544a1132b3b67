"""`cepheid doctor`: checks whether this machine can run Cepheid."""

from __future__ import annotations

from typing import Annotated

import typer

from cepheid.app import doctor


def doctor_command(
    master: Annotated[str, typer.Option(help="The Spark master whose workers are checked.")] = "local[1]",
) -> None:
    """Check Java, Spark, the Python of Spark's workers and the cache directory.

    Each has one line: `ok`, `warning` or `problem`, with what to do. The exit code is 1 if there is a problem.

    \b
    Example:
      cepheid doctor --master 'local[2]'"""
    has_problem = False
    for finding in doctor.findings(master):
        typer.echo(f"{finding.subject:<8} {finding.verdict.value:<8} {finding.text}")
        has_problem = has_problem or finding.verdict is doctor.Verdict.PROBLEM
    if has_problem:
        raise typer.Exit(1)
