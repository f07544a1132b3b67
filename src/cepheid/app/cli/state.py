"""`cepheid state`: the state of a stream."""

from __future__ import annotations

from typing import Annotated

import typer


def state_command(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The directory given to stream.")],
    keys: Annotated[int, typer.Option(min=0, help="How many keys to list, those with most events first.")] = 20,
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[*]",
) -> None:
    """What a stream keeps: its buckets and keys, how much of each, and its oldest event."""
    from cepheid.app.stream_view import state_lines
    from cepheid.spark.session import session
    from cepheid.spark.stream import read_state

    for line in state_lines(read_state(checkpoint, session(master)), keys):
        typer.echo(line)
