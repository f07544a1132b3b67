"""The documentation is true: every query on its pages parses, and every link between pages leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cepheid.lang import parse, recognise, to_text

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
LANGUAGES = ("sase", "sase+", "zstream", "eql", "ced")


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The fenced blocks of a page: what they are, and what they hold."""
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
    assert recognise(query).value == language
    assert parse(to_text(parsed), language) == parsed


def test_every_language_has_examples() -> None:
    assert {param.values[0] for param in QUERIES} == set(LANGUAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
