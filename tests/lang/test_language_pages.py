"""Every word of a grammar and every function stands on the page of its language, or on the page of all languages."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from cepheid.functions import FUNCTIONS
from cepheid.lang import ced, eql, sase, sase_plus, zstream

PAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "languages"
COMMON = (PAGES / "README.md").read_text()
_LOOK_AROUND = re.compile(r"\\[a-zA-Z]+|\(\?<?[!=][^)]*\)")
_WORD = re.compile(r"(?<![a-zA-Z<])[a-z]{3,}")
_SHORT = frozenset(
    ["neq", "ping", "hrs", "hour", "minute", "second", "microsecond", "millisecond", "week", "usec", "msec"]
)
"""Parts of words, signs of LaTeX, and the singular of units."""


@pytest.mark.parametrize(
    ("language", "page"), [(sase, "sase"), (sase_plus, "sase-plus"), (zstream, "zstream"), (eql, "eql"), (ced, "ced")]
)
def test_every_word_of_a_grammar_is_on_its_page(language: ModuleType, page: str) -> None:
    text = f"{(PAGES / f'{page}.md').read_text()}\n{COMMON}"
    terminals = language._PARSER._lark.terminals
    words = {
        word
        for terminal in terminals
        if terminal.pattern.type == "re"
        for word in _WORD.findall(_LOOK_AROUND.sub("", terminal.pattern.value))
    }
    signs = {terminal.pattern.value for terminal in terminals if terminal.pattern.type == "str"}
    assert len(words) > 40 and signs
    assert sorted(word for word in words - _SHORT if re.search(word, text, re.IGNORECASE) is None) == []
    assert sorted(sign for sign in signs if sign not in text) == []


def test_every_function_is_on_the_page() -> None:
    names = [name for name in FUNCTIONS if name.isidentifier()]
    assert [name for name in names if re.search(rf"\b{name}\b", COMMON, re.IGNORECASE) is None] == []
