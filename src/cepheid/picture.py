"""Pictures of descriptions as SVG: the text of the query, its automata, and the tree of its parts. A picture is 1,200
pixels wide at most, every label has lines of its own, and long labels are wrapped."""

from __future__ import annotations

import html
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cepheid.nfa import Automaton, Edge

_WIDTH, _MARGIN, _INDENT = 1200, 16, 28
_LINE, _CHARACTER = 17, 7.3
"""The height of a line and the width of a character, in a monospaced font of 12 pixels."""
_PAD, _GAP = 6, 6
_RADIUS, _LABELS = 24, 130
_INK, _PAPER, _TEXT = "#30475e", "#eef3f8", "#1c2530"
_STYLES = {"ignore": ' stroke-dasharray="4 3"', "proceed": ' stroke-width="3"'}


LEGEND = "thin edges begin or take, dashed ones ignore, thick ones proceed"


@dataclass(frozen=True, slots=True)
class Node:
    label: str
    children: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    tree: Node
    automata: tuple[tuple[str, Automaton], ...] = ()
    """Each with its title."""
    text: str = ""
    """The text of the query."""


def plain(label: str) -> str:
    """A label on one line, without control characters."""
    return "".join(c if c.isprintable() else " " for c in label)


def columns_of(label: str) -> int:
    """The columns of a monospaced font that a label takes: Chinese characters and emoji take two, accents none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in label)


def wrapped(label: str, width: int) -> list[str]:
    """The label in lines of at most `width` columns."""
    return _wrapped(plain(label), max(width, 8)) or [""]


_FILLER = "\0"


def _wrapped(label: str, width: int, indent: str = "", *, drop_whitespace: bool = True) -> list[str]:
    """A wide character is wrapped as two, the second of which is a filler. A break between them needs a column more."""
    filled = "".join(c + _FILLER if columns_of(c) == 2 else c for c in label)
    width -= filled != label
    lines = textwrap.wrap(
        filled, width, subsequent_indent=indent, drop_whitespace=drop_whitespace, break_on_hyphens=False
    )
    return [line.replace(_FILLER, "") for line in lines]


@dataclass(frozen=True, slots=True)
class _Drawing:
    """Elements of SVG, and the height that they take."""

    elements: tuple[str, ...]
    height: int


def document(explanation: Explanation) -> str:
    """The whole description in one picture."""
    parts = [_text_box(explanation.text)] if explanation.text else []
    for title, automaton in explanation.automata:
        parts += [_heading(f"{title}: {LEGEND}"), _automaton(automaton)]
    parts.append(_tree(explanation.tree))
    height = _MARGIN
    drawn: list[str] = []
    for part in parts:
        drawn.append(f'<g transform="translate({_MARGIN} {height})">{"".join(part.elements)}</g>')
        height += part.height + _MARGIN
    return _svg(drawn, height, f'xmlns="{_NAMESPACE}" ')


def automaton_picture(automaton: Automaton) -> str:
    """For a page, where SVG needs no namespace."""
    return _on_page(_automaton(automaton))


def tree_picture(tree: Node) -> str:
    """For a page, too."""
    return _on_page(_tree(tree))


def _on_page(drawn: _Drawing) -> str:
    shifted = f'<g transform="translate(1 1)">{"".join(drawn.elements)}</g>'  # the borders of boxes at 0 are 1 wide
    return _svg([shifted], drawn.height + 2).rstrip()


def _svg(elements: Iterable[str], height: int, namespace: str = "") -> str:
    tip = '<marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto"'
    tip += f' markerUnits="userSpaceOnUse"><path d="M0 0 L7 3 L0 6 z" fill="{_INK}"/></marker>'
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    return (
        f'<svg {namespace}{size} role="img" font-family="ui-monospace, monospace" font-size="12">'
        f'<defs>{tip}</defs><rect width="{_WIDTH}" height="{height}" fill="white"/>{"".join(elements)}</svg>\n'
    )


_NAMESPACE = "http://www.w3.org/2000/svg"


def _text(x: float, y: float, label: str, anchor: str = "start") -> str:
    escaped = html.escape(plain(label), quote=True)
    return f'<text x="{x:g}" y="{y:g}" fill="{_TEXT}" text-anchor="{anchor}" xml:space="preserve">{escaped}</text>'


def _fitting(x: float) -> int:
    """How many characters fit to the right of x."""
    return int((_WIDTH - 2 * _MARGIN - x - 2 * _PAD) / _CHARACTER)


def _box(x: float, y: float, lines: list[str]) -> _Drawing:
    height = _LINE * len(lines) + _PAD
    width = max(map(columns_of, lines)) * _CHARACTER + 2 * _PAD
    frame = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height}" rx="4" fill="{_PAPER}" stroke="{_INK}"/>'
    texts = (_text(x + _PAD, y + _LINE * (number + 1) - 2, line) for number, line in enumerate(lines))
    return _Drawing((frame, *texts), height)


def _text_box(text: str) -> _Drawing:
    return _box(0, 0, [part for line in text.splitlines() for part in _folded(line)])


def _folded(line: str) -> list[str]:
    """A line of the query, with its indentation; its later lines are indented further."""
    width = _fitting(0)
    return [line] if columns_of(line) <= width else _wrapped(plain(line), width, "    ", drop_whitespace=False)


def _heading(title: str) -> _Drawing:
    lines = wrapped(title, _fitting(0))
    return _Drawing(tuple(_text(0, _LINE * (n + 1) - 4, line) for n, line in enumerate(lines)), _LINE * len(lines))


def _tree(node: Node) -> _Drawing:
    """A box for each node in a row of its own, under its parent and to the right, joined by an elbow."""
    elements: list[str] = []

    def place(node: Node, depth: int, y: int) -> int:
        x = depth * _INDENT
        box = _box(x, y, wrapped(node.label, _fitting(x)))
        elements.extend(box.elements)
        below, stem = y + box.height + _GAP, x + _INDENT / 2
        start: float = y + box.height
        for child in node.children:
            bend = below + (_LINE + _PAD) / 2
            elements.append(f'<path d="M{stem:g} {start:g} V{bend:g} H{x + _INDENT}" fill="none" stroke="{_INK}"/>')
            below, start = place(child, depth + 1, below), bend
        return below

    height = place(node, 0, 0)
    return _Drawing(tuple(elements), height)


def _automaton(automaton: Automaton) -> _Drawing:
    """The states from top to bottom, as in Figure 2 of the paper: solid begin and take edges, dashed ignore edges,
    thick proceed edges. Loops are to the right of their state, edges that pass over a state to the left.
    Negations are below."""
    elements: list[str] = []
    x, y = 60, 0
    middles: dict[str, int] = {}
    passing: list[Edge] = []
    following = dict(zip(automaton.states, automaton.states[1:], strict=False))
    for state in automaton.states:
        leaving = [edge for edge in automaton.edges if edge.source == state]
        loops = [edge for edge in leaving if edge.target == state]
        onward = [edge for edge in leaving if edge.target == following.get(state)]
        passing += [edge for edge in leaving if edge not in loops and edge not in onward]
        middles[state] = middle = y + _RADIUS + 6
        beside = [line for edge in loops for line in _edge_lines(edge)]
        beside += [line for edge in leaving if edge in passing for line in _edge_lines(edge)]
        elements += [_text(_LABELS, y + _LINE * (number + 1), line) for number, line in enumerate(beside)]
        for number, edge in enumerate(loops):
            turn = middle - 10 + 20 * number
            path = f"M{x + _RADIUS - 3} {turn - 6} c 44 -10 44 22 4 12"
            elements.append(_arrow(path, edge.kind))
        elements += _state(x, middle, state, is_final=state == automaton.states[-1])
        y = max(middle + _RADIUS + 6, y + _LINE * len(beside) + _PAD)
        ahead = [line for edge in onward for line in _edge_lines(edge)]
        if state in following:
            start, room = middle + _RADIUS, max(_LINE * len(ahead) + 2 * _PAD, 30)
            elements += [_text(_LABELS, y + _LINE * (number + 1), line) for number, line in enumerate(ahead)]
            for number, edge in enumerate(onward):
                across = x + 10 * number - 5 * (len(onward) - 1)
                elements.append(_arrow(f"M{across} {start} V{y + room + 2}", edge.kind))
            y += room
    for edge in passing:
        here, there = middles[edge.source], middles[edge.target]
        path = f"M{x - _RADIUS} {here} C4 {here + 20} 4 {there - 20} {x - _RADIUS - 4} {there}"
        elements.append(_arrow(path, edge.kind))
    for line in (line for note in automaton.notes for line in wrapped(note, _fitting(0))):
        elements.append(_text(0, y + _LINE, line))
        y += _LINE
    return _Drawing(tuple(elements), y + _PAD * bool(automaton.notes))


def _edge_lines(edge: Edge) -> Iterator[str]:
    yield from wrapped(f"{edge.kind} to {edge.target}: {edge.formula}", _fitting(_LABELS))


def _arrow(path: str, kind: str) -> str:
    return f'<path d="{path}" fill="none" stroke="{_INK}"{_STYLES.get(kind, "")} marker-end="url(#tip)"/>'


def _state(x: int, y: int, name: str, *, is_final: bool) -> Iterator[str]:
    if is_final:
        yield f'<circle cx="{x}" cy="{y}" r="{_RADIUS + 4}" fill="none" stroke="{_INK}"/>'
    yield f'<circle cx="{x}" cy="{y}" r="{_RADIUS}" fill="{_PAPER}" stroke="{_INK}"/>'
    yield _text(x, y + 4, _shortened(name), "middle")


def _shortened(name: str) -> str:
    """The name of a state in six columns. States of a closure differ in the index, which is not cut off."""
    if columns_of(name) <= 6:
        return name
    index = re.search(r"\[\w\]$", name)
    end = index.group() if index else ""
    start = name[: 5 - len(end)]
    while columns_of(start) > 5 - len(end):
        start = start[:-1]
    return f"{start}…{end}"
