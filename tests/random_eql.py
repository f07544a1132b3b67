"""Random EQL queries and streams for the successor evaluator: all core operators, nested, with ties in time, nulls and
values of several types."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

TYPES = "ABC"
FORMS = "ll;;;;|+\\@"
"""The operators of a pattern; l is a single event."""
CHAINS = ";;;;;;;;ll|+\\@"
"""The operators of patterns with many `;` in brackets."""


class Drawn:
    """A query in the making: its variables, those that an iteration binds, and those that cancel."""

    def __init__(self, rng: Random, depth: int, forms: str = FORMS) -> None:
        self.rng = rng
        self.forms = forms
        self.positive: list[str] = []
        self.negative: list[str] = []
        self.iterated: list[str] = []
        self.pattern = self._pattern(depth, False, False)

    def _pattern(self, depth: int, negated: bool, iterated: bool) -> str:
        rng = self.rng
        form = rng.choice(self.forms) if depth else "l"
        if form == "l":
            name = f"x{len(self.positive) + len(self.negative)}"
            (self.negative if negated else self.positive).append(name)
            if iterated:
                self.iterated.append(name)
            return f"{rng.choice(TYPES)} {name}"

        def part(cancels: bool = False, repeats: bool = False) -> str:
            return self._pattern(depth - 1, negated or cancels, iterated or repeats)

        match form:
            case ";":
                return f"({part()}; {part()})"
            case "|":
                return f"({part()} | {part()})"
            case "+":
                return f"{part(repeats=True)}+"
            case "\\":
                return f"({part()} \\ {part(cancels=True)})"
            case _:
                return f"({part()} @ {rng.choice((0, 1, 2, 3, 5))})"


def query(rng: Random, depth: int = 3) -> str:
    return _with_conditions(rng, Drawn(rng, rng.choice((1, 2, 2, depth))))


def chain(rng: Random) -> str:
    """A query with several `;`."""
    return _with_conditions(rng, Drawn(rng, rng.choice((2, 3, 3, 4)), CHAINS))


def _with_conditions(rng: Random, drawn: Drawn) -> str:
    conditions = [_condition(rng, drawn) for _ in range(rng.choice((0, 1, 1, 2, 3, 4)))]
    if rng.randrange(4) == 0:
        conditions += _keys(rng, drawn)
    where = f"\nWHERE {', '.join(conditions)}" if conditions else ""
    return f"SELECT *\nFROM {drawn.pattern}{where}"


def _keys(rng: Random, drawn: Drawn) -> list[str]:
    """Equalities between most pairs of events, whatever branch of a union matches, often of expressions."""
    everyone = [*drawn.positive, *drawn.negative]
    pairs = [(one, two) for number, one in enumerate(everyone) for two in everyone[number:] if rng.randrange(8)]
    return [f"FILTER({_equality(rng, one, two)})" for one, two in pairs]


def _equality(rng: Random, one: str, two: str) -> str:
    other = f"PREV({two}.k)" if one == two else f"{two}.k"
    return rng.choice(
        (
            f"{one}.k = {other}",
            f"{one}.k + 1 = {other} + 1",
            f"{other} * 2 = {one}.k + {one}.k",
            f"{one}.k - {other} = 0",
        )
    )


def _condition(rng: Random, drawn: Drawn) -> str:
    everyone = [*drawn.positive, *drawn.negative]
    text = _test(rng, drawn, everyone)
    if rng.randrange(6) == 0:
        text = f"{text} AND {_test(rng, drawn, everyone)}"
    return f"FILTER({text})" if rng.randrange(5) < 3 else text


def _test(rng: Random, drawn: Drawn, everyone: Sequence[str]) -> str:
    one, two = rng.choice(everyone), rng.choice(everyone)
    sign = rng.choice(("<", "<=", ">", ">=", "=", "!="))
    name = rng.choice("vwk")
    forms = [
        f"{one}.k = {two}.k",
        f"{one}.k = {two}.k",
        f"{one}.k = {two}.k",
        f"{one}.{name} {sign} {two}.{name}",
        f"{one}.{name} {sign} {rng.choice((1, 2, 3))}",
        f"{one}.s {sign} {rng.choice((f'{two}.s', chr(39) + 'q' + chr(39)))}",
        f"{one}.v {sign} PREV({two}.v)",
        f"{one}.k = PREV({one}.k)",
        f"{one}.{name} {sign} ALL({two}.{name})",
        f"({one}, {two}) OCCURS WITHIN {rng.choice((0, 1, 2, 3, 5))}",
        f"(NOT ({one}.v {sign} {two}.w) OR {one}.k = 1)",
        f"({one}.k = {two}.k = {rng.choice(everyone)}.k)",
        f"{one}.{name} = {two}.{rng.choice('vwk')} - 1",
        f"({one}.k = {two}.k OR {one}.{name} = {two}.w)",
        f"{one}.k IN ({two}.k, {two}.{name})",
    ]
    if drawn.iterated:
        var = rng.choice(drawn.iterated)
        fn = rng.choice(("sum", "min", "max", "avg", "first", "last"))
        forms += [f"{fn}({var}.{name}) {sign} {rng.choice((2, 4, f'{one}.v'))}", f"count({var}) {sign} 2"]
        forms += [f"{var}.k = PREV({var}.k)", f"max({var}.s) {sign} 'q'", f"count({var}.v) < 3"]
        forms += [f"{fn}({var}.{name}) = {one}.{name}", f"count({var}) = {one}.v"]
    return rng.choice(forms)


def rows(rng: Random, most: int = 9) -> list[dict[str, Any]]:
    kinds = rng.choice(("int", "int", "float"))
    values: Sequence[Any] = (1, 2, 3, None) if kinds == "int" else (1.0, 2.5, 3.0, None)
    lacking = rng.choice((None, None, None, ("B", "v"), ("C", "k")))
    time, found = 0, []
    for _ in range(rng.randrange(1, most + 1)):
        time += rng.choice((0, 1, 1, 2))
        row = {
            "type": rng.choice("AABBC"),
            "ts": time,
            "k": rng.choice((1, 1, 2, None)),
            "v": rng.choice(values),
            "w": rng.choice((1, 2, 3, None)),
            "s": rng.choice(("p", "q", None)),
        }
        if lacking is not None and row["type"] == lacking[0]:
            del row[lacking[1]]
        found.append(row)
    return found
