"""Numba's compiler for generated source: the same result as its default pipeline, in less than half the time.

Generated source is large and simple. It has no closures, no generators and no array expressions, and a variable has one
type wherever it is assigned. So the passes that rewrite such things are left out, above all the reconstruction of
static single assignment, whose cost grows with the square of the source: LLVM does the same, faster. What a call
resolves to is looked up once for each function and types of arguments. A variable that is assigned values of two types
is an error (`SeveralTypes`) because without single assignment Numba would convert both to a third.
"""

# mypy: disable-error-code="misc, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from numba.core import ir, types
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.typed_passes import (
    AnnotateTypes,
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
)
from numba.core.untyped_passes import FixupArgs, IRProcessing, TranslateByteCode


class SeveralTypes(Exception):
    """A variable of generated source is assigned values of different types."""


@register_pass(mutates_CFG=False, analysis_only=False)
class _GlobalIntegers(FunctionPass):
    """Integer globals become constants: `floor = NULL_INT` must not settle the type of `floor` as that one value."""

    _name = "cepheid_global_integers"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            for statement in block.find_insts(ir.Assign):
                value = statement.value
                if isinstance(value, ir.Global | ir.FreeVar) and type(value.value) is int:
                    statement.value = ir.Const(value.value, value.loc)
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _TypeInference(NopythonTypeInference):
    _name = "cepheid_type_inference"

    def run_pass(self, state: Any) -> bool:
        with _memoized_calls(state.typingctx):
            inferred: bool = super().run_pass(state)
        for block in state.func_ir.blocks.values():
            for statement in block.find_insts(ir.Assign):
                _check_type(statement, state.typemap, state.calltypes)
        return inferred


def _check_type(statement: Any, types_of: Mapping[str, Any], signatures: Mapping[Any, Any]) -> None:
    """That the value has the type of its variable. (Constants take the type of theirs.)"""
    value = statement.value
    if isinstance(value, ir.Var):
        assigned = types_of[value.name]
    elif isinstance(value, ir.Expr) and signatures.get(value) is not None:
        assigned = signatures[value].return_type
    elif isinstance(value, ir.Expr) and value.op == "static_getitem":
        assigned = types_of[value.value.name][value.index]  # one of the values that a helper returns
    else:
        return
    target, assigned = types.unliteral(types_of[statement.target.name]), types.unliteral(assigned)
    if target != assigned:
        raise SeveralTypes(f"line {statement.loc.line}: {statement.target.name} is {target}, its new value {assigned}")


@contextmanager
def _memoized_calls(context: Any) -> Iterator[None]:
    """Remember what each call resolves to. Type inference asks for every call in every round."""
    within = vars(context).get("resolve_function_type")  # a function that calls the one that is compiled
    resolve: Callable[..., Any] = context.resolve_function_type
    known: dict[Any, Any] = {}

    def resolved(function: Any, args: Any, kws: Any) -> Any:
        call = (function, tuple(args), tuple(sorted(dict(kws).items())))
        if call not in known:
            signature = resolve(function, args, kws)
            if signature is None:
                return None
            known[call] = signature
        return known[call]

    context.resolve_function_type = resolved
    try:
        yield
    finally:
        if within is None:
            del context.resolve_function_type
        else:
            context.resolve_function_type = within


class KernelCompiler(CompilerBase):
    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("kernel")
        for step in (
            TranslateByteCode,
            FixupArgs,
            IRProcessing,
            _GlobalIntegers,
            _TypeInference,
            IRLegalization,
            AnnotateTypes,
            NativeLowering,
            NoPythonBackend,
        ):
            passes.add_pass(step, step.__name__)
        passes.finalize()
        return [passes]
