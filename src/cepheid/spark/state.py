"""The state of a stream, read from its checkpoint."""

from __future__ import annotations

from pyspark.sql import SparkSession

from cepheid.spark.hadoop import open_directory
from cepheid.spark.stream import state_frame
from cepheid.streaming.checkpoint import Checkpoint
from cepheid.streaming.inspection import StateDecoder, StreamState


def read_state(path: str, session: SparkSession) -> StreamState:
    """The state after the last completed batch."""
    checkpoint = Checkpoint(open_directory(path, session), path)
    decoder = StateDecoder.of(checkpoint)
    states = state_frame(checkpoint, session)
    return decoder.decode(() if states is None else (bytes(row["s"]) for row in states.toLocalIterator()))
