"""KernelBuilder: how a kernel is called, and the state, constants and needs of its source.

Every evaluator declares what its source uses and writes what happens with the events; the builder writes the rest:

    def step(now, first, time, measure, mask, texts, ranks, integers, floats, column0, reg, s0, values, bounds):
        limit = integers[0]
        events = reg[0]                     the counters, by their names in `runtime.kernel.COUNTERS`
        s0_base = reg[11]                   the registers of the evaluator
        ...                                 what the evaluator writes
        reg[0] = events
        reg[11] = s0_base
        reg[6] = written
        reg[7] = 0
        reg[9] = problem                    the event that exceeds a limit, if there is one
        reg[10] = problem_at if problem != 0 else time.shape[0]     otherwise, how many events the step has taken
        return reg, s0, values, bounds

Source refers to these names through handles: a `Register` and an `Array` are the name of a variable that knows what it
names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np

from cepheid.codegen import parts
from cepheid.codegen.compile import compiled
from cepheid.codegen.scalar import Constants, Term
from cepheid.physical import Kind, Plan, Step
from cepheid.runtime.kernel import (
    BOUNDS,
    COUNTERS,
    FREE,
    OLDEST,
    PROBLEM,
    PROBLEM_AT,
    VALUES,
    Kernel,
    OperatorRegisters,
    StateArray,
)

K = TypeVar("K", bound=Kernel)

_STRINGS = ("texts", "ranks")


class Writer:
    """Generated source, line by line, indented."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def __call__(self, *lines: str) -> None:
        for line in lines:
            self.lines.append("    " * self._depth + line if line else "")

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """The lines written inside are the body of `opening`."""
        self.lines.append("    " * self._depth + opening)
        self._depth += 1
        yield
        self._depth -= 1

    def when(self, conditions: Sequence[str]) -> AbstractContextManager[None]:
        """A block that runs if all conditions hold; without conditions there is no block."""
        return self.block(f"if {' and '.join(conditions)}:") if conditions else nullcontext()

    @contextmanager
    def part(self) -> Iterator[None]:
        """The lines written inside become a function if others differ in names and integers alone (`codegen.parts`)."""
        self(parts.BEGIN)
        yield
        self(parts.END)

    def append(self, other: Writer) -> None:
        """The lines of another writer, as if they were written here."""
        self(*other.lines)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


class Register(str):
    """An integer of the state, by the name of its variable. `number` is its index in the array of registers."""

    number: int

    def __new__(cls, name: str, number: int) -> Register:
        made = super().__new__(cls, name)
        made.number = number
        return made


class Array(str):
    """An array of the state, by the name of its variable."""

    state: StateArray

    def __new__(cls, state: StateArray) -> Array:
        made = super().__new__(cls, state.name)
        made.state = state
        return made

    @property
    def size(self) -> str:
        """`pending.shape[0]`"""
        return f"{self}.shape[0]"

    def at(self, index: str) -> str:
        """`pending[i]`"""
        return f"{self}[{index}]"

    def grown(self, needed: str) -> str:
        """`pending = grown(pending, needed)`"""
        return f"{self} = grown({self}, {needed})"


def known_by(plan: Plan, name: str, mask: str) -> str | None:
    """The condition, by the mask of its event, that an attribute is not null: `bits & np.uint64(32) == 0`. None if its
    kind has a null value."""
    if plan.columns[name] not in (Kind.INT, Kind.UNSIGNED):
        return None
    return f"{mask} & np.uint64({1 << plan.nulls[name]}) == 0" if name in plan.nulls else "True"


class KernelBuilder:
    """The source of one plan's kernel. Declare registers and arrays, write the body, then `source` and `kernel`.

    `counters` are those that the source counts in variables (helpers that are handed `reg` may count the others);
    `reserved` is the number of registers that helpers use by number, before those with names."""

    def __init__(self, plan: Plan, *, counters: Sequence[str] = COUNTERS, reserved: int = 0) -> None:
        self.plan = plan
        self.constants = Constants([int(plan.window or 0)])
        self.column_number = {name: number for number, name in enumerate(plan.columns)}
        self._counters = {name: COUNTERS.index(name) for name in counters}
        self._reserved = reserved
        self._registers: dict[str, Register] = {}
        self._arrays: list[StateArray] = []
        self._remembers_strings = False
        self._growing: list[str] = []
        self._is_interpreted = False

    # --- the state ----------------------------------------------------------------------------------------------------

    def register(self, name: str) -> Register:
        """The register of that name; it is 0 in the initial state."""
        if name not in self._registers:
            self._registers[name] = Register(name, FREE + self._reserved + len(self._registers))
        return self._registers[name]

    def array(self, name: str, dtype: str = "int64", length: int = 16, *, fill: int = 0, width: int = 1) -> Array:
        """Declare an array of the state. The order of declarations is the order in a saved state."""
        made = Array(StateArray(name, dtype, length, fill, width))
        self.declare(made.state)
        return made

    def declare(self, *arrays: StateArray) -> None:
        self._arrays += arrays

    def remember_strings(self) -> None:
        """Keep `texts` and `ranks` in the state, for source that runs when time passes without events:

            if time.shape[0] > 0:
                texts, ranks = new_texts.copy(), new_ranks.copy()

        To be called after every other array is declared."""
        self._remembers_strings = True
        self.declare(*(StateArray(name, "int64", 0) for name in _STRINGS))

    @property
    def uses_strings(self) -> bool:
        """Whether what was written so far refers to `texts` or `ranks`."""
        return bool(self.constants.texts) or self.constants.needs_ranks

    def interpret_if_large(self) -> bool:
        """Let Python interpret `step` and compile its parts alone if its state has many arrays (`codegen.parts`). To be
        called after every array is declared."""
        self._is_interpreted = len(self.state_arrays) > parts.MANY_ARRAYS
        return self._is_interpreted

    @property
    def state_arrays(self) -> tuple[StateArray, ...]:
        """All arrays of the state, the registers first."""
        return (StateArray("reg", "int64", FREE + self._reserved + len(self._registers)), *self._arrays)

    # --- events -------------------------------------------------------------------------------------------------------

    def column(self, name: str, index: str = "e") -> str:
        """`column0[e]`, an attribute of the event at an index of the batch."""
        return f"column{self.column_number[name]}[{index}]"

    def term(self, name: str, source: str, mask: str) -> Term:
        """A value of an attribute: missing where its event's mask says that its type lacks the attribute, and null
        where the mask says so, if its kind has no null value."""
        bit = self.plan.lacking.get(name)
        missing = None if bit is None else f"{mask} & np.uint64({1 << bit}) != 0"
        return Term(source, self.plan.columns[name], missing, self.plan.types[name], known_by(self.plan, name, mask))

    def bits_of(self, steps: Sequence[Step]) -> int:
        """The bits of the mask that allow an event to begin one of the steps, or to be taken by it."""
        return sum({1 << bit for step in steps for bit in (step.begin, step.take) if bit is not None})

    # --- limits -------------------------------------------------------------------------------------------------------

    @property
    def most_matches(self) -> str:
        """The number of matches that one event may complete: `integers[1]`."""
        return self.constants.integer(self.plan.most_enumerated or 1 << 40)

    @property
    def most_words(self) -> str:
        """The length that an array may have: `integers[2]`."""
        return self.constants.integer((self.plan.max_memory or 1 << 43) // 8)

    def growing(self, name: str) -> int:
        """The number of an array that may need much memory, by its name in error messages."""
        if name not in self._growing:
            self._growing.append(name)
        return self._growing.index(name)

    def stop_if_large(self, w: Writer, words: str, row: str, name: str) -> None:
        """Leave the loop around if an array would exceed the memory of a task, at the event at position `row`:

        if words > integers[2]:
            problem, problem_at = -(row) - 1, 0
            break
        """
        with w.block(f"if {words} > {self.most_words}:"):
            w(f"problem, problem_at = -({row}) - 1, {self.growing(name)}", "break")

    # --- the function -------------------------------------------------------------------------------------------------

    def source(
        self,
        body: Writer,
        finish: Writer,
        *,
        preamble: Sequence[str] = (),
        setup: Sequence[str] = (),
        written: str | None = "written",
        ends: str = "0",
        output: str = "values",
        taken: str = "time.shape[0]",
    ) -> str:
        """The module with the function `step`. `preamble` stands above it (imports, constants), `setup` before the
        body; `finish` updates counters and stores the oldest event (`keep_from`). `written` and `ends` are how much of
        the values and of the bounds is used (None: helpers store both), `taken` how many events are."""
        names = [array.name for array in self.state_arrays]
        strings = [f"new_{name}" if self._remembers_strings else name for name in _STRINGS]
        columns = [f"column{number}" for number in self.column_number.values()]
        parameters = [
            "now",
            "first",
            "time",
            "measure",
            "mask",
            *strings,
            "integers",
            "floats",
            *columns,
            *(["points"] if self.plan.has_histories else []),
            *names,
            output,
            "bounds",
        ]
        registers = {**self._counters, **{name: register.number for name, register in self._registers.items()}}
        begin = Writer()
        begin("problem, problem_at = 0, 0")
        begin("limit = integers[0]", *(f"{name} = reg[{number}]" for name, number in registers.items()))
        if self._remembers_strings:
            with begin.block("if time.shape[0] > 0:"):
                begin(f"{', '.join(_STRINGS)} = {', '.join(f'{name}.copy()' for name in strings)}")
        begin(*setup)
        functions, lines = parts.with_functions(body.lines, parameters, begin.lines, every=self._is_interpreted)
        w = Writer()
        if preamble:
            w(*preamble, "", "")
        w(*functions)
        with w.block(f"def step({', '.join(parameters)}):"):
            w.append(begin)
            w(*lines)
            w.append(finish)
            w(*(f"reg[{number}] = {name}" for name, number in registers.items()))
            w(f"reg[{PROBLEM}] = problem", f"reg[{PROBLEM_AT}] = problem_at if problem != 0 else {taken}")
            if written is not None:
                w(f"reg[{VALUES}] = {written}", f"reg[{BOUNDS}] = {ends}")
            w(f"return {', '.join([*names, output, 'bounds'])}")
        return w.text()

    def keep_from(self, w: Writer, oldest: str) -> None:
        """`reg[8] = oldest`: the position of the oldest event that a later match may still contain."""
        w(f"reg[{OLDEST}] = {oldest}")

    def kernel(
        self,
        source: str,
        steps: Sequence[str],
        *,
        has_bounds: bool,
        operators: Sequence[OperatorRegisters] = (),
        kind: Callable[..., K] = Kernel,  # type: ignore[assignment]
        further: Mapping[str, Any] | None = None,
    ) -> K:
        """The kernel of the source: `kind` makes it, with `further` fields of its own."""
        column_types = tuple("float64" if kind is Kind.FLOAT else "int64" for kind in self.plan.columns.values())
        arguments = ["int", "int", "int64", "int64", "uint64", "int64", "int64", "int64", "float64", *column_types]
        arguments += ["int64"] * self.plan.has_histories
        arguments += [f"{array.dtype}!" for array in self.state_arrays] + ["int64!", "int64!"]
        return kind(
            plan=self.plan,
            source=source,
            function=compiled(source, arguments, parts_only=self._is_interpreted),
            arrays=self.state_arrays,
            integers=np.array(self.constants.integers, np.int64),
            floats=np.array(self.constants.floats, np.float64),
            steps=tuple(steps),
            column_types=column_types,
            has_bounds=has_bounds,
            texts=tuple(self.constants.texts),
            needs_ranks=self.constants.needs_ranks,
            needs_characters=self.constants.needs_characters,
            operators=tuple(operators),
            growing=tuple(self._growing),
            **(further or {}),
        )
