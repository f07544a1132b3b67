"""The statistics of a stream for the cost model (ZStream table 1): the rate of each class, and the selectivity of
single-class predicates, of multi-class predicates, and of the order of a sequence.

Statistics come from a sample of events, from a file, or from the running stream, where they are averaged over the last
observations (§5.3). Unknown statistics have defaults.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from cepheid import expr as ex
from cepheid.errors import InputProblem, listing, shown
from cepheid.expr import At, Attr, Expr

K = TypeVar("K")

DEFAULT_ORDER = 0.5
"""Pt where nothing is known (table 1)."""
_DEFAULT_SELECTIVITY = {"=": 0.1, "!=": 0.9}
_OTHER_SELECTIVITY = 0.33
_LEAST = 1e-6
"""The lowest selectivity: a sample without any match is weak evidence."""
_TELLABLE = 0.02
"""Samples of some hundred combinations cannot distinguish selectivities much lower than this."""


@dataclass(frozen=True, slots=True)
class Stats:
    """`rates` are the events of each variable's class per tick (R_E), `passing` the share of them that its
    single-class predicates let through (P_E); `selectivities` goes by the predicate's text, `orders` by two variables
    (Pt: how often, of two events in a window, the first comes before the second). `total_rate` is of all events."""

    rates: Mapping[str, float] = field(default_factory=dict)
    passing: Mapping[str, float] = field(default_factory=dict)
    selectivities: Mapping[str, float] = field(default_factory=dict)
    orders: Mapping[tuple[str, str], float] = field(default_factory=dict)
    total_rate: float | None = None

    def selectivity(self, predicate: Expr) -> float:
        known = self.selectivities.get(ex.to_text(predicate))
        if known is not None:
            return max(known, _LEAST)
        if isinstance(predicate, ex.Compare):
            return _DEFAULT_SELECTIVITY.get(predicate.op, _OTHER_SELECTIVITY)
        return _OTHER_SELECTIVITY

    def order(self, earlier: Iterable[str], later: Iterable[str]) -> float:
        """Pt between the neighbouring classes of two operands."""
        known = [self.orders[pair] for a in earlier for b in later if (pair := (a, b)) in self.orders]
        return max(sum(known) / len(known), _LEAST) if known else DEFAULT_ORDER


NO_STATS = Stats()


# --- from a file ------------------------------------------------------------------------------------------------------

_SECTIONS = ("rates", "passing", "selectivities", "orders", "total_rate")


def from_json(text: str, source: str = "the statistics") -> Stats:
    """Statistics as a user writes them.

    >>> stats = from_json('{"rates": {"IBM": 0.5}, "selectivities": {"IBM.price > Sun.price": 0.03}}')
    >>> stats.rates["IBM"], stats.order(["IBM"], ["Sun"])
    (0.5, 0.5)
    """
    try:
        found = json.loads(text)
    except json.JSONDecodeError as problem:
        raise InputProblem(f"{source} is not JSON: {problem.msg} in line {problem.lineno}") from None
    return stats_of(found, source)


def stats_of(found: object, source: str = "the statistics") -> Stats:
    """Statistics in the form of a file, as Python reads it."""
    if isinstance(found, Stats):
        return found
    if not isinstance(found, dict) or set(found) - set(_SECTIONS):
        raise InputProblem(f"{source} has other parts than statistics", expected=f"an object with {listing(_SECTIONS)}")
    for section in _SECTIONS[:-1]:
        _require_numbers(found.get(section, {}), section, source)
    total = found.get("total_rate")
    if total is not None and not _is_amount(total):
        raise InputProblem(f"`total_rate` of {source} is no rate", expected="a number of events per tick")
    orders = {}
    for pair, share in found.get("orders", {}).items():
        earlier, separator, later = str(pair).partition(";")
        if not separator:
            raise InputProblem(f"`orders` of {source} has `{pair}`", expected="two variables, `A;B`")
        orders[earlier.strip(), later.strip()] = float(share)
    return Stats(found.get("rates", {}), found.get("passing", {}), found.get("selectivities", {}), orders, total)


def read_stats(path: str) -> Stats:
    """Statistics from a file of JSON."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputProblem(f"the statistics in `{shown(path, 200)}` cannot be read: {problem}") from None
    return from_json(text, f"`{shown(path, 200)}`")


def to_json(stats: Stats) -> str:
    parts: dict[str, Any] = {
        "rates": dict(stats.rates),
        "passing": dict(stats.passing),
        "selectivities": dict(stats.selectivities),
        "orders": {f"{a};{b}": share for (a, b), share in stats.orders.items()},
        "total_rate": stats.total_rate,
    }
    return json.dumps({name: part for name, part in parts.items() if part}, indent=2)


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _require_numbers(section: object, name: str, source: str) -> None:
    if not isinstance(section, dict) or not all(_is_amount(value) for value in section.values()):
        raise InputProblem(f"`{name}` of {source} is not a table of numbers", expected="an object of name: number")


def is_single(predicate: Expr) -> bool:
    """Whether a predicate reads one event for each of its variables, and no groups."""
    nodes = [node for node in ex.walk(predicate) if isinstance(node, Attr | ex.Aggregate)]
    return all(isinstance(node, Attr) and node.at is At.EVENT for node in nodes)


# --- from the running stream ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunningStats:
    """Averages over the last `length` observations (§5.3). A jump beyond chance restarts the average, which would
    otherwise follow the new value late."""

    length: int = 4
    observations: tuple[Stats, ...] = ()

    def observed(self, stats: Stats) -> RunningStats:
        change = drift(self.average, stats) if self.observations else None
        if change is not None and change.before is not None and change.size > _JUMP:
            return RunningStats(self.length, (stats,))
        return RunningStats(self.length, (*self.observations, stats)[-self.length :])

    @property
    def average(self) -> Stats:
        seen = self.observations
        totals = [s.total_rate for s in seen if s.total_rate is not None]
        return Stats(
            _averaged([s.rates for s in seen]),
            _averaged([s.passing for s in seen]),
            _averaged([s.selectivities for s in seen]),
            _averaged([s.orders for s in seen]),
            sum(totals) / len(totals) if totals else None,
        )


def _averaged(tables: Sequence[Mapping[K, float]]) -> dict[K, float]:
    names = dict.fromkeys(name for table in tables for name in table)
    known = {name: [table[name] for table in tables if name in table] for name in names}
    return {name: sum(values) / len(values) for name, values in known.items()}


@dataclass(frozen=True, slots=True)
class Drift:
    """A statistic that has changed. `before` is None if it was unknown. `tellable` is the resolution of the statistic:
    it is added to both values, so a change between values far below it counts for little."""

    statistic: str
    before: float | None
    after: float
    tellable: float = 0.0

    @property
    def size(self) -> float:
        """The relative change in either direction: 0.5 if the larger value is 1.5 times the smaller."""
        if self.before is None:
            return math.inf
        low, high = sorted((self.before + self.tellable, self.after + self.tellable))
        return high / low - 1.0 if low > 0 else 0.0 if high == low else math.inf

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.statistic} is {self.after:.3g}, which was not known"
        return f"{self.statistic} went from {self.before:.3g} to {self.after:.3g}"


_JUMP = 3.0
_PARTS = {"rates": "the rate of", "passing": "the share that passes of", "orders": "the share in order of"}


def drift(before: Stats, after: Stats) -> Drift | None:
    """The statistic that changed most; None where nothing did."""
    found = []
    for part, words in _PARTS.items():
        old, new = getattr(before, part), getattr(after, part)
        for key in new:
            label = ";".join(key) if isinstance(key, tuple) else key
            found.append(Drift(f"{words} {label}", old.get(key), new[key]))
    for text, share in after.selectivities.items():
        found.append(Drift(f"the selectivity of `{text}`", before.selectivities.get(text), share, _TELLABLE))
    largest = max(found, key=lambda change: change.size, default=None)
    return largest if largest is not None and largest.size > 0 else None
