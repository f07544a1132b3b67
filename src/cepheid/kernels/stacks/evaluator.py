"""SASE's sequence scan and construction (SASE §3.2-§4): active instance stacks, for sequences of single events.

Each positive component but the last has a stack of the events that may be it (`stack_ais`); an instance remembers the
most recent instance of the previous stack (its RIP). An event that may be the last component starts the construction: a
depth-first search back through the stacks (`stack_construction`).

Stacks are partitioned by the equalities between neighbouring components (PAIS): instances of one value form a chain,
found through a hash table, so only instances that agree are ever visited (`stack_chains`). Events that may be a negated
component lie in chains of their own; an instance remembers the latest of them before it, so most absences are decided
by one look. A trailing negation is decided when the window has passed (`stack_trailing`).

Options, for the comparisons of SASE §5 (the defaults are what the optimiser would choose):
`algorithm` ais | basic      basic searches the runtime stack of all events (§3.2, `stack_basic`)
`equalities` hashed | first | none    all equalities of neighbours in the chains' key, or one, or none (plain stacks)
`others` early | late | multi         further predicates in the search, after it (selection), or Multi-PAIS
`window` early | late        window in scan and construction, or only on complete sequences
"""

from __future__ import annotations

import numpy as np

from cepheid.codegen.compile import compiled
from cepheid.kernels.stacks.ais import ActiveInstanceStacks
from cepheid.kernels.stacks.basic import RuntimeStack
from cepheid.kernels.stacks.scan import StackScan
from cepheid.physical import Kind, Options, Plan
from cepheid.runtime.kernel import Kernel

OPTIONS: Options = {
    "algorithm": ("ais", "basic"),
    "equalities": ("hashed", "first", "none"),
    "others": ("early", "late", "multi"),
    "window": ("early", "late"),
}


def kernel(plan: Plan) -> Kernel:
    options = plan.forced(OPTIONS)
    algorithm = RuntimeStack if options["algorithm"] == "basic" else ActiveInstanceStacks
    generator: StackScan = algorithm(plan, options)
    source = generator.source()
    column_types = tuple("float64" if kind is Kind.FLOAT else "int64" for kind in plan.columns.values())
    arguments = ["int", "int", "int64", "int64", "uint64", "int64", "int64", "float64", *column_types]
    arguments += [f"{array.dtype}!" for array in generator.arrays] + ["int64!", "int64!"]
    return Kernel(
        plan=plan,
        source=source,
        function=compiled(source, arguments),
        arrays=tuple(generator.arrays),
        numbers=np.array(generator.kept.constants.numbers, np.float64),
        steps=tuple(step.var for step in generator.kept.positive),
        column_types=column_types,
        has_bounds=False,
        texts=tuple(generator.kept.constants.texts),
        needs_ranks="ranks[" in source,
        operators=generator.operators(),
    )
