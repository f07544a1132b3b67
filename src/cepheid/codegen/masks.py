"""The mask of every event of a batch: which components it can be, by its type and by what it says of itself.

Single-event predicates are evaluated here, column by column; the kernel never sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid import expr as ex
from cepheid.codegen.columns import attribute, kind_of, number_array, types_of
from cepheid.events import Type
from cepheid.expr import Expr
from cepheid.functions import FUNCTIONS
from cepheid.physical import Kind, Plan
from cepheid.runtime.kernel import Array

_ARROW = {"=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
_NUMPY: Mapping[str, Any] = {"=": np.equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


def is_vectorisable(predicate: Expr) -> bool:
    """Whether a single-event predicate can be evaluated column by column."""
    for node in ex.walk(predicate):
        if isinstance(node, ex.Call) and not (FUNCTIONS[node.fn].numpy or FUNCTIONS[node.fn].arrow):
            return False
        if isinstance(node, ex.Vector | ex.Aggregate | ex.Whole | ex.OccursWithin | ex.Param):
            return False
    return True


def masks(plan: Plan, table: pa.RecordBatch, type_column: str) -> Array:
    names, codes = types_of(table, type_column)
    rows = _Rows(table, names, codes, plan.lacks)
    by_type = [sum(1 << i for i, bit in enumerate(plan.bits) if not bit.types or name in bit.types) for name in names]
    result: Array = np.array(by_type, np.uint64)[codes]
    done: dict[tuple[Expr, ...], Array] = {}
    for number, bit in enumerate(plan.bits):
        if not bit.tests:
            continue
        tests = tuple(_of_one_event(test) for test in bit.tests)
        if tests not in done:
            done[tests] = np.logical_and.reduce([rows.truth(test)[1] for test in tests])
        result &= ~(np.uint64(1 << number) * ~done[tests])
    return result


def _of_one_event(test: Expr) -> Expr:
    """The test without its variable's name, so that equal tests of several components are made once."""
    return ex.transform(test, lambda node: ex.Attr("", node.name) if isinstance(node, ex.Attr) else node)


@dataclass(slots=True)
class _Rows:
    table: pa.RecordBatch
    type_names: list[str]
    type_codes: Array
    lacks: Mapping[str, tuple[str, ...]]
    encoded: dict[str, pa.DictionaryArray] = field(default_factory=dict)

    def truth(self, expr: Expr) -> tuple[Array, Array]:
        """Where the predicate is certainly true, and where it is not false (see `codegen.scalar`)."""
        match expr:
            case ex.And() | ex.Or():
                parts = [self.truth(item) for item in expr.items]
                certain = np.logical_or.reduce([p[0] for p in parts])
                if isinstance(expr, ex.Or):
                    return certain, np.logical_or.reduce([p[1] for p in parts])
                allowed = np.logical_and.reduce([p[1] for p in parts])
                return certain & allowed, allowed
            case ex.Not():
                certain, allowed = self.truth(expr.item)
                return ~allowed, ~certain
            case ex.Filter():
                return self.truth(expr.item)
            case _:
                missing = self._missing(expr)
                test = self._atom(expr)
                return (test, test) if missing is None else (test & ~missing, test | missing)

    def _missing(self, expr: Expr) -> Array | None:
        """The rows whose type lacks an attribute that the predicate names."""
        absent = None
        for node in ex.walk(expr):
            if isinstance(node, ex.Attr) and self.lacks.get(node.name):
                lacking = np.array([name in self.lacks[node.name] for name in self.type_names])[self.type_codes]
                absent = lacking if absent is None else absent | lacking
        return absent

    def _atom(self, expr: Expr) -> Array:
        match expr:
            case ex.Compare():
                return self._compare(expr.op, expr.left, expr.right)
            case ex.In():
                return np.asarray(np.logical_or.reduce([self._compare("=", expr.item, v) for v in expr.values]))
            case ex.Like():
                return self._text_test(expr.item, lambda texts: pc.match_like(texts, expr.pattern))
            case ex.Contains(text=ex.Const(value=str() as text)):
                return self._text_test(expr.item, lambda texts: pc.match_substring(texts, text))
            case ex.Contains():
                pairs = zip(self._texts(expr.item).to_pylist(), self._texts(expr.text).to_pylist(), strict=True)
                return np.array([a is not None and b is not None and b in a for a, b in pairs], bool)
            case ex.IsNull():
                return self._is_null(expr.item)
            case ex.Const():
                return np.full(self.table.num_rows, expr.value is True)
            case _:
                return self._compare("=", expr, ex.TRUE)

    def _compare(self, op: str, left: Expr, right: Expr) -> Array:
        nothing = np.zeros(self.table.num_rows, bool)
        if any(isinstance(side, ex.Const) and side.value is None for side in (left, right)):
            return nothing
        kinds = [self._kind(side) for side in (left, right)]
        if "text" in kinds:
            if kinds != ["text", "text"]:
                return nothing
            for side, other, flipped in ((left, right, op), (right, left, ex.FLIPPED[op])):
                if isinstance(other, ex.Const):
                    return self._text_test(side, lambda texts: _ARROW[flipped](texts, other.value))  # noqa: B023
            return _plain(_ARROW[op](self._texts(left), self._texts(right)))
        if kinds[0] != kinds[1]:
            return nothing
        (a, lacks_a), (b, lacks_b) = self._side(left), self._side(right)
        with np.errstate(invalid="ignore"):
            found: Array = (a < b) | (a > b) if op == "!=" else _NUMPY[op](a, b)
        for lacking in (lacks_a, lacks_b):
            found = found if lacking is None else found & ~lacking
        return np.broadcast_to(found, (self.table.num_rows,))

    def _side(self, expr: Expr) -> tuple[Any, Array | None]:
        """The numbers of one side of a comparison, and where they mean nothing: as floats, large whole numbers would be
        equal to their neighbours."""
        column = attribute(self.table, expr.name) if isinstance(expr, ex.Attr) else None
        if column is None or not column.null_count or kind_of(column.type) is not Kind.INT:
            return self._numbers(expr), None
        return number_array(column, Kind.INT), column.is_null().to_numpy(zero_copy_only=False)

    def _kind(self, expr: Expr) -> str:
        match expr:
            case ex.Const():
                return {bool: "flag", str: "text"}.get(type(expr.value), "number")
            case ex.Attr():
                column = attribute(self.table, expr.name)
                if column is not None and pa.types.is_boolean(column.type):
                    return "flag"
                return "text" if column is not None and kind_of(column.type) is Kind.CODE else "number"
            case ex.Call(fn=fn) if FUNCTIONS[fn].result is Type.STRING:
                return "text"
            case _:
                return "number"

    def _numbers(self, expr: Expr) -> Any:
        """Numbers (or flags as 0 and 1): integers where nothing is null, otherwise floats with NaN."""
        match expr:
            case ex.Const():
                return expr.value if isinstance(expr.value, int | float) else np.nan
            case ex.Negative():
                return -self._numbers(expr.item)
            case ex.Arithmetic():
                return _arithmetic(expr.op, self._numbers(expr.left), self._numbers(expr.right))
            case ex.Call(fn=fn) if (name := FUNCTIONS[fn].numpy) is not None:
                with np.errstate(invalid="ignore"):
                    return getattr(np, name)(*map(self._numbers, expr.args))
            case ex.Call(fn=fn) if FUNCTIONS[fn].result is Type.NUMBER:
                return number_array(self._of_texts(expr), Kind.FLOAT)
            case ex.Attr():
                column = attribute(self.table, expr.name)
                if column is None or kind_of(column.type) is None or pa.types.is_string(column.type):
                    return np.full(self.table.num_rows, np.nan)
                whole = kind_of(column.type) is not Kind.FLOAT and column.null_count == 0
                return number_array(column, Kind.INT if whole else Kind.FLOAT)
            case _:
                return np.full(self.table.num_rows, np.nan)

    def _of_texts(self, call: ex.Call) -> pa.Array:
        """The results of a function of strings."""
        return getattr(pc, FUNCTIONS[call.fn].arrow or "")(*map(self._texts, call.args))

    def _texts(self, expr: Expr) -> pa.Array:
        match expr:
            case ex.Const():
                return pa.array([expr.value] * self.table.num_rows, pa.string())
            case ex.Call(fn=fn) if FUNCTIONS[fn].result is Type.STRING:
                return self._of_texts(expr)
            case ex.Attr():
                column = attribute(self.table, expr.name)
                if column is not None and pa.types.is_dictionary(column.type):
                    column = column.dictionary_decode()
                if column is not None and kind_of(column.type) is Kind.CODE and not pa.types.is_boolean(column.type):
                    return column
        return pa.nulls(self.table.num_rows, pa.string())

    def _text_test(self, expr: Expr, test: Any) -> Array:
        """A test of one string: made once for each distinct string, not once for each row."""
        if not isinstance(expr, ex.Attr):
            return _plain(test(self._texts(expr)))
        if expr.name not in self.encoded:
            self.encoded[expr.name] = self._texts(expr).dictionary_encode()
        column = self.encoded[expr.name]
        answers = np.append(_plain(test(column.dictionary)), False)
        indices = column.indices
        if indices.null_count:
            indices = indices.fill_null(len(answers) - 1)
        return np.asarray(answers[indices.to_numpy(zero_copy_only=False)])

    def _is_null(self, expr: Expr) -> Array:
        if isinstance(expr, ex.Attr):
            column = attribute(self.table, expr.name)
            if column is None:
                return np.ones(self.table.num_rows, bool)
            return np.asarray(column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False))
        values = self._numbers(expr)
        return np.broadcast_to(values != values, (self.table.num_rows,))


def _plain(flags: Any) -> Array:
    return np.asarray(flags.fill_null(False).to_numpy(zero_copy_only=False), bool)


def _arithmetic(op: str, a: Any, b: Any) -> Any:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        match op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "/":
                return np.where(b == 0, np.nan, a / b)
            case _:
                return np.where(b == 0, np.nan, a - np.floor(a / b) * b)
