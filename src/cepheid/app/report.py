"""The messages of the command line: summaries, warnings, rejects and small tables."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cepheid.errors import counted, listing, shown
from cepheid.events import MICROSECONDS
from cepheid.explanation import role_text
from cepheid.io.rejects import Reject, reject_hint
from cepheid.pattern import Query, durations
from cepheid.physical import REFERENCE, Plan

if TYPE_CHECKING:
    from cepheid.app.file_run import FileRun

FIRST_FEW = 3


def errors() -> Console:
    """Standard error. A new console each time, because tests and pipes replace sys.stderr."""
    return Console(stderr=True, highlight=False)


def note(text: str, style: str = "") -> None:
    say(errors(), text, style)


def say(console: Console, text: str, style: str = "") -> None:
    """Prints text of users verbatim: no markup, no highlighting, no wrapping that would break a caret line."""
    console.print(Text(text, style), soft_wrap=True)


def warn(lines: Iterable[str]) -> None:
    for line in lines:
        note(line, "yellow")


PATIENCE = 2.0
"""Seconds after which work shows its progress, on a terminal."""


def unseen(done: int, matches: int) -> None:
    """The progress of work whose output is no terminal."""


@contextmanager
def progress(what: str, total: int | None = None, unit: str = "events") -> Iterator[Callable[[int, int], None]]:
    """Shows the progress of some work on standard error, if it takes longer than PATIENCE and that is a terminal. The
    work may call the result with the number of events (or of another unit) so far, and of matches."""
    console = errors()
    if not console.is_terminal:
        yield unseen
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("", total=total)
    waiting = threading.Timer(PATIENCE, bar.start)
    waiting.daemon = True

    def show(done: int, matches: int) -> None:
        elapsed = bar.tasks[0].elapsed or 0.0
        of = "" if total is None else f" of {total:,}"
        speed = f", {done / elapsed:,.0f} {unit}/s" if elapsed else ""
        found = f", {counted(matches, 'match', 'matches')}" if matches else ""
        bar.update(task, completed=done, description=f"{done:,}{of} {unit}{found}{speed}")

    waiting.start()
    try:
        yield show
    finally:
        waiting.cancel()
        bar.stop()


_MOST_HINTED = 1_000
"""How many rejects the summary looks at for hints."""


def summary(run: FileRun, matches: int, rejects: int, rejects_at: str | None) -> Iterator[str]:
    """The lines at the end of a run."""
    from cepheid.io.merged import MergedSource, units_of  # lazily: the messages of errors do not need pyarrow
    from cepheid.io.source import Source, digits_caution, unit_caution
    from cepheid.io.times import time_hint

    prepared, time_column = run.prepared, run.source.columns.time
    events = run.source.count or 0
    found = counted(matches, "row") if prepared.query.summarizes else counted(matches, "match", "matches")
    if rejects:
        rows = counted(events + rejects, "row")
        yield f"{rows} read = {counted(events, 'event')} + {counted(rejects, 'reject')}, {found}"
    else:
        yield f"{counted(events, 'event')} read, {found}, 0 rejects"
    if not events and not rejects:
        yield f"there is no row of events in {listing(run.inputs)}"
    if rejects_at is not None and rejects:
        yield f"rejected rows and reasons: {rejects_at}"
    first = islice(run.source.rejects(), _MOST_HINTED) if rejects else ()
    yield from dict.fromkeys(help for one in first if (help := reject_hint(one, in_python=False)) is not None)
    if run.unread:
        names = listing(shown(file.name) for file in run.unread)
        yield f"{counted(len(run.unread), 'file')} of unknown format not read: {names}"
    used = sorted({str(d) for d in durations(prepared.written) if d.unit in MICROSECONDS})
    clock = prepared.clock
    if not events and rejects and (wrong := _unrecognised_time(run)):
        format = run.source.columns.text.time_format
        help = time_hint((reject.reason for reject in run.source.rejects()), format, in_python=False)
        yield f"no time in `{time_column}` is recognised: {wrong}; {help}"
    elif used and events and not clock.is_timestamp and clock.unit is not None:
        how = "recognised by its values" if clock.is_recognised else f"for {', '.join(used)}"
        yield f"`{time_column}` is an integer column in {clock.unit}, {how} (--time-unit changes it)"
    if clock.is_timestamp and (zone := run.source.columns.text.zone) is not None:
        texts: list[Source] = [run.source]
        if isinstance(run.source, MergedSource):
            texts = [item.source for item in run.source.inputs if not item.as_timestamps]
        local = dict.fromkeys(f"`{source.columns.time}`" for source in texts)
        yield f"times of {', '.join(local)} without an offset are those of {zone}"
    if (caution := unit_caution(run.source, clock)) is not None:
        yield f"warning: {caution}"
    if (caution := digits_caution(run.source)) is not None:
        yield f"warning: {caution}"
    if isinstance(run.source, MergedSource):
        for name, own in units_of(run.source.inputs).items():
            how = "recognised by its values" if own.is_recognised else "as declared"
            yield f"the times of {name} are in {own.unit}, {how}, and read as timestamps"
    if clock.is_timestamp and clock.is_recognised:
        yield f"`{time_column}` has times in {run.source.epoch_unit} with fractions, read as timestamps"
    if run.backend == "spark" and isinstance(run.source, MergedSource):
        yield (
            "one task of Spark merged the inputs by time and read them all; in Python, a dictionary of Spark "
            "DataFrames is divided over tasks"
        )
    if run.backend != REFERENCE:
        yield evaluator_line(prepared.plan)
    for text in run.repeats:
        yield f"warning: {text}"
    for switch in run.switches:
        yield f"the plan changed {switch}"


def _unrecognised_time(run: FileRun) -> str | None:
    """The reason of the first reject, if its time is the reason."""
    from cepheid.io.times import NO_TIME

    first = next(iter(run.source.rejects()), None)
    return first.reason if first is not None and NO_TIME in first.reason else None


def evaluator_line(plan: Plan) -> str:
    """The evaluator of the plan, and the reasons for the oracle."""
    if plan.evaluator != REFERENCE:
        return f"evaluated by the compiled evaluator `{plan.evaluator}`"
    why = f": {'; '.join(plan.reasons)}" if plan.reasons else ""
    return f"evaluated by the reference evaluator, which is slow{why}"


def reject_lines(rejects: Sequence[Reject], is_all: bool = False) -> Iterator[str]:
    """The first rejects, for a terminal. With `is_all`, none of them is written anywhere."""
    for reject in rejects[:FIRST_FEW]:
        yield f"rejected: {reject.source}, row {reject.line}: {reject.reason}: {shown(reject.raw, 80)}"
    if len(rejects) > FIRST_FEW:
        yield f"rejected: {len(rejects) - FIRST_FEW} more{'' if is_all else ' (--rejects PATH writes all)'}"


def variable_lines(query: Query) -> Iterator[str]:
    variables = query.roles
    width = max(len(var) for var in variables)
    for var, role in variables.items():
        yield f"  {var.ljust(width)}  {role_text(role)}"


def print_rows(first: Sequence[Mapping[str, object]], rows: int) -> None:
    """The first rows of the output as a table on standard output, and the number of others."""
    console = Console(highlight=False)
    console.print(row_table(first))
    if rows > len(first):
        note(f"the first {len(first)} of {rows:,} rows (--output PATH writes all)")


def row_table(rows: Sequence[Mapping[str, object]]) -> Table:
    """A table of a few matches."""
    table = Table(show_edge=False, pad_edge=False)
    for name in rows[0] if rows else ():
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(_cell(value), 72)) for value in row.values()))
    return table


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={_cell(item)}" for name, item in value.items())
    if isinstance(value, list):
        return (
            counted(len(value), "event")
            if value and isinstance(value[0], dict)
            else json.dumps(value, ensure_ascii=False, default=str)
        )
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
