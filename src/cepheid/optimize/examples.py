"""Small queries for the examples of the rules, over types A to E with the attributes id, x and y."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cepheid.binding import bind
from cepheid.events import Schema
from cepheid.lang import parse, to_text
from cepheid.pattern import EventClass, Pattern, Query, map_classes
from cepheid.types import INTEGER

SCHEMA = Schema({name: dict.fromkeys(("id", "x", "y"), INTEGER) for name in "ABCDE"})


def example(text: str) -> Query:
    return bind(parse(text), SCHEMA)


def shown(rule: Callable[[Query, Schema], Query], text: str) -> str:
    """What a rule makes of a query's text."""

    def by_name(event_class: EventClass) -> Pattern:
        named_after_type = event_class.types == (event_class.var,)
        return replace(event_class, types=(), by_name=True) if named_after_type else event_class

    rewritten = rule(example(text), SCHEMA)
    return to_text(replace(rewritten, pattern=map_classes(rewritten.pattern, by_name)))
