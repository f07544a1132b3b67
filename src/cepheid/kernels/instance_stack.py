"""A stack of instances in memory: one array of records, and one table of chains.

All that is kept of an instance lies side by side, and so do a chain's key and its head: a look at an instance or a
chain is one look at memory, and memory is what construction waits for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cepheid.kernels.arrays import EMPTY, copy
from cepheid.kernels.jit import njit
from cepheid.physical import Step


@dataclass(frozen=True, slots=True)
class Link:
    """An equality between an attribute of one component and one of a later component: part of a chain's key."""

    here: str
    there: str
    as_float: bool


@dataclass(slots=True)
class Stack:
    """How generated code lays out the instances of a component, and how it reads and writes them.

    The record of instance j begins at `place(j)`. Floats lie in it as their bits, so one array holds all."""

    name: str
    step: Step
    links: tuple[Link, ...]
    measured: bool
    """Whether the window is compared with something else than the time."""
    columns: tuple[str, ...] = ()
    floats: frozenset[str] = frozenset()
    pointers: list[str] = field(default_factory=list)
    """Extra numbers kept with each instance: its RIP, and the latest negated event before it."""

    @property
    def fields(self) -> list[str]:
        measured = ["measure"] if self.measured else []
        chained = ["prev"] if self.links else []
        return ["row", "time", *measured, *chained, *self.pointers, *(f"c{column}" for column in self.columns)]

    @property
    def width(self) -> int:
        return len(self.fields)

    @property
    def offsets(self) -> str:
        """Source that names the place of each field in a record."""
        return f"{', '.join(map(self._offset, self.fields))} = {', '.join(map(str, range(self.width)))}"

    def place(self, number: str) -> str:
        return f"{self.width} * ({number} & {self.name}_last)"

    def at(self, name: str, place: str) -> str:
        """Source of a field of the record at a place."""
        if name == "measure" and not self.measured:
            name = "time"
        cell = f"{self.name}[{place} + {self._offset(name)}]"
        if name == "cmask":
            return f"np.uint64({cell})"
        return f"float_of({cell})" if name.removeprefix("c") in self.floats else cell

    def put(self, name: str, place: str, value: str) -> str:
        cell = f"{self.name}[{place} + {self._offset(name)}]"
        if name == "cmask":
            value = f"np.int64({value})"
        return f"{cell} = bits_of({value})" if name.removeprefix("c") in self.floats else f"{cell} = {value}"

    def _offset(self, name: str) -> str:
        return f"{self.name}_{name}".upper()


@njit
def relaid(stack: np.ndarray, width: int, base: int, following: int, room: int) -> np.ndarray:
    """The stack in an array, of a power of two records, where `room` more instances fit."""
    old = stack.shape[0] // width
    capacity = old
    while capacity < following - base + room:
        capacity *= 2
    larger = np.zeros(capacity * width, stack.dtype)  # what is unused is alike, so that it takes no room when saved
    for j in range(base, following):
        to, start = width * (j & (capacity - 1)), width * (j & (old - 1))
        copy(stack, start, larger, to, width)
    return larger


@njit
def chain_of(chains: np.ndarray, key: int) -> int:
    """Where the chain of a key lies in the table (the key, and beside it the head), or where it belongs."""
    last = chains.shape[0] - 1
    at = first_link(chains, key)
    while chains[at + 1] != EMPTY and chains[at] != key:
        at = (at + 2) & last
    return at


@njit
def first_link(chains: np.ndarray, key: int) -> int:
    """Where the search for a key's chain begins."""
    mixed = ((key ^ (key >> 31)) & 0x7FFFFFFF) * 73244475  # no product here exceeds 63 bits, so nothing wraps around
    return 2 * (mixed ^ (mixed >> 16)) & (chains.shape[0] - 1)


@njit
def rehashed_chains(chains: np.ndarray, base: int, room: int) -> np.ndarray:
    """The table with room for more keys and without those whose chain has left the window, so that idle keys cost
    nothing."""
    live = 0
    for at in range(0, chains.shape[0], 2):
        if chains[at + 1] >= base:
            live += 1
    capacity = 16
    while capacity < 2 * (3 * live + room):  # so many that they are seldom looked through
        capacity *= 2
    larger = np.full(2 * capacity, EMPTY, chains.dtype)
    for at in range(0, chains.shape[0], 2):
        if chains[at + 1] >= base:
            to = chain_of(larger, chains[at])
            larger[to] = chains[at]
            larger[to + 1] = chains[at + 1]
    return larger


@njit
def used_chains(chains: np.ndarray) -> int:
    used = 0
    for at in range(1, chains.shape[0], 2):
        if chains[at] != EMPTY:
            used += 1
    return used


@njit
def bits_of(value: float) -> int:
    return np.float64(value).view(np.int64)  # type: ignore[return-value]


@njit
def float_of(bits: int) -> float:
    return np.int64(bits).view(np.float64)


IMPORTS = f"from {__name__} import " + ", ".join(
    helper.__name__ for helper in (bits_of, chain_of, first_link, float_of, rehashed_chains, relaid, used_chains)
)
"""What generated code says to have these."""
