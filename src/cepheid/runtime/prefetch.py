"""Prefetching: kernels with many keys are bound by memory latency.

A kernel knows the keys of the next events, so it prefetches their chains some events ahead, and the latest instances of
these chains a few events later. A prefetch never changes the result, and it may be wasted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cepheid.runtime.jit import instruction

AHEAD = 16
"""How many events ahead the chain of an event's key is prefetched: about the latency of a load."""
SOON = 6
"""How many events ahead the instances at the head of the chain are prefetched."""

FAR = 1 << 15
"""The size from which a table is prefetched: smaller tables stay in the first caches."""
FAR_CHAINS = 1 << 18
"""The same for tables of chains, which an event reads once."""


def _emit_prefetch(builder: Any, address: Any) -> None:
    from llvmlite import ir
    from numba.core import cgutils

    number = ir.IntType(32)
    shape = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
    function = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0i8")  # type: ignore[no-untyped-call]
    to_read, into_all_caches, data_not_code = (ir.Constant(number, n) for n in (0, 3, 1))
    builder.call(function, [builder.bitcast(address, cgutils.voidptr_t), to_read, into_all_caches, data_not_code])


@instruction("void", _emit_prefetch)
def prefetch(array: np.ndarray, at: int) -> None:
    """Load an element into the caches without waiting for it. In Python this does nothing."""
