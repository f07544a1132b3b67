"""The number of function calls of a run over a few rows, where the work around the kernel is most of the work.

A pass over the query that is made again, or a value that is computed again for every row, shows here.
`tools/trace_run.py` lists the calls by package.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

_EVENTS = "type,ts,k,v\n" + "".join(f"{'ABC'[n % 3]},{n},1,{3 * n % 7}\n" for n in range(8))
_RUN = "{{ [k] AND b[i].v > a.v }} WITHIN 100 units RETURN a.k, {}c.v"
CASES = {
    "sequence": (
        "EVENT SEQ(A a, B b, C c) WHERE [k] AND a.v < 5 AND b.v > a.v WITHIN 100 units RETURN a.k, b.v, c.v",
        2_600,
        1_130,
    ),
    "negation": ("EVENT SEQ(A a, !(B b), C c) WHERE [k] AND a.v < 5 WITHIN 100 units RETURN a.k, c.v", 2_250, 1_050),
    "next match": (
        "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) " + _RUN.format("sum(b[].v), "),
        2_700,
        1_320,
    ),
    "any match": (
        "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match(a, b[], c) " + _RUN.format(""),
        2_750,
        1_160,
    ),
    "tree": ("PATTERN A; B & C WHERE A.k = B.k AND B.v > A.v WITHIN 100 units RETURN A, B, C", 2_900, 1_200),
    "EQL": ("SELECT A.v, B.v FROM A ; B WHERE FILTER(A.k = B.k), (A, B) OCCURS WITHIN 100 units", 3_800, 1_780),
}


def _trace_run() -> Any:
    spec = importlib.util.spec_from_file_location("trace_run", Path(__file__).parents[2] / "tools" / "trace_run.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", CASES)
def test_calls_of_a_run_over_a_few_rows(name: str, tmp_path: Path) -> None:
    query, calls, switches = CASES[name]
    events = tmp_path / "events.csv"
    events.write_text(_EVENTS)
    trace = _trace_run().traced(["run", "--query", query, "--input", str(events), "--backend", "local"])
    assert name == "negation" or trace.output.count("match_start") > 0
    assert sum(trace.calls.values()) <= calls, "\n".join(trace.lines())
    assert trace.switches <= switches, "\n".join(trace.lines())
