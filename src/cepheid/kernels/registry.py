"""The evaluators by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cepheid.errors import InputProblem, NotAvailable, did_you_mean, listing, shown
from cepheid.kernels import Kernel, any_runs, runs, stacks, tree
from cepheid.physical import Plan

KERNELS: Mapping[str, Callable[[Plan], Kernel]] = {
    "stacks": stacks.kernel,
    "runs": runs.kernel,
    "tree": tree.kernel,
    "any_runs": any_runs.kernel,
}

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "rewrite": ("on", "off", "True", "False"),
    # stacks, as SASE compares them
    "algorithm": ("ais", "basic", "backtrack"),
    "equalities": ("hashed", "first", "none"),
    "others": ("early", "multi", "late"),
    "window": ("early", "late"),
    # runs
    "merge": ("on", "off"),
    # trees
    "shape": (),
    "negation": ("pushed", "top"),
}
"""What can be forced, and the values it can have (none are listed for a shape, which is a tree written out)."""


def kernel_for(plan: Plan) -> Kernel:
    _require_known(plan.options)
    if plan.evaluator not in KERNELS:
        raise NotAvailable(f"there is no compiled evaluator `{plan.evaluator}`")
    return KERNELS[plan.evaluator](plan)


def _require_known(options: Mapping[str, str | bool]) -> None:
    for name, value in options.items():
        if name not in OPTIONS:
            raise InputProblem(
                f"there is no option `{shown(name)}`", expected=listing(OPTIONS), hint=did_you_mean(name, OPTIONS)
            )
        if OPTIONS[name] and str(value) not in OPTIONS[name]:
            raise InputProblem(f"the option `{name}` cannot be `{shown(str(value))}`", expected=listing(OPTIONS[name]))
