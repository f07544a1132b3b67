"""The traits of a query language as a value. A Query carries the Dialect of its language.

Each `lang/<language>.py` creates its value and sets every trait. Other code reads traits and never compares the name of
a language. A new language is a module in `lang`, a definition in `semantics`, and an entry in the list of `lang`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cepheid.expr import Expr

COMBINATIONS = "combinations"
"""Every combination of events that fits the operators is a match, within one window."""
RUNS = "runs"
"""The runs of an automaton are the matches, by the query's event selection strategy."""
SUCCESSORS = "successors"
"""A match goes from each event to its immediate successor."""
INTERVALS = "intervals"
"""Every combination of intervals is a match, each operator with its own window."""


class Order(Enum):
    """When an event comes after another one (ruling 2)."""

    TIME = "it starts after the other one ends: events of one time are never in sequence"
    POSITION = "it arrives later: ties follow arrival"


class Closure(Enum):
    """The meaning of a repeated component, and of an attribute of its variable."""

    NONE = "there is none"
    RUN = "events taken one by one, `a[1]`, `a[i]`, `a[i-1]`, each with its conditions"
    GROUP = "the maximal group between two neighbours; a condition holds for each member"
    ITERATION = "a chain of successors, each compared with those before it"


class Windows(Enum):
    """The scope of a window."""

    MATCH = "the whole match"
    OPERATOR = "the operands of one operator"
    CONDITION = "the variables that a condition names"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Dialect:
    """A language. Two values are equal if their names are, so a value that traveled to a worker is still the same."""

    name: str
    """As in `dialect=` and `--dialect`."""
    other_names: tuple[str, ...]
    title: str
    """As people write it."""
    beginning: str
    """How its queries begin, for error texts."""
    first_words: tuple[str, ...]
    clauses: tuple[str, ...]
    """The words that begin its clauses. None of them can be the label of a query."""

    selection: str
    """Which events make a match: the module of `semantics` that defines it."""
    selection_text: str | None
    """The selection as EXPLAIN describes it; None where the query's strategy decides."""
    order: Order
    closure: Closure
    windows: Windows
    window_includes_bound: bool
    """Whether `last - first <= T` is within the window T, or only `< T` (ruling 3)."""
    operators: tuple[type, ...]
    """The pattern nodes it has."""
    conditions: tuple[type[Expr], ...]
    """The conditions it has beside those that all languages share."""
    conditions_belong_to_operators: bool
    """Whether each condition is tested by one operator of the pattern (NEXT §3.5), not by the match as a whole."""
    has_nodes: bool
    """Whether events have CED's base schema (`node_id`, `event_id`, ...) and `node` names their context (CED §2.1)."""
    has_rewrite_rules: bool
    """Whether the optimizer's rules hold: conditions range over all combinations."""
    declares_streams: bool
    """Whether the text of a query declares its input streams."""
    has_classes_by_name: bool
    """Whether a component that is only a name is a class: of that event type, or over the whole stream."""
    names_its_result: bool
    """Whether a text is a script of declarations, the last of which is the result."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dialect) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Dialect({self.name!r})"

    @property
    def ordered_by_position(self) -> bool:
        return self.order is Order.POSITION
