"""Changes of a deployment while it runs. A change is made as a whole, or refused and nothing changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cepheid.deploy.deployment import Written
from cepheid.deploy.folder import linked, uses_of
from cepheid.errors import CepheidError, InputProblem, did_you_mean, listing, shown

Uses = Mapping[str, Sequence[str]]
NO_USES: Uses = {}


@dataclass(frozen=True, slots=True)
class Change:
    """The queries to add, to remove and to replace, by name; or those to move to other slots, with their state."""

    add: Mapping[str, Written] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    replace: Mapping[str, Written] = field(default_factory=dict)
    move: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.add or self.remove or self.replace or self.move)


def difference(before: Mapping[str, Written], after: Mapping[str, Written]) -> Change:
    """The change from some queries to others."""
    return Change(
        {name: written for name, written in after.items() if name not in before},
        tuple(name for name in before if name not in after),
        {name: w for name, w in after.items() if name in before and w.text.split() != before[name].text.split()},
    )


def changed(
    queries: Mapping[str, Written],
    change: Change,
    version: int,
    known_types: Collection[str] | None,
    uses: Uses = NO_USES,
) -> dict[str, Written]:
    """The queries after a change, which takes effect with this version. `known_types` are the event types of the input;
    None if they are not known, or queries do not use each other. `uses` has the other ones that each query uses now. A
    query that uses one that is replaced begins anew, too."""
    for name in change.add:
        if name in queries:
            raise InputProblem(f"there is a query `{shown(name)}` already", hint="replace it, or choose another name")
    if change.move and (change.add or change.remove or change.replace):
        raise InputProblem("queries are moved in a change of their own", hint="make two changes")
    for name in (*change.remove, *change.replace, *change.move):
        if name not in queries:
            raise InputProblem(
                f"there is no query `{shown(name)}`",
                expected=f"one of {listing(queries)}" if queries else None,
                hint=did_you_mean(name, list(queries)),
            )
    doubled = [name for name in change.remove if name in change.replace]
    if doubled:
        raise InputProblem(f"the query `{shown(doubled[0])}` is both removed and replaced")
    new = {name: replace(written, since=version) for name, written in {**change.add, **change.replace}.items()}
    after = {name: new.get(name, written) for name, written in queries.items() if name not in change.remove}
    after |= {name: written for name, written in new.items() if name not in after}
    if not after:
        raise InputProblem("no query would be left", hint="stop the stream")
    for name in change.remove:
        users = [user for user, used in uses.items() if name in used and user in after and user not in new]
        if users:
            raise InputProblem(
                f"the query `{shown(name)}` is used by {listing(users)}", hint="remove or replace those as well"
            )
    if known_types is None:
        return after
    _, refused = linked(after, known_types)
    for name, error in refused.items():
        raise refusal(name, error)
    uses, _ = uses_of(after, known_types)
    while late := [
        name for name, used in uses.items() if after[name].since != version and _any_since(after, used, version)
    ]:
        after |= {name: replace(after[name], since=version) for name in late}
    return after


def refusal(name: str, error: CepheidError) -> InputProblem:
    """Why a change is refused: the query and the place in its text."""
    what = f"the query `{shown(name)}` is refused: {error.what}"
    found = InputProblem(what, span=error.span, expected=error.expected, hint=error.hint)
    found.text, found.source = error.text, error.source
    return found


def _any_since(queries: Mapping[str, Written], names: Iterable[str], version: int) -> bool:
    return any(queries[name].since == version for name in names)
