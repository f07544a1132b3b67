"""`RETURN count(*), sum(b.price)`: one row about all matches, from a kernel that sums up without enumerating them, or
from the matches themselves."""

from __future__ import annotations

from typing import Any

from cepheid.checks import summarises
from cepheid.engine.prepare import Prepared
from cepheid.engine.stepping import Stepper
from cepheid.events import Type
from cepheid.expr import AGGREGATES, Aggregate, Gives
from cepheid.kernels.any_runs.lazy_matches import LazyKernel
from cepheid.semantics import Match


def sums_up(prepared: Prepared) -> bool:
    """Whether the kernel itself makes the summary."""
    return isinstance(prepared.kernel, LazyKernel) and summarises(prepared.query)


def summary_of(prepared: Prepared, stepper: Stepper) -> Match:
    """The row, after the kernel has seen all events."""
    kernel = stepper.kernel
    assert isinstance(kernel, LazyKernel)
    row = kernel.summary_row(stepper.state)
    texts = {code: text for text, code in stepper.encoder.dictionary.codes.items()}
    attributes = prepared.schema.attributes(prepared.schema.types)

    def shown(expr: Any, value: Any) -> Any:
        """A string, or a truth value, is known to the kernel by its code."""
        is_value = isinstance(expr, Aggregate) and AGGREGATES[expr.fn].gives is Gives.VALUE
        if not is_value or expr.name is None or value is None:
            return value
        kind = attributes.get(expr.name)
        return texts[value] if kind is Type.STRING else bool(value) if kind is Type.BOOLEAN else value

    values = {c.name: shown(c.expr, row.values[c.name]) for c in prepared.query.output or ()}
    return Match({}, row.start, row.end, values)
