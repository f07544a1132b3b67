"""Predicates of core operators as kernel source (NEXT §3.5): what PREV, ALL, aggregates and OCCURS WITHIN read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from cepheid import expr as ex
from cepheid.codegen.builder import Writer
from cepheid.codegen.scalar import Constants, Term, condition
from cepheid.expr import Aggregate, At, Attr, Expr
from cepheid.kernels.state_vector import Value
from cepheid.kernels.successor.composites import LATE, Chain, Composite, Values
from cepheid.kernels.successor.operators import Iteration, Operator, Waiting
from cepheid.physical import Kind
from cepheid.types import BOOLEAN

_PREPARED = "\0prepared"
"""The variable of a condition that was computed before."""


@dataclass(frozen=True, slots=True)
class Sides:
    """What a predicate is about: the events detected so far, and those now occurring. In an iteration, `whole` reads
    the values of the chain that the item would make."""

    before: Composite | None
    occurring: Composite
    iteration: Iteration | None = None
    whole: Callable[[Value], str] | None = None


class Conditions:
    def __init__(self, values: Values, constants: Constants, nodes: Callable[[Iteration, str], Composite]) -> None:
        """`nodes` reads the item of a node of an iteration, by the variable with its offset."""
        self.values = values
        self.constants = constants
        self.nodes = nodes
        self.count = 0

    def write(self, w: Writer, predicates: Sequence[Expr], sides: Sides) -> list[str]:
        """The conditions that the predicates are not false. Loops over all events of a group are written first. A
        predicate that names a variable of a branch that did not match does not apply as a whole:
        `(w1[i1 + W1_ABSENT0] != 0 or column0[e] > w1[i1 + W1_LAST0_0])`."""
        sources = []
        for predicate in predicates:
            unbound = [self._unbound(var, sides) for var in sorted(ex.variables(predicate))]
            unbound += self._of_other_branches(predicate, sides)
            if "True" in unbound:
                continue
            prepared: dict[str, Term] = {}
            plain = self._without_loops(w, predicate, sides, prepared)

            def read(node: Attr | Aggregate, prepared: dict[str, Term] = prepared) -> Term:
                return prepared[node.name or ""] if node.var == _PREPARED else self._term(node, sides)

            test = condition(plain, read, self.constants)
            guards = [source for source in unbound if source is not None]
            sources.append(f"({' or '.join([*guards, test])})" if guards and test != "True" else test)
        return [source for source in sources if source != "True"]

    def _unbound(self, var: str, sides: Sides) -> str | None:
        """The condition that the match so far does not bind a variable; None if it does. An iteration binds each of its
        variables, if only to no events, and none of an exception in its items."""
        if sides.iteration is not None:
            return None if var in sides.iteration.item.variables else "True"
        side = self._side(var, sides)
        if side is None or var in side.unbound:
            return "True"
        if var in side.bound:
            return None
        if var in side.operator.many:
            return f"{side.read(Chain(_iteration_of(side.operator, var).number))} == EMPTY"
        return f"{side.read(Value('absent', self.values.component[var]))} != 0"

    def _of_other_branches(self, predicate: Expr, sides: Sides) -> list[str]:
        """The conditions that a predicate with PREV or ALL is about other items than the one at hand and the last one
        before it: `w1[i1 + W1_SKIPPED0] != 0`."""
        read = [node for node in ex.walk(predicate) if isinstance(node, Attr)]
        if sides.iteration is None or not any(node.at in (At.PREVIOUS, At.ALL) for node in read):
            return []
        found: dict[str, None] = {}
        for node in read:
            c = self.values.component[node.var] if node.var in sides.iteration.item.optional else None
            if c is None or node.var in sides.iteration.item.many:
                continue
            if node.at in (At.PREVIOUS, At.ALL):
                if sides.before is not None and node.at is At.PREVIOUS:
                    found[f"{sides.before.read(Value('skipped', c))} != 0"] = None
            elif node.var in sides.occurring.unbound:
                found["True"] = None
            elif node.var not in sides.occurring.bound:
                found[f"{sides.occurring.read(Value('absent', c))} != 0"] = None
        return list(found)

    # --- conditions that are computed before --------------------------------------------------------------------------

    def _without_loops(self, w: Writer, expr: Expr, sides: Sides, prepared: dict[str, Term]) -> Expr:
        match expr:
            case ex.And() | ex.Or():
                return replace(expr, items=tuple(self._without_loops(w, i, sides, prepared) for i in expr.items))
            case ex.Not() | ex.Filter():
                return replace(expr, item=self._without_loops(w, expr.item, sides, prepared))
            case ex.OccursWithin():
                return self._prepared(self._within(expr, sides), prepared)
        var = next((n.var for n in ex.walk(expr) if isinstance(n, Attr) and n.at is At.ALL), None)
        if var is None or not self._is_group(var, sides):
            return expr
        return self._prepared(self._for_all(w, expr, var, sides), prepared)

    def _prepared(self, term: Term, prepared: dict[str, Term]) -> Attr:
        name = str(len(prepared))
        prepared[name] = term
        return Attr(_PREPARED, name, type=BOOLEAN)

    def _is_group(self, var: str, sides: Sides) -> bool:
        """Whether ALL of a variable is about the events of a chain."""
        if sides.iteration is not None:
            return sides.before is not None
        side = self._side(var, sides)
        return side is not None and var in side.operator.many and var not in side.unbound

    def _for_all(self, w: Writer, expr: Expr, var: str, sides: Sides) -> Term:
        """EQL's ALL: no event of the chain makes the comparison false:

        all0, some0, n0 = 1, 0, w1[i1 + W1_CHAIN1]
        while n0 != EMPTY and all0 == 1:
            some0 = 1
            all0 = int(column0[e] > node1[n0 + NODE1_LAST0_0])
            n0 = node1[n0 + PREV]
        """
        side = sides.before if sides.iteration is not None else self._side(var, sides)
        assert side is not None
        iteration = _iteration_of(side.operator, var)
        number, self.count = self.count, self.count + 1
        node = self.nodes(iteration, f"a{number}")
        trying = sides.iteration is not None and var not in sides.occurring.unbound

        def read(inner: Attr | Aggregate) -> Term:
            if isinstance(inner, Attr) and inner.var == var and not (trying and inner.at in (At.EVENT, At.CURRENT)):
                return self.values.term(inner, "last", node, False)
            return self._term(inner, sides)

        w(f"all{number}, some{number}, a{number} = 1, 0, {side.read(Chain(iteration.number))}")
        with w.block(f"while a{number} != EMPTY and all{number} == 1:"):
            bound = var not in iteration.item.optional
            absent = node.read(Value("absent", self.values.component[var])) if not bound else "0"
            with w.when([] if bound else [f"{absent} == 0"]):
                w(f"some{number} = 1", f"all{number} = int({condition(expr, read, self.constants)})")
            w(f"a{number} = {node.read('before')}")
        return Term(f"all{number}", Kind.BOOL, f"some{number} == 0", BOOLEAN, "True")

    def _within(self, expr: ex.OccursWithin, sides: Sides) -> Term:
        """`int(max(t, w1[i1 + W1_LAST_TIME0]) - min(t, w1[i1 + W1_FIRST_TIME0]) <= integers[1])`"""
        firsts: list[str] = []
        lasts: list[str] = []
        missing: list[str] = []
        is_sure = False
        for var in dict.fromkeys((expr.first, expr.second)):
            c = self.values.component[var]
            for side, is_known in self._sides_of(var, sides):
                firsts.append(side.read(Value("first_time", c)))
                lasts.append(side.read(Value("last_time", c)))
                is_sure |= is_known
            unbound = self._unbound(var, sides)
            if unbound is not None:
                missing.append(unbound)
        if not lasts:
            return Term("1", Kind.BOOL, "True", BOOLEAN, "True")
        latest, earliest = _nested("max", lasts), _nested("min", firsts)
        if not is_sure and not missing:
            missing.append(f"{latest} == -{LATE}")
        ticks = self.constants.integer(int(expr.duration.amount))
        gone = " or ".join(dict.fromkeys(missing)) or None
        return Term(f"int({latest} - {earliest} <= {ticks})", Kind.BOOL, gone and f"({gone})", BOOLEAN, "True")

    def earliest(self, expr: ex.OccursWithin, sides: Sides) -> str:
        """The earliest time at which the events of OCCURS WITHIN may start: `t - integers[1]`."""
        lasts, missing = [], []
        for var in dict.fromkeys((expr.first, expr.second)):
            lasts += [
                side.read(Value("last_time", self.values.component[var])) for side, _ in self._sides_of(var, sides)
            ]
            missing += [source for source in [self._unbound(var, sides)] if source is not None]
        source = (
            f"{_nested('max', lasts)} - {self.constants.integer(int(expr.duration.amount))}" if lasts else f"-{LATE}"
        )
        return f"(-{LATE} if {' or '.join(missing)} else {source})" if missing else source

    def _sides_of(self, var: str, sides: Sides) -> Iterator[tuple[Composite, bool]]:
        """The composites with events of a variable, and whether each surely has some."""
        if sides.iteration is not None:
            item = sides.occurring
            if var not in sides.iteration.item.variables:
                return
            if sides.before is not None:
                yield sides.before, var not in sides.iteration.empty
            if var not in item.operator.many and var not in item.unbound:
                yield item, var in item.bound
            return
        side = self._side(var, sides)
        if side is not None and var not in side.unbound:
            yield side, var in side.bound and var not in side.operator.empty

    # --- attributes ---------------------------------------------------------------------------------------------------

    def _side(self, var: str, sides: Sides) -> Composite | None:
        for side in (sides.occurring, sides.before):
            if side is not None and var in side.operator.variables:
                return side
        return None

    def _term(self, node: Attr | Aggregate, sides: Sides) -> Term:
        if isinstance(node, Aggregate):
            return self._aggregate(node, sides)
        if sides.iteration is not None:
            return self._of_chain(node, sides)
        side = self._side(node.var, sides)
        if side is None or node.var in side.unbound or (node.at is At.CURRENT and side is sides.before):
            return self.values.vacuous(node)
        may_lack = node.var not in side.bound or node.var in side.operator.empty
        if node.var in side.operator.many:
            if node.at is At.CURRENT:
                return self.values.vacuous(node)
            return self.values.term(node, "first" if node.at is At.FIRST else "last", side, may_lack)
        if side is sides.occurring and node.at not in (At.EVENT, At.CURRENT, At.FIRST):
            return self.values.vacuous(node)
        return self.values.term(node, "last", side, may_lack)

    def _of_chain(self, node: Attr, sides: Sides) -> Term:
        """An attribute of a variable in an iteration: of the item at hand, or of the chain before it."""
        item, chain, iteration = sides.occurring, sides.before, sides.iteration
        assert iteration is not None
        which = "first" if node.at is At.FIRST else "last"
        tries = node.var not in item.operator.many and node.var not in item.unbound
        before = self.values.vacuous(node)
        if chain is not None and node.at is not At.CURRENT:
            before = self.values.term(node, which, chain, node.var in iteration.empty)
        if not tries or node.at in (At.PREVIOUS, At.LAST, At.ALL):
            return before
        trying = self.values.term(node, "last", item, False)
        absent = Value("absent", self.values.component[node.var])
        if node.at is At.FIRST:
            if chain is None:
                return trying
            return before if node.var not in iteration.empty else _either(f"{chain.read(absent)} != 0", trying, before)
        return trying if node.var in item.bound else _either(f"{item.read(absent)} != 0", before, trying)

    def _aggregate(self, node: Aggregate, sides: Sides) -> Term:
        if sides.iteration is not None:
            assert sides.whole is not None
            return self.values.aggregate(node, sides.whole, None)
        side, missing = self._side(node.var, sides), self._unbound(node.var, sides)
        if side is None or missing == "True":
            return self.values.empty_aggregate(node, "True")
        if side is sides.occurring and node.var not in side.operator.many:
            return self.values.empty_aggregate(node, missing)
        return self.values.aggregate(node, side.read, missing)


def _either(test: str, one: Term, other: Term) -> Term:
    """`(one if test else other)`"""
    missing = f"(({one.missing or False}) if {test} else ({other.missing or False}))"
    known = f"(({one.is_known}) if {test} else ({other.is_known}))"
    return Term(f"({one.source} if {test} else {other.source})", one.kind, missing, one.type, known)


def _nested(function: str, sources: Sequence[str]) -> str:
    """`max(a, max(b, c))`"""
    distinct = list(dict.fromkeys(sources))
    result = distinct[-1]
    for source in reversed(distinct[:-1]):
        result = f"{function}({source}, {result})"
    return result


def _iteration_of(operator: Operator, var: str) -> Iteration:
    """The outermost iteration under an operator that binds a variable."""
    found = [node for node in operator.walk() if isinstance(node, Iteration) and var in node.variables]
    return found[-1]


def waits_for(operator: Waiting) -> Operator:
    """The operand whose composite events wait in the operator's table; of an iteration, its own."""
    return operator if isinstance(operator, Iteration) else operator.operands[0]
