"""Plans as data: what is computed for each event before the kernel sees it, and what the kernel then does.

A plan holds no events and no code. `bits` say which parts an event can play (the event's *mask*); they are computed
column-wise, in Catalyst or Arrow. `columns` are the only attributes that travel to the kernel. Everything else is for
the code generator of the evaluator that the plan names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from cepheid.expr import Expr
from cepheid.pattern import Query

REFERENCE = "reference"
"""The evaluator that is the oracle itself, for what no compiled evaluator can do."""


Options = Mapping[str, tuple[str, ...]]
"""What can be forced, and the values it can have: the first is the default, unless the cost decides. None are listed
where they are not words but written out."""


class Kind(Enum):
    """How an attribute's values are held in the kernel's arrays."""

    INT = "int64"
    FLOAT = "float64"
    CODE = "code"
    """A string (or boolean) as a number that stands for it."""


@dataclass(frozen=True, slots=True)
class Bit:
    """One bit of the mask: the event has one of the types (or any, if none is given) and passes the tests, each of
    which speaks of this one event, under the variable name `var`."""

    name: str
    var: str
    types: tuple[str, ...]
    tests: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A component of the pattern as an evaluator sees it. `begin` and `take` are numbers of bits in the mask: an event
    can be the component's (first) event, or a further one."""

    var: str
    begin: int
    take: int | None = None
    low: int = 1
    high: int | None = 1
    negated: bool = False

    @property
    def kleene(self) -> bool:
        return self.take is not None


# --- tree plans (ZStream §4) ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node of a tree plan, with what the cost model expects of it: the records in its buffer while a window passes,
    and its own cost (formula 1), without that of its operands."""

    cardinality: float = field(default=math.nan, compare=False, kw_only=True)
    cost: float = field(default=math.nan, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class LeafBuffer(TreeNode):
    """The events that a variable may bind. Of a closure that is counted (`^n`) or comes last in its sequence it holds
    the events that may close the group."""

    var: str


@dataclass(frozen=True, slots=True)
class SeqNode(TreeNode):
    left: TreeNode
    right: TreeNode


@dataclass(frozen=True, slots=True)
class ConNode(TreeNode):
    left: TreeNode
    right: TreeNode


@dataclass(frozen=True, slots=True)
class DisNode(TreeNode):
    left: TreeNode
    right: TreeNode


@dataclass(frozen=True, slots=True)
class NseqNode(TreeNode):
    """Each record of the operand with the latest event that negates it; what is joined from the left must not end
    before that (Algorithm 2)."""

    negated: tuple[str, ...]
    right: TreeNode


@dataclass(frozen=True, slots=True)
class KseqNode(TreeNode):
    """A closure between two operands (Algorithm 4): joined are only those pairs with enough members between them."""

    left: TreeNode
    closure: str
    right: TreeNode


@dataclass(frozen=True, slots=True)
class NegNode(TreeNode):
    """A negation on top: complete records are tested against the events that must not occur."""

    item: TreeNode
    negated: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupNode(TreeNode):
    """Closures on top: the groups of complete records (whose start or end class may be missing)."""

    item: TreeNode
    closures: tuple[str, ...]


def tree_operands(node: TreeNode) -> tuple[TreeNode, ...]:
    match node:
        case SeqNode() | KseqNode() | ConNode() | DisNode():
            return node.left, node.right
        case NseqNode():
            return (node.right,)
        case NegNode() | GroupNode():
            return (node.item,)
        case _:
            return ()


def tree_text(node: TreeNode) -> str:
    """A plan on one line, as ZStream §6.2 writes it.

    >>> tree_text(SeqNode(LeafBuffer("IBM"), NseqNode(("Sun",), LeafBuffer("Oracle"))))
    '[IBM; NSEQ(!Sun, Oracle)]'
    """
    operands = [tree_text(operand) for operand in tree_operands(node)]
    match node:
        case LeafBuffer():
            return node.var
        case SeqNode():
            return f"[{'; '.join(operands)}]"
        case KseqNode():
            return f"KSEQ({operands[0]}, {node.closure}, {operands[1]})"
        case ConNode():
            return f"[{' & '.join(operands)}]"
        case DisNode():
            return f"[{' | '.join(operands)}]"
        case NseqNode():
            return f"NSEQ({', '.join(f'!{var}' for var in node.negated)}, {operands[0]})"
        case NegNode():
            return f"NEG({operands[0]}, {', '.join(f'!{var}' for var in node.negated)})"
        case GroupNode():
            return f"GROUPS({operands[0]}, {', '.join(node.closures)})"
        case _:
            raise TypeError(f"no text for {type(node).__name__}")


@dataclass(frozen=True, slots=True)
class TreePlan:
    """One tree for each alternative of the pattern, in the order of `optimize.alternatives`; their union is the root's
    disjunction. `runners_up` are the best other plans, with the reason why each lost."""

    trees: tuple[TreeNode, ...]
    cost: float = math.nan
    runners_up: tuple[tuple[tuple[TreeNode, ...], float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """One query, ready to be turned into a kernel."""

    query: Query
    evaluator: str
    steps: tuple[Step, ...]
    bits: tuple[Bit, ...]
    lacks: Mapping[str, tuple[str, ...]]
    """attribute -> the types that lack it, of those that the query's variables can have."""
    lacking: Mapping[str, int]
    """attribute -> the bit of the events whose type lacks it, where a predicate between events needs to know."""
    predicates: tuple[Expr, ...]
    """The conjuncts that speak of more than one event; equivalence tests spelt out."""
    columns: Mapping[str, Kind]
    key: tuple[str, ...]
    """The partition attributes that every event has."""
    window: int | float | None
    counts_events: bool
    options: Mapping[str, str | bool]
    reasons: tuple[str, ...] = ()
    tree: TreePlan | None = None
    """How the tree evaluator joins."""
    expected: float = math.nan
    """The nanoseconds for each event that the cost model expects, where it was asked."""
    others: tuple[tuple[str, str], ...] = ()
    """The evaluators that could run instead, each with why it lost."""

    def forced(self, options: Options) -> dict[str, str]:
        """The value of each option: as forced, or the default."""
        return {name: str(self.options.get(name, values[0])) for name, values in options.items()}


# --- what a run did (EXPLAIN ANALYZE) ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OperatorCounts:
    """What an operator did: the records that it made and, of a join, the combinations that it tried and the predicates
    that it tested on them."""

    made: int
    tried: int | None = None
    predicates: int | None = None


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a plan did on some events: the counters of its kernel, those of each operator by the text of it, and how
    many windows passed (None without a window)."""

    counters: Mapping[str, int]
    operators: Mapping[str, OperatorCounts]
    windows: float | None
