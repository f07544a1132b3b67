"""The evaluators by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cepheid.errors import NotAvailable
from cepheid.kernels import Kernel, any_runs, runs, stacks, tree
from cepheid.physical import Plan

KERNELS: Mapping[str, Callable[[Plan], Kernel]] = {
    "stacks": stacks.kernel,
    "runs": runs.kernel,
    "tree": tree.kernel,
    "any_runs": any_runs.kernel,
}


def kernel_for(plan: Plan) -> Kernel:
    if plan.evaluator not in KERNELS:
        raise NotAvailable(f"there is no compiled evaluator `{plan.evaluator}`")
    return KERNELS[plan.evaluator](plan)
