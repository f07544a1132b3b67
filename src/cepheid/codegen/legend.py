"""What the names in a kernel's generated code stand for, as comments to read it by.

They are shown above the code and are no part of it: a query's text never reaches what is compiled.
"""

from __future__ import annotations

from cepheid import expr as ex
from cepheid.errors import shown
from cepheid.events import START
from cepheid.physical import Bit
from cepheid.runtime.kernel import COUNTERS, Kernel
from cepheid.tree_plan import tree_text

_WIDEST = 118


def with_legend(kernel: Kernel) -> str:
    """The source of a kernel under the legend of its names."""
    return "".join(f"{line}\n" for line in _legend(kernel)) + "\n" + kernel.source


def _legend(kernel: Kernel) -> list[str]:
    plan = kernel.plan
    lines = [_comment(f"evaluator: {plan.evaluator}"), "#", "# bits of the mask, which say what an event can be:"]
    lines += [_comment(f"  {number}: {_meaning(bit)}") for number, bit in enumerate(plan.bits)]
    for name, number in plan.lacking.items():
        lines.append(_comment(f"  {number}: its type has no `{name}`"))
    lines.append(_comment(f"components: {', '.join(f'{n}: {step.var}' for n, step in enumerate(plan.steps))}"))
    for number, (name, kind) in enumerate(plan.columns.items()):
        subject = "the start of the event" if name == START else f"the attribute {name}"
        lines.append(_comment(f"column{number}: {subject} ({kind.value})"))
    if plan.window is not None:
        counted = "events" if plan.counts_events else "ticks"
        lines.append(_comment(f"integers[0]: the window, {plan.window} {counted}"))
    lines += [_comment(f"integers[{n}]: {value}") for n, value in enumerate(kernel.integers.tolist()) if n > 0]
    lines += [_comment(f"floats[{n}]: {value:g}") for n, value in enumerate(kernel.floats.tolist())]
    lines += [_comment(f"texts[{n}]: the code of '{text}'") for n, text in enumerate(kernel.texts)]
    if plan.tree is not None:
        lines += [_comment(f"tree: {tree_text(tree)}") for tree in plan.tree.trees]
    lines.append(_comment(f"reg: {', '.join(f'{n}: {name}' for n, name in enumerate(COUNTERS))}, and the kernel's own"))
    return lines


def _meaning(bit: Bit) -> str:
    types = " or ".join(bit.types) or "any type"
    tests = "".join(f" and {ex.to_text(test)}" for test in bit.tests)
    return f"{bit.name}, if it is {types}{tests}"


def _comment(text: str) -> str:
    return f"# {shown(text, _WIDEST)}"
