"""The declarations of plan-based CED: the paper's examples and operator forms, scripts, printing back, and errors."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from lang_harness import is_query, problem
from sample_events import require_compiled

from cepheid.errors import CepheidError, PatternProblem
from cepheid.events import Duration
from cepheid.expr import Arithmetic, Attr, Call, Compare, Const, Expr, Param, Vector, Whole
from cepheid.lang import ced, recognise
from cepheid.lang import parse as parse_any
from cepheid.lang import to_text as any_text
from cepheid.lang.ced import parse, recognises, to_text
from cepheid.pattern import (
    Column,
    Conj,
    DerivedStream,
    Disj,
    EventClass,
    Kleene,
    Neg,
    Pattern,
    Query,
    Seq,
    SourceStream,
)
from cepheid.types import FLOAT, INTEGER

PERSON_DETECTOR = """
source person_detector
schema int id, double loc_x, double loc_y
"""
PERSON_DETECTED = """
primitive person_detected
on person_detector as PD, node
schema event_id as hash.f(person_detected, node.id, node.time, PD.id),
loc as [ PD.loc_x, PD.loc_y ],
person_id as PD.id
"""
RUNNING_PERSON = """
complex running_person
  on person_detected as PD1, person_detected as PD2, node
  schema event_id as hash_f(running_person, node.id,
                             node.time, person_id),
                             loc as PD2.loc,
                             person_id as PD1.person_id
  event seq(PD1, PD2; 3)
  where PD1.person_id = PD2.person_id
         and distance(PD1.loc, PD2.loc) ≥ 12
"""


def hashed(stream: str, last: Expr) -> Expr:
    return Call("hash_f", (Const(stream), Attr("node", "id"), Attr("node", "time"), last))


DETECTOR = SourceStream("person_detector", (("id", INTEGER), ("loc_x", FLOAT), ("loc_y", FLOAT)))
DETECTED = DerivedStream(
    "person_detected",
    "person_detector",
    "PD",
    (
        Column("event_id", hashed("person_detected", Attr("PD", "id"))),
        Column("loc", Vector((Attr("PD", "loc_x"), Attr("PD", "loc_y")))),
        Column("person_id", Attr("PD", "id")),
    ),
)


def running(*inputs: SourceStream | DerivedStream | Query) -> Query:
    return Query(
        Seq((EventClass("PD1", ("person_detected",)), EventClass("PD2", ("person_detected",))), Duration(3)),
        ced.DIALECT,
        where=(
            Compare("=", Attr("PD1", "person_id"), Attr("PD2", "person_id")),
            Compare(">=", Call("distance", (Attr("PD1", "loc"), Attr("PD2", "loc"))), Const(12)),
        ),
        output=(
            Column("event_id", hashed("running_person", Attr("PD1", "person_id"))),
            Column("loc", Attr("PD2", "loc")),
            Column("person_id", Attr("PD1", "person_id")),
        ),
        name="running_person",
        inputs=inputs,
    )


SCRIPTS = {
    "§2.1 and §2.2": (PERSON_DETECTOR + PERSON_DETECTED + RUNNING_PERSON, running(DETECTOR, DETECTED)),
    "on one line": (
        " ".join((PERSON_DETECTOR + PERSON_DETECTED + RUNNING_PERSON).split()),
        running(DETECTOR, DETECTED),
    ),
    "without the source": (PERSON_DETECTED + RUNNING_PERSON, running(DETECTED)),
    "the complex event alone": (RUNNING_PERSON, running()),
    "with what it does not use": (
        PERSON_DETECTOR
        + "source lamp schema bool lit"
        + PERSON_DETECTED
        + "complex c event or(lamp, person_detected)"
        + RUNNING_PERSON,
        running(DETECTOR, DETECTED),
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_queries_of_the_paper_are_compiled(name: str) -> None:
    require_compiled(SCRIPTS[name][0], "ced")


@pytest.mark.parametrize("name", SCRIPTS)
def test_examples_of_the_paper(name: str) -> None:
    text, expected = SCRIPTS[name]
    assert recognise(text) is ced.DIALECT
    assert parse(text) == expected
    assert parse_any(text) == expected
    assert parse(to_text(expected)) == expected
    assert parse_any(any_text(expected)) == expected


def own(*names: str) -> tuple[EventClass, ...]:
    return tuple(EventClass(name, (name,)) for name in names)


e1, e2, e3, e4, e5 = own("e1", "e2", "e3", "e4", "e5")
EVENTS: dict[str, Pattern] = {
    # §2.2
    "and(e1, e2, e3; w)": Conj((e1, e2, e3), Duration("w")),
    "seq(e1, e2, e3; w)": Seq((e1, e2, e3), Duration("w")),
    "or(e1, e2, e3)": Disj((e1, e2, e3)),
    "and(e1, e2, !e3, e4; w)": Conj((e1, e2, Neg(e3), e4), Duration("w")),
    "seq(e1, !e2, e3; w)": Seq((e1, Neg(e2), e3), Duration("w")),
    "seq(!e1, e2, e3; w)": Seq((Neg(e1), e2, e3), Duration("w")),
    "seq(e1, e2, !e3; w)": Seq((e1, e2, Neg(e3)), Duration("w")),
    # §3.1, §4.1
    "and(e1, e2; w)": Conj((e1, e2), Duration("w")),
    "and(e1, e2, e3)": Conj((e1, e2, e3)),
    # §6.2, §6.5
    "and(e1, e2, e3; w = 1)": Conj((e1, e2, e3), Duration(1)),
    "and(e1, e2, e3, e4, e5; w = 1)": Conj((e1, e2, e3, e4, e5), Duration(1)),
    "seq(e1, e2; w=30min)": Seq((e1, e2), Duration(30, "min")),
    # windows and nesting
    "seq(e1, e2; 3)": Seq((e1, e2), Duration(3)),
    "SEQ(e1, e2; 2.5 hours)": Seq((e1, e2), Duration(2.5, "h")),
    "seq(e1, and(e2, !e3; 1), or(e4, e5); 9)": Seq((e1, Conj((e2, Neg(e3)), Duration(1)), Disj((e4, e5))), Duration(9)),
    "and(or(e1, e2), seq(e3, e4; 1); 2)": Conj((Disj((e1, e2)), Seq((e3, e4), Duration(1))), Duration(2)),
    "e1": e1,
}


@pytest.mark.parametrize("text", EVENTS)
def test_operators(text: str) -> None:
    read = parse(f"complex c event {text}")
    assert read == Query(EVENTS[text], ced.DIALECT, name="c")
    assert parse(to_text(read)) == read


def test_declarations_are_nested_by_name() -> None:
    text = """
    complex pair event and(e1, e2; 5);
    complex unused event or(e1, e3)
    complex calm on pair as P, e3 as E event seq(P, !E; 9)
    complex top on calm, pair as Q, e4 event and(calm, Q, e4; 20) where Q.end_time < e4.start_time, e4.x > 1
    """
    pair = Query(Conj((e1, e2), Duration(5)), ced.DIALECT, name="pair")
    calm = Query(
        Seq((EventClass("P", ("pair",)), Neg(EventClass("E", ("e3",)))), Duration(9)), ced.DIALECT, name="calm"
    )
    read = parse(text)
    assert read.inputs == (pair, calm)
    assert read.pattern == Conj((*own("calm"), EventClass("Q", ("pair",)), e4), Duration(20))
    assert len(read.where) == 2
    assert parse(to_text(read)) == read
    assert parse_any(any_text(read)) == read


def test_bare_names_of_a_schema() -> None:
    read = parse(
        "complex alarm on e1 as A, e2 as B "
        "schema kind as alarm, first as A, level as A.level + bonus, twice as level * 2, four as twice * 2 "
        "event and(A, B; 3)"
    )
    assert read.output is not None
    columns = {column.name: column.expr for column in read.output}
    assert columns["kind"] == Const("alarm")
    assert columns["first"] == Whole("A")
    level = Arithmetic("+", Attr("A", "level"), Param("bonus"))
    assert columns["level"] == level
    assert columns["four"] == Arithmetic("*", Arithmetic("*", level, Const(2)), Const(2))
    assert parse(to_text(read)) == read


def test_a_constraint_may_name_the_node() -> None:
    read = parse_any("complex c on e1 as A, e2 as B, node event seq(A, B; 3) where A.node_id = node.id")
    assert read.where == (Compare("=", Attr("A", "node_id"), Attr("node", "id")),)
    assert parse_any(any_text(read)) == read


def test_a_labelled_query_counts_as_declared() -> None:
    text = "rise:\nPATTERN A;B\n\nresult:\nsource s schema int a\ncomplex c on s as S, rise as R event seq(S, R; 3)"
    read = parse_any(text)
    assert [item.name for item in read.inputs] == ["rise", "s"]
    assert parse_any(any_text(read)) == read


ERRORS: dict[str, tuple[tuple[int, int], str, str | None]] = {
    "source s schema int a\ncomplex c on t as T event or(T, s)": (
        (2, 14),
        "unknown event type `t`",
        "declare it before it is used",
    ),
    "source sensor schema int a\ncomplex c event or(sensr, sensor)": (
        (2, 20),
        "unknown event type `sensr`",
        "did you mean `sensor`?",
    ),
    "source sensor schema int a\nprimitive p on senor as S schema a as S.a complex c event or(p, sensor)": (
        (2, 16),
        "unknown event type `senor`",
        "did you mean `sensor`?",
    ),
    "source s schema int a, strng b": ((1, 24), "unknown type `strng`", "did you mean `string`?"),
    "source s schema int a": ((1, 8), "the script declares no complex event", "complex NAME on ... event seq(...)"),
    "complex c event or(a, b)\ncomplex c event or(a, b)": ((2, 9), "`c` is declared twice", None),
    "complex c event seq(d, e; 1)\ncomplex d event or(a, b)": (
        (1, 21),
        "`d` is used before it is declared",
        "move the declaration of `d` up",
    ),
    "complex c event seq(c, e; 1)": ((1, 21), "`c` is used before it is declared", "move the declaration of `c` up"),
    "complex c on e as E1, e as E2 event seq(E1, E3; 1)": ((1, 45), "`E3` is not among the subevents", None),
    "complex c on e as E, e as E event or(E, e)": ((1, 22), "`E` is listed twice", "write `e as` and another name"),
    "complex c event or(a, b; 3)": ((1, 26), "`or` has no window", "it outputs each subevent as it occurs (§2.2)"),
    "complex c schema x as y, y as x event or(a, b)": (
        (1, 18),
        "the attribute `x` is defined by itself",
        "qualify the attribute: `A.attribute`",
    ),
    "complex c schema x as a.x, x as b.x event or(a, b)": ((1, 28), "the attribute `x` is declared twice", None),
    "primitive p on node schema a as node.id complex c event or(p, p)": (
        (1, 11),
        "the primitive event `p` is on no source",
        None,
    ),
    "primitive p on s as S, s as T schema a as S.a complex c event or(p, q)": ((1, 24), "`s` is listed twice", None),
    "primitive p on s as S schema a as T.a complex c event or(p, p2)": (
        (1, 61),
        "unknown event type `p2`",
        "did you mean `p`?",
    ),
    "complex c evnt or(a, b)": ((1, 11), "unexpected `evnt`", "did you mean `EVENT`?"),
    "complex c event seq(a; 3)": ((1, 22), "unexpected `;`", None),
    "complex c event seq(a, !b)": (
        (1, 24),
        "a trailing negation without a window never ends",
        "write how long the event must stay away, e.g. `; 10)`",
    ),
    "complex c event or(a, !b)": ((1, 23), "a negation is not allowed here", None),
    "complex c event or(a, b) where d.x = 1": ((1, 32), "unknown variable `d`", None),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_say_where_what_and_what_instead(text: str) -> None:
    error = problem(text)
    assert (error.position, error.what, error.hint) == ERRORS[text]


def test_an_error_as_a_person_reads_it() -> None:
    error = problem(
        PERSON_DETECTOR + PERSON_DETECTED + RUNNING_PERSON.replace("person_detected as PD2", "detected as PD2")
    )
    assert str(error) == (
        "error: unknown event type `detected`\n"
        "  at query, line 12, column 30\n"
        "  12 |   on person_detected as PD1, detected as PD2, node\n"
        "     |                              ^^^^^^^^\n"
        "  expected: one that is declared: `person_detected`, `person_detector`\n"
        "  hint: did you mean `person_detected`?"
    )


def test_schemas_that_grow_without_end_are_refused() -> None:
    doubling = ", ".join(f"a{i} as a{i + 1} + a{i + 1}" for i in range(60))
    with pytest.raises(CepheidError, match="operators once those it names are put in"):
        parse(f"complex c schema {doubling} event or(x, y)")
    chain = ", ".join(f"a{i} as a{i + 1}" for i in range(400))
    with pytest.raises(CepheidError, match="attributes nested too deep"):
        parse(f"complex c schema {chain} event or(x, y)")


def test_every_node_knows_its_place() -> None:
    text = "complex c event seq(a, !b, and(d, e; 1); 3) where a.x = d.x"
    read = parse(text)
    assert isinstance(read.pattern, Seq)
    spans = [read.pattern.span, *(part.span for part in read.pattern.items), read.where[0].span]
    assert [text[span.start : span.end] for span in spans if span] == [
        "seq(a, !b, and(d, e; 1); 3)",
        "a",
        "!b",
        "and(d, e; 1)",
        "a.x = d.x",
    ]


def test_telling_ced_from_stream_definitions() -> None:
    assert recognises("-- sensors\nSource s schema int a")
    assert recognises("complex c event or(a, b)")
    assert not recognises("SOURCE s (a int) SELECT * FROM s")


def test_what_ced_cannot_say_has_no_text() -> None:
    with pytest.raises(PatternProblem, match="Kleene has no text in CED's language"):
        to_text(Query(Kleene(e1), ced.DIALECT, name="c"))


# --- generated --------------------------------------------------------------------------------------------------------

WINDOWS = st.none() | st.builds(
    Duration, st.integers(0, 90) | st.just("w"), st.sampled_from(["units", "s", "min", "h", "ms"])
)


def patterns(depth: int = 3) -> st.SearchStrategy[Pattern]:
    leaves: st.SearchStrategy[Pattern] = st.sampled_from([e1, e2, *own("person-detected")])
    if depth == 0:
        return leaves
    inner = patterns(depth - 1)
    positive = st.lists(inner, min_size=2, max_size=3).map(tuple)
    any_sign = st.lists(inner | inner.map(Neg), min_size=2, max_size=3).map(tuple)
    return st.one_of(
        leaves, st.builds(Seq, any_sign, WINDOWS), st.builds(Conj, any_sign, WINDOWS), st.builds(Disj, positive)
    )


@given(patterns(), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_what_is_printed_reads_back(pattern: Pattern, with_node: bool) -> None:
    output = (Column("at", Attr("node", "time")),) if with_node else None
    written = Query(pattern, ced.DIALECT, name="c", output=output)
    assert parse(to_text(written)) == written


WORDS = """source primitive complex schema event where on as node int double s p c A B , , ; ; ( ) seq( and( or( ! 3 w
= < ≥ A.x B.x [ ] hash.f( distance( and or not 's' min -- /* . +"""
PIECES = st.sampled_from([*WORDS.split(), "\n"])
STARTS = ("complex c event ", "complex c on s as A, p as B schema ", "complex c event or(A, B) where ", "source s ", "")


@given(st.sampled_from(STARTS), st.lists(PIECES, max_size=12))
@settings(max_examples=examples(200), deadline=None)
def test_any_text_is_a_query_or_an_error_of_ours(start: str, pieces: list[str]) -> None:
    is_query(start + " ".join(pieces))
