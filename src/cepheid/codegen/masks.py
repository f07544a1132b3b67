"""The mask of every event of a batch: the components that it can be, by its type and its single-event predicates.

The kernel does not evaluate these predicates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from cepheid import expr as ex
from cepheid.codegen.columns import attribute, types_of
from cepheid.codegen.points import of_points
from cepheid.codegen.typed_columns import NULL, Column, from_arrow, from_json, is_json
from cepheid.codegen.vector import Evaluation, is_vectorisable
from cepheid.expr import Aggregate, Attr, Expr
from cepheid.physical import MaskTest, Plan
from cepheid.runtime.kernel import Array
from cepheid.types import Type


def is_maskable(predicate: Expr) -> bool:
    """Whether a single-event predicate can be part of a mask."""
    return is_vectorisable(predicate) and not any(isinstance(node, Aggregate) for node in ex.walk(predicate))


def masks(plan: Plan, table: pa.RecordBatch, type_column: str) -> Array:
    names, codes = types_of(table, type_column)
    attributes = EventAttributes(plan.lacks, table, names, codes)
    bits = {
        number: bit
        for number, bit in enumerate(plan.bits)
        if not any(attributes.never_holds(test.predicate) for test in bit.mask_tests)
    }
    by_type = [sum(1 << i for i, bit in bits.items() if not bit.types or name in bit.types) for name in names]
    result: Array = np.array(by_type, np.uint64)[codes]
    evaluation = Evaluation(table.num_rows, attributes.read, no_aggregate)
    done: dict[tuple[MaskTest, ...], Array] = {}
    for number, bit in bits.items():
        tests = tuple(test for test in bit.mask_tests if not attributes.always_holds(test.predicate))
        if not tests:
            continue
        if tests not in done:
            done[tests] = np.logical_and.reduce([evaluation.truth(test.predicate)[1] for test in tests])
        value = np.uint64(1 << number)
        passed = np.multiply(done[tests], value, dtype=np.uint64)
        passed |= ~value
        result &= passed
    return result


def derived_column(plan: Plan, table: pa.RecordBatch, name: str) -> Column:
    """A column of the kernel that is computed from attributes of the same event."""
    point = of_points(plan.derived[name], table)
    if point is not None:
        return point
    attributes = EventAttributes(plan.lacks, table, [], np.empty(0, np.int64))
    return Evaluation(table.num_rows, attributes.present, no_aggregate).value(plan.derived[name])


def no_aggregate(node: Aggregate) -> Column:
    raise AssertionError(f"an aggregate in a single-event predicate: {ex.to_text(node)}")


@dataclass(slots=True)
class EventAttributes:
    """The attributes of the events of a batch, each converted once. `lacks` are the types that lack an attribute."""

    lacks: Mapping[str, tuple[str, ...]]
    table: pa.RecordBatch
    type_names: list[str]
    type_codes: Array
    columns: dict[tuple[str, Type], Column] = field(default_factory=dict)

    def read(self, attr: Attr) -> Column:
        key = attr.name, attr.type
        if key not in self.columns:
            self.columns[key] = replace(self.present(attr), absent=self._lacking(attr.name))
        return self.columns[key]

    def present(self, attr: Attr) -> Column:
        """The values of an attribute, null where the type of an event lacks it: the mask says where."""
        array = attribute(self.table, attr.name)
        if array is not None and is_json(array.type, attr.type):
            return from_json(array, attr.type)
        return NULL if array is None else from_arrow(array)

    def always_holds(self, test: Expr) -> bool:
        """Whether a test asks for a value in a column without nulls."""
        match test:
            case ex.Not(item=ex.IsNull(item=Attr() as attr)):
                return not self._has_nulls(attr)
            case _:
                return False

    def never_holds(self, test: Expr) -> bool:
        """Whether a test asks for null in a column without nulls."""
        match test:
            case ex.IsNull(item=Attr() as attr):
                return not self.lacks.get(attr.name) and not self._has_nulls(attr)
            case _:
                return False

    def _has_nulls(self, attr: Attr) -> bool:
        """Whether a value of a type that has the attribute is null. Integers and lists show it without a conversion."""
        array = attribute(self.table, attr.name)
        if array is not None and (pa.types.is_integer(array.type) or pa.types.is_list(array.type)):
            return bool(array.null_count)
        return self.read(attr).valid is not None

    def _lacking(self, name: str) -> Array | None:
        """The events whose type lacks the attribute."""
        types = self.lacks.get(name)
        return np.array([t in types for t in self.type_names])[self.type_codes] if types else None
