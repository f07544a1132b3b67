"""Requirements on a query that all compiled evaluators share."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache

from cepheid import expr as ex
from cepheid.codegen.masks import is_maskable
from cepheid.codegen.scalar import uncompilable
from cepheid.expr import attributes_in
from cepheid.logic import begins_with_negation
from cepheid.pattern import partition_attributes
from cepheid.physical import Lowered
from cepheid.types import SHORT_DIGITS, UNKNOWN, Family

MASK_BITS = 64
TOO_FEW_BITS = (
    f"the mask of an event has {MASK_BITS} bits, which are too few for the components of the pattern and for the "
    "attributes that may be absent or null (split the query into queries that feed one another)"
)


def why_not(
    lowered: Lowered,
    *further: str,
    counts_edges: bool = True,
    excludes: bool = False,
    durations: bool = False,
    closure_bits: int = 2,
) -> str | None:
    """Why no code can be generated for a query: a line for each reason, the evaluator's own (`further`) last; None if
    there is none. The flags say what the evaluator can do: whether it decides a negation as the first or last component
    in a window that counts the events of a partition, whether it leaves out matches that overlap, and whether it orders
    events with duration. `closure_bits` is the number of bits of the mask for a closure: one for each edge, to begin
    and to take, or one for both."""
    reasons = [*_unmet(lowered, counts_edges, closure_bits), *further]
    if lowered.has_durations and not durations:
        reasons.append("events with duration")
    if lowered.query.non_overlapping and not excludes:
        reasons.append("non-overlapping matches without an event selection strategy (write skip_till_any_match)")
    elif lowered.query.non_overlapping:
        reasons += [f"non-overlapping matches in {reason}" for reason in why_no_partition(lowered)]
    return "\n".join(dict.fromkeys(reasons)) or None


def why_no_partition(lowered: Lowered) -> list[str]:
    """Why kernels cannot tell the partitions of events apart."""
    reasons = []
    for name in partition_attributes(lowered.query):
        if lowered.types.get(name, UNKNOWN).family is Family.LIST:
            reasons.append(f"partitions by `{name}`, which holds lists (partition by another attribute)")
        elif _is_mixed(name, lowered):
            reasons.append(f"partitions by `{name}`, which does not have one type (give it one in the input)")
    return reasons


def _unmet(lowered: Lowered, counts_edges: bool, closure_bits: int) -> Iterator[str]:
    yield from _uncompiled(lowered)
    edges = sum(1 if role.kleene is None else closure_bits for role in lowered.roles.values())
    lacking = lowered.lacks.keys() & lowered.attributes
    if edges + len(lacking) + len(lowered.nullable) > MASK_BITS:
        yield TOO_FEW_BITS
    if not lowered.counts_events:
        return
    if partition_attributes(lowered.query) and not counts_edges:
        yield from _uncounted(lowered)
    if not lowered.has_whole_key:
        yield from why_no_partition(lowered) or [
            "a window that counts the events of a partition that not all events of a match are in (write an "
            "equivalence test, such as [id], or WITHIN and a length of time)"
        ]


@lru_cache(maxsize=1)
def _uncompiled(lowered: Lowered) -> tuple[str, ...]:
    """What no evaluator compiles; asked by each of them in turn."""
    return tuple(_uncompilable(lowered))


def _uncompilable(lowered: Lowered) -> Iterator[str]:
    single = [p for tests in (*lowered.alone.values(), *lowered.taken.values()) for p in tests]
    failing = [*uncompilable(lowered.between, lowered.types), *(p for p in single if not is_maskable(p))]
    for predicate in failing:
        text = ex.to_text(ex.spelt_out(predicate, lowered.derived))
        yield f"`{text}` cannot be compiled: {_obstacle(predicate, lowered)}"
    read = attributes_in([*lowered.between, *single, *lowered.summary])
    mixed = {name for name in read.keys() - lowered.types.keys() if _is_mixed(name, lowered)}
    odd = [
        name for predicate in (*lowered.between, *single) if mixed for name in _without_type(predicate, lowered, mixed)
    ]
    odd += [name for name in attributes_in(lowered.summary) if name in mixed]
    if odd:
        yield (
            f"the attribute `{odd[0]}` does not have one type that conditions can read (give it one in the input, as "
            "--schema does for a stream, or a name for each type)"
        )
    lists = [name for name in attributes_in(lowered.summary) if lowered.types.get(name, UNKNOWN).family is Family.LIST]
    if lists:
        yield f"`{lists[0]}` holds lists, which are not summarised (leave it out of RETURN)"


def _obstacle(predicate: ex.Expr, lowered: Lowered) -> str:
    """What kernels cannot compute in a predicate, and what to write instead."""
    for node in ex.walk(predicate):
        if isinstance(node, ex.Attr | ex.Aggregate) and node.name is not None:
            kind = lowered.types.get(node.name, UNKNOWN)
            if kind.family is Family.DECIMAL and not kind.is_short:
                return (
                    f"`{node.name}` is a decimal of {kind.precision} digits, and kernels compute with decimals of "
                    f"up to {SHORT_DIGITS} digits (write CAST({ex.to_text(_of_event(node))} AS double), or AS "
                    f"decimal({SHORT_DIGITS}, {min(kind.scale, SHORT_DIGITS)}), in its place)"
                )
        if isinstance(node, ex.Call) and node.type.family is Family.STRING and len(ex.variables(node)) > 1:
            return (
                f"`{ex.to_text(ex.spelt_out(node, lowered.derived))}` is a string made of several events (compare the "
                "strings of each event, by =, LIKE or CONTAINS)"
            )
    return "kernels do not compute a part of it (compute what it compares as a column of the input)"


def _of_event(node: ex.Attr | ex.Aggregate) -> ex.Attr:
    """The attribute that is read of each event."""
    return node if isinstance(node, ex.Attr) else ex.Attr(node.var, node.name or "")


def _uncounted(lowered: Lowered) -> Iterator[str]:
    """The negations before the first or after the last event. A negation beside components that may be empty may be one
    of them, too."""
    for edge, items in (("last", reversed(lowered.items)), ("first", iter(lowered.items))):
        if begins_with_negation(items):
            yield (
                f"a negation as the {edge} component, in a window that counts the events of a partition (write WITHIN "
                "and a length of time)"
            )


def _without_type(predicate: ex.Expr, lowered: Lowered, mixed: Collection[str]) -> Iterator[str]:
    """The attributes whose values have different types, where more is asked than whether one equals another value, or
    whether a value of a single event does."""
    is_single = predicate not in lowered.between
    for node in ex.walk(predicate):
        compares = is_single and isinstance(node, ex.Compare | ex.In | ex.IsNull)
        for part in ex.children(node):
            is_mixed = isinstance(part, ex.Attr) and part.name in mixed
            if isinstance(part, ex.Attr) and is_mixed and not compares and (not is_single or part.type.is_unknown):
                yield part.name


def _is_mixed(name: str, lowered: Lowered) -> bool:
    return name not in lowered.types and any(name in attributes for attributes in lowered.schema.types.values())
