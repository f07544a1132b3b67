"""The number of function calls of a run over a few rows, where the work around the kernel is most of the work.

A pass over the query that is made again, or a value that is computed again for every row, shows here.
`tools/trace_run.py` lists the calls by package.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_TRACE = Path(__file__).parents[2] / "tools" / "trace_run.py"
_EVENTS = "type,ts,k,v\n" + "".join(f"{'ABC'[n % 3]},{n},1,{3 * n % 7}\n" for n in range(8))
_RUN = "{{ [k] AND b[i].v > a.v }} WITHIN 100 units RETURN a.k, {}c.v"
CASES = {
    "sequence": (
        "EVENT SEQ(A a, B b, C c) WHERE [k] AND a.v < 5 AND b.v > a.v WITHIN 100 units RETURN a.k, b.v, c.v",
        2_200,
        860,
    ),
    "negation": ("EVENT SEQ(A a, !(B b), C c) WHERE [k] AND a.v < 5 WITHIN 100 units RETURN a.k, c.v", 1_850, 785),
    "next match": (
        "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) " + _RUN.format("sum(b[].v), "),
        2_400,
        1_100,
    ),
    "any match": ("PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match(a, b[], c) " + _RUN.format(""), 2_500, 985),
    "tree": ("PATTERN A; B & C WHERE A.k = B.k AND B.v > A.v WITHIN 100 units RETURN A, B, C", 2_560, 1_000),
    "EQL": ("SELECT A.v, B.v FROM A ; B WHERE FILTER(A.k = B.k), (A, B) OCCURS WITHIN 100 units", 3_640, 1_640),
}


@pytest.mark.parametrize("name", CASES)
def test_calls_of_a_run_over_a_few_rows(name: str, tmp_path: Path) -> None:
    """In a process of its own: what ran before decides which functions are compiled already."""
    query, calls, switches = CASES[name]
    events = tmp_path / "events.csv"
    events.write_text(_EVENTS)
    command = ["run", "--query", query, "--input", str(events), "--backend", "local"]
    lines = subprocess.run([sys.executable, _TRACE, *command], check=True, capture_output=True, text=True).stdout
    counted = re.match(r"(\d+) calls of \d+ functions in \d+ files, (\d+) file switches, (\d+) lines of output", lines)
    assert counted is not None, lines
    assert name == "negation" or int(counted[3]) > 0
    assert int(counted[1]) <= calls, lines
    assert int(counted[2]) <= switches, lines
