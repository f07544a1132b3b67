"""Pictures of queries: for every language and every evaluator, at most 1,200 pixels wide, and no label over another."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from itertools import combinations
from unicodedata import east_asian_width
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import cepheid
from cepheid.errors import InputProblem
from cepheid.explanation import Explained
from cepheid.nfa import Automaton, Edge
from cepheid.picture import Explanation, Node
from cepheid.rendering import render_dot, render_html, render_svg

SVG = "{http://www.w3.org/2000/svg}"
EVENTS = pa.table({"type": ["A", "B", "C"] * 10, "ts": range(30), "v": range(30), "k": [1, 2] * 15})
QUERIES = {
    "sase": "EVENT SEQ(A x, !(B y), C z) WHERE [k] AND x.v < z.v WITHIN 10",
    "sase+": "PATTERN SEQ(A+ a[], C* c[], B b) "
    "WHERE skip_till_next_match(a[], c[], b) { [k] AND a[i].v > a[i-1].v } WITHIN 9",
    "any match": "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_any_match(a, b[]) { sum(b.v) > 3 } WITHIN 5 RETURN count(*)",
    "zstream": "PATTERN A;!B;C WHERE A.v < C.v AND (A.v > 5 OR C.v = 7) WITHIN 10",
    "eql": "SELECT * FROM ( A x ; B y ) WHERE FILTER(x.k = y.k), x.v < 100 AND (x, y) OCCURS WITHIN 9",
    "ced": "complex lifted on A as s, B as r, C as e event seq(s, !r, e; 9) where s.k = e.k and s.k = r.k",
    "long": f"EVENT SEQ(A x, C z) WHERE {' AND '.join(f'x.v + {n} < z.v' for n in range(60))} WITHIN 10",
}


def labels(svg: str) -> Iterator[tuple[float, float, float, float, str]]:
    """Left, right, top and bottom of every label, and its text."""
    root = ElementTree.fromstring(svg)
    groups = root.findall(f"{SVG}g")
    assert root.get("width") == "1200" and groups
    for group in groups:
        across, down = (float(number) for number in re.findall(r"[\d.]+", group.get("transform", "")))
        for label in group.iter(f"{SVG}text"):
            text, x, y = label.text or "", float(label.get("x", "")), float(label.get("y", ""))
            width = 7.3 * sum(2 if east_asian_width(c) in "WF" else 1 for c in text)
            left = across + (x - width / 2 if label.get("text-anchor") == "middle" else x)
            yield left, left + width, down + y - 11, down + y + 4, text


def assert_readable(svg: str) -> list[str]:
    found = list(labels(svg))
    height = float(ElementTree.fromstring(svg).get("height", ""))
    assert all(left >= 0 and right <= 1200 and bottom <= height for left, right, _, bottom, _ in found)
    for a, b in combinations(found, 2):
        assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2], (a, b)
    return [text for *_, text in found]


@pytest.mark.parametrize("name", QUERIES)
def test_pictures_of_queries_and_plans(name: str) -> None:
    query = cepheid.parse(QUERIES[name])
    for svg in (cepheid.explain(query, format="svg"), cepheid.explain(query, EVENTS, format="svg")):
        shown = assert_readable(svg)
        assert shown[0].split()[0] == str(query).split()[0] and any(label.startswith("query") for label in shown)
    assert any(label.startswith("evaluator: ") for label in shown)
    assert not any("``" in label for label in shown)


@pytest.mark.parametrize("evaluator", ["stacks", "tree", "reference"])
def test_notebooks_show_a_picture_of_every_plan(evaluator: str) -> None:
    plan = cepheid.explain(QUERIES["sase"], EVENTS, evaluator=evaluator)
    assert isinstance(plan, Explained)
    assert any(label.startswith(f"evaluator: {evaluator}") for label in assert_readable(plan._repr_html_()))


def test_pages_wrap_the_text_of_a_query_and_code_has_no_picture() -> None:
    page = cepheid.explain(QUERIES["long"], format="html")
    assert "white-space: pre-wrap" in page and "overflow-x" not in page
    assert "def step(" in cepheid.explain(QUERIES["sase"], EVENTS, level="code")
    with pytest.raises(InputProblem, match="generated code has no format `svg`"):
        cepheid.explain(QUERIES["sase"], EVENTS, level="code", format="svg")


def test_a_query_prints_as_its_text_and_shows_a_picture() -> None:
    for text in QUERIES.values():
        query = cepheid.parse(text)
        assert str(query) == f"{query}" == cepheid.to_text(query)
        assert str(pickle.loads(pickle.dumps(query))) == str(query)
        assert query._repr_html_() == cepheid.explain(query, format="svg")


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("events", [None, EVENTS], ids=["query", "plan"])
def test_a_page_has_a_picture_in_every_language(name: str, events: pa.Table | None) -> None:
    page = cepheid.explain(QUERIES[name], events, format="html")
    drawn = "".join(re.findall(r"<svg .*?</svg>", page, re.DOTALL))
    assert re.search(">query[^<]*</text>", drawn) and (events is None or ">evaluator: " in drawn)
    assert "<li>evaluator: " in page or events is None  # as text, too


def test_the_page_shows_the_text_of_the_query() -> None:
    page = cepheid.explain(QUERIES["zstream"], format="html")
    assert "<pre>PATTERN A;!B;C\nWHERE A.v &lt; C.v AND" in page


HOSTILE = '</text><script>alert("1")</script> \\" ]\n; & \x1b[2J ' + "word" * 400
EVIL = Explanation(
    Node(HOSTILE, (Node(HOSTILE),)),
    ((HOSTILE, Automaton((HOSTILE, "F"), (Edge("begin", HOSTILE, "F", HOSTILE),), (HOSTILE,))),),
    HOSTILE,
)


def test_hostile_labels_stay_text_and_are_wrapped() -> None:
    assert_readable(render_svg(EVIL))
    for rendered in (render_svg(EVIL), render_html(EVIL)):
        assert "<script" not in rendered and "\x1b" not in rendered
    tags = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(render_svg(EVIL)).iter()}
    assert tags == {"svg", "defs", "marker", "path", "rect", "g", "text", "circle"}


def test_wide_characters_stay_in_their_frames() -> None:
    text = "ログインに失敗しました" * 12
    automaton = Automaton(("失敗した[1]", "F"), (Edge("begin", "失敗した[1]", "F", "失敗" * 100),))
    svg = render_svg(Explanation(Node(text, (Node("x" + text),)), (("automaton", automaton),), text))
    assert "失…[1]" in assert_readable(svg)
    frames = [float(frame.get("width", "")) for frame in ElementTree.fromstring(svg).iterfind(f"{SVG}g/{SVG}rect")]
    assert len(frames) == 3 and all(1000 < width <= 1168 for width in frames)


def test_lines_of_a_tree_do_not_lie_over_one_another() -> None:
    svg = render_svg(Explanation(Node("a", tuple(Node(c) for c in "bcd"))))
    stems = [tuple(map(float, found)) for found in re.findall(r"M14 ([\d.]+) V([\d.]+)", svg)]
    assert len(stems) == 3 and [start for start, _ in stems[1:]] == [end for _, end in stems[:-1]]


def test_graphviz_labels_are_wrapped() -> None:
    for label in re.findall(r'label="((?:[^"\\]|\\.)*)"', render_dot(EVIL)):
        assert all(len(line.replace("\\\\", "\\").replace('\\"', '"')) <= 36 for line in re.split(r"(?<!\\)\\n", label))


def test_states_with_long_names_show_their_index() -> None:
    query = "PATTERN SEQ(A+ measurement[], B measured) WHERE skip_till_next_match(measurement[], measured) { [k] }"
    shown = assert_readable(cepheid.explain(query, format="svg"))
    assert {"me…[1]", "me…[i]", "measu…"} <= set(shown)
    assert any("dashed ones ignore" in label for label in shown)


def test_a_negation_is_below_the_automaton_and_a_border_is_inside_the_picture() -> None:
    query = "PATTERN SEQ(A a, ANY(B, C){2,} b[], ~(E e), S s) WHERE skip_till_any_match { b[1].v = b[1].v } WITHIN 9"
    for format in ("svg", "html"):
        shown = cepheid.explain(query, format=format)
        assert "a match is removed if e occurs after b and before s: type is E" in shown, format
        assert "b[1].v IS NOT NULL" in shown
    for picture in re.findall(r"<svg.*?</svg>", cepheid.explain(query, format="html"), re.DOTALL):
        assert '<g transform="translate(1 1)">' in picture
