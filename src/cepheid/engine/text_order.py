"""Texts that are ordered like numbers: `'10,5' < '2,5'`. Columns of CSV files with decimal commas are text unless they
are declared, and so are columns of strings in tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from cepheid import expr as ex
from cepheid.errors import Span, shown
from cepheid.expr import Aggregate, At, Attr, Compare
from cepheid.io.files import FileSource, TextFile
from cepheid.io.source import SourceDescription
from cepheid.pattern import Query
from cepheid.types import Family

_NUMBER = re.compile(r"\s*[+-]?[0-9][0-9.,' \u00a0\u202f]*\s*")
_CURRENCY = re.compile(r"\s*(?P<sign>[€$£¥₹])\s*(?P<number>[+-]?[0-9][0-9.,' \u00a0\u202f]*)\s*")
"""An amount of money: its sign is one character before the number."""
_MARK = re.compile(r"[,' \u00a0\u202f]")
_GROUPED = re.compile(r"[ \u00a0\u202f]")
_PLAIN = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_WRITTEN = {
    "thousands comma": re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?"),
    "decimal comma": re.compile(r"(?:[0-9]+|[0-9]{1,3}(?:\.[0-9]{3})+)(?:,[0-9]+)?"),
    "thousands apostrophe": re.compile(r"[0-9]{1,3}(?:'[0-9]{3})+(?:\.[0-9]+)?"),
    "thousands space": re.compile(r"[0-9]{1,3}(?:[ \u00a0\u202f][0-9]{3})+(?:\.[0-9]+)?"),
}
"""How numbers are written, by the option that declares it."""
_SAMPLE = 100


def order_cautions(query: Query, source: SourceDescription) -> list[str]:
    """Comparisons of a bound query that order texts by their characters, though they seem to be numbers."""
    compared: dict[str, tuple[Compare, Attr]] = {}
    for node in (node for test in query.where for node in ex.walk(test)):
        if isinstance(node, Compare) and node.op in ("<", "<=", ">", ">="):
            for side in (node.left, node.right):
                if isinstance(side, Attr) and side.type.family is Family.STRING:
                    compared.setdefault(side.name, (node, side))
    values = dict(_samples(source, [name for name in compared if name in source.schema.names]))
    return [
        f"`{ex.to_text(compared[name][0])}` orders texts by their characters ('10' is less than '9'), and `{name}` "
        f"seems to hold numbers, such as `{shown(texts[0])}`; {_instead(texts, ex.to_text(compared[name][1]))}"
        for name, texts in values.items()
        if _seem_numbers(texts)
    ]


def _seem_numbers(texts: list[str]) -> bool:
    """Groups of digits that no way of writing numbers has, such as `4111 1111`, are numbers of cards or telephones."""
    if texts and all(_CURRENCY.fullmatch(text) for text in texts):
        return True
    if not texts or not all(_NUMBER.fullmatch(text) for text in texts):
        return False
    spaced = [text.strip().lstrip("+-") for text in texts if _GROUPED.search(text.strip())]
    return all(any(form.fullmatch(text) for form in _WRITTEN.values()) for text in spaced)


def _instead(texts: list[str], written: str) -> str:
    """What to write in place of an attribute with such texts."""
    amounts = [found for text in texts if (found := _CURRENCY.fullmatch(text))]
    if amounts and all(_PLAIN.fullmatch(found["number"].strip()) and found.start("sign") == 0 for found in amounts):
        return f"write CAST(substr({written}, 2) AS double)"
    if amounts:
        return f"remove `{amounts[0]['sign']}` from the column first"
    cast = f"write CAST({written} AS double)"
    if not any(_MARK.search(text.strip()) for text in texts):
        return cast
    plain = [text.strip().lstrip("+-") for text in texts]
    fitting = [
        option
        for option, form in _WRITTEN.items()
        if all(form.fullmatch(text) or _PLAIN.fullmatch(text) for text in plain)
    ]
    if "decimal comma" in fitting:
        fitting = [option for option in fitting if option in ("decimal comma", "thousands comma")]
    options = fitting or ["decimal comma", "thousands comma"]
    on_command_line = " or ".join(f"--{option}" for option in options)
    in_python = " or ".join('{}="{}"'.format(*option.split()) for option in options)
    return f"declare how they are written: {on_command_line}, {in_python} in Python"


def numbers_hint(span: Span | None, query: Query, source: SourceDescription) -> str | None:
    """What to write where an expression at this position takes numbers, and its attributes hold texts that seem to be
    some, with the first of them. None if they do not."""
    if span is None:
        return None
    expressions = [*query.where, *(column.expr for column in query.output or ())]
    nodes = (
        node for node in ex.walk(*expressions) if isinstance(node, Attr | At | Aggregate) and node.span is not None
    )
    inside = {
        node.name: ex.to_text(replace(node, fn=""))[1:-1] if isinstance(node, Aggregate) else ex.to_text(node)
        for node in nodes
        if node.name is not None and node.span and span.start <= node.span.start and node.span.end <= span.end
    }
    names = [name for name in inside if name in source.schema.names]
    for name, texts in _samples(source, names):
        if _seem_numbers(texts):
            marked = next((text for text in texts if _MARK.search(text)), texts[0])
            instead = _instead(texts, inside[name])
            return f"`{shown(name)}` seems to hold numbers as text, such as `{shown(marked)}`; {instead}"
    return None


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
