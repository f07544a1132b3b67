"""Every language is complete: all that the package asks of a language is listed here."""

from __future__ import annotations

import pickle
import re
from dataclasses import MISSING, fields
from importlib.resources import files
from pathlib import Path

import pytest
from golden_cases import all_cases
from strategies import QUERIES

import cepheid
from cepheid import lang
from cepheid.dialect import Closure, Dialect, Windows
from cepheid.events import NO_CLOCK
from cepheid.explanation import explain
from cepheid.expr import Filter, OccursWithin, Same
from cepheid.lang import DIALECTS, parse, recognise, to_text
from cepheid.pattern import EventClass, Iteration, Kleene, Pattern, Query, Seq
from cepheid.semantics import evaluate

DOCS = Path(__file__).parents[2] / "docs" / "languages"


def _folder(dialect: Dialect) -> str:
    return dialect.name.replace("+", "_plus")


each = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


def _golden(dialect: Dialect) -> list[str]:
    return [case.query for case in all_cases() if case.language == _folder(dialect) and case.matches is not None]


def test_every_trait_is_decided() -> None:
    """A trait without a default is one that a language cannot forget."""
    assert all(spec.default is MISSING and spec.default_factory is MISSING for spec in fields(Dialect))


def test_names_are_distinct() -> None:
    names = [name for dialect in DIALECTS for name in (dialect.name, *dialect.other_names)]
    assert len(set(names)) == len(names)
    assert len({dialect.title for dialect in DIALECTS}) == len(DIALECTS)
    assert all(name == name.lower() for name in names)


@each
def test_its_module_has_the_parts_of_a_language(dialect: Dialect) -> None:
    module = getattr(lang, _folder(dialect))
    assert module.DIALECT is dialect
    assert callable(module.recognises) and callable(module.parse) and callable(module.to_text)


@each
def test_every_name_of_it_is_accepted(dialect: Dialect) -> None:
    text = _golden(dialect)[0]
    for name in (dialect.name, *dialect.other_names, dialect.name.upper()):
        assert parse(text, dialect=name).dialect is dialect


@each
def test_its_queries_are_recognised_and_printed(dialect: Dialect) -> None:
    texts = _golden(dialect)
    assert len(texts) >= 10, "golden cases say what its queries mean"
    for text in texts:
        assert recognise(text) is dialect
        query = parse(text)
        assert parse(to_text(query), dialect=dialect.name) == query
        assert any(text.lstrip().upper().startswith(word) or word in text.upper() for word in dialect.first_words)


@each
def test_its_traits_agree_with_each_other(dialect: Dialect) -> None:
    assert all(issubclass(node, Pattern) for node in dialect.operators)
    assert EventClass in dialect.operators
    assert (Kleene in dialect.operators) == (dialect.closure in (Closure.RUN, Closure.GROUP))
    assert (Iteration in dialect.operators) == (dialect.closure is Closure.ITERATION)
    assert set(dialect.conditions) <= {Same, Filter, OccursWithin}
    assert (OccursWithin in dialect.conditions) == (dialect.windows is Windows.CONDITION)


@each
def test_the_oracle_defines_it(dialect: Dialect) -> None:
    assert evaluate(Query(EventClass("a", ("A",)), dialect), [], NO_CLOCK) == []


@each
def test_it_is_explained(dialect: Dialect) -> None:
    text = explain(Query(EventClass("a", ("A",)), dialect))
    assert f"language: {dialect.title}" in text
    assert "selection: " in text


@each
def test_it_has_a_page_an_example_and_random_queries(dialect: Dialect) -> None:
    page = DOCS / f"{dialect.name.replace('+', '-plus')}.md"
    assert page.name in (DOCS / "README.md").read_text(encoding="utf-8")
    assert dialect.title.split()[0] in page.read_text(encoding="utf-8")
    examples = [file.read_text(encoding="utf-8") for file in (files("cepheid") / "examples").iterdir()]
    assert dialect in map(recognise, examples)
    assert dialect.name in QUERIES


@each
def test_a_query_that_travels_keeps_its_language(dialect: Dialect) -> None:
    query = Query(Seq((EventClass("a", ("A",)), EventClass("b", ("B",)))), dialect)
    arrived = pickle.loads(pickle.dumps(query))
    assert arrived == query and hash(arrived) == hash(query)
    assert arrived.dialect.closure is dialect.closure
    assert all(getattr(arrived.dialect, spec.name) == getattr(dialect, spec.name) for spec in fields(Dialect))


def test_dialects_differ_by_name_alone() -> None:
    assert len(set(DIALECTS)) == len(DIALECTS)
    assert repr(DIALECTS[0]) == "Dialect('sase')"
    assert DIALECTS[0] != "sase"


def test_no_other_code_asks_for_a_language() -> None:
    """Only `lang` and `semantics` may: the rest reads traits."""
    package = Path(cepheid.__file__).parent
    asking = re.compile(r"dialect\.name\s*(?:==|!=|in\b|not in\b)")
    found = [
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if file.relative_to(package).parts[0] not in ("lang", "semantics") and asking.search(file.read_text("utf-8"))
    ]
    assert found == []
