"""Any text is a query or an error of ours."""

from __future__ import annotations

from contextlib import suppress

from cepheid.checks import check
from cepheid.errors import CepheidError
from cepheid.lang import parse, to_text


def is_query(text: str) -> bool:
    """False for a text that is refused; a query reads back as itself."""
    try:
        query = parse(text)
    except CepheidError as problem:
        assert str(problem)
        return False
    assert parse(to_text(query)) == query
    with suppress(CepheidError):
        check(query)
    return True
