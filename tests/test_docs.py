"""Tests of the documentation: queries parse, links resolve, and the code of the Spark page prints the text shown."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from sample_events import require_compiled

import cepheid
from cepheid.errors import CepheidError
from cepheid.lang import DIALECTS, parse, recognise, to_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
LANGUAGES = tuple(dialect.name for dialect in DIALECTS)


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The fenced blocks of a page, as pairs of language and content."""
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield match[1].strip(), match[2]


QUERIES = [
    pytest.param(language, query, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, (language, query) in enumerate(blocks(page.read_text()))
    if language in LANGUAGES
]


@pytest.mark.parametrize(("language", "query"), QUERIES)
def test_queries_parse_print_and_are_recognised(language: str, query: str) -> None:
    parsed = parse(query, language)
    assert recognise(query).name == language
    assert parse(to_text(parsed), language) == parsed


@pytest.mark.parametrize(("language", "query"), QUERIES)
def test_queries_are_compiled(language: str, query: str) -> None:
    require_compiled(query, language)


def test_every_language_has_examples() -> None:
    assert {param.values[0] for param in QUERIES} == set(LANGUAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    assert [target for target in targets if "://" not in target and not (page.parent / target).exists()] == []


def test_the_example_of_the_readme_prints_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    kinds = [kind for kind, _ in blocks((ROOT / "README.md").read_text())]
    bodies = [body for _, body in blocks((ROOT / "README.md").read_text())]
    at = kinds.index("text")
    assert kinds[at - 1] == "python" and bodies[at - 1].count("\n") <= 7
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(bodies[at - 1], "README.md", "exec"), {})
    assert printed.getvalue() == bodies[at]


@pytest.mark.parametrize("name", ("flink", "spark-joins", "spark-kernel"))
def test_ratios_of_the_readme_are_those_of_the_benchmarks(name: str) -> None:
    text = re.sub(r"\s+", " ", (ROOT / "README.md").read_text())
    found = re.search(rf"\*\*(\d+)(?: %)? to (\d+)[^*]*\*\*[^*]*`make bench ARGS={name}`", text)
    assert found is not None
    rows = [line.strip("| ").split(" | ") for line in (ROOT / f"docs/benchmarks/{name}.md").read_text().splitlines()]
    ratios = [
        float(row[-1].rstrip("%"))
        for row in rows
        if len(row) > 5 and row[1].startswith("Cepheid") and not row[1].endswith(("shown", "kernel", "by Spark"))
    ]
    for shown, whole in ((min(ratios), found[1]), (max(ratios), found[2])):
        assert abs(shown - int(whole)) <= 0.5  # the pages round to three digits, the README to whole numbers


# --- the cookbook -----------------------------------------------------------------------------------------------------

COOKBOOK = ROOT / "docs" / "cookbook"
RECIPES = sorted(page for page in COOKBOOK.glob("*.md") if page.name not in ("README.md", "which-language.md"))


def rows_of(query: str, path: Path, language: str = "auto") -> list[dict[str, Any]]:
    """The matches of a query in a CSV file, without their interval, as `cepheid run` finds them."""
    events = pacsv.read_csv(path, convert_options=pacsv.ConvertOptions(strings_can_be_null=True))
    rows: list[dict[str, Any]] = cepheid.match(query, events, dialect=language).to_pylist()
    return [{name: value for name, value in row.items() if name not in ("match_start", "match_end")} for row in rows]


def markdown_table(rows: list[dict[str, Any]]) -> str:
    header = list(rows[0])
    cells = [[f"{row[name]}" for name in header] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *cells])


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_recipes_find_the_matches_that_they_show(page: Path) -> None:
    text, path = page.read_text(), COOKBOOK / "data" / f"{page.stem}.csv"
    assert [body for kind, body in blocks(text) if kind == "csv"] == [path.read_text()]
    shown = re.findall(r"^```(\S+)\n([^`]*(?:`[^`]+`[^`]*)*?)\n```\n\n((?:\|.*\n)+)", text, re.MULTILINE)
    queries = [(language, query) for language, query, _ in shown]
    assert [(kind, body) for kind, body in blocks(text) if kind in LANGUAGES] == [(k, f"{q}\n") for k, q in queries]
    assert len(queries) >= 2
    for language, query, table in shown:
        assert markdown_table(rows_of(query, path, language)) == table.rstrip()


def timeline_tool() -> Any:
    spec = importlib.util.spec_from_file_location("timeline", ROOT / "tools" / "timeline.py")
    assert spec is not None and spec.loader is not None
    timeline = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(timeline)
    return timeline


def test_a_time_line_of_other_columns_long_types_and_a_long_query() -> None:
    kinds = ["a very long event type", "B", "C"]
    events = pa.table({"kind": kinds, "at": pa.array([1, 2, 3]), "user": ["x"] * 3})
    query = "EVENT SEQ(`a very long event type` a, B b) WHERE [user]" + " AND a.user = b.user" * 10
    timeline = timeline_tool()
    svg = timeline.picture(query, events, "kind", "at")
    assert ">a very long e…</text>" in svg and ">a very long event type</text>" not in svg
    width = int(re.search(r"width='(\d+)'", svg)[1])  # type: ignore[index]
    assert width <= 1_200 and ">3</text>" in svg
    for columns, text in (((), query), (("kind", "at"), "EVENT SEQ(C c, B b)")):
        with pytest.raises(CepheidError, match=r"no column `type`|no match to draw"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            timeline.picture(text, events, *columns)


def test_pictures_of_recipes_are_those_that_the_command_draws() -> None:
    timeline = timeline_tool()
    pictures = timeline.cookbook_pictures()
    assert len(pictures) == len(RECIPES)
    assert [path.name for path, svg in pictures.items() if path.read_text() != svg] == []
    for page in RECIPES:
        assert f"(pictures/{page.stem}.svg)" in page.read_text()


@pytest.mark.parametrize("page", sorted((COOKBOOK / "data").glob("*.csv")), ids=lambda path: path.stem)
def test_a_page_of_the_cookbook_has_all_its_parts(page: Path) -> None:
    text = (COOKBOOK / f"{page.stem}.md").read_text()
    query = min(at for name in LANGUAGES if (at := text.find(f"\n```{name}\n")) >= 0)
    table, picture, alert = (
        text.find(part) for part in ("\n| --- |", f"(pictures/{page.stem}.svg)", "\n## One alert instead")
    )
    assert page.read_text().strip() in text and query < table < picture < alert
    assert any(language in LANGUAGES for language, _ in blocks(text[alert:]))


def test_the_cookbook_lists_every_recipe() -> None:
    text = (COOKBOOK / "README.md").read_text()
    assert len(RECIPES) >= 10 and all(f"({page.name})" in text for page in RECIPES)


def test_paths_of_the_architecture_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    paths = re.findall(r"`((?:\w+/)+(?:\w+\.py)?|\w+\.py)`", text)
    assert len(paths) > 40
    roots = (ROOT / "src" / "cepheid", ROOT)
    assert [path for path in paths if not any((root / path).exists() for root in roots)] == []


@pytest.mark.spark
def test_the_code_on_the_spark_page_prints_its_output(spark: SparkSession) -> None:
    text = (ROOT / "docs" / "how-to" / "spark.md").read_text()
    names: dict[str, Any] = {}
    printed = io.StringIO()
    expected = ""
    for kind, body in blocks(text):
        if kind == "python":
            with contextlib.redirect_stdout(printed):
                exec(compile(body, "spark.md", "exec"), names)
        elif kind == "text":
            expected += body
    assert [line.rstrip() for line in printed.getvalue().splitlines() if line.strip()] == expected.splitlines()
