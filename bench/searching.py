"""Search time for the best tree plan (ZStream's Algorithm 5), by the length of the pattern."""

from __future__ import annotations

import itertools
from functools import partial

from bench.measure import Outcome, Sample, measure
from bench.report import Benchmark, Column, Report
from cepheid.lang import parse
from cepheid.logic import expanded
from cepheid.optimize.search import Situation, tree_plan

_TESTS = {"inequalities of neighbours": "{}.x < {}.x", "equalities of neighbours": "{}.x = {}.x"}
_WINDOW = 9


def _situation(length: int, test: str) -> Situation:
    classes = [f"T{number}" for number in range(length)]
    tests = " AND ".join(test.format(*pair) for pair in itertools.pairwise(classes))
    query = parse(f"PATTERN {';'.join(classes)} WHERE {tests} WITHIN {_WINDOW}")
    return Situation(query, expanded(query), {}, float(_WINDOW))


def _searched(situation: Situation) -> Outcome:
    return Outcome(len(tree_plan(situation).trees))


def _sample(length: int, name: str) -> Sample:
    return measure(length, name, 1, partial(_searched, _situation(length, _TESTS[name])), repeats=9)


def searching(quick: bool) -> Report:
    lengths = (3, 4) if quick else (4, 8, 12, 16, 20)
    return Report(
        "search",
        "search time for the best tree plan",
        "length of the pattern",
        tuple(_sample(length, name) for name in _TESTS for length in lengths),
        "the target is 10 ms for a pattern of length 20, as ZStream reports (§5.2.3).",
        columns=(Column("milliseconds (CPU)", lambda s: f"{1_000 * s.cpu:.2f}"),),
        value=lambda sample: 1_000 * sample.cpu,
        value_title="milliseconds (CPU)",
    )


BENCHMARKS = (Benchmark("search", "target: search time for a plan", searching),)
