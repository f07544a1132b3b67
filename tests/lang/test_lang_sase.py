"""SASE: every query of the paper as printed, what each form means, and what errors say."""

from __future__ import annotations

import pytest
from lang_harness import problem, require_error
from sample_events import require_compiled

from cepheid.errors import NameProblem, PatternProblem, SyntaxProblem
from cepheid.events import Duration
from cepheid.expr import Aggregate, And, Arithmetic, Attr, Compare, Const, Expr, Or, Over, Param, Same, Whole, children
from cepheid.lang import parse, sase, to_text
from cepheid.pattern import Column, EventClass, Neg, Pattern, Query, Seq


def query(pattern: Pattern, *where: Expr, window: Duration | None = None) -> Query:
    return Query(pattern, sase.DIALECT, where=where, window=window)


def equal(left: Expr, right: Expr) -> Expr:
    return Compare("=", left, right)


HOUR = Duration(1, "h")

Q1 = r"""Q1: EVENT  SHELF-READING
        WHERE category = ‘food’  $\wedge$  manufacturer_id = ‘1’
"""
Q2 = """Q2: EVENT SEQ(SHELF-READING x, !(COUNTER-READING y),
EXIT-READING z)
WHERE x.id = y.id ∧ x.id = z.id /* or equivalently, [id] */
WITHIN 12 hours
"""
MISPLACED = """EVENT SEQ(SHELF-READING x, SHELF-READING y,
! (ANY(COUNTER-READING, SHELF-READING) z))
WHERE [id] ^ x.shelf_id ^neq y.shelf_id ^ x.shelf_id = z.shelf_id
WITHIN 1 hour
"""
MEDICINE = """EVENT SEQ(MEDICINE-TAKEN x, MEDICINE-TAKEN y)
WHERE [name='John'] ^ [medicine='Antibiotics'] ^
(x.amount + y.amount) > 1000
WITHIN 4 hours
"""
Q3 = """Q3:  EVENT SEQ(A x1, B x2, ! (C x3), D x4)
      WHERE [attr1, attr2] ∧ x1.attr3 = '1' ∧ x1.attr4 < x4.attr4
      WITHIN T
"""
TEMPLATE = "EVENT SEQ(E1, E2, E3) WHERE [attr1] WITHIN 10000"

PRINTED = {
    Q1: Query(
        EventClass("SHELF-READING", ("SHELF-READING",)),
        sase.DIALECT,
        where=(
            equal(Attr("SHELF-READING", "category"), Const("food")),
            equal(Attr("SHELF-READING", "manufacturer_id"), Const("1")),
        ),
        name="Q1",
    ),
    Q2: Query(
        Seq(
            (
                EventClass("x", ("SHELF-READING",)),
                Neg(EventClass("y", ("COUNTER-READING",))),
                EventClass("z", ("EXIT-READING",)),
            )
        ),
        sase.DIALECT,
        where=(equal(Attr("x", "id"), Attr("y", "id")), equal(Attr("x", "id"), Attr("z", "id"))),
        window=Duration(12, "h"),
        name="Q2",
    ),
    MISPLACED: query(
        Seq(
            (
                EventClass("x", ("SHELF-READING",)),
                EventClass("y", ("SHELF-READING",)),
                Neg(EventClass("z", ("COUNTER-READING", "SHELF-READING"))),
            )
        ),
        Same("id"),
        Compare("!=", Attr("x", "shelf_id"), Attr("y", "shelf_id")),
        equal(Attr("x", "shelf_id"), Attr("z", "shelf_id")),
        window=HOUR,
    ),
    MEDICINE: query(
        Seq((EventClass("x", ("MEDICINE-TAKEN",)), EventClass("y", ("MEDICINE-TAKEN",)))),
        Same("name", Const("John")),
        Same("medicine", Const("Antibiotics")),
        Compare(">", Arithmetic("+", Attr("x", "amount"), Attr("y", "amount")), Const(1000)),
        window=Duration(4, "h"),
    ),
    Q3: Query(
        Seq(
            (
                EventClass("x1", ("A",)),
                EventClass("x2", ("B",)),
                Neg(EventClass("x3", ("C",))),
                EventClass("x4", ("D",)),
            )
        ),
        sase.DIALECT,
        where=(
            Same("attr1"),
            Same("attr2"),
            equal(Attr("x1", "attr3"), Const("1")),
            Compare("<", Attr("x1", "attr4"), Attr("x4", "attr4")),
        ),
        window=Duration("T"),
        name="Q3",
    ),
    TEMPLATE: query(
        Seq((EventClass("E1", ("E1",)), EventClass("E2", ("E2",)), EventClass("E3", ("E3",)))),
        Same("attr1"),
        window=Duration(10000),
    ),
}


@pytest.mark.parametrize("text", PRINTED)
def test_queries_of_the_paper(text: str) -> None:
    assert parse(text) == PRINTED[text]


@pytest.mark.parametrize(
    ("component", "pattern"),
    [
        ("!(B y)", Neg(EventClass("y", ("B",)))),
        ("! B y", Neg(EventClass("y", ("B",)))),
        ("~(B y)", Neg(EventClass("y", ("B",)))),
        ("NOT (B y)", Neg(EventClass("y", ("B",)))),
        ("!(B)", Neg(EventClass("B", ("B",)))),
        ("!ANY(B, C)", Neg(EventClass("ANY", ("B", "C")))),
        ("any(B, C) y", EventClass("y", ("B", "C"))),
        ("ANY(B) y", EventClass("y", ("B",))),
        ("Event event", EventClass("event", ("Event",))),
        ("Any y", EventClass("y", ("Any",))),
        ("Within-Range y", EventClass("y", ("Within-Range",))),
        ("Größe ß", EventClass("ß", ("Größe",))),
    ],
)
def test_components(component: str, pattern: Pattern) -> None:
    found = parse(f"EVENT SEQ(A x, {component}, Z z)")
    assert isinstance(found.pattern, Seq)
    assert found.pattern.items[1] == pattern
    assert parse(to_text(found)) == found


def test_components_without_variables_are_called_by_their_types() -> None:
    found = parse("EVENT SEQ(A, A, B A_3, A, ANY(A, B), ANY(A, C))")
    assert isinstance(found.pattern, Seq)
    assert [item.var for item in found.pattern.items if isinstance(item, EventClass)] == [
        "A",
        "A_2",
        "A_3",
        "A_4",
        "ANY",
        "ANY_2",
    ]
    assert to_text(found) == "EVENT SEQ(A, A, B A_3, A, ANY(A, B), ANY(A, C))"


def test_a_type_with_hyphens_can_be_referred_to() -> None:
    text = (
        "EVENT SEQ(SHELF-READING, SHELF-READING)\nWHERE 2*SHELF-READING.id-SHELF-READING_2.id > 3\nRETURN SHELF-READING"
    )
    found = parse(text)
    first, second = Attr("SHELF-READING", "id"), Attr("SHELF-READING_2", "id")
    assert found.where == (Compare(">", Arithmetic("-", Arithmetic("*", Const(2), first), second), Const(3)),)
    assert found.output == (Column("SHELF-READING", Whole("SHELF-READING")),)
    assert parse(to_text(found)) == found


@pytest.mark.parametrize("text", ["-SHELF-READING.id", "3-SHELF-READING.id", "(x.a)-SHELF-READING.id"])
def test_a_sign_before_a_type_with_hyphens(text: str) -> None:
    found = parse(f"EVENT SEQ(A x, SHELF-READING) WHERE {text} > 0")
    assert isinstance(found.where[0], Compare)
    assert Attr("SHELF-READING", "id") in children(found.where[0].left)
    assert parse(to_text(found)) == found


def test_a_subtraction_stays_one() -> None:
    found = parse("EVENT SEQ(A x, B y) WHERE x.a-y.b > T-x.c")
    assert found.where == (
        Compare(">", Arithmetic("-", Attr("x", "a"), Attr("y", "b")), Arithmetic("-", Param("T"), Attr("x", "c"))),
    )


def test_bare_names_are_attributes_only_where_there_is_one_component() -> None:
    assert parse("EVENT A x WHERE price > 3").where == (Compare(">", Attr("x", "price"), Const(3)),)
    assert parse("EVENT SEQ(A x) WHERE price > 3") == parse("EVENT A x WHERE price > 3")
    assert parse("EVENT SEQ(A x, B y) WHERE x.price > limit_").where == (
        Compare(">", Attr("x", "price"), Param("limit_")),
    )


def test_return_and_limit() -> None:
    found = parse("event seq(A x, B y) return x, y.price * 2, x.price as p, count(*) as 'all matches' limit 7")
    assert found.output == (
        Column("x", Whole("x")),
        Column("y.price * 2", Arithmetic("*", Attr("y", "price"), Const(2))),
        Column("p", Attr("x", "price")),
        Column("all matches", Aggregate("count", "*", None, Over.MATCHES)),
    )
    assert found.limit == 7
    assert parse(to_text(found)) == found
    assert parse("EVENT A RETURN price").output == (Column("price", Attr("A", "price")),)


def test_where_keeps_conjuncts_apart_and_disjunctions_whole() -> None:
    found = parse("EVENT SEQ(A x, B y) WHERE (x.a = 1 OR y.b = 2) AND (x.c = 3 AND y.d = 4)")
    either = Or((equal(Attr("x", "a"), Const(1)), equal(Attr("y", "b"), Const(2))))
    assert found.where == (either, equal(Attr("x", "c"), Const(3)), equal(Attr("y", "d"), Const(4)))
    assert to_text(found).splitlines()[1] == "WHERE (x.a = 1 OR y.b = 2) AND x.c = 3 AND y.d = 4"


def test_chained_equality_leaves_two_negatives_alone() -> None:
    found = parse("EVENT SEQ(A x, !(B y), !(C z), D w) WHERE x.id = y.id = z.id = w.id")
    pairs = [("x", "y"), ("x", "z"), ("x", "w"), ("y", "w"), ("z", "w")]
    assert found.where == tuple(equal(Attr(left, "id"), Attr(right, "id")) for left, right in pairs)


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("12 hours", Duration(12, "h")),
        ("12h", Duration(12, "h")),
        ("1.5 MIN", Duration(1.5, "min")),
        ("10 secs", Duration(10, "s")),
        ("200 units", Duration(200)),
        ("200", Duration(200)),
        ("1000 events", Duration(1000, "events")),
        ("T", Duration("T")),
        ("T minutes", Duration("T", "min")),
        ("m", Duration("m")),
    ],
)
def test_windows(text: str, window: Duration) -> None:
    found = parse(f"EVENT SEQ(A x, B y) WITHIN {text} LIMIT 1")
    assert found.window == window
    assert parse(to_text(found)) == found


@pytest.mark.parametrize("text", PRINTED)
def test_queries_of_the_paper_are_compiled(text: str) -> None:
    require_compiled(text, "sase")


@pytest.mark.parametrize("text", PRINTED)
def test_printed_queries_read_back(text: str) -> None:
    printed = to_text(parse(text))
    assert parse(printed) == parse(text)
    assert to_text(parse(printed)) == printed


def test_the_printed_form() -> None:
    assert to_text(parse(MISPLACED)) == (
        "EVENT SEQ(SHELF-READING x, SHELF-READING y, !(ANY(COUNTER-READING, SHELF-READING) z))\n"
        "WHERE [id] AND x.shelf_id != y.shelf_id AND x.shelf_id = z.shelf_id\n"
        f"WITHIN {HOUR}"
    )


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_misspelt_keyword() -> None:
    error = problem("EVENT SEQ(A a, B b)\nWHER a.x = 3")
    assert isinstance(error, SyntaxProblem)
    assert str(error) == (
        "error: unexpected `WHER`\n"
        "  at query, line 2, column 1\n"
        "  2 | WHER a.x = 3\n"
        "    | ^^^^\n"
        "  expected: the end of the text, `LIMIT`, `RETURN`, `WHERE` or `WITHIN`\n"
        "  hint: did you mean `WHERE`?"
    )


def test_a_misspelt_keyword_that_passed_for_a_variable() -> None:
    error = problem("EVENT A WHER x = 3")
    assert error.what == "unexpected `x`"
    assert error.hint == "did you mean `WHERE` instead of `WHER`?"


@pytest.mark.parametrize(
    ("text", "what", "position", "expected", "hint"),
    [
        ("EVENT", "the text ends too early", (1, 6), "event type", None),
        ("EVENT SEQ(A a, B b", "the text ends too early", (1, 19), "`)` or `,`", None),
        ("EVENT SEQ(A a B b)", "unexpected `B`", (1, 15), "`)` or `,`", "a comma between two components"),
        ("EVENT SEQ(A a, , B b)", "unexpected `,`", (1, 16), "an event type", None),
        ("EVENT SEQ()", "unexpected `)`", (1, 11), "an event type", None),
        ("EVENT A x\nWHERE x.a = 1 AN x.b = 2", "unexpected `AN`", (2, 15), "`AND`", "did you mean `AND`?"),
        ("EVENT A x WITHIN", "the text ends too early", (1, 17), "a value", None),
        ("EVENT A x WITHIN 3 parsecs", "unexpected `parsecs`", (1, 20), "a unit of time", "a unit such as seconds"),
        ("EVENT A x WITHIN 3 WHERE x.a = 1", "unexpected `WHERE`", (1, 20), "`RETURN`", "WHERE stands before WITHIN"),
        ("EVENT A x LIMIT 1.5", "`1.5` is not a whole number", (1, 17), "a whole number", None),
        ("EVENT SEQ(A+ a, B b)", "unexpected `+`", (1, 12), "`,`", "closures are in SASE+"),
        ("EVENT SEQ(A a, B a)", "the variable `a` is declared twice", (1, 16), "name of its own", "another name: a2"),
        ("EVENT SEQ(A a, B b) WHERE c.x = 1", "unknown variable `c`", (1, 27), "`a`, `b`", None),
        ("EVENT SEQ(A a, !(B b))", "a trailing negation without a window never ends", (1, 16), "WITHIN", "WITHIN"),
        ("EVENT SEQ(A a, B b) WHERE abss(a.x) = 1", "unknown function `abss`", (1, 27), "abs", "did you mean `abs`?"),
    ],
)
def test_errors(text: str, what: str, position: tuple[int, int], expected: str, hint: str | None) -> None:
    require_error(text, what, position, expected, hint)


def test_kinds_of_errors() -> None:
    assert isinstance(problem("EVENT SEQ(A a, B b) WHERE c.x = 1"), NameProblem)
    assert isinstance(problem("EVENT SEQ(!(A a), !(B b)) WITHIN 3"), PatternProblem)


def test_equivalence_tests_stay_in_a_disjunction() -> None:
    found = parse("EVENT SEQ(A x, B y) WHERE [id, tag] OR x.a = 1")
    assert found.where == (Or((And((Same("id"), Same("tag"))), equal(Attr("x", "a"), Const(1)))),)
    assert parse(to_text(found)) == found
