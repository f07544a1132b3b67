"""Texts as queries, and the errors of those that are none."""

from __future__ import annotations

from contextlib import suppress

import pytest

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


def problem(text: str, **options: str) -> CepheidError:
    """The error of a text that is no query."""
    with pytest.raises(CepheidError) as raised:
        parse(text, **options)
    return raised.value


def require_error(text: str, what: str, position: tuple[int, int], expected: str, hint: str | None) -> None:
    """Requires an error that expects and hints at (parts of) these."""
    error = problem(text)
    assert (error.what, error.position) == (what, position)
    assert error.expected is not None and expected in error.expected
    assert error.hint is None if hint is None else hint in (error.hint or "")
