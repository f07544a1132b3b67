"""Random queries of SASE, ZStream and CED with windows in windows and absences, mostly trailing, and random events with
duration that are close together."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

TYPES = "ABCD"


def query(rng: random.Random) -> str:
    return rng.choice((_ced, _ced, _ced, _sase, _zstream))(rng)


def composed(rng: random.Random) -> str:
    """A complex event that another uses by name, with `event_id` or without."""
    inner, outer = _ced(rng), _ced(rng).partition(" where ")[0]
    inner = inner.replace("complex Q", "complex P", 1)
    event_id = rng.choice(("", "", " schema event_id as x0.k")) if "!" not in inner else ""
    inner = inner.replace(" event ", f"{event_id} event ", 1)
    kinds = outer.split(" as ")
    kinds[0] = kinds[0][:-1] + "P"
    return f"{inner}\n{' as '.join(kinds)}"


def rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Events in the order of their ends, some of each type; many are points, and in some streams many end together."""
    end, steps = 0, rng.choice(((0, 1, 1, 1, 2, 3), (0, 0, 1)))
    found = []
    kinds = [*TYPES, *rng.choices(f"{TYPES}X", k=count - len(TYPES))]
    rng.shuffle(kinds)
    for kind in kinds:
        end += rng.choice(steps)
        began = end - rng.choice((0, 0, 1, 2, 4, 9))
        found.append({"type": kind, "ts": end, "began": began, "k": rng.randrange(2)})
    return found


def _ced(rng: random.Random) -> str:
    types: list[str] = []

    def one() -> str:
        types.append(rng.choice(TYPES))
        return f"x{len(types) - 1}"

    def window(needed: bool) -> str:
        return f"; {rng.choice((1, 2, 3, 5, 5, 8))}" if needed or rng.randrange(9) else ""

    def absent() -> str:
        if rng.randrange(4):
            return f"!{one()}"
        return f"!{rng.choice(('seq', 'and'))}({', '.join(one() for _ in range(rng.choice((2, 2, 3))))}{window(True)})"

    def event(depth: int) -> str:
        name = rng.choice(("seq", "seq", "seq", "and", "and", "or"))
        items = [event(depth - 1) if depth and rng.randrange(3) == 0 else one() for _ in range(rng.choice((2, 2, 3)))]
        if name == "or":
            return f"or({', '.join(items)})"
        places = [len(items)] if rng.randrange(5) < 2 else []
        places += [rng.randrange(len(items) + 1)] if rng.randrange(3) == 0 else []
        for place in places:
            items.insert(place, absent())
        return f"{name}({', '.join(items)}{window(bool(places))})"

    text = event(2)
    on = ", ".join(f"{kind} as x{number}" for number, kind in enumerate(types))
    positive = [f"x{n}" for n in range(len(types)) if f"!x{n}" not in text]
    where = _equal(rng, positive, "where") if "!seq" not in text and "!and" not in text else ""
    return f"complex Q on {on} event {text}{where}"


def _equal(rng: random.Random, names: Sequence[str], word: str) -> str:
    if len(names) < 2 or rng.randrange(3):
        return ""
    one, other = rng.sample(list(names), 2)
    return f" {word} {one}.k = {other}.k"


def _within(rng: random.Random) -> str:
    return f"WITHIN {rng.choice((2, 3, 5, 8))}{rng.choice(('', '', '', ' events'))}"


def _sase(rng: random.Random) -> str:
    items = [f"{_class(rng)} x{n}" for n in range(rng.choice((1, 2, 3)))]
    names = [f"x{n}" for n in range(len(items))]
    for n, place in enumerate(
        [len(items)] * (rng.randrange(4) > 0) + [rng.randrange(len(items) + 1)] * rng.randrange(2)
    ):
        items.insert(place, f"!({_class(rng)} n{n})")
    where = rng.choice(("", " WHERE [k]", _equal(rng, names, "WHERE")))
    return f"EVENT SEQ({', '.join(items)}){where} {_within(rng)}"


def _class(rng: random.Random) -> str:
    return (
        rng.choice((rng.choice(TYPES), f"ANY({', '.join(rng.sample(TYPES, 2))})"))
        if rng.randrange(2)
        else rng.choice(TYPES)
    )


def _zstream(rng: random.Random) -> str:
    kinds = rng.sample(TYPES, 4)
    rest = kinds[3]
    positive = rng.choice(
        (
            "{0};{1}",
            "{0}&{1}",
            "{0};({1}|{2})",
            "({0}&{1});{2}",
            "{0}&({1};{2})",
            "{0};{1};{2}",
            "{0};{1}+;{2}",
            "({0}|{1})&{2}",
            "{0};!{2};{1}",
        )
    ).format(*kinds)
    pattern = rng.choice(("({0});!{1}", "({0});!{1}", "!{1};({0})", "{0}")).format(positive, rest)
    where = _equal(rng, kinds[:2], "WHERE") if "+" not in positive and "|" not in positive else ""
    return f"PATTERN {pattern}{where} {_within(rng)}"
