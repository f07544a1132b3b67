"""Streams of files: a directory to which event files are added, in any format that has a stream reader.

The files that exist when the stream first starts settle its schema, unless the schema is declared. The checkpoint
stores it. An event type or a column that appears only later is accepted (ruling 16): a type that was not seen at the
start lacks no attribute, and a new column is not part of the schema.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from cepheid import expr as ex
from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.events import TIMESTAMP_CLOCK, Clock, Schema
from cepheid.functions import FUNCTIONS
from cepheid.io.event_columns import require_time_column
from cepheid.io.files import EventFile, column_file, open_files, scan
from cepheid.io.formats import Format, expand, format_named, known_format
from cepheid.io.formats.columnar import ColumnFormat, column_format
from cepheid.io.formats.text import TextFormat
from cepheid.io.inputs import Columns, Input
from cepheid.io.rows import ROW, is_moment
from cepheid.io.source import JSON, Attributes, Source, clock_of
from cepheid.io.stream_rows import FILE, NUMBER, Read, StreamLayout, file_name, plain_type, reject, reject_rows
from cepheid.pattern import DerivedStream, Query, SourceStream, queries_of, types_named
from cepheid.types import Family, to_arrow

_HIDDEN = (ROW, FILE, NUMBER)


@dataclass(frozen=True, slots=True)
class StreamFiles:
    path: str
    format: str
    layout: StreamLayout
    raw: bool
    """Whether the output shows an event as the line that it was read from."""
    is_named: bool = False
    """Whether the user has named the format, whatever the names of the files are."""

    @property
    def is_text(self) -> bool:
        return isinstance(format_named(self.format), TextFormat)

    @classmethod
    def first(
        cls,
        path: str,
        columns: Columns,
        unit: str | None,
        declared: Schema,
        raw: bool,
        *,
        queries: Sequence[Query] = (),
        schema: str | Mapping[str, pa.DataType] | None = None,
        named: str | None = None,
    ) -> StreamFiles | None:
        """Settles the schema by the existing files; None if there is no event in them yet. `declared` holds the types
        that the queries declare, `schema` the columns that the user declares, such as `"ts long, price double"`,
        `named` the format, if the user names it."""
        files, timed = list(_event_files(path, named)), replace(columns, unit=columns.unit or unit)
        names = {name for _, name in files}
        if not files:
            return None
        format = format_named(files[0][1])
        if len(names) > 1 or format.stream is None:
            raise InputProblem(
                f"the files in `{shown(path, 200)}` are {listing(names)}", expected="files of one format, for a stream"
            )
        source: Source
        if isinstance(format, ColumnFormat):
            source, raw = scan([_compatible(path, files, columns)], timed), False
            fields = {field.name: plain_type(field.type) for field in source.schema}
            if columns.type in fields and columns.event_type is None:
                fields[columns.type] = pa.string()
        else:
            source = open_files([Input(path, columns.event_type, format=named)], timed, declared)
            fields = _text_fields(source)
        known = parse_schema(schema) if isinstance(schema, str) else dict(schema or {})
        if not source.count and columns.time not in known:
            return None
        own = [FILE, NUMBER] if isinstance(format, ColumnFormat) else [ROW, FILE, NUMBER]
        fields = {name: kind for name, kind in {**fields, **known}.items() if not pa.types.is_null(kind)}
        missing = missing_columns(queries, fields)
        if isinstance(format, ColumnFormat):
            require_types(missing, [path])
        fields |= {name: JSON if kind is None else kind for name, kind in missing.items()}
        kinds = {FILE: pa.string(), NUMBER: pa.int64(), ROW: pa.string()}
        settled = pa.schema([*fields.items(), *((name, kinds[name]) for name in own)])
        require_time_column(settled, columns)
        attributes = {
            kind: {name: known.get(name, of) for name, of in {**own, **known}.items()}
            for kind, own in (source.attributes or {}).items()
        }
        clock = clock_of(source, unit) if columns.time not in known else _clock(known[columns.time], unit)
        fractions = source.epoch_unit if clock.is_timestamp and columns.time not in known else None
        layout = StreamLayout(settled, columns, attributes, clock, fractions)
        return cls(path, names.pop(), layout, raw, named is not None)

    def having(self, columns: Mapping[str, pa.DataType]) -> StreamFiles:
        """With columns that no file has yet."""
        schema = self.layout.schema
        at = len(schema) - len(set(_HIDDEN) & set(schema.names))
        fields = [*list(schema)[:at], *(pa.field(name, kind) for name, kind in columns.items()), *list(schema)[at:]]
        return replace(self, layout=replace(self.layout, schema=pa.schema(fields)))

    # --- in the checkpoint --------------------------------------------------------------------------------------------

    def description(self) -> dict[str, Any]:
        layout = self.layout
        return {
            "format": self.format,
            "schema": _encoded(layout.schema),
            "attributes": {kind: _encoded(pa.schema(list(own.items()))) for kind, own in layout.attributes.items()},
            "timestamps": layout.clock.is_timestamp,
            "unit": layout.clock.unit,
            "epochs": layout.epoch_unit,
            "raw": self.raw,
            "zone": layout.columns.text.zone,
        }

    @classmethod
    def described(
        cls, path: str, columns: Columns, unit: str | None, known: Mapping[str, Any], named: str | None = None
    ) -> StreamFiles:
        schema = _decoded(known["schema"])
        attributes = {
            kind: {field.name: field.type for field in _decoded(own)} for kind, own in known["attributes"].items()
        }
        require_time_column(schema, columns)
        zone = known.get("zone")
        if columns.text.zone not in (None, zone):
            raise InputProblem(
                f"the stream of this checkpoint reads times without an offset in {shown(zone or 'UTC')}, "
                f"not in {columns.text.zone}",
                hint="leave the zone out, or use a new checkpoint",
            )
        columns = replace(columns, text=replace(columns.text, zone=zone))
        clock = TIMESTAMP_CLOCK if known["timestamps"] else Clock(unit or known["unit"])
        layout = StreamLayout(schema, columns, attributes, clock, known.get("epochs"))
        return cls(path, known["format"], layout, known["raw"], named is not None)

    # --- events -------------------------------------------------------------------------------------------------------

    @property
    def order(self) -> Sequence[str]:
        """Events with equal times are ordered by file name, then by row number, as in batch."""
        return FILE, NUMBER

    def read(self, paths: Sequence[str]) -> Read:
        """The events of some files. A file of another format, or that is a link to another file of the stream, is
        rejected as a whole."""
        format = format_named(self.format)
        assert format.stream is not None
        reasons = {path: reason for path in paths if (reason := self._why_not_read(path, format)) is not None}
        read = format.stream([path for path in paths if path not in reasons], self.layout)
        if not reasons:
            return read
        others = [reject(file_name(path), None, reason, "") for path, reason in reasons.items()]
        none = pa.RecordBatch.from_pylist([], self.layout.schema)
        return Read.joined([read, Read(none, read.ticks[:0], reject_rows(others))], self.layout.schema)

    def _why_not_read(self, path: str, format: Format) -> str | None:
        if not self._has_own_name(path):
            return f"the file is not {format.title} by its name, as all of the stream are"
        if not os.path.islink(path):
            return None
        root, target = os.path.realpath(self.path), os.path.realpath(path)
        within = os.path.relpath(target, root)
        is_read = not any(part.startswith(("_", ".")) for part in within.split(os.sep)) and self._has_own_name(target)
        return f"the file is a link to {file_name(within)}, which the stream reads itself" if is_read else None

    def _has_own_name(self, path: str) -> bool:
        return self.is_named or known_format(Path(path)) == self.format

    def attributes(self, queries: Iterable[Query]) -> Attributes:
        """The columns of each event type that has been seen, and of the types that the queries name: these have all
        columns. In a text file a column may mix values of several types; then that of the event type decides."""
        schema, seen = self.layout.schema, self.layout.attributes
        fields = {field.name: field.type for field in schema if field.name not in _HIDDEN}
        known = {}
        for kind, own in seen.items():
            has = {name.partition(".")[0] for name in own} | set(own)
            columns = {name: own.get(name, of) if of == JSON else of for name, of in fields.items() if name in has}
            known[kind] = {**dict.fromkeys(own, JSON), **columns} if ROW in schema.names else columns
        unseen = [name for query in queries for name in types_named(query) if name not in known]
        return {**known, **dict.fromkeys(unseen, fields)}


def _event_files(path: str, named: str | None) -> Iterator[tuple[Path, str]]:
    """The files that may hold events; none as long as the directory is empty."""
    if any(named is not None or known_format(file) is not None for file in Path(path).rglob("*")):
        yield from expand(path, named)


def _compatible(path: str, files: Sequence[tuple[Path, str]], columns: Columns) -> list[EventFile]:
    """The files whose columns have types that fit those of the files before them. The rows of the others are read by
    the types of these, and rejected where they do not fit."""
    chosen: list[EventFile] = []
    schema = pa.schema([])
    problem: InputProblem | None = None
    for file, name in files:
        own = column_format(name).schema(str(file)).remove_metadata()
        try:
            require_time_column(own, columns)
            time = own.field(columns.time).type
            if chosen and is_moment(time) != is_moment(schema.field(columns.time).type):
                continue
            schema = pa.unify_schemas([schema, own], promote_options="permissive")
        except InputProblem as missing:
            problem = problem or missing
        except pa.ArrowException:
            continue
        else:
            chosen.append(column_file(file, name, Input(path, columns.event_type), columns))
    if not chosen:
        assert problem is not None
        raise problem
    return chosen


# --- columns ----------------------------------------------------------------------------------------------------------


def _clock(time: pa.DataType, unit: str | None) -> Clock:
    return TIMESTAMP_CLOCK if pa.types.is_timestamp(time) or pa.types.is_date(time) else Clock(unit)


def _text_fields(source: Source) -> dict[str, pa.DataType]:
    """A column for each attribute, in a type that holds its values in events of every type."""
    columns = source.columns
    types: dict[str, set[pa.DataType]] = {}
    for attributes in (source.attributes or {}).values():
        for name, kind in attributes.items():
            is_type = name == columns.type and columns.event_type is None
            if not pa.types.is_null(kind) and not is_type and name not in columns.times:
                types.setdefault(name, set()).add(JSON if kind == pa.list_(JSON) else kind)
    time = pa.timestamp("us", "UTC") if clock_of(source, None).is_timestamp else pa.int64()
    times = dict.fromkeys(columns.times, time)
    own = {} if columns.event_type is not None else {columns.type: pa.string()}
    return {**own, **times, **{name: _one_type(kinds) for name, kinds in types.items()}}


def _one_type(kinds: set[pa.DataType]) -> pa.DataType:
    if kinds == {pa.int64(), pa.float64()}:
        return pa.float64()
    return next(iter(kinds)) if len(kinds) == 1 else JSON


def missing_columns(queries: Iterable[Query], fields: Mapping[str, pa.DataType]) -> dict[str, pa.DataType | None]:
    """The attributes of events of the input that the queries read and no event has had yet, each with the type of the
    values that it is compared with or that are computed from it, if the queries show it."""
    nodes = [node for query in queries for q in queries_of(query) for node in _reads_of_input(q)]
    names = dict.fromkeys(name for node in nodes if (name := _attribute_of(node)) is not None)
    known: dict[str, pa.DataType] = {**fields}
    for _ in names:
        for node in nodes:
            for part, kind in _shown_types(node, known):
                name = None if isinstance(part, ex.Same) else _attribute_of(part)
                if name is not None and kind is not None:
                    known.setdefault(name, kind)
    missing = {}
    for name in names:
        if name not in fields and not any(field.startswith(f"{name}.") for field in fields):
            owner = name.partition(".")[0]
            if owner not in fields:
                missing[name] = known.get(name)
    return missing


def _reads_of_input(query: Query) -> Iterator[ex.Expr]:
    """The nodes of the query's expressions, without the attributes of events that other queries derive."""
    derived = {item.name for item in query.inputs if not isinstance(item, SourceStream)}
    own = {var for var, role in query.roles.items() if derived.isdisjoint(role.event_class.types)}
    for node in ex.walk_reads(*query.where, *(column.expr for column in query.output or ())):
        if not isinstance(node, ex.Attr | ex.Aggregate) or node.var in own:
            yield node
    for item in query.inputs:
        if isinstance(item, DerivedStream) and item.source not in derived:
            yield from ex.walk_reads(*(column.expr for column in item.columns))


def _attribute_of(node: ex.Expr) -> str | None:
    """The attribute that is read, of an event or of a group."""
    match node:
        case ex.Attr(name=name) | ex.Same(name=name) | ex.Aggregate(name=str() as name, of=None):
            return name
        case _:
            return None


_OF_VALUES = ("min", "max", "first", "last")
"""The aggregates whose results are values of the group."""


def _shown_types(node: ex.Expr, known: Mapping[str, pa.DataType]) -> Iterator[tuple[ex.Expr, pa.DataType | None]]:
    """The parts of an expression with the types that they have if the expression has a meaning."""
    match node:
        case ex.Compare(left=left, right=right):
            pairs = [(left, right), (right, left)]
        case ex.In(item=item, values=values):
            pairs = [(item, value) for value in values]
        case ex.Like(item=left, pattern=right) | ex.Contains(item=left, text=right):
            pairs = [(left, ex.Const("")), (right, ex.Const(""))]
        case ex.Arithmetic(left=left, right=right):
            pairs = [(left, node), (right, node)]
        case ex.Aggregate(fn="sum" | "avg"):
            yield node, pa.float64()
            return
        case ex.Call(fn=fn, args=args) if fn in FUNCTIONS:
            function = FUNCTIONS[fn]
            counts = Family.INTEGER in function.of and Family.STRING not in function.of
            for number, arg in enumerate(args):
                yield arg, pa.float64() if counts else to_arrow(function.takes_of(number))
            return
        case _:
            return
    for part, other in pairs:
        if not isinstance(part, ex.Aggregate) or part.fn in _OF_VALUES:
            yield part, _type_of(other, known)


def _type_of(node: ex.Expr, known: Mapping[str, pa.DataType]) -> pa.DataType | None:
    match node:
        case ex.Attr(name=name):
            return known.get(name)
        case ex.Aggregate(fn=fn, name=str() as name, of=None) if fn in _OF_VALUES:
            return known.get(name)
        case ex.Const(value=bool()):
            return pa.bool_()
        case ex.Const(value=str() as text):
            return None if text.strip("+-.").isdigit() else pa.string()
        case ex.Const(value=int() | float()) | ex.Arithmetic() | ex.Negative() | ex.Aggregate():
            return pa.float64()
        case _:
            return None


def require_types(missing: Mapping[str, pa.DataType | None], paths: Sequence[str]) -> None:
    for name, kind in missing.items():
        if kind is None:
            where = listing([shown(path, 200) for path in paths])
            raise InputProblem(
                f"no file in {where} has a column `{shown(name)}` yet, and the query shows no type for it",
                hint=f"declare it: --schema '{shown(name)} long'",
            )


# --- declared columns -------------------------------------------------------------------------------------------------

_DECLARED = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.large_binary(),
}


def parse_schema(text: str) -> dict[str, pa.DataType]:
    """Columns as a user declares them: `"ts long, price decimal(10, 2)"`."""
    fields: dict[str, pa.DataType] = {}
    for part in _parts(text):
        name, _, word = part.strip().rpartition(" ")
        kind = _declared_type(word.lower())
        if not name or kind is None:
            raise InputProblem(
                f"`{shown(part.strip())}` does not declare a column",
                expected=f"a name and a type: {listing([*_DECLARED, 'decimal(10,2)'])}",
                hint=did_you_mean(word, _DECLARED),
            )
        fields[name.strip().strip("`")] = kind
    return fields


def _parts(text: str) -> list[str]:
    """The declarations between commas; the comma of `decimal(10, 2)` separates none."""
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        elif character != " " or not depth:
            parts[-1] += character
    return [part for part in parts if part.strip()]


def _declared_type(word: str) -> pa.DataType | None:
    if word.startswith("decimal(") and word.endswith(")"):
        digits = word[len("decimal(") : -1].split(",")
        if all(digit.isdigit() for digit in digits) and 1 <= int(digits[0]) <= 38 and len(digits) <= 2:
            return pa.decimal128(int(digits[0]), int(digits[1]) if len(digits) == 2 else 0)
    return _DECLARED.get(word)


# --- serialization ----------------------------------------------------------------------------------------------------


def _encoded(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _decoded(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
