"""Runs benchmarks. Prints a table and draws a plot for each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import (
    ced,
    ced_figures,
    ced_flight,
    ced_latency,
    ced_model,
    ced_nodes,
    ced_sharing,
    compiling,
    composition,
    eql,
    flink,
    next,
    next_cluster,
    next_paced,
    readme,
    rules,
    sase,
    sase_plus,
    searching,
    spark,
    spark_languages,
    spark_rules,
    spark_steps,
    streaming,
    targets,
    zstream,
)
from bench.plots import draw
from bench.report import Benchmark

_MODULES = (
    targets,
    compiling,
    searching,
    sase,
    sase_plus,
    zstream,
    eql,
    ced,
    ced_figures,
    ced_flight,
    ced_latency,
    ced_model,
    ced_nodes,
    ced_sharing,
    composition,
    next,
    next_cluster,
    next_paced,
    rules,
    spark,
    spark_languages,
    spark_rules,
    spark_steps,
    flink,
    streaming,
)
BENCHMARKS: dict[str, Benchmark] = {b.name: b for module in _MODULES for b in module.BENCHMARKS}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="The benchmarks to run, or prefixes of their names; by default all. `readme` measures the three "
            "ratios of the README."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use small streams: a test of the benchmark, not a measurement.")
    ] = False,
    output: Annotated[Path, typer.Option("--output", help="The directory for plots and tables.")] = Path("build/bench"),
    update_readme: Annotated[
        bool, typer.Option("--update-readme", help="With `readme`: write the three ratios into README.md.")
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="Only list the benchmarks.")] = False,
) -> None:
    """Run the experiments of the papers and the speed targets."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    is_readme = names == [readme.NAME]
    names = list(readme.BENCHMARKS) if is_readme else names
    chosen = [b for b in BENCHMARKS.values() if not names or any(b.name.startswith(name) for name in names)]
    chosen = [b for b in chosen if b.name in readme.BENCHMARKS] if is_readme else chosen
    unknown = [name for name in names or () if not any(b.name.startswith(name) for b in chosen)]
    if unknown:
        raise typer.BadParameter(f"no benchmark begins with `{unknown[0]}`; --list shows them")
    if show:
        for benchmark in chosen:
            console.print(f"{benchmark.name:18} {benchmark.about}", highlight=False)
        return
    output.mkdir(parents=True, exist_ok=True)
    reports = {}
    for benchmark in chosen:
        report = reports[benchmark.name] = benchmark.run(quick)
        console.print(report.table())
        picture = draw(report, output)
        (output / f"{report.name}.md").write_text(report.section(picture.name), encoding="utf-8")
        console.print(f"plot: {picture}\n", highlight=False, soft_wrap=True)
        (output / "README.md").write_text(_index(output), encoding="utf-8")
        console.file.flush()
    if is_readme:
        page = Path("README.md") if update_readme and not quick else None
        console.print(readme.write(reports, output, page), highlight=False, soft_wrap=True, markup=False)


_HOW_TO_READ = """# Benchmarks

`make bench ARGS="--output docs/benchmarks"` generates these pages. A name, or a prefix of names, selects benchmarks.
Each page gives its command. All data is generated, with fixed seeds.

- **Throughput** is in events per second, by CPU time and by wall time. CPU time is the sum over all threads and
  processes of a variant, so it is the throughput of one core. Read it if the machine also runs other work.
- **Runs.** Every figure is the best of several runs (or the median of many, where the page says so), after one warm-up
  run that compiles the code.
- **Checks.** Variants of the same query must find the same number of matches, or the benchmark fails.
- **Ratios** are relative to a baseline that is measured in the same run.

"""


def _index(directory: Path) -> str:
    """The index of the reports in a directory."""
    written = [b for b in BENCHMARKS.values() if (directory / f"{b.name}.md").exists()]
    return _HOW_TO_READ + "".join(f"- [{b.name}]({b.name}.md): {b.about}\n" for b in written)


if __name__ == "__main__":
    app(prog_name="bench")
