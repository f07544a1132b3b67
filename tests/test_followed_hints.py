"""Hints that are right: each mistake here is corrected as its hint says, and then runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid import builder
from cepheid.app.cli import app
from cepheid.errors import CepheidError

EVENTS = pd.DataFrame(
    {
        "type": ["A", "B", "B"],
        "ts": pd.to_datetime(["2024-03-01 08:00", "2024-03-01 08:30", "2024-03-01 09:30"]),
        "x": [1.0, 20.0, 5.0],
        "s": ["ann", "ann", None],
    }
)
PAIR = "EVENT SEQ(A a, B b)"


def found(query: str, events: Any = EVENTS, **options: Any) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return len(cepheid.match(query, events, **options))


def refused(call: Callable[[], object]) -> CepheidError:
    with pytest.raises(CepheidError) as raised:
        call()
    return raised.value


QUERIES = [
    (f"{PAIR} WHERE b.s == None", "write IS NULL or IS NOT NULL", f"{PAIR} WHERE b.s IS NULL", 1),
    (f"{PAIR} WHERE b.x > 10a.x", "write a product with `*`: 10 * a.x", f"{PAIR} WHERE b.x > 10 * a.x", 1),
    (f"{PAIR} WHERE b.x > 0.5 a.`x`", "0.5 * a.`x`", f"{PAIR} WHERE b.x > 0.5 * a.`x`", 2),
    ("EVENT SEQ(A a, NOT EXISTS B b) WITHIN 1 hour", "!(B b)", "EVENT SEQ(A a, !(B b)) WITHIN 10 minutes", 1),
    ("EVENT SEQ(A a, NOT EXISTS (B b)) WITHIN 1 hour", "!(B b)", "EVENT SEQ(A a, !(B b)) WITHIN 10 minutes", 1),
    ("EVENT AND(A a, B b)", "in ZStream: PATTERN A a & B b", "PATTERN A a & B b", 2),
    ("EVENT SEQ(a:A, b:B)", "then the variable: A a;", PAIR, 2),
    ("EVENT SEQ(a:A, b:B)", "in backticks: `a:A`", "EVENT SEQ(`A` a, B b)", 2),
    ("EVENT SEQ(A a, NEXT B b)", "leave NEXT out", PAIR, 2),
    ("EVENT every SEQ(A a, B b)", "leave EVERY out", PAIR, 2),
    ("events | where type == 'A' | count", "PATTERN SEQ(A a, B b)", "PATTERN SEQ(A a, B b)", 2),
    ("EVENT | where type == 'A'", "EVENT SEQ(A a, B b) WHERE a.x > 1", f"{PAIR} WHERE b.x > 1", 2),
    (f"{PAIR[:-1]},)", "leave out the comma", PAIR, 2),
    (f"{PAIR} WHERE a.s = ’ann’", "straight quotes: 'ann'", f"{PAIR} WHERE a.s = 'ann'", 2),
    ("EVENT SEQ(“A” a, B b)", "in backticks: `A`", "EVENT SEQ(`A` a, B b)", 2),
    ("PATTERN SEQ(`A` a{1}, B b)", "`A`{1} a[]", "PATTERN SEQ(`A`{1} a[], B b) WHERE skip_till_any_match(a[], b)", 2),
    (
        "PATTERN SEQ(A a, B b) WHERE strict_contiguity(a, b) { a.LEN > 0 }",
        "is that of a closure: B+ a[]",
        "PATTERN SEQ(A+ a[], B b) WHERE strict_contiguity(a[], b) { a.LEN > 0 }",
        1,
    ),
    (f"{PAIR} WHERE a.s =  WITHIN 1 hour", "in a shell, write the query in single quotes", PAIR, 2),
    (f"{PAIR} WHERE a. = b.", "in a shell, write the query in single quotes", PAIR, 2),
    (f"{PAIR} WHERE b.ts BETWEEN '08:00' AND '09:00'", "hour(b.ts) >= 8", f"{PAIR} WHERE hour(b.ts) >= 9", 1),
    (
        f"{PAIR} WHERE b.ts > '08:45'",
        "hour(b.ts) * 60 + minute(b.ts) >= 525",
        f"{PAIR} WHERE hour(b.ts) * 60 + minute(b.ts) >= 525",
        1,
    ),
]


@pytest.mark.parametrize(("wrong", "hint", "followed", "count"), QUERIES, ids=[wrong for wrong, *_ in QUERIES])
def test_queries(wrong: str, hint: str, followed: str, count: int) -> None:
    assert hint in (refused(lambda: cepheid.match(wrong, EVENTS)).hint or "")
    assert found(followed) == count


# --- zones ------------------------------------------------------------------------------------------------------------

SUMMER = datetime(2024, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "zone", "hours"),
    [
        ("CEST", "Europe/Berlin", 2),
        ("PDT", "America/Los_Angeles", -7),
        ("Eastern", "America/New_York", -4),
        ("GMT+2", "Etc/GMT-2", 2),
        ("+02:00", "Etc/GMT-2", 2),
        ("UTC-5", "Etc/GMT+5", -5),
        ("+05:30", "Asia/Kolkata", 5.5),
        ("utc", "UTC", 0),
        ("Belrin", "Europe/Berlin", 2),
        ("Europe/Berln", "Europe/Berlin", 2),
        ("New York", "America/New_York", -4),
    ],
)
def test_zones(name: str, zone: str, hours: float) -> None:
    error = refused(lambda: cepheid.Input("a.csv", zone=name))
    assert f"`{zone}`" in (error.hint or "") or f" {zone} " in (error.hint or "")
    offset = SUMMER.astimezone(ZoneInfo(str(cepheid.Input("a.csv", zone=zone).zone))).utcoffset()
    assert offset is not None and offset.total_seconds() == hours * 3600


def test_no_abbreviation_leads_to_a_fixed_offset() -> None:
    for name in ("CEST", "BST", "PDT", "EDT", "MDT", "AEDT", "XST", "ESTT", "HSTT", "MSTX", "GMTX"):
        hint = refused(lambda name=name: cepheid.Input("a.csv", zone=name)).hint or ""  # type: ignore[misc]
        assert not any(f"`{fixed}`" in hint for fixed in ("EST", "MST", "HST", "GMT", "CET", "Etc/GMT"))


def test_a_skipped_time_of_another_zone() -> None:
    events = pd.DataFrame({"type": ["A", "B"], "ts": ["2024-03-31 02:30", "2024-03-31 03:30"]})
    for times in (events, events.assign(ts=pd.to_datetime(events.ts))):
        error = refused(lambda times=times: cepheid.match(PAIR, times, zone="Europe/Berlin"))  # type: ignore[misc]
        assert 'of another zone, name it, such as zone="UTC"' in (error.hint or "")
        assert found(PAIR, times, zone="UTC") == 1


# --- times and files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "declared", "meant"),
    [
        (["03/04/2024 10:00", "13/04/2024 10:00"], "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M"),
        (["03.04.2024 10:00:01", "13.04.2024 10:00:02"], "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S"),
    ],
)
def test_a_declared_format(times: list[str], declared: str, meant: str, tmp_path: Path) -> None:
    events = pd.DataFrame({"type": ["A", "B"], "ts": times})
    events.to_csv(tmp_path / "a.csv", index=False)
    for given in (events, tmp_path / "a.csv"):
        hint = refused(lambda given=given: cepheid.match(PAIR, given, time_format=declared)).hint or ""  # type: ignore[misc]
        assert f'time_format="{meant}"' in hint and "drop such rows" not in hint
        assert found(PAIR, given, time_format=meant) == 1


HEADER, ROWS = "ts,type\n", "2024-03-01 08:00,A\n2024-03-01 08:01,B\n"


@pytest.mark.parametrize(
    ("content", "hint", "followed"),
    [
        (ROWS, "write a line with the names of the columns before it", HEADER + ROWS),
        ("# exported, by hand\n" + HEADER + ROWS, "remove the lines before the names", HEADER + ROWS),
        ("\n" + HEADER + ROWS, "remove the lines before them", HEADER + ROWS),
    ],
)
def test_a_header_in_another_line(content: str, hint: str, followed: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    assert hint in (refused(lambda: cepheid.match(PAIR, path)).hint or "")
    path.write_text(followed)
    assert found(PAIR, path) == 1


def test_another_delimiter(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text((HEADER + ROWS).replace(",", "^"))
    assert ",delimiter=^, or delimiter='^'" in (refused(lambda: cepheid.match(PAIR, path)).hint or "")
    assert found(PAIR, path, delimiter="^") == 1
    for blanks in ("", " "):
        done = CliRunner().invoke(app, ["run", PAIR, "-i", f"{path},{blanks}delimiter=^"])
        assert done.exit_code == 0 and "1 match" in done.stderr


def test_another_format_than_the_name_shows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    pq.write_table(pa.Table.from_pandas(EVENTS), path)
    error = refused(lambda: cepheid.match(PAIR, path))
    assert "contains parquet, not text" in error.what and "format='parquet'" in (error.hint or "")
    assert found(PAIR, cepheid.Input(path, format="parquet")) == 2


@pytest.mark.parametrize("content", ['[\n{"type":"A","ts":1},\n{"type":"B","ts":2}\n]\n', '[{"type":"A","ts":1}]'])
def test_an_array_in_json_lines(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    assert "suffix .json: rename it" in (refused(lambda: cepheid.match("EVENT A a", path)).hint or "")
    assert found("EVENT A a", path.rename(tmp_path / "a.json")) == 1


def test_several_arrays_in_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"x": [{"type": "A", "ts": 1}], "y": [{"type": "B", "ts": 2}]}')
    error = refused(lambda: cepheid.match(PAIR, path))
    assert "several arrays of objects: `x`, `y`" in error.what
    assert (error.hint or "").startswith("write each array to a file of its own")


@pytest.mark.parametrize("path", ["https://host/a.csv", "s3://bucket/a.parquet", "file:///no/a.csv"])
def test_an_address(path: str) -> None:
    hint = refused(lambda: cepheid.match(PAIR, path)).hint
    assert hint is not None and ("write the path alone: /no/a.csv" if "file" in path else "files are local") in hint


def test_no_other_file_is_proposed_for_a_short_or_a_general_name(tmp_path: Path) -> None:
    (tmp_path / "nsi.csv").write_text(HEADER + ROWS)
    for name in ("nofile.csv", "*.csvx"):
        assert refused(lambda name=name: cepheid.match(PAIR, tmp_path / name)).hint is None  # type: ignore[misc]
    assert "nsi.csv" in (refused(lambda: cepheid.match(PAIR, tmp_path / "nssi.csv")).hint or "")


# --- arguments --------------------------------------------------------------------------------------------------------

STRINGS = ["time_column", "type_column", "start_column", "type", "output", "id_column", "evaluator", "dialect"]
STRINGS += ["delimiter", "decimal", "thousands", "time_format", "encoding"]


@pytest.mark.parametrize("option", STRINGS)
def test_an_option_that_is_no_string(option: str) -> None:
    for value in (0, ["x"]):
        error = refused(lambda value=value: cepheid.match(PAIR, EVENTS, **{option: value}))  # type: ignore[misc]
        assert error.what == f"the option `{option}` is of type `{type(value).__name__}`"


def test_an_unknown_option_lists_options_alone() -> None:
    expected = refused(lambda: cepheid.match(PAIR, EVENTS, timecolumn="ts")).expected or ""  # type: ignore[call-arg]
    assert "`time_column`" in expected and "`query`" not in expected and "`events`" not in expected


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (["stream", PAIR, "-i", "d", "-o", "o", "--checkpoint", "c"], "a query is given with --query TEXT"),
        (["explain", PAIR, "-o", "x.svg"], "--format svg > a.svg"),
    ],
)
def test_arguments_of_commands(command: list[str], hint: str) -> None:
    assert hint in CliRunner().invoke(app, command).stderr


def test_other_arguments_of_another_type() -> None:
    calls: list[Callable[[], object]] = [
        lambda: cepheid.match(PAIR, EVENTS, output=None),  # type: ignore[arg-type]
        lambda: cepheid.match(PAIR, EVENTS, params=["x"]),  # type: ignore[arg-type]
        lambda: cepheid.match(PAIR, EVENTS, options=["x"]),  # type: ignore[arg-type]
        lambda: cepheid.match(PAIR, EVENTS, adaptive="yes"),  # type: ignore[arg-type]
        lambda: cepheid.match(PAIR, EVENTS, stats=5),  # type: ignore[arg-type]
        lambda: cepheid.match({"x": 5}, EVENTS),  # type: ignore[dict-item]
        lambda: cepheid.explain(PAIR, EVENTS, level=["plan"]),  # type: ignore[arg-type]
        lambda: cepheid.explain(PAIR, EVENTS, format=None),  # type: ignore[arg-type]
        lambda: cepheid.Input("a.csv", format=0),  # type: ignore[arg-type]
    ]
    for call in calls:
        refused(call)


def test_statistics_in_the_form_of_a_file() -> None:
    assert found(PAIR, stats={"rates": {"a": 0.2, "b": 0.1}, "orders": {"a;b": 0.5}}) == 2


def test_the_builder() -> None:
    sase = builder.sase()
    assert refused(lambda: sase.seq("A", "B")).hint == "write event('A')"  # type: ignore[arg-type]
    pair = sase.seq(builder.event("A", "a"), builder.event("B", "b"))
    assert refused(lambda: pair.within("45 minutes")).hint == 'write 45, "minutes"'
    assert refused(lambda: pair.within("45", "minutes")).hint == 'write 45, "minutes"'
    assert len(cepheid.match(pair.within(45, "minutes").build(), EVENTS)) == 1
    assert refused(lambda: cepheid.match(pair, EVENTS)).hint == "call .build() on it"  # type: ignore[arg-type]


# --- numbers in text --------------------------------------------------------------------------------------------------

TEXTS = pd.DataFrame({"type": ["A", "A", "B"], "ts": [1, 2, 3], "v": ["9", "8", "10"], "m": ["€9.50", "€9", "€10.00"]})
RUN = "PATTERN SEQ(A+ f[], B b) WHERE skip_till_next_match(f[], b) "


@pytest.mark.parametrize(
    ("wrong", "hint", "followed", "count"),
    [
        (RUN + "{ f[1].v > 3 }", "CAST(f[1].v AS double)", RUN + "{ CAST(f[1].v AS double) > 3 }", 2),
        (RUN + "{ sum(f.v) > 3 }", "CAST(f.v AS double)", RUN + "{ sum(CAST(f.v AS double)) > 3 }", 2),
        ("EVENT A x WHERE x.v > 8", "CAST(x.v AS double)", "EVENT A x WHERE CAST(x.v AS double) > 8", 1),
        (
            "EVENT B x WHERE x.m > 8",
            "CAST(substr(x.m, 2) AS double)",
            "EVENT B x WHERE CAST(substr(x.m, 2) AS double) > 8",
            1,
        ),
    ],
)
def test_numbers_in_text(wrong: str, hint: str, followed: str, count: int) -> None:
    assert hint in (refused(lambda: cepheid.match(wrong, TEXTS)).hint or "")
    assert found(followed, TEXTS) == count


def test_amounts_with_a_currency_are_ordered_by_their_characters() -> None:
    with pytest.warns(cepheid.CepheidWarning, match=r"orders texts by their characters.*CAST\(substr\(b.m, 2\)"):
        cepheid.match("EVENT SEQ(A a, B b) WHERE b.m > a.m", TEXTS)
    assert (
        found("EVENT SEQ(A a, B b) WHERE CAST(substr(b.m, 2) AS double) > CAST(substr(a.m, 2) AS double)", TEXTS) == 2
    )


def test_the_second_event_of_a_closure() -> None:
    wrong = "PATTERN SEQ(B{2} r[]) WHERE skip_till_next_match { r[2].x > 1 }"
    assert "components of their own: A a, A b" in (refused(lambda: cepheid.parse(wrong)).hint or "")
    assert found("PATTERN SEQ(B r, B s) WHERE skip_till_next_match { s.x > 1 }") == 1


# --- cautions ---------------------------------------------------------------------------------------------------------


def cautions(query: str, events: Any, **options: Any) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        len(cepheid.match(query, events, **options))
    return "\n".join(str(one.message) for one in caught if "no match" not in str(one.message))


LOGINS = pd.DataFrame({"type": ["A", "A", "B", "B"], "ts": [1, 2, 3, 4], "user": ["ann", "bob", "ann", "bob"]})


def test_a_join_of_sql_in_eql() -> None:
    join = "SELECT * FROM A a; B b WHERE a.user = b.user"
    assert "write FILTER(a.user = b.user) to pass over other events" in cautions(join, LOGINS)
    followed = "SELECT * FROM A a; B b WHERE FILTER(a.user = b.user)"
    assert (found(join, LOGINS), found(followed, LOGINS), cautions(followed, LOGINS)) == (1, 2, "")


def test_non_overlapping_matches_without_a_key() -> None:
    events = LOGINS.assign(type="A")
    query = "PATTERN SEQ(A{{2}} f[]) WHERE skip_till_next_match(f[]) {{ {} }} WITHIN 5 OUTPUT NON-OVERLAPPING"
    history = query.format("f[i].user = f[i-1].user")
    assert "has no partition, so matches of any `user` overlap" in cautions(history, events)
    assert "write [user]" in cautions(history, events) and cautions(query.format("[user]"), events) == ""
    assert (found(history, events), found(query.format("[user]"), events)) == (1, 2)


def test_values_that_identify_several_events() -> None:
    events = LOGINS.assign(id=["x", "x", "y", "z"])
    for output in ("events", "flat", "long"):
        assert "events share a value of `id`" in cautions(PAIR, events, id_column="id", output=output)
    assert cautions(PAIR, events, match_id=True) == ""
    assert cautions(PAIR, events.assign(id=list("wxyz")), id_column="id") == ""


def test_values_that_identify_several_events_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("type,ts,id\nA,1,x\nA,2,x\nB,3,y\n")
    done = CliRunner().invoke(app, ["run", PAIR, "-i", str(tmp_path / "a.csv"), "--match-id", "--id-column", "id"])
    assert "warning: several matches have one `match_id`" in done.stderr


SUMMERY = pd.DataFrame({"type": ["A", "B"], "ts": ["2024-07-01 08:30", "2024-07-01 09:00"]})


def test_times_of_a_query_beside_those_of_a_zone(tmp_path: Path) -> None:
    SUMMERY.to_csv(tmp_path / "a.csv", index=False)
    query = f"{PAIR} WHERE a.ts >= '2024-07-01 08:00' AND hour(b.ts) = 7"
    text = cautions(query, SUMMERY, zone="Europe/Berlin")
    assert "write its offset: '2024-07-01T08:00:00+02:00'" in text and "`hour(b.ts)` is in UTC" in text
    followed = f"{PAIR} WHERE a.ts >= '2024-07-01T08:00:00+02:00' AND hour(b.ts) = 7"
    assert found(query, SUMMERY, zone="Europe/Berlin") == 0 and found(followed, SUMMERY, zone="Europe/Berlin") == 1
    assert "write its offset" not in cautions(followed, SUMMERY, zone="Europe/Berlin")
    assert cautions(query, SUMMERY) == "" and "in UTC" not in cautions(query, SUMMERY, zone="UTC")
    for command in ("check", "explain", "run"):
        done = CliRunner().invoke(app, [command, query, "-i", str(tmp_path / "a.csv"), "--zone", "Europe/Berlin"])
        assert "write its offset: '2024-07-01T08:00:00+02:00'" in done.stderr, command


# --- the cookbook -----------------------------------------------------------------------------------------------------


def test_a_host_that_is_silent_for_exactly_two_minutes() -> None:
    beats = pd.DataFrame(
        {
            "type": "beat",
            "ts": pd.to_datetime(["2024-03-01 00:00", "2024-03-01 00:02", "2024-03-01 00:03"]),
            "host": "w",
        }
    )
    alone = "EVENT SEQ(beat a, !(beat b)) WHERE [host] WITHIN 2 minutes"
    both = "PATTERN SEQ(beat a, beat b) WHERE partition_contiguity(a, b) { [host] AND b.ts - a.ts >= 2 minutes }"
    within = "PATTERN SEQ(beat a, ~(beat b)) WHERE skip_till_any_match(a, b) { [host] } WITHIN 2 minutes"
    assert (found(alone, beats), found(both, beats), found(within, beats)) == (2, 1, 1)
