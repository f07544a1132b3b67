"""A property test that rejects most of its draws tests little, and a test that returns before it asserts tests nothing.

Property tests reject with `assume` and `reject`. Each of them fails if too few of its draws come to the end: fewer than
80 %, or than the share in `@pytest.mark.reach(0.3)`.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import pytest

FLOOR = 0.8


class Reach:
    """Counts the draws of one property test, and those that come to the end."""

    def __init__(self, test: Callable[..., Any]) -> None:
        self.drawn = self.reached = 0
        self.handle: Any = test.hypothesis  # type: ignore[attr-defined]
        self.inner: Callable[..., Any] = self.handle.inner_test

    def __enter__(self) -> Reach:
        @functools.wraps(self.inner)
        def counted(*arguments: Any, **named: Any) -> None:
            self.drawn += 1
            self.inner(*arguments, **named)
            self.reached += 1

        self.handle.inner_test = counted
        return self

    def __exit__(self, *problem: object) -> None:
        self.handle.inner_test = self.inner

    def require(self, floor: float) -> None:
        assert self.reached >= floor * self.drawn, (
            f"{self.reached} of {self.drawn} draws reached the end of the test, fewer than {floor:.0%}: "
            "draw what the test can use"
        )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    if not hasattr(pyfuncitem.obj, "hypothesis"):
        return (yield)
    marker = pyfuncitem.get_closest_marker("reach")
    with Reach(pyfuncitem.obj) as reach:
        result = yield
    reach.require(marker.args[0] if marker else FLOOR)
    return result


# --- without running --------------------------------------------------------------------------------------------------


def early_ends(source: str) -> list[str]:
    """The functions of a test module that may end before their first assertion, or assert only under a condition."""
    return [
        f"line {node.lineno}: `{node.name}` {problem}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        for problem in _problems(node)
    ]


def _problems(function: ast.FunctionDef) -> Iterator[str]:
    statements = list(_own(function.body))
    asserts = [s.lineno for s in statements if isinstance(s, ast.stmt) and _asserts(s)]
    if not asserts and not function.name.startswith("test_"):
        return
    first = min(asserts, default=math.inf)
    ends = (s for s in statements if isinstance(s, ast.Continue) or (isinstance(s, ast.Return) and s.value is None))
    if any(s.lineno < first for s in ends):
        yield "returns or continues before it asserts: use `assume`, or parametrize with the cases it can use"
    if asserts and not _surely_asserts(function.body) and function.name.startswith("test_"):
        yield "asserts under a condition only"


def _asserts(statement: ast.stmt) -> bool:
    raises = isinstance(statement, ast.With) and "pytest.raises" in ast.unparse(statement.items[0].context_expr)
    return raises or isinstance(statement, ast.Assert)


def _own(parts: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The statements of a function but for those of functions in it."""
    for part in parts:
        yield part
        if not isinstance(part, ast.expr | ast.FunctionDef | ast.ClassDef):
            yield from _own(ast.iter_child_nodes(part))


def _surely_asserts(body: Iterable[ast.stmt]) -> bool:
    """In every branch; a loop counts as one that runs."""
    for statement in body:
        match statement:
            case _ if _asserts(statement):
                return True
            case ast.If() if _surely_asserts(statement.body) and _surely_asserts(statement.orelse):
                return True
            case ast.For() | ast.While() | ast.With() | ast.Try() if _surely_asserts(statement.body):
                return True
            case ast.Try() if _surely_asserts(statement.orelse) or _surely_asserts(statement.finalbody):
                return True
    return False
