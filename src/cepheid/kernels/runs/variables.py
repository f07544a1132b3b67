"""Handles for the variables of the generated code that the files of this package share.

A `Row` is a variable that holds the offset of a record in an array. Its fields are attributes, so a wrong name is an
error of types: `RUN.next` is `run[r + NEXT]`. The layouts are those of `run_store`, and in `Stored` of `backtrack`.
"""

from __future__ import annotations

from typing import ClassVar

from cepheid.codegen.builder import Writer


class Field:
    """A field of the records in an array. A constant of the generated module names its offset."""

    def __set_name__(self, owner: type[Row], name: str) -> None:
        self.name = name

    def __get__(self, row: Row, owner: type[Row]) -> str:
        return row.cell(self.name.upper())


class Row(str):
    """The variable, or the expression, that is the offset of a record in an array."""

    array: ClassVar[str]
    size: ClassVar[str]
    """The constant of the generated module that is the length of a record."""
    used: ClassVar[str]
    """The variable that is the length of the used part of the array."""

    def cell(self, offset: str) -> str:
        """`run[r + LENGTH0]`, by the constant that names the offset."""
        return f"{self.array}[{self} + {offset}]"

    @classmethod
    def is_full(cls, records: str) -> str:
        """Whether so many more records do not fit: `nodes + 4 * work * NODE_SIZE > node.shape[0]`."""
        return f"{cls.used} + {records} * {cls.size} > {cls.array}.shape[0]"

    @classmethod
    def grow(cls, w: Writer, needed: str) -> None:
        """`run = grown(run, 2 * live + 3 * work * RUN_SIZE)`"""
        w(f"{cls.array} = grown({cls.array}, {needed})")


class Node(Row):
    """A node of the shared match buffer."""

    array, size, used = "node", "NODE_SIZE", "nodes"
    oldest_row = "node[ROW]"
    """The position of the oldest event in the buffer."""
    began, row, prev, alt, step, own = Field(), Field(), Field(), Field(), Field(), Field()


class Run(Row):
    """A run; its values follow these fields."""

    array, size, used = "run", "RUN_SIZE", "live"
    free, top = "free", "top"
    """The list of free runs, and the end of all runs, free ones included."""
    began, next, node = Field(), Field(), Field()


class Completed(Row):
    """A completed run."""

    array, size, used = "found", "FOUND_SIZE", "founds"
    before, last_row, last_step, floor = Field(), Field(), Field(), Field()

    @staticmethod
    def copy(w: Writer, target: str, source: str) -> None:
        """Copy a completed run; both cells are those of `FIELD`:

        for field in range(FOUND_SIZE):
            found[founds + field] = found[candidate + field]
        """
        with w.block(f"for {FIELD} in range({Completed.size}):"):
            w(f"{target} = {source}")


class Waiting(Completed):
    """A completed run that waits until its window has passed; the values that decide it follow the fields."""

    array, size, used = "waiting", "WAITING_SIZE", "waits"
    due, due_item = "due", "due_item"
    """The heap: where each waiting run began, and its offset."""


class Event(str):
    """The current event, by its index in the batch."""

    bits = "bits"
    """Its mask."""
    measure = "m"
    """Its value in the measure of the window."""
    row = "row"
    """Its position in the stream."""
    began = "began"
    """Its start, if it has a duration."""


EVENT = Event("e")
RUN, NEW_RUN, PREVIOUS = Run("r"), Run("q"), Run("previous")
"""The current run, the run that the event creates or merges into, and the run before the current one in its list."""
ITEM = Waiting("item")

FIELD = "field"
"""The offset of a field in a loop over the fields of a record."""
KEEP = "keep"
"""Whether the current run stays in its list."""
START = "start"
"""The index at which the loop over the batch continues after an interruption."""
WORK = "work"
"""An upper bound on the runs that the next event visits."""
FLOOR = "floor"
"""The oldest start that fits the window."""
OLDEST = "oldest"
"""The position of the oldest event that a later match may still contain."""


def key_variable(number: int) -> str:
    """A part of the partition key of the current event: `key0`."""
    return f"key{number}"
