"""Random queries in the five languages over the tables of `random_values`, as cases for `differential`.

Everything is drawn from a `random.Random`, so that a seed repeats a case, and from Hypothesis' own Random in tests,
which shrinks it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa
from random_values import BEGAN, MIXED, TYPES, Profile, World, pool, table, world

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
STRATEGIES = ("strict_contiguity", "partition_contiguity", "skip_till_next_match", "skip_till_any_match")

# --- expressions ------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_LONG_LITERALS = (
    *("18446744073709551615", "18446744073709551616", "99999999999999999999", "-9223372036854775808"),
    *("12345678901234567890123456789012345678", "0.00000000000000000001", "9223372036854775807.5"),
)
"""Beyond 64 bits, or beyond the 28 digits to which Python's decimals round."""


@dataclass(frozen=True)
class Expressions:
    """Draws expressions over the attributes of a world. A reader is put before `.attribute`."""

    rng: random.Random
    world: World

    def attribute(self, readers: Sequence[str], names: Sequence[str]) -> str:
        return f"{self.rng.choice(readers)}.{self.rng.choice(names)}"

    # Numbers

    def number(self, readers: Sequence[str], depth: int = 2) -> str:
        rng = self.rng
        form = rng.randrange(24) if depth else rng.randrange(11)
        if form < 9:
            return self.attribute(readers, "vw")
        if form < 11:
            return self.literal()
        inner, other = self.number(readers, depth - 1), self.number(readers, depth - 1)
        if form < 17:
            return f"({inner} {rng.choice('+-*/%+-')} {other})"
        if form == 17:
            return f"-({inner})"
        if form == 18:
            return f"{rng.choice(('abs', 'floor', 'ceil', 'sqrt'))}({inner})"
        if form < 23:
            return self._choice(readers, inner, other) if form < 22 else f"round({inner}, {rng.choice((0, 1, 2, -1))})"
        return f"length({self.string(readers, 1)})"

    def _choice(self, readers: Sequence[str], one: str, two: str) -> str:
        """A value that is one of two."""
        rng = self.rng
        test = f"{self.attribute(readers, 'vw')} {rng.choice(COMPARISONS)} {one}"
        cases = f"CASE WHEN {test} THEN {one} {rng.choice(('', f'ELSE {two} '))}END"
        return rng.choice((cases, *(f"{fn}({one}, {two})" for fn in ("least", "greatest", "coalesce", "nullif"))))

    def literal(self) -> str:
        rng = self.rng
        if self.world.profile.long_literals and rng.randrange(8) == 0:
            return rng.choice(_LONG_LITERALS)
        kind = self.world.kind(rng.choice("vw"))
        value = rng.choice([*pool(rng, kind, self.world.profile), 0, 1, 2])
        if value != value or value in (float("inf"), float("-inf")):
            return "1e308"
        if isinstance(value, int) and abs(value) >= 2**63:
            return "9223372036854775807"
        if isinstance(value, Decimal) and (abs(value) > 10**17 or -int(value.as_tuple().exponent) > 8):
            return "0.01"
        text = f"{value:f}" if isinstance(value, Decimal) else repr(value)
        return rng.choice((text, text, text, "0.1", "1.5"))

    # Strings

    def string(self, readers: Sequence[str], depth: int = 1) -> str:
        rng = self.rng
        form = rng.randrange(10) if depth else rng.randrange(5)
        if form < 4:
            return self.attribute(readers, "s")
        if form > 7:
            one, two = self.string(readers, 0), self.string(readers, 0)
            part = f"substr({one}, {rng.choice((1, 2, 0, -1))}, {rng.choice((0, 1, 2))})"
            return rng.choice((part, f"coalesce({one}, {two})", f"concat({one}, {two})", f"trim({one})"))
        if form == 4:
            return quoted(rng.choice(pool(rng, pa.string(), self.world.profile)))
        return f"{rng.choice(('upper', 'lower'))}({self.string(readers, depth - 1)})"

    def _pattern(self) -> str:
        odd = (*"ß\\", "\\%", "\\_", "\\\\", "σ", "😀", "e") if len(self.world.profile.strings) > 2 else ()
        pieces = (*"%%_abpqPs", *odd)
        return quoted("".join(self.rng.choice(pieces) for _ in range(self.rng.randrange(5))))

    # Times

    def _time_condition(self, readers: Sequence[str], others: Sequence[str]) -> str:
        rng = self.rng
        one, two, three = (self.attribute(r, "t") for r in (readers, [*readers, *others], [*readers, *others]))
        sign = rng.choice(COMPARISONS)
        amount = rng.choice(("0", "1", "-1", "86400000000", "3600000000", "1 day", "-90 seconds", "9007199254740993"))
        form = rng.randrange(10)
        if pa.types.is_duration(self.world.kind("t")):
            sides = (two, f"{two} + {three}", f"{two} - {three}", f"{two} * 2", f"-{two}", f"abs({two})", amount, two)
            return (
                f"{one} {sign} {sides[form % 7]}" if form != 7 else f"{one} / {two} {sign} {rng.choice(('1', '0.5'))}"
            )
        if form < 4:
            return f"{one} {sign} {two}"
        if form == 4:
            return f"{one} - {two} {sign} {amount}"
        if form == 5:
            return f"{one} + {amount} {sign} {two}"
        if form == 6:
            return f"{one} - {two} {sign} {three} - {one}"
        if form == 7:
            return f"{one} IN ({two}, {three})"
        if form == 8:
            part = rng.choice(("year", "month", "day", "hour", "minute", "second", "dayofweek", "dayofyear", "date"))
            return f"{part}({one}) {sign} {part}({two})"
        moment = rng.choice(("TIMESTAMP '2024-02-29 00:00'", "DATE '2024-03-31'", "'1970-01-01'"))
        return f"coalesce({one}, {two}) {sign} {moment}"

    # Conditions

    def condition(self, readers: Sequence[str], others: Sequence[str] = (), depth: int = 2) -> str:
        """A condition that names at least one of `readers`, and maybe some of `others`."""
        rng = self.rng
        groups = ("number", "number", "string", "boolean", "time", "other", self.world.profile.focus)
        group = rng.choice((*groups, self.world.profile.focus, *(("logic", "logic") if depth else ())))
        if rng.randrange(4) == 0:  # most conditions are false for most events
            return f"NOT ({self.condition(readers, others, 0)})"
        everyone = list(others) if others and rng.randrange(4) else [*readers, *others]
        match group:
            case "number":
                return self._number_condition(readers, everyone)
            case "string":
                return self._string_condition(readers, everyone)
            case "boolean":
                one, equal = self.attribute(readers, "b"), rng.choice(("=", "!="))
                whole = f"{one} {equal} {self.attribute(everyone, 'b')}"
                return rng.choice((one, f"NOT {one}", f"{one} {equal} TRUE", whole))
            case "time":
                return self._time_condition(readers, others)
            case "other":
                name = rng.choice("koko")
                is_null = f"{self.attribute(readers, 'kvwsbto')} IS {rng.choice(('', 'NOT '))}NULL"
                one, two = self.attribute(readers, name), self.attribute(everyone, name)
                return rng.choice((is_null, f"{one} {rng.choice(('=', '!='))} {two}"))
            case "nested" if depth:
                return self._nested_condition(readers, others, depth - 1)
        inner = self.condition(readers, others, depth - 1) if depth else self._number_condition(readers, everyone)
        form = rng.randrange(4) if depth else 0
        if form < 2:
            return f"NOT ({inner})" if form else inner
        other = self.condition(readers, others, depth - 1)
        return f"({inner}) AND ({other})" if form == 2 else f"(({inner}) OR ({other}))"

    def _number_condition(self, readers: Sequence[str], everyone: Sequence[str]) -> str:
        rng = self.rng
        match rng.randrange(10):
            case 0:
                return f"{self.number(readers, 1)} IN ({self.literal()}, {self.number(everyone, 0)}, {self.literal()})"
            case 1:
                return f"({self.number(readers)}) IS {rng.choice(('', 'NOT '))}NULL"
            case _:
                return f"{self.number(readers)} {rng.choice(COMPARISONS)} {self.number(everyone)}"

    def _string_condition(self, readers: Sequence[str], everyone: Sequence[str]) -> str:
        rng = self.rng
        match rng.randrange(6):
            case 0 | 1:
                pattern = self._pattern() if rng.randrange(3) else self.string(everyone)
                return f"{self.string(readers)} {rng.choice(('', '', 'NOT '))}LIKE {pattern}"
            case 2:
                return f"{self.string(readers)} CONTAINS {self.string(everyone)}"
            case 3:
                return f"length({self.string(readers)}) {rng.choice(COMPARISONS)} {rng.choice('0123')}"
            case _:
                return f"{self.string(readers)} {rng.choice(COMPARISONS)} {self.string(everyone)}"

    def _nested_condition(self, readers: Sequence[str], others: Sequence[str], depth: int) -> str:
        """A condition used as a value."""
        rng = self.rng
        inner, attribute = self.condition(readers, others, depth), self.attribute([*readers, *others], "b")
        match rng.randrange(4):
            case 0:
                return f"({inner}) IN ({rng.choice(('TRUE', 'FALSE', 'TRUE, FALSE', attribute))})"
            case 1:
                right = rng.choice(("TRUE", "FALSE"))
            case 2:
                right = attribute
            case _:
                right = f"({self.condition(readers, others, depth)})"
        return f"({inner}) {rng.choice(('=', '!='))} {right}"

    # RETURN

    def column(self, readers: Sequence[str]) -> str:
        rng = self.rng
        match rng.randrange(10):
            case 0 | 1 | 2:
                return self.number(readers)
            case 3:
                return self.string(readers)
            case 4:
                return f"({self.condition(readers, (), 1)})"
            case 5 if not pa.types.is_duration(self.world.kind("t")):
                one, two = self.attribute(readers, "t"), self.attribute(readers, "t")
                return rng.choice((one, f"{one} - {two}", f"{one} + 1", f"{one} - 86400000000"))
            case 5:
                one, two = self.attribute(readers, "t"), self.attribute(readers, "t")
                return rng.choice((one, f"{one} - {two}", f"{one} + {two}", f"{one} * 2", f"{one} / {two}", f"-{one}"))
            case _:
                return self.attribute(readers, "kvwsbto")

    def aggregate(self, var: str) -> str:
        fn = self.rng.choice(("sum", "avg", "min", "max", "count", "first", "last"))
        if fn in ("sum", "avg"):
            return f"{fn}({var}.{self.rng.choice('vw')})"
        return f"{fn}({var}.{self.rng.choice('kvwsbt' if fn != 'count' else 'kvwsbto')})"

    def about_a_group(self, group: str, reader: str) -> str:
        """A condition on an event beside a group that may be empty, often inside another condition."""
        test = self.aggregate_condition(self.aggregate(group), [reader])
        if reader not in test:
            test = f"({test}) {self.rng.choice(('AND', 'OR'))} {self.condition([reader], (), 0)}"
        return self.rng.choice((test, f"NOT ({test})", f"({test}) = FALSE", f"({test}) = {reader}.b"))

    def aggregate_condition(self, aggregate: str, readers: Sequence[str]) -> str:
        """A condition on the value of an aggregate, by the type of what it ranges over."""
        rng = self.rng
        fn, name = aggregate[: aggregate.index("(")], aggregate[-2]
        sign, equal = rng.choice(COMPARISONS), rng.choice(("=", "!="))
        if fn in ("sum", "avg", "count") or name in "vw":
            other = self.literal() if fn != "count" or not readers or rng.randrange(2) else self.number(readers, 1)
            return f"{aggregate} {sign} {other}"
        if name == "s":
            return f"{aggregate} {sign} {self.string(readers, 1) if readers else quoted('p')}"
        if name == "b":
            return rng.choice((f"{aggregate} {equal} TRUE", aggregate, f"{aggregate} = FALSE"))
        return f"{aggregate} {equal} {self.attribute(readers, name)}" if readers else f"{aggregate} IS NOT NULL"


# --- queries ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DrawnQuery:
    """A query in parts, each of which may be left out to make it smaller."""

    head: str
    where: str
    """How the conditions stand in the text, with `{}` for all of them."""
    joint: str
    conditions: tuple[str, ...]
    window: str = ""
    returns: tuple[str, ...] = ()
    tail: str = ""

    @property
    def text(self) -> str:
        conditions = [self.where.replace("{}", self.joint.join(self.conditions))]
        lines = [self.head, *(conditions if self.conditions or "{ {} }" in self.where else ())]
        lines += [f"WITHIN {self.window}"] if self.window else []
        lines += [f"RETURN {', '.join(f'{c} AS c{i}' for i, c in enumerate(self.returns))}"] if self.returns else []
        return "\n".join([*lines, *([self.tail] if self.tail else [])])


def _window(rng: random.Random, drawn: World, required: bool, events: bool = True) -> str:
    if not required and rng.randrange(5) == 0:
        return ""
    if events and rng.randrange(6) == 0:
        return f"{rng.choice((0, 1, 2, 5) if drawn.profile.far else (3, 5, 8))} events"
    is_moment = pa.types.is_timestamp(drawn.time)
    near = ("5 us", "10 us", "1 s", "2 hours", "20 us") if is_moment else ("5", "3", "8", "10 units", "15", "20", "30")
    far = ("0 us", "60000 days", "1 us") if is_moment else ("0", "1", "100000000000000000", "2000000000000000000")
    return str(rng.choice((*near, *far) if drawn.profile.far else near))


def _type(rng: random.Random) -> str:
    return f"ANY({', '.join(rng.sample(TYPES, 2))})" if rng.randrange(6) == 0 else rng.choice(TYPES)


def _key(rng: random.Random) -> list[str]:
    return list(rng.choice(([], [], [], [], [], ["[k]"], ["[k]"], ["[k]"], ["[k, b]"], ["[b]"], ["[v]"])))


def _limit(rng: random.Random, order: int = 8) -> str:
    return f"LIMIT {rng.choice((1, 2, 3))}" if rng.randrange(order) == 0 else ""


def _few(rng: random.Random) -> int:
    return rng.choice((0, 1, 1, 1, 2))


def _returns(rng: random.Random, draw: Expressions, readers: Sequence[str], closures: Sequence[str]) -> tuple[str, ...]:
    if rng.randrange(5) < 2:
        return ()
    if rng.randrange(6) == 0:
        variables = [*readers, *closures]
        every = ["count(*)", *(f"{rng.choice(('sum', 'avg'))}({v}.{rng.choice('vw')})" for v in variables)]
        every += [f"{rng.choice(('min', 'max', 'count'))}({v}.{rng.choice('vwsb')})" for v in readers]
        return tuple(["count(*)", *rng.sample(every, min(len(every), rng.randrange(3)))])
    columns = [draw.aggregate(v) for v in closures if rng.randrange(2)]
    columns += [draw.column(readers) for _ in range(rng.randrange(1, 4))] if readers else []
    return tuple(columns)


def sase(rng: random.Random, draw: Expressions) -> DrawnQuery:
    count = rng.choice((1, 2, 2, 2, 2, 3, 3, 4))
    must = rng.randrange(count)
    negated = [i != must and rng.randrange(5) == 0 for i in range(count)]
    parts = [f"!({_type(rng)} x{i})" if negated[i] else f"{_type(rng)} x{i}" for i in range(count)]
    positive = [f"x{i}" for i in range(count) if not negated[i]]
    conditions = _key(rng) + [_between(rng, draw, positive) for _ in range(_few(rng))]
    conditions += [draw.condition([f"x{i}"], positive) for i in range(count) if negated[i] and rng.randrange(2)]
    window = _window(rng, draw.world, negated[0] or negated[-1])
    returns = _returns(rng, draw, positive, ())
    return DrawnQuery(
        f"EVENT SEQ({', '.join(parts)})", "WHERE {}", " AND ", _bracketed(conditions), window, returns, _limit(rng)
    )


def _between(rng: random.Random, draw: Expressions, variables: Sequence[str]) -> str:
    """A condition on one variable, and maybe on others."""
    one = rng.choice(variables)
    return draw.condition([one], [var for var in variables if var != one])


def _bracketed(conditions: Sequence[str]) -> tuple[str, ...]:
    return tuple(c if c.startswith("[") else f"({c})" for c in conditions)


def sase_plus(rng: random.Random, draw: Expressions) -> DrawnQuery:
    count = rng.choice((1, 2, 2, 3, 3))
    must = rng.randrange(count)
    parts: list[str] = []
    readers: list[str] = []
    closures: list[str] = []
    conditions = _key(rng)
    negated = [i != must and rng.randrange(6) == 0 for i in range(count)]
    late: list[str] = []
    for i in range(count):
        var = f"x{i}"
        if negated[i]:
            parts.append(f"!({_type(rng)} {var})")
            late.append(var)
            continue
        quantifier = rng.choice(("", "", "+", "+", "*", "*", "{2}", "{1,2}"))
        if not quantifier:
            parts.append(f"{_type(rng)} {var}")
            conditions += [draw.condition([var], readers) for _ in range(rng.choice((0, 1)))]
            readers.append(var)
            continue
        parts.append(f"{_type(rng)}{quantifier} {var}[]")
        closures.append(var)
        for _ in range(rng.choice((0, 1, 1, 2))):
            match rng.randrange(5):
                case 0:
                    conditions.append(draw.condition([f"{var}[1]"], readers))
                case 1 | 2:
                    conditions.append(draw.condition([f"{var}[i]"], [f"{var}[i-1]", f"{var}[1]", *readers]))
                case 3:
                    aggregate = draw.aggregate(f"{var}[..i-1]")
                    conditions.append(draw.aggregate_condition(aggregate, [f"{var}[i]"]))
                case _:
                    conditions.append(draw.aggregate_condition(draw.aggregate(f"{var}[]"), readers))
        readers += [f"{var}[1]", f"{var}[{var}.LEN]"]
    for var in late:
        conditions += [draw.condition([var], readers)] if readers and rng.randrange(2) else []
        if closures and rng.randrange(3) == 0:
            conditions.append(draw.about_a_group(f"{rng.choice(closures)}[]", var))
    where = f"WHERE {rng.choice(STRATEGIES)} {{ {{}} }}"
    window = _window(rng, draw.world, negated[0] or negated[-1])
    tail = "OUTPUT NON-OVERLAPPING" if rng.randrange(8) == 0 else _limit(rng)
    returns = _returns(rng, draw, readers, [f"{var}[]" for var in closures])
    if returns and returns[0] == "count(*)":
        returns = tuple(c for c in returns if "[" not in c)
    head = f"PATTERN SEQ({', '.join(parts)})"
    return DrawnQuery(head, where, " AND ", _bracketed(conditions), window, returns, tail)


def zstream(rng: random.Random, draw: Expressions) -> DrawnQuery:
    single: list[str] = []
    negative: list[str] = []
    closures: list[str] = []

    def one(kind: list[str]) -> str:
        kind.append(f"x{len(single) + len(negative) + len(closures)}")
        return f"{rng.choice(TYPES)} {kind[-1]}"

    def item(i: int, last: bool, before: str) -> str:
        form = rng.randrange(9)
        if form == 0 and not (i == 0 and last):
            return f"!{one(negative)}"
        if form < 3 and before != "closure":
            return f"{one(closures)}{rng.choice(('+', '*', '^2'))}"
        if form == 3:
            return f"({one(single)} & {one(single)})"
        if form == 4:
            return f"({one(single)} | {one(single)})"
        return one(single)

    items: list[str] = []
    count = rng.choice((1, 1, 2, 2, 2, 3))
    for i in range(count):
        before = "closure" if items and items[-1][-1] in "+*2" else ""
        items.append(item(i, i == count - 1, before))
    if not single:
        items.append(one(single))
    conditions = _key(rng)
    conditions += [_between(rng, draw, single) for _ in range(_few(rng))]
    for var in closures:
        match rng.randrange(4):
            case 0:
                conditions.append(draw.condition([var], single))
            case 1 | 2:
                conditions.append(draw.aggregate_condition(draw.aggregate(var), single))
    conditions += [draw.condition([var], single) for var in negative if rng.randrange(2)]
    window = _window(rng, draw.world, bool(negative))
    returns = _returns(rng, draw, single, closures)
    return DrawnQuery(
        f"PATTERN {'; '.join(items)}", "WHERE {}", " AND ", _bracketed(conditions), window, returns, _limit(rng)
    )


def eql(rng: random.Random, draw: Expressions) -> DrawnQuery:
    positive: list[str] = []
    negative: list[str] = []

    def one(kind: list[str] = positive) -> str:
        kind.append(f"x{len(positive) + len(negative)}")
        return f"{rng.choice(TYPES)} {kind[-1]}"

    forms: Sequence[Callable[[], str]] = (
        lambda: f"{one()}; {one()}",
        lambda: f"{one()}; {one()}; {one()}",
        lambda: f"{one()} | {one()}",
        lambda: f"{one()}+",
        lambda: f"{one()}; ({one()} \\ {one(negative)})",
        lambda: f"({one()} @ {rng.choice((0, 2, 4))}); {one()}",
        lambda: f"({one()}+); {one()}",
        lambda: f"({one()} | {one()}); {one()}",
        lambda: f"({one()} | {one()})+; {one()}",
        lambda: f"(({one()}+) | {one()}); {one()}",
    )
    pattern = rng.choice(forms)()
    conditions = []
    if "+" in pattern and len(positive) > 1 and rng.randrange(2):
        text = draw.about_a_group(positive[0], positive[-1])
        conditions.append(f"FILTER({text})" if rng.randrange(3) == 0 else f"({text})")
    for _ in range(_few(rng)):
        text = draw.condition([rng.choice([*positive, *negative])], positive)
        conditions.append(f"FILTER({text})" if rng.randrange(3) == 0 else f"({text})")
    return DrawnQuery(f"SELECT *\nFROM {pattern}", "WHERE {}", ", ", tuple(conditions))


def ced(rng: random.Random, draw: Expressions) -> DrawnQuery:
    """Operators in one another, each with its window, and negated events and operators."""
    positive: list[str] = []
    negative: list[list[str]] = []

    def one(names: list[str]) -> str:
        names.append(f"x{len(positive) + sum(map(len, negative))}")
        return names[-1]

    def operator(name: str, operands: Sequence[str]) -> str:
        is_open = any(operand.startswith("!") for operand in operands)
        window = "" if name == "or" else _window(rng, draw.world, is_open, events=False)
        return f"{name}({', '.join(operands)}{'; ' + window if window else ''})"

    def event(depth: int) -> str:
        name = rng.choice(("seq", "seq", "and", "and", "or") if depth < 2 else ("seq", "seq", "and"))
        operands = [
            event(depth - 1) if depth and rng.randrange(4) == 0 else one(positive) for _ in range(rng.choice((2, 2, 3)))
        ]
        if name != "or" and rng.randrange(4) == 0:
            names: list[str] = []
            negative.append(names)
            is_operator = rng.randrange(3) == 0
            absent = operator(rng.choice(("seq", "and")), [one(names), one(names)]) if is_operator else one(names)
            operands[rng.randrange(len(operands) + 1) : 0] = [f"!{absent}"]
        return operator(name, operands)

    pattern = event(2)
    conditions = [_between(rng, draw, positive) for _ in range(_few(rng))]
    for names in negative:
        if rng.randrange(2):
            conditions.append(draw.condition([rng.choice(names)], positive))
        if len(names) > 1 and rng.randrange(2):
            conditions.append(draw.condition([names[0]], names[1:]))
    listed = [*positive, *(name for names in negative for name in names)]
    on = ", ".join(f"{rng.choice(TYPES)} as {name}" for name in listed)
    return DrawnQuery(f"complex Q on {on}\nevent {pattern}", "where {}", " and ", _bracketed(conditions))


LANGUAGES: dict[str, Callable[[random.Random, Expressions], DrawnQuery]] = {
    "sase": sase,
    "sase+": sase_plus,
    "zstream": zstream,
    "eql": eql,
    "ced": ced,
}
SHARES = ("sase", "sase", "sase+", "sase+", "sase+", "zstream", "zstream", "eql", "ced")


def _without_one(parts: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [(*parts[:i], *parts[i + 1 :]) for i in range(len(parts))]


@dataclass(frozen=True)
class Case:
    """A query and the events it runs over."""

    language: str
    query: DrawnQuery
    table: pa.Table
    seed: int
    """Of what is drawn later: cuts of streams, options."""

    @property
    def text(self) -> str:
        return self.query.text

    @property
    def start_column(self) -> str | None:
        return BEGAN if BEGAN in self.table.column_names else None

    def __repr__(self) -> str:
        rows = "\n".join(f"  {row}" for row in self.table.to_pylist())
        columns = ", ".join(f"{f.name}: {f.type}" for f in self.table.schema)
        return f"\n{self.text}\n{columns}\n{rows}\n"

    def smaller(self) -> list[Case]:
        """The case without one of its parts, for each part."""
        query = self.query
        smaller = [replace(query, conditions=left) for left in _without_one(query.conditions)]
        smaller += [replace(query, returns=left) for left in _without_one(query.returns)]
        smaller += [replace(query, window=""), replace(query, tail="")]
        cases = [replace(self, query=left) for left in smaller if left != query]
        for i in range(self.table.num_rows):
            kept = [row for row in range(self.table.num_rows) if row != i]
            cases.append(replace(self, table=self.table.take(pa.array(kept, pa.int64()))))
        return cases


def case(rng: random.Random, profile: Profile = MIXED, languages: Sequence[str] = SHARES) -> Case:
    language = rng.choice(languages)
    drawn = world(rng, profile)
    query = LANGUAGES[language](rng, Expressions(rng, drawn))
    return Case(language, query, table(rng, drawn), rng.randrange(1 << 30))
