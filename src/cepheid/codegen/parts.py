"""Parts of generated source that are equal but for their names and integers become functions.

Ten alternatives of one shape differ in the buffers that they read, the registers that they count in and the constants
that they compare with. Such a part is written once, as a function that is called with the variables and integers of
each, so that the compiler's work does not grow with their number:

    def part0(a0_0r, l1_base, l1_next, ...):
        a0_0r = max(a0_0r, l1_base)
        ...
        return a0_0r, values

    a0_0r, values = part0(a0_0r, l1_base, l1_next, ...)
    a1_0r, values = part0(a1_0r, l3_base, l3_next, ...)

Numba's time grows with the arrays of a function, too: it unpacks each from Python and counts its references in every
branch. Where `step` has many, Python interprets it, and only its parts are compiled. So every loop over events is in a
part.

A writer marks parts (`Writer.part`). A variable that has a value before the body (a register, an array, a counter) and
is assigned in a part is a result of the function. Any other variable that a part assigns is local to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from textwrap import dedent

BEGIN, END = "# part", "# end of the part"
NAME = "part"
"""Begins the names of the functions."""
MANY_ARRAYS = 40
"""Python interprets `step` if it has more arrays in its state, and parts."""
_REPEATED = 2
_TOKEN = re.compile(r"\b(?:[A-Za-z_]\w*|\d+)\b")
_ASSIGNED = re.compile(r"^ *(?:for )?(\w+(?:, \w+)*) (?:in|[-+*/%&|^<>]{0,2}=) ", re.MULTILINE)
_COMMENT = re.compile(r" *#.*")


@dataclass(eq=False, slots=True)
class _Part:
    """A marked part of the source."""

    lines: list[str]
    indent: str
    text: str = field(init=False)
    integers: list[str] = field(init=False)
    parameters: list[str] = field(init=False)
    results: list[str] = field(init=False)
    shape: str = field(init=False)
    """The source without its names and integers: equal for parts that can be one function."""

    def analyse(self, variables: Collection[str], outer: Collection[str]) -> None:
        """`variables` are those of `step`, and `outer` those with a value before the body."""
        self.text = dedent(_COMMENT.sub("", "\n".join(self.lines)))
        tokens: list[str] = _TOKEN.findall(self.text)
        self.integers = [token for token in tokens if token[0].isdigit()]
        names = list(dict.fromkeys(token for token in tokens if token in variables))
        assigned = _assigned(self.text)
        self.parameters = [name for name in names if name in outer or name not in assigned]
        self.results = [name for name in names if name in outer and name in assigned]
        roles = {**dict.fromkeys(names, "local"), **dict.fromkeys(self.parameters, "input")}
        roles |= dict.fromkeys(self.results, "result")
        numbered = {name: f"{roles[name]} {number}" for number, name in enumerate(names)}
        self.shape = _replaced(self.text, lambda token: "0" if token[0].isdigit() else numbered.get(token, token))


def _replaced(text: str, replacement: Callable[[str], str]) -> str:
    return _TOKEN.sub(lambda found: replacement(found.group()), text)


def with_functions(
    lines: Sequence[str], parameters: Collection[str], before: Sequence[str], *, every: bool
) -> tuple[list[str], list[str]]:
    """The functions of repeated parts (or of `every` part), and the body that calls them. `parameters` are those of
    `step`, and `before` are its lines before the body."""
    pieces = _pieces(lines)
    parts = [piece for piece in pieces if isinstance(piece, _Part) and piece.lines]
    least = 1 if every else _REPEATED
    if len(parts) < least:
        return [], _inline(pieces)
    outer = {*parameters, *_assigned("\n".join(before))}
    variables = {*outer, *_assigned("\n".join(lines))}
    by_shape: dict[str, list[_Part]] = {}
    for part in parts:
        part.analyse(variables, outer)
        by_shape.setdefault(part.shape, []).append(part)
    repeated = [group for group in by_shape.values() if len(group) >= least]
    functions: list[str] = []
    for number, group in enumerate(repeated):
        functions += [*_function(f"{NAME}{number}", group), "", ""]
    return functions, _inline(pieces)


def _function(name: str, group: Sequence[_Part]) -> list[str]:
    """The function of equal parts, whose lines become calls of it. Integers that differ are parameters; those that
    differ in the same way are one."""
    first = group[0]
    values = list(zip(*(part.integers for part in group), strict=True))
    varying = list(dict.fromkeys(of for of in values if len(set(of)) > 1))
    for number, part in enumerate(group):
        call = f"{name}({', '.join([*part.parameters, *(of[number] for of in varying)])})"
        part.lines = [f"{part.indent}{', '.join(part.results)} = {call}" if part.results else f"{part.indent}{call}"]
    passed = {of: f"integer{number}" for number, of in enumerate(varying)}
    integers = iter([passed.get(of, of[0]) for of in values])
    body = _replaced(first.text, lambda token: next(integers) if token[0].isdigit() else token)
    returned = [f"    return {', '.join(first.results)}"] if first.results else []
    head = f"def {name}({', '.join([*first.parameters, *passed.values()])}):"
    return [head, *(f"    {line}" for line in body.splitlines() if line), *returned]


def _pieces(lines: Sequence[str]) -> list[str | _Part]:
    pieces: list[str | _Part] = []
    inside: _Part | None = None
    for line in lines:
        text = line.strip()
        if text == BEGIN:
            inside = _Part([], line[: len(line) - len(line.lstrip())])
        elif text == END:
            assert inside is not None
            pieces.append(inside)
            inside = None
        elif inside is not None:
            inside.lines.append(line)
        else:
            pieces.append(line)
    return pieces


def _inline(pieces: Sequence[str | _Part]) -> list[str]:
    return [line for piece in pieces for line in (piece.lines if isinstance(piece, _Part) else [piece])]


def _assigned(text: str) -> set[str]:
    """The names that are assigned, each at the beginning of a line: `l0_base, l0_next = ...`, `for e in ...`."""
    return {name for names in _ASSIGNED.findall(text) for name in names.split(", ")}
