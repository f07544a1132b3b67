"""`cepheid demo`: runs example queries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def demo_command(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The directory for the data and the matches.")
    ] = Path("demo-output"),
    stream: Annotated[bool, typer.Option(help="Also show a stream that is killed and restarted.")] = True,
) -> None:
    """Run a query of each language over generated data on Spark, then kill and restart a stream.

    \b
    Example:
      cepheid demo --no-stream"""
    from cepheid.app import demo  # lazily: few commands need numpy, the generators and Spark

    demo.show(output, Console(highlight=False), stream)
