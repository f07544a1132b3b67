"""`cepheid deploy` on a stream: it follows the folder of its queries, and commands change them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cepheid.app import report
from cepheid.app.cli import options as cli
from cepheid.errors import CepheidError, InputProblem, counted, listing, shown

if TYPE_CHECKING:
    from cepheid.deploy.changes import Change
    from cepheid.deploy.deployment import Written
    from cepheid.spark.stream import RunningStream
    from cepheid.streaming.checkpoint import Checkpoint
    from cepheid.streaming.versions import SavedVersion

VERBS = ("add", "remove", "replace", "move", "list", "status")
_WORDS = {"remove": "names of queries", "move": "names of queries, each with a bucket: `rule=1`"}
_FOLDER = "folder.json"
_PATIENCE = 120.0
"""The seconds that a command waits for the answer of the stream."""


@dataclass(slots=True)
class Following:
    """Makes the changes of a folder in a running stream. The checkpoint stores what the folder held, so that a change
    while the stream does not run is made at its next start, and queries that commands have changed stay."""

    read: Callable[[], tuple[dict[str, Written], dict[str, CepheidError]]]
    seen: dict[str, str] | None = None
    """The text of each query of the folder, as it was at the last look."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """The files that were refused and reported at the start, with their texts: "" for those that cannot be read."""

    def __call__(self, running: RunningStream) -> None:
        if running.is_repeating:
            return
        own = running.stream.checkpoint.own
        reported = self.refused if self.seen is None else {}
        if self.seen is None:
            self.seen = json.loads(own.read(_FOLDER) or b"{}")
        try:
            found, unreadable = self.read()
        except CepheidError:  # the folder is empty, or not there at the moment
            return
        now = {name: written.text for name, written in found.items()}
        now |= {name: self.seen.get(name, "") for name in unreadable}
        if now == self.seen:
            return
        for name, error in unreadable.items() if self.seen else ():
            if reported.get(name) != "":
                refuse(name, error)
        changed = {name: written for name, written in found.items() if self.seen.get(name) != written.text}
        new = {name: written for name, written in changed.items() if reported.get(name) != written.text}
        gone = [name for name in self.seen if name not in now]
        self.seen = now
        for change in _changes(running, new, gone):
            try:
                running.change(change)
            except CepheidError as error:
                refuse(", ".join([*change.add, *change.replace, *change.remove]), error)
        own.write(_FOLDER, json.dumps(now).encode())


def refuse(name: str, error: CepheidError) -> None:
    report.note(f"refused: {name}\n{error}", "yellow")


def _changes(running: RunningStream, new: Mapping[str, Written], gone: Sequence[str]) -> list[Change]:
    """One change, or one for each query if some of them is refused."""
    from cepheid.deploy.changes import Change

    known = running.queries
    add = {name: written for name, written in new.items() if name not in known}
    other = {name: w for name, w in new.items() if name in known and w.text.split() != known[name].split()}
    whole = Change(add, tuple(name for name in gone if name in known), other)
    if not whole:
        return []
    try:
        running.planned(whole)
        return [whole]
    except CepheidError:
        parts = [Change(add={name: written}) for name, written in add.items()]
        parts += [Change(replace={name: written}) for name, written in other.items()]
        return [*parts, *(Change(remove=(name,)) for name in whole.remove)]


def change_command(words: Sequence[str], dialect: str) -> None:
    """`deploy add|remove|replace|move CHECKPOINT FILE|NAME|NAME=BUCKET...` and `deploy list|status CHECKPOINT`."""
    from cepheid.streaming.checkpoint import Checkpoint
    from cepheid.streaming.storage import local_directory

    verb, checkpoint, *rest = words
    saved = Checkpoint(local_directory(checkpoint), checkpoint)
    versions = saved.versions()
    if not versions:
        raise InputProblem(
            f"`{shown(checkpoint, 200)}` is not the checkpoint of a stream of several queries",
            expected="the checkpoint of `cepheid deploy`, or of a stream that was started with named queries",
        )
    queries = versions[-1].queries
    if verb == "list":
        for name, written in queries.items():
            typer.echo(f"{name}: {' '.join(written.text.split())}")
        return
    if verb == "status":
        for line in _status(saved):
            typer.echo(line)
        return
    if not rest:
        raise InputProblem(f"there is nothing to {verb}", expected=_WORDS.get(verb, "files"))
    _send(saved, _change(verb, rest, dialect), versions[-1])


def _change(verb: str, words: Sequence[str], dialect: str) -> Change:
    from cepheid.deploy.changes import Change
    from cepheid.deploy.deployment import Written

    if verb == "remove":
        return Change(remove=tuple(words))
    if verb == "move":
        parts = [word.rpartition("=") for word in words]
        for word, (name, _, slot) in zip(words, parts, strict=True):
            if not name or not slot.isdecimal():
                raise InputProblem(f"`{shown(word)}` says not where a query moves", expected="NAME=BUCKET: `rule=1`")
        return Change(move={name: int(slot) for name, _, slot in parts})
    written: dict[str, Written] = {}
    for path in words:
        name = Path(path).stem
        if name in written:
            raise InputProblem(f"two queries are named `{shown(name)}`", hint="rename one of the files")
        text = cli.read_query(path, dialect)
        text.parse()
        written[name] = Written(name, text.text, dialect)
    return Change(add=written) if verb == "add" else Change(replace=written)


def _send(saved: Checkpoint, change: Change, newest: SavedVersion) -> None:
    """Asks the process that runs the stream, and waits for its answer. What the checkpoint shows to be wrong is refused
    at once."""
    from cepheid.deploy.changes import changed
    from cepheid.streaming.checkpoint import REQUESTS
    from cepheid.streaming.requests import Requests

    requests, queries, uses = Requests(saved.own.inside(REQUESTS)), newest.queries, newest.uses
    for waiting in requests.waiting():
        with suppress(CepheidError):  # it will be refused
            earlier = requests.change(waiting)
            queries = changed(queries, earlier, 0, None, uses)
            uses = {name: used for name, used in uses.items() if name in queries and name not in earlier.replace}
    changed(queries, change, 0, None, uses)
    name = requests.send(change)
    if not saved.is_in_use:
        report.note("the stream does not run: the change is made at its next start")
        return
    began = time.monotonic()
    while (answer := requests.answered(name)) is None:
        if time.monotonic() - began > _PATIENCE or not saved.is_in_use:
            report.note("the stream has not answered yet: `deploy status` shows what became of the change")
            return
        time.sleep(0.1)
    requests.forget(name)
    if answer.refused is not None:
        raise InputProblem(f"the change is refused, and nothing changes: {answer.refused.removeprefix('error: ')}")
    report.note(f"changed: version {answer.version}")


def _status(saved: Checkpoint) -> list[str]:
    from cepheid.streaming.checkpoint import REQUESTS
    from cepheid.streaming.requests import Requests

    versions = saved.versions()
    newest = versions[-1]
    batches = saved.batches("commits")
    lines = [
        f"{counted(len(newest.entries), 'query', 'queries')}, version {newest.lineage.version}, "
        f"from batch {newest.first_batch} on",
        f"last batch: {batches[-1] if batches else 'none yet'}",
        f"the stream {'runs' if saved.is_in_use else 'does not run'}",
    ]
    requests = Requests(saved.own.inside(REQUESTS))
    lines += [f"waiting: {_described(requests.change(name))}" for name in requests.waiting()]
    for name in requests.unread():
        answer = requests.answered(name)
        lines += [] if answer is None or answer.refused is None else [f"refused: {answer.refused}"]
    return lines


def _described(change: Change) -> str:
    parts = {"add": change.add, "remove": change.remove, "replace": change.replace, "move": change.move}
    return ", ".join(f"{verb} {listing(names)}" for verb, names in parts.items() if names)
