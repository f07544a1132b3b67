"""One pass over a source, for one operator or many: each batch is read once and passes through every operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from cepheid.io.rows import Rows
from cepheid.io.source import Source
from cepheid.runtime.kernel import END_OF_TIME

Progress = Callable[[int, int], None]
"""Called after each batch with the number of events read and the number of matches."""


class Found(Protocol):
    """Some matches."""

    def __len__(self) -> int: ...


F = TypeVar("F", bound=Found, covariant=True)


class Operating(Protocol[F]):
    """An operator while it runs."""

    @property
    def input_columns(self) -> Sequence[str]:
        """The columns of the input that are read for it."""

    @property
    def oldest_input(self) -> int:
        """The position of the oldest row of the input that a later match may show."""

    def step(self, batch: pa.RecordBatch, rows: Rows) -> Iterator[F]:
        """The matches of a batch of events. Only the batches before it have been forgotten."""

    def finish(self, rows: Rows) -> Iterator[F]:
        """The matches that the end of the input makes certain."""


def one_pass(
    source: Source, operators: Sequence[Operating[F]], rows: Rows, progress: Progress, *, retains: bool = True
) -> Iterator[F]:
    """The matches of all operators, batch by batch. With `retains`, `rows` gets the rows of each batch, and forgets
    those that no operator needs."""
    names = list(dict.fromkeys(name for one in operators for name in one.input_columns))
    read = matches = 0
    for batch in source.batches(names):
        if retains:
            rows.add(batch)
        for one in operators:
            for found in one.step(batch, rows):
                matches += len(found)
                yield found
        rows.forget(min((one.oldest_input for one in operators), default=END_OF_TIME))
        read += batch.num_rows
        progress(read, matches)
    for one in operators:
        yield from one.finish(rows)
