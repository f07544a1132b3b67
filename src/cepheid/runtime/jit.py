"""Helpers of kernels, compiled by Numba when compiled code calls them, and plain Python when Python does.

An interpreted kernel (over little data, or with CEPHEID_JIT=0 for debugging) therefore neither waits for the compiler
nor imports Numba.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from types import CodeType, ModuleType
from typing import Any, TypeVar

from cepheid.runtime.code_cache import CodeCache, digest, helper_directories

F = TypeVar("F", bound=Callable[..., Any])

JIT_OFF = "0"
WORTH_COMPILING = 10_000
"""Over fewer values a function of the encoder is interpreted: loading the compiler takes longer."""
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

_helpers: list[Callable[..., Any]] = []
_instructions: list[Callable[[], None]] = []
_called_from_python: set[Callable[..., Any]] = set()
_dispatchers: dict[Callable[..., Any], Any] = {}
_emitters: dict[Callable[..., Any], Callable[..., Any]] = {}


def jit_enabled() -> bool:
    return os.environ.get("CEPHEID_JIT", "1") != JIT_OFF


def njit(function: F) -> F:
    """A helper that compiled code calls. Declare it as an `entry` if Python calls its machine code, too."""
    _helpers.append(function)
    return function


def entry(function: F) -> F:
    """A helper whose machine code Python calls too, through `machine_code`."""
    _called_from_python.add(function)
    return njit(function)


def instruction(result: str, emit: Callable[[Any, Any], Any]) -> Callable[[F], F]:
    """A function of an array and an index that is compiled to one machine instruction: `emit` creates it with LLVM's
    builder, from the address of the element. `result` is the name of its type in Numba."""

    def declared(function: F) -> F:
        _emitters[function] = emit
        _instructions.append(lambda: _register_instruction(function, result, emit))
        return function

    return declared


def _register_instruction(function: Callable[..., Any], result: str, emit: Callable[[Any, Any], Any]) -> None:
    from numba import types
    from numba.extending import intrinsic, overload

    @intrinsic
    def emitted(_context: Any, array: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            made = emit(builder, builder.gep(data, [arguments[1]]))
            return context.get_dummy_value() if result == "void" else made

        return getattr(types, result)(array, at), generate

    @overload(function)
    def compiled(array: Any, at: Any) -> Callable[..., Any]:
        def call(array: Any, at: Any) -> Any:
            return emitted(array, at)  # type: ignore[call-arg]  # Numba passes the typing context

        return call


def prepare_helpers() -> None:
    """Register the helpers with Numba, before anything that calls them is compiled."""
    import numba

    directories = helper_directories() if _helpers else ()
    while _instructions:
        _instructions.pop()()
    while _helpers:
        function = _helpers.pop()
        # The wrapper that unboxes Python objects takes longer to compile than most helpers.
        options = {**OPTIONS, "no_cpython_wrapper": function not in _called_from_python}
        dispatcher: Any = numba.njit(**options)(function)
        dispatcher._cache = CodeCache(directories, function.__name__, digest(content(function), repr(options)))
        call_machine_code(function, dispatcher)


def call_machine_code(function: Callable[..., Any], dispatcher: Any) -> None:
    """Let compiled code that calls a plain function call its machine code."""
    from numba import types

    _dispatchers[function] = dispatcher  # Numba's type does not keep it alive
    # Compiled once for all integers, instead of once for each literal in a call.
    dispatcher.get_call_template = _with_plain_types(dispatcher.get_call_template)
    # Numba reads this attribute of an unknown global.
    function.__dict__["_numba_type_"] = types.Dispatcher(dispatcher)


@cache
def content(function: Callable[..., Any]) -> str:
    """A digest of everything that the machine code of a helper depends on: its instructions, its constants, and the
    helpers that it calls."""
    parts = [function.__qualname__]
    codes: list[CodeType] = [function.__code__]
    for code in codes:
        constants = [constant for constant in code.co_consts if constant is not function.__doc__]
        codes += [constant for constant in constants if isinstance(constant, CodeType)]
        parts += [code.co_code.hex(), *(repr(c) for c in constants if not isinstance(c, CodeType))]
        for name in code.co_names:
            value = function.__globals__.get(name)
            is_helper = hasattr(value, "__code__") and value is not function
            parts += [name, content(value) if is_helper else "" if isinstance(value, ModuleType) else repr(value)]
    if function in _emitters:
        parts.append(content(_emitters[function]))
    return digest(*parts)


def _with_plain_types(get_call_template: Callable[..., Any]) -> Callable[..., Any]:
    from numba import types

    return lambda args, kws: get_call_template(tuple(map(types.unliteral, args)), kws)


def machine_code(function: F) -> F:
    """The machine code of an entry, for calls from Python over much data (with the JIT off, the function itself)."""
    assert function in _called_from_python, f"{function.__qualname__} has to be an @entry: Python calls it compiled"
    if not jit_enabled():
        return function
    prepare_helpers()
    compiled: F = _dispatchers[function]
    return compiled
