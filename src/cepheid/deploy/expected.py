"""What the operators of a deployment that run by themselves are expected to cost."""

from __future__ import annotations

import math

from cepheid.deploy.deployment import Deployment
from cepheid.engine.sampling import Sampler, is_large_enough
from cepheid.io.source import SourceDescription
from cepheid.kernels.registry import EVALUATORS
from cepheid.optimize.stats import NO_STATS


def expected_costs(deployment: Deployment, source: SourceDescription) -> dict[str, float]:
    """The nanoseconds for each event, by the name of the operator. Without those over other queries, and none of an
    input that is not sampled."""
    if not is_large_enough(source):
        return {}
    evaluators = {each.NAME: each for each in EVALUATORS}
    found: dict[str, float] = {}
    for operator in deployment.single_operators:
        plan = operator.prepared.plan
        if operator.prepared.graph is not None or plan.evaluator not in evaluators:
            continue
        cost = plan.expected
        if math.isnan(cost):
            stats = Sampler(source)(plan)
            cost = math.nan if stats == NO_STATS else evaluators[plan.evaluator].cost(plan, stats)
        if not math.isnan(cost):
            found[operator.name] = cost
    return found
