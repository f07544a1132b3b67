"""Tests of the documentation: queries parse, links resolve, and the code of the Spark page prints the text shown."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cepheid.lang import DIALECTS, parse, recognise, to_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
LANGUAGES = tuple(dialect.name for dialect in DIALECTS)


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The fenced blocks of a page, as pairs of language and content."""
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield match[1].strip(), match[2]


QUERIES = [
    pytest.param(language, query, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, (language, query) in enumerate(blocks(page.read_text()))
    if language in LANGUAGES
]


@pytest.mark.parametrize(("language", "query"), QUERIES)
def test_queries_parse_print_and_are_recognised(language: str, query: str) -> None:
    parsed = parse(query, language)
    assert recognise(query).name == language
    assert parse(to_text(parsed), language) == parsed


def test_every_language_has_examples() -> None:
    assert {param.values[0] for param in QUERIES} == set(LANGUAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    assert [target for target in targets if "://" not in target and not (page.parent / target).exists()] == []


def test_paths_of_the_architecture_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    paths = re.findall(r"`((?:\w+/)+(?:\w+\.py)?|\w+\.py)`", text)
    assert len(paths) > 40
    roots = (ROOT / "src" / "cepheid", ROOT)
    assert [path for path in paths if not any((root / path).exists() for root in roots)] == []


@pytest.mark.spark
def test_the_code_on_the_spark_page_prints_its_output(spark: SparkSession) -> None:
    text = (ROOT / "docs" / "how-to" / "spark.md").read_text()
    names: dict[str, Any] = {}
    printed = io.StringIO()
    expected = ""
    for kind, body in blocks(text):
        if kind == "python":
            with contextlib.redirect_stdout(printed):
                exec(compile(body, "spark.md", "exec"), names)
        elif kind == "text":
            expected += body
    assert [line.rstrip() for line in printed.getvalue().splitlines() if line.strip()] == expected.splitlines()
