"""Tree plans as data (ZStream §4): how the tree evaluator joins its buffers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


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
class UnaryNode(TreeNode):
    item: TreeNode


@dataclass(frozen=True, slots=True)
class BinaryNode(TreeNode):
    left: TreeNode
    right: TreeNode


class SeqNode(BinaryNode):
    """Records on the left that end before one on the right starts (Algorithm 1)."""


class ConNode(BinaryNode):
    """Records of both sides in any order (Algorithm 3)."""


class DisNode(BinaryNode):
    """The records of both sides."""


@dataclass(frozen=True, slots=True)
class KseqNode(BinaryNode):
    """A closure between two operands (Algorithm 4): joined are only those pairs with enough members between them."""

    closure: str


@dataclass(frozen=True, slots=True)
class Within(UnaryNode):
    """An operator with a window of its own, over the ends of its operands (CED §2.2), in ticks; None: without limit.
    To the operator around it, its records are single events."""

    window: int | None


@dataclass(frozen=True, slots=True)
class NseqNode(UnaryNode):
    """Each record of the operand with the latest event that negates it; what is joined from the left must not end
    before that (Algorithm 2)."""

    negated: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NegNode(UnaryNode):
    """A negation on top: complete records are tested against the events that must not occur."""

    negated: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupNode(UnaryNode):
    """Closures on top: the groups of complete records (whose start or end class may be missing)."""

    closures: tuple[str, ...]


_INFIX: Mapping[type[TreeNode], str] = {SeqNode: "; ", ConNode: " & ", DisNode: " | "}
TREE_NODES = (LeafBuffer, SeqNode, ConNode, DisNode, Within, NseqNode, KseqNode, NegNode, GroupNode)


def tree_operands(node: TreeNode) -> tuple[TreeNode, ...]:
    match node:
        case BinaryNode():
            return node.left, node.right
        case UnaryNode():
            return (node.item,)
        case _:
            return ()


def tree_nodes(node: TreeNode) -> list[TreeNode]:
    """The node and everything under it, top down."""
    found, waiting = [], [node]
    while waiting:
        inner = waiting.pop()
        found.append(inner)
        waiting += () if isinstance(inner, LeafBuffer) else reversed(tree_operands(inner))
    return found


def tree_text(node: TreeNode) -> str:
    """A plan on one line, as ZStream §6.2 writes it.

    >>> tree_text(SeqNode(LeafBuffer("IBM"), NseqNode(LeafBuffer("Oracle"), ("Sun",))))
    '[IBM; NSEQ(!Sun, Oracle)]'
    """
    operands = [tree_text(operand) for operand in tree_operands(node)]
    match node:
        case LeafBuffer():
            return node.var
        case SeqNode() | ConNode() | DisNode():
            return f"[{_INFIX[type(node)].join(operands)}]"
        case Within():
            return operands[0] if node.window is None else f"{operands[0]} within {node.window}"
        case KseqNode():
            return f"KSEQ({operands[0]}, {node.closure}, {operands[1]})"
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
    disjunction."""

    trees: tuple[TreeNode, ...]
    cost: float = math.nan
    runners_up: tuple[tuple[tuple[TreeNode, ...], float, str], ...] = ()
    """The best other plans, with the reason why each lost."""
    members: tuple[tuple[str, ...], ...] = ()
    """Where several queries are one plan, the variables that the matches of each tree bind, in the order of its query.
    A match then begins with the number of its query."""
