"""Explanations: what is said of a query, the NFA^b of a SASE+ query, and every format of output."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from cepheid.errors import InputProblem
from cepheid.explanation import describe, explain
from cepheid.lang import parse
from cepheid.nfa import Automaton, Edge, compile_automaton
from cepheid.picture import Explanation, Node
from cepheid.rendering import FORMATS, render_dot, render_html, render_mermaid

QUERY_3 = """
PATTERN SEQ(Stock+ a[], Stock b)
WHERE skip_till_next_match(a[], b) {
    [symbol] AND a[1].volume > 1000 AND a[i].price > avg(a[..i-1].price) AND b.volume < 80% * a[a.LEN].volume }
WITHIN 1 hour
"""


def labels(node: Node) -> list[str]:
    return [node.label, *(label for child in node.children for label in labels(child))]


def said(text: str) -> str:
    return explain(parse(text))


# --- content ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("EVENT SEQ(A a, B b) WITHIN 12 hours", "less than 12 hours after it starts (last - first < 12 hours)"),
        ("PATTERN A;B WITHIN 200 units", "at most 200 units after it starts (last - first <= 200 units)"),
        ("PATTERN A;B WITHIN 7 events", "the last event stands at most 7 positions after the first"),
        ("EVENT SEQ(A a, B b)", "window: none: any length of time"),
        ("EVENT SEQ(A a, !(B b), C c)", "not: must not occur"),
        ("PATTERN A;(B|C);D WITHIN 9 units", "disjunction, any of them"),
        ("PATTERN A&B WITHIN 9 units", "conjunction, all of them in any order"),
        ("PATTERN A;B+;C WITHIN 9 units", "one or more times (+)"),
        ("PATTERN A;B^5;C WITHIN 9 units", "5 times"),
        ("EVENT SEQ(A a, B b) WHERE [id]", "reads every component (equivalence)"),
        ("EVENT SEQ(A a, B b) WHERE [id]", "partitioned by: id"),
        ("EVENT SEQ(A a, B b) WHERE a.x > 1", "reads a single event, a"),
        ("EVENT SEQ(A a, B b) WHERE a.x > b.x", "reads several events, a and b"),
        ("EVENT SEQ(A a, B b) WHERE a.x > b.x", "tested at b"),
        ("EVENT SEQ(A a, !(B b), C c) WHERE a.x > b.x", "reads a negated event, b, against a"),
        ("PATTERN A;B+;C WHERE sum(B.x) > 3 WITHIN 9 units", "reads an aggregate of B"),
        ("PATTERN A;B+;C WHERE sum(B.x) > 3 WITHIN 9 units", "tested on the whole group of B"),
        ("PATTERN A;B+;C WHERE B.x > 3 WITHIN 9 units", "tested on each member of B"),
        ("SELECT * FROM t A; t B WHERE FILTER(A.x = B.x)", "skip unless (φ): A.x = B.x"),
        ("SELECT * FROM t A; t B WHERE (A, B) OCCURS WITHIN 1 min", "reads the time from A to B"),
        ("SELECT * FROM t A+; t B", "iteration: one or more successors of one another"),
        ("PATTERN A;B WITHIN 9 units RETURN A.x AS first, B", "first = A.x"),
    ],
)
def test_what_is_said(text: str, expected: str) -> None:
    assert expected in said(text)


def test_ced_declarations_and_windows_of_operators() -> None:
    text = said(
        "source S schema int id\nprimitive p on S as s schema pid as s.id\n"
        "complex c on p as P1, p as P2 schema who as P1.pid event seq(P1, P2; 3) where P1.pid = P2.pid"
    )
    assert "sequence, one after the other, within 3 units" in text
    assert "source S(id: number)" in text and "stream p: one event for each of S" in text
    assert "who = P1.pid" in text


def test_nested_queries_are_shown_with_their_automata() -> None:
    text = said(
        "up: PATTERN SEQ(T+ a[]) WHERE skip_till_any_match(a[]) { a[i].x > a[i-1].x } WITHIN 5 units\n"
        "PATTERN up;B WITHIN 9 units".replace("\nPATTERN", "\nlast: PATTERN")
    )
    assert "query last" in text and "query up" in text and "automaton (NFA^b) of up" in text


# --- the automaton ----------------------------------------------------------------------------------------------------


def edges(text: str) -> dict[tuple[str, str], tuple[str, str]]:
    automaton = compile_automaton(parse(text))
    return {(edge.source, edge.kind): (edge.target, edge.formula) for edge in automaton.edges}


def test_query_3_compiles_as_figure_2_shows() -> None:
    automaton = compile_automaton(parse(QUERY_3))
    assert automaton.states == ("a[1]", "a[i]", "b", "F")
    window = "time - time of a[1] <= 1 hour"
    assert edges(QUERY_3) == {
        ("a[1]", "begin"): ("a[i]", "type is Stock AND a[1].volume > 1000"),
        ("a[i]", "take"): (
            "a[i]",
            f"type is Stock AND a[i].symbol = a[1].symbol AND a[i].price > avg(a[..i-1].price) AND {window}",
        ),
        ("a[i]", "ignore"): ("a[i]", f"NOT (take at a[i]) AND {window}"),
        ("a[i]", "proceed"): ("b", "the event can begin b, or can neither be taken nor ignored"),
        ("b", "begin"): (
            "F",
            f"type is Stock AND b.symbol = a[1].symbol AND b.volume < 0.8 * a[a.LEN].volume AND {window}",
        ),
        ("b", "ignore"): ("b", f"NOT (begin at b) AND {window}"),
    }


@pytest.mark.parametrize(
    ("strategy", "formula"),
    [
        ("strict_contiguity", "FALSE"),
        ("partition_contiguity", "NOT (same symbol) AND time - time of a[1] <= 1 hour"),
        ("skip_till_next_match", "NOT (begin at b) AND time - time of a[1] <= 1 hour"),
        ("skip_till_any_match", "time - time of a[1] <= 1 hour"),
    ],
)
def test_the_ignore_edge_follows_the_strategy(strategy: str, formula: str) -> None:
    assert edges(QUERY_3.replace("skip_till_next_match", strategy))["b", "ignore"] == ("b", formula)


def test_what_speaks_of_an_element_and_of_its_group_is_tested_at_the_take() -> None:
    found = edges("PATTERN SEQ(A a, B+ b[]) WHERE skip_till_any_match(a, b[]) { b[i].x <= sum(b.x) } WITHIN 5 units")
    assert "b[i].x <= sum(b.x)" in found["b[i]", "take"][1]
    assert "sum(b.x)" not in found["b[i]", "proceed"][1]


def test_a_closure_at_the_end_proceeds_to_the_final_state() -> None:
    found = edges("PATTERN SEQ(A a, B+ b[]) WHERE skip_till_any_match(a, b[]) { sum(b.x) > 3 } WITHIN 5 units")
    assert found["b[i]", "proceed"] == ("F", "sum(b.x) > 3 AND time - time of a <= 5 units")


def test_negated_components_are_no_states() -> None:
    automaton = compile_automaton(
        parse("PATTERN SEQ(A a, ~(N n), B b) WHERE skip_till_any_match(a, b) { n.x = a.x } WITHIN 5 units")
    )
    assert automaton.states == ("a", "b", "F")
    assert automaton.notes == ("a match is removed if n occurs after a and before b: type is N AND n.x = a.x",)


# --- formats ----------------------------------------------------------------------------------------------------------

HOSTILE = '</li><script>alert("1")</script> \\" ]\n; # `x` | {y} & \x1b[2J'
EVIL = Explanation(
    Node(HOSTILE, (Node(HOSTILE),)),
    ((HOSTILE, Automaton((HOSTILE, "F"), (Edge("begin", HOSTILE, "F", HOSTILE),), (HOSTILE,))),),
)


def test_html_escapes_everything() -> None:
    page = render_html(EVIL)
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            tags.append(tag)

    Tags().feed(page)
    assert "script" not in tags and "\x1b" not in page and "li" in tags and "svg" in tags
    assert "http" not in page and "src=" not in page  # self-contained


def test_mermaid_labels_cannot_end_early() -> None:
    for line in render_mermaid(EVIL).splitlines():
        quoted = re.findall(r'"([^"]*)"', line)
        assert line.count('"') in (0, 2) and all(not set(label) & set("<>`|{}\\") for label in quoted)


def test_dot_strings_cannot_end_early() -> None:
    for line in render_dot(EVIL).splitlines():
        assert len(re.findall(r'(?<!\\)(?:\\\\)*"', line)) in (0, 2)


def test_text_keeps_one_line_per_node() -> None:
    text = FORMATS["text"](EVIL)
    assert "\x1b" not in text and len(text.splitlines()) == 7


def test_every_format_shows_the_automaton() -> None:
    query = parse(QUERY_3)
    for format in FORMATS:
        shown = explain(query, format)
        for kind in ("begin", "take", "ignore", "proceed"):
            assert kind in shown
    assert len(labels(describe(query).tree)) > 10


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(InputProblem, match="no format `pdf`"):
        explain(parse("PATTERN A;B WITHIN 5 units"), "pdf")
