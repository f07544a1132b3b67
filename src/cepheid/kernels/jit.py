"""Numba, or not: with CEPHEID_JIT=0 the very same functions run as plain Python, which is how they are debugged."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

JIT_OFF = "0"


def jit_enabled() -> bool:
    return os.environ.get("CEPHEID_JIT", "1") != JIT_OFF


if jit_enabled():
    import numba

    _OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

    def njit(function: F) -> F:
        """Compile, and keep the machine code on disk."""
        compiled: F = numba.njit(**_OPTIONS)(function)
        return compiled

else:

    def njit(function: F) -> F:
        return function
