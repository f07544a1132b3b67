"""Files are handed to Spark once each, in order, under any spelling of their directory; a list that lacks some is
noticed; and what has been read costs nothing."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cepheid.errors import InputProblem
from cepheid.streaming import listing
from cepheid.streaming.inotify import Overflow, Reports
from cepheid.streaming.integrity import SparkFiles
from cepheid.streaming.source_log import SourceLog
from cepheid.streaming.spool import PAUSE, Spool, Watch, entry_line, path_on
from cepheid.streaming.storage import LocalDirectory


def spool_of(base: Path, input: Path | None = None, moved_from: Path | None = None) -> Spool:
    checkpoint = base / "checkpoint"
    log = SourceLog(SparkFiles(LocalDirectory(checkpoint), str(checkpoint)))
    return Spool(
        ((input or base / "in").resolve(),), checkpoint / "_cepheid", log, () if moved_from is None else (moved_from,)
    )


def opened(base: Path, input: Path | None = None, moved_from: Path | None = None) -> Spool:
    spool = spool_of(base, input, moved_from)
    spool.open(is_new=False)
    return spool


def add(base: Path, *names: str) -> None:
    for name in names:
        path = base / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        os.utime(path, ns=(5, 5))


def handed_over(spool: Spool) -> list[str]:
    return [os.path.relpath(path_on(slip.read_text()), spool.inputs[0]) for slip in sorted(spool.directory.iterdir())]


def read_by_spark(spool: Spool, slips: int, interval: int = 10) -> None:
    """Spark's logs after batches of one slip each, all of them committed."""
    checkpoint = spool.own.parent
    for name in ("offsets", "commits", "sources/0"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    numbers = sorted(int(slip.stem) for slip in spool.directory.glob("*.slip"))
    entries = [
        {"path": (spool.directory / f"{number:012d}.slip").as_uri(), "timestamp": 1, "batchId": number - 1}
        for number in range(1, slips + 1)
    ]
    assert numbers[-1] >= slips
    last = slips - 1
    compact = (slips // interval) * interval - 1
    for batch in range(max(compact, 0), slips):
        of = entries[: batch + 1] if batch == compact else [entries[batch]]
        name = f"{batch}.compact" if batch == compact else str(batch)
        (checkpoint / "sources/0" / name).write_text("\n".join(["v1", *map(json.dumps, of)]))
    (checkpoint / "metadata").write_text('{"id":"1"}')
    for batch in (last - 1, last):
        (checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{"conf":{{}}}}\n{{"logOffset":{batch}}}')
        (checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


# --- order ------------------------------------------------------------------------------------------------------------


def test_files_are_handed_over_in_the_order_of_their_writing_then_of_their_names(tmp_path: Path) -> None:
    add(tmp_path, "part-10.jsonl", "part-2.jsonl", "part-1.jsonl", "more/a.jsonl", ".hidden.jsonl", "_x/b.jsonl")
    os.utime(tmp_path / "in/more/a.jsonl", ns=(4, 4))
    spool = opened(tmp_path)
    assert spool.take_in() == 4
    assert handed_over(spool) == ["more/a.jsonl", "part-1.jsonl", "part-2.jsonl", "part-10.jsonl"]
    add(tmp_path, "part-0.jsonl")
    again = opened(tmp_path)
    assert (again.take_in(), again.take_in()) == (1, 0)
    assert handed_over(again)[-1] == "part-0.jsonl"
    times = [slip.stat().st_mtime_ns // 1_000_000 for slip in sorted(again.directory.iterdir())]
    assert times == sorted(set(times))


def test_a_slip_that_was_never_finished_hands_over_nothing(tmp_path: Path) -> None:
    """The process was killed while it wrote: the file that the slip names must not count as read."""
    add(tmp_path, "a.jsonl")
    spool = spool_of(tmp_path)
    spool.directory.mkdir(parents=True)
    (spool.directory / ".000000000001.slip").write_text(entry_line(str(tmp_path / "in/a.jsonl")))
    spool.open(is_new=False)
    assert spool.take_in() == 1


def test_the_slips_of_a_start_that_did_not_succeed_are_dropped(tmp_path: Path) -> None:
    add(tmp_path, "a.jsonl")
    (tmp_path / "other").mkdir()
    assert opened(tmp_path).take_in() == 1
    spool = spool_of(tmp_path, tmp_path / "other")
    spool.open(is_new=True)
    assert spool.take_in() == 0 and not handed_over(spool)


# --- paths ------------------------------------------------------------------------------------------------------------

ODD = [" ", "[a]", "{a,b}", "*", "?", "%", "%20", "#", '"', "\\", "\n", "\t", "é", ":", "'", os.fsdecode(b"\xff")]


def test_names_with_any_characters_are_handed_over_once(tmp_path: Path) -> None:
    add(tmp_path, *(f"{odd}x{odd}/{odd}.jsonl" for odd in ODD))
    spool = opened(tmp_path)
    assert spool.take_in() == len(ODD)
    assert sorted(handed_over(spool)) == sorted(f"{odd}x{odd}/{odd}.jsonl" for odd in ODD)
    assert opened(tmp_path).take_in() == 0


def test_another_spelling_of_the_input_is_the_same_input(tmp_path: Path) -> None:
    add(tmp_path, "a.jsonl", "more/b.jsonl")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    assert opened(tmp_path).take_in() == 2
    for spelled in (tmp_path / "link", tmp_path / "in/../in", tmp_path / "link/more/.."):
        assert opened(tmp_path, spelled).take_in() == 0


def test_slips_of_an_earlier_version_name_files_by_any_spelling(tmp_path: Path) -> None:
    add(tmp_path, "a.jsonl", "more/b.jsonl")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    spool = spool_of(tmp_path)
    spool.directory.mkdir(parents=True)
    for number, name in enumerate(("a.jsonl", "more/b.jsonl"), 1):
        (spool.directory / f"{number:012d}.slip").write_text(json.dumps(str(tmp_path / "link" / name)) + "\n")
    assert opened(tmp_path).take_in() == 0


def test_a_moved_input_is_refused_and_once_confirmed_nothing_is_read_again(tmp_path: Path) -> None:
    add(tmp_path, *(f"{number}.jsonl" for number in range(5)))
    spool = opened(tmp_path)
    spool.take_in()
    read_by_spark(spool, 3)
    before = (tmp_path / "in").resolve()
    (tmp_path / "in").rename(tmp_path / "elsewhere")
    now = tmp_path / "elsewhere"
    with pytest.raises(InputProblem, match=r"0001.slip` names .*which is not in the input .*elsewhere`") as refused:
        opened(tmp_path, now)
    assert "--moved" in str(refused.value)
    times = [slip.stat().st_mtime_ns for slip in sorted(spool.directory.iterdir())]
    confirmed = opened(tmp_path, now, moved_from=before)
    confirmed.move()
    assert confirmed.take_in() == 0
    assert [path_on(slip.read_text()) for slip in sorted(spool.directory.iterdir())][-1] == str(now / "4.jsonl")
    assert [slip.stat().st_mtime_ns for slip in sorted(spool.directory.iterdir())] == times
    assert opened(tmp_path, now).take_in() == 0


def test_a_moved_checkpoint_names_its_slips_anew(tmp_path: Path) -> None:
    add(tmp_path, *(f"{number}.jsonl" for number in range(25)))
    spool = opened(tmp_path)
    spool.take_in()
    read_by_spark(spool, 24)
    assert spool.log.location() == spool.directory
    (tmp_path / "checkpoint").rename(tmp_path / "it has moved")
    (tmp_path / "checkpoint").symlink_to(tmp_path / "it has moved")
    log = SourceLog(SparkFiles(LocalDirectory(tmp_path / "it has moved"), "it has moved"))
    moved = Spool(((tmp_path / "in").resolve(),), tmp_path / "it has moved/_cepheid", log)
    moved.open(is_new=False)
    moved.move()
    log.require_intact()
    assert (log.location(), log.handed(), log.processed()) == (moved.directory, 24, 24)


# --- the list ---------------------------------------------------------------------------------------------------------

FILES = 1500
LISTED = 1280


def compacted(base: Path, read: int = 1300) -> Spool:
    (base / "in").mkdir(exist_ok=True)
    for number in range(FILES):
        (base / "in" / f"part-{number}.jsonl").touch()
    spool = opened(base)
    spool.take_in()
    read_by_spark(spool, read)
    spool.compact()
    return spool


def test_slips_of_files_that_were_read_move_to_a_list(tmp_path: Path) -> None:
    spool = compacted(tmp_path)
    assert len(list(spool.directory.iterdir())) == FILES - LISTED == len(spool.slips)
    assert len((spool.own / "files").read_text().splitlines()) == LISTED
    log = next((tmp_path / "checkpoint/sources/0").glob("*.compact"))
    assert len(log.read_text().splitlines()) == 1 + 20, "the version, and no slip that is gone"
    spool.log.require_intact()
    again = opened(tmp_path)
    assert (again.take_in(), again.last, again.last_time) == (0, FILES, spool.last_time)
    add(tmp_path, "new.jsonl")
    assert again.take_in() == 1 and handed_over(again)[-1] == "new.jsonl"
    read_by_spark(again, FILES + 1)
    again.compact()
    assert len(again.slips) == FILES + 1 - LISTED, "fewer than are worth it"


def test_a_process_that_ends_while_slips_move_loses_nothing(tmp_path: Path) -> None:
    spool = compacted(tmp_path)
    listed = (spool.own / "files").read_bytes()
    for cut in (5, 50, 5000):  # the list is written, or half of a line, and no slip is removed yet
        lines = listed[: len(listed) - cut].count(b"\n")
        (spool.own / "files").write_bytes(listed[: len(listed) - cut])
        for number in range(lines + 1, LISTED + 1):
            (spool.directory / f"{number:012d}.slip").write_text(
                entry_line(str(spool.inputs[0] / f"part-{number - 1}.jsonl"))
            )
        again = opened(tmp_path)
        assert (again.take_in(), len(again.known), again.last) == (0, FILES, FILES)
        assert (spool.own / "files").read_bytes() == b"".join(listed.splitlines(True)[:lines]), "no half of a line"


Damage = Callable[[Spool], object]


def _remove_slips(spool: Spool, numbers: range) -> None:
    for number in numbers:
        (spool.directory / f"{number:012d}.slip").unlink()


def _edit(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def _remove_all(spool: Spool) -> None:
    _remove_slips(spool, range(LISTED + 1, FILES + 1))
    (spool.own / "files").unlink()


def _slips_as_file(spool: Spool) -> None:
    _remove_slips(spool, range(LISTED + 1, FILES + 1))
    spool.directory.rmdir()
    spool.directory.write_text("")


def _as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _list(change: Callable[[bytes], bytes]) -> Damage:
    return lambda spool: _edit(spool.own / "files", change)


def _slip(change: Callable[[bytes], bytes]) -> Damage:
    return lambda spool: _edit(spool.directory / "000000001444.slip", change)


DAMAGE: dict[str, Damage] = {
    "the list is gone": lambda spool: (spool.own / "files").unlink(),
    "the list is empty": _list(lambda content: b""),
    "the list is cut at a line": _list(lambda content: b"\n".join(content.split(b"\n")[:-3]) + b"\n"),
    "the list is cut within a line": _list(lambda content: content[:-5]),
    "a name in the list has changed": _list(lambda content: content.replace(b"part-77.", b"part-97.")),
    "a line of the list is gone": _list(lambda content: b"\n".join(content.split(b"\n")[1:])),
    "the list is garbage": _list(lambda content: b"garbage\n" * 9),
    "the list is not UTF-8": _list(lambda content: b"\xff" + content),
    "the list is a directory": lambda spool: _as_directory(spool.own / "files"),
    "a slip is gone": lambda spool: _remove_slips(spool, range(1400, 1401)),
    "the first slips are gone": lambda spool: _remove_slips(spool, range(LISTED + 1, LISTED + 3)),
    "the slips are gone": lambda spool: _remove_slips(spool, range(LISTED + 1, FILES + 1)),
    "all is gone": _remove_all,
    "a slip is empty": _slip(lambda content: b""),
    "a slip names another file": _slip(lambda content: content.replace(b"part", b"pert")),
    "a slip is not UTF-8": _slip(lambda content: b"\xff"),
    "a slip is a directory": lambda spool: _as_directory(spool.directory / "000000001444.slip"),
    "a slip has no number": lambda spool: (spool.directory / "x.slip").write_text("1"),
    "slips are a file": _slips_as_file,
}


def test_a_damaged_or_incomplete_list_is_noticed(tmp_path: Path) -> None:
    spool, checkpoint, whole = compacted(tmp_path), tmp_path / "checkpoint", tmp_path / "whole"
    shutil.copytree(checkpoint, whole)
    opened(tmp_path)
    for what, damage in DAMAGE.items():
        damage(spool)
        with pytest.raises(InputProblem) as noticed:
            opened(tmp_path)
        message = str(noticed.value)
        assert str(checkpoint / "_cepheid") in message and "hint: " in message, (what, message)
        assert len(message.splitlines()[0]) < 600, (what, message)
        shutil.rmtree(checkpoint)
        shutil.copytree(whole, checkpoint)


# --- cost -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on another system than Linux, or a network file system."""
    monkeypatch.setattr(Reports, "watch", lambda self, path: None)


def test_a_look_that_finds_a_new_file_lists_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cost does not depend on the number of files that were read before."""
    add(tmp_path, *(f"{number}.jsonl" for number in range(50)), "day/a.jsonl")
    spool = opened(tmp_path)
    assert spool.take_in() == 51
    monkeypatch.setattr(listing, "_LEAST_INTERVAL", 100.0)
    listed: list[str] = []
    scandir = os.scandir

    def scandir_noted(path: Path) -> Any:
        listed.append(path.name)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scandir_noted)
    add(tmp_path, "new.jsonl", "day/b.jsonl", ".hidden", "_hidden")
    (tmp_path / "outside").write_text("")
    (tmp_path / "outside").rename(tmp_path / "in/moved.jsonl")
    (tmp_path / "in/0.jsonl").unlink()
    assert (spool.take_in(), listed) == (3, [])
    assert (spool.take_in(), listed) == (0, [])
    add(tmp_path, "night/c.jsonl")
    assert (spool.take_in(), listed) == (1, ["night"])
    add(tmp_path, "night/d.jsonl", "night/deep/e.jsonl")
    assert (spool.take_in(), listed) == (2, ["night", "deep"])
    assert sorted(spool.slips.values())[-3:] == ["night/c.jsonl", "night/d.jsonl", "night/deep/e.jsonl"]


def test_too_many_changes_to_report_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "a.jsonl")
    spool = opened(tmp_path)
    assert spool.take_in() == 1

    def overflowing(self: Reports) -> Iterator[tuple[int, str | None]]:
        raise Overflow
        yield

    add(tmp_path, "b.jsonl")
    monkeypatch.setattr(Reports, "read", overflowing)
    assert spool.take_in() == 1


def test_removing_slips_does_not_delay_the_next_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "a.jsonl")
    pauses: list[float] = []
    watch = Watch(opened(tmp_path))

    def is_third(pause: float) -> bool:
        pauses.append(pause)
        return len(pauses) > 2

    monkeypatch.setattr(watch.ended, "wait", is_third)
    monkeypatch.setattr(Spool, "compact", lambda self: time.sleep(0.1))
    watch._poll()
    assert pauses == [PAUSE] * 3


@pytest.mark.usefixtures("without_reports")
def test_a_look_at_an_unchanged_directory_lists_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "old/a.jsonl", "new/b.jsonl")
    spool = opened(tmp_path)
    now = 1000.0
    listed: list[str] = []
    scandir = os.scandir

    def scandir_noted(path: Path) -> Any:
        listed.append(path.name)
        return scandir(path)

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(listing, "_LEAST_INTERVAL", 100.0)
    monkeypatch.setattr(os, "scandir", scandir_noted)

    def look(later: float) -> tuple[int, list[str]]:
        nonlocal now
        now += later
        listed.clear()
        return spool.take_in(), sorted(listed)

    everything = ["in", "new", "old"]
    assert look(0) == (2, everything)
    assert look(1) == (0, everything), "a change may still not show in the time of the directory"
    assert look(2) == (0, everything)
    assert look(1) == (0, [])
    add(tmp_path, "new/c.jsonl")
    assert look(1) == (1, ["new"])
    assert look(3) == (0, ["new"])
    assert look(1) == (0, [])
    add(tmp_path, "newer/d.jsonl")
    assert look(1) == (1, ["in", "newer"])
    assert look(3) == (0, ["in", "newer"])
    assert look(1) == (0, [])


@pytest.mark.usefixtures("without_reports")
def test_a_directory_without_times_is_listed_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "a.jsonl")
    spool = opened(tmp_path)
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    spool.take_in()
    now += 3
    spool.take_in()
    at = (tmp_path / "in").stat().st_mtime_ns
    add(tmp_path, "b.jsonl")
    os.utime(tmp_path / "in", ns=(at, at))
    now += 1
    assert spool.take_in() == 0
    now += 10
    assert spool.take_in() == 1


def test_an_input_that_vanishes_is_reported(tmp_path: Path) -> None:
    add(tmp_path, "a.jsonl", "more/b.jsonl")
    spool = opened(tmp_path)
    assert spool.take_in() == 2
    for name in ("more/b.jsonl", "a.jsonl"):
        (tmp_path / "in" / name).unlink()
    (tmp_path / "in/more").rmdir()
    assert spool.take_in() == 0
    (tmp_path / "in").rmdir()
    with pytest.raises(InputProblem, match="cannot list the input"):
        spool.take_in()
