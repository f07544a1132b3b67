"""The builder gives the same Query as the text."""

from __future__ import annotations

import pytest

from cepheid.builder import (
    QueryBuilder,
    any_event,
    any_of,
    avg,
    both,
    call,
    ced,
    const,
    count,
    derived,
    duration,
    either,
    eql,
    equal,
    event,
    every,
    max_,
    min_,
    occurs_within,
    param,
    passing,
    same,
    sase,
    sase_plus,
    seq,
    source,
    sum_,
    var,
    vector,
    zstream,
)
from cepheid.errors import InputProblem, NameProblem, PatternProblem
from cepheid.lang import parse, to_text
from cepheid.pattern import EventClass, Seq, Strategy
from cepheid.types import FLOAT

a, b, c = var("a"), var("b"), var("c")
x, y, z = var("x"), var("y"), var("z")

CASES: list[tuple[QueryBuilder, str]] = [
    (
        sase()
        .seq(event("Shelf", "x"), ~event("Register", "y"), event("Exit", "z"))
        .where(same("tag_id"))
        .within(12, "hours"),
        "EVENT SEQ(Shelf x, !(Register y), Exit z) WHERE [tag_id] WITHIN 12 hours",
    ),
    (
        sase().seq(event("A"), event("A"), any_of("B", "C")).where(same("k", id="1")).within("T"),
        "EVENT SEQ(A, A, ANY(B, C)) WHERE [k, id = '1'] WITHIN T",
    ),
    (sase().pattern(event("SHELF-READING")).limit(3).called("Q"), "Q: EVENT SHELF-READING LIMIT 3"),
    (
        sase()
        .seq(event("A", "x"), event("B", "y"))
        .where((x.price > 1.2 * y.price) | ~(x.a == y.a), -x.b <= 5 % y["from"], 1 - x.c != y.c / 2 + x["d.e"])
        .returns(x, y.price + 1, p=x.price),
        "EVENT SEQ(A x, B y) WHERE (x.price > 1.2 * y.price OR NOT x.a = y.a) AND -x.b <= 5 % y.from"
        " AND 1 - x.c != y.c / 2 + x.d.e RETURN x, y.price + 1, x.price AS p",
    ),
    (
        sase()
        .seq(event("A", "x"), ~event("B", "y"), ~event("C", "z"), event("D", "w"))
        .where(equal(x.id, y.id, z.id, var("w").id)),
        "EVENT SEQ(A x, !(B y), !(C z), D w) WHERE x.id = y.id = z.id = w.id",
    ),
    (
        sase()
        .seq(event("A", "x"), event("B", "y"))
        .where(
            x.s.like("a%"),
            x.s.contains("b"),
            x.n.is_in(1, -2),
            ~y.n.is_null(),
            call("ABS", x.n) < param("p"),
            y.t & True,
        ),
        "EVENT SEQ(A x, B y) WHERE x.s LIKE 'a%' AND x.s CONTAINS 'b' AND x.n IN (1, -2) AND y.n IS NOT NULL"
        " AND abs(x.n) < p AND y.t AND TRUE",
    ),
    (
        sase_plus()
        .seq(event("Stock", "a").plus(), event("Stock", "b"))
        .select("skip_till_next_match")
        .where(
            same("symbol"),
            a.first.volume > 1000,
            a.current.price > a.previous.price,
            a.current.price > avg(a.before.price),
            b.volume < 0.8 * a.last.volume,
        )
        .within(1, "hour")
        .returns(a, b.price, n=count(a), low=min_(a.price), high=max_(a.price))
        .non_overlapping(),
        "PATTERN SEQ(Stock+ a[], Stock b) WHERE skip_till_next_match(a[], b) { [symbol] and a[1].volume > 1000 and"
        " a[i].price > a[i-1].price and a[i].price > avg(a[..i-1].price) and b.volume < 80%*a[a.LEN].volume }"
        " WITHIN 1 hour RETURN a, b.price, count(a) AS n, min(a.price) AS low, max(a.price) AS high"
        " OUTPUT NON-OVERLAPPING",
    ),
    (
        sase_plus()
        .seq(event("A", "a").star(), ~any_of("B", "C", variable="b"), event("D").times(3), event("E", "e").times(2, 4))
        .select(Strategy.STRICT)
        .within(10, "secs")
        .returns(count()),
        "PATTERN SEQ(A* a[], ~(ANY(B, C) b), D{3}, E{2,4} e[]) WHERE strict_contiguity { } WITHIN 10 secs"
        " RETURN count(*)",
    ),
    (
        zstream()
        .pattern(seq(event("T1"), ~event("T2"), event("T3")))
        .where(var("T1").price > (1 + param("x") / 100) * var("T3").price)
        .within(10, "secs")
        .returns(var("T1"), var("T3")),
        "PATTERN T1;!T2;T3 WHERE T1.price > (1 + x%) * T3.price WITHIN 10 secs RETURN T1, T3",
    ),
    (
        zstream()
        .pattern(seq(both(event("A"), event("B")), either(event("C"), event("D")), event("Stock", "s").times(5)))
        .where(sum_(var("s").volume) > param("v"))
        .within(200),
        "PATTERN A&B;(C|D);(Stock s)^5 WHERE sum(s.volume) > v WITHIN 200 units",
    ),
    (
        eql()
        .pattern(event("t", "S1").then(event("t", "S2").repeated()).then(event("t", "L")))
        .where(
            passing(var("S1").acc == var("S2").acc),
            var("L").amount > every(var("S2").amount),
            occurs_within("S1", "L", 12, "h"),
        ),
        "SELECT * FROM t S1; t S2+; t L WHERE FILTER(S1.acc = S2.acc), L.amount > ALL(S2.amount),"
        " (S1, L) OCCURS WITHIN 12 hours",
    ),
    (
        eql().pattern(either(event("t", "A"), event("u", "B")).unless(event("v", "C"))),
        r"SELECT * FROM (t A | u B) \ v C",
    ),
    (
        ced()
        .using(source("s", id=FLOAT, x=FLOAT), derived("p", "s", "S", id=var("S").id, loc=vector(var("S").x, const(1))))
        .pattern(seq(event("p", "P1"), event("p", "P2"), window=duration(3)))
        .where(var("P1").id == var("P2").id, call("distance", var("P1").loc, var("P2").loc) >= 12)
        .called("run"),
        "source s schema number id, number x\nprimitive p on s as S schema id as S.id, loc as [S.x, 1]\n"
        "complex run on p as P1, p as P2 event seq(P1, P2; 3)"
        " where P1.id = P2.id and distance(P1.loc, P2.loc) >= 12",
    ),
]


@pytest.mark.parametrize(("builder", "text"), CASES, ids=[text.split("\n")[0][:40] for _, text in CASES])
def test_builder_and_text_agree(builder: QueryBuilder, text: str) -> None:
    built = builder.build()
    assert built == parse(text)
    assert parse(to_text(built)) == built


def test_queries_can_use_queries() -> None:
    pairs = sase().seq(event("A", "a"), event("B", "b")).called("Pairs").build()
    triples = sase().seq(event("Pairs", "p"), event("C", "c")).using(pairs).called("Triples").build()
    result = zstream().pattern(seq(event("Triples"), event("D"))).within(5).using(triples).build()
    assert [item.name for item in result.inputs] == ["Pairs", "Triples"]
    named = zstream().pattern(seq(event("Triples"), event("D"))).within(5).using(triples).called("R").build()
    assert parse(to_text(named)) == named


def test_a_class_over_the_whole_stream() -> None:
    built = zstream().pattern(seq(any_event("x"), any_event("y"))).within(3).build()
    assert isinstance(built.pattern, Seq)
    assert EventClass("x") in built.pattern.items
    assert parse(to_text(built)) == built


def test_build_checks_the_query() -> None:
    with pytest.raises(NameProblem, match="unknown variable `q`"):
        sase().seq(event("A", "a"), event("B", "b")).where(var("q").x == 1).build()
    with pytest.raises(PatternProblem):
        sase().seq(event("A", "a"), ~event("B", "b")).build()
    with pytest.raises(InputProblem, match="no pattern"):
        sase().build()


def test_names_and_values_must_be_such() -> None:
    with pytest.raises(InputProblem, match="not a name"):
        event("A\nB", "a")
    with pytest.raises(InputProblem, match="not a name"):
        var("")
    with pytest.raises(InputProblem, match="did you mean `hours`"):
        sase().within(3, "hourss")
    with pytest.raises(InputProblem, match="is not allowed in a query"):
        const(float("nan"))
    with pytest.raises(InputProblem, match="takes conditions"):
        sase().where(a == b)  # type: ignore[arg-type]
    with pytest.raises(InputProblem, match="no parameters"):
        sase().pattern(event("A", "a")).where(a.x == param("p")).build()
    with pytest.raises(InputProblem, match="cannot range"):
        avg(a.first.price)


def test_conditions_have_no_truth_value() -> None:
    with pytest.raises(TypeError, match=r"join conditions with & and \|"):
        bool(a.x < b.x < c.x)
