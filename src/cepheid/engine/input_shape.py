"""The schema of the source that a query was prepared for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from cepheid.io.inputs import Columns
from cepheid.io.source import Attributes


@dataclass(frozen=True, slots=True)
class ShownAttribute:
    """An attribute of a derived event in the output: its name, its column in the batches, and its type."""

    name: str
    column: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class InputShape:
    """The columns and event types of a source (see `Source`)."""

    schema: pa.Schema
    columns: Columns
    attributes: Attributes | None = None
    omits_nulls: bool = False
    derived: Mapping[str, tuple[ShownAttribute, ...]] = field(default_factory=dict)
    """The event types that other queries derive, with the attributes that their events show."""


NO_INPUT = InputShape(pa.schema([]), Columns())
