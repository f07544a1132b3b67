"""The tables of the successor evaluator: records whose fields are those that generated source reads.

The source is generated until no further field is read, so a record holds what a later operator needs, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from cepheid.codegen.builder import Register, Writer
from cepheid.kernels.successor.composites import ENDS, Chain, Composite, Field, Row, Values, field_name
from cepheid.kernels.successor.links import Indexes
from cepheid.kernels.successor.operators import Operator
from cepheid.runtime.kernel import StateArray


class Table:
    """An array of records. `own` are its first fields, by the names of their constants. Those of a table with indexes
    end with the links and keys of the indexes."""

    def __init__(
        self,
        name: str,
        own: tuple[str, ...],
        values: Values,
        register: Callable[[str], Register],
        indexes: Indexes | None = None,
    ) -> None:
        self.name = name
        self.indexes = indexes
        for number, index in enumerate(indexes.indexes if indexes else ()):
            own += (f"next{number or ''}",) if number else ()
            own += (f"key{number or ''}",) if index.is_keyed else ()
        self.own = own
        self.values = values
        self.fields: dict[Field, None] = {}
        self.register = register

    @property
    def size(self) -> int:
        return max(len(self.own) + len(self.fields), 1)

    @property
    def top(self) -> str:
        """The register with the offset after the last record: `w1_top`."""
        return self.register(f"{self.name}_top")

    def offset(self, field: Field) -> str:
        """`W1_CHAIN2`"""
        self.fields.setdefault(field)
        return f"{self.name.upper()}_{field_name(field, self.values)}"

    def at(self, field: Field, start: str) -> str:
        """`w1[i1 + W1_CHAIN2]`"""
        return f"{self.name}[{start} + {self.offset(field)}]"

    def field_of_all(self, field: Field, start: str) -> str:
        """The arguments of helpers that visit one field of all records from `start` on:
        `w1, 7, 0, w1_top, W1_CHAIN1, True`."""
        return f"{self.name}, {self.size}, {start}, {self.top}, {self.offset(field)}, {self.frees}"

    def constants(self) -> list[str]:
        """`W1_CHAIN2 = 5`"""
        return [f"{self.offset(field)} = {len(self.own) + n}" for n, field in enumerate(list(self.fields))]

    def array(self) -> StateArray:
        return StateArray(self.name, "int64", 16 * self.size, width=self.size)

    def field(self, name: str, index: int) -> str:
        """The offset of the link (`next`) or the key (`key`) of an index: `NEXT`, or `5`."""
        return name.upper() if index == 0 else str(self.own.index(f"{name}{index}"))

    def index_name(self, index: int) -> str:
        """`w1_index`"""
        return f"{self.name}_index{index or ''}"

    def used(self, index: int) -> str:
        """The register with the number of keys in an index: `w1_used`."""
        return self.register(f"{self.name}_used{index or ''}")

    def head(self, index: int) -> str:
        """The register with the head of the only list of an index, from 1 on: `w1_head`."""
        return self.register(f"{self.name}_head{index or ''}")

    @property
    def keyed(self) -> list[int]:
        """The indexes that have keys."""
        return [number for number, index in enumerate(self.indexes.indexes) if index.is_keyed] if self.indexes else []

    @property
    def is_shared(self) -> bool:
        """Whether its records are in the lists of several indexes."""
        return self.indexes is not None and len(self.indexes.indexes) > 1

    def composite(self, operator: Operator, start: str, ends: str | None = None) -> Composite:
        """The composite event of an operator in the record at `start`; `ends` reads its end, if that is no field."""

        def read(field: Field) -> str:
            if field == ENDS and ends is not None:
                return ends
            return self.values.as_read(field, self.at(field, start))

        return Composite(operator, read, frozenset(operator.variables) - operator.optional)

    def fill(self, w: Writer, start: str, composite: Composite) -> None:
        """Write the fields of a composite: `w1[i1 + W1_ROW0] = first + e`."""
        for field in list(self.fields):
            w(f"{self.at(field, start)} = {self.values.as_held(field, composite.read(field))}")

    @property
    def frees(self) -> bool:
        """Whether some of its records may be free."""
        return self.own[:1] == ("next",)

    @property
    def binds(self) -> bool:
        """Whether its records are parts of matches."""
        return any(isinstance(field, Row | Chain) for field in self.fields)

    def grow(self, w: Writer, records: str) -> None:
        """`w1 = grown(w1, w1_top + 2 * 7)`"""
        w(f"{self.name} = grown({self.name}, {self.top} + ({records}) * {self.size})")

    def ensure(self, w: Writer) -> None:
        """Room for one more record."""
        with w.block(f"if {self.top} + {self.size} > {self.name}.shape[0]:"):
            self.grow(w, "1")
