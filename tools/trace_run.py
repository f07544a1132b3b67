"""Counts the function calls of one command: `python tools/trace_run.py run --query ... --input ... --backend local`.

Only functions of Cepheid count. The command runs twice, and the second run is counted, so that imports and caches do
not show. A file switch is a call of a function of another file than the call before. `--switches N` before the command
lists the N calls between files that cause most of them.
"""

from __future__ import annotations

import io
import sys
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import cepheid
from cepheid.app.cli import app

ROOT = str(Path(cepheid.__file__).parent) + "/"


@dataclass
class Trace:
    calls: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """File, function and line, with the number of calls."""
    switches: int = 0
    last: str = ""
    between: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The switches by the last call into another file: its caller and the function."""
    edge: tuple[str, str] = ("", "")
    output: str = ""
    """What the command has written to standard output."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(ROOT) or frame.f_code.co_name.startswith("<"):
            return
        name = file.removeprefix(ROOT)
        self.calls[name, frame.f_code.co_qualname, frame.f_code.co_firstlineno] += 1
        if name != self.last:
            caller = frame.f_back
            while caller is not None and not caller.f_code.co_filename.startswith(ROOT):
                caller = caller.f_back
            if caller is not None and caller.f_code.co_filename != file:
                self.edge = _named(caller), _named(frame)
            self.switches += 1
            self.between[self.edge] += 1
        self.last = name

    def lines(self) -> list[str]:
        files = Counter[str]()
        for (file, *_), number in self.calls.items():
            files[file] += number
        packages = Counter[str]()
        for file, number in files.items():
            packages[file.split("/")[0]] += number
        total = f"{sum(files.values())} calls of {len(self.calls)} functions in {len(files)} files"
        of_packages = [f"  {name}: {number}" for name, number in packages.most_common()]
        switches = f"{self.switches} file switches, {len(self.output.splitlines())} lines of output"
        return [f"{total}, {switches}", *of_packages]


def _named(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename.removeprefix(ROOT)}:{frame.f_code.co_qualname}"


def traced(arguments: list[str]) -> Trace:
    for trace in (None, Trace()):
        stdout, stderr = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr), suppress(SystemExit):
            sys.setprofile(trace)
            try:
                app(arguments, prog_name="cepheid")
            finally:
                sys.setprofile(None)
    assert trace is not None
    stdout.seek(0)
    trace.output = stdout.read()
    return trace


if __name__ == "__main__":
    arguments = sys.argv[1:]
    most = int(arguments[1]) if arguments[0] == "--switches" else 0
    found = traced(arguments[2 * bool(most) :])
    pairs = [f"  {number}: {caller} -> {called}" for (caller, called), number in found.between.most_common(most)]
    print("\n".join([*found.lines(), *pairs]))
