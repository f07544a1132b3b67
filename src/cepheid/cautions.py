"""Cautions: suspicious but legal properties of a bound query on an input, each a sentence for the user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from cepheid import expr as ex
from cepheid.dialect import SUCCESSORS
from cepheid.errors import did_you_mean, listing
from cepheid.events import OWN_UNIT, Clock, Schema
from cepheid.expr import Aggregate, At, Attr, Compare, Const
from cepheid.pattern import Query, Strategy, durations, partition_attributes
from cepheid.types import Family


def warnings_for(query: Query, schema: Schema, clock: Clock) -> list[str]:
    """Suspicious but legal properties of a bound query on this input."""
    declared = {item.name for item in query.inputs}
    missing = [
        name
        for role in query.roles.values()
        for name in role.event_class.types
        if name not in schema.types and name not in declared
    ]
    empty = (
        _empty_window(query)
        + _bare_windows(query, clock)
        + _bare_durations(query)
        + _bare_times(query)
        + _constant_conditions(query)
    )
    empty += _tests_of_next(query) + _histories(query)
    empty += _partitions(query) + _float_differences(query) + _first_events(query) + _other_wildcards(query)
    if not schema.types:
        return empty
    return [*empty, *_lacking_attributes(query, schema), *_mistyped_classes(query, schema)] + [
        f"the input has no event of type `{name}` (it has {listing(schema.types)}){_similar(name, schema)}"
        for name in dict.fromkeys(missing)
    ]


def _similar(name: str, schema: Schema) -> str:
    """A type that differs in the case of its letters alone. Others that are close may be types of rare events."""
    return next((f"; did you mean `{one}`?" for one in schema.types if one.casefold() == name.casefold()), "")


def _lacking_attributes(query: Query, schema: Schema) -> list[str]:
    """Conditions on an attribute that the type of their variable lacks: they are true (ruling 4), which few people
    expect of a column that happens to be empty."""
    found = []
    derived = {item.name for item in query.inputs}  # binding has checked the attributes of their events
    for condition in query.where:
        if _compares_with_null(condition):  # it has a warning of its own
            continue
        named = [(node.var, node.name) for node in ex.walk(condition) if isinstance(node, Attr)]
        if isinstance(condition, ex.Same):
            named = [(var, condition.name) for var in query.roles]
        for var, name in dict.fromkeys(named):
            types = query.roles[var].event_class.types if var in query.roles else ()
            is_known = (
                types and schema.types.keys() >= set(types) and not (schema.partial | derived).intersection(types)
            )
            lacking = [one for one in types if name not in schema.types[one]] if is_known else []
            if lacking:
                text = f"no event of type {listing(lacking)} has `{name}`: `{ex.to_text(condition)}`"
                bound = f"`{var}`" if len(lacking) == len(types) else f"`{var}` where it is {listing(lacking)}"
                found.append(f"{text} does not apply to {bound} and counts as true")
    return found


def _partitions(query: Query) -> list[str]:
    """Equalities that change the partition beside an equivalence test, or that few people know to make none."""
    equalities = [
        test
        for test in query.where
        if isinstance(test, Compare) and test.op == "=" and isinstance(test.left, Attr) and isinstance(test.right, Attr)
        if test.left.var != test.right.var
    ]
    tested, keys = {test.name for test in query.where if isinstance(test, ex.Same)}, partition_attributes(query)
    found = []
    for test in equalities if tested and query.strategy is Strategy.PARTITION else ():
        assert isinstance(test.left, Attr) and isinstance(test.right, Attr)
        name = test.left.name
        if name == test.right.name and name in keys and name not in tested:
            found.append(
                f"`{ex.to_text(test)}` makes `{name}` part of the partition: events with another `{name}` may lie "
                f"between; write a mere condition as {ex.to_text(test.left)} IN ({ex.to_text(test.right)})"
            )
    if not keys and (query.non_overlapping or query.strategy is Strategy.PARTITION):
        clause = "OUTPUT NON-OVERLAPPING" if query.non_overlapping else "partition_contiguity"
        found += [
            f"{clause} has no partition: `{ex.to_text(test)}` compares columns of two names, and only one column of "
            "all variables, as in [key], divides the events; give the columns one name"
            for test in equalities
            if isinstance(test.left, Attr) and isinstance(test.right, Attr) and test.left.name != test.right.name
        ][:1]
    return found


def _histories(query: Query) -> list[str]:
    """`f[i].user = f[i-1].user` is a mere condition: matches of other users are not apart."""
    if not query.non_overlapping or partition_attributes(query):
        return []
    return [
        f"OUTPUT NON-OVERLAPPING has no partition, so matches of any `{left.name}` overlap: "
        f"`{text}` is a mere condition; write [{ex.name_text(left.name)}]"
        for text, left, right in _joins(query)
        if left.var == right.var and left.at is not right.at
    ][:1]


def _tests_of_next(query: Query) -> list[str]:
    """EQL's tests of the next event, where the usual join of SQL is meant."""
    if query.dialect.selection != SUCCESSORS or any(isinstance(node, ex.Filter) for node in ex.walk(*query.where)):
        return []
    return [
        f"`{text}` tests the very next event, and an event that fails it ends the match; write "
        f"FILTER({text}) to pass over other events"
        for text, left, right in _joins(query)
        if left.var != right.var
    ][:1]


def _joins(query: Query) -> Iterator[tuple[str, Attr, Attr]]:
    """The conditions that an attribute of two events is equal, as texts, with both sides."""
    for test in query.where:
        if isinstance(test, Compare) and test.op == "=":
            left, right = test.left, test.right
            if isinstance(left, Attr) and isinstance(right, Attr) and left.name == right.name:
                yield ex.to_text(test), left, right


_PARTS_OF_DAYS = ("year", "quarter", "month", "day", "dayofweek", "dayofyear", "hour", "date")
_OFFSET = re.compile(r"(?:Z|[+-]\d\d(?::?\d\d)?)\s*'?\s*\Z", re.IGNORECASE)


def zone_cautions(query: Query, zone: str | None, text: str | None) -> list[str]:
    """Times of a bound query that are those of UTC beside events of another zone. `text` is that of the query."""
    if zone in (None, "UTC") or text is None:
        return []
    found = []
    for node in ex.walk(*query.where, *(column.expr for column in query.output or ())):
        if isinstance(node, ex.Call) and node.fn in _PARTS_OF_DAYS and node.args[0].type.family is Family.TIMESTAMP:
            found.append(f"`{ex.to_text(node)}` is in UTC, and the times of the events are those of {zone}")
        elif isinstance(node, Const) and node.type.family is Family.TIMESTAMP and isinstance(node.value, int):
            written = "" if node.span is None else text[node.span.start : node.span.end]
            time = datetime(1970, 1, 1) + timedelta(microseconds=node.value)
            if written and ":" in written and not _OFFSET.search(written):
                found.append(
                    f"`{written}` is in UTC, and the times of the events are those of {zone}; write its offset: "
                    f"'{time.replace(tzinfo=ZoneInfo(str(zone))).isoformat()}'"
                )
    return list(dict.fromkeys(found))


def _constant_conditions(query: Query) -> list[str]:
    """Comparisons that no event decides: with NULL, and of two constants, one of which is often a name in quotes."""
    found = []
    for node in ex.walk(*query.where):
        if isinstance(node, Compare) and isinstance(node.left, Const) and isinstance(node.right, Const):
            name = node.left.value if isinstance(node.left.value, str) else "name"
            found.append(f"`{ex.to_text(node)}` compares two constants; write an attribute in backticks: a.`{name}`")
        elif _compares_with_null(node):
            found.append(f"`{ex.to_text(node)}` is never true; write IS NULL or IS NOT NULL")
    return found


def _compares_with_null(node: ex.Expr) -> bool:
    return isinstance(node, Compare) and (_is_null(node.left) or _is_null(node.right))


def _is_null(expr: ex.Expr) -> bool:
    return isinstance(expr, Const) and expr.value is None


def _float_differences(query: Query) -> list[str]:
    """Sums and differences of floats are rounded, so at a bound with a fraction many of them fail that people count."""
    found = []
    for node in ex.walk(*query.where):
        if not isinstance(node, Compare) or node.op not in ("=", "<=", ">="):
            continue
        for side, bound in ((node.left, node.right), (node.right, node.left)):
            is_computed = isinstance(side, ex.Arithmetic) and side.op in "+-" and side.type.family is Family.FLOAT
            if is_computed and isinstance(bound, Const) and isinstance(bound.value, float) and bound.value % 1:
                digits = len(ex.to_text(bound).partition(".")[2])
                found.append(
                    f"`{ex.to_text(node)}` compares rounded floats (37.4 - 37.1 is 0.2999...); "
                    f"write round({ex.to_text(side)}, {digits})"
                )
    return found


_ALIKE = 0.75


def _mistyped_classes(query: Query, schema: Schema) -> list[str]:
    """ZStream's names that are no event type of the input bind any event, also if a type was meant."""
    found = []
    for var, role in query.roles.items():
        alike = did_you_mean(var, schema.types, _ALIKE)
        is_any = not role.event_class.types
        if is_any and alike is not None and len(schema.types) > 1:
            found.append(f"`{var}` is no event type of the input, so it binds events of any type; {alike}")
    return found


def _first_events(query: Query) -> list[str]:
    """A condition on b[i] is about the second event and later ones; alone, it leaves the first one free."""
    found = []
    for test in query.where:
        nodes = list(ex.walk(test))
        attributes = [node for node in nodes if isinstance(node, Attr)]
        names = {node.var for node in attributes}
        is_alone = {node.at for node in attributes} == {At.CURRENT} and len(names) == 1
        if not is_alone or any(isinstance(node, Aggregate) for node in nodes):
            continue
        (var,) = names
        tested = (node for node in ex.walk(*query.where) if isinstance(node, Attr))
        if not any(node.var == var and node.at is At.FIRST for node in tested):
            twin = ex.to_text(test).replace(f"{var}[i]", f"{var}[1]")
            found.append(f"`{ex.to_text(test)}` holds from the second event on; for the first one too, add {twin}")
    return found


def _other_wildcards(query: Query) -> list[str]:
    """Patterns of LIKE with the wildcards of file names or regular expressions, which are mere characters."""
    found = []
    for node in ex.walk(*query.where):
        if isinstance(node, ex.Like) and isinstance(node.pattern, Const) and isinstance(node.pattern.value, str):
            pattern = node.pattern.value
            if "*" in pattern and "%" not in pattern:
                meant = pattern.replace(".*", "%").replace("*", "%").removeprefix("^").removesuffix("$")
                found.append(f"`*` is a mere character in `{ex.to_text(node)}`; write LIKE '{meant}' for any text")
    return found


_YEAR_2000 = 946_684_800_000_000


def _bare_durations(query: Query) -> list[str]:
    """A number beside a difference of times counts microseconds, which few people mean."""
    found = []
    for node in ex.walk(*query.where):
        if isinstance(node, Compare):
            for side, other in ((node.left, node.right), (node.right, node.left)):
                is_difference = (
                    isinstance(side, ex.Arithmetic) and side.op == "-" and side.type.family is Family.DURATION
                )
                if (
                    is_difference
                    and isinstance(other, Const)
                    and isinstance(other.value, int)
                    and 0 < other.value < 10**6
                ):
                    count = ex.to_text(other)
                    found.append(f"`{ex.to_text(node)}` counts microseconds; write a unit: {count} seconds")
    return found


def _bare_times(query: Query) -> list[str]:
    """A number beside a time counts microseconds since 1970; one of an earlier year than 2000 was meant in seconds or
    milliseconds."""
    return [
        f"`{ex.to_text(node)}` counts microseconds since 1970; write a time: TIMESTAMP '2024-03-01 08:00:00'"
        for node in ex.walk(*query.where)
        if isinstance(node, Compare)
        for side, other in ((node.left, node.right), (node.right, node.left))
        if side.type.family in (Family.TIMESTAMP, Family.DATE)
        and isinstance(other, Const)
        and not other.type.is_time
        and isinstance(other.value, int)
        and 0 < other.value < _YEAR_2000
    ]


def _bare_windows(query: Query, clock: Clock) -> list[str]:
    """A window without a unit over timestamps counts microseconds, which few people mean."""
    if not clock.is_timestamp:
        return []
    return [
        f"the window `{window}` counts microseconds, because the times are timestamps; write a unit: "
        f"{window.amount} seconds"
        for window in durations(query)
        if window.unit == OWN_UNIT and isinstance(window.amount, int | float) and 0 < window.amount < 10**6
    ]


def _empty_window(query: Query) -> list[str]:
    if query.window is None or query.window.amount != 0:
        return []
    if query.dialect.window_includes_bound:
        return [f"`WITHIN {query.window}` leaves only matches whose events have the same time"]
    return [f"`WITHIN {query.window}` leaves no match: the events of a match must lie closer together than that"]
