"""Derived columns: values of single events that predicates between events use and kernels cannot compute.

A kernel has numbers and codes, but no strings: `upper(a.s) = b.s` cannot be computed there. `upper(s)` depends on one
event alone, so it becomes a column of every event, computed before the kernel sees the event, and the predicate
compares two columns: a.`upper(s)` = b.s.

Kernels look up equalities of columns: `a.k % 10 = b.k % 10` also becomes one, since they would otherwise test it for
every pair of events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from cepheid import evaluation
from cepheid import expr as ex
from cepheid.errors import Span
from cepheid.expr import Attr, Expr, attributes_in
from cepheid.functions import DIMENSIONS, kernels_compute
from cepheid.types import BINARY, BOOLEAN, FLOAT, INTEGER, LONG_DIGITS, SHORT_DIGITS, UNKNOWN, Family, Type, decimal
from cepheid.values import is_number, to_float

Point = Attr | Sequence[Expr]
"""An attribute that is a list of numbers, or the numbers."""
_CONDITIONS = (ex.Like, ex.Contains, ex.Compare, ex.In, ex.IsNull)
_CONNECTIVES = (ex.And, ex.Or, ex.Not, ex.Filter)
_PLAIN = (Attr, ex.Const, ex.Compare, *_CONNECTIVES)


@dataclass(frozen=True, slots=True)
class Derived:
    """Predicates over columns of the input and derived columns. `columns` are the expressions of the latter, over one
    event without a name, and `types` the types in which kernels hold them."""

    predicates: tuple[Expr, ...]
    summary: tuple[Expr, ...]
    columns: Mapping[str, Expr]
    types: Mapping[str, Type]

    def lacks(self, lacks: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """The event types that lack each attribute, with those that lack what a derived column is computed from."""
        found = dict(lacks)
        for name, value in self.columns.items():
            if lacking := {t for attribute in attributes_in([value]) for t in lacks.get(attribute, ())}:
                found[name] = tuple(sorted(lacking))
        return found


def derived(predicates: Sequence[Expr], types: Mapping[str, Type], summary: Sequence[Expr] = ()) -> Derived:
    """The predicates, and the columns of a summary, with derived columns where kernels need them: for what they cannot
    compute, for what they look up, and for the operands of aggregates. `types` are those of the input's columns."""
    derivation = _Derivation(types)
    plain = list(map(derivation.is_plain, list(map(ex.walk, predicates))))
    pairs = list(zip(plain, predicates, strict=True))
    folded = [p if is_plain else derivation.looked_up(derivation.of_columns(_folded(p))) for is_plain, p in pairs]
    changed = tuple(p if is_plain else derivation.condition(p) for is_plain, p in zip(plain, folded, strict=True))
    columns = tuple(map(derivation.of_columns, summary))
    return Derived(changed, columns, derivation.columns, derivation.column_types)


@dataclass(slots=True)
class _Derivation:
    types: Mapping[str, Type]
    columns: dict[str, Expr] = field(default_factory=dict)
    column_types: dict[str, Type] = field(default_factory=dict)

    def is_plain(self, nodes: Sequence[Expr]) -> bool:
        """Whether an expression of these nodes only compares columns and constants that kernels hold, which stays."""
        held = [
            self.types.get(n.name) if isinstance(n, Attr) else n.type for n in nodes if isinstance(n, Attr | ex.Const)
        ]
        is_held = all(kind is not None and kind.family not in (Family.LIST, Family.DECIMAL) for kind in held)
        return is_held and all(isinstance(node, _PLAIN) for node in nodes)

    def is_beyond_kernels(self, expr: Expr) -> bool:
        """Whether kernels cannot compute a part of the expression."""
        return any(self._is_beyond(node) for node in ex.walk(expr))

    def _is_beyond(self, node: Expr) -> bool:
        match node:
            case ex.Call():
                return not kernels_compute(node) or any(map(self._is_long, (node, *node.args)))
            case ex.Arithmetic():
                return self._is_long(node.left) or self._is_long(node.right) or node.type.scale > SHORT_DIGITS
            case ex.Negative():
                return self._is_long(node.item)
            case ex.Compare():
                return len({self._is_long(node.left), self._is_long(node.right)}) > 1
            case ex.In():
                return len(set(map(self._is_long, (node.item, *node.values)))) > 1
            case Attr():
                return self._type(node).family is Family.LIST or self._is_json(node)
            case _:
                return isinstance(node, ex.Like | ex.Contains | ex.Vector)

    def of_columns(self, expr: Expr) -> Expr:
        """The expression with the operands of its aggregates as columns: `sum(b.v * b.w)` is the sum of the column
        `v * w`."""

        def change(node: ex.Aggregate) -> Expr:
            if node.of is None:
                return node
            return replace(node, name=self._column(node.of.value, node.operand).name, of=None)

        return ex.replaced(expr, ex.Aggregate, change)

    def looked_up(self, expr: Expr) -> Expr:
        """An equality of values computed from one event each as one of columns: `a.k + 1 = b.k` is a.`k + 1` = b.k."""
        if isinstance(expr, ex.Filter | ex.And):
            return ex.with_parts(expr, self.looked_up)
        if not isinstance(expr, ex.Compare) or expr.op != "=" or self.is_beyond_kernels(expr):
            return expr
        events = {_event_of(expr.left), _event_of(expr.right)}
        if None in events or len(events) == 1 or not all(map(self._is_held, (expr.left, expr.right))):
            return expr
        return ex.with_parts(expr, lambda side: side if isinstance(side, Attr) else self._column(side, side.type))

    def _is_held(self, value: Expr) -> bool:
        """Whether kernels hold the value of an expression over columns as one number."""
        return self._type(value).is_number and attributes_in([value]).keys() <= self.types.keys()

    def _type(self, expr: Expr) -> Type:
        is_column = isinstance(expr, Attr) and not self._is_json(expr)
        return self.types.get(expr.name, UNKNOWN) if isinstance(expr, Attr) and is_column else expr.type

    def _is_json(self, attr: Attr) -> bool:
        """Whether the input holds the attribute as JSON text, because its type depends on the type of the event."""
        is_known = attr.name in self.types or attr.name in self.columns
        return not is_known and attr.type.family is not Family.UNKNOWN

    def _is_long(self, expr: Expr) -> bool:
        """Whether values are decimals of more than 18 digits, which kernels compare by their ranks but do not add."""
        kind = self._type(expr)
        return kind.family is Family.DECIMAL and not kind.is_short

    # --- what is replaced ---------------------------------------------------------------------------------------------

    def condition(self, expr: Expr) -> Expr:
        if not self.is_beyond_kernels(expr):
            return expr
        if isinstance(expr, ex.Compare) and (spelt_out := self._by_coordinates(expr)) is not None:
            return spelt_out
        if isinstance(expr, _CONDITIONS) and _event_of(expr) is not None:
            return ex.Compare("=", self._column(expr, BOOLEAN), ex.Const(True, type=BOOLEAN), type=BOOLEAN)
        if isinstance(expr, ex.Compare) and Family.MIXED in (expr.left.type.family, expr.right.type.family):
            return replace(expr, left=self._keyed(expr.left), right=self._keyed(expr.right)) if expr.op == "=" else expr
        if isinstance(expr, ex.Compare):
            left, right = self._alike(expr.left, expr.right)
            return replace(expr, left=left, right=right)
        if isinstance(expr, ex.In) and all(isinstance(value, ex.Const) for value in expr.values):
            tests = [ex.Compare("=", expr.item, value, type=BOOLEAN, span=expr.span) for value in expr.values]
            return self.condition(ex.Or(tuple(tests), type=BOOLEAN, span=expr.span))
        return ex.with_parts(expr, self.condition if isinstance(expr, _CONNECTIVES) else self._value)

    # --- points -------------------------------------------------------------------------------------------------------

    def _by_coordinates(self, test: ex.Compare) -> Expr | None:
        """A comparison with distances between points of several events, as numbers: `distance(a.p, b.p) > 2` is
        `sqrt((a.p1 - b.p1) * (a.p1 - b.p1) + ...) > 2`, where both points have as many coordinates. None if it has no
        such distance."""
        conditions: list[Expr] = []

        def spelt_out(node: ex.Call) -> Expr:
            if node.fn != "distance" or _event_of(node) is not None:
                return node
            points = self._points(node.args)
            if points is None:
                return node
            sizes = {len(point) for point in points if not isinstance(point, Attr)}
            read = [self._coordinates(point, min(sizes, default=DIMENSIONS)) for point in points]
            if len(sizes) > 1 or read[0] is None or read[1] is None:
                return node
            lengths = [ex.Call("dimensions", (point,), type=INTEGER) for point in points if isinstance(point, Attr)]
            # As floats, which have a null.
            columns: list[Expr] = [self._column(length, FLOAT) for length in lengths]
            columns += [ex.Const(float(size), type=FLOAT) for size in sizes]
            conditions.extend(ex.Compare("=", one, columns[-1], type=BOOLEAN) for one in columns[:-1])
            most = ex.Const(float(DIMENSIONS), type=FLOAT)
            conditions.extend([] if sizes else [ex.Compare("<=", columns[-1], most, type=BOOLEAN)])
            return _euclidean(read[0], read[1], node.span)

        changed = ex.replaced(test, ex.Call, spelt_out)
        if changed == test:
            return None
        return ex.And((self.condition(changed), *conditions), type=BOOLEAN) if conditions else self.condition(changed)

    def _points(self, args: Sequence[Expr]) -> tuple[Point, Point] | None:
        """The two points of a distance: two lists, or the halves of the arguments."""
        lists = [self._type(arg).family is Family.LIST for arg in args]
        if not any(lists) and len(args) % 2 == 0:
            return args[: len(args) // 2], args[len(args) // 2 :]
        one, other = (arg.items if isinstance(arg, ex.Vector) else arg for arg in args[:2])
        is_known = all(isinstance(point, Attr | tuple) for point in (one, other))
        return (one, other) if all(lists) and is_known else None  # type: ignore[return-value]

    def _coordinates(self, point: Point, size: int) -> list[Expr] | None:
        """The coordinates of a point as floats; None if they are not numbers of one event."""
        items: Sequence[Expr] = point if not isinstance(point, Attr) else ()
        if isinstance(point, Attr):
            numbers = [ex.Const(number, type=INTEGER) for number in range(1, size + 1)]
            items = [ex.Call("coordinate", (point, number), type=FLOAT) for number in numbers]
        found: list[Expr] = []
        for item in items[:size]:
            if isinstance(item, ex.Const) and is_number(item.value):
                found.append(ex.Const(to_float(item.value), type=FLOAT))
            elif _event_of(item) is not None and self._type(item).is_number:
                found.append(self._column(item, FLOAT))
            else:
                return None
        return found

    def _value(self, expr: Expr) -> Expr:
        if isinstance(expr, (*_CONDITIONS, *_CONNECTIVES)):
            return self.condition(expr)
        if not self.is_beyond_kernels(expr):
            return expr
        if _event_of(expr) is not None:
            kind = self._type(expr)
            return self._column(expr, BINARY if kind.family is Family.LIST else kind)
        return ex.with_parts(expr, self._value)

    def _keyed(self, expr: Expr) -> Expr:
        """A value of any type as a code: equal values have the same."""
        return expr if _event_of(expr) is None else self._column(expr, BINARY)

    def _alike(self, left: Expr, right: Expr) -> tuple[Expr, Expr]:
        """Two sides of a comparison in types that kernels compare: a long decimal with a float as floats, with another
        number as long decimals."""
        if {_item_family(self._type(left)), _item_family(self._type(right))} == {Family.DECIMAL, Family.FLOAT}:
            return left, right  # lists that are equal by the nearest floats have no common code
        if self._is_long(left) == self._is_long(right):
            return self._value(left), self._value(right)
        if isinstance(right, ex.Const) and isinstance(right.value, int | Decimal) and not isinstance(right.value, bool):
            exact = Decimal(right.value)
            return self._value(left), replace(right, value=exact, type=decimal(LONG_DIGITS, right.type.scale))
        if self._is_long(right):
            right, left = self._alike(right, left)
            return left, right
        if self._type(right).family is Family.FLOAT:
            return self._as(left, FLOAT), self._value(right)
        return self._value(left), self._as(right, decimal(LONG_DIGITS, self._type(right).scale))

    def _as(self, expr: Expr, kind: Type) -> Expr:
        """The expression, if it is one of a single event, in another type."""
        return self._value(expr) if _event_of(expr) is None else self._column(expr, kind)

    def _column(self, expr: Expr, kind: Type) -> Attr:
        event = _event_of(expr)
        assert event is not None
        var, at = event
        definition = ex.replaced(expr, Attr, lambda n: replace(n, var="", at=ex.At.EVENT))
        name = ex.to_text(ex.replaced(definition, Attr, lambda n: ex.Param(n.name)))
        while (
            name in self.types
            or name == getattr(definition, "name", None)  # the input has the name, as JSON text
            or _with_types(self.columns.get(name, definition)) != _with_types(definition)
            or self.column_types.get(name, kind) != kind
        ):
            name += "'"
        self.columns[name], self.column_types[name] = definition, kind
        return Attr(var, name, at, type=kind, span=expr.span)


def _with_types(definition: Expr) -> tuple[Expr, list[Type]]:
    """An expression and the types of what it reads, which equality of expressions ignores. An attribute of another type
    in another event type is another column: `CAST(a.k AS string)` reads strings, `CAST(b.k AS string)` integers."""
    return definition, [node.type for node in ex.walk(definition) if isinstance(node, Attr)]


def _euclidean(one: Sequence[Expr], other: Sequence[Expr], span: Span | None) -> Expr:
    total: Expr = ex.Const(0.0, type=FLOAT)
    for a, b in zip(one, other, strict=True):
        difference = ex.Arithmetic("-", a, b, type=FLOAT)
        square = ex.Arithmetic("*", difference, difference, type=FLOAT)
        total = ex.Arithmetic("+", total, square, type=FLOAT)
    return ex.Call("sqrt", (total,), type=FLOAT, span=span)


def _folded(predicate: Expr) -> Expr:
    """The predicate with the values of functions and tests of constants: `length('ab') < a.v` is `2 < a.v`."""

    def change(node: Expr) -> Expr:
        if not all(isinstance(part, ex.Const) for part in ex.children(node)):
            return node
        return ex.Const(evaluation.value(node, evaluation.Env({})), type=node.type, span=node.span)

    return ex.replaced(predicate, (ex.Call, ex.Like, ex.Contains), change)


def _item_family(kind: Type) -> Family | None:
    return kind.item.family if kind.item is not None else None


def _event_of(expr: Expr) -> tuple[str, ex.At] | None:
    """The variable and the index of the only event that an expression reads; None if it reads none, or several."""
    events: set[tuple[str, ex.At]] = set()
    for node in ex.walk(expr):
        match node:
            case Attr() if node.at is not ex.At.ALL:
                events.add((node.var, node.at))
            case Attr() | ex.Aggregate() | ex.Whole() | ex.OccursWithin() | ex.Param() | ex.Same():
                return None
    return events.pop() if len(events) == 1 else None
