"""Names in backticks, literals of time, and the functions that have a syntax of their own, in every language."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import cepheid
from cepheid.errors import CepheidError
from cepheid.expr import KEYWORDS, Aggregate, Attr, Call, Compare, Const, Param, to_text
from cepheid.lang import DIALECTS, parse
from cepheid.lang import to_text as query_text
from cepheid.lang.expressions import EXPRESSION_WORDS
from cepheid.types import DATE, DURATION, TIMESTAMP

ODD = ("user id", "404", "a`b", "select", "LEN", "x'y", 'say "hi"', "a-b", "// no", "Ä ö", "$(rm)", "{x}", "%s", ";")
QUERIES = {
    "sase": "EVENT SEQ({type} {var}, B b) WHERE {var}.{name} = b.{name} AND [{name}] WITHIN 10 units "
    "RETURN {var}.{name}",
    "sase+": "PATTERN SEQ({type}+ {var}[], B b) WHERE skip_till_next_match({var}[], b) "
    "{{ {var}[i].{name} > {var}[i-1].{name} AND {var}[LEN].{name} = avg({var}[..i-1].{name}) }} WITHIN 10 units",
    "zstream": "PATTERN {type} {var};B+;ANY({type}, C) c WHERE {var}.{name} = c.{name} WITHIN 10 units "
    "RETURN {var}.{name}",
    "eql": "SOURCE {type} ({name} int) SOURCE B ({name} int) SELECT {var}.{name} AS {name} FROM {type} {var}; B b "
    "WHERE FILTER({var}.{name} = b.{name}), ({var}, b) OCCURS WITHIN 5 units",
    "ced": "source {type} schema int {name} source B schema int {name} complex c on {type} as {var}, B as b "
    "schema {name} as {var}.{name} event seq({var}, b; 5) where {var}.{name} = b.{name}",
}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@pytest.mark.parametrize("language", QUERIES)
@pytest.mark.parametrize("name", ODD)
def test_every_name_can_be_written_in_backticks(language: str, name: str) -> None:
    text = QUERIES[language].format(type=quoted(name), var=quoted(name), name=quoted(name))
    query = parse(text, language)
    assert name in query.roles and name in query.roles[name].event_class.types
    assert parse(query_text(query), language) == query


def test_every_reserved_word_is_printed_in_backticks() -> None:
    words = {word.lower() for dialect in DIALECTS for word in dialect.clauses} | {w.lower() for w in EXPRESSION_WORDS}
    assert words <= KEYWORDS
    for word in KEYWORDS:
        assert to_text(Param(word)) == f"`{word}`"


TABLE = pa.table(
    {
        "kind": ["login failed", "login failed", "404", "login"],
        "when": pa.array([0, 60, 61, 80], pa.timestamp("s")),
        "user id": ["ann", "bob", "bob", "ann"],
        "LEN": [1, 2, 3, 4],
        "a.b": [1, 1, 2, 1],
    }
)
BACKENDS = (None, "reference")


def run(query: str, evaluator: str | None, table: pa.Table = TABLE, **options: Any) -> list[dict[str, Any]]:
    columns = {"type_column": "kind", "time_column": "when"} | options
    rows: list[dict[str, Any]] = cepheid.match(query, table, evaluator=evaluator, **columns).to_pylist()
    return rows


@pytest.mark.parametrize("evaluator", BACKENDS)
def test_names_of_columns_and_types_reach_the_data(evaluator: str | None) -> None:
    query = "EVENT SEQ(`login failed` f, ANY(login, `404`) s) WHERE [`user id`] AND f.`LEN` < s.LEN"
    rows = run(f"{query} RETURN f.`user id`, s.LEN;", evaluator)
    assert [(row["f.user id"], row["s.LEN"]) for row in rows] == [("bob", 3), ("ann", 4)]
    (row,) = run("EVENT SEQ(`login failed` f, `404` s) WHERE s.`a.b` = f.`a.b` + 1 WITHIN 5 seconds", evaluator)
    assert row["s"]["a.b"] == 2


def test_the_length_of_a_closure_and_an_attribute_of_that_name() -> None:
    closure = parse("PATTERN SEQ(A+ a[], B b) WHERE a.LEN > 1 AND b.LEN > 2 AND a[1].LEN = 3")
    compared = [test.left for test in closure.where if isinstance(test, Compare)]
    assert compared == [Aggregate("count", "a", None), Attr("b", "LEN"), Attr("a", "LEN", compared[2].at)]  # type: ignore[attr-defined]
    assert parse("EVENT SEQ(A a, B b) WHERE a.`len` = 1").where == (Compare("=", Attr("a", "len"), Const(1)),)


LENGTHS = {
    "sase": "EVENT SEQ(`login failed` f, login s) WHERE s.LEN > f.LEN WITHIN 90 seconds RETURN s.LEN AS n",
    "sase+": "PATTERN SEQ(`login failed` f, login s) WHERE skip_till_any_match(f, s) { s.LEN > f.LEN } "
    "WITHIN 90 seconds RETURN s.LEN AS n",
    "zstream": "PATTERN `login failed` f;login s WHERE s.LEN > f.LEN WITHIN 90 seconds RETURN s.LEN AS n",
    "eql": "SELECT s.LEN AS n FROM `login failed` f; login s WHERE FILTER(s.LEN > f.LEN)",
    "ced": "source `login failed` schema int LEN source login schema int LEN primitive p on `login failed` as x "
    "schema size as x.LEN complex c on p as f, login as s schema n as s.LEN "
    "event seq(f, s; 90 seconds) where s.LEN > f.size",
}


@pytest.mark.parametrize("language", LENGTHS)
def test_an_attribute_is_called_LEN_in_every_clause(language: str) -> None:
    rows = run(LENGTHS[language], None, dialect=language)
    assert [row["n"] for row in rows] == [4, 4] == [row["n"] for row in run(LENGTHS[language], "reference")]


@pytest.mark.parametrize(
    ("text", "value", "kind", "printed"),
    [
        ("90 seconds", 90_000_000, DURATION, "90 seconds"),
        ("1.5 min", 90_000_000, DURATION, "90 seconds"),
        ("1 hour", 3_600_000_000, DURATION, "1 hour"),
        ("-2 days", -172_800_000_000, DURATION, "-2 days"),
        ("INTERVAL '10' MINUTE", 600_000_000, DURATION, "10 minutes"),
        ("interval 10 ms", 10_000, DURATION, "10 milliseconds"),
        ("TIMESTAMP '2024-03-01 08:00'", 1_709_280_000_000_000, TIMESTAMP, "TIMESTAMP '2024-03-01 08:00:00'"),
        (
            "timestamp '2024-03-01T09:00:00.5+01:00'",
            1_709_280_000_500_000,
            TIMESTAMP,
            "TIMESTAMP '2024-03-01 08:00:00.500000'",
        ),
        ("DATE '2024-03-01'", 1_709_251_200_000_000, DATE, "DATE '2024-03-01'"),
    ],
)
def test_literals_of_time(text: str, value: int, kind: object, printed: str) -> None:
    (test,) = parse(f"EVENT SEQ(A a, B b) WHERE a.x = {text}").where
    assert isinstance(test, Compare) and isinstance(test.right, Const)
    assert (test.right.value, test.right.type, to_text(test.right)) == (value, kind, printed)
    (again,) = parse(f"EVENT SEQ(A a, B b) WHERE a.x = {printed}").where
    assert isinstance(again, Compare) and (again.right, again.right.type) == (test.right, kind)


def test_windows_as_intervals_and_a_semicolon_at_the_end() -> None:
    plain = parse("EVENT SEQ(A a, B b) WITHIN 10 minutes")
    assert parse("EVENT SEQ(A a, B b) WITHIN INTERVAL '10' MINUTE ; -- the end\n") == plain
    assert parse("Name: EVENT SEQ(A a, B b) WITHIN 10 minutes;\nLast: EVENT SEQ(Name n, A a);").name == "Last"
    for text in QUERIES.values():
        query = text.format(type="A", var="a", name="x")
        assert parse(query + ";") == parse(query)


def test_words_of_the_new_syntax_are_still_names() -> None:
    pattern = "EVENT SEQ(Case case, End when, `Date` interval)"
    text = f"{pattern} WHERE case.then = when.end AND interval.date < when.cast + between"
    assert parse(query_text(parse(text))) == parse(text)
    (test, _) = parse(text).where
    assert test == Compare("=", Attr("case", "then"), Attr("when", "end"))


def test_case_and_cast_round_trip() -> None:
    text = "EVENT SEQ(A a, B b) WHERE CASE a.x WHEN 1 THEN 'one' ELSE b.s END = 'one' RETURN CAST(a.x AS varchar) AS s"
    query = parse(text)
    (test,) = query.where
    one = Compare("=", Attr("a", "x"), Const(1))
    assert test == Compare("=", Call("case", (one, Const("one"), Attr("b", "s"))), Const("one"))
    assert parse(query_text(query)) == query
    assert "CASE WHEN a.x = 1 THEN 'one' ELSE b.s END" in query_text(query) and "CAST(a.x AS string)" in query_text(
        query
    )


MILLISECONDS = pa.table(
    {"kind": ["A", "B", "B"], "when": [1709280000000, 1709280080000, 1709280095000], "n": [1, 2, 3]}
)


@pytest.mark.parametrize("evaluator", BACKENDS)
@pytest.mark.parametrize(
    "table", (MILLISECONDS, MILLISECONDS.set_column(1, "when", MILLISECONDS["when"].cast(pa.timestamp("ms"))))
)
def test_literals_beside_the_time_column_count_in_its_unit(evaluator: str | None, table: pa.Table) -> None:
    conditions = "b.when - a.when < 90 seconds AND a.when >= TIMESTAMP '2024-03-01 08:00'"
    query = f"EVENT SEQ(A a, B b) WHERE {conditions} AND {{}} RETURN b.n"
    assert [row["b.n"] for row in run(query.format("hour(a.when) = 8"), evaluator, table)] == [2]
    assert run(query.format("a.when + 1 second > b.when"), evaluator, table) == []
    assert run(query.format("hour(a.when) = 9"), evaluator, table) == []


def test_the_difference_of_two_times_is_a_duration() -> None:
    query = "EVENT SEQ(`login failed` f, login s) WHERE [`user id`]"
    (row,) = run(f"{query} RETURN s.when - f.when AS took, (s.when - f.when) / 1 second AS seconds", None)
    assert (row["took"], row["seconds"]) == (timedelta(seconds=80), 80.0)


ERRORS = {
    "a.n < 90 seconds": ("`a.n` is a number, whose unit is not known beside `90 seconds`", "the unit of the attribute"),
    "hour(a.n) = 3": ("`a.n` is a number; `hour(a.n)` is not defined for it", None),
    "hour(a.s) = 3": ("`a.s` is a string; `hour(a.s)` is not defined for it", "CAST(... AS timestamp)"),
    "coalesce(a.n, a.s) = 3": ("`coalesce(a.n, a.s)` has values of different types: number, string", None),
    "round(a.n, b.n) = 3": ("the number of digits is not a constant", None),
    "CASE WHEN a.n THEN 1 END = 1": ("`a.n` is a number; WHEN takes a condition", None),
    "CAST(a.n AS itn) = 1": ("CAST to the unknown type `itn`", "did you mean `int`?"),
    "a.when > TIMESTAMP 'noon'": ("`noon` is not a timestamp", "TIMESTAMP '2024-03-01 08:00:00'"),
    "a.when > 'noon'": ("compares a timestamp with a string", "a time is written '2024-03-01 08:00:00'"),
    "a.p < 3 events": ("`3 events` is not a duration", "write the number alone: 3"),
    "a.p < 1 month": ("a month has no fixed length", "write 30 days"),
    "a.p < INTERVAL '1:30' MINUTE": ("`1:30` is not an amount of time", "INTERVAL '10' MINUTE"),
    "a.`n = 3": ("a quoted name is opened and never closed", None),
    "least(a.n, a.s) = 3": ("compares a number with a string", None),
}


@pytest.mark.parametrize("condition", ERRORS)
def test_errors(condition: str) -> None:
    table = pa.table(
        {
            "kind": ["A", "B"],
            "when": pa.array([0, 1], pa.timestamp("s")),
            "n": [1, 2],
            "s": ["x", "y"],
            "p": pa.array([1, 2], pa.duration("s")),
        }
    )
    what, hint = ERRORS[condition]
    with pytest.raises(CepheidError) as raised:
        run(f"EVENT SEQ(A a, B b) WHERE {condition}", None, table)
    assert what in raised.value.what and (hint is None or hint in (raised.value.hint or ""))
