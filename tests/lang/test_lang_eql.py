"""NEXT's EQL and stream definitions: the paper's queries, grouping, printing back, and what errors say."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from lang_harness import is_query, problem
from sample_events import require_compiled

from cepheid.errors import CepheidError, PatternProblem
from cepheid.events import Duration
from cepheid.expr import And, Arithmetic, At, Attr, Compare, Const, Contains, Expr, Filter, OccursWithin, Whole
from cepheid.lang import eql, recognise
from cepheid.lang import parse as parse_any
from cepheid.lang import to_text as any_text
from cepheid.lang.eql import parse, recognises, to_text
from cepheid.pattern import (
    Column,
    Disj,
    EventClass,
    Filtered,
    Iteration,
    Next,
    Pattern,
    Query,
    SourceStream,
    Timer,
    Unless,
)
from cepheid.types import BOOLEAN, INTEGER, STRING, UNKNOWN


def t(alias: str) -> EventClass:
    return EventClass(alias, ("t",))


def own(name: str) -> EventClass:
    return EventClass(name, (name,))


E1, E2, E3, E4 = own("E1"), own("E2"), own("E3"), own("E4")


def same_account(left: str, right: str) -> Expr:
    return Filter(Compare("=", Attr(left, "acc"), Attr(right, "acc")))


def amount(var: str, op: str, value: int) -> Expr:
    return Compare(op, Attr(var, "amount"), Const(value))


QUERIES: dict[str, tuple[str, Query]] = {
    "§1.1": (
        """
        SELECT * FROM ( t S1 ; t S2 ; t L )
        WHERE FILTER(S1.acc = S2.acc), FILTER(S2.acc = L.acc),
              S1.amount < 100 AND S2.amount < 100 AND
              L.amount > 250 AND (S1, L) OCCURS WITHIN 12 hours
        """,
        Query(
            Next(Next(t("S1"), t("S2")), t("L")),
            eql.DIALECT,
            where=(
                same_account("S1", "S2"),
                same_account("S2", "L"),
                amount("S1", "<", 100),
                amount("S2", "<", 100),
                amount("L", ">", 250),
                OccursWithin("S1", "L", Duration(12, "h")),
            ),
        ),
    ),
    "§3.4": (
        """
        SELECT * FROM ( t T1; t T2; t T3 )
        WHERE FILTER(T1.acc = T2.acc), FILTER(T2.acc = T3.acc),
              T1.amount > 1000 AND T2.amount > 1000
              AND T3.amount > 1000
        """,
        Query(
            Next(Next(t("T1"), t("T2")), t("T3")),
            eql.DIALECT,
            where=(
                same_account("T1", "T2"),
                same_account("T2", "T3"),
                amount("T1", ">", 1000),
                amount("T2", ">", 1000),
                amount("T3", ">", 1000),
            ),
        ),
    ),
    "§3.5": (
        """
        SELECT * FROM t T1+; t T2
        WHERE ALL(T1.currency) <> T2.currency
        """,
        Query(
            Next(Iteration(t("T1")), t("T2")),
            eql.DIALECT,
            where=(Compare("!=", Attr("T1", "currency", At.ALL), Attr("T2", "currency")),),
        ),
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_queries_of_the_paper_are_compiled(name: str) -> None:
    require_compiled(QUERIES[name][0], "eql")


@pytest.mark.parametrize("name", QUERIES)
def test_queries_of_the_paper(name: str) -> None:
    text, expected = QUERIES[name]
    assert recognise(text) is eql.DIALECT
    assert parse(text) == expected
    assert parse_any(text) == expected
    assert parse(to_text(expected)) == expected


PATTERNS: dict[str, Pattern] = {
    # §3.4, §4.3 and their figures
    "E1|E2": Disj((E1, E2)),
    "E1; E2": Next(E1, E2),
    "E1+": Iteration(E1),
    r"E1 \ E2": Unless(E1, E2),
    r"E1 \setminus E2": Unless(E1, E2),
    "E1@10 min": Timer(E1, Duration(10, "min")),
    "E1; (E2; E3)": Next(E1, Next(E2, E3)),
    "(E1; E2); E3": Next(Next(E1, E2), E3),
    r"E1;(E2\E3)": Next(E1, Unless(E2, E3)),
    r"(E1;E2)\E3": Unless(Next(E1, E2), E3),
    "E1|(E2|E3)": Disj((E1, Disj((E2, E3)))),
    "(E1|(E4|(E2|E3)))": Disj((E1, Disj((E4, Disj((E2, E3)))))),
    "E1|E2|E3|E4": Disj((E1, E2, E3, E4)),
    # how tightly operators bind
    "E1; E2; E3": Next(Next(E1, E2), E3),
    r"E1; E2 \ E3": Next(E1, Unless(E2, E3)),
    r"E1 \ E2 \ E3": Unless(Unless(E1, E2), E3),
    r"E1 \ (E2 \ E3)": Unless(E1, Unless(E2, E3)),
    r"E1 | E2 \ E3 | E4": Unless(Disj((E1, E2)), Disj((E3, E4))),
    "E1; E2|E3": Next(E1, Disj((E2, E3))),
    "(E1; E2)+": Iteration(Next(E1, E2)),
    "E1 | E2+": Disj((E1, Iteration(E2))),
    "E1+ @ 3 secs": Timer(Iteration(E1), Duration(3, "s")),
    "E1 @ 3; E2": Next(Timer(E1, Duration(3)), E2),
    "E1 @ w hours | E2": Disj((Timer(E1, Duration("w", "h")), E2)),
    # operands
    "t T1+": Iteration(t("T1")),
    "card-use c; E1": Next(EventClass("c", ("card-use",)), E1),
    "t": t("t"),
}


@pytest.mark.parametrize("text", PATTERNS)
def test_patterns(text: str) -> None:
    read = parse(f"SELECT * FROM {text}")
    assert read == Query(PATTERNS[text], eql.DIALECT)
    assert parse(to_text(read)) == read


def test_selection() -> None:
    read = parse("select S1.acc, S1.acc as account, S1, S1.amount + L.amount as total from t S1; t L")
    assert read.output == (
        Column("S1.acc", Attr("S1", "acc")),
        Column("account", Attr("S1", "acc")),
        Column("S1", Whole("S1")),
        Column("total", Arithmetic("+", Attr("S1", "amount"), Attr("L", "amount"))),
    )
    assert parse(to_text(read)) == read
    assert parse("SELECT * FROM t").output is None


def test_qualifications() -> None:
    read = parse(
        "SELECT * FROM t T1+; t T2 WHERE FILTER(T1.a = 1 AND T1.b = 2) AND PREV(T1.x) < T1.x, "
        "T2.text CONTAINS 'fraud' AND (T1.a = 1 OR T2.a = 1), T1.x <> -T2.x / 2"
    )
    assert read.where[:3] == (
        Filter(And((Compare("=", Attr("T1", "a"), Const(1)), Compare("=", Attr("T1", "b"), Const(2))))),
        Compare("<", Attr("T1", "x", At.PREVIOUS), Attr("T1", "x")),
        Contains(Attr("T2", "text"), Const("fraud")),
    )
    assert len(read.where) == 5
    assert "PREV(T1.x) < T1.x" in to_text(read)
    assert parse(to_text(read)) == read


def test_filter_is_known_whatever_stands_between_it_and_its_bracket() -> None:
    expected = (Filter(Compare("=", Attr("t", "x"), Const(1))),)
    for gap in ("", " ", "\n", " /* φ */ ", "$"):
        assert parse(f"SELECT * FROM t WHERE FILTER{gap}(t.x = 1)").where == expected


DEFINED = (
    SourceStream("t", (("acc", INTEGER), ("country", STRING), ("ok", BOOLEAN), ("at", UNKNOWN))),
    SourceStream("card-use", (("acc", INTEGER),)),
)


@pytest.mark.parametrize(
    "text",
    [
        "SOURCE t (acc int, country string, ok bool, at timestamp) SOURCE card-use (acc long)\n"
        "SELECT * FROM t; card-use",
        "create source t (acc LONG, country String, ok boolean, at any); register source card-use (acc integer);\n"
        "select * from t; card-use;",
    ],
)
def test_stream_definitions(text: str) -> None:
    read = parse(text)
    assert recognises(text)
    assert read == Query(Next(t("t"), own("card-use")), eql.DIALECT, inputs=DEFINED)
    assert parse(to_text(read)) == read
    assert parse_any(any_text(read)) == read


def test_a_labelled_query_counts_as_defined() -> None:
    text = "small:\nPATTERN A;B\n\nfraud:\nSOURCE t (acc int)\nSELECT * FROM t; small"
    read = parse_any(text)
    assert [item.name for item in read.inputs] == ["small", "t"]
    assert parse_any(any_text(read)) == read


ERRORS = {
    "SOURCE trades (acc int)\nSELECT * FROM trade": ((2, 15), "unknown event type `trade`", "did you mean `trades`?"),
    "SOURCE t (acc itn) SELECT * FROM t": ((1, 15), "unknown type `itn`", "did you mean `int`?"),
    "SELECT * FORM t": ((1, 10), "unexpected `FORM`", "did you mean `FROM`?"),
    "SELECT * FROM t WHER t.a = 1": ((1, 22), "unexpected `t`", "did you mean `WHERE` instead of `WHER`?"),
    "SELECT * FROM t; t": ((1, 18), "the variable `t` is declared twice", "give one of them another name: t t2"),
    "SELECT * FROM t A; t B WHERE FILTER(A.x = 1) OR B.x = 1": (
        (1, 30),
        "FILTER inside another condition",
        "put the whole condition inside one FILTER",
    ),
    "SELECT * FROM t A; t B WHERE A.x = C.x": ((1, 36), "unknown variable `C`", None),
    "SELECT * FROM t A WHERE (A, B) OCCURS WITHIN 1 min": ((1, 25), "unknown variable `B`", None),
    "SELECT * FROM t A WHERE PREV(3) = 1": ((1, 25), "`PREV` takes one attribute", None),
    "SELECT * FROM t A @": ((1, 20), "the text ends too early", None),
    "SELECT FROM t": ((1, 8), "unexpected `FROM`", None),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_say_where_what_and_what_instead(text: str) -> None:
    error = problem(text)
    assert (error.position, error.what, error.hint) == ERRORS[text]


def test_an_error_as_a_person_reads_it() -> None:
    error = problem("SINK alerts (acc int)\nSINK others\nSELECT * FROM t")
    assert str(error) == (
        "error: the sinks `alerts` and `others`: the matches of a query go to one\n"
        "  at query, line 2, column 6\n"
        "  2 | SINK others\n"
        "    |      ^^^^^^\n"
        "  expected: one sink"
    )


def test_a_sink_names_the_stream_of_the_matches() -> None:
    query = parse_any("SINK alerts (acc int)\nSELECT * FROM t")
    assert query.name == "alerts"
    assert parse_any(any_text(query)) == query


def test_a_sink_names_a_query_that_others_use() -> None:
    first = "SOURCE t (acc int)\nSINK big-ones (acc int);\nSELECT A.acc AS acc FROM t A"
    second = "REGISTER SINK more\nSELECT * FROM big-ones a"
    read = parse_any(f"{first}\n{second}\nlast: EVENT SEQ(more m, big-ones b)")
    assert read == parse_any(any_text(read))
    assert [item.name for item in read.inputs] == ["big-ones", "more"] and read.name == "last"
    assert parse_any(f"{first}\n{second}").name == "more"
    labelled = parse_any(f"first: {first}\nlast: EVENT SEQ(first f)")
    assert [item.name for item in labelled.inputs] == ["first"]
    with pytest.raises(CepheidError, match="two queries are called `big-ones`"):
        parse_any(f"{first}\n{first}")
    with pytest.raises(CepheidError, match="a query without a label"):
        parse_any("SOURCE t (acc int)\nSELECT * FROM t\nlast: EVENT A a")


def test_a_pattern_too_deep_to_walk_is_refused() -> None:
    with pytest.raises(CepheidError, match="nested more than 200 deep"):
        parse("SELECT * FROM " + "; ".join(f"E{i}" for i in range(300)))
    with pytest.raises(CepheidError, match="nested more than 200 deep"):
        parse("SELECT * FROM E" + "+" * 300)


def test_every_node_knows_its_place() -> None:
    text = r"SELECT * FROM t A; (t B+ \ E3) WHERE FILTER(A.x = B.x)"
    read = parse(text)
    assert isinstance(read.pattern, Next)
    spans = [read.pattern.span, read.pattern.left.span, read.pattern.right.span, read.where[0].span]
    assert [text[span.start : span.end] for span in spans if span][1:] == ["t A", r"t B+ \ E3", "FILTER(A.x = B.x)"]


def test_sql_row_patterns_are_not_eql() -> None:
    assert not recognises("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A B))")
    assert recognises("SELECT * FROM t -- MATCH_RECOGNIZE")


def test_the_core_filter_has_no_text() -> None:
    with pytest.raises(PatternProblem, match="Filtered has no text in EQL"):
        to_text(Query(Filtered(E1, (Const(True),)), eql.DIALECT))


# --- generated --------------------------------------------------------------------------------------------------------

LEAVES = st.builds(
    lambda source, alias: EventClass(alias or source, (source,)),
    st.sampled_from(["t", "E1", "card-use", "trade_2"]),
    st.none() | st.sampled_from(["A", "b", "S_1"]),
)
DELAYS = st.builds(Duration, st.integers(0, 90) | st.just("w"), st.sampled_from(["s", "min", "h", "units", "ms"]))


def larger(inner: st.SearchStrategy[Pattern]) -> st.SearchStrategy[Pattern]:
    return st.one_of(
        st.builds(Next, inner, inner),
        st.builds(Unless, inner, inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda items: Disj(tuple(items))),
        st.builds(Iteration, inner),
        st.builds(Timer, inner, DELAYS),
    )


@given(st.recursive(LEAVES, larger, max_leaves=8))
@settings(max_examples=examples(150), deadline=None)
def test_what_is_printed_reads_back(pattern: Pattern) -> None:
    written = Query(pattern, eql.DIALECT, where=(Filter(Compare("<", Attr("A", "x"), Const(2))),))
    assert parse(to_text(written)) == written


WORDS = r"""SELECT * FROM WHERE SOURCE CREATE SINK t A B E1 ; ; \ | + @ ( ) , FILTER( OCCURS WITHIN 12 hours .x = < <>
PREV( ALL( AND OR NOT CONTAINS 's' int [ ] AS -- /* A.x B.x count("""
PIECES = st.sampled_from([*WORDS.split(), "\n"])


@given(st.sampled_from(["SELECT * FROM ", "SELECT * FROM t A; t B+ WHERE ", ""]), st.lists(PIECES, max_size=12))
@settings(max_examples=examples(200), deadline=None)
def test_any_text_is_a_query_or_an_error_of_ours(start: str, pieces: list[str]) -> None:
    is_query(start + " ".join(pieces))
