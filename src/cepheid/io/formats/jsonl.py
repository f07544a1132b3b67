"""JSON Lines, and JSON documents: an array of objects, an object with one array of them, or one event."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.json import ParseOptions, ReadOptions, read_json

from cepheid.errors import InputProblem, listing, shown
from cepheid.io.event_columns import loses_digits
from cepheid.io.formats import BrokenRow, RawRow, suffix_of
from cepheid.io.formats.text import (
    BLOCK,
    EXACT,
    Lines,
    TextFormat,
    TextTable,
    content_of,
    is_utf8,
    late_starts,
    timestamps,
    unfit_timestamps,
)
from cepheid.io.formats.text_stream import read_rows
from cepheid.io.inputs import Columns
from cepheid.io.nested import value_of, with_value
from cepheid.io.rejects import Malformed
from cepheid.io.stream_rows import Read, StreamLayout
from cepheid.io.times import LAST_TIME, usual_time
from cepheid.runtime.kernel import Array
from cepheid.types import RECORD, type_of

# --- rows -------------------------------------------------------------------------------------------------------------


def json_rows(file: Path, columns: Columns, type: str | None) -> Iterable[RawRow | BrokenRow]:
    """One object per line. A `.json` file may also be one document."""
    return _with_times(_rows(file, columns), columns)


def _with_times(rows: Iterable[RawRow | BrokenRow], columns: Columns) -> Iterable[RawRow | BrokenRow]:
    """The rows with times in the usual form, if the user declares another format or a zone."""
    if not columns.text.rewrites_times:
        return rows
    return [
        replace(row, values=_with_usual_times(row.values, columns)) if isinstance(row, RawRow) else row for row in rows
    ]


def _with_usual_times(values: dict[str, Any], columns: Columns) -> dict[str, Any]:
    for name in columns.times:
        written = value_of(values, name)
        text = columns.text
        time = usual_time(written, text.time_format, text.zone) if isinstance(written, str) else None
        values = values if time is None else with_value(values, name, time)
    return values


def _rows(file: Path, columns: Columns) -> Iterable[RawRow | BrokenRow]:
    content = content_of(file, columns.text.encoding)
    try:
        items = _document(content, columns) if suffix_of(file) == ".json" else None
    except Malformed as problem:
        return [BrokenRow(1, str(problem), shown(content.decode(errors="backslashreplace"), 1_000))]
    if items is None:
        return _lines(content)
    return [
        RawRow(number, None, item)
        if isinstance(item, dict)
        else BrokenRow(number, "not a JSON object", json.dumps(item, ensure_ascii=False))
        for number, item in enumerate(items, start=1)
    ]


def _lines(content: bytes) -> list[RawRow | BrokenRow]:
    lines = enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1)
    return [_row(number, line) for number, line in lines if line.strip()]


def _row(number: int, line: bytes) -> RawRow | BrokenRow:
    try:
        text = line.decode().rstrip("\r")
    except UnicodeDecodeError:
        return BrokenRow(number, "not UTF-8 text", line.decode(errors="backslashreplace"))
    try:
        return RawRow(number, text, decode_object(text))
    except Malformed as problem:
        return BrokenRow(number, str(problem), text)


def _document(content: bytes, columns: Columns) -> list[Any] | None:
    """The items of a file with one JSON value: an array, an object whose only array of objects holds the events, as in
    `{"Records": [...]}`, or one event. None if the file must be parsed line by line."""
    try:
        whole = json.loads(
            content.removeprefix(b"\xef\xbb\xbf"), object_pairs_hook=_object, parse_constant=_no_constant
        )
    except (ValueError, RecursionError, Malformed):  # JSON Lines: after the first line
        return None
    if isinstance(whole, list):
        return whole
    if not isinstance(whole, dict) or value_of(whole, columns.time) is not None:
        return [whole] if isinstance(whole, dict) else None
    arrays = {
        name: item for name, item in whole.items() if isinstance(item, list) and item and isinstance(item[0], dict)
    }
    if len(arrays) > 1:
        raise Malformed(f"several arrays of objects: {listing(arrays)}")
    return next(iter(arrays.values()), None)


def _is_document(content: bytes, columns: Columns) -> bool:
    try:
        return _document(content, columns) is not None
    except Malformed:
        return True


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
_STRING = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?:[0-9a-cefA-CEF][0-9a-fA-F]|[dD][0-7])[0-9a-fA-F]{2})*"'
_NUMBER = r"-?(?:0|[1-9][0-9]{0,400})(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,3})?"
_PAIR = rf'"[^"\\\x00-\x1f]*"[ \t]*:[ \t]*(?:{_STRING}|{_NUMBER}|true|false|null)[ \t]*'
_FLAT = rf"^[ \t]*\{{[ \t]*(?:{_PAIR}(?:,[ \t]*{_PAIR})*)?\}}[ \t]*\r?\n?$"
"""A line that is an object without nested values, in a form that no parser disputes; its keys have no escapes."""
_KEY = re.compile(rb'[{,][ \t]*"([^"\\]*)"[ \t]*:')
_KINDS = {'"': "string", "[tf]": "boolean", "[0-9-]": "number"}
"""The noun of a value, by its first character."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Objects:
    """The objects of some lines, as columns. `at` is the line of each, counted from 0."""

    table: pa.Table
    lines: Lines
    at: Array
    broken: tuple[BrokenRow, ...] = ()
    refused: tuple[RawRow, ...] = ()

    @property
    def content(self) -> bytes:
        if len(self.at) == len(self.lines):
            return self.lines.content
        keeps = np.zeros(len(self.lines), bool)
        keeps[self.at] = True
        return self.lines.joined(keeps)

    def without(self, unfit: Array) -> _Objects:
        rows = (_decoded(self.lines, line) for line in self.at[unfit].tolist())
        refused = (*self.refused, *(row for row in rows if isinstance(row, RawRow)))
        return replace(self, table=self.table.filter(pa.array(~unfit)), at=self.at[~unfit], refused=refused)


def json_columns(file: Path, columns: Columns, type: str | None) -> TextTable | None:
    """The lines of a file as typed columns. None if the row reader must read the file."""
    try:
        content = content_of(file, columns.text.encoding)
    except InputProblem:
        return None
    lines = Lines.of(content)
    if columns.text.rewrites_times:
        return None
    if suffix_of(file) == ".json" and _is_document(content, columns):
        return None
    objects = _all_objects(lines) or _sifted(lines)
    type_column = columns.type if type is None else None
    if objects is None or not set(columns.times) <= set(objects.table.column_names) or type_column in columns.times:
        return None
    unfit = _unfit_rows(objects.table, columns, type_column)
    if unfit is None or unfit.all():
        return None
    objects = objects.without(unfit) if unfit.any() else objects
    late = _late(objects.table, columns)
    if late is None or late.all():
        return None
    objects = objects.without(late) if late.any() else objects
    table, content = objects.table, objects.content
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
    is_finer = loses_digits(table.column(columns.time))
    for name, read in times.items():
        table = table.set_column(table.column_names.index(name), name, read)
    return TextTable(table, is_sparse and not has_nulls, objects.broken, objects.refused, is_finer)


def _all_objects(lines: Lines) -> _Objects | None:
    """The objects of a file in which every line is one. None for any other file."""
    table, filled = _read(lines.content) if _has_objects(lines.content) else None, np.flatnonzero(lines.lengths)
    is_complete = table is not None and table.num_rows == len(filled)
    return _Objects(table, lines, filled) if is_complete else None


def _has_objects(content: bytes) -> bool:
    return is_utf8(content) and _has_an_object_in_each_line(content)


def _sifted(lines: Lines) -> _Objects | None:
    """The objects of the lines that are not broken and whose values have the most common types of their attributes.
    Lines in an unusual form are decoded one by one. None if the row reader must read the file."""
    texts = _texts(lines)
    is_flat = _matches(texts, _FLAT)
    is_flat[lines.not_unicode()] = False
    decoded = {line: _decoded(lines, line) for line in np.flatnonzero(~is_flat).tolist() if not _is_blank(lines, line)}
    names = dict.fromkeys(_KEY.findall(lines.joined(is_flat)))
    for line in np.flatnonzero(is_flat & _has_a_key_twice(texts, names)).tolist():
        decoded[line] = _decoded(lines, line)
        is_flat[line] = False
    broken = tuple(row for row in decoded.values() if isinstance(row, BrokenRow))
    kinds = {name: _kinds(texts, name) for name in names}
    nouns: dict[str, str] = {}
    keeps = is_flat.copy()
    for name, of_name in kinds.items():
        counts = {noun: np.count_nonzero(found & is_flat) for noun, found in of_name.items()}
        noun = nouns[name.decode()] = max(counts, key=lambda noun: counts[noun])
        for other in of_name.keys() - {noun}:
            keeps &= ~of_name[other]
    refused = [
        row for line in np.flatnonzero(is_flat & ~keeps).tolist() if isinstance(row := _decoded(lines, line), RawRow)
    ]
    for line, row in decoded.items():
        if isinstance(row, RawRow) and _has_nouns(row.values, nouns):
            keeps[line] = True
        elif isinstance(row, RawRow):
            refused.append(row)
    table, at = _read(lines.joined(keeps)), np.flatnonzero(keeps)
    if table is None or not len(at) or table.num_rows != len(at):
        return None
    return _Objects(table, lines, at, broken, tuple(refused))


def _texts(lines: Lines) -> pa.Array:
    """The lines with their line breaks. They share the memory of the file."""
    offsets = np.concatenate([[0], lines.ends]).astype(np.int64)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(lines), [None, pa.py_buffer(offsets), pa.py_buffer(lines.content)]
    )


def _matches(texts: pa.Array, pattern: str) -> Array:
    return np.array(pc.match_substring_regex(texts, pattern))


def _is_blank(lines: Lines, line: int) -> bool:
    return not lines.content[lines.starts[line] : lines.ends[line]].strip()


def _key(name: bytes) -> str:
    """The key of a flat object. A quote in a string has a backslash before it, so no string holds this pattern."""
    return rf'[{{,][ \t]*"{re.escape(name.decode())}"[ \t]*:[ \t]*'


def _has_a_key_twice(texts: pa.Array, names: Iterable[bytes]) -> Array:
    twice = np.zeros(len(texts), bool)
    for name in names:
        twice |= _matches(texts, f"{_key(name)}.*{_key(name)}")
    return twice


def _kinds(texts: pa.Array, name: bytes) -> dict[str, Array]:
    """The flat objects in which a value has each type. A null has none."""
    return {noun: _matches(texts, _key(name) + first) for first, noun in _KINDS.items()}


def _late(table: pa.Table, columns: Columns) -> Array | None:
    """The rows whose start is after their end. None if the times are not known."""
    times = {name: _times(table.column(name)) for name in columns.times}
    return None if None in times.values() else late_starts(pa.table(times), columns)


def _decoded(lines: Lines, line: int) -> RawRow | BrokenRow:
    return _row(line + 1, lines.content[lines.starts[line] : lines.ends[line]].removesuffix(b"\n"))


def _has_nouns(values: Mapping[str, Any], nouns: Mapping[str, str]) -> bool:
    """Whether the values have the types of their columns."""
    kinds = ((name, RECORD if isinstance(value, dict) else type_of(value)) for name, value in values.items())
    return all(values[name] is None or kind.noun == nouns.get(name, kind.noun) for name, kind in kinds)


def _unfit_rows(table: pa.Table, columns: Columns, type_column: str | None) -> Array | None:
    """The rows without a time or a type. None if they are not known."""
    unfit = np.zeros(table.num_rows, bool)
    for name in columns.times:
        column = table.column(name)
        if _times(column) is not None:
            continue
        if pa.types.is_string(column.type):
            unfit |= unfit_timestamps(column)
        elif pa.types.is_int64(column.type):
            fits = pc.and_(pc.greater_equal(column, -LAST_TIME), pc.less_equal(column, LAST_TIME))
            unfit |= ~np.asarray(fits.fill_null(False))
        else:
            return None
    if not _has_types(table, type_column):
        column = table.column(type_column)
        if not pa.types.is_string(column.type):
            return None
        unfit |= ~np.asarray(pc.not_equal(column, "").fill_null(False))
    return unfit


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


def json_stream(paths: Sequence[str], layout: StreamLayout) -> Read:
    return read_rows(((path, json_rows(Path(path), layout.columns, None)) for path in paths), layout)


FORMAT = TextFormat("JSON Lines", json_rows, columns=json_columns, stream=json_stream)
