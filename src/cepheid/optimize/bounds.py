"""What comparisons with constants leave of the values of one attribute."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cepheid.evaluation import compare
from cepheid.events import type_of
from cepheid.expr import Attr, Compare, Const, Expr


@dataclass(frozen=True, slots=True)
class Bounds:
    """The comparisons of one attribute with constants, as (operator, constant)."""

    tests: tuple[tuple[str, object], ...]

    @staticmethod
    def of(attr: Attr, predicates: Iterable[Expr]) -> Bounds:
        return Bounds(
            tuple(
                (p.op, p.right.value)
                for p in predicates
                if isinstance(p, Compare) and p.left == attr and isinstance(p.right, Const)
            )
        )

    @property
    def contradictory(self) -> bool:
        """Whether no value passes every test.

        >>> Bounds(((">", 5), ("<", 3))).contradictory, Bounds(((">", 3), ("<", 5))).contradictory
        (True, False)
        >>> Bounds((("=", 1), ("=", 2))).contradictory, Bounds((("=", "p"), ("<", 3))).contradictory
        (True, True)
        """
        if any(value is None for _, value in self.tests):
            return True
        if len({type_of(value) for _, value in self.tests}) > 1:
            return True
        exact = [value for op, value in self.tests if op == "="]
        if exact:
            return not all(compare(op, exact[0], value) for op, value in self.tests)
        lows = [(op, value) for op, value in self.tests if op in (">", ">=")]
        highs = [(op, value) for op, value in self.tests if op in ("<", "<=")]
        return any(
            not compare("<=" if (low_op, high_op) == (">=", "<=") else "<", low, high)
            for low_op, low in lows
            for high_op, high in highs
        )
