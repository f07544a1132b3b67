"""The compiled evaluators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cepheid.errors import InputProblem, NotAvailable, did_you_mean, listing, shown
from cepheid.evaluator import Evaluator
from cepheid.kernels import any_runs, runs, stacks, successor, tree
from cepheid.optimize import lower
from cepheid.optimize.stats import Stats
from cepheid.physical import Plan
from cepheid.runtime.kernel import Kernel

EVALUATORS: Sequence[Evaluator[Stats, Kernel]] = (stacks, runs, tree, any_runs, successor)
"""In order of preference: without statistics the first able evaluator is chosen, so the smallest state is first."""
_BY_NAME: Mapping[str, Evaluator[Stats, Kernel]] = {evaluator.NAME: evaluator for evaluator in EVALUATORS}
SEARCHING = tuple(evaluator.NAME for evaluator in EVALUATORS if evaluator.SEARCHES)
"""The evaluators whose plan depends on statistics."""
SWITCHING = tuple(evaluator.NAME for evaluator in EVALUATORS if evaluator.SWITCHES)
"""The evaluators that can take over from one another while a query runs."""


def kernel_for(plan: Plan) -> Kernel:
    if plan.evaluator not in _BY_NAME:
        raise NotAvailable(f"there is no compiled evaluator `{plan.evaluator}`")
    require_known_options(plan)
    return _BY_NAME[plan.evaluator].kernel(plan)


def require_known_options(plan: Plan) -> None:
    """Options of other evaluators than the plan's have no effect, but must exist and have a value that exists there."""
    known = sorted({*lower.OPTIONS, *(name for evaluator in EVALUATORS for name in evaluator.OPTIONS)})
    compiled = _BY_NAME.get(plan.evaluator)  # the reference evaluator has no options
    own = {**lower.OPTIONS, **(compiled.OPTIONS if compiled is not None else {})}
    _ = plan.max_matches, plan.max_memory  # refuse a value that is no number
    for name, value in plan.options.items():
        if name not in known:
            raise InputProblem(
                f"there is no option `{shown(name)}`", expected=listing(known), hint=did_you_mean(name, known)
            )
        by_evaluator = {other.NAME: other.OPTIONS[name] for other in EVALUATORS if name in other.OPTIONS}
        allowed = own[name] if name in own else [value for values in by_evaluator.values() for value in values]
        if allowed and str(value) not in allowed:
            takers = [other for other, values in by_evaluator.items() if str(value) in values]
            raise InputProblem(
                f"the option `{name}` cannot be `{shown(str(value))}`" + (f" for `{plan.evaluator}`" if takers else ""),
                expected=listing(allowed),
                hint=f"it can be with the evaluator {listing(takers)}" if takers else None,
            )
