"""Every query that the strategies draw parses, passes its checks, prints back, and can be evaluated on any stream."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import QUERIES, Stream, bound, streams

from cepheid.checks import check
from cepheid.lang import parse, recognise, to_text
from cepheid.semantics import evaluate

_EXAMPLES = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
_MANY_EXAMPLES = settings(max_examples=examples(1500), deadline=None, suppress_health_check=list(HealthCheck))


def _holds_up(language: str, text: str, stream: Stream) -> bool:
    query = parse(text)
    check(query)
    assert recognise(text) is query.dialect
    assert query.dialect.name == language
    printed = to_text(query)
    assert parse(printed) == query
    matches = evaluate(bound(text, stream), stream.events)
    for match in matches:
        assert match.start is not None and match.end is not None
        assert match.start <= match.end
        assert any(binding for binding in match.bindings.values())
    return bool(matches)


@pytest.mark.parametrize("language", QUERIES)
def test_drawn_queries_hold_up(language: str) -> None:
    matched = []

    @_EXAMPLES
    @given(QUERIES[language](), streams())
    def run(text: str, stream: Stream) -> None:
        matched.append(_holds_up(language, text, stream))

    run()
    assert any(matched)


@pytest.mark.slow
@pytest.mark.parametrize("language", QUERIES)
def test_many_drawn_queries_hold_up(language: str) -> None:
    matched = []

    @_MANY_EXAMPLES
    @given(QUERIES[language](), streams())
    def run(text: str, stream: Stream) -> None:
        matched.append(_holds_up(language, text, stream))

    run()
    assert sum(matched) > len(matched) / 10


@_EXAMPLES
@given(st.data())
def test_streams_are_in_order(data: st.DataObject) -> None:
    stream = data.draw(streams())
    assert [event.position for event in stream.events] == list(range(len(stream.events)))
    assert [event.end for event in stream.events] == sorted(event.end for event in stream.events)
    for event in stream.events:
        assert set(event.attributes) == set(stream.schema.types[event.type])
