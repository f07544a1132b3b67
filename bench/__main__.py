"""Runs benchmarks: prints a table for each and draws its picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import compiling, flink, sase, sase_plus, spark, streaming, targets
from bench.plots import draw
from bench.report import Benchmark

_MODULES = (targets, compiling, sase, sase_plus, spark, flink, streaming)
BENCHMARKS: dict[str, Benchmark] = {b.name: b for module in _MODULES for b in module.BENCHMARKS}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which to run, or the start of their names; all if none is given.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small streams: to see that it works, not how fast.")] = False,
    output: Annotated[Path, typer.Option("--output", help="Where pictures and tables go.")] = Path("build/bench"),
    show: Annotated[bool, typer.Option("--list", help="Only list the benchmarks.")] = False,
) -> None:
    """The papers' experiments and the speed targets, as tables and pictures."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    chosen = [b for b in BENCHMARKS.values() if not names or any(b.name.startswith(name) for name in names)]
    unknown = [name for name in names or () if not any(b.name.startswith(name) for b in chosen)]
    if unknown:
        raise typer.BadParameter(f"no benchmark begins with `{unknown[0]}`; --list shows them")
    if show:
        for benchmark in chosen:
            console.print(f"{benchmark.name:18} {benchmark.about}", highlight=False)
        return
    output.mkdir(parents=True, exist_ok=True)
    for benchmark in chosen:
        report = benchmark.run(quick)
        console.print(report.table())
        picture = draw(report, output)
        (output / f"{report.name}.md").write_text(report.section(picture.name), encoding="utf-8")
        console.print(f"picture: {picture}\n", highlight=False, soft_wrap=True)
        console.file.flush()


if __name__ == "__main__":
    app(prog_name="bench")
