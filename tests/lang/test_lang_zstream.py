"""ZStream's language: every query and pattern the paper prints, printing back, and what errors say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from lang_harness import is_query, problem
from sample_events import require_compiled

from cepheid.errors import PatternProblem
from cepheid.events import Duration
from cepheid.expr import Aggregate, Arithmetic, Attr, Compare, Const, Expr, Or, Param, Same, Whole
from cepheid.lang import parse as parse_any
from cepheid.lang import recognise, zstream
from cepheid.lang.zstream import parse, recognises, to_text
from cepheid.pattern import Column, Conj, Disj, EventClass, Iteration, Kleene, Neg, Pattern, Query, Seq

TEN_SECONDS = Duration(10, "s")


def named(*names: str) -> tuple[EventClass, ...]:
    return tuple(EventClass(name, by_name=True) for name in names)


T1, T2, T3 = named("T1", "T2", "T3")
IBM, SUN, ORACLE, GOOGLE = named("IBM", "Sun", "Oracle", "Google")
A, B, C, D = named("A", "B", "C", "D")


def query(pattern: Pattern, *where: Expr, window: Duration | None = None, output: object = None) -> Query:
    columns = None if output is None else tuple(Column(name, expr) for name, expr in output)  # type: ignore[attr-defined]
    return Query(pattern, zstream.DIALECT, where=where, window=window, output=columns)


def whole(*names: str) -> list[tuple[str, Expr]]:
    return [(name, Whole(name)) for name in names]


def price(var: str) -> Attr:
    return Attr(var, "price")


def percent(name: str) -> Expr:
    return Arithmetic("/", Param(name), Const(100))


QUERIES: dict[str, tuple[str, Query]] = {
    "1": (
        """
        PATTERN  T1;T2;T3
        WHERE    T1.name = T3.name
        AND      T2.name = 'Google'
        AND      T1.price > (1 + x%) * T2.price
        AND      T3.price < (1 - y%) * T2.price
        WITHIN   10 secs
        RETURN   T1, T2, T3
        """,
        query(
            Seq((T1, T2, T3)),
            Compare("=", Attr("T1", "name"), Attr("T3", "name")),
            Compare("=", Attr("T2", "name"), Const("Google")),
            Compare(">", price("T1"), Arithmetic("*", Arithmetic("+", Const(1), percent("x")), price("T2"))),
            Compare("<", price("T3"), Arithmetic("*", Arithmetic("-", Const(1), percent("y")), price("T2"))),
            window=TEN_SECONDS,
            output=whole("T1", "T2", "T3"),
        ),
    ),
    "2": (
        """
        PATTERN  T1;!T2;T3
        WHERE    T1.name = T2.name = T3.name
        AND      T1.price > x
        AND      T2.price < x
        AND      T3.price > x * (1 + 20%)
        WITHIN   10 secs
        RETURN   T1, T3
        """,
        query(
            Seq((T1, Neg(T2), T3)),
            Compare("=", Attr("T1", "name"), Attr("T2", "name")),
            Compare("=", Attr("T1", "name"), Attr("T3", "name")),
            Compare("=", Attr("T2", "name"), Attr("T3", "name")),
            Compare(">", price("T1"), Param("x")),
            Compare("<", price("T2"), Param("x")),
            Compare(">", price("T3"), Arithmetic("*", Param("x"), Arithmetic("+", Const(1), Const(0.2)))),
            window=TEN_SECONDS,
            output=whole("T1", "T3"),
        ),
    ),
    "4": (
        """
        PATTERN  IBM; Sun; Oracle
        WHERE    IBM.price > Sun.price
        WITHIN   200 units
        """,
        query(Seq((IBM, SUN, ORACLE)), Compare(">", price("IBM"), price("Sun")), window=Duration(200)),
    ),
    "5": ("PATTERN IBM; Sun; Oracle\nWITHIN 200 units", query(Seq((IBM, SUN, ORACLE)), window=Duration(200))),
    "6": (
        """
        PATTERN  IBM; Sun; Oracle; Google
        WHERE    Oracle.price > Sun.price
        AND      Oracle.price > Google.price
        WITHIN  100 units
        """,
        query(
            Seq((IBM, SUN, ORACLE, GOOGLE)),
            Compare(">", price("Oracle"), price("Sun")),
            Compare(">", price("Oracle"), price("Google")),
            window=Duration(100),
        ),
    ),
    "7": ("PATTERN  IBM;!Sun;Oracle\nWITHIN   200 units", query(Seq((IBM, Neg(SUN), ORACLE)), window=Duration(200))),
    "8": (
        """
        PATTERN  Publication; Project; Course
        WHERE    same IP address
        WITHIN   10 hours
        """,
        query(Seq(named("Publication", "Project", "Course")), Same("IP"), window=Duration(10, "h")),
    ),
}

QUERY_3 = """
PATTERN  T1;{closure};T3
WHERE    T1.name = T3.name
WHERE    T2.name = 'Google'
AND      sum(T2.volume) > v
AND      T3.price > (1 + 20%) * T1.price
WITHIN   10 secs
RETURN   T1, sum(T2.volume), T3
"""
VOLUME = Aggregate("sum", "T2", "volume")
QUERY_3_READ = query(
    Seq((T1, Kleene(T2, 5, 5), T3)),
    Compare("=", Attr("T1", "name"), Attr("T3", "name")),
    Compare("=", Attr("T2", "name"), Const("Google")),
    Compare(">", VOLUME, Param("v")),
    Compare(">", price("T3"), Arithmetic("*", Arithmetic("+", Const(1), Const(0.2)), price("T1"))),
    window=TEN_SECONDS,
    output=[("T1", Whole("T1")), ("sum(T2.volume)", VOLUME), ("T3", Whole("T3"))],
)
for spelling in ("T25", "T2⁵", "T2^5", "T2{5}", "T2^{5}"):
    QUERIES[f"3 as {spelling}"] = (QUERY_3.format(closure=spelling), QUERY_3_READ)


@pytest.mark.parametrize("name", QUERIES)
def test_queries_of_the_paper_are_compiled(name: str) -> None:
    require_compiled(QUERIES[name][0], "zstream")


@pytest.mark.parametrize("name", QUERIES)
def test_queries_of_the_paper(name: str) -> None:
    text, expected = QUERIES[name]
    assert recognises(text)
    assert parse(text) == expected
    assert parse_any(text) == expected
    assert parse(to_text(expected)) == expected


PATTERNS = {
    # §3.1, and §5.2.1's two expressions
    "A; B": Seq((A, B)),
    "A;!B;C": Seq((A, Neg(B), C)),
    "A&B": Conj((A, B)),
    "A|B": Disj((A, B)),
    "A*": Kleene(A, 0, None),
    "A+": Kleene(A, 1, None),
    "A^5": Kleene(A, 5, 5),
    "A; (!B &!C); D": Seq((A, Conj((Neg(B), Neg(C))), D)),
    r"$A; (!B \&!C); D$": Seq((A, Conj((Neg(B), Neg(C))), D)),
    "A; !(B|C); D": Seq((A, Neg(Disj((B, C))), D)),
    # §4.4, figure 6
    "A; B²; C": Seq((A, Kleene(B, 2, 2), C)),
    "A; B*; C": Seq((A, Kleene(B, 0, None), C)),
    # how tightly operators bind
    "A;B&C": Seq((A, Conj((B, C)))),
    "A;B|C&D": Seq((A, Disj((B, Conj((C, D)))))),
    "A&B|C;D": Seq((Disj((Conj((A, B)), C)), D)),
    "(A;B)&C": Conj((Seq((A, B)), C)),
    "A&(B|C)": Conj((A, Disj((B, C)))),
    "!B+;A": Seq((Neg(Kleene(B)), A)),
    # brackets of the same kind say nothing
    "A;(B;C)": Seq((A, B, C)),
    "((A;B);C);D": Seq((A, B, C, D)),
    "(A|B)|C": Disj((A, B, C)),
    "A&(B&C)": Conj((A, B, C)),
    "((A))": A,
    # names
    "Trade t; A": Seq((EventClass("t", ("Trade",)), A)),
    "web-access w; A": Seq((EventClass("w", ("web-access",)), A)),
    "Trade t+": Kleene(EventClass("t", ("Trade",))),
    "ANY(Buy, Sell) x; A": Seq((EventClass("x", ("Buy", "Sell")), A)),
    "ANY(*) x": EventClass("x"),
    "A{2,}": Kleene(A, 2, None),
    "A{2,3}": Kleene(A, 2, 3),
    "T¹²": Kleene(EventClass("T", by_name=True), 12, 12),
    "A ∧ ¬B": Conj((A, Neg(B))),
}


@pytest.mark.parametrize("text", PATTERNS)
def test_patterns(text: str) -> None:
    read = parse(f"PATTERN {text}")
    assert read == query(PATTERNS[text])
    assert parse(to_text(read)) == read


def test_clauses_are_optional_and_keywords_come_in_any_case() -> None:
    assert parse("pattern A;B within w limit 3") == Query(Seq((A, B)), zstream.DIALECT, window=Duration("w"), limit=3)
    assert parse("Pattern A where A.x = 1 -- a comment\n or A.y = 2 Return A.x as x").where == (
        Or((Compare("=", Attr("A", "x"), Const(1)), Compare("=", Attr("A", "y"), Const(2)))),
    )


def test_a_hyphenated_class_can_be_referred_to_by_its_name() -> None:
    read = parse("PATTERN web-access; B WHERE web-access.ip = B.ip RETURN web-access.ip")
    assert read.where == (Compare("=", Attr("web-access", "ip"), Attr("B", "ip")),)
    assert parse(to_text(read)) == read


def test_attributes_named_like_the_words_of_query_8() -> None:
    assert parse("PATTERN A;B WHERE same address").where == (Same("address"),)
    assert parse("PATTERN same;B WHERE same.x = B.x").where == (Compare("=", Attr("same", "x"), Attr("B", "x")),)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        # T25 is referred to, or T2 is bound, or nothing is referred to: the digits belong to the name
        ("PATTERN T1;T25 WHERE T25.a = 1", Seq(named("T1", "T25"))),
        ("PATTERN T2;T25 WHERE T2.a = 1", Seq(named("T2", "T25"))),
        ("PATTERN T1;T25", Seq(named("T1", "T25"))),
        # or either could have been meant
        ("PATTERN T1;T25 WHERE T.a = 1", Seq(named("T1", "T25"))),
        # otherwise to the closure, as far as the unbound name leaves them
        ("PATTERN A;T25 WHERE T.a = 1", Seq((A, Kleene(EventClass("T", by_name=True), 25, 25)))),
        ("PATTERN A;T25 WHERE T.a = T2.a", Seq((A, Kleene(T2, 5, 5)))),
        ("PATTERN T1;T25 RETURN T2", Seq((T1, Kleene(T2, 5, 5)))),
    ],
)
def test_a_lost_superscript_is_only_seen_where_nothing_else_fits(text: str, pattern: Pattern) -> None:
    assert parse(text).pattern == pattern


ERRORS = {
    "PATTERN (A;B)++": ((1, 9), "a closure of a closure"),
    "PATTERN A++": ((1, 9), "a closure of a closure"),
    "PATTERN A;(!B)+;C": ((1, 12), "a closure of a negation"),
    "PATTERN A;!(B;C)+;D": ((1, 11), "a closure cannot be negated"),
    "PATTERN A;(B;A)+": ((1, 9), "the variable `A` is declared twice"),
    "PATTERN A;(B;C)+;D WITHIN 5 events": ((1, 27), "a closure of a group in a window that counts events"),
    "PATTERN A;(B;C)+ RETURN B": ((1, 25), "`B` is one event of each occurrence of a group"),
    "PATTERN A;(B|C)+ RETURN count(B)": ((1, 25), "`count(B)`: not every occurrence of the group has a `B`"),
    "PATTERN A;(B;(C|D))+ WHERE C.x = A.x": ((1, 28), "`C.x`: not every occurrence of the group has one `C`"),
    "PATTERN A;(B;!X;C)+ WHERE X.x = A.x": ((1, 27), "`X.x`: not every occurrence of the group has one `X`"),
    "PATTERN (B|C)+ WHERE B.x = C.x": (
        (1, 22),
        "`B.x = C.x` compares events of two branches of a group, of which each occurrence has one",
    ),
    "PATTERN (A;B)+;M;(C;D)+ WHERE A.x = D.x": ((1, 31), "`A.x = D.x` compares the occurrences of two groups"),
    "PATTERN A;!!B": ((1, 11), "a negation of a negation"),
    "PATTERN A;B^0": ((1, 11), "a closure of no events"),
    "PATTERN A;B{3,2}": ((1, 11), "a closure of 3 to 2 events"),
    "PATTERN A;B^2.5": ((1, 13), "`2.5` is not a number of events"),
    "PATTERN A;WHERE--x": ((1, 11), "unexpected `WHERE`"),
    "PATTERN A;;B": ((1, 11), "unexpected `;`"),
    "PATTERN A;B\nWITHIN": ((2, 7), "the text ends too early"),
    "PATTERN A;B\nWERE A.x = 1": ((2, 6), "unexpected `A`"),
    "PATTERN A;B WHERE A.x < B.x < 3": ((1, 23), "`<` in a chain of comparisons"),
    "PATTERN A;B WHERE A.x = C.x": ((1, 25), "unknown variable `C`"),
    "PATTERN !A": ((1, 9), "the pattern has only negated components"),
    "PATTERN A;B LIMIT 2.5": ((1, 19), "`2.5` is not a whole number"),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_say_where_and_what(text: str) -> None:
    error = problem(text)
    assert (error.position, error.what) == ERRORS[text]


def test_a_misspelt_keyword_that_passed_for_a_name() -> None:
    error = problem("PATTERN A;B WERE A.x = 1")
    assert error.hint == "did you mean `WHERE` instead of `WERE`?"


def test_an_error_as_a_person_reads_it() -> None:
    error = problem("PATTERN T1;((T2;T3)+)+\nWITHIN 10 secs")
    assert str(error) == (
        "error: a closure of a closure\n"
        "  at query, line 1, column 13\n"
        "  1 | PATTERN T1;((T2;T3)+)+\n"
        "    |             ^^^^^^^^\n"
        "  expected: an event class or a group before `+`, `*` or a count\n"
        "  hint: one closure is enough"
    )


GROUPS = (
    "PATTERN A;(B;C)+;D\nWHERE B.k = C.k AND B.v > A.v\nWITHIN 9 units\nRETURN sum(B.v), count(B_C) AS n",
    "PATTERN A;(B|C)^2;D\nWHERE [k] AND B.v > A.v\nWITHIN 9 units",
    "PATTERN ((B b+;C)|(D;!E;F)){2,};G\nWHERE sum(b.v) > 2 AND E.v = 1 AND F.v < G.v\nWITHIN 9 units",
    "PATTERN A;((B;C)+;D)*\nWHERE B.v < C.v AND [k]\nWITHIN 9 units\nLIMIT 4",
)


@pytest.mark.parametrize("text", GROUPS)
def test_a_closure_of_a_group_is_written_in_its_place(text: str) -> None:
    read = parse_any(text)
    assert str(read) == text
    assert parse_any(str(read)) == read


def test_a_closure_of_a_group_is_a_closure_of_its_query() -> None:
    group = "PATTERN B b;C c WHERE b.k = c.k WITHIN 9"
    by_label = parse_any(f"G: {group}\nMain: PATTERN A a;G g+;D d WHERE g.b.v > a.v WITHIN 9")
    inline = parse_any("PATTERN A a;(B b;C c)+;D d WHERE b.k = c.k AND b.v > a.v WITHIN 9")
    (inner,) = inline.inputs
    assert isinstance(inner, Query) and inner.name == "(B b;C c)"
    assert replace(inner, name="G") == by_label.inputs[0]
    assert inline.roles["b_c"].event_class.types == ("(B b;C c)",) and len(inline.where) == len(by_label.where)


def test_every_node_knows_its_place() -> None:
    text = "PATTERN A; (B c & !D) WHERE A.x = c.x"
    read = parse(text)
    assert isinstance(read.pattern, Seq)
    spans = [read.pattern.span, *(part.span for part in read.pattern.items), read.where[0].span]
    assert [text[span.start : span.end] for span in spans if span] == ["A; (B c & !D)", "A", "B c & !D", "A.x = c.x"]


def test_what_zstream_cannot_say_has_no_text() -> None:
    with pytest.raises(PatternProblem, match="Iteration has no text"):
        to_text(query(Iteration(A)))


def test_telling_zstream_from_sase_plus() -> None:
    for text in ("PATTERN A;B", "PATTERN (A|B);C WITHIN 3", "PATTERN A+", "/* SEQ( */ pattern A"):
        assert recognise(text) is zstream.DIALECT
    assert not recognises("EVENT SEQ(A a)")
    assert not recognises("PATTERN SEQ(A a, B b)")


# --- generated --------------------------------------------------------------------------------------------------------

NAMES = st.from_regex(r"[A-Z][a-z]{0,2}", fullmatch=True)


@st.composite
def classes(draw: st.DrawFn) -> EventClass:
    var = draw(NAMES)
    types = draw(st.lists(st.sampled_from(["Buy", "web-access", "T_1"]), max_size=2, unique=True))
    return EventClass(var, tuple(types), by_name=not types and draw(st.booleans()))


@st.composite
def closures(draw: st.DrawFn) -> Pattern:
    low = draw(st.integers(0, 9))
    return Kleene(draw(classes()), low, draw(st.none() | st.integers(max(low, 1), 12)))


def patterns(depth: int = 3, within: type[Pattern] | None = None) -> st.SearchStrategy[Pattern]:
    """Trees as the parser gives them: no operator directly inside one of its own kind."""
    leaves: st.SearchStrategy[Pattern] = classes() | closures()
    if depth == 0:
        return leaves
    kinds = [kind for kind in (Seq, Conj, Disj) if kind is not within]
    options = [st.lists(patterns(depth - 1, kind), min_size=2, max_size=3).map(_make(kind)) for kind in kinds]
    if within is not Neg:
        options.append(patterns(depth - 1, Neg).map(Neg))
    return st.one_of(leaves, *options)


def _make(kind: type[Seq] | type[Conj] | type[Disj]):  # type: ignore[no-untyped-def]
    return lambda items: kind(tuple(items))


@given(patterns(), st.integers(0, 50), st.sampled_from(["s", "h", "units", "events", "ms"]))
@settings(max_examples=examples(150), deadline=None)
def test_what_is_printed_reads_back(pattern: Pattern, amount: int, unit: str) -> None:
    written = query(pattern, Same("k"), window=Duration(amount, unit))
    assert parse(to_text(written)) == written


WORDS = """PATTERN WHERE WITHIN RETURN LIMIT A B T25 T2 ; ; & | ! ( ) + * ^5 ⁵ {2, } .x = = < 10 secs AND OR NOT same
address ANY sum( , 's' % [ ] [k] AS x -- /* $ \\ ∧ - T1.a"""
PIECES = st.sampled_from([*WORDS.split(), "\n"])


@given(st.lists(PIECES, max_size=14).map(" ".join) | st.text(max_size=40))
@settings(max_examples=examples(200), deadline=None)
def test_any_text_is_a_query_or_an_error_of_ours(rest: str) -> None:
    is_query(f"PATTERN {rest}")
