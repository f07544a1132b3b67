"""Errors of a failed stream or job: one line that names the file and says what to do.

Spark reports a failure in hundreds of lines: its own conditions, the JVM's causes and the traces of Python workers, one
inside the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from cepheid.errors import CepheidError, InputProblem, shown

RESUME = "start again with the same checkpoint: the stream resumes where it stopped"
_OWN = re.compile(r"^cepheid\.errors\.\w+: error: (.*(?:\n  .*)*)", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: ([\w.$]+)(?:: (.*))?$", re.MULTILINE)
_CONDITION = re.compile(r"\[[A-Z_]+(?:\.[A-Z_]+)*\] .*")
_LOG_FILE = re.compile(r"(?:Failed to read log file|Checksum error:) (\S+?)\.? (?:\[|at \d)")
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)(?:: .+)?$", re.MULTILINE)
"""The last line of the trace of a Python worker."""
_FULL = "No space left on device"
_STATE = "CANNOT_LOAD_STATE_STORE"
_LONGEST = 300


def failure(message: str, checkpoint: str, damaged_state: Callable[[], Iterable[str]]) -> CepheidError:
    """Converts Spark's message to an error. `damaged_state` lists the unreadable files of the state: Spark does not
    always name them."""
    own = worker_error(message)
    if own is not None:
        return InputProblem(
            f"the stream stopped: {own.what}", expected=own.expected, hint=own.hint or f"fix it and {RESUME}"
        )
    at = f"the checkpoint `{shown(checkpoint, 200)}`"
    if _FULL in message:
        return InputProblem(
            f"the stream stopped: the disk is full; {at} or Spark's own directory (spark.local.dir) has no space",
            hint=f"free some space and {RESUME}",
        )
    if _STATE in message:
        damaged = ", ".join(f"`{shown(path, 200)}`" for path in damaged_state())
        return InputProblem(
            f"the stream stopped: the state in {at} cannot be read: {_reason(message)}"
            + (f"; damaged: {damaged}" if damaged else ""),
            hint=f"restore the file from a copy of the checkpoint and {RESUME}; "
            "without a copy, use a new checkpoint and a new output, and all input is read again",
        )
    log = _LOG_FILE.search(message)
    if log is not None:
        return InputProblem(
            f"the stream stopped: `{shown(log[1].removeprefix('file:'), 200)}` in {at} is damaged",
            hint=f"restore it from a copy of the checkpoint and {RESUME}",
        )
    return InputProblem(f"the stream stopped: {_reason(message)}", hint=f"fix it and {RESUME}")


def _reason(message: str) -> str:
    """The innermost cause with a message; without any, Spark's own message."""
    causes = [match[2] for match in _CAUSE.finditer(message) if match[2] and "Python Proxy" not in match[2]]
    conditions = _CONDITION.findall(message)
    raised = _RAISED.findall(message) if "Traceback (most recent call last)" in message else []
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    reasons = [*(lines[:1] or ["Spark gave no reason"]), *conditions[-1:], *raised[-1:], *causes[-1:]]
    return shown(reasons[-1], _LONGEST)


def worker_error(message: str) -> CepheidError | None:
    """An error of Cepheid that a worker raised, from Spark's message; None if there is none."""
    own = _OWN.search(message)
    if own is None:
        return None
    what, *more = own[1].split("\n  ")
    parts = dict(line.split(": ", 1) for line in more if line.startswith(("expected: ", "hint: ")))
    return InputProblem(what, expected=parts.get("expected"), hint=parts.get("hint"))
