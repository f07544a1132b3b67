"""Statistics of events in Spark, in one aggregate over their rows: the number of events of each class, the
number of them that pass its single-class predicates, and the distribution of every attribute in a predicate between
events. The selectivity of such a predicate is estimated as if attributes were independent."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from cepheid import expr as ex
from cepheid.engine.prepare import Prepared
from cepheid.evaluation import Env, holds
from cepheid.events import Clock, primitive
from cepheid.expr import At, Attr, Compare, Expr, attributes_in
from cepheid.optimize.stats import NO_STATS, Stats, is_single
from cepheid.physical import Kind, Plan
from cepheid.spark.catalyst import EventColumns, column, ticks
from cepheid.spark.source import SparkSource

_QUANTILES = 64
_ACCURACY = 1_000
_COMBINATIONS = 1_000
_UNSEEN = 0.5
"""The count of an event that never occurred: it is rare, but not impossible."""


def statistics(prepared: Prepared, source: SparkSource) -> Stats:
    """`prepared` has a plan of an evaluator that searches for the best plan by statistics."""
    return _Counting(prepared.plan, source, prepared.clock).stats()


@dataclass(frozen=True, slots=True)
class _Counting:
    plan: Plan
    events: SparkSource
    clock: Clock

    def stats(self) -> Stats:
        time = ticks(column(self.events.columns.time), self.events.time_type)
        steps = self.plan.steps
        read = EventColumns(self.events.frame.schema, self.events.type_column, self.plan.lacks)
        bits = []
        for own in (self.plan.bits[step.begin] for step in steps):
            bits += [replace(own, tests=tuple(filter(read.can_evaluate, own.tests))), replace(own, tests=())]
        mask = read.mask(replace(self.plan, bits=tuple(bits)))
        assert mask is not None
        wanted: dict[str, Column] = {"events": F.count(F.lit(1)), "first": F.min(time), "last": F.max(time)}
        for number, step in enumerate(steps):
            wanted[f"passed {step.var}"] = F.count_if(_has(mask, 2 * number))
            wanted[f"typed {step.var}"] = F.count_if(_has(mask, 2 * number + 1))
        indexes = {step.var: number for number, step in enumerate(steps)}
        for attr in self._attributes():
            value = F.when(_has(mask, 2 * indexes[attr.var]), read.value(attr.name))
            name = f"{attr.var}.{attr.name}"
            wanted[f"distinct {name}"] = F.approx_count_distinct(value)
            if self.plan.columns[attr.name] is not Kind.CODE:
                shares = [(i + 0.5) / _QUANTILES for i in range(_QUANTILES)]
                wanted[f"quantiles {name}"] = F.percentile_approx(value.cast("double"), shares, _ACCURACY)
        timed = self.events.frame.filter(column(self.events.columns.time).isNotNull())
        row = timed.agg(*(each.alias(f"c{i}") for i, each in enumerate(wanted.values()))).first()
        assert row is not None
        return self._from(dict(zip(wanted, row, strict=True)))

    def _between(self) -> list[Expr]:
        """The predicates between columns of the frame."""
        between = [p for p in self.plan.predicates if len(ex.variables(p)) > 1 and is_single(p)]
        return [p for p in between if not self.plan.derived.keys() & attributes_in([p])]

    def _attributes(self) -> list[Attr]:
        named = [node for p in self._between() for node in ex.walk(p) if isinstance(node, Attr)]
        return list(dict.fromkeys(Attr(node.var, node.name) for node in named))

    def _from(self, counted: Mapping[str, Any]) -> Stats:
        if not counted["events"]:
            return NO_STATS
        duration = max(counted["last"] - counted["first"] + 1, 1)
        typed = {step.var: max(counted[f"typed {step.var}"], _UNSEEN) for step in self.plan.steps}
        passed = {step.var: max(counted[f"passed {step.var}"], _UNSEEN) for step in self.plan.steps}
        shares = {ex.to_text(p): share for p in self._between() if (share := self._selectivity(p, counted)) is not None}
        return Stats(
            {var: count / duration for var, count in typed.items()},
            {var: passed[var] / typed[var] for var in typed},
            shares,
            {},
            counted["events"] / duration,
        )

    def _selectivity(self, predicate: Expr, counted: Mapping[str, Any]) -> float | None:
        match predicate:
            case Compare(op="=", left=Attr(at=At.EVENT) as a, right=Attr(at=At.EVENT) as b):
                return 1.0 / max(counted[f"distinct {x.var}.{x.name}"] or 1 for x in (a, b))
        attributes = list(dict.fromkeys(Attr(n.var, n.name) for n in ex.walk(predicate) if isinstance(n, Attr)))
        quantiles = [counted.get(f"quantiles {attr.var}.{attr.name}") for attr in attributes]
        return None if not all(quantiles) else self._share(predicate, attributes, quantiles)

    def _share(self, predicate: Expr, attributes: Sequence[Attr], quantiles: Sequence[Any]) -> float:
        """How often the predicate holds for values drawn from the distributions."""
        chance = random.Random(len(attributes))
        held = 0
        for _ in range(_COMBINATIONS):
            values: dict[str, dict[str, float]] = {}
            for attr, known in zip(attributes, quantiles, strict=True):
                values.setdefault(attr.var, {})[attr.name] = chance.choice(known)
            bound = {var: primitive(var, 0, number, of) for number, (var, of) in enumerate(values.items())}
            held += holds(predicate, Env({}, bound, self.clock))
        return max(held, _UNSEEN) / _COMBINATIONS


def _has(mask: Column, bit: int) -> Column:
    return F.getbit(mask, F.lit(bit)) == 1
