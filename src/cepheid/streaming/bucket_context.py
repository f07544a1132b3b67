"""What all buckets of a worker share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache

from cepheid.engine.adaptation import Kernels
from cepheid.engine.derivation import Wiring
from cepheid.engine.prepare import Prepared
from cepheid.kernels.registry import kernel_for
from cepheid.physical import Plan
from cepheid.runtime.kernel import Kernel
from cepheid.streaming.plan import StreamPlan

Moved = Mapping[int, Sequence[tuple[Sequence[str], bytes]]]
"""For each bucket, the states of queries that were moved to it, each with the identities of the queries."""
NOTHING: Moved = {}


class BucketContext:
    """The kernels and row schemas of a plan. A worker builds them once, for all buckets."""

    def __init__(self, plan: StreamPlan, moved: Moved = NOTHING) -> None:
        self.plan = plan
        self.moved = moved
        self.fingerprint = plan.fingerprint()
        self.retained_schema = cache(plan.retained_schema)
        """The columns of events in the state of a bucket, by its number."""
        self.packed_schema = cache(plan.packed_schema)
        """The columns of events on their way to a bucket, by its number."""
        self.kernels: defaultdict[int, Kernels] = defaultdict(Kernels)
        self.graph_kernels: dict[int, Kernel] = {}
        """By the identity of their plans, which live as long as this."""
        self.wirings: dict[tuple[int, ...], Wiring] = {}

    def wiring(self, numbers: tuple[int, ...]) -> Wiring:
        """The graph that feeds some queries."""
        if numbers not in self.wirings:
            fed = [self.plan.queries[number].read_of_graph for number in numbers]
            self.wirings[numbers] = Wiring.of_several(fed, self.plan.reader.schema)
        return self.wirings[numbers]

    def kernel_of(self, prepared: Prepared) -> Kernel:
        """The kernel of a query in a graph."""
        made = self.graph_kernels.get(id(prepared.plan))
        if made is None:
            made = self.graph_kernels[id(prepared.plan)] = kernel_for(prepared.plan)
        return made

    def kernel(self, number: int, plan: Plan) -> Kernel:
        """The kernel of a query, by the plan that is in use."""
        return self.kernels[number].of(plan)
