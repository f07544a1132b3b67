"""The queries of a folder: a file for each, in any language. One may use another, by its name, as an event type."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from cepheid.deploy.deployment import Written
from cepheid.errors import CepheidError, InputProblem, NameProblem, did_you_mean, listing, shown
from cepheid.lang import AUTO
from cepheid.pattern import EventClass, Query, queries_of, types_named, walk

_OTHERS = ("~", ".bak", ".swp", ".tmp", ".orig", ".md")
"""Ends of the names of files that are no queries: what editors leave behind, and notes."""


def read_folder(folder: Path, dialect: str = AUTO) -> tuple[dict[str, Written], dict[str, CepheidError]]:
    """The queries by the names of their files, and the files that are refused, each with the reason."""
    if folder.is_file():
        raise InputProblem(
            f"`{shown(str(folder), 200)}` is a file",
            expected="a directory of query files",
            hint="`cepheid run` takes the file of one query: --query-file",
        )
    if not folder.is_dir():
        raise InputProblem(f"there is no directory `{shown(str(folder), 200)}`", expected="a directory of query files")
    files: dict[str, list[Path]] = {}
    for file in sorted(folder.iterdir()):
        if file.is_file() and not (file.name.startswith(".") or file.name.lower().endswith(_OTHERS)):
            files.setdefault(file.stem, []).append(file)
    queries: dict[str, Written] = {}
    refused: dict[str, CepheidError] = {}
    for name, same in files.items():
        if len(same) > 1:
            names = listing(file.name for file in same)
            refused[name] = InputProblem(
                f"several files define the query `{shown(name)}`: {names}", expected="a name of its own for each query"
            )
            continue
        try:
            text = same[0].read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as problem:
            refused[name] = InputProblem(f"the query file `{shown(same[0].name, 200)}` cannot be read: {problem}")
            continue
        queries[name] = Written(name, text, dialect)
    if not queries and not refused:
        raise InputProblem(f"the directory `{shown(str(folder), 200)}` has no query files")
    return queries, refused


def linked(
    queries: Mapping[str, Written], known_types: Collection[str], unread: Collection[str] = ()
) -> tuple[dict[str, Written], dict[str, CepheidError]]:
    """The queries, each with those that it uses, and those that are refused: they cannot be parsed, use a type that is
    neither one of the input nor a query, use each other in a circle, or use one that is refused. `unread` are queries
    whose files are refused."""
    uses, refused = uses_of(queries, known_types, unread)
    done: dict[str, Written] = {}

    def resolved(name: str, path: tuple[str, ...]) -> Written:
        if name in refused:
            raise _uses_refused(name)
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            raise InputProblem(f"queries use each other in a circle: {circle}")
        if name not in done:
            written = queries[name]
            inner = [resolved(other, (*path, name)).query for other in uses[name]]
            done[name] = written if not inner else _with_inputs(written, uses[name], inner)
        return done[name]

    for name in uses:
        try:
            resolved(name, ())
        except CepheidError as error:
            refused[name] = error
    # A query that uses a refused one is refused too, whatever the order of the files.
    while late := [name for name in done if any(other in refused for other in uses[name])]:
        for name in late:
            other = next(other for other in uses[name] if other in refused)
            refused[name] = _uses_refused(other)
            del done[name]
    return {name: done[name] for name in queries if name in done and name not in refused}, refused


def uses_of(
    queries: Mapping[str, Written], known_types: Collection[str], unread: Collection[str] = ()
) -> tuple[dict[str, list[str]], dict[str, CepheidError]]:
    """The queries that each one uses as event types, and those that cannot be parsed or name an unknown type."""
    refused: dict[str, CepheidError] = {}
    uses: dict[str, list[str]] = {}
    by_core: dict[str, list[str]] = {}
    for name, written in queries.items():
        try:
            core = written.core
            if core not in by_core:
                by_core[core] = _used(written, queries, known_types, unread)
            uses[name] = by_core[core]
        except CepheidError as error:
            error.within(str(written.source), name)
            refused[name] = error
    return uses, refused


def _with_inputs(written: Written, names: list[str], inner: list[Query]) -> Written:
    inputs = tuple(replace(query, name=name) for name, query in zip(names, inner, strict=True))
    query = replace(written.query, inputs=(*inputs, *written.query.inputs))
    return replace(written, parsed=query, uses=tuple(names))


def _uses_refused(name: str) -> InputProblem:
    return InputProblem(f"it uses the query `{shown(name)}`, which is refused")


def _used(
    written: Written, queries: Mapping[str, Written], known_types: Collection[str], unread: Collection[str]
) -> list[str]:
    """The queries that a query uses as event types. Raises if it names a type that is neither."""
    query = written.query
    names = types_named(query)
    unknown = [name for name in names if name not in known_types and name not in queries]
    if unknown and unknown[0] in unread:
        raise _uses_refused(unknown[0])
    if unknown:
        known = [*known_types, *queries]
        classes = [node for part in queries_of(query) for node in walk(part.pattern) if isinstance(node, EventClass)]
        span = next((node.span for node in classes if unknown[0] in node.types), None)
        raise NameProblem(
            f"there is no event type `{shown(unknown[0])}`",
            span=span,
            expected=f"the name of a query, or one of {listing(known_types)}",
            hint=did_you_mean(unknown[0], known),
        )
    by_name = [node.var for node in walk(query.pattern) if isinstance(node, EventClass) and node.by_name]
    return [name for name in dict.fromkeys([*names, *by_name]) if name in queries and name not in known_types]
