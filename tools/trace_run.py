"""Counts the function calls of one command: `python tools/trace_run.py run --query ... --input ... --backend local`.

Only functions of Cepheid count. The command runs twice, and the second run is counted, so that imports and caches do
not show. A file switch is a call from a function of one file to a function of another.
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
    output: str = ""
    """What the command has written to standard output."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(ROOT) or frame.f_code.co_name.startswith("<"):
            return
        name = file.removeprefix(ROOT)
        self.calls[name, frame.f_code.co_qualname, frame.f_code.co_firstlineno] += 1
        self.switches += name != self.last
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
    print("\n".join(traced(sys.argv[1:]).lines()))
