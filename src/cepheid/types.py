"""The types of values: what an attribute holds and what an expression gives (rulings 13 and 14).

The checker, the oracle, kernels, Arrow and Catalyst all follow this module. Integers are 64-bit and exact. A *short*
decimal has up to 18 digits and arithmetic on short decimals stays short, so that a scaled 64-bit integer holds it; a
*long* one has up to 38. Dates, timestamps and durations count microseconds; next to a number they are that count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from functools import cache, reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Queries are parsed without Arrow, which takes longer to load than all of the parser.
    import pyarrow as pa

SHORT_DIGITS, LONG_DIGITS = 18, 38


class Family(Enum):
    INTEGER = "integer"
    UNSIGNED = "unsigned integer"
    """64 bits without a sign; narrower unsigned columns are integers."""
    FLOAT = "float"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    LIST = "list"
    RECORD = "record"
    UNKNOWN = "unknown"
    """Null, a parameter without a value, or an attribute whose type is known only when events come."""
    MIXED = "mixed"
    """An attribute that has values of types that do not fit each other."""


_NUMBERS = frozenset({Family.INTEGER, Family.UNSIGNED, Family.FLOAT, Family.DECIMAL})
_TIMES = frozenset({Family.DATE, Family.TIMESTAMP, Family.DURATION})
_UNORDERED = frozenset({Family.BOOLEAN, Family.LIST, Family.RECORD})


@dataclass(frozen=True, slots=True, repr=False)
class Type:
    """The type of a value. Decimals have a precision and a scale, lists the type of their items, timestamps a zone."""

    family: Family
    precision: int = 0
    scale: int = 0
    item: Type | None = None
    zone: str | None = None

    def __str__(self) -> str:
        match self.family:
            case Family.DECIMAL:
                return f"decimal({self.precision}, {self.scale})"
            case Family.LIST if self.item is not None and self.item is not UNKNOWN:
                return f"list of {self.item}"
            case _:
                return str(self.family.value)

    def __repr__(self) -> str:
        return f"<{self}>"

    @property
    def noun(self) -> str:
        """The type in messages, where all numbers are called numbers."""
        return "number" if self.is_number else self.family.value

    @property
    def is_unknown(self) -> bool:
        return self.family in (Family.UNKNOWN, Family.MIXED)

    @property
    def is_number(self) -> bool:
        return self.family in _NUMBERS

    @property
    def is_time(self) -> bool:
        """A date, a timestamp or a duration."""
        return self.family in _TIMES

    @property
    def is_exact(self) -> bool:
        """Held as a 64-bit count: of ones, of units of the last decimal digit, or of microseconds."""
        return self.family is Family.INTEGER or self.is_time or self.is_short

    @property
    def is_short(self) -> bool:
        """A decimal that a 64-bit integer holds."""
        return self.family is Family.DECIMAL and self.precision <= SHORT_DIGITS

    def fits(self, other: Type) -> bool:
        """Whether a value of this type can stand where `other` is expected."""
        is_same = self.family is other.family or (self.is_number and other.is_number)
        return is_same or self.is_unknown or other.is_unknown


INTEGER, UNSIGNED, FLOAT = Type(Family.INTEGER), Type(Family.UNSIGNED), Type(Family.FLOAT)
BOOLEAN, STRING, BINARY = Type(Family.BOOLEAN), Type(Family.STRING), Type(Family.BINARY)
DATE, TIMESTAMP, DURATION = Type(Family.DATE), Type(Family.TIMESTAMP), Type(Family.DURATION)
RECORD, UNKNOWN, MIXED = Type(Family.RECORD), Type(Family.UNKNOWN), Type(Family.MIXED)


def decimal(precision: int, scale: int) -> Type:
    return Type(Family.DECIMAL, precision, scale)


def list_of(item: Type = UNKNOWN) -> Type:
    return Type(Family.LIST, item=item)


_BY_CLASS: Mapping[type, Type] = {str: STRING, float: FLOAT, bool: BOOLEAN}
"""The classes that say the type of their values."""


def type_of(value: object) -> Type:
    """The type of a Python value; null has none."""
    match value:
        case None:
            return UNKNOWN
        case float():
            return FLOAT
        case str():
            return STRING
        case bool():
            return BOOLEAN
        case int():
            return INTEGER if -(2**63) <= value < 2**63 else _large_integer_type(value)
        case Decimal():
            return _decimal_type(value)
        case bytes():
            return BINARY
        case list() | tuple():
            return list_of(united_all(map(type_of, value)))
        case _:
            return RECORD


def _large_integer_type(value: int) -> Type:
    if 0 <= value < 2**64:
        return UNSIGNED
    return decimal(LONG_DIGITS, 0) if abs(value) < 10**LONG_DIGITS else FLOAT


def _decimal_type(value: Decimal) -> Type:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return FLOAT
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    return decimal(precision, scale) if precision <= LONG_DIGITS else FLOAT


def arithmetic(op: str, left: Type, right: Type) -> Type | None:
    """The type of `left op right`; None where the operator is not defined for the two."""
    if left.is_unknown or right.is_unknown:
        known = right if left.is_unknown else left
        return UNKNOWN if known.is_unknown or known.is_number or known.is_time else None
    if left.is_number and right.is_number:
        return _of_numbers(op, left, right)
    if left.is_time or right.is_time:
        return _of_times(op, left, right)
    return None


def _of_numbers(op: str, left: Type, right: Type) -> Type | None:
    families = {left.family, right.family}
    if op == "/" or Family.FLOAT in families:
        return FLOAT
    if Family.DECIMAL not in families:
        return INTEGER
    scale = left.scale + right.scale if op == "*" else max(left.scale, right.scale)
    is_long = any(side.family is Family.DECIMAL and not side.is_short for side in (left, right))
    digits = LONG_DIGITS if is_long or scale > SHORT_DIGITS else SHORT_DIGITS
    return decimal(digits, scale) if scale <= LONG_DIGITS else None


def _of_times(op: str, left: Type, right: Type) -> Type | None:
    points = [side for side in (left, right) if side.family in (Family.DATE, Family.TIMESTAMP)]
    counts = Family.DURATION, Family.INTEGER
    if len(points) == 2:
        return DURATION if op == "-" else None
    if points:
        other = right if points[0] is left else left
        moves = other.family in counts and (op == "+" or (op == "-" and points[0] is left))
        return Type(Family.TIMESTAMP, zone=points[0].zone) if moves else None
    both = left.family is right.family
    match op:
        case "+" | "-":
            return DURATION if left.family in counts and right.family in counts else FLOAT if not both else None
        case "%":
            return DURATION if left.family is Family.DURATION and right.family in counts else None
        case "*":
            return None if both else DURATION
        case _:
            return (FLOAT if both else DURATION) if left.family is Family.DURATION else None


def is_rounded(op: str, left: Type, right: Type) -> bool:
    """Whether a duration is computed as a float and rounded: one divided by a number, or times a fraction."""
    return op == "/" or (op == "*" and bool({Family.FLOAT, Family.DECIMAL} & {left.family, right.family}))


def type_of_all(values: Iterable[object]) -> Type:
    """The type that holds all the values."""
    known = [value for value in values if value is not None]
    classes = set(map(type, known))
    if classes == {int} and min(known) >= -(2**63) and max(known) < 2**63:  # type: ignore[type-var,operator]
        return INTEGER
    alike = _BY_CLASS.get(classes.pop()) if len(classes) == 1 else None
    return united_all(map(type_of, known)) if alike is None else alike


def average(of: Type) -> Type:
    """The type of the average of values."""
    return DURATION if of.family is Family.DURATION else FLOAT


def are_comparable(left: Type, right: Type) -> bool:
    """Whether `=` is defined for the two."""
    if left.fits(right):
        return True
    times = {left.family, right.family} & _TIMES
    if not times:
        return False
    is_counted = all(side.is_time or side.is_number for side in (left, right))
    return is_counted and (left.is_number or right.is_number or Family.DURATION not in times)


def have_order(left: Type, right: Type) -> bool:
    """Whether `<` is defined for the two."""
    return are_comparable(left, right) and not {left.family, right.family} & _UNORDERED


def united(left: Type, right: Type) -> Type:
    """The type that holds values of both, such as of an attribute that two event types have."""
    if left == right or right is UNKNOWN or left is MIXED:
        return left
    if left is UNKNOWN or right is MIXED:
        return right
    if left.is_number and right.is_number:
        return _united_numbers(left, right)
    if left.family is right.family is Family.TIMESTAMP:
        return Type(Family.TIMESTAMP, zone=left.zone or right.zone)
    if left.family is right.family is Family.LIST:
        return list_of(united(left.item or UNKNOWN, right.item or UNKNOWN))
    return MIXED


def _united_numbers(left: Type, right: Type) -> Type:
    families = {left.family, right.family}
    if Family.FLOAT in families:
        return FLOAT
    digits = {Family.INTEGER: 19, Family.UNSIGNED: 20}
    before_point = max(digits.get(side.family, side.precision - side.scale) for side in (left, right))
    scale = max(left.scale, right.scale)
    return decimal(before_point + scale, scale) if before_point + scale <= LONG_DIGITS else FLOAT


def united_all(types: Iterable[Type]) -> Type:
    """The type that holds values of all these types."""
    return reduce(united, dict.fromkeys(types), UNKNOWN)


# --- Arrow ------------------------------------------------------------------------------------------------------------


@cache
def from_arrow(arrow: pa.DataType) -> Type:
    from pyarrow import types as kinds

    if kinds.is_dictionary(arrow) or kinds.is_run_end_encoded(arrow):
        return from_arrow(arrow.value_type)
    if kinds.is_decimal(arrow):
        return decimal(arrow.precision, arrow.scale) if arrow.precision <= LONG_DIGITS else UNKNOWN
    if kinds.is_timestamp(arrow):
        return Type(Family.TIMESTAMP, zone=arrow.tz)
    if kinds.is_list(arrow) or kinds.is_large_list(arrow) or kinds.is_fixed_size_list(arrow):
        return list_of(from_arrow(arrow.value_type))
    of = {
        UNSIGNED: [kinds.is_uint64],
        INTEGER: [kinds.is_integer],
        FLOAT: [kinds.is_floating],
        BOOLEAN: [kinds.is_boolean],
        STRING: [kinds.is_string, kinds.is_large_string, kinds.is_string_view],
        BINARY: [kinds.is_binary, kinds.is_large_binary, kinds.is_fixed_size_binary],
        DATE: [kinds.is_date],
        DURATION: [kinds.is_duration],
        RECORD: [kinds.is_struct],
    }
    return next((type_ for type_, tests in of.items() if any(is_one(arrow) for is_one in tests)), UNKNOWN)


def to_arrow(type_: Type) -> pa.DataType | None:
    """The Arrow type of a computed value; None for records and what is unknown."""
    import pyarrow as pa

    match type_.family:
        case Family.DECIMAL:
            return pa.decimal128(type_.precision, type_.scale)
        case Family.TIMESTAMP:
            return pa.timestamp("us", type_.zone)
        case Family.LIST:
            item = to_arrow(type_.item or UNKNOWN)
            return None if item is None else pa.list_(item)
    plain = {
        Family.INTEGER: pa.int64(),
        Family.UNSIGNED: pa.uint64(),
        Family.FLOAT: pa.float64(),
        Family.BOOLEAN: pa.bool_(),
        Family.STRING: pa.string(),
        Family.BINARY: pa.binary(),
        Family.DATE: pa.date32(),
        Family.DURATION: pa.duration("us"),
    }
    return plain.get(type_.family)
