"""Indexes of closures: `a[1]`, `a[i]`, `a[..i-1]`, and events of a closure inside a derived event, `p.b[1].v`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lark import Token
from lark.tree import Meta

from cepheid.errors import Span, SyntaxProblem, shown
from cepheid.expr import MEMBER, At, Over

_INDEX: Mapping[str, At | Over] = {
    "": Over.GROUP,
    "..i-1": Over.BEFORE,
    "1": At.FIRST,
    "i": At.CURRENT,
    "i-1": At.PREVIOUS,
    "len": At.LAST,
}


def span_of(item: Meta | Token) -> Span:
    """The position of a rule or token in the text; None for an empty rule."""
    start, end = getattr(item, "start_pos", None), getattr(item, "end_pos", None)
    return Span(start or 0, end or 0)


def member_name(items: Sequence[Any], span: Span) -> str:
    """The name of an attribute of an inner closure: words, an index, words."""
    at = next(i for i, item in enumerate(items) if str(item).startswith("["))
    closure, index = str(items[at - 1]), items[at]
    which = position_of(closure, index)
    if which not in (At.FIRST, At.LAST):
        raise SyntaxProblem(
            f"`{shown(closure + str(index))}` is not an event of a complete match",
            span=span,
            expected=f"{closure}[1] or {closure}[{closure}.LEN]",
        )
    where = "[1]" if which is At.FIRST else f"[{closure}.LEN]"
    return f"{'.'.join(items[:at])}{MEMBER}{where}.{'.'.join(items[at + 1 :])}"


def position_of(var: str, token: Token) -> At | Over:
    inside = re.sub(r"[\s$\\]", "", str(token)[1:-1]).replace("−", "-")
    owner, dot, last = inside.partition(".")
    if dot and owner == var and last.lower() == "len":
        inside = last
    found = _INDEX.get(inside.lower() if inside.lower() == "len" else inside)
    if found is None:
        raise SyntaxProblem(
            f"`{shown(str(token))}` is not an index of `{var}`",
            span=span_of(token),
            expected=f"[1], [i], [i-1], [{var}.LEN], or [] and [..i-1] inside an aggregate",
            hint=_hint(var, inside, str(token)),
        )
    return found


def _hint(var: str, inside: str, text: str) -> str | None:
    quoted = re.fullmatch(r"\[\s*(`[^`]+`)\s*\]", text)
    if quoted is not None:
        return f"an attribute stands after a point: {var}.{quoted[1]}"
    if re.fullmatch(r"i-\d+", inside):
        return f"{var}[i-1] is the event before {var}[i]; for others write a component for each: A a, A b, A c"
    if re.fullmatch(r"-?\d+", inside):
        return (
            f"the first event is {var}[1], the last {var}[{var}.LEN]; others are {var}[i] and {var}[i-1], or have "
            "components of their own: A a, A b, A c"
        )
    if re.fullmatch(r"i\+\d+", inside):
        return f"compare with the event before: {var}[i] and {var}[i-1]"
    if inside.lower() in ("last", "first", "-1", "end", "n"):
        which = f"{var}[1]" if inside.lower() == "first" else f"{var}[{var}.LEN]"
        return f"the {'first' if which.endswith('[1]') else 'last'} event is {which}"
    if inside == "..i":
        return f"the events before this one are {var}[..i-1]; add {var}[i] by itself"
    return "conditions are joined with AND" if re.fullmatch(r"\w+(,\w+)*", inside) else None
