"""`cepheid demo`: a tour."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def demo_command(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The directory for the data and the matches.")
    ] = Path("demo-output"),
    stream: Annotated[bool, typer.Option(help="Also show a stream that is killed and started again.")] = True,
) -> None:
    """A tour: generates events as in the papers' experiments, runs a query of each language over them on Spark, and
    kills a stream to start it again."""
    from cepheid.app import demo  # numpy, the generators and Spark, which few other commands need

    demo.show(output, Console(highlight=False), stream)
