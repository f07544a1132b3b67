"""JSON Lines, and JSON files that are one array of objects."""

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

from cepheid.errors import InputProblem, shown
from cepheid.io.formats import BrokenRow, RawRow, suffix_of
from cepheid.io.formats.text import (
    BLOCK,
    EXACT,
    MOST_REFUSED,
    Lines,
    TextFormat,
    TextTable,
    content_of,
    is_utf8,
    timestamps,
    unfit_timestamps,
)
from cepheid.io.formats.text_stream import read_rows
from cepheid.io.inputs import Columns
from cepheid.io.rejects import Malformed
from cepheid.io.stream_rows import Read, StreamLayout
from cepheid.io.times import LAST_TIME
from cepheid.runtime.kernel import Array
from cepheid.types import RECORD, from_arrow, type_of

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
_SIFTED, _MOST_SIFTED = 1 << 18, 4
"""Bytes of a block of a file with broken lines, and the number of blocks in which they may be, in a small file."""
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
        content = content_of(file)
    except InputProblem:
        return None
    lines = Lines.of(content)
    if suffix_of(file) == ".json" and lines.content.lstrip()[:1] == b"[":
        return None
    objects = _all_objects(lines) or _sifted(lines)
    type_column = columns.type if type is None else None
    if objects is None or not set(columns.times) <= set(objects.table.column_names) or type_column in columns.times:
        return None
    unfit = _unfit_rows(objects.table, columns, type_column)
    if unfit is None or np.count_nonzero(unfit) > MOST_REFUSED * len(unfit):
        return None
    objects = objects.without(unfit) if unfit.any() else objects
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
    for name, read in times.items():
        table = table.set_column(table.column_names.index(name), name, read)
    return TextTable(table, is_sparse and not has_nulls, objects.broken, objects.refused)


def _all_objects(lines: Lines) -> _Objects | None:
    """The objects of a file in which every line is one. None for any other file."""
    table, filled = _read(lines.content) if _has_objects(lines.content) else None, np.flatnonzero(lines.lengths)
    is_complete = table is not None and table.num_rows == len(filled)
    return _Objects(table, lines, filled) if is_complete else None


def _has_objects(content: bytes) -> bool:
    return is_utf8(content) and _has_an_object_in_each_line(content)


def _sifted(lines: Lines) -> _Objects | None:
    """The objects of the lines that are not broken and whose values have the types that they have in most blocks. Arrow
    parses a file in blocks; of those that it refuses, the lines are decoded one by one. None if there are many."""
    is_filled = lines.lengths > 0
    blocks = np.split(np.arange(len(lines)), np.flatnonzero(np.diff(lines.starts // _SIFTED)) + 1)
    tables: dict[int, tuple[pa.Table, Array]] = {}
    waiting: dict[int, list[RawRow]] = {}
    broken: list[BrokenRow] = []
    for number, block in enumerate(blocks):
        content = lines.content[lines.starts[block[0]] : lines.ends[block[-1]]] if len(block) else b""
        table = _read(content) if is_filled[block].all() and _has_objects(content) else None
        if table is not None and table.num_rows == len(block):
            tables[number] = table, block
            continue
        decoded = [_decoded(lines, line) for line in block[is_filled[block]].tolist()]
        broken += (row for row in decoded if isinstance(row, BrokenRow))
        waiting[number] = [row for row in decoded if isinstance(row, RawRow)]
        if len(waiting) > max(_MOST_SIFTED, MOST_REFUSED * len(blocks)):
            return None
    if not tables:
        return None
    try:
        schema = pa.unify_schemas([table.schema for table, _ in tables.values()], promote_options="permissive")
        nouns = {field.name: from_arrow(field.type).noun for field in schema if field.type != pa.null()}
        refused: list[RawRow] = []
        for number, rows in waiting.items():
            fitting = [row for row in rows if _has_nouns(row.values, nouns)]
            refused += [row for row in rows if not _has_nouns(row.values, nouns)]
            at = np.array([row.line - 1 for row in fitting], np.int64)
            keeps = np.zeros(len(lines), bool)
            keeps[at] = True
            table = _read(lines.joined(keeps)) if fitting else schema.empty_table()
            if table is None or table.num_rows != len(at):
                return None
            tables[number] = table, at
        parts = [tables[number] for number in sorted(tables)]
        table = pa.concat_tables([table for table, _ in parts], promote_options="permissive")
    except pa.ArrowException:  # blocks with other types than the rest
        return None
    return _Objects(table, lines, np.concatenate([at for _, at in parts]), tuple(broken), tuple(refused))


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
