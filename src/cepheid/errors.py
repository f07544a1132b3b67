"""The error tree. A message names the position, the problem, the expected input, and a correction."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_EXCERPT_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of query text, as character offsets."""

    start: int
    end: int


class CepheidWarning(UserWarning):
    """A legal but suspicious property of a query on its input, such as an event type that does not occur."""


class CepheidError(Exception):
    """An error that the user can correct: the problem, its position, the expected input and a hint."""

    def __init__(
        self, what: str, *, span: Span | None = None, expected: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.span = span
        self.expected = expected
        self.hint = hint
        self.text: str | None = None
        self.source = "query"

    def within(self, text: str, source: str = "query") -> CepheidError:
        """Attach the text that the span refers to. The innermost caller that has the text wins."""
        if self.text is None:
            self.text, self.source = text, source
        return self

    @property
    def position(self) -> tuple[int, int] | None:
        """Line and column, both from 1, or None if the error has no position in a text."""
        if self.span is None or self.text is None:
            return None
        before = self.text[: self.span.start]
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1

    def __str__(self) -> str:
        lines = [f"error: {self.what}"]
        position = self.position
        if position is not None and self.span is not None and self.text is not None:
            line, column = position
            lines.append(f"  at {self.source}, line {line}, column {column}")
            lines.extend(_excerpt(self.text, self.span, line, column))
        if self.expected:
            lines.append(f"  expected: {self.expected}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class SyntaxProblem(CepheidError):
    """The text is not a query of its language."""


class NameProblem(CepheidError):
    """A type, attribute, variable, parameter or function that is not known."""


class TypeProblem(CepheidError):
    """Values of types that do not fit together."""


class PatternProblem(CepheidError):
    """A pattern that means nothing, or nothing that could be evaluated."""


class InputProblem(CepheidError):
    """A file or option that cannot be used."""


class SourceUnreachable(InputProblem):
    """A source that does not answer. It may answer later."""


class NotAvailable(CepheidError):
    """Something Cepheid does not do (or not in this version)."""


class Explosion(CepheidError):
    """More matches, instances or memory than a limit allows. `row` is the position of the event in the stream, None if
    no single event exceeds the limit."""

    row: int | None

    def with_key(self, key: str, maker: str = "") -> Explosion:
        """The error with the key of its event, `acc = 17`, and the operator of the query."""
        raise NotImplementedError

    def of_query(self, label: str) -> Explosion:
        """The error of a query that others use."""
        return self


_FEWER_MATCHES = (
    "narrow the predicates or the window; or count the matches (`RETURN count(*)`), take the first (`LIMIT 1000`), or "
    'keep them compressed (`output="compressed"`): SASE+ under skip till any match does so without enumerating them '
    "(evaluator `any_runs`)"
)


class TooManyMatches(Explosion):
    """An event completes more matches than the option `max_matches` allows. `row` is its position in the stream. An
    `operator` makes chains, whose events count, not only their number. `maker` makes the
    matches: the outermost operator of the query, or the label of a query that others use."""

    def __init__(
        self, most: int, row: int, operator: str | None = None, key: str | None = None, maker: str | None = None
    ) -> None:
        of_key, of_maker = f" with {key}" if key else "", f" of `{shown(maker)}`" if maker else ""
        many = f"{most:,} matches{of_maker}" if operator is None else f"{most:,} events in the matches of `{operator}`"
        limit = "matches for each event" if operator is None else "events in the matches that one event completes"
        super().__init__(
            f"the event at position {row}{of_key} completes more than {many}",
            expected=f"at most {most:,} {limit}, by the option `max_matches`",
            hint=_FEWER_MATCHES
            if operator is None
            else "end the chains by a condition outside of FILTER or by (first, last) OCCURS WITHIN, or share fewer "
            "events by an equality with PREV in FILTER",
        )
        self.most = most
        self.row: int = row
        self.operator = operator
        self.key = key
        self.maker = maker

    def with_key(self, key: str, maker: str = "") -> TooManyMatches:
        return TooManyMatches(self.most, self.row, self.operator, key or None, self.maker or maker)

    def of_query(self, label: str) -> TooManyMatches:
        return TooManyMatches(self.most, self.row, self.operator, self.key, label)

    def __reduce__(self) -> tuple[Any, ...]:
        """Workers of Spark send it to the driver."""
        return type(self), (self.most, self.row, self.operator, self.key, self.maker)


class TooManyInstances(TooManyMatches):
    """More instances of an operator wait for a successor than the limit allows."""

    def __init__(
        self, most: int, row: int, operator: str | None = None, key: str | None = None, maker: str | None = None
    ) -> None:
        of_key = f", which has {key}" if key else ""
        CepheidError.__init__(
            self,
            f"more than {most:,} instances of `{operator}` wait after the event at position {row}{of_key}",
            expected="instances that find a successor, or that come too late",
            hint="bound them by (first, last) OCCURS WITHIN, or end chains by a condition outside of FILTER",
        )
        self.most, self.row, self.operator, self.key, self.maker = most, row, operator, key, maker

    def with_key(self, key: str, maker: str = "") -> TooManyInstances:
        return TooManyInstances(self.most, self.row, self.operator, key or None)

    def of_query(self, label: str) -> TooManyInstances:
        return self


class TooMuchMemory(Explosion):
    """The state and the output of one step need more memory than the option `max_memory` allows. `where` names the
    operator, or what needs the memory."""

    def __init__(self, most: int, row: int | None, where: str, key: str = "") -> None:
        at = "" if row is None else f", at the event at position {row}{f' with {key}' if key else ''}"
        size = f"{most / 1e9:,.3g} GB" if most >= 1e8 else f"{most:,} bytes"
        super().__init__(
            f"more than {size} of memory for {where}{at}",
            expected=f"at most {size} for the state and the output of a task, by the option `max_memory`",
            hint=_FEWER_MATCHES,
        )
        self.most, self.row, self.where, self.key = most, row, where, key

    def with_key(self, key: str, maker: str = "") -> TooMuchMemory:
        return TooMuchMemory(self.most, self.row, self.where, key)

    def __reduce__(self) -> tuple[type[TooMuchMemory], tuple[int, int | None, str, str]]:
        return type(self), (self.most, self.row, self.where, self.key)


def named_twice(sentence: str, thing: str, span: Span | None, hint: str | None = None) -> PatternProblem:
    """Two things of a kind have the same name: ("`x` is declared", "component")."""
    return PatternProblem(f"{sentence} twice", span=span, expected=f"a name of its own for each {thing}", hint=hint)


def require_strings(options: Mapping[str, object], is_optional: bool = True) -> None:
    """Refuses arguments of another type where strings belong."""
    for name, value in options.items():
        if not isinstance(value, str) and not (value is None and is_optional):
            raise InputProblem(
                f"the option `{name}` is of type `{type(value).__name__}`",
                expected="a string" + (f", such as {name}={_EXAMPLES[name]!r}" if name in _EXAMPLES else ""),
            )


_EXAMPLES = {"time_column": "ts", "type_column": "type", "type": "login", "output": "flat", "id_column": "id"}


def did_you_mean(found: str, known: Iterable[str], similarity: float = 0.6) -> str | None:
    """A hint with the most similar known name, if one is similar enough."""
    by_folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(found.casefold()[:80], by_folded, n=1, cutoff=similarity)
    return f"did you mean `{by_folded[close[0]]}`?" if close else None


def listing(names: Iterable[str], limit: int = 12) -> str:
    """`a, b, c` for a message, cut when there are many."""
    ordered = sorted(names)
    shown = ", ".join(f"`{name}`" for name in ordered[:limit])
    return shown + (f" and {len(ordered) - limit} more" if len(ordered) > limit else "") if shown else "none"


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def type_name(value: object) -> str:
    """The type of a value of the user, for messages: `pandas.DataFrame`, `list`."""
    library = type(value).__module__.partition(".")[0].lstrip("_")
    return f"`{type(value).__name__}`" if library == "builtins" else f"`{library}.{type(value).__name__}`"


def shown(text: str, limit: int = 40) -> str:
    """A printable excerpt of user text for a message."""
    plain = text[: limit + 1]
    if not plain.isprintable():
        plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in plain)
    return plain if len(text) <= limit else plain[:limit] + "…"


def _excerpt(text: str, span: Span, line: int, column: int) -> list[str]:
    content = text.split("\n")[line - 1]
    cut = max(0, min(column - 1 - _EXCERPT_WIDTH // 2, len(content) - _EXCERPT_WIDTH))
    visible = shown(content[cut : cut + _EXCERPT_WIDTH], _EXCERPT_WIDTH)
    caret_at = column - 1 - cut
    if cut > 0:
        visible = "…" + visible[1:]
    if cut + _EXCERPT_WIDTH < len(content):
        visible = visible[:-1] + "…"
    width = max(1, min(span.end - span.start, len(visible) - caret_at))
    label = f"  {line} | "
    return [label + visible, " " * (len(label) - 2) + "| " + " " * caret_at + "^" * width]
