"""Stacks of instances in memory: rings of records, and tables of chains.

The fields of an instance are adjacent in memory, and so are a key and the heads of its chains. Reading an instance or a
chain is then one memory access, and construction is bound by memory latency. Stacks with the same keys share a table,
and may share a ring: then an event is looked up once, and expired instances are dropped from one ring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cepheid.codegen.builder import Register
from cepheid.physical import Step
from cepheid.runtime.arrays import EMPTY, copy
from cepheid.runtime.jit import njit
from cepheid.runtime.kernel import StateArray

NO_SIGN = (1 << 47) - 1
"""A bit mask that changes no array index. It proves to the compiler that an index is not negative, which saves the test
for indices that count from the end."""


@dataclass(frozen=True, slots=True)
class Link:
    """An equality between an attribute of one component and one of a later component: part of a chain's key."""

    here: str
    there: str
    as_float: bool


@dataclass(frozen=True, slots=True)
class Record:
    """Fields that lie side by side in an array. Constants name the offset of each. Several layouts may share an array,
    so each has a name, which its constants begin with."""

    array: str
    fields: tuple[str, ...]
    name: str

    @property
    def offsets(self) -> str:
        """`S0_ROW, S0_TIME = 0, 1`"""
        return f"{', '.join(map(self.offset, self.fields))} = {', '.join(map(str, range(len(self.fields))))}"

    def offset(self, field: str) -> str:
        """`S0_ROW`"""
        return f"{self.name}_{field}".upper()

    def at(self, field: str, start: str) -> str:
        """`s0[i + S0_ROW]`"""
        return f"{self.array}[{start} + {self.offset(field)}]"


class Ring:
    """An array of records: the instances of a stack, or of several stacks in the order in which they were pushed. They
    are numbered in that order; those from `base` up to `following` are still in the ring."""

    def __init__(self, name: str, register: Callable[[str], Register]) -> None:
        self.name = name
        self.stacks: list[Stack] = []
        self._register = register

    @cached_property
    def base(self) -> Register:
        return self._register(f"{self.name}_base")

    @cached_property
    def following(self) -> Register:
        return self._register(f"{self.name}_next")

    @cached_property
    def width(self) -> int:
        """How many numbers make a record."""
        return max(len(stack.record.fields) for stack in self.stacks)

    def array(self) -> StateArray:
        return StateArray(self.name, "int64", 16 * self.width, width=self.width)

    def offset(self, number: str) -> str:
        """Source of the offset of an instance's record: `4 * (j & s0_last)`."""
        return f"{self.width} * ({number} & {self.name}_last)"

    @property
    def size(self) -> str:
        """The line that sets the mask of `offset`; needed before the ring is read, and whenever it has grown:

        s0_last = (s0.shape[0] // 4 - 1) & NO_SIGN
        """
        return f"{self.name}_last = ({self.name}.shape[0] // {self.width} - 1) & NO_SIGN"

    def grown(self, more: str) -> str:
        """The line that makes room: `s0 = relaid(s0, 4, s0_base, s0_next, room)`."""
        return f"{self.name} = relaid({self.name}, {self.width}, {self.base}, {self.following}, {more})"


class ChainTable:
    """A hash table of chains. The entry of a key is adjacent in memory: the key, a mark that grows with each push onto
    its chains (EMPTY if the entry is free), and the head of its chain on each stack. In the table of one stack, the
    head is the mark; in others, the mark is the position of the latest event."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.used = f"{name}_used"
        """The register with the number of keys."""
        self.stacks: list[Stack] = []

    @property
    def is_shared(self) -> bool:
        return len(self.stacks) > 1

    @cached_property
    def width(self) -> int:
        """A power of two, so that some bits of a hash are an offset."""
        return 1 << (len(self.stacks) + 1).bit_length() if self.is_shared else 2

    def array(self) -> StateArray:
        return StateArray(self.name, "int64", 16 * self.width, fill=EMPTY, width=self.width)

    def first(self, key: str) -> str:
        """Source of the offset where the search for a key begins."""
        return f"first_link({self.name}, {self.width}, {key})"

    def find(self, key: str) -> str:
        """Source of the offset of a key's entry."""
        return f"chain_of({self.name}, {self.width}, {key})"

    def head(self, stack: Stack, entry: str) -> str:
        """Source of the head of a chain: `chains[chain + 2]`."""
        return f"{self.name}[{entry} + {2 + self.stacks.index(stack) if self.is_shared else 1}]"

    def put(self, stack: Stack, entry: str, key: str, number: str) -> list[str]:
        """The lines that make an instance the head of its chain:

        if chains[chain + 1] == EMPTY:
            chains_used += 1
            chains[chain] = key
        chains[chain + 2] = s0_next
        chains[chain + 1] = first + e
        """
        mark = f"{self.name}[{entry} + 1]"
        lines = [f"if {mark} == EMPTY:", f"    {self.used} += 1", f"    {self.name}[{entry}] = {key}"]
        lines.append(f"{self.head(stack, entry)} = {number}")
        return [*lines, f"{mark} = first + e"] if self.is_shared else lines

    def is_full(self, more: str) -> str:
        """Source of the condition that `more` keys would fill over half of the table."""
        return f"{2 * self.width} * ({self.used} + {more}) > {self.name}.shape[0]"

    def grown(self, oldest_mark: str, more: str) -> tuple[str, str]:
        """The lines that make room for more keys:

        chains = rehashed_chains(chains, 8, oldest, room)
        chains_used = used_chains(chains, 8)
        """
        return (
            f"{self.name} = rehashed_chains({self.name}, {self.width}, {oldest_mark}, {more})",
            f"{self.used} = used_chains({self.name}, {self.width})",
        )


@dataclass(eq=False)
class Stack:
    """How generated code lays out the instances of a component, and how it reads and writes them.

    The record of instance j is at `offset(j)`. Floats are stored as their bits, so one array holds all fields."""

    register: Callable[[str], Register]
    name: str
    step: Step
    links: tuple[Link, ...]
    measured: bool
    """Whether the window counts something else than time."""
    columns: tuple[str, ...] = ()
    floats: frozenset[str] = frozenset()
    pointers: list[str] = field(default_factory=list)
    """Extra fields of an instance: its RIP, and the latest negated event before it."""
    ring: Ring = field(init=False)
    table: ChainTable = field(init=False)
    """The table of its chains, if it has links."""

    def __post_init__(self) -> None:
        self.lie_in(Ring(self.name, self.register))
        self.chain_in(ChainTable(f"{self.name}_chains"))

    def lie_in(self, ring: Ring) -> None:
        self.ring = ring
        ring.stacks.append(self)

    def chain_in(self, table: ChainTable) -> None:
        self.table = table
        table.stacks.append(self)

    @cached_property
    def record(self) -> Record:
        """Its fields, once its pointers and columns are known."""
        measured = ["measure"] if self.measured else []
        chained = ["prev"] if self.links else []
        fields = ["row", "time", *measured, *chained, *self.pointers, *(f"c{column}" for column in self.columns)]
        return Record(self.ring.name, tuple(fields), self.name)

    @property
    def pushed(self) -> Register:
        """The register with the number of instances pushed so far."""
        return self.ring.following if self.ring.stacks == [self] else self.register(f"{self.name}_pushed")

    def offset(self, number: str) -> str:
        return self.ring.offset(number)

    def latest(self, key: str) -> str:
        """Source of the latest instance of a key."""
        return self.table.head(self, self.table.find(key))

    def previous(self, number: str, offset: str) -> str:
        """Source of the instance before another, in its chain or on the whole stack."""
        return self.at("prev", offset) if self.links else f"{number} - 1"

    def at(self, name: str, offset: str) -> str:
        """Source of a field of the record at an offset: `s0[i + S0_TIME]`."""
        if name == "measure" and not self.measured:
            name = "time"
        cell = self.record.at(name, offset)
        if name == "cmask":
            return f"np.uint64({cell})"
        return f"as_float({cell})" if name.removeprefix("c") in self.floats else cell

    def put(self, name: str, offset: str, value: str) -> str:
        """The line that writes a field: `s0[i + S0_TIME] = t`."""
        cell = self.record.at(name, offset)
        if name == "cmask":
            value = f"np.int64({value})"
        return f"{cell} = float_word({value})" if name.removeprefix("c") in self.floats else f"{cell} = {value}"


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
def chain_of(chains: np.ndarray, width: int, key: int) -> int:
    """Where a key lies in a table, or where it belongs."""
    last = (chains.shape[0] - 1) & NO_SIGN
    at = first_link(chains, width, key)
    while chains[at + 1] != EMPTY and chains[at] != key:
        at = (at + width) & last
    return at


@njit
def first_link(chains: np.ndarray, width: int, key: int) -> int:
    """Where the search for a key begins."""
    # No product here exceeds 63 bits, so nothing wraps around.
    mixed = (((key ^ (key >> 31)) & 0x7FFFFFFF) * 2654435769) & 0xFFFFFFFF
    at: int = (mixed * chains.shape[0] >> 32) & (NO_SIGN & -width)
    return at


@njit
def rehashed_chains(chains: np.ndarray, width: int, oldest_mark: int, room: int) -> np.ndarray:
    """The table with room for more keys and without those whose chains have left the window, so that idle keys cost
    nothing."""
    live = 0
    for at in range(0, chains.shape[0], width):
        if chains[at + 1] >= oldest_mark:
            live += 1
    capacity = 16
    while capacity < 2 * (3 * live + 2 * room):  # so many that they are seldom looked through
        capacity *= 2
    larger = np.full(width * capacity, EMPTY, chains.dtype)
    for at in range(0, chains.shape[0], width):
        if chains[at + 1] >= oldest_mark:
            copy(chains, at, larger, chain_of(larger, width, chains[at]), width)
    return larger


@njit
def used_chains(chains: np.ndarray, width: int) -> int:
    used = 0
    for at in range(1, chains.shape[0], width):
        if chains[at] != EMPTY:
            used += 1
    return used


IMPORTS = f"from {__name__} import NO_SIGN, " + ", ".join(
    helper.__name__ for helper in (chain_of, first_link, rehashed_chains, relaid, used_chains)
)
"""The import statement that generated code begins with."""
