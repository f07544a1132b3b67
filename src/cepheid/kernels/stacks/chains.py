"""The instances of a stack as a search meets them: from the latest one back, and where equalities chain them (PAIS,
SASE §4.2.1), only those of one key."""

from __future__ import annotations

from cepheid.codegen.builder import Register, Writer
from cepheid.codegen.scalar import key_of
from cepheid.kernels.instance_stack import Stack
from cepheid.kernels.stacks.layout import AT_HAND, StackLayout

CHAIN = "chain"
"""Generated code calls so the place of the event's key in a table."""


class Chains:
    """What searches ask of stacks, and the registers that stacks take."""

    def __init__(self, layout: StackLayout) -> None:
        self.layout = layout
        self.register = layout.builder.register

    def base(self, stack: Stack) -> Register:
        return self.register(stack.ring.base)

    def following(self, stack: Stack) -> Register:
        return self.register(stack.ring.following)

    def pushed(self, stack: Stack) -> Register:
        """How many instances of a stack there were."""
        return self.following(stack) if stack.ring.stacks == [stack] else self.register(f"{stack.name}_pushed")

    def find_head(self, w: Writer, stack: Stack, target: str) -> None:
        """`target` becomes the most recent instance of a chain before the event at hand. Events of one time are not in
        sequence:

            j0 = s0_next - 1
            while j0 >= s0_base and s0[3 * (j0 & s0_last) + S0_TIME] >= t:
                j0 = j0 - 1
        """
        base, following = self.base(stack), self.following(stack)
        of_key = ", of its key" if stack.links else ""
        w(f"# {target}: the latest instance in {stack.name} before this event{of_key}")
        if stack.table.is_shared:
            w(f"{target} = {stack.table.head(stack, CHAIN)}")
        elif stack.links:
            w(f"{target} = EMPTY")
            key, valid = key_of([(self.layout.term(AT_HAND, link.there), link.as_float) for link in stack.links])
            with w.block(f"if {valid}:"):
                w(f"{target} = {stack.latest(key)}")
        else:
            w(f"{target} = {following} - 1")
        if not self.layout.by_position:
            place = stack.place(target)
            with w.block(f"while {target} >= {base} and {stack.at('time', place)} >= t:"):
                w(f"{target} = {previous(stack, target, place)}")

    def alive(self, stack: Stack, number: str) -> str:
        """Whether an instance exists and can still be in the window of the event at hand."""
        alive = f"{number} >= {self.base(stack)}"
        if self.layout.sorted_by_measure(stack) and not self.layout.drops_in_scan:
            alive += f" and m - {stack.at('measure', stack.place(number))} <= limit"
        return alive


def previous(stack: Stack, number: str, place: str) -> str:
    return stack.at("prev", place) if stack.links else f"{number} - 1"
