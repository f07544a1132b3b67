"""JSON Lines, and JSON files that are one array of objects."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.json import ParseOptions, ReadOptions, read_json

from cepheid.errors import InputProblem, shown
from cepheid.io.formats import BrokenRow, RawRow, suffix_of
from cepheid.io.formats.text import BLOCK, EXACT, TextFormat, TextTable, content_of, timestamps
from cepheid.io.formats.text_stream import read_rows
from cepheid.io.inputs import Columns
from cepheid.io.rejects import Malformed
from cepheid.io.stream_rows import Read, StreamLayout
from cepheid.io.times import LAST_TIME

# --- rows -------------------------------------------------------------------------------------------------------------


def json_rows(file: Path, columns: Columns, type: str | None) -> Iterable[RawRow | BrokenRow]:
    """One object per line. A `.json` file may also hold one array of objects."""
    content = content_of(file)
    if suffix_of(file) == ".json" and content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
        whole = _array(content)
        if whole is not None:
            return [
                RawRow(number, None, item)
                if isinstance(item, dict)
                else BrokenRow(number, "not a JSON object", json.dumps(item, ensure_ascii=False))
                for number, item in enumerate(whole, start=1)
            ]
    return _lines(content)


def _lines(content: bytes) -> list[RawRow | BrokenRow]:
    rows: list[RawRow | BrokenRow] = []
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            text = line.decode().rstrip("\r")
        except UnicodeDecodeError:
            rows.append(BrokenRow(number, "not UTF-8 text", line.decode(errors="backslashreplace")))
            continue
        try:
            value = decode_object(text)
        except Malformed as problem:
            rows.append(BrokenRow(number, str(problem), text))
        else:
            rows.append(RawRow(number, text, value))
    return rows


def _array(content: bytes) -> list[Any] | None:
    """The items of a file with one JSON array. None if the file must be parsed line by line."""
    try:
        whole = json.loads(content, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError, Malformed):
        return None
    return whole if isinstance(whole, list) else None


def decode_object(text: str) -> dict[str, Any]:
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as problem:
        raise Malformed(f"broken JSON: {problem.msg} at column {problem.colno}") from problem
    except ValueError as problem:  # a number of thousands of digits
        raise Malformed("broken JSON: a number too long to read") from problem
    except RecursionError as problem:
        raise Malformed("broken JSON: nested too deep to read") from problem
    if not isinstance(value, dict):
        raise Malformed("not a JSON object")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Rejects a duplicate key, whose meaning JSON leaves open."""
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise Malformed(f"the key `{shown(twice)}` appears twice")
    return value


def _no_constant(name: str) -> Any:
    raise Malformed(f"broken JSON: {name} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)


# --- columns ----------------------------------------------------------------------------------------------------------

_NULL = re.compile(rb":\s*null\b")
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)


def json_columns(file: Path, columns: Columns, type: str | None) -> TextTable | None:
    """The lines of a file as typed columns. None if the row reader must read the file."""
    try:
        content = content_of(file).removeprefix(b"\xef\xbb\xbf")
    except InputProblem:
        return None
    if not _is_utf8(content) or not _has_an_object_in_each_line(content):
        return None
    table = _read(content)
    if table is None or table.num_rows != content.rstrip(b"\r\n").count(b"\n") + 1:
        return None
    type_column = columns.type if type is None else None
    if not set(columns.times) <= set(table.column_names) or type_column in columns.times:
        return None
    times = {name: _times(table.column(name)) for name in columns.times}
    if (
        None in times.values()
        or not _has_types(table, type_column)
        or not all(_is_exact(column) for column in table.columns)
    ):
        return None
    is_sparse, has_nulls = any(column.null_count for column in table.columns), _NULL.search(content) is not None
    if has_nulls and not _all_nulls_are_written(content, table, type_column):
        return None
    for name, read in times.items():
        table = table.set_column(table.column_names.index(name), name, read)
    return TextTable(table, omits_nulls=is_sparse and not has_nulls)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _has_an_object_in_each_line(content: bytes) -> bool:
    """Whether every line begins and ends with a brace, so that no value continues in the next line."""
    characters = np.frombuffer(b"\n" + content.rstrip(b"\r\n") + b"\n", np.uint8)
    ends = np.flatnonzero(characters == ord("\n"))
    before = characters[ends[1:] - 1]
    before = np.where(before == ord("\r"), characters[ends[1:] - 2], before)
    return bool((characters[ends[:-1] + 1] == ord("{")).all() and (before == ord("}")).all())


def _read(content: bytes) -> pa.Table | None:
    """Arrow converts strings in the form of a timestamp. Here they remain strings."""
    try:
        table = _columns(content, pa.schema([]))
        strings = [field.with_type(pa.string()) for field in table.schema if pa.types.is_timestamp(field.type)]
        # Arrow moves the columns of the explicit schema to the front.
        return _columns(content, pa.schema(strings)).select(table.column_names) if strings else table
    except pa.ArrowException:
        return None


def _columns(content: bytes, explicit: pa.Schema) -> pa.Table:
    return read_json(pa.BufferReader(content), ReadOptions(block_size=BLOCK), ParseOptions(explicit_schema=explicit))


def _has_types(table: pa.Table, type_column: str | None) -> bool:
    """Whether either all events or no events have a type."""
    if type_column not in table.column_names:
        return True
    column = table.column(type_column)
    if pa.types.is_null(column.type):
        return True
    return pa.types.is_string(column.type) and not column.null_count and not pc.any(pc.equal(column, "")).as_py()


def _times(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    if column.null_count:
        return None
    if pa.types.is_string(column.type):
        return timestamps(column)
    if not pa.types.is_int64(column.type):
        return None
    return column if pc.min(column).as_py() >= -LAST_TIME and pc.max(column).as_py() <= LAST_TIME else None


def _is_exact(column: pa.ChunkedArray) -> bool:
    """Whether Arrow's values equal those of the row reader, and none is nested."""
    kind = column.type
    if pa.types.is_float64(kind):
        values = column.drop_null().to_numpy()
        return bool(np.all(np.abs(values) < EXACT) and not np.any((values == 0) & np.signbit(values)))
    if pa.types.is_int64(kind):
        return bool(column.null_count == len(column) or pc.min(column).as_py() > -(2**63))
    return bool(pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind))


def _all_nulls_are_written(content: bytes, table: pa.Table, type_column: str | None) -> bool:
    """Whether every line has every attribute, and no attribute is null in all events of a type: a table could not
    distinguish it from an attribute that the type lacks."""
    names = [name for name in table.column_names if table.column(name).null_count]
    if not all(_PLAIN_NAME.fullmatch(name) for name in names):
        return False
    if any(len(re.findall(rb'"%s"\s*:' % name.encode(), content)) != table.num_rows for name in names):
        return False
    has_types = type_column in table.column_names and not pa.types.is_null(table.schema.field(type_column).type)
    if not has_types:
        return True
    counts = table.group_by(type_column).aggregate([(name, "count") for name in names])
    return all(pc.min(counts.column(f"{name}_count")).as_py() > 0 for name in names)


def json_stream(paths: Sequence[str], layout: StreamLayout, earliest: int, latest: int) -> Read:
    return read_rows(((path, json_rows(Path(path), layout.columns, None)) for path in paths), layout, earliest, latest)


FORMAT = TextFormat("JSON Lines", json_rows, columns=json_columns, stream=json_stream)
