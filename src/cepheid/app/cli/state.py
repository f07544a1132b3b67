"""`cepheid state`: shows the state of a stream."""

from __future__ import annotations

from typing import Annotated

import typer

from cepheid.errors import InputProblem, did_you_mean, shown
from cepheid.io.inputs import exists, neighbours


def state_command(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint directory of the stream.")],
    keys: Annotated[
        int, typer.Option(min=0, help="The number of keys to list; keys with the most events come first.")
    ] = 20,
    master: Annotated[str, typer.Option(help="The Spark master.")] = "local[*]",
) -> None:
    """Show the state of a stream: buckets and keys with their sizes and oldest events.

    \b
    Example:
      cepheid state checkpoint/"""
    from cepheid.streaming.storage import is_local

    if is_local(checkpoint) and not exists(checkpoint):  # before a JVM starts
        raise InputProblem(
            f"there is no checkpoint `{shown(checkpoint, 200)}`", hint=did_you_mean(checkpoint, neighbours(checkpoint))
        )
    from cepheid.app.stream_view import state_lines
    from cepheid.spark.session import session
    from cepheid.spark.stream_states import read_state

    for line in state_lines(read_state(checkpoint, session(master)), keys):
        typer.echo(line)
