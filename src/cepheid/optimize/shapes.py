"""Tree plans by shape: left-deep, right-deep, bushy, or written out as in ZStream §6.2."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cepheid.errors import InputProblem, shown
from cepheid.events import Duration
from cepheid.logic import normal_form
from cepheid.pattern import Conj, Disj, EventClass, Pattern, Seq
from cepheid.tree_plan import ConNode, DisNode, LeafBuffer, SeqNode, TreeNode, Within

SHAPES = ("left-deep", "right-deep", "bushy")
_NODES: dict[type[Pattern], type[SeqNode] | type[ConNode] | type[DisNode]] = {
    Seq: SeqNode,
    Conj: ConNode,
    Disj: DisNode,
}
_SIGNS = {";": Seq, "&": Conj, "|": Disj}
_DEEPEST = 64


def shaped(operands: Pattern, shape: str, windows: Mapping[Duration, int] | None = None) -> TreeNode:
    """The plan of a shape for a pattern of classes; `windows` are those of the operators, where each has its own.

    >>> from cepheid.lang import parse
    >>> pattern = parse("PATTERN A;B;C").pattern
    >>> shaped(pattern, "right-deep") == SeqNode(LeafBuffer("A"), SeqNode(LeafBuffer("B"), LeafBuffer("C")))
    True
    """
    if isinstance(operands, EventClass):
        return LeafBuffer(operands.var)
    assert isinstance(operands, Seq | Conj | Disj)
    node = _NODES[type(operands)]
    items = [shaped(item, shape, windows) for item in operands.items]

    def over(start: int, stop: int) -> TreeNode:
        if stop == start + 1:
            return items[start]
        split = {"left-deep": stop - 1, "right-deep": start + 1}.get(shape, (start + stop) // 2)
        return node(over(start, split), over(split, stop))

    return within(over(0, len(items)), operands, windows)


def within(tree: TreeNode, operands: Pattern, windows: Mapping[Duration, int] | None) -> TreeNode:
    """The plan of an operator, with its window if operators have their own."""
    if windows is None or not isinstance(operands, Seq | Conj):
        return tree
    return Within(tree, None if operands.window is None else windows[operands.window])


def parse_shape(text: str, operands: Pattern) -> TreeNode:
    """A plan written out, `[[IBM;Sun];[Oracle;Google]]`, which must be one of the pattern.

    >>> from cepheid.lang import parse
    >>> parse_shape("[A; [B; C]]", parse("PATTERN A;B;C").pattern).left.var
    'A'
    """
    tokens = re.findall(r"[\[\]();&|]|[^\s\[\]();&|]+", text)
    position = 0

    def refuse(what: str) -> InputProblem:
        return InputProblem(
            f"the plan `{shown(text)}` {what}",
            expected=f"one of {', '.join(SHAPES)}, or a plan such as `[[A;B];C]` of the pattern's operands",
        )

    def read(depth: int) -> tuple[TreeNode, Pattern]:
        nonlocal position
        if position >= len(tokens) or depth > _DEEPEST:
            raise refuse("does not end" if depth <= _DEEPEST else "is too deep")
        token = tokens[position]
        position += 1
        if token not in "[(":
            return LeafBuffer(token), EventClass(token)
        left, left_pattern = read(depth + 1)
        if position >= len(tokens) or tokens[position] not in _SIGNS:
            raise refuse("has a bracket without an operator")
        kind = _SIGNS[tokens[position]]
        position += 1
        right, right_pattern = read(depth + 1)
        if position >= len(tokens) or tokens[position] not in "])":
            raise refuse("joins more than two in one bracket")
        position += 1
        return _NODES[kind](left, right), kind((left_pattern, right_pattern))

    tree, pattern = read(0)
    if position < len(tokens):
        raise refuse("goes on after its end")
    if _unordered(normal_form(pattern)) != _unordered(normal_form(operands)):
        raise refuse("is not one of this pattern")
    return tree


def _unordered(pattern: Pattern) -> object:
    """The pattern's structure, in which the order counts in sequences alone."""
    match pattern:
        case EventClass():
            return pattern.var
        case Seq():
            return "seq", tuple(_unordered(item) for item in pattern.items)
        case Conj() | Disj():
            return type(pattern).__name__, frozenset(_unordered(item) for item in pattern.items)
        case _:
            raise AssertionError("not an operand")
