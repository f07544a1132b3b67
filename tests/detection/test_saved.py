"""A detection that is killed at any moment goes on from its saved state: the same matches, each once, or gaps."""

import itertools
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from detection.running import rows
from detection.test_flight import QUERY, TABLES, listed, log_of, served
from ports import free_port

import cepheid
from cepheid.detection.api import detection
from cepheid.detection.detector import UNCERTAIN
from cepheid.detection.run import Running
from cepheid.errors import InputProblem
from cepheid.io.inputs import DEFAULT_COLUMNS

NEGATED = "complex Q on A as a, B as b, C as c event seq(a, !b, c; 100) where a.id = c.id"


def expected(query: str) -> list[str]:
    return rows(cepheid.match(query, pa.concat_tables(TABLES.values())))


def started(query: str, path: str, state: Path, **options: Any) -> Running:
    return Running(
        detection(query, path, DEFAULT_COLUMNS, state=str(state), save_every=0.0, timeout=0.5, attempts=20, **options)
    )


@pytest.mark.parametrize("query", [QUERY, NEGATED])
def test_a_detection_goes_on_from_its_state(query: str, tmp_path: Path) -> None:
    """Each run is left after some tables, as if its process had been killed before it wrote the next."""
    rng, found, runs = random.Random(3), [], 0
    plan = "a -> b -> c" if query is QUERY else "a -> c -> !b"
    with served(*(log_of(name, table) for name, table in TABLES.items()), loss=0.2, seed=4) as servers:
        path = listed(tmp_path, servers)
        is_whole = False
        while not is_whole:
            runs += 1
            tables = started(query, path, tmp_path / "state", plan=plan).matches()
            taken = list(itertools.islice(tables, rng.randint(1, 2)))
            is_whole = next(tables, None) is None
            found += taken  # the state was saved after these, when the next was asked for
            del tables
    assert rows(pa.concat_tables(found)) == expected(query)
    assert runs > 1


def test_the_state_of_another_detection_is_refused(tmp_path: Path) -> None:
    with served(*(log_of(name, table) for name, table in TABLES.items())) as servers:
        path = listed(tmp_path, servers)
        list(started(QUERY, path, tmp_path / "state").matches())
        with pytest.raises(InputProblem, match="another query"):
            started(NEGATED, path, tmp_path / "state")
        with pytest.raises(InputProblem, match="other sources"):
            started(QUERY, listed(tmp_path, servers[:2]), tmp_path / "state")
    file = tmp_path / "state" / "detection.state"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(InputProblem, match="is damaged"):
        started(QUERY, path, tmp_path / "state")


@pytest.mark.parametrize("gaps", ["mark", "hold"])
def test_matches_that_a_gap_could_change_are_marked_or_held(gaps: str, tmp_path: Path) -> None:
    with served(*(log_of(name, table) for name, table in TABLES.items())) as servers:
        path = listed(tmp_path, servers)
        running = Running(
            detection(NEGATED, path, DEFAULT_COLUMNS, plan="a -> c -> !b", timeout=0.2, attempts=2, gaps=gaps)
        )
        servers[1].shutdown()
        found = pa.concat_tables([running.schema.empty_table(), *running.matches()])
    without = cepheid.match(NEGATED, pa.concat_tables([TABLES["first"], TABLES["third"]]))
    assert {gap.source for gap in running.gaps} == {"second"}
    assert without.num_rows > 10
    if gaps == "hold":
        assert (found.num_rows, running.held) == (0, without.num_rows)
    else:
        assert rows(found.drop_columns([UNCERTAIN])) == rows(without)
        assert all(found.column(UNCERTAIN).to_pylist())


# --- processes that are killed ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_killed_processes_give_the_same_detections(seed: int, tmp_path: Path) -> None:
    """The base and its sources are killed, together and apart, ten times each run, at random moments."""
    rng = random.Random(seed)
    ports = {name: free_port() for name in TABLES}
    for name, table in TABLES.items():
        lines = [json.dumps(row) for row in table.to_pylist()]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    entries = [{"name": name, "address": f"grpc://127.0.0.1:{port}", "latency": 5} for name, port in ports.items()]
    (tmp_path / "sources.json").write_text(json.dumps({"sources": entries}))
    (tmp_path / "q.ced").write_text(NEGATED)

    def source(name: str) -> subprocess.Popen[bytes]:
        command = ["source", "serve", "--name", name, "--input", str(tmp_path / f"{name}.jsonl")]
        command += ["--listen", f"127.0.0.1:{ports[name]}", "--delay", "400 ms", "--loss", "0.4"]
        return subprocess.Popen([sys.executable, "-m", "cepheid", *command], stdout=subprocess.DEVNULL)

    def base() -> subprocess.Popen[bytes]:
        command = ["detect", "--query-file", str(tmp_path / "q.ced"), "--sources", str(tmp_path / "sources.json")]
        command += ["--state", str(tmp_path / "state"), "--output", str(tmp_path / "out.jsonl"), "--timeout", "1.5"]
        command += ["--attempts", "200", "--plan", "a -> c -> !b"]
        with (tmp_path / "log").open("ab") as log:
            return subprocess.Popen([sys.executable, "-m", "cepheid", *command], stderr=log)

    running = {name: source(name) for name in TABLES}
    detecting = base()
    kills = 0
    try:
        while kills < 10 and detecting.poll() is None:
            time.sleep(rng.uniform(0.2, 2.5))
            victims = rng.sample([*TABLES, "base"], rng.randint(1, 3))
            if kills < 3 and "base" not in victims:
                victims.append("base")  # before it can have found all
            for name in victims:
                one = detecting if name == "base" else running[name]
                one.kill()
                one.wait()
            kills += 1
            for name in victims:
                if name == "base":
                    detecting = base()
                else:
                    running[name] = source(name)
        if detecting.poll() is not None:
            detecting = base()
        assert detecting.wait(600) == 0, (tmp_path / "log").read_text()
    finally:
        for process in [detecting, *running.values()]:
            process.kill()
            process.wait()
    written: list[Any] = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    found = sorted((line["a"]["ts"], line["c"]["ts"]) for line in written)
    oracle: list[Any] = cepheid.match(NEGATED, pa.concat_tables(TABLES.values())).to_pylist()
    assert found == sorted((row["a"]["ts"], row["c"]["ts"]) for row in oracle)
    assert kills > 2
