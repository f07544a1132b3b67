"""Random tables of events with values of every type, for `random_cases`.

Names of attributes are fixed and their types are drawn: `k` is a key, `v` and `w` are numbers, `s` is a string, `b` a
boolean, `t` a date, timestamp or duration, `o` binary, a list or another kind of string. `n` numbers the rows.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

TYPES = ("A", "B", "C")

# --- values -----------------------------------------------------------------------------------------------------------

_UTC = datetime.UTC
_SMALL = (0, 1, 2, 3, -1)
_INTEGERS: Sequence[Sequence[int]] = (
    _SMALL,
    (2**53, 2**53 + 1, 2**53 - 1, -(2**53) - 1, 1),
    (2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1, 0, -1),
    (3037000500, -3037000500, 2**32, 2**62, 2),
)
_UNSIGNED: Sequence[Sequence[int]] = (
    (0, 1, 2, 3),
    (2**63, 2**63 - 1, 2**63 + 1, 1),
    (2**64 - 1, 2**64 - 2, 0, 2**63),
    (2**53, 2**53 + 1, 2**53 + 2),
)
_FLOATS: Sequence[Sequence[float]] = (
    (0.0, 1.0, 2.0, 1.5, -1.0),
    (float("inf"), float("-inf"), 1.0, 0.0),
    (float("nan"), 1.0, 2.0, 0.5),
    (1e308, -1e308, 1.7976931348623157e308, 2.0),
    (0.1, 0.2, 0.3, 0.30000000000000004, -0.0),
    (5e-324, 2.2250738585072014e-308, -5e-324, 0.0),
    (9007199254740992.0, 9007199254740994.0, 9.223372036854775807e18, -9.223372036854775808e18),
)
_STRINGS: Sequence[Sequence[str]] = (
    ("p", "q", "pq", "P"),
    ("", " ", "p", "p "),
    ("ß", "SS", "ss", "ẞ"),
    ("İ", "i", "I", "ı"),
    ("σ", "ς", "Σ", "ΑΣ", "ας"),
    ("a%b", "a_b", "a\\b", "a\\%b", "axb"),
    ("\\", "%", "_", "\\\\", "p\\"),
    ("é", "e\u0301", "e", "É"),
    ("😀", "\ud7ff", "\uffff", "\U00010000", "z"),
    ("ŉ", "ǅ", "ﬁ", "FI", "ǆ"),
    ("a\nb", "a\tb", "a'b", 'a"b', "a\x00b"),
)
_BYTES = (b"", b"\x00", b"a", b"ab", b"\xff\xfe", b"\x80")
_DATES = tuple(
    datetime.date.fromisoformat(text) for text in ("1970-01-01", "1969-12-31", "2024-02-29", "2024-03-01", "9999-12-31")
)
_MOMENTS = tuple(
    datetime.datetime.fromisoformat(text)
    for text in (
        "1970-01-01T00:00:00",
        "1969-12-31T23:59:59.999999",
        "2024-02-29T00:00:00",
        "2024-03-31T01:30:00",
        "2024-10-27T01:30:00",
        "9999-12-31T00:00:00",
    )
)
_DURATIONS = tuple(datetime.timedelta(microseconds=n) for n in (0, 1, -1, 86_400_000_000, 3_600_000_000, 2**53 + 1))

_INT, _FLOAT, _STRING, _BOOL, _DATE = pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32()
_MOMENT, _ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")
_SPANS = (pa.duration("us"), pa.duration("ms"))
_DECIMALS = (
    pa.decimal128(9, 2),
    pa.decimal128(18, 4),
    pa.decimal128(18, 0),
    pa.decimal128(38, 4),
    pa.decimal128(20, 0),
)
_NARROW = (pa.int32(), pa.int8(), pa.uint8(), pa.uint32(), pa.float32())
_LISTS = tuple(map(pa.list_, (_INT, _STRING, _FLOAT)))
_TEXTS = (pa.large_string(), pa.dictionary(pa.int32(), _STRING))
_TIMES = (
    _DATE,
    _MOMENT,
    *(pa.timestamp("us", zone) for zone in ("UTC", "Europe/Berlin", "+05:30")),
    pa.timestamp("ms", "UTC"),
    pa.timestamp("s"),
)


BEGAN = "began"
"""The start column of tables of events with duration."""


@dataclass(frozen=True)
class Profile:
    """The values that cases are drawn with. The defaults are what most data looks like."""

    numbers: Sequence[pa.DataType] = (_INT, _INT, _FLOAT)
    keys: Sequence[pa.DataType] = (_INT, _STRING)
    times: Sequence[pa.DataType] = (_ZONED,)
    others: Sequence[pa.DataType] = (_STRING,)
    clocks: Sequence[pa.DataType] = (_INT, _INT, _ZONED)
    integers: Sequence[Sequence[int]] = _INTEGERS[:1]
    floats: Sequence[Sequence[float]] = _FLOATS[:1]
    strings: Sequence[Sequence[str]] = _STRINGS[:2]
    focus: str = "number"
    """The conditions drawn most: on numbers, strings, booleans, times, others, or nested ones: `(x.v > 0) = TRUE`."""
    far: bool = False
    """Whether windows are zero or huge and times lie at the ends of what is allowed."""
    odd_names: bool = False
    long_literals: bool = False
    durations: int = 0
    """Of four tables, how many have events with duration."""


PROFILES = {
    "plain": Profile(),
    "booleans": Profile(keys=(_BOOL, _INT), focus="nested"),
    "integers": Profile(numbers=(_INT, _INT, *_NARROW), integers=_INTEGERS),
    "floats": Profile(numbers=(_FLOAT, _FLOAT, _INT, pa.float32()), keys=(_FLOAT, _INT), floats=_FLOATS),
    "unsigned": Profile(
        long_literals=True, numbers=(pa.uint64(), pa.uint64(), _INT, _FLOAT), keys=(pa.uint64(),), integers=_INTEGERS
    ),
    "decimals": Profile(long_literals=True, numbers=(*_DECIMALS, _INT, _FLOAT), keys=_DECIMALS),
    "times": Profile(
        times=(*_TIMES, *_SPANS), keys=(_DATE, _ZONED, _MOMENT), clocks=(_INT, _ZONED, _MOMENT), focus="time"
    ),
    "strings": Profile(others=_TEXTS, keys=(_STRING,), strings=_STRINGS, focus="string"),
    "lists": Profile(others=(*_LISTS, pa.binary()), keys=(pa.binary(), _INT), focus="other"),
    "windows": Profile(far=True, clocks=(_INT, _INT, _ZONED, pa.int32())),
    "names": Profile(odd_names=True),
    "durations": Profile(clocks=(_INT, _INT, _ZONED, _MOMENT), durations=4),
}
MIXED = Profile(
    numbers=(_INT, _INT, _INT, _FLOAT, _FLOAT, pa.uint64(), *_NARROW, *_DECIMALS),
    keys=(_INT, _INT, _STRING, _STRING, _BOOL, _FLOAT, pa.uint64(), _DATE, _ZONED, *_DECIMALS, pa.binary()),
    times=(*_TIMES, *_SPANS),
    others=(*_LISTS, *_TEXTS, pa.binary()),
    clocks=(_INT, _INT, _INT, _ZONED, _MOMENT, pa.int32()),
    integers=(_SMALL, *_INTEGERS),
    floats=_FLOATS,
    strings=_STRINGS,
    focus="nested",
    far=True,
    odd_names=True,
    long_literals=True,
    durations=1,
)
PROFILES["mixed"] = MIXED


def pool(rng: random.Random, kind: pa.DataType, profile: Profile) -> list[Any]:
    """A few values of a type, so that equal ones are common."""
    is_ = pa.types
    if is_.is_dictionary(kind):
        return pool(rng, kind.value_type, profile)
    if is_.is_uint64(kind):
        return list(rng.choice(_UNSIGNED))
    if is_.is_integer(kind):
        bits = kind.bit_width - is_.is_signed_integer(kind)
        least, most = (-(2**bits) if is_.is_signed_integer(kind) else 0), 2**bits - 1
        return [value for value in rng.choice(profile.integers) if least <= value <= most] or [least, most, most - 1]
    if is_.is_float32(kind):
        return [value for value in rng.choice(profile.floats) if not 3e38 < abs(value) < float("inf")] or [1.5, 0.5]
    if is_.is_floating(kind):
        return list(rng.choice(profile.floats))
    if is_.is_decimal(kind):
        most = 10**kind.precision - 1
        units = rng.choice(
            (
                (0, 1, 100, 150, -100),
                (most, -most, most - 1, 1),
                (10**kind.scale, 5 * 10**kind.scale, 7),
                (most // 9, most // 9 + 1),
            )
        )
        return [Decimal(f"{value}E-{kind.scale}") for value in units]
    if is_.is_boolean(kind):
        return [True, False]
    if is_.is_string(kind) or is_.is_large_string(kind):
        return list(rng.choice(profile.strings))
    if is_.is_binary(kind):
        return list(_BYTES)
    if is_.is_date(kind):
        return list(_DATES)
    if is_.is_timestamp(kind):
        moments = [moment.replace(microsecond=0) if kind.unit != "us" else moment for moment in _MOMENTS]
        return [moment.replace(tzinfo=_UTC) if kind.tz else moment for moment in moments]
    if is_.is_duration(kind):
        return [value for value in _DURATIONS if kind.unit == "us" or value.microseconds % 1000 == 0]
    assert is_.is_list(kind), kind
    items = [value for value in pool(rng, kind.value_type, profile) if value == value][:2]
    return [[], items[:1], items, items[::-1], [*items[:1], None]]


# --- tables -----------------------------------------------------------------------------------------------------------

_ODD_NAMES = (
    *("a.b", "`", "*", "a b", "", "Ä", "ts ", "#", "'", '"', "a`b.c", "v.x"),
    *("TS", "V", "Type", "K", "match_start", "match_end", "x0", "x1", "c0", "n.n"),
    *("__cepheid_number", "__cepheid_file", "__cepheid_type", "position", "mask", "bucket", "base", "events", "slice"),
)


@dataclass(frozen=True)
class World:
    """The types of the attributes and of the time column."""

    profile: Profile
    attributes: dict[str, pa.DataType]
    time: pa.DataType

    def kind(self, name: str) -> pa.DataType:
        return self.attributes[name]


def world(rng: random.Random, profile: Profile = MIXED) -> World:
    drawn = {
        "k": rng.choice(profile.keys),
        "v": rng.choice(profile.numbers),
        "w": rng.choice(profile.numbers),
        "s": _STRING,
        "b": _BOOL,
        "t": rng.choice(profile.times),
        "o": rng.choice(profile.others),
    }
    return World(profile, drawn, rng.choice(profile.clocks))


def table(rng: random.Random, drawn: World, most: int = 16) -> pa.Table:
    """Up to `most` events; times close together, with ties, rarely at the ends of what is allowed."""
    count = rng.choice((*range(most, 3, -1), *range(most, 6, -1), 3, 2, 1, 0))
    is_far = drawn.profile.far and pa.types.is_int64(drawn.time)
    at = rng.choice((0, 0, 0, 0, 0, -4, 1000, 2**61 - 40, -(2**61))) if is_far else 0
    times, kinds = [], []
    for _ in range(count):
        at += rng.choice((0, 1, 1, 1, 2))
        times.append(at)
        kinds.append(rng.choice((*TYPES, *TYPES, "X")))
    # A query over events of other types is refused.
    for at, kind in zip(rng.sample(range(count), min(count, len(TYPES))), TYPES, strict=False):
        kinds[at] = kind
    columns: dict[str, pa.Array] = {"type": pa.array(kinds, pa.string()), "ts": pa.array(times, drawn.time)}
    own = random.Random(f"{times} {kinds}")  # of its own, so that the profile changes nothing else of a case
    if own.randrange(4) < drawn.profile.durations:
        starts = [max(at - own.choice((0, 0, 1, 2, 4, 9)), -(2**61)) for at in times]
        columns[BEGAN] = pa.array(starts, drawn.time)
    for name, kind in drawn.attributes.items():
        # Nulls are rare in keys, which then match nothing.
        some = rng.choice((1, 2, 2) if name == "k" else (2, 3, 5))
        values = [*pool(rng, kind, drawn.profile)[:some] * (3 if name == "k" else 1), None]
        columns[name] = pa.array([rng.choice(values) for _ in range(count)], kind)
    columns["n"] = pa.array(range(count), pa.int64())
    for _ in range(rng.randrange(3) if drawn.profile.odd_names else 0):
        columns[rng.choice(_ODD_NAMES)] = pa.array([rng.choice((1, None)) for _ in range(count)], pa.int64())
    return pa.table(columns)
