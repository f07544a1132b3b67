"""Arguments of other types and names, and files that are not what they are declared to be: what to write instead."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import UTC, timedelta
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.errors import CepheidError

EVENTS = pd.DataFrame({"type": ["Shelf", "Exit"], "ts": pd.to_datetime(["2024-03-01", "2024-03-02"])})
SASE = "EVENT SEQ(Shelf x, Exit e)"

CALLS: list[tuple[Callable[[], object], str, str]] = [
    (lambda: cepheid.detect(SASE, [EVENTS, EVENTS]), "the sources are a list", "{'name': table}"),  # type: ignore[arg-type]
    (lambda: cepheid.detect(SASE, EVENTS), "the sources are a DataFrame", "{'name': table}"),
    (lambda: cepheid.match(SASE, EVENTS, zone=UTC), "the zone is a timezone", 'write zone="UTC"'),  # type: ignore[arg-type]
    (
        lambda: cepheid.match(SASE, EVENTS, time_unit=timedelta(seconds=1)),  # type: ignore[arg-type]
        "the unit of times is a timedelta",
        'write time_unit="s"',
    ),
    (lambda: cepheid.parse(5), "the query is of type `int`", "EVENT SEQ(A a, B b)"),  # type: ignore[arg-type]
    (lambda: cepheid.Input("x", time="a"), "`Input` has no option `time`", "did you mean `time_column`?"),  # type: ignore[call-arg]
    (lambda: cepheid.match(SASE, EVENTS, time="ts"), "`match` has no option `time`", "did you mean `time_column`?"),  # type: ignore[call-arg]
    (lambda: cepheid.match(SASE, EVENTS, backend="spark"), "`match` has no option `backend`", "give a Spark DataFrame"),  # type: ignore[call-arg]
    (lambda: cepheid.match({}, EVENTS), "there are no queries", "{'name': query}"),
    (lambda: cepheid.match(Path("q.sase"), EVENTS), "is the name of a file, not a query", "open('q.sase').read()"),  # type: ignore[arg-type]
    (lambda: cepheid.match({"q": Path("q.sase")}, EVENTS), "is the name of a file", "open('q.sase').read()"),  # type: ignore[dict-item]
    (lambda: cepheid.match(SASE, io.StringIO("type,ts")), "of type `io.StringIO`", "pass its path"),
    (lambda: cepheid.match(SASE, EVENTS["ts"]), "of type `pandas.Series`", "pass the whole table"),
    (lambda: cepheid.match(SASE, EVENTS.to_numpy()), "of type `numpy.ndarray`", "pandas.DataFrame(events, columns="),
    (lambda: cepheid.match(SASE, 5), "of type `int`", "a pandas or Polars DataFrame"),
    (lambda: cepheid.match(SASE, [EVENTS, EVENTS]), "a list of DataFrames", "pandas.concat(events)"),
    (lambda: cepheid.match(SASE, EVENTS, rejects="r.csv"), "`rejects` is 'r.csv'", "True or False"),  # type: ignore[arg-type]
    (lambda: cepheid.match(SASE, EVENTS, match_id="mid"), "`match_id` is 'mid'", "id_column=..."),  # type: ignore[arg-type]
    (lambda: cepheid.match(SASE, EVENTS, partitions=4), "the events are not in Spark", "leave it out"),
]


@pytest.mark.parametrize(("call", "what", "instead"), CALLS, ids=[what for _, what, _ in CALLS])
def test_an_argument_of_another_type_or_name(call: Callable[[], object], what: str, instead: str) -> None:
    with pytest.raises(CepheidError) as raised:
        call()
    assert what in raised.value.what and instead in f"{raised.value.expected} {raised.value.hint}"


def test_a_stream_of_a_table_is_refused_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", None)
    for events in (EVENTS, {"Shelf": EVENTS}):
        with pytest.raises(CepheidError, match=r"a stream are of type `pandas.DataFrame`") as raised:
            cepheid.stream(SASE, events, watermark="1 min", output="o", checkpoint="c")
        assert "a streaming DataFrame of Spark" in (raised.value.expected or "")
        assert "cepheid.match(query, events)" in (raised.value.hint or "")


def test_a_unit_of_timestamps_has_no_effect(tmp_path: Path) -> None:
    with pytest.warns(cepheid.CepheidWarning, match=r"`ts` holds timestamps, so the unit of times .* has no effect"):
        cepheid.match(SASE, EVENTS, time_unit="s")
    EVENTS.to_csv(tmp_path / "events.csv", index=False)
    done = CliRunner().invoke(app, ["run", SASE, "--input", str(tmp_path / "events.csv"), "--time-unit", "s"])
    assert "the unit of times (time_unit, --time-unit) has no effect" in done.stderr


def test_merged_timestamps_have_no_unit_unless_one_is_given() -> None:
    inputs = {name: EVENTS[EVENTS["type"] == name].drop(columns="type") for name in ("Shelf", "Exit")}
    with warnings.catch_warnings():
        warnings.simplefilter("error", cepheid.CepheidWarning)
        assert len(cepheid.match(f"{SASE} WITHIN 2 days", inputs)) == 1
    with pytest.warns(cepheid.CepheidWarning, match=r"the unit of times .* has no effect"):
        cepheid.match(f"{SASE} WITHIN 2 days", inputs, time_unit="s")


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--input", "{},time_column=ts"], "did you mean `time`?"),
        (["--input", "{},start-column=ts"], "did you mean `start`?"),
        (["--input", "{},sep=:"], "leave the delimiter out"),
        (["--input", "{}", "--delimiter", "semicolon"], "leave the delimiter out"),
        (["--input", "{}", "--time-unit", "months"], "a month has no fixed length"),
    ],
)
def test_the_options_of_an_input(tmp_path: Path, options: list[str], hint: str) -> None:
    EVENTS.to_csv(tmp_path / "events.csv", index=False)
    given = [option.format(tmp_path / "events.csv") for option in options]
    done = CliRunner().invoke(app, ["run", SASE, *given])
    assert done.exit_code == 2 and f"hint: {hint}" in done.stderr.replace("a comma separates its cells: ", "")


def test_a_run_over_no_rows_ends_with_0_and_one_of_rejects_alone_with_2(tmp_path: Path) -> None:
    for content, code in (("", 0), ('{"type": "Shelf"}\n', 2)):
        (tmp_path / "e.jsonl").write_text(content)
        assert CliRunner().invoke(app, ["run", SASE, "--input", str(tmp_path / "e.jsonl")]).exit_code == code


@pytest.mark.parametrize(
    ("times", "doubt"),
    [
        ([1709280000, 1709280100, 0], "0 is no time of the years 2000 to 2100, and 1709280100 is one in s"),
        ([1709280000, 1709280200000], "1709280000 is a time in s, and 1709280200000 is one in ms"),
    ],
)
def test_times_out_of_range_are_named(times: list[int], doubt: str, tmp_path: Path) -> None:
    events = pd.DataFrame({"type": "Shelf", "ts": times})
    events.to_csv(tmp_path / "events.csv", index=False)
    events.to_parquet(tmp_path / "events.parquet")
    query = "EVENT SEQ(Shelf x, Shelf e) WITHIN 5 minutes"
    for source in (events, tmp_path / "events.csv", tmp_path / "events.parquet"):
        with pytest.raises(CepheidError, match="whose unit is not known") as raised:
            cepheid.match(query, source)
        assert doubt in raised.value.what and "correct such times" in (raised.value.hint or "")
        assert "ms" not in (raised.value.hint or "")


def test_a_declared_format_that_the_times_do_not_have(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("type,ts\nShelf,01.03.2024 10:00\nExit,13.03.2024 10:00\n")
    with pytest.raises(CepheidError) as raised:
        cepheid.match(SASE, tmp_path / "events.csv", time_format="%Y/%m/%d")
    assert "does not fit the format %Y/%m/%d" in raised.value.what
    assert 'seem to have time_format="%d.%m.%Y %H:%M"' in (raised.value.hint or "")


def test_the_rows_of_an_aggregate_are_not_called_matches(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("type,ts\nShelf,1\nShelf,2\n")
    done = CliRunner().invoke(app, ["run", "EVENT Shelf x RETURN count(*)", "--input", str(tmp_path / "events.csv")])
    assert "2 events read, 1 row, 0 rejects" in done.stderr


def test_a_file_in_place_of_the_directory_of_queries(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text(SASE)
    done = CliRunner().invoke(app, ["deploy", str(tmp_path / "q.txt"), "--input", str(tmp_path / "q.txt")])
    assert "q.txt` is a file" in done.stderr and "a directory of query files" in done.stderr


def test_a_reader_that_has_read_enough(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("type,ts\n" + "Shelf,1\n" * 20_000)
    command = [sys.executable, "-m", "cepheid", "run", "EVENT Shelf x", "--input", str(tmp_path / "events.csv")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None and run.stderr is not None
        run.stdout.readline()
        run.stdout.close()
        assert (run.wait(60), b"Traceback" in run.stderr.read()) == (0, False)


@pytest.mark.parametrize(
    ("values", "option"),
    [
        (("1,234.50", "7,000.00"), "--thousands comma, thousands"),
        (("10,5", "2,25"), "--decimal comma, decimal"),
        (("1.234,50", "2,1"), "--decimal comma, decimal"),
        (("1,234", "5,678"), "--thousands comma or --decimal comma"),
        (("1'234", "1'000"), "--thousands apostrophe, thousands"),
        (("1 234.5", "1 000"), "--thousands space, thousands"),
    ],
)
@pytest.mark.parametrize("condition", ["x.price > 1000", "x.price + 1 > 1000"])
def test_numbers_that_are_text_show_one_and_how_to_declare_them(
    values: tuple[str, str], option: str, condition: str, tmp_path: Path
) -> None:
    path = tmp_path / "events.csv"
    EVENTS.assign(price=values).to_csv(path, sep=";", index=False)
    marked = values[0]
    with pytest.raises(CepheidError) as raised:
        cepheid.match(f"{SASE} WHERE {condition}", path)
    hint = raised.value.hint or ""
    assert f"`price` seems to hold numbers as text, such as `{marked}`" in hint and option in hint
    assert "CAST" not in hint


def test_a_thousands_separator_that_is_declared_as_the_hint_says(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    EVENTS.assign(price=["1,234.50", "2,000.00"]).to_csv(path, index=False)
    assert len(cepheid.match(f"{SASE} WHERE x.price > 1000", path, thousands="comma")) == 1


def test_texts_that_are_no_numbers_keep_the_general_hint() -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match(f"{SASE} WHERE x.price > 1000", EVENTS.assign(price=["A", "1,200.00"]))
    assert "a string is written in quotes: '1000'" in (raised.value.hint or "")
