"""The buffers of tree plans: rings that grow and expire, and chains by which equal records are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernel_harness import bound, kernel_of, stream_of

from cepheid.codegen.builder import KernelBuilder, Writer
from cepheid.codegen.compile import interpreted
from cepheid.kernels.tree.buffers import Buffers, Chain
from cepheid.runtime.kernel import Batch, Kernel, State

ROWS = [{"type": t, "ts": i, "id": i % 3, "v": 1.5 * i} for i, t in enumerate("ABAB")]


def _builder(where: str = "x.id = y.id") -> KernelBuilder:
    stream = stream_of(ROWS)
    query = bound(f"PATTERN A x; B y WHERE {where} WITHIN 10", stream)
    return KernelBuilder(kernel_of(query, stream, evaluator="tree").plan)


def _chained(builder: KernelBuilder) -> tuple[Buffers, Chain]:
    """Source in which every event is put into the first leaf, and finds the latest earlier one with its key."""
    buffers = Buffers(builder)
    leaf = buffers.leaves["x"]
    chain = buffers.chain(leaf, buffers.equalities(builder.plan.predicates, ["x"], ["y"]))
    return buffers, chain


def _kernel(*, jit: bool) -> Kernel:
    builder = _builder()
    buffers, chain = _chained(builder)
    leaf, w, finish = buffers.leaves["x"], Writer(), Writer()
    buffers.make_room(w, leaf, "time.shape[0]")
    buffers.chain_room(w, chain, "time.shape[0]")
    w("values = grown(values, time.shape[0])")
    with w.block("for e in range(time.shape[0]):"):
        if buffers.expires:
            buffers.expire(w, buffers.all, "time[e]", 1)
        w(f"i = {leaf.index(leaf.following)}", f"{leaf.field('row', 'i')} = first + e")
        w(f"{leaf.field('time', 'i')} = time[e]", *(f"{leaf.field(c, 'i')} = column{c[1:]}[e]" for c in leaf.columns))
        buffers.link(w, chain, leaf.following, "i")
        w(f"j = {buffers.previous(chain, 'j', 'i')}")
        w(f"values[e] = {leaf.field('row', leaf.index('j'))} if j >= {leaf.base} else EMPTY")
        w(f"{leaf.following} += 1")
    w("written = time.shape[0]")
    builder.declare(*buffers.tables())
    kernel: Kernel = builder.kernel(builder.source(w, finish), ["x"], has_bounds=False)
    return kernel if jit else replace(kernel, function=interpreted(kernel.source))


def _batch(kernel: Kernel, first: int, keys: list[int]) -> Batch:
    time = np.arange(first, first + len(keys), dtype=np.int64)
    columns = tuple(np.array(keys, dtype) for dtype in kernel.column_types)
    none: Any = np.zeros(1, np.int64)
    return Batch(first, time, time, np.ones(len(keys), np.uint64), columns, none, none)


@pytest.mark.parametrize("jit", [False, True])
def test_a_chain_leads_to_the_latest_record_of_the_key_in_the_window(jit: bool) -> None:
    kernel = _kernel(jit=jit)
    keys = [(7 * i * i) % 11 for i in range(300)]
    state: State = kernel.initial()
    found: list[int] = []
    for start in range(0, 300, 75):
        state, positions = kernel.step(state, _batch(kernel, start, keys[start : start + 75]))
        found += positions.values.tolist()
    expected = [
        next((j for j in range(i - 1, max(i - 10, 0) - 1, -1) if keys[j] == keys[i]), -1) for i in range(len(keys))
    ]
    assert found == expected


def test_equal_chains_are_made_once() -> None:
    builder = _builder()
    buffers, chain = _chained(builder)
    again = buffers.chain(chain.buffer, chain.equalities)
    own = buffers.chain(chain.buffer, chain.equalities, shared=False)
    assert again.name == chain.name != own.name
    assert chain.buffer.chains == [chain.name, own.name]


def test_a_chain_settles_a_single_equality_and_leaves_several_to_be_tested() -> None:
    one = _builder()
    _, chain = _chained(one)
    assert chain.remaining(one.plan.predicates) == []
    two = _builder("x.id = y.id AND x.v = y.v")
    _, chain = _chained(two)
    assert len(chain.remaining(two.plan.predicates)) == len(two.plan.predicates) == 2


def test_source_of_a_buffer_is_what_its_docstrings_show() -> None:
    buffers = Buffers(_builder())
    leaf, node = buffers.leaves["x"], buffers.node(["x", "y"], ["x"])
    assert (leaf.size, leaf.index("j")) == ("l0_time.shape[0]", "j & (l0_time.shape[0] - 1)")
    assert (leaf.array("time"), leaf.field("time", "i"), leaf.live) == ("l0_time", "l0_time[i]", "l0_next - l0_base")
    assert (leaf.start("i"), leaf.end("i")) == ("l0_time[i]", "l0_time[i]")
    assert (node.start("i"), node.end("i")) == ("x0_start[i]", "x0_end[i]")
    places = buffers.bindings(node, "j", "i")
    assert places["x"].unbound is None and places["y"].unbound == "x0_v1[i] < 0"
