"""Generated source, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext


class Writer:
    """Collects indented lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def __call__(self, *lines: str) -> None:
        self.lines.extend("    " * self._depth + line if line else "" for line in lines)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """The lines written inside are the body of `opening`."""
        self(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def when(self, conditions: Sequence[str]) -> AbstractContextManager[None]:
        """A block that runs if all conditions hold; without conditions there is no block."""
        return self.block(f"if {' and '.join(conditions)}:") if conditions else nullcontext()

    def append(self, other: Writer) -> None:
        """The lines of another writer, as if they were written here."""
        self(*other.lines)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
