"""SASE's sequence scan and construction (SASE §3.2-§4): active instance stacks, for sequences of single events.

Each positive component but the last has a stack of the events that may be it (`ais`); an instance remembers the
most recent instance of the previous stack (its RIP). An event that may be the last component starts the construction: a
depth-first search back through the stacks (`construction`).

Stacks are partitioned by the equalities between neighbouring components (PAIS): instances of one value form a chain,
found through a hash table, so only instances that agree are ever visited (`chains`). Events that may be a negated
component lie in chains of their own; an instance remembers the latest of them before it, so most absences are decided
by one look. A trailing negation is decided when the window has passed (`trailing`).

Options, for the comparisons of SASE §5 (the defaults are what the optimiser would choose):
`algorithm` ais | basic      basic searches the runtime stack of all events (§3.2, `basic`)
`equalities` hashed | first | none    all equalities of neighbours in the chains' key, or one, or none (plain stacks)
`others` early | late | multi         further predicates in the search, after it (selection), or Multi-PAIS
`window` early | late        window in scan and construction, or only on complete sequences
"""

from __future__ import annotations

from cepheid.kernels.requirements import why_not
from cepheid.kernels.stacks.ais import ActiveInstanceStacks
from cepheid.kernels.stacks.basic import RuntimeStack
from cepheid.kernels.stacks.scan import StackScan
from cepheid.optimize.search import plan_cost as cost
from cepheid.optimize.stats import Stats
from cepheid.pattern import Conj, EventClass, Neg, Seq, Strategy, walk
from cepheid.physical import Lowered, Options, Plan, not_made_for
from cepheid.runtime.kernel import Kernel

__all__ = ["FOLDS", "NAME", "OPTIONS", "SEARCHES", "SWITCHES", "able", "cost", "kernel", "plan"]

NAME = "stacks"
FOLDS = False
SEARCHES = False
SWITCHES = True
OPTIONS: Options = {
    "algorithm": ("ais", "basic"),
    "equalities": ("hashed", "first", "none"),
    "others": ("early", "late", "multi"),
    "window": ("early", "late"),
}


def able(lowered: Lowered) -> str | None:
    """Sequences of single events, negated ones among them, all of whose combinations are matches."""
    query = lowered.query
    has_one_window = lowered.combines and lowered.operator_windows is None
    selects_all = has_one_window or (lowered.has_strategy and query.strategy is Strategy.ANY_MATCH)
    nodes = [node for item in lowered.items for node in walk(item)]
    is_sequence = all(isinstance(item, EventClass | Neg) for item in lowered.items) and not any(
        isinstance(node, Seq | Conj) for node in nodes
    )
    if not (selects_all and is_sequence):
        return not_made_for(query)
    by_position = query.dialect.ordered_by_position  # then an event that comes later may have started first
    return why_not(lowered, counts_edges=False, durations=not by_position)


def plan(lowered: Lowered, stats: Stats) -> Plan:
    return lowered.plan(NAME)


def kernel(plan: Plan) -> Kernel:
    options = plan.forced(OPTIONS)
    algorithm: type[StackScan] = RuntimeStack if options["algorithm"] == "basic" else ActiveInstanceStacks
    return algorithm(plan, options).kernel()
