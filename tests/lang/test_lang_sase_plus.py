"""SASE+: every query of the paper as printed, what each form means, and what errors say."""

from __future__ import annotations

import pytest
from lang_harness import problem, require_error
from sample_events import require_compiled

from cepheid.errors import NameProblem, SyntaxProblem
from cepheid.events import Duration
from cepheid.expr import Aggregate, Arithmetic, At, Attr, Compare, Const, Expr, Over, Same, Whole
from cepheid.lang import parse, sase_plus, to_text
from cepheid.pattern import Column, EventClass, Kleene, Neg, Pattern, Query, Seq, Strategy


def query(
    items: tuple[Pattern, ...], strategy: Strategy, *where: Expr, window: Duration | None = None, **rest: object
) -> Query:
    return Query(Seq(items), sase_plus.DIALECT, where=where, window=window, strategy=strategy, **rest)  # type: ignore[arg-type]


def equal(left: Expr, right: Expr) -> Expr:
    return Compare("=", left, right)


def stocks() -> tuple[Pattern, ...]:
    return Kleene(EventClass("a", ("STOCK",))), EventClass("b", ("STOCK",))


QUERY_1 = """PATTERN SEQ(Shelf a, ~(Register b), Exit c)
WHERE skip_till_next_match(a, b, c) {
          a.tag_id = b.tag_id
                                                   and
          a.tag_id = c.tag_id
          /* equivalently, [tag_id] */ }
WITHIN
         12 hours
"""
QUERY_2 = """PATTERN SEQ(Alert a, Shipment+ b[])
WHERE
         skip_till_any_match(a, b[]) {
           a.type = 'contaminated'
   and
           b[1].from = a.site
   and
           b[i].from = b[i-1].to }
WITHIN
        3 hours
"""
QUERY_3 = """PATTERN SEQ(Stock+ a[], Stock b)
WHERE skip_till_next_match(a[], b) {
             [symbol]
     and
             a[1].volume > 1000
     and
             a[i].price > avg(a[..i-1].price)
     and
            b.volume < 80%*a[a.LEN].volume }
WITHIN
          1 hour
"""
TEMPLATE = (
    r"PATTERN(STOCK+ $a[\ ]$, STOCK b) where {strategy} {{[symbol] \land a[1].price %500==0"
    r" \land {iterator} \land b.volume <150}} within {window}"
)
EXPERIMENT_1 = TEMPLATE.format(strategy="partition-contiguity", iterator="True", window="500 events")
EXPERIMENT_2 = TEMPLATE.format(
    strategy="skip-till-next-match", iterator="$a[i].price > a[i-1].price$", window="2000 events"
)
EXPERIMENT_3 = TEMPLATE.format(
    strategy="partition_contiguity", iterator="$a[i].price > max(a[i-1].price)$", window="2000 events"
)
EXPERIMENT_4 = (
    r"PATTERN(STOCK+ $a[\ ]$, STOCK b, STOCK c) where skip_till_next_match"
    r" {$c.price > a[1].price \land c.price < a[a.len].price$}"
)

SYMBOL, ROUND, THIN = (
    Same("symbol"),
    equal(Arithmetic("%", Attr("a", "price", At.FIRST), Const(500)), Const(0)),
    Compare("<", Attr("b", "volume"), Const(150)),
)
CURRENT = Attr("a", "price", At.CURRENT)

PRINTED = {
    QUERY_1: query(
        (EventClass("a", ("Shelf",)), Neg(EventClass("b", ("Register",))), EventClass("c", ("Exit",))),
        Strategy.NEXT_MATCH,
        equal(Attr("a", "tag_id"), Attr("b", "tag_id")),
        equal(Attr("a", "tag_id"), Attr("c", "tag_id")),
        window=Duration(12, "h"),
    ),
    QUERY_2: query(
        (EventClass("a", ("Alert",)), Kleene(EventClass("b", ("Shipment",)))),
        Strategy.ANY_MATCH,
        equal(Attr("a", "type"), Const("contaminated")),
        equal(Attr("b", "from", At.FIRST), Attr("a", "site")),
        equal(Attr("b", "from", At.CURRENT), Attr("b", "to", At.PREVIOUS)),
        window=Duration(3, "h"),
    ),
    QUERY_3: query(
        (Kleene(EventClass("a", ("Stock",))), EventClass("b", ("Stock",))),
        Strategy.NEXT_MATCH,
        Same("symbol"),
        Compare(">", Attr("a", "volume", At.FIRST), Const(1000)),
        Compare(">", CURRENT, Aggregate("avg", "a", "price", Over.BEFORE)),
        Compare("<", Attr("b", "volume"), Arithmetic("*", Const(0.8), Attr("a", "volume", At.LAST))),
        window=Duration(1, "h"),
    ),
    EXPERIMENT_1: query(stocks(), Strategy.PARTITION, SYMBOL, ROUND, THIN, window=Duration(500, "events")),
    EXPERIMENT_2: query(
        stocks(),
        Strategy.NEXT_MATCH,
        SYMBOL,
        ROUND,
        Compare(">", CURRENT, Attr("a", "price", At.PREVIOUS)),
        THIN,
        window=Duration(2000, "events"),
    ),
    EXPERIMENT_3: query(
        stocks(),
        Strategy.PARTITION,
        SYMBOL,
        ROUND,
        Compare(">", CURRENT, Aggregate("max", "a", "price", Over.BEFORE)),
        THIN,
        window=Duration(2000, "events"),
    ),
    EXPERIMENT_4: query(
        (*stocks(), EventClass("c", ("STOCK",))),
        Strategy.NEXT_MATCH,
        Compare(">", Attr("c", "price"), Attr("a", "price", At.FIRST)),
        Compare("<", Attr("c", "price"), Attr("a", "price", At.LAST)),
    ),
}


@pytest.mark.parametrize("text", PRINTED)
def test_queries_of_the_paper(text: str) -> None:
    assert parse(text) == PRINTED[text]


@pytest.mark.parametrize("text", PRINTED)
def test_queries_of_the_paper_are_compiled(text: str) -> None:
    require_compiled(text, "sase+")


@pytest.mark.parametrize("text", PRINTED)
def test_printed_queries_read_back(text: str) -> None:
    printed = to_text(parse(text))
    assert parse(printed) == parse(text)
    assert to_text(parse(printed)) == printed


@pytest.mark.parametrize(
    ("component", "pattern"),
    [
        ("T+ t[]", Kleene(EventClass("t", ("T",)), 1, None)),
        ("T + t [ ]", Kleene(EventClass("t", ("T",)), 1, None)),
        ("T+ t", Kleene(EventClass("t", ("T",)), 1, None)),
        ("T+", Kleene(EventClass("T", ("T",)), 1, None)),
        ("T* t[]", Kleene(EventClass("t", ("T",)), 0, None)),
        ("T{3} t[]", Kleene(EventClass("t", ("T",)), 3, 3)),
        ("T{2,4} t[]", Kleene(EventClass("t", ("T",)), 2, 4)),
        ("T{ 2 , } t[]", Kleene(EventClass("t", ("T",)), 2, None)),
        ("ANY(T, U)+ t[]", Kleene(EventClass("t", ("T", "U")), 1, None)),
        ("BUY-ORDER+ t[]", Kleene(EventClass("t", ("BUY-ORDER",)), 1, None)),
        ("!(T t)", Neg(EventClass("t", ("T",)))),
        ("~T t", Neg(EventClass("t", ("T",)))),
        ("~(ANY(T, U) t)", Neg(EventClass("t", ("T", "U")))),
    ],
)
def test_components(component: str, pattern: Pattern) -> None:
    found = parse(f"PATTERN SEQ(A x, {component}, B y)")
    assert isinstance(found.pattern, Seq)
    assert found.pattern.items[1] == pattern
    assert parse(to_text(found)) == found


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("listed", ["(a[], b)", "(a, b)", "", "(a[])"])
def test_strategies(strategy: Strategy, listed: str) -> None:
    for name in (strategy.value, strategy.value.upper(), strategy.value.replace("_", "-")):
        found = parse(f"PATTERN SEQ(S+ a[], S b) WHERE {name}{listed} {{ [id] }}")
        assert found.strategy is strategy
        assert found.where == (Same("id"),)
        assert f"WHERE {strategy.value}(a[], b) {{ [id] }}" in to_text(found)
        assert parse(to_text(found)) == found


def test_without_a_strategy_every_match_is_found() -> None:
    assert parse("PATTERN SEQ(S+ a[], S b) WHERE [id]").strategy is Strategy.ANY_MATCH
    assert parse("PATTERN SEQ(S+ a[], S b)").strategy is Strategy.ANY_MATCH
    assert parse("PATTERN SEQ(S+ a[], S b) WHERE skip_till_next_match { }").where == ()


@pytest.mark.parametrize(
    ("clause", "non_overlapping"),
    [
        ("OUTPUT NON-OVERLAPPING", True),
        ("output non_overlapping", True),
        ("OUTPUT NON_OVERLAP", True),
        ("OUTPUT NON-OVERLAP", True),
        ("OUTPUT ALL", False),
        ("", False),
    ],
)
def test_output_formats(clause: str, non_overlapping: bool) -> None:
    found = parse(f"PATTERN SEQ(S+ a[], S b) WITHIN 5 RETURN a {clause} LIMIT 3")
    assert found.non_overlapping is non_overlapping and found.limit == 3
    assert parse(to_text(found)) == found


def test_columns() -> None:
    found = parse("PATTERN SEQ(S+ a[], S b) RETURN a[], b, a.LEN, sum(a[].v) AS total, a[1].v, b.v / 2")
    assert found.output == (
        Column("a", Whole("a")),
        Column("b", Whole("b")),
        Column("count(a)", Aggregate("count", "a", None)),
        Column("total", Aggregate("sum", "a", "v")),
        Column("a[1].v", Attr("a", "v", At.FIRST)),
        Column("b.v / 2", Arithmetic("/", Attr("b", "v"), Const(2))),
    )
    assert parse(to_text(found)) == found


def test_a_single_component() -> None:
    found = parse("PATTERN Stock+ a[] WHERE skip_till_next_match(a[]) { a[i].v > a[i-1].v }")
    assert found.pattern == Kleene(EventClass("a", ("Stock",)))
    assert parse(to_text(found)) == found
    plain = parse("PATTERN Stock s WHERE strict_contiguity { price > 3 }")
    assert plain.where == (Compare(">", Attr("s", "price"), Const(3)),)
    assert parse(to_text(plain)) == plain


def test_the_printed_form() -> None:
    assert to_text(parse(QUERY_3)).splitlines()[:2] == [
        "PATTERN SEQ(Stock+ a[], Stock b)",
        "WHERE skip_till_next_match(a[], b) { [symbol] AND a[1].volume > 1000 AND a[i].price > avg(a[..i-1].price)"
        " AND b.volume < 0.8 * a[a.LEN].volume }",
    ]


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_strategy_that_names_no_variable_of_the_pattern() -> None:
    error = problem("PATTERN SEQ(S+ stocks[], S b)\nWHERE skip_till_next_match(stock[], b) { }")
    assert isinstance(error, NameProblem)
    assert str(error) == (
        "error: the strategy names `stock`, which is not in the pattern\n"
        "  at query, line 2, column 28\n"
        "  2 | WHERE skip_till_next_match(stock[], b) { }\n"
        "    |                            ^^^^^\n"
        "  expected: variables of the pattern: `b`, `stocks`\n"
        "  hint: did you mean `stocks`?"
    )


@pytest.mark.parametrize(
    ("text", "what", "position", "expected", "hint"),
    [
        (
            "PATTERN SEQ(S+ a[], S b) WHERE skip_til_next_match(a, b) { [id] }",
            "unexpected `{`",
            (1, 58),
            "`AND`",
            "did you mean `skip_till_next_match`?",
        ),
        (
            "PATTERN SEQ(S a[], S b)",
            "`a[]` is a list, but its component has no closure",
            (1, 13),
            "after the type",
            "write S+ a[]",
        ),
        ("PATTERN SEQ(S+ a[], ~(S+ b[]), S c)", "a closure cannot be negated", (1, 21), "one event type", None),
        ("PATTERN SEQ(S+ a[], S b) WHERE skip_till_next_match { [id]", "the text ends too early", (1, 59), "`}`", None),
        ("PATTERN SEQ(S+ a[], S b) OUTPUT SOME", "unexpected `SOME`", (1, 33), "NON-OVERLAPPING", None),
        ("PATTERN SEQ(S+ a[], S b) RETUN a", "unexpected `RETUN`", (1, 26), "`RETURN`", "did you mean `RETURN`?"),
        (
            "PATTERN SEQ(S+ a[], S b) WHERE a.v = 1",
            "`a.v`: `a` is a list of events",
            (1, 32),
            "`a[1]`",
            "a[i].v (each further one)",
        ),
        ("PATTERN SEQ(S{4,2} a[], S b)", "a closure of 4 to 2 events", (1, 13), "bounds", "{2,4}"),
    ],
)
def test_errors(text: str, what: str, position: tuple[int, int], expected: str, hint: str | None) -> None:
    require_error(text, what, position, expected, hint)


def test_braces_belong_to_a_strategy() -> None:
    assert isinstance(problem("PATTERN SEQ(S+ a[], S b) WHERE { [id] }"), SyntaxProblem)
