"""Texts that are ordered like numbers: `'10,5' < '2,5'`. Columns of CSV files with decimal commas are text unless they
are declared, and so are columns of strings in tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cepheid import expr as ex
from cepheid.errors import shown
from cepheid.expr import At, Attr, Compare
from cepheid.io.files import FileSource, TextFile
from cepheid.io.source import SourceDescription
from cepheid.pattern import Query
from cepheid.types import Family

_NUMBER = re.compile(r"\s*[+-]?[0-9][0-9.,' \u00a0\u202f]*\s*")
_SAMPLE = 100


def order_cautions(query: Query, source: SourceDescription) -> list[str]:
    """Comparisons of a bound query that order texts by their characters, though they seem to be numbers."""
    compared: dict[str, Compare] = {}
    for node in (node for test in query.where for node in ex.walk(test)):
        if isinstance(node, Compare) and node.op in ("<", "<=", ">", ">="):
            for side in (node.left, node.right):
                if isinstance(side, Attr | At) and side.type.family is Family.STRING:
                    compared.setdefault(side.name, node)
    values = dict(_samples(source, [name for name in compared if name in source.schema.names]))
    return [
        f"`{ex.to_text(compared[name])}` orders texts by their characters ('10' is less than '9'), and `{name}` seems "
        f"to hold numbers, such as `{shown(texts[0])}`; {_instead(texts, name)}"
        for name, texts in values.items()
        if texts and all(_NUMBER.fullmatch(text) for text in texts)
    ]


def _instead(texts: list[str], name: str) -> str:
    cast = f"write CAST(a.{ex.name_text(name)} AS double)"
    if not any(mark in text for text in texts for mark in ",' \u00a0\u202f"):
        return cast
    declared = (
        'declare how they are written: --decimal comma or --thousands comma, decimal="comma" or thousands="comma"'
    )
    return f"{declared} in Python"


def _samples(source: SourceDescription, names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Some values of columns of strings. None where they would have to be read first."""
    if not names:
        return
    sample = source.sample(names, _SAMPLE)
    if sample is None and isinstance(source, FileSource):
        tables = [f.table for f in source.files if isinstance(f, TextFile) and set(names) <= set(f.table.column_names)]
        sample = tables[0].select(names).slice(0, _SAMPLE) if tables else None
    if sample is not None:
        for name in names:
            yield name, [value for value in sample.column(name).to_pylist() if isinstance(value, str)]
