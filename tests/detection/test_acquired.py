"""Files of acquired events: each event once and in order, whatever happens to the process that writes them."""

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from detection.running import rows
from detection.test_flight import TABLES, listed, log_of, served
from detection.test_saved import NEGATED, expected

import cepheid
from cepheid.detection.acquired import MARK, AcquiredFiles, Acquiring
from cepheid.detection.acquisition import Passing
from cepheid.detection.api import detection
from cepheid.detection.saved import SavedDetection
from cepheid.errors import InputProblem, NotAvailable
from cepheid.io.inputs import DEFAULT_COLUMNS


def acquiring(path: Path, sources: Any, query: str = NEGATED, allows_gaps: bool = False, **options: Any) -> Acquiring:
    files = AcquiredFiles(path)
    files.open()
    options = {"plan": "a -> c -> !b", "save_every": 0.0, "timeout": 0.3, "attempts": 3, **options}
    return Acquiring(
        detection(query, sources, DEFAULT_COLUMNS, state=files.state, **options), files, allows_gaps=allows_gaps
    )


def written(path: Path) -> list[pa.Table]:
    """The files in their order."""
    return [pq.read_table(file) for file in sorted(path.glob("*.parquet"))]


def found_in(tables: list[pa.Table]) -> list[str]:
    events = pa.concat_tables(tables).select(["type", "ts", "id"])
    return rows(cepheid.match(NEGATED, events.filter(pa.compute.not_equal(events["type"], MARK))))


def times_of(tables: list[pa.Table]) -> list[int]:
    return [time for table in tables for time in table["ts"].to_pylist()]


def test_files_have_the_events_of_all_matches_in_order(tmp_path: Path) -> None:
    one = acquiring(tmp_path / "files", TABLES)
    one.run()
    one.files.close()
    tables = written(tmp_path / "files")
    assert found_in(tables) == expected(NEGATED)
    assert times_of(tables) == sorted(times_of(tables))
    assert sum(table.num_rows for table in tables) < 100  # of 1,912
    assert tables[-1]["type"].to_pylist()[-1] == MARK
    again = acquiring(tmp_path / "files", TABLES)
    again.run()
    assert len(written(tmp_path / "files")) == len(tables)


def test_a_crash_between_file_and_state_repeats_and_loses_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start ends before its third state is saved, until the sources have ended. Time passes between the logs."""
    write, left = SavedDetection.write, [0]

    def crashing(saved: SavedDetection, directory: str) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        write(saved, directory)

    monkeypatch.setattr(SavedDetection, "write", crashing)
    logs = {name: log_of(name, table.slice(0, 0), ended=False) for name, table in TABLES.items()}
    for name, table in TABLES.items():
        logs[name].append(table.filter(pa.compute.less(table["ts"], 2_000)))
    crashes, next_time = 0, 2_000
    with served(*logs.values(), loss=0.1, seed=4) as servers:
        path = listed(tmp_path, servers)
        is_whole = False
        while not is_whole:
            left[0] = 3
            one = acquiring(tmp_path / "files", path, attempts=30)
            for name, table in TABLES.items():
                is_next = pa.compute.and_(
                    pa.compute.greater_equal(table["ts"], next_time), pa.compute.less(table["ts"], next_time + 2_000)
                )
                logs[name].append(table.filter(is_next))
            next_time += 2_000
            if next_time > 20_000:
                for log in logs.values():
                    log.end()
            try:
                one.run()
                is_whole = True
            except KeyboardInterrupt:
                crashes += 1
            one.files.close()
    tables = written(tmp_path / "files")
    assert found_in(tables) == expected(NEGATED)
    assert times_of(tables) == sorted(times_of(tables))
    assert crashes > 3
    assert len(tables) > 3


def test_files_are_removed_once_they_have_been_read(tmp_path: Path) -> None:
    """All but the last, by which the next process knows how far the frontier was."""
    one = acquiring(tmp_path / "files", TABLES)
    columns = one.detection.programs[0].asked
    for until in (100, 200, 300, 400):
        events = pa.table({"type": ["A"], "ts": [until], "id": [1]}).cast(columns.schema)
        one.files.write(Passing(until, [events]), one.detection.programs)
    names = sorted(file.name for file in (tmp_path / "files").glob("*.parquet"))
    assert len(names) == 4
    one.files.remove({names[0], names[2], names[3]})
    assert sorted(file.name for file in (tmp_path / "files").glob("*.parquet")) == [names[1], names[3]]
    assert one.files.has_removed
    one.files.close()
    again = AcquiredFiles(tmp_path / "files")
    again.open()
    assert (again.until, again._number, again.has_removed) == (400, 4, True)
    again.close()


def test_a_gap_that_could_hide_a_spoiling_event_stops_the_files_before_it(tmp_path: Path) -> None:
    with served(*(log_of(name, table) for name, table in TABLES.items())) as servers:
        path = listed(tmp_path, servers)
        one = acquiring(tmp_path / "files", path, attempts=2)
        servers[1].shutdown()
        with pytest.raises(InputProblem, match=r"`second` does not answer for `B`.*spoil a match"):
            one.run()
        one.files.close()
        before = found_in([pa.table({"type": ["A"], "ts": [0], "id": [0]}), *written(tmp_path / "files")])
        assert set(before) <= set(expected(NEGATED))
        other = acquiring(tmp_path / "files", path, allows_gaps=True, attempts=2)
        other.run()
    assert {gap.source for gap in other.files.gaps()} == {"second"}
    assert other.files.gaps() == other.running.gaps


def test_one_process_writes_the_files(tmp_path: Path) -> None:
    one = acquiring(tmp_path / "files", TABLES)
    with pytest.raises(InputProblem, match="another process writes"):
        acquiring(tmp_path / "files", TABLES)
    thread = threading.Thread(target=one.run)
    thread.start()
    thread.join()


def test_an_event_without_a_window_is_refused(tmp_path: Path) -> None:
    query = "complex Q on A as a, B as b event and(a, b) where a.id = b.id"
    with pytest.raises(NotAvailable, match="without a window"):
        acquiring(tmp_path / "files", TABLES, query, plan=None)
