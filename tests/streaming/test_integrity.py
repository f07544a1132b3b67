"""Every file of a checkpoint, damaged in every way: an error names the file, or the stream does not need it."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from saved_stream import unpack

from cepheid.errors import InputProblem
from cepheid.streaming.checkpoint import Checkpoint
from cepheid.streaming.failures import failure
from cepheid.streaming.source_log import SourceLog
from cepheid.streaming.spool import Spool
from cepheid.streaming.storage import LocalDirectory

CHUNK = 512
SPARK = ("offsets", "commits", "sources", "state", "metadata")


def write_checksums(path: Path) -> None:
    """As Hadoop does."""
    content = path.read_bytes()
    sums = [zlib.crc32(content[at : at + CHUNK]).to_bytes(4, "big") for at in range(0, len(content), CHUNK)]
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + CHUNK.to_bytes(4, "big") + b"".join(sums))


def files_in(checkpoint: Path) -> list[Path]:
    return sorted(path for path in checkpoint.rglob("*") if path.is_file())


def add_snapshot(store: Path, version: int) -> None:
    """A snapshot as RocksDB writes it, instead of the changes before it."""
    (store / "SSTs").mkdir()
    (store / "SSTs/000001-ab.sst").write_bytes(b"rows" * 700)
    listed = {"sstFiles": [{"localFileName": "000001.sst", "dfsSstFileName": "000001-ab.sst", "sizeBytes": 2800}]}
    with zipfile.ZipFile(store / f"{version}.zip", "w", zipfile.ZIP_DEFLATED) as snapshot:
        snapshot.writestr("metadata", f"v1\n{json.dumps(listed)}")
        snapshot.writestr("MANIFEST-000001", b"manifest" * 100)
    for number in range(1, version + 1):
        (store / f"{number}.changelog").unlink()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream that was stopped after three batches. One state has a snapshot, and Spark's files have checksums."""
    root = tmp_path_factory.mktemp("saved")
    unpack("jsonl", root)
    add_snapshot(root / "checkpoint/state/0/1", 2)
    for path in files_in(root / "checkpoint"):
        if path.relative_to(root / "checkpoint").parts[0] in SPARK:
            write_checksums(path)
    own = root / "checkpoint/_cepheid"
    checkpoint = Checkpoint(LocalDirectory(root / "checkpoint"), "checkpoint")
    checkpoint.record(str((root / "input").resolve()), ())  # writes a checksum too
    checkpoint.take().release()
    spool = Spool(((root / "input").resolve(),), own, SourceLog(checkpoint))
    spool.open(is_new=False)
    spool.move()  # writes slips with checksums
    for path in (root / "checkpoint/sources/0").iterdir():
        write_checksums(path)
    require_intact(root)
    assert {path.name for path in own.iterdir()} == {"stream.json", "owner.json", "lock", "slips"}
    return root


def require_intact(root: Path) -> None:
    """What a start checks before Spark runs."""
    checkpoint = Checkpoint(LocalDirectory((root / "checkpoint").resolve()), str(root / "checkpoint"))
    ownership = checkpoint.take()
    try:
        checkpoint.require_intact()
        assert checkpoint.description() is not None
        log = SourceLog(checkpoint)
        log.require_intact()
        Spool(((root / "input").resolve(),), root / "checkpoint/_cepheid", log).open(is_new=False)
    finally:
        ownership.release()


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


KINDS: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0more"),
    "garbage": lambda path: path.write_bytes(b"garbage" * 9),
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe" + path.read_bytes()),
    "flipped": _flip,
    "another JSON": lambda path: path.write_bytes(b'["v1", 7]\n'),
    "a directory": _directory,
}
NOT_NEEDED = {
    # written again at every start
    "_cepheid/owner.json": set(KINDS) - {"a directory"},
    "_cepheid/lock": set(KINDS) - {"a directory"},
    # of batches that came before the last
    "commits/0": {"missing"},
    "commits/1": {"missing"},
    # as after a crash: the batch runs again
    "commits/2": {"missing"},
    "offsets/0": {"missing"},
}


def damages(checkpoint: Path) -> list[tuple[str, str]]:
    names = [str(path.relative_to(checkpoint)) for path in files_in(checkpoint)]
    return [(name, kind) for name in names for kind in KINDS if not (kind == "flipped" and name == "_cepheid/lock")]


def test_damage_to_any_file_is_one_error_that_names_it(saved: Path, tmp_path: Path) -> None:
    tried = damages(saved / "checkpoint")
    assert len(tried) > 300
    silent = []
    for name, kind in tried:
        path, copy = saved / "checkpoint" / name, tmp_path / "copy"
        shutil.copy2(path, copy)
        KINDS[kind](path)
        try:
            require_intact(saved)
            silent.append((name, kind))
        except InputProblem as problem:
            lines = str(problem).splitlines()
            file = re.sub(r"/?\.([^/]+)\.crc$", r"/\1", name).lstrip("/")
            assert file in lines[0] or Path(name).name in lines[0], (name, kind, lines)
            assert lines[-1].startswith("  hint: ") and len(lines) <= 3, (name, kind, lines)
        finally:
            if path.is_dir():
                path.rmdir()
            shutil.copy2(copy, path)
    unexpected = [
        (name, kind)
        for name, kind in silent
        if kind not in NOT_NEEDED.get(name, ()) and not name.endswith(".crc") and "state/0/" not in name
    ]
    assert not unexpected
    lost = [(name, kind) for name, kind in silent if "state/0/" in name and not name.endswith(".crc")]
    assert {name for name, _ in lost} <= {"state/0/1/_metadata/schema"}, "Spark reads the schema of partition 0"


def test_a_directory_of_spark_that_is_gone_is_noticed(saved: Path, tmp_path: Path) -> None:
    for name in ("offsets", "sources", "state", "state/0/1", "_cepheid"):
        root = tmp_path / name.replace("/", "-")
        shutil.copytree(saved, root)
        shutil.rmtree(root / "checkpoint" / name)
        with pytest.raises(InputProblem, match=r"is missing|was not written by Cepheid"):
            require_intact(root)


def test_the_newest_entries_of_spark_must_go_together(saved: Path, tmp_path: Path) -> None:
    for number, lost in enumerate((["offsets/2"], ["offsets/1"], ["sources/0/2"], ["metadata"], ["sources/0/0"])):
        root = tmp_path / str(number)
        shutil.copytree(saved, root)
        for name in lost:
            path = root / "checkpoint" / name
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink()
        with pytest.raises(InputProblem, match=f"`{lost[0]}` in the checkpoint .* is missing"):
            require_intact(root)


def test_an_unexpected_error_of_a_worker_is_reported_by_its_last_line() -> None:
    trace = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        "  File \"worker.py\", line 9, in read\n    rows = table[name]\nKeyError: 'price'\n"
    )
    assert str(failure(trace, "checkpoint", list)).startswith("error: the stream stopped: KeyError: 'price'\n  hint: ")
