"""Small queries for the examples of the rules and laws, over types A to E with the attributes id, x and y."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from cepheid.binding import bind, typed_predicates
from cepheid.core_language import core_form
from cepheid.events import Schema
from cepheid.lang import parse, to_text
from cepheid.logic import expanded
from cepheid.optimize.core_cost import CompiledModel
from cepheid.optimize.core_rules import CoreInput, Law, core_text
from cepheid.optimize.stats import Stats
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


def shown_core(law: Law, text: str, rates: Mapping[str, float] | None = None) -> str:
    """The operators that a law makes of a query's core form, with events of each variable at these rates."""
    query = example(text)
    core = core_form(query.pattern, typed_predicates(query, expanded(query), SCHEMA))
    model = None if rates is None else CompiledModel(Stats(rates))
    types = dict.fromkeys(("id", "x", "y"), INTEGER)
    return core_text(law(core, CoreInput(types, model=model)).core)
