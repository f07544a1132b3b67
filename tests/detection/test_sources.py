"""The file that names sources, feeds of JSON Lines, and the commands."""

import json
import re
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.acquire.intervals import END
from cepheid.app.cli import app
from cepheid.errors import InputProblem
from cepheid.io.asked_source import described
from cepheid.io.event_log import EventLog
from cepheid.io.feeds import Lines, feed, growing_lines
from cepheid.io.growing_log import GrowingLog
from cepheid.io.inputs import DEFAULT_COLUMNS
from cepheid.io.source_list import duration, source_list

ROWS = [{"type": "A" if i % 50 == 0 else "B", "ts": 1_700_000_000_000 + 7 * i, "id": i % 3} for i in range(600)]
QUERY = "complex Q on A as a, B as b event and(a, b; 30 ms) where a.id = b.id\n"


def files(directory: Path, **more: object) -> Path:
    for kind in "AB":
        lines = [json.dumps(row) for row in ROWS if row["type"] == kind]
        (directory / f"{kind}.jsonl").write_text("\n".join(lines) + "\n")
    entries = [{"name": kind, "file": f"{kind}.jsonl", "latency": "3 ms"} for kind in "AB"]
    (directory / "sources.json").write_text(json.dumps({"sources": entries, "time_unit": "ms", **more}))
    (directory / "q.ced").write_text(QUERY)
    return directory


def test_the_command_detects_across_files(tmp_path: Path) -> None:
    files(tmp_path)
    arguments = ["detect", "--query-file", str(tmp_path / "q.ced"), "--sources", str(tmp_path / "sources.json")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    expected = cepheid.match(QUERY, pa.Table.from_pylist(ROWS), time_unit="ms")
    assert len(found) == expected.num_rows > 5
    assert not any(row["uncertain"] for row in found)
    assert "B: 23 events" in result.output  # 92 without the keys
    explained = CliRunner().invoke(app, [*arguments, "--explain"])
    assert "plan: a → b" in explained.stdout
    assert "pull and subscribe to B" in explained.stdout
    svg = CliRunner().invoke(app, [*arguments, "--explain", "--format", "svg"])
    assert svg.stdout.startswith("<svg")
    tight = CliRunner().invoke(app, [*arguments, "--deadline", "3ms", "--explain"])
    assert "plan: a, b" in tight.stdout
    never = CliRunner().invoke(app, [*arguments, "--deadline", "1ms"])
    assert never.exit_code == 2
    assert "a deadline of at least 3 ms" in never.output


def test_statistics_are_stored_and_used(tmp_path: Path) -> None:
    files(tmp_path)
    sources = str(tmp_path / "sources.json")
    result = CliRunner().invoke(app, ["source", "stats", "--sources", sources, "-o", str(tmp_path / "stats.json")])
    assert result.exit_code == 0, result.output
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert stats["A"]["A"]["count"] == 12
    stats["A"]["A"].update({"model": "poisson", "rate": 10.0})
    (tmp_path / "stats.json").write_text(json.dumps(stats))
    files(tmp_path, statistics="stats.json")
    assert "plan: b → a" in cepheid.explain_detection(QUERY, sources) or "a, b" in cepheid.explain_detection(
        QUERY, sources
    )
    (tmp_path / "stats.json").write_text("[]")
    with pytest.raises(InputProblem, match="has no statistics of sources"):
        cepheid.detect(QUERY, sources)


def test_events_in_one_burst_are_rare_in_the_time_of_the_whole_log() -> None:
    """Otherwise, a type that occurs in one second of an hour would count as frequent, and everything be pushed."""
    burst = [1_800_000 + 10 * i for i in range(30)]
    kinds = ["Burst"] * 30 + ["Steady"] * 3_600
    table = pa.table({"type": kinds, "ts": [*burst, *range(0, 3_600_000, 1_000)]})
    log = EventLog.of("log", table, DEFAULT_COLUMNS)
    found = described(log, table.schema, "ts", END).types
    assert found["Burst"].model.rate == pytest.approx(30 / 3_600_000, rel=0.2)
    assert found["Steady"].model.rate == pytest.approx(1 / 1_000, rel=0.05)
    plan = cepheid.explain_detection("complex Q on Burst as b, Steady as s event and(b, s; 5000)", {"log": table})
    assert "plan: b → s" in plan


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "names no sources"),
        ({"sources": []}, "names no sources"),
        ({"sources": [{"name": "a"}]}, "has no address"),
        ({"sources": [{"name": "a", "file": "x", "address": "y"}]}, "has address and file"),
        ({"sources": [{"address": "y"}]}, "has no name"),
        ({"sources": [{"name": "a", "file": "x", "latncy": 1}]}, "did you mean `latency`"),
        ({"sources": [{"name": "a", "file": "x", "latency": "soon"}]}, "such as 50 ms"),
        ({"sources": [{"name": "a", "file": "x"}, {"name": "a", "file": "y"}]}, "twice"),
        ({"sources": [{"name": "a", "file": "x"}], "colums": {}}, "did you mean `columns`"),
        ({"sources": [{"name": "a", "file": "x", "token_file": "none"}]}, "cannot be read"),
    ],
)
def test_a_wrong_list_of_sources_is_refused(data: object, message: str) -> None:
    with pytest.raises(InputProblem) as problem:
        source_list(data, "`sources.json`")
    assert message in str(problem.value)


@pytest.mark.parametrize("plan", ["push", "a -> b", "b -> a"])
def test_an_attribute_that_is_null_in_all_events_of_a_type_is_not_one_that_it_lacks(plan: str, tmp_path: Path) -> None:
    table = pa.table({"type": ["A", "B"], "ts": [1, 2], "k": pa.array([None, 7], pa.int64())})
    query = "complex Q on A as a, B as b event and(a, b; 5) where a.k = b.k"
    assert cepheid.match(query, table).num_rows == 0
    assert cepheid.detect(query, {"one": table}, plan=plan).read_all().num_rows == 0
    apart = {"left": table.slice(0, 1), "right": table.slice(1)}
    assert cepheid.detect(query, apart, plan=plan).read_all().num_rows == 0
    lines = GrowingLog("lines", DEFAULT_COLUMNS)
    Lines(lines, None, lambda *_: None).add(['{"type": "B", "ts": 2, "k": 7}', '{"type": "A", "ts": 1, "k": null}'])
    assert set(lines.describe().types["A"].columns) == {"type", "ts", "k"}
    lacking = table.slice(0, 1).drop_columns(["k"])
    found = cepheid.detect(query, {"left": lacking, "right": table.slice(1)}, plan=plan).read_all()
    assert found.num_rows == 1, "a condition on an attribute that the type lacks does not apply"


def test_lengths_of_time() -> None:
    assert str(duration("50 ms", "x")) == "50 ms"
    assert duration("2s", "x").unit == "s"
    assert duration(7, "x").unit == "units"


def test_feeds_leave_out_what_is_no_event(tmp_path: Path) -> None:
    log = GrowingLog("feed", DEFAULT_COLUMNS)
    left_out: list[str] = []
    lines = ['{"type": "A", "ts": 1, "id": 1}', "{", "[1]", '{"type": "A"}', '{"type": "A", "ts": 3, "id": "x"}']
    Lines(log, None, lambda _, reason: left_out.append(reason)).add([*lines, '{"type": "B", "ts": 4, "id": 2}'])
    assert len(left_out) == 4
    assert {kind: known.count for kind, known in log.describe().types.items()} == {"A": 1, "B": 1}
    moments = GrowingLog("moments", DEFAULT_COLUMNS)
    Lines(moments, "T", lambda *_: None).add(['{"ts": "2026-01-01T00:00:00Z", "v": 1}'])
    assert moments.describe().schema.field("ts").type == pa.timestamp("us", "UTC")


def test_a_growing_file_is_read_line_by_line(tmp_path: Path) -> None:
    path, stop = tmp_path / "log.jsonl", threading.Event()
    path.write_text('{"a": 1}\n{"a"')
    parts = growing_lines(path, stop)
    assert next(parts) == ['{"a": 1}\n']
    with path.open("a") as file:
        file.write(': 2}\n{"a": 3}\n')
    assert next(parts) == ['{"a": 2}\n', '{"a": 3}\n']
    stop.set()
    assert list(parts) == []
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / "1.jsonl").write_text('{"type": "A", "ts": 1}\n')
    log = GrowingLog("d", DEFAULT_COLUMNS)
    feed(log, [str(directory)], None, stop, lambda *_: None)
    assert log.describe().types["A"].count == 1


def test_the_code_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "detect.md").read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    exec(compile(code, "detect.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("1\nacquisition\n├─ plan: a → l")
    assert "{'query': 'logins', 'match_end': 1000}" in printed and "{'query': 'early', 'match_end': 1000}" in printed
    assert printed.count("acquisition\n") == 2
    listed, topics = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    without_files = json.loads(listed)
    del without_files["sources"][1]["token_file"]
    assert len(source_list(without_files, "the page").sources) == 2
    (topic,) = source_list(json.loads(topics), "the page").sources
    assert (topic.kafka, topic.topic, topic.settings["security.protocol"]) == ("10.0.0.7:9092", "net", "SSL")


def test_a_log_on_the_clock_reports_an_event_once_it_is_complete() -> None:
    """It waits until the event is complete, and does not report again and again until then."""
    import time

    log = GrowingLog("clock", DEFAULT_COLUMNS, lateness=100_000)
    moment = int(time.time() * 1_000_000)
    log.append(pa.table({"type": ["A"], "ts": [moment]}))
    reports = 0
    while log.complete() < moment:
        log.wait(log.complete(), 5.0)
        reports += 1
    assert reports <= 3
    assert time.time() * 1_000_000 - moment < 3_000_000
