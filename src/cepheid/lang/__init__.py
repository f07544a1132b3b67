"""Text to Query and back. A text is one query, or a script of labelled queries of which the last is the result."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from types import ModuleType

from cepheid.checks import check
from cepheid.dialect import Dialect
from cepheid.errors import (
    CepheidError,
    InputProblem,
    NotAvailable,
    PatternProblem,
    Span,
    SyntaxProblem,
    did_you_mean,
    listing,
    require_strings,
    shown,
)
from cepheid.lang import ced, eql, sase, sase_plus, zstream
from cepheid.lang.groups import is_group
from cepheid.lang.slips import COMMENTS
from cepheid.lang.text import check_text, skeleton
from cepheid.pattern import DISPLAY, DerivedStream, EventClass, Query, walk

__all__ = ["DIALECTS", "declaration_text", "parse", "recognise", "to_text"]

AUTO = "auto"
MAX_QUERIES = 100
_BYTE_ORDER_MARK = "\ufeff"

# SASE+ precedes ZStream: both begin with PATTERN, and only SASE+ is identified by the next token.
_MODULES: dict[Dialect, ModuleType] = {module.DIALECT: module for module in (sase, sase_plus, zstream, eql, ced)}
DIALECTS: tuple[Dialect, ...] = tuple(_MODULES)
_NOT_LABELS = "|".join(sorted({"AND", "OR", *(word for dialect in DIALECTS for word in dialect.clauses)}))
_LABEL = re.compile(
    rf"^[ \t]*(?!(?:{_NOT_LABELS})\b)([^\W\d]\w*(?:-\w+){{0,8}})[ \t]*:(?!=)", re.MULTILINE | re.IGNORECASE
)

_STREAM = r"[ \t]+(?:[\w-]+|`[^`\n]*`)"
_DEFINITIONS = rf"(?:(?:(?:CREATE|REGISTER)\s+)?(?:SOURCE{_STREAM}\s*\([^()]*\)|SINK{_STREAM}(?:\s*\([^()]*\))?)[\s;]*)"
"""Of streams, before a query of EQL."""
_DEFINED = re.compile(rf"^[ \t]*{_DEFINITIONS}+", re.MULTILINE | re.IGNORECASE)
_SELECT = re.compile(r"SELECT\b", re.IGNORECASE)
_ONLY_DEFINED = re.compile(rf"\s*{_DEFINITIONS}*", re.IGNORECASE)
_SINK = re.compile(r"\bSINK\b", re.IGNORECASE)


def parse(text: str, dialect: str = AUTO, source: str = "query") -> Query:
    """Parse and check a text. Errors show their position in the text, which is called `source`."""
    if not isinstance(text, str):
        raise InputProblem(
            f"the query is of type `{type(text).__name__}`",
            expected='the text of a query, such as "EVENT SEQ(A a, B b)"',
        )
    if text.startswith(_BYTE_ORDER_MARK):
        text = " " + text[1:]
    try:
        check_text(text)
        query = _script(text, dialect)
        check(query)
    except CepheidError as error:
        error.within(text, source)
        raise
    return query


def recognise(text: str) -> Dialect:
    """The language of the text; of several queries, that of the last one."""
    check_text(text)
    return _language(_blocks(text)[-1], AUTO)


def to_text(query: Query) -> str:
    """The query as text that parses to the same query. The queries that it uses come first, each with its label."""
    used = [item for item in query.inputs if isinstance(item, Query) and not _is_written_inside(item, query)]
    own = replace(query, inputs=tuple(item for item in query.inputs if item not in used))
    is_labelled = query.name is not None and (bool(used) or not query.dialect.names_its_result)
    return "\n\n".join([*(_block_text(item, True) for item in used), _block_text(own, is_labelled)])


def declaration_text(item: DerivedStream | Query) -> str:
    """A query or CED's `primitive` as text, without its name and without what it uses."""
    if isinstance(item, DerivedStream):
        return ced.declaration_text(replace(item, name=""))
    return _block_text(replace(item, inputs=(), name=None), False)


def _page(query: Query) -> str:
    from cepheid.explanation import explain  # lazily: few programs show pages

    return explain(query)._repr_html_()


DISPLAY.text, DISPLAY.page = to_text, _page


def _block_text(query: Query, is_labelled: bool) -> str:
    text: str = _MODULES[query.dialect].to_text(query)
    return f"{query.name}:\n{text}" if is_labelled else text


def _is_written_inside(item: Query, query: Query) -> bool:
    """Whether an input has no label: both are declarations of one script (CED's `complex`), or it is a group."""
    return is_group(item) or (query.dialect.names_its_result and item.dialect == query.dialect)


# --- scripts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Block:
    """One query of a script. `text` is padded, so that offsets into it are offsets into the script. A query without a
    label is named by its sink."""

    label: str | None
    span: Span
    text: str


def _blocks(text: str) -> list[_Block]:
    code = skeleton(text)
    heads = [(label.start(), label.end(), label.group(1), Span(*label.span(1))) for label in _LABEL.finditer(code)]
    labelled = [end for _, end, *_ in heads]
    for found in _DEFINED.finditer(code):  # a sink names a query as a label does
        at = found.start()
        label_end = max((end for end in labelled if end <= at), default=None)
        has_label = label_end is not None and _ONLY_DEFINED.fullmatch(code, label_end, at)
        if _SELECT.match(code, found.end()) and _SINK.search(found.group()) and not has_label:
            heads.append((at, at, None, Span(at, found.end())))
    heads.sort()
    if len(heads) <= 1 and not labelled:
        return [_Block(None, Span(0, 0), text)]
    before = code[: heads[0][0]]
    if before.strip():
        start = len(before) - len(before.lstrip())
        raise SyntaxProblem(
            "a query without a label, in a script of several",
            span=Span(start, len(before.rstrip())),
            expected="a label before each query",
            hint="write `Name:` before it",
        )
    if len(heads) > MAX_QUERIES:
        raise SyntaxProblem(f"{len(heads)} queries in one script", expected=f"at most {MAX_QUERIES}")
    ends = [start for start, *_ in heads[1:]] + [len(text)]
    return [
        _Block(label, span, " " * begin + text[begin:end])
        for (_, begin, label, span), end in zip(heads, ends, strict=True)
    ]


def _script(text: str, dialect: str) -> Query:
    blocks = _blocks(text)
    known: dict[str, Query] = {}
    for block in blocks[:-1]:
        query = _query(block, AUTO, known)
        label = _new_label(block, query, known)
        known[label] = replace(query, name=label)
    query = _query(blocks[-1], dialect, known)
    if blocks[-1].label is not None or known:
        query = replace(query, name=_new_label(blocks[-1], query, known))
    needed = _needed(query, known)
    used = tuple(item for name, item in known.items() if name in needed)
    return replace(query, inputs=used + query.inputs)


def _query(block: _Block, dialect: str, known: Collection[str]) -> Query:
    language = _language(block, dialect)
    # A text that declares its input streams needs the names that are declared elsewhere.
    elsewhere = (known,) if language.declares_streams else ()
    try:
        query: Query = _MODULES[language].parse(block.text, *elsewhere)
    except SyntaxProblem as problem:
        other = next((item for item, module in _MODULES.items() if module.recognises(block.text)), language)
        if other is not language:
            problem.hint = f"this is a query in {other.title}, not {language.title}: choose `{other.name}` or `auto`"
        raise
    return query


def _new_label(block: _Block, query: Query, known: dict[str, Query]) -> str:
    """The label, or the name of the sink."""
    label = block.label or query.name or ""
    if label in known:
        raise PatternProblem(
            f"two queries are called `{label}`", span=block.span, expected="a name of its own for each query"
        )
    return label


def _needed(query: Query, known: dict[str, Query]) -> set[str]:
    """The labels that a query uses as event types, directly or through others."""
    needed: set[str] = set()
    waiting = [query]
    while waiting:
        for name in _types(waiting.pop()):
            if name in known and name not in needed:
                needed.add(name)
                waiting.append(known[name])
    return needed


def _types(query: Query) -> Iterator[str]:
    for node in walk(query.pattern):
        if isinstance(node, EventClass):
            yield from node.types or ((node.var,) if node.by_name else ())
    for item in query.inputs:
        if isinstance(item, Query):
            yield from _types(item)


# --- recognition ------------------------------------------------------------------------------------------------------


def _language(block: _Block, name: str) -> Dialect:
    if not isinstance(name, str):
        require_strings({"dialect": name}, is_optional=False)
    wanted = name.strip().lower()
    if wanted not in (AUTO, ""):
        for dialect in DIALECTS:
            if wanted in (dialect.name, *dialect.other_names):
                return dialect
        names = [dialect.name for dialect in DIALECTS]
        raise InputProblem(
            f"unknown language `{shown(name)}`",
            expected=f"one of {listing([AUTO, *names])}",
            hint=did_you_mean(name, names),
        )
    for language, module in _MODULES.items():
        if module.recognises(block.text):
            return language
    code = skeleton(block.text)
    sql = re.search(r"\bMATCH_RECOGNIZE\b", code, re.IGNORECASE)
    if sql is not None:
        raise NotAvailable(
            "MATCH_RECOGNIZE is not one of the languages",
            span=Span(*sql.span()),
            expected="; ".join(f"{dialect.name}: {dialect.beginning}" for dialect in DIALECTS),
            hint="SASE+ is the closest: PATTERN SEQ(A a, B+ b[]) WHERE partition_contiguity(a, b[]) { [key] AND ... }",
        )
    word = re.search(r"\w+|\S", code)
    raise SyntaxProblem(
        f"no language begins with `{shown(word.group())}`" if word else "the text contains no query",
        span=Span(*word.span()) if word else None,
        expected="; ".join(f"{dialect.name}: {dialect.beginning}" for dialect in DIALECTS),
        hint=(_CLOSEST if _PIPE.match(code) else _beginning(word.group())) if word else None,
    )


_PIPE = re.compile(r"\s*\w+[^|\n]*\|")
"""A query of steps, `events | where ...`."""
_CLOSEST = "SASE+ is the closest: PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) { [user] } WITHIN 5 minutes"
_BEGINNINGS = {
    **dict.fromkeys(
        ("SEQ", "ANY", "AND", "OR"),
        "write the language's first word: EVENT SEQ(...), or PATTERN SEQ(...) with closures",
    ),
    **dict.fromkeys(("CREATE", "WITH", "DEFINE", "LET"), "label a query that others use: visit: EVENT SEQ(A a, B b)"),
    **dict.fromkeys(("#", "%", "'"), COMMENTS),
    "EVERY": _CLOSEST,
}


def _beginning(word: str) -> str:
    """The hint for a text that begins with another word than those of the languages."""
    words = [first for dialect in DIALECTS for first in dialect.first_words]
    return _BEGINNINGS.get(word.upper()) or did_you_mean(word, words) or _CLOSEST
