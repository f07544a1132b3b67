"""Streams that an earlier version of Cepheid left in the middle of their input, with all that is needed to resume them:
the input, the checkpoint, the output so far, and the complete output of the version that wrote them.

usage: python tests/saved_stream.py CEPHEID DIRECTORY      saves streams written by the command CEPHEID to DIRECTORY
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cepheid.streaming.state import STATE_FORMAT

SAVED = Path(__file__).parent / "data"
FORMATS = ("jsonl", "parquet")
SAVED_NOW, SAVED_BEFORE = f"format-{STATE_FORMAT}", "0.1.0"
"""Streams in the format of the state that this version reads, and those of version 0.1.0, in format 4."""
QUERIES = {
    "theft.sase": "EVENT SEQ(Shelf x, !(Register y), Exit z) WHERE [tag_id] AND x.price > 10 WITHIN 40 seconds",
    "unsold.sase": "EVENT SEQ(Shelf x, Register y, !(Exit z)) WHERE [tag_id] WITHIN 30 seconds",
    "rising.sase": "PATTERN SEQ(Shelf a, Register+ b[], Exit c) WHERE skip_till_next_match(a, b[], c) "
    "{ [tag_id] AND b[i].price >= b[i-1].price } WITHIN 60 seconds RETURN a.price, count(b[]), max(b[].price), c.ts",
    "any.sase": "PATTERN SEQ(Shelf a, Register+ b[], Exit c) WHERE skip_till_any_match(a, b[], c) "
    "{ [tag_id] } WITHIN 20 seconds",
    "pair.zstream": "PATTERN Shelf;Register;Exit WHERE Shelf.price < Register.price AND Exit.price > 80 "
    "WITHIN 20 seconds",
    "both.zstream": "PATTERN Shelf & Register WHERE Shelf.tag_id = Register.tag_id WITHIN 20 seconds",
}
_EVENTS, _FILES, _READ = 240, 6, 3
_ROOT = "@ROOT@"
"""Stands for the directory of the stream in files that hold absolute paths."""


def command(root: Path) -> list[str]:
    """The command that wrote the stream in this directory, and resumes it."""
    queries = [word for name in QUERIES for word in ("--query-file", str(root / "queries" / name))]
    places = [word for name in ("input", "output", "checkpoint") for word in (f"--{name}", str(root / name))]
    bounds = [
        "--watermark",
        "6s",
        "--files-per-batch",
        "1",
        "--available-now",
        "--master",
        "local[2]",
        "--time-unit",
        "ms",
    ]
    return ["stream", *queries, *places, *bounds]


def read_rest(root: Path) -> None:
    """Puts the files of the input that the stream has not read yet where it reads."""
    for path in (root / "later").iterdir():
        path.rename(root / "input" / path.name)


def matches(directory: Path) -> dict[str, Counter[str]]:
    """The matches of each query, as JSON. Version 0.1.0 wrote a directory for each."""
    found: dict[str, Counter[str]] = {Path(name).stem: Counter() for name in QUERIES}
    for path in directory.rglob("*.*"):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else []
        rows = pq.read_table(path).to_pylist() if path.suffix == ".parquet" else map(json.loads, lines)
        for row in rows:
            found[row.pop("query", path.parent.name)][json.dumps(row, sort_keys=True)] += 1
    return found


def unpack(format: str, directory: Path, saved: str = SAVED_NOW) -> None:
    """Puts a saved stream into a directory. The files of its input that it has not read yet lie in `later`."""
    with tarfile.open(SAVED / f"stream-{saved}-{format}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    _replace_root(directory / "checkpoint", _ROOT, str(directory))
    if saved == SAVED_NOW:
        description = directory / "checkpoint" / "_cepheid" / "stream.json"
        content = json.loads(description.read_text())
        checksum = hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
        description.write_text(json.dumps({**content, "checksum": checksum}, indent=1))


def _replace_root(checkpoint: Path, old: str, new: str) -> None:
    """Replaces the root in every file that holds paths, and leaves out the checksums of these files."""
    for path in [*checkpoint.glob("sources/0/*"), *checkpoint.glob("_cepheid/slips/*.slip")]:
        times = path.stat().st_atime_ns, path.stat().st_mtime_ns
        text = path.read_text()
        if path.suffix == ".slip":
            text = json.dumps(json.JSONDecoder().raw_decode(text)[0]) + "\n"
        path.write_text(text.replace(old, new))
        os.utime(path, ns=times)
    description = checkpoint / "_cepheid" / "stream.json"
    content = json.loads(description.read_text())
    content.pop("checksum", None)
    description.write_text(json.dumps(content, indent=1).replace(old, new))


def save(cepheid: str, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for format in FORMATS:
        with tempfile.TemporaryDirectory() as made:
            root = Path(made).resolve()
            _write_input(root, format)
            subprocess.run([cepheid, *command(root)], check=True)
            half = root / "half"
            half.mkdir()
            parts = ("queries", "input", "later", "output", "checkpoint")
            subprocess.run(["cp", "-a", *parts, str(half)], check=True, cwd=root)
            read_rest(root)
            subprocess.run([cepheid, *command(root)], check=True)
            (root / "output").rename(half / "complete")
            for path in half.rglob(".*.crc"):  # Spark's sums of files in which paths will change
                path.unlink()
            _replace_root(half / "checkpoint", str(root), _ROOT)
            with tarfile.open(target / f"stream-{SAVED_NOW}-{format}.tar.gz", "w:gz") as archive:
                archive.add(half, ".")


def _write_input(root: Path, format: str) -> None:
    """Events in some disorder, half of the files in `input` and half in `later`."""
    rng = random.Random(7)
    rows = [
        {
            "type": rng.choice(["Shelf", "Register", "Exit"]),
            "ts": 1000 * number,
            "tag_id": f"t{rng.randrange(12)}",
            "price": rng.randrange(100),
        }
        for number in range(_EVENTS)
    ]
    rows.sort(key=lambda row: int(str(row["ts"])) + 5000 * rng.random())
    for name in ("input", "later", "queries"):
        (root / name).mkdir()
    for name, text in QUERIES.items():
        (root / "queries" / name).write_text(text + "\n")
    size = _EVENTS // _FILES
    for number in range(_FILES):
        path = root / ("input" if number < _READ else "later") / f"events-{number}.{format}"
        part = rows[number * size : (number + 1) * size]
        if format == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in part))
        else:
            pq.write_table(pa.Table.from_pylist(part), path)


if __name__ == "__main__":
    save(sys.argv[1], Path(sys.argv[2]))
