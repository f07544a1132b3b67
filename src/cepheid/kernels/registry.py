"""The evaluators by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cepheid.errors import InputProblem, NotAvailable, did_you_mean, listing, shown
from cepheid.kernels.any_runs import evaluator as any_runs
from cepheid.kernels.runs import evaluator as runs
from cepheid.kernels.stacks import evaluator as stacks
from cepheid.kernels.tree import evaluator as tree
from cepheid.optimize import lower
from cepheid.physical import Options, Plan
from cepheid.runtime.kernel import Kernel


class Evaluator(Protocol):
    """A module of the package: what can be forced of the evaluator, and the kernel of a plan."""

    OPTIONS: Options

    def kernel(self, plan: Plan) -> Kernel: ...


EVALUATORS: Mapping[str, Evaluator] = {"stacks": stacks, "runs": runs, "tree": tree, "any_runs": any_runs}


def kernel_for(plan: Plan) -> Kernel:
    if plan.evaluator not in EVALUATORS:
        raise NotAvailable(f"there is no compiled evaluator `{plan.evaluator}`")
    require_known_options(plan)
    return EVALUATORS[plan.evaluator].kernel(plan)


def require_known_options(plan: Plan) -> None:
    """What is meant for another evaluator than the plan's is left to it, but has to mean something there."""
    known = sorted({*lower.OPTIONS, *(name for evaluator in EVALUATORS.values() for name in evaluator.OPTIONS)})
    compiled = EVALUATORS.get(plan.evaluator)  # the reference evaluator has no options
    own = {**lower.OPTIONS, **(compiled.OPTIONS if compiled is not None else {})}
    for name, value in plan.options.items():
        if name not in known:
            raise InputProblem(
                f"there is no option `{shown(name)}`", expected=listing(known), hint=did_you_mean(name, known)
            )
        by_evaluator = {other: e.OPTIONS[name] for other, e in EVALUATORS.items() if name in e.OPTIONS}
        allowed = own[name] if name in own else [value for values in by_evaluator.values() for value in values]
        if allowed and str(value) not in allowed:
            takers = [other for other, values in by_evaluator.items() if str(value) in values]
            raise InputProblem(
                f"the option `{name}` cannot be `{shown(str(value))}`" + (f" for `{plan.evaluator}`" if takers else ""),
                expected=listing(allowed),
                hint=f"it can be with the evaluator {listing(takers)}" if takers else None,
            )
