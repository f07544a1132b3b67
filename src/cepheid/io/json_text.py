"""Arrow columns as text: JSON for JSON Lines, cells for CSV. A few Arrow calls convert a whole column."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.codegen.float_texts import float_texts
from cepheid.io.rows import dumps as dumps
from cepheid.io.rows import in_ticks, is_moment, plain, python_values
from cepheid.values import without_zeros

_YEARS = (-62_135_596_800_000_000, 253_402_300_800_000_000)
"""The microseconds of the years 1 to 9999."""
_SECOND = 1_000_000


def joined(parts: Sequence[Any], separator: str = "") -> pa.Array:
    """The parts of each row, one after the other. A null part is left out."""
    return pc.binary_join_element_wise(*parts, separator, null_handling="skip")


def json_texts(column: pa.Array) -> pa.Array:
    """Each value as JSON; `null` for null and NaN."""
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [column.field(number) for number in range(kind.num_fields)]
        texts = object_texts([field.name for field in kind], fields, len(column))
        return _or_null(texts, column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return list_texts(column, json_texts(column.flatten()))
    text = _text(column)
    if text is None:
        return _each(column, lambda value: dumps(plain(value)), "null")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return _over_distinct(text, _json_strings).fill_null("null")
    if pa.types.is_floating(kind):  # JSON has no number for an infinity
        text = pc.replace_substring_regex(text, r"^(-?)inf$", r'"\1Infinity"')
    return _or_null(joined(['"', text, '"']), column) if is_moment(kind) else text.fill_null("null")


def cell_texts(column: pa.Array) -> pa.Array:
    """Each value as a CSV cell: nested values are JSON, null is empty."""
    text = _text(column)
    is_nested = text is None and not pa.types.is_null(column.type)
    if text is None:
        text = pc.if_else(column.is_valid(), json_texts(column), "") if is_nested else pa.array([""] * len(column))
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            text = _each(column, plain, "")
    return quoted(text.fill_null(""))


def quoted(cells: pa.Array) -> pa.Array:
    """In quotation marks where a cell contains a separator."""
    special = pc.match_substring_regex(cells, '[,"\n\r]')
    if not pc.any(special).as_py():
        return cells
    return pc.if_else(special, joined(['"', pc.replace_substring(cells, '"', '""'), '"']), cells)


def object_texts(names: Sequence[str], columns: Sequence[pa.Array], length: int) -> pa.Array:
    """JSON objects with these members."""
    return members_joined(
        [member(name, json_texts(column)) for name, column in zip(names, columns, strict=True)], length
    )


def member(name: str, texts: pa.Array) -> pa.Array:
    return joined([f"{dumps(name)}: ", texts])


def members_joined(members: Sequence[pa.Array], length: int) -> pa.Array:
    """JSON objects; a null member is left out."""
    if not members:
        return pa.array(["{}"] * length)
    return joined(["{", joined(members, ", "), "}"])


def list_texts(column: pa.Array, items: pa.Array) -> pa.Array:
    """JSON lists of the texts of all items."""
    lengths = column.value_lengths().fill_null(0)
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths))])
    texts = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items), ", ")
    return _or_null(joined(["[", texts, "]"]), column)


def _or_null(texts: pa.Array, column: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), texts, "null") if column.null_count else texts


# --- values -----------------------------------------------------------------------------------------------------------


def _text(column: pa.Array) -> pa.Array | None:
    """Each value as text without quotation marks, null for null; None for types that are written value by value."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _text(column.dictionary_decode()) if pa.types.is_string(kind.value_type) else None
    if pa.types.is_string(kind):
        return column
    if pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        return _float_texts(column)
    if pa.types.is_duration(kind):
        seconds = column.cast(pa.duration("us"), safe=False).cast(pa.int64())
        return _float_texts(pc.divide(seconds.cast(pa.float64(), safe=False), float(_SECOND)))
    if pa.types.is_timestamp(kind):
        return _time_texts(column)
    if is_moment(kind):
        return _per_distinct(column, lambda value: str(plain(value)), None)
    if pa.types.is_decimal(kind):
        return _over_distinct(column, _decimal_texts)
    return None


def _float_texts(column: pa.Array) -> pa.Array:
    values = column.to_numpy(zero_copy_only=False).astype(np.float64)
    nan = np.isnan(values)
    texts = float_texts(values)
    return pc.if_else(pa.array(nan), pa.scalar(None, pa.string()), texts) if nan.any() else texts


def _time_texts(column: pa.Array) -> pa.Array:
    ticks = in_ticks(column)
    valid = np.asarray(ticks.is_valid())
    counts = np.asarray(ticks.fill_null(0))
    if len(counts) and (counts.min() < _YEARS[0] or counts.max() >= _YEARS[1]):
        return _each(column, lambda value: str(plain(value)), None)
    seconds = np.datetime_as_string(counts.view("datetime64[us]"), unit="s")
    fractions = counts % _SECOND != 0
    if fractions.any():
        seconds = np.where(fractions, np.datetime_as_string(counts.view("datetime64[us]"), unit="us"), seconds)
    if column.type.unit == "ns":
        exact = np.asarray(column.cast(pa.int64()).fill_null(0))
        seconds = np.where(exact % 1_000 != 0, np.datetime_as_string(exact.view("datetime64[ns]"), unit="ns"), seconds)
    texts = joined([pa.array(seconds), "Z"])
    return texts if valid.all() else pc.if_else(pa.array(valid), texts, None)


def _json_strings(texts: pa.Array) -> pa.Array:
    """Texts in quotation marks. Few have characters that JSON escapes."""
    shown = joined(['"', texts, '"'])
    escapes = pc.match_substring_regex(texts, r'[\x00-\x1f"\\]')
    if not pc.any(escapes).as_py():
        return shown
    return pc.replace_with_mask(shown, escapes, pa.array(map(dumps, texts.filter(escapes).to_pylist()), pa.string()))


def _decimal_texts(column: pa.Array) -> pa.Array:
    """Decimals without zeros at their end. Arrow writes those near zero, and those of a negative scale, with an
    exponent."""
    texts = column.cast(pa.string())
    if column.type.scale > 0:
        texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, characters="0"), characters=".")
    others = pc.match_substring(column.cast(pa.string()), "E")
    if not pc.any(others).as_py():
        return texts
    return pc.replace_with_mask(texts, others, pa.array(map(_decimal_text, column.filter(others).to_pylist())))


def _decimal_text(value: Decimal) -> str:
    return str(int(value)) if value == value.to_integral_value() else f"{without_zeros(value):f}"


def _over_distinct(column: pa.Array, texts: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """`texts` of the distinct values, for each row; null for null."""
    encoded = column.dictionary_encode()
    return texts(encoded.dictionary).take(encoded.indices)


def _per_distinct(column: pa.Array, text: Callable[[Any], str], null: str | None) -> pa.Array:
    encoded = column.dictionary_encode()
    texts = pa.array([text(value) for value in python_values(encoded.dictionary)], pa.string())
    shown = texts.take(encoded.indices)
    return shown if null is None else shown.fill_null(null)


def _each(column: pa.Array, text: Callable[[Any], str], null: str | None) -> pa.Array:
    values = [None if isinstance(v, float) and math.isnan(v) else v for v in python_values(column)]
    return pa.array([null if value is None else text(value) for value in values], pa.string())
