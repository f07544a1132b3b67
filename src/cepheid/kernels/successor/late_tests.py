"""Conditions on aggregates of an iteration (NEXT §3.5) whose chains wait in groups.

`count(b) >= 3` differs between the chains of a group, so it is tested where the paths of the group are enumerated: when
matches are written. That is sound where a chain that fails decides nothing else: no instance waits for it, it cancels
nothing, and it is no item of another iteration. Otherwise its chains wait one by one.
"""

from __future__ import annotations

from cepheid import expr as ex
from cepheid.expr import FLIPPED, Aggregate, At, Attr, Compare, Const, Expr, walk
from cepheid.kernels.state_vector import Value
from cepheid.kernels.successor.groups import Groups
from cepheid.kernels.successor.operators import Exception_, Iteration, Next, Operator, Selection, Waiting
from cepheid.physical import Kind

_AGGREGATES = ("count", "min", "max", "sum", "avg")
SUMS = ("sum", "avg")


class LateTests(Groups):
    """The conditions on aggregates that are tested on the paths of groups."""

    def late(self, op: Operator) -> tuple[Expr, ...]:
        """The predicates of an operator that are tested when matches are written."""
        if not isinstance(op, Selection | Next) or not self._decides_nothing(op):
            return ()
        return tuple(predicate for predicate in op.keep if self._is_late(op, predicate))

    def early(self, op: Selection | Waiting) -> tuple[Expr, ...]:
        late = self.late(op)
        return tuple(predicate for predicate in op.keep if predicate not in late)

    @property
    def has_late_tests(self) -> bool:
        return any(self.late(op) for op in self.operators)

    def _decides_nothing(self, op: Operator) -> bool:
        """Whether nothing but matches depends on which composite events of an operator pass. Those that fail θ are
        counted once they are written, so they must not wait for more."""
        below, above = op, op.parent
        while above is not None:
            if isinstance(above, Iteration) or below is getattr(above, "cancel", None):
                return False
            if isinstance(above, Next) and below is not above.left:
                return False
            if isinstance(above, Next | Exception_) and isinstance(op, Next):
                return False
            below, above = above, above.parent
        return True

    def late_inside(self, op: Operator) -> list[Operator]:
        """The operators inside another one whose conditions are tested late."""
        return [node for node in op.walk() if node is not op and self.late(node)]

    def _is_late(self, op: Operator, predicate: Expr) -> bool:
        nodes = list(walk(predicate))
        aggregates = [node for node in nodes if isinstance(node, Aggregate)]
        plain = Aggregate | Attr | Const | Compare | ex.And | ex.Or | ex.Arithmetic | ex.Negative
        if self.shows_failed or not aggregates or not all(isinstance(node, plain) for node in nodes):
            return False
        if (
            any(isinstance(node, Attr) and node.at is not At.EVENT for node in nodes)
            or most_events(predicate) is not None
        ):
            return False
        return all(self._is_summed(op, node) for node in aggregates)

    def _is_summed(self, op: Operator, node: Aggregate) -> bool:
        around = [part for part in op.walk() if isinstance(part, Iteration) and node.var in part.variables]
        if len(around) != 1 or not self.is_grouped(around[0]) or node.fn not in _AGGREGATES:
            return False
        if node.over is ex.Over.MATCHES:
            return False
        return node.fn not in SUMS or self.plan.columns[node.name or ""] in (Kind.INT, Kind.FLOAT)

    # --- what the source has read -------------------------------------------------------------------------------------

    def find_groups(self, shows_failures: bool) -> None:
        self.shows_failed = shows_failures
        self.path_values: dict[Iteration, dict[Value, None]] = {op: {} for op in self.nodes}
        super().find_groups(shows_failures)

    def forget(self) -> None:
        super().forget()
        for values in self.path_values.values():
            values.clear()

    def shape(self) -> tuple[object, ...]:
        return (*super().shape(), [tuple(values) for values in self.path_values.values()])


def most_events(predicate: Expr) -> tuple[str, int] | None:
    """The variable whose events a predicate counts, and the most that it allows: `count(a) <= 3`."""
    match predicate:
        case Compare(left=Const() as left, right=Aggregate() as right):
            return most_events(Compare(FLIPPED[predicate.op], right, left))
        case Compare(
            op="=" | "<=" | "<", left=Aggregate(fn="count", name=None) as counted, right=Const(value=int() as n)
        ):
            return counted.var, n - (predicate.op == "<")
        case _:
            return None
