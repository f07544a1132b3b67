"""The calling convention, state and needs that every kernel's source has in common."""

from __future__ import annotations

import numpy as np
import pytest

from cepheid import expr as ex
from cepheid.codegen.builder import Array, KernelBuilder, Writer
from cepheid.codegen.scalar import Term, condition
from cepheid.lang import parse
from cepheid.physical import Kind, Plan, Step
from cepheid.runtime.kernel import COUNTERS, FREE, Batch, Kernel, StateArray, counters
from cepheid.types import FLOAT, INTEGER, STRING

PLAN = Plan(
    query=parse("EVENT SEQ(A a, B b) WITHIN 5"),
    evaluator="stacks",
    steps=(Step("a", 0), Step("b", 1, take=2, high=None)),
    bits=(),
    lacks={},
    lacking={"w": 3},
    predicates=(),
    columns={"v": Kind.INT, "w": Kind.FLOAT, "s": Kind.CODE},
    key=(),
    window=5,
    counts_events=False,
    options={},
    types={"v": INTEGER, "w": FLOAT, "s": STRING},
    nulls={"v": 4},
)


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPHEID_JIT", "0")


def _batch(times: list[int]) -> Batch:
    time = np.array(times, np.int64)
    columns = (time * 10, time.astype(np.float64), time)
    return Batch(0, time, time, np.ones(len(time), np.uint64), columns, np.array([7]), np.array([0]))


def test_a_kernel_keeps_its_registers_counters_and_arrays_between_batches() -> None:
    builder = KernelBuilder(PLAN)
    total, seen = builder.register("total"), builder.array("seen")
    body, finish = Writer(), Writer()
    with body.block("for e in range(time.shape[0]):"):
        body("events += 1", f"{total} += {builder.column('v')}")
        body(seen.grown("events"), f"{seen.at('events - 1')} = time[e] - limit")
    builder.keep_from(finish, "first")
    kernel: Kernel = builder.kernel(builder.source(body, finish, setup=["written = 0"]), ["a", "b"], has_bounds=False)
    state = kernel.initial()
    for times in ([1, 2], [3]):
        state, _ = kernel.step(state, _batch(times))
    assert counters(state)["events"] == 3
    assert state[0][total.number] == 60
    assert state[1][:3].tolist() == [-4, -3, -2]
    assert [array.name for array in kernel.arrays] == ["reg", "seen"]
    assert not kernel.needs_ranks and kernel.column_types == ("int64", "float64", "int64")


def test_registers_have_numbers_after_those_that_helpers_use() -> None:
    builder = KernelBuilder(PLAN, counters=("predicates",), reserved=4)
    assert builder.register("a").number == FREE + 4
    assert builder.register("b").number == FREE + 5
    assert builder.register("a") is builder.register("a")
    assert builder.state_arrays == (StateArray("reg", "int64", FREE + 6),)
    source = builder.source(Writer(), Writer(), written=None)
    assert f"reg[{COUNTERS.index('predicates')}] = predicates" in source
    assert "events" not in source and "written" not in source


def test_what_source_needs_is_known_from_what_was_asked_for() -> None:
    builder = KernelBuilder(PLAN)
    assert not builder.uses_strings
    read = {"s": Term("column2[e]", Kind.CODE)}
    less = ex.Compare("<", ex.Attr("a", "s"), ex.Const("x"))
    text = condition(less, lambda node: read[node.name or ""], builder.constants)
    assert text == "(column2[e] != NULL_CODE and ranks[column2[e]] < ranks[texts[0]])"
    assert builder.uses_strings and builder.constants.needs_ranks and builder.constants.texts == ["x"]


def test_strings_are_remembered_for_when_time_passes_without_events() -> None:
    builder = KernelBuilder(PLAN)
    total = builder.register("total")
    builder.remember_strings()
    body = Writer()
    body(f"{total} += texts[0]")
    kernel: Kernel = builder.kernel(builder.source(body, Writer(), setup=["written = 0"]), ["a"], has_bounds=False)
    state, _ = kernel.step(kernel.initial(), _batch([1]))
    state, _ = kernel.advance(state, 100)
    assert state[0][total.number] == 14


def test_handles_write_the_source_that_their_docstrings_show() -> None:
    array = Array(StateArray("pending", "int64", 16))
    assert (array.size, array.at("i")) == ("pending.shape[0]", "pending[i]")
    builder = KernelBuilder(PLAN)
    assert builder.term("w", "x", "bits") == Term("x", Kind.FLOAT, "bits & np.uint64(8) != 0", FLOAT)
    known = "bits & np.uint64(16) == 0"
    assert builder.term("v", "x", "bits") == Term("x", Kind.INT, None, INTEGER, known)
    assert builder.bits_of(PLAN.steps) == 0b111
