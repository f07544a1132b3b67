"""Renders descriptions of queries: text, Mermaid, Graphviz, a picture, a self-contained HTML page. Nothing here
depends on queries."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping
from itertools import count

from cepheid import picture
from cepheid.nfa import Automaton
from cepheid.picture import Explanation, Node, plain, wrapped


def render_text(explanation: Explanation) -> str:
    tree = explanation.tree
    automata = tuple(automaton_node(title, automaton) for title, automaton in explanation.automata)
    tree = Node(tree.label, tree.children + automata)
    return "\n".join([plain(tree.label), *_branches(tree)]) + "\n"


def _branches(node: Node, indent: str = "") -> Iterator[str]:
    for child in node.children:
        last = child is node.children[-1]
        yield f"{indent}{'└─' if last else '├─'} {plain(child.label)}"
        yield from _branches(child, indent + ("   " if last else "│  "))


def automaton_node(title: str, automaton: Automaton) -> Node:
    """The automaton as a tree: each state with the edges that leave it."""
    states = []
    for state in automaton.states:
        edges = tuple(
            Node(f"{edge.kind} → {edge.target}: {edge.formula}") for edge in automaton.edges if edge.source == state
        )
        mark = " (start)" if state == automaton.states[0] else " (final)" if state == automaton.states[-1] else ""
        states.append(Node(f"state {state}{mark}", edges))
    notes = tuple(Node(note) for note in automaton.notes)
    return Node(title, (*states, *notes))


def render_mermaid(explanation: Explanation) -> str:
    lines = ["flowchart TD"]
    for number, parent, label in _numbered(explanation.tree):
        lines.append(f'  n{number}["{_mermaid(label)}"]')
        if parent is not None:
            lines.append(f"  n{parent} --> n{number}")
    for number, title, automaton, names in _named_automata(explanation):
        lines += [f'  subgraph a{number} ["{_mermaid(title)}"]', "    direction LR"]
        for state, name in names.items():
            final = state == automaton.states[-1]
            lines.append(f'    {name}((("{_mermaid(state)}")))' if final else f'    {name}(("{_mermaid(state)}"))')
        arrows = {"ignore": "-.->", "proceed": "==>"}
        for edge in automaton.edges:
            arrow = arrows.get(edge.kind, "-->")
            label = _mermaid(f"{edge.kind}: {edge.formula}")
            lines.append(f'    {names[edge.source]} {arrow}|"{label}"| {names[edge.target]}')
        lines.append("  end")
    return "\n".join(lines) + "\n"


def _mermaid(label: str) -> str:
    """Mermaid has no escape character inside quotes. It reads entities, with # for &."""
    return "".join(f"#{ord(c)};" if c in '"#;<>&`|{}\\' else c for c in plain(label))


def render_dot(explanation: Explanation) -> str:
    lines = [
        "digraph query {",
        "  rankdir=LR;",
        '  node [shape=box, fontname="sans-serif"];',
        '  edge [fontname="sans-serif"];',
    ]
    for number, parent, label in _numbered(explanation.tree):
        lines.append(f"  n{number} [label={_quoted(label)}];")
        if parent is not None:
            lines.append(f"  n{parent} -> n{number} [arrowhead=none];")
    for number, title, automaton, names in _named_automata(explanation):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(title)};"]
        for state, name in names.items():
            shape = "doublecircle" if state == automaton.states[-1] else "circle"
            lines.append(f"    {name} [shape={shape}, label={_quoted(state)}];")
        styles = {"ignore": ", style=dashed", "proceed": ", style=bold"}
        for edge in automaton.edges:
            label = _quoted(f"{edge.kind}: {edge.formula}")
            style = styles.get(edge.kind, "")
            lines.append(f"    {names[edge.source]} -> {names[edge.target]} [label={label}{style}];")
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


_DOT_WIDTH = 36


def _quoted(label: str) -> str:
    """A string of Graphviz, in lines of a width that leaves a picture readable."""
    lines = wrapped(label, _DOT_WIDTH)
    return '"' + "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines) + '"'


def _named_automata(explanation: Explanation) -> Iterator[tuple[int, str, Automaton, dict[str, str]]]:
    """Every automaton with its number, its title, and an identifier for each state: `a0s1`."""
    for number, (title, automaton) in enumerate(explanation.automata):
        yield number, title, automaton, {state: f"a{number}s{index}" for index, state in enumerate(automaton.states)}


def _numbered(tree: Node) -> Iterator[tuple[int, int | None, str]]:
    """Every node with a number, its parent's number, and its label."""
    numbers = count()

    def visit(node: Node, parent: int | None) -> Iterator[tuple[int, int | None, str]]:
        number = next(numbers)
        yield number, parent, node.label
        for child in node.children:
            yield from visit(child, number)

    return visit(tree, None)


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 1rem auto; padding: 0 1rem; color: #1c2530; }
ul { list-style: none; padding-left: 1.3rem; border-left: 1px solid #c9d3dd; margin: 0 0 0 .3rem; }
li { padding: .1rem 0; } h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; }
table { border-collapse: collapse; } td, th { border: 1px solid #c9d3dd; padding: .2rem .6rem; text-align: left; }
svg { max-width: 100%; } pre { background: #eef3f8; padding: .6rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
"""


def render_svg(explanation: Explanation) -> str:
    return picture.document(explanation)


def render_html(explanation: Explanation) -> str:
    heading = _html(explanation.tree.label)
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{heading}</title><style>{_STYLE}</style></head><body>',
        f"<h1>{heading}</h1>",
        *([f"<pre>{_html_lines(explanation.text)}</pre>"] if explanation.text else []),
        picture.tree_picture(explanation.tree),
    ]
    for title, automaton in explanation.automata:
        parts += [
            f"<h2>{_html(title)}</h2>",
            f"<p>{picture.LEGEND}</p>",
            picture.automaton_picture(automaton),
            _html_table(automaton),
        ]
    parts.append(f"<details><summary>As a list</summary>{_html_list(explanation.tree)}</details>")
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _html(label: str) -> str:
    return html.escape(plain(label), quote=True)


def _html_lines(text: str) -> str:
    return "\n".join(map(_html, text.splitlines()))


def _html_list(node: Node) -> str:
    items = "".join(f"<li>{_html(child.label)}{_html_list(child)}</li>" for child in node.children)
    return f"<ul>{items}</ul>" if items else ""


def _html_table(automaton: Automaton) -> str:
    rows = "".join(
        f"<tr><td>{_html(edge.source)}</td><td>{edge.kind}</td><td>{_html(edge.target)}</td>"
        f"<td><code>{_html(edge.formula)}</code></td></tr>"
        for edge in automaton.edges
    )
    notes = "".join(f"<p>{_html(note)}</p>" for note in automaton.notes)
    return f"<table><tr><th>at</th><th>edge</th><th>to</th><th>if</th></tr>{rows}</table>{notes}"


FORMATS: Mapping[str, Callable[[Explanation], str]] = {
    "text": render_text,
    "mermaid": render_mermaid,
    "dot": render_dot,
    "svg": render_svg,
    "html": render_html,
}
