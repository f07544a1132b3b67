"""The source of conditions on aggregates of an iteration that are tested on the paths of groups (`late_tests`).

Paths are enumerated from the last item to the first, and paths that share their last items share the accumulators over
them. A sum that was added up in this order may differ from that in the order of the events, by rounding or by overflow.
So it excludes paths by its bounds only, and is added up again where these do not decide.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace

from cepheid import expr as ex
from cepheid.codegen.builder import Writer
from cepheid.expr import Aggregate, Compare, Expr, walk
from cepheid.kernels.aggregates import ACCUMULATORS
from cepheid.kernels.state_vector import Value
from cepheid.kernels.successor.composites import Composite, Field, field_name
from cepheid.kernels.successor.conditions import Sides
from cepheid.kernels.successor.late_tests import SUMS
from cepheid.kernels.successor.network import Network
from cepheid.kernels.successor.operators import Iteration, Next, Operator
from cepheid.physical import Kind

_EXACT = "1e17"
"""Sums of whole numbers whose magnitudes add up to less do not leave their type in any order."""
_ROUNDING = "5e-16"
"""More than the rounding of two additions of floats, relative to the sum of the magnitudes."""
_TESTED = 64
"""The most paths of an event that are tested, in multiples of `max_matches`."""
DISCARDED = "discarded"
"""The number of the operator that discarded an instance; 0 of a match."""
_CHAIN = ("absent", "length", "lacking", *ACCUMULATORS)
"""The values over a whole chain; others are those of its last item."""


class PathTests(Network, ABC):
    """Tests on each path of the groups of a match."""

    def accumulate(self, w: Writer, op: Iteration) -> None:
        """The accumulators over the nodes of a path that are new, from the last item on:

        for step1 in range(path1[-1], depth1):
            if step1 == 0:
                path1_length0[0] = 1
            else:
                path1_length0[step1] = path1_length0[step1 - 1] + 1
        path1[-1] = depth1
        """
        k, fields = op.number, list(self.path_values[op])
        if not fields:
            return
        item = self.nodes[op].composite(op.item, f"path{k}[2 * step{k}]")
        chain = Composite(op, lambda field: self._summed(op, field, f"step{k} - 1"), frozenset(op.variables))
        with w.block(f"for step{k} in range(path{k}[-1], depth{k}):"):
            for before in (None, chain):
                with w.block(f"if step{k} == 0:" if before is None else "else:"):
                    for field in fields:
                        new = self.chained_value(op, field, before, item)
                        w(f"{self._summed(op, field, f'step{k}')} = {new}")
                        if field.what == "sum":
                            size = f"{self._size(op, field)}[step{k}]"
                            earlier = "" if before is None else f"{self._size(op, field)}[step{k} - 1] + "
                            w(f"{size} = {earlier}{self._magnitude(field, item)}")
        w(f"path{k}[-1] = depth{k}")

    def _magnitude(self, field: Value, item: Composite) -> str:
        """`(abs(float(node1[path1[2 * step1] + NODE1_LAST0_1])) if x == x else 0.0)`"""
        var = self.values.variable(field)
        if var in item.unbound:
            return "0.0"
        x = self.item_term(field, item)
        tests = [] if x.is_known == "True" else [x.is_known]
        if var not in item.bound:
            tests.append(f"{item.read(Value('absent', field.component))} == 0")
        size = f"abs(float({x.source}))"
        return f"({size} if {' and '.join(tests)} else 0.0)" if tests else size

    def _summed(self, op: Iteration, field: Field, step: str) -> str:
        assert isinstance(field, Value)
        for needed in [field, *self.values.read_by_update(field)]:
            self.path_values[op].setdefault(needed)
        return f"{self._array(op, field)}[{step}]"

    def _array(self, op: Iteration, field: Value) -> str:
        return f"path{op.number}_{field_name(field, self.values).lower()}"

    def _size(self, op: Iteration, field: Value) -> str:
        return f"{self._array(op, field)}_size"

    def each_path(self, w: Writer, groups: list[Iteration]) -> None:
        """`path1_sum0_1 = np.empty(path1.shape[0] >> 1, np.int64)`"""
        super().each_path(w, groups)
        for op in groups:
            for field in self.path_values[op]:
                is_float = self.values.kind(field) is Kind.FLOAT if field.what in ACCUMULATORS else False
                length = f"path{op.number}.shape[0] >> 1"
                w(f"{self._array(op, field)} = np.empty({length}, np.{'float64' if is_float else 'int64'})")
                if field.what == "sum":
                    w(f"{self._size(op, field)} = np.empty({length}, np.float64)")

    # --- tests --------------------------------------------------------------------------------------------------------

    def tested(self, w: Writer, write: Callable[[Writer], None]) -> None:
        """What is written if the paths at hand pass all tests, the inner operators first."""
        operators = [op for op in self.operators if self.late(op)]
        if not operators:
            write(w)
            return
        with w.block("if doubted <= r < doubted_end:"):
            w("tested += 1", f"problem = max(first + start, 1) if tested > {_TESTED} * most else problem")
        self._tested(w, operators, lambda w: self._counted(w, write))

    def _counted(self, w: Writer, write: Callable[[Writer], None]) -> None:
        """A match, and whether an event completes more than `max_matches`:

        if doubted <= r < doubted_end:
            counted += max(depth1, 1)
            problem = max(first + start, 1) if counted > most else problem
        """
        if DISCARDED in self.found.fields:
            with w.block(f"if {self.found.at(DISCARDED, 'r')} != 0:"):
                w(f"{self.builder.register('failed')} += 1")
            with w.block("else:"):
                self._counted_match(w, write)
        else:
            self._counted_match(w, write)

    def _counted_match(self, w: Writer, write: Callable[[Writer], None]) -> None:
        with w.block("if doubted <= r < doubted_end:"):
            items = " + ".join(f"depth{op.number}" for op in self.groups_of(self.root))
            w(f"counted += max({items}, 1)", "problem = max(first + start, 1) if counted > most else problem")
        write(w)

    # --- limits -------------------------------------------------------------------------------------------------------

    def shown(self) -> list[str]:
        """Before an event: its matches are the records from here on."""
        return [f"shown = {self.found.top}"] if self.has_late_tests else []

    def doubt(self) -> list[str]:
        """The groups of an event have more paths than `max_matches` allows: those that pass the tests are counted when
        they are written. Empty: all paths are matches."""
        return [f"doubted, doubted_end = shown, {self.found.top}"] if self.has_late_tests else []

    # --- source of tests ----------------------------------------------------------------------------------------------

    def _tested(self, w: Writer, operators: list[Operator], write: Callable[[Writer], None]) -> None:
        """`if path1_length0[depth1 - 1] >= integers[1]:`, and for sums that may differ in the order of the events:

        passed1 = path1_sum0_1[depth1 - 1] + ... > integers[2]
        if passed1:
            ...
            passed1 = sum0_1 > integers[2]
        """
        if not operators:
            write(w)
            return
        op = operators[0]
        k, predicates = op.number, self.late(op)
        summed = [predicate for predicate in predicates if _has_sums(predicate)]
        first = [source for predicate in predicates for source in self._bounded(w, predicate)]
        w(f"passed{k} = {' and '.join(first) or 'True'}")
        if summed:
            unsure = [source for predicate in summed for source in self._unsure(predicate)]
            test = " and ".join([f"passed{k}", *([] if "True" in unsure else [f"({' or '.join(unsure)})"])])
            with w.block(f"if {test}:"):
                whole = self._added_up(w, summed)
                w(f"passed{k} = {' and '.join(self.conditions.write(w, summed, Sides(None, whole))) or 'True'}")
        others = self._discarded_before(op)
        with w.block(f"if {' or '.join([f'passed{k}', *others])}:"):
            self._tested(w, operators[1:], write)
        if isinstance(op, Next):
            with w.block("else:"):
                w(f"{self.builder.register('failed')} += 1")

    def _discarded_before(self, op: Operator) -> list[str]:
        """The conditions that an instance was discarded inside an operator: `found[r + FOUND_DISCARDED] == 3`."""
        if DISCARDED not in self.found.fields:
            return []
        discarding = [one.number for one in self.operators if self.late_inside(one) and op not in self.late_inside(one)]
        return [f"{self.found.at(DISCARDED, 'r')} == {number}" for number in discarding]

    def _iteration(self, node: Aggregate) -> Iteration:
        return next(op for op in self.nodes if node.var in op.variables)

    def _at_hand(self, changed: Mapping[Field, str] | None = None) -> Composite:
        """The match at hand, with the accumulators over its paths."""
        found = self.found.composite(self.root, "r")

        def read(field: Field) -> str:
            if changed is not None and field in changed:
                return changed[field]
            if isinstance(field, Value) and field.what in _CHAIN:
                for op in self.groups_of(self.root):
                    if self.values.variable(field) in op.variables:
                        return self._summed(op, field, f"depth{op.number} - 1")
            return found.read(field)

        return replace(found, read=read)

    def _bounded(self, w: Writer, predicate: Expr) -> list[str]:
        """Conditions that hold for all paths that satisfy a predicate; those without sums hold for no other."""
        if not _has_sums(predicate):
            return self.conditions.write(w, [predicate], Sides(None, self._at_hand()))
        if isinstance(predicate, ex.And):
            return [source for item in predicate.items for source in self._bounded(w, item)]
        floats = [node for node in _sums(predicate) if self._kind(node) is Kind.FLOAT]
        if not floats:
            exact = self.conditions.write(w, [predicate], Sides(None, self._at_hand()))
            return [f"({' or '.join([*self._unsure(predicate), *exact])})"] if exact else []
        if not isinstance(predicate, Compare) or predicate.op not in ("<", "<=", ">", ">="):
            return []
        node = floats[0]
        if len(floats) > 1 or node not in (predicate.left, predicate.right) or len(_sums(predicate)) > 1:
            return []
        is_upper = (predicate.op in (">", ">=")) == (node == predicate.left)
        return self.conditions.write(w, [predicate], Sides(None, self._at_hand(self._bound(node, is_upper))))

    def _bound(self, node: Aggregate, is_upper: bool) -> Mapping[Field, str]:
        """The most (or the least) that a sum may be in another order:
        `(path1_sum0_1[...] + 5e-16 * depth1 * size if size < 1e300 else np.inf)`."""
        op = self._iteration(node)
        at = f"depth{op.number} - 1"
        field = self._sum(node)
        total, size = self._summed(op, field, at), f"{self._size(op, field)}[{at}]"
        sign, most = ("+", "np.inf") if is_upper else ("-", "-np.inf")
        return {field: f"({total} {sign} {_ROUNDING} * depth{op.number} * {size} if {size} < 1e300 else {most})"}

    def _sum(self, node: Aggregate) -> Value:
        return Value("sum", self.values.component[node.var], self.values.column[node.name or ""])

    def _kind(self, node: Aggregate) -> Kind:
        return self.plan.columns[node.name or ""]

    def _unsure(self, predicate: Expr) -> list[str]:
        """The conditions that the order of events may make a difference: `path1_sum0_1_size[depth1 - 1] >= 1e17`."""
        found: dict[str, None] = {}
        for node in _sums(predicate):
            op = self._iteration(node)
            self._summed(op, self._sum(node), "0")
            if self._kind(node) is Kind.FLOAT:
                return ["True"]
            size = f"{self._size(op, self._sum(node))}[depth{op.number} - 1]"
            found[f"(depth{op.number} > 0 and {size} >= {_EXACT})"] = None
        return list(found)

    def _added_up(self, w: Writer, predicates: list[Expr]) -> Composite:
        """The match at hand with sums in the order of the events, in variables:

        sum0_1 = node1[path1[2 * (depth1 - 1)] + NODE1_LAST0_1]
        for step1 in range(depth1 - 2, -1, -1):
            sum0_1 = sum0_1 + node1[path1[2 * step1] + NODE1_LAST0_1]
        """
        changed: dict[Field, str] = {}
        for op in dict.fromkeys(self._iteration(node) for predicate in predicates for node in _sums(predicate)):
            k = op.number
            fields = [field for field in self.path_values[op] if field.what in ("sum", "beyond")]
            names: dict[Field, str] = {field: f"s{k}_{field_name(field, self.values).lower()}" for field in fields}
            chain = Composite(op, names.__getitem__, frozenset(op.variables))
            with w.block(f"if depth{k} > 0:"):
                for before in (None, chain):
                    at = f"path{k}[2 * (depth{k} - 1)]" if before is None else f"path{k}[2 * step{k}]"
                    item = self.nodes[op].composite(op.item, at)
                    steps = f"for step{k} in range(depth{k} - 2, -1, -1):"
                    with nullcontext() if before is None else w.block(steps):
                        values = [self.chained_value(op, field, before, item) for field in fields]
                        w(f"{', '.join(names.values())} = {', '.join(values)}")
            changed |= names
        return self._at_hand(changed)


def _sums(predicate: Expr) -> list[Aggregate]:
    return [node for node in walk(predicate) if isinstance(node, Aggregate) and node.fn in SUMS]


def _has_sums(predicate: Expr) -> bool:
    return bool(_sums(predicate))
