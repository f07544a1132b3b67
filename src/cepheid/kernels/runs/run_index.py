"""Hash tables in which generated code finds the runs that an event may extend.

The runs of a partition are in one slot of the main index. Runs that wait for an event with a certain value (`b.x =
a.y`) are in another index, by partition and value, so events with other values do not visit them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from cepheid.codegen.builder import Writer
from cepheid.codegen.scalar import key_fit, mixed
from cepheid.expr import At, Attr, Compare, Expr
from cepheid.kernels.runs.run_vector import Component, RunVector
from cepheid.kernels.state_vector import Value


class Awaited(NamedTuple):
    """A value of a run that an attribute of the event has to equal on all its edges."""

    value: Value
    attribute: str
    as_float: bool


def _named(word: str) -> cached_property[str]:
    """The name of a variable of an index: `slots`, `slots1`."""

    def name(index: RunIndex) -> str:
        return f"{word}{index.number or ''}"

    return cached_property(name)


@dataclass(frozen=True)
class RunIndex:
    """A hash table of lists of runs, by partition and by the value that the runs wait for, if there is one. A slot has
    one list for each of the states."""

    number: int
    key: tuple[str, ...]
    awaited: Awaited | None
    states: tuple[int, ...]
    stores_measure: bool
    """Whether a slot holds the measure that its partition has reached."""

    name = _named("index")
    slots = _named("slots")
    """The variable that is the number of slots."""
    used = _named("used")
    """The register that counts the used slots."""
    at = _named("at")
    """The variable that holds the slot of the current event."""

    @cached_property
    def parts(self) -> int:
        return len(self.key) + (self.awaited is not None)

    @cached_property
    def heads(self) -> int:
        """The offset of the heads in a slot, after the key, the number of runs and the measure reached."""
        return self.parts + 1 + self.stores_measure

    @cached_property
    def stride(self) -> int:
        return self.heads + len(self.states)

    @cached_property
    def layout(self) -> str:
        """The arguments of helpers: the array, the length of a slot, of its key, and the offset of its heads."""
        return f"{self.name}, {self.stride}, {self.parts}, {self.heads}"

    def count(self, at: str | None = None) -> str:
        return f"{self.name}[{at or self.at} + {self.parts}]"

    def measure(self) -> str:
        return f"{self.name}[{self.at} + {self.parts + 1}]"

    def head(self, state: int, at: str | None = None) -> str:
        return f"{at or self.at} + {self.heads + self.states.index(state)}"

    def find(self, w: Writer, at: str, parts: Sequence[str]) -> None:
        """Find the slot of a key, or the unused slot for it: `at = slot_in(index, 4, slots, key0)`."""
        if not parts:
            w(f"{at} = 0")
            return
        if len(parts) == 1:
            w(f"{at} = slot_in({self.name}, {self.stride}, {self.slots}, {parts[0]})")
            return
        same = " and ".join(f"{self.name}[{at} + {i}] == {part}" for i, part in enumerate(parts))
        w(f"{at} = {self.first(parts)}")
        with w.block(f"while {self.count(at)} != EMPTY and not ({same}):"):
            w(f"{at} = ({at} + {self.stride}) % {self.name}.shape[0]")

    def first(self, parts: Sequence[str]) -> str:
        """The first slot to probe for a key: `first_slot(key0, slots) * 4`."""
        return f"first_slot({mixed(parts)}, {self.slots}) * {self.stride}"

    def occupy(self, w: Writer, at: str, parts: Sequence[str]) -> None:
        """Insert a key into an unused slot:

        if index[at + 1] == EMPTY:
            index[at + 0] = key0
            index[at + 1] = 0
        """
        with w.block(f"if {self.count(at)} == EMPTY:"):
            for i, part in enumerate(parts):
                w(f"{self.name}[{at} + {i}] = {part}")
            w(f"{self.count(at)} = 0")
            if parts:
                w(f"{self.used} += 1")

    def is_full(self, inserts: str) -> str:
        """Whether so many more keys would fill over half of the slots."""
        return f"2 * ({self.used} + {inserts}) > {self.slots}"

    def make_room(self, w: Writer, inserts: str) -> None:
        """`index, slots, used = rehashed_index(index, 4, 1, 1)`"""
        if self.parts:
            w(f"{self.slots} = {self.name}.shape[0] // {self.stride}")
            with w.block(f"if {self.is_full(inserts)}:"):
                w(f"{self.name}, {self.slots}, {self.used} = rehashed_index(")
                w(f"    {self.name}, {self.stride}, {self.parts}, {inserts})")


def awaited_by(run: RunVector, state: int, nexts: Sequence[int]) -> Awaited | None:
    """The value that every edge from a component asks its event to equal, in the same attribute on all of them."""
    component = run.components[state]
    edges = [_awaited_on(run, state, run.components[j], run.components[j].begin) for j in nexts]
    if component.takes:
        edges.append(_awaited_on(run, state, component, component.take))
    return (
        next((awaited for awaited in edges[0] if all(awaited in edge for edge in edges[1:])), None) if edges else None
    )


def _awaited_on(run: RunVector, state: int, target: Component, predicates: Sequence[Expr]) -> list[Awaited]:
    awaited: list[Awaited] = []
    for predicate in predicates:
        match predicate:
            case Compare(op="=", left=Attr() as a, right=Attr() as b):
                for event, other in ((a, b), (b, a)):
                    if _is_event(run, event, state, target.index):
                        awaited += _if_possible(run, event, other, state, target.index)
    return awaited


def _is_event(run: RunVector, attr: Attr, state: int, target: int) -> bool:
    """Whether an identifier stands for the current event."""
    references = (At.CURRENT,) if state == target else (At.EVENT, At.FIRST)
    return run.index[attr.var] == target and attr.at in references


def _if_possible(run: RunVector, event: Attr, other: Attr, state: int, target: int) -> list[Awaited]:
    c = run.index[other.var]
    is_known = c <= state and not (run.components[c].may_be_empty and c < state) and other.at is not At.CURRENT
    names = {event.name, other.name}
    fit = key_fit(run.plan.types[event.name], run.plan.types[other.name])
    if not is_known or names & (run.plan.lacking.keys() | run.key) or fit is None:
        return []
    which = "first" if other.at in (At.EVENT, At.FIRST) else "last"
    value = Value(which, c, run.column[other.name])
    if target == state and c == state and which == "last" and not run.components[state].takes:
        return []
    return [Awaited(value, event.name, fit.as_float)]
