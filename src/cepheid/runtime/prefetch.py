"""Memory that will be wanted soon: kernels with many keys wait for little else.

A kernel knows the keys of the events to come, so it asks for their chains a few events ahead, and for the latest
instances of these chains a little later. Asking changes nothing and may be wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cepheid.runtime.jit import instruction

AHEAD = 16
"""How many events before its own turn the chain of an event's key is asked for: it takes about that long to come."""
SOON = 6
"""How many events before its turn what the chain leads to is asked for."""

FAR = 1 << 15
"""How many numbers a table has to hold to be worth it: smaller ones stay in the nearest caches by themselves."""
FAR_CHAINS = 1 << 18
"""The same for tables of chains: one look at them is all that an event needs."""


def _ask(builder: Any, address: Any) -> None:
    from llvmlite import ir
    from numba.core import cgutils

    number = ir.IntType(32)
    shape = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
    ask = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0i8")  # type: ignore[no-untyped-call]
    to_read, into_all_caches, data_not_code = (ir.Constant(number, n) for n in (0, 3, 1))
    builder.call(ask, [builder.bitcast(address, cgutils.voidptr_t), to_read, into_all_caches, data_not_code])


@instruction("void", _ask)
def prefetch(array: np.ndarray, at: int) -> None:
    """Ask for the memory at a place of an array, without waiting for it. Python does nothing of the kind."""
