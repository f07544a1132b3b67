"""Failed detections (NEXT's ∅): instances that θ or an exception discards, and why.

They are counted. With the option `failures=rows` they are the output, in place of the matches, each with its reason.
"""

from __future__ import annotations

from cepheid.expr import to_text
from cepheid.kernels.successor.operators import Exception_, Iteration, Next, Operator, Waiting, operators_of
from cepheid.physical import Options, Plan

OPTIONS: Options = {"failures": ("count", "rows")}
REASON = "reason"
"""The column with the reason of a failed detection."""


def shows_failures(plan: Plan) -> bool:
    """Whether failed detections are output in place of matches."""
    return plan.core is not None and plan.forced(OPTIONS)["failures"] == "rows"


def reasons(plan: Plan) -> list[str]:
    """The reasons of failed detections, by their numbers."""
    assert plan.core is not None
    return list(reason_numbers(operators_of(plan.core, plan.has_durations, plan.composite)).values())


def reason_numbers(root: Operator) -> dict[tuple[int, str], str]:
    """The reason of each operator, by its number and by what discards its instances: `keep` or `cancel`."""
    found: dict[tuple[int, str], str] = {}
    for op in root.walk():
        if isinstance(op, Waiting):
            leaf_keeps = getattr(op.awaited, "keeps", ())
            tests = ", ".join(map(to_text, (*leaf_keeps, *op.keep)))
            found[op.number, "keep"] = f"{op.text}: the successor fails {tests}"
        if isinstance(op, Next | Exception_) and op.cancel is not None:
            found[op.number, "cancel"] = f"{op.text}: cancelled by {op.cancel.text}"
    return found


def is_shown(op: Operator) -> bool:
    """Whether what an operator discards is a failed detection of the query, and not a part of an iteration or of what
    cancels."""
    below, above = op, op.parent
    while above is not None:
        if isinstance(above, Iteration) or (isinstance(above, Next | Exception_) and below is above.cancel):
            return False
        below, above = above, above.parent
    return True
