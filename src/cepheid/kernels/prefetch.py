"""Memory that will be wanted soon: kernels with many keys wait for little else.

A kernel knows the keys of the events to come, so it asks for their chains a few events ahead, and for the latest
instances of these chains a little later. Asking changes nothing and may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cepheid.kernels.jit import when_compiling

AHEAD = 16
"""How many events before its own turn the chain of an event's key is asked for: it takes about that long to come."""
SOON = 6
"""How many events before its turn what the chain leads to is asked for."""

FAR = 1 << 15
"""How many numbers a table has to hold to be worth it: smaller ones stay in the nearest caches by themselves."""


def prefetch(array: np.ndarray, at: int) -> None:
    """Ask for the memory at a place of an array, without waiting for it. Python does nothing of the kind."""


@when_compiling
def _teach_numba() -> None:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic, overload

    @intrinsic
    def fetch(_context: Any, array: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            address = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
            number = ir.IntType(32)
            shape = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
            ask = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0i8")
            to_read, into_all_caches, data_not_code = (ir.Constant(number, n) for n in (0, 3, 1))
            builder.call(ask, [address, to_read, into_all_caches, data_not_code])
            return context.get_dummy_value()

        return types.void(array, at), generate

    @overload(prefetch)
    def compiled(array: Any, at: Any) -> Callable[..., None]:
        def fetch_it(array: Any, at: Any) -> None:
            fetch(array, at)  # type: ignore[call-arg]  # Numba passes the typing context

        return fetch_it
