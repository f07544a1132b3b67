"""The Python API: what it imports, what it refuses, what it explains; and the how-to, which is run as it stands."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cepheid
from cepheid.builder import event, same, sase
from cepheid.errors import InputProblem, NameProblem, NotAvailable, SyntaxProblem
from cepheid.optimize.adapt import Adaptive

ROOT = Path(__file__).resolve().parent.parent
SHOP = pa.table(
    {"type": ["Shelf", "Shelf", "Register", "Exit", "Exit"], "ts": [10, 20, 30, 40, 50], "tag_id": [1, 2, 1, 1, 2]}
)
PAIR = "EVENT SEQ(Shelf x, Exit z) WHERE [tag_id]"


# --- imports ----------------------------------------------------------------------------------------------------------


def imported_by(code: str) -> set[str]:
    command = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_nothing_heavy() -> None:
    loaded = imported_by("import cepheid")
    assert not loaded & {"pandas", "polars", "numba", "pyspark", "pyarrow", "numpy", "lark"}


def test_parsing_loads_neither_arrow_nor_numpy() -> None:
    assert not imported_by(f"import cepheid; cepheid.parse({PAIR!r})") & {"pyarrow", "numpy", "numba", "pandas"}


def test_matching_a_small_table_loads_no_compiler_and_no_other_library() -> None:
    code = (
        "import cepheid, pyarrow as pa\n"
        "table = pa.table({'type': ['A', 'B'], 'ts': [1, 2], 'v': [1, 2]})\n"
        "assert cepheid.match('EVENT SEQ(A x, B y) WHERE x.v < y.v', table).num_rows == 1"
    )
    loaded = imported_by(code)
    assert "pyarrow" in loaded and not loaded & {"numba", "polars", "pyspark", "pyarrow.dataset"}


def test_the_package_tells_what_it_offers() -> None:
    assert set(cepheid.__all__) <= set(dir(cepheid))
    assert all(getattr(cepheid, name) is not None for name in ("match", "parse", "explain", "to_text", "CepheidError"))
    with pytest.raises(AttributeError, match="mach"):
        cepheid.mach  # noqa: B018


def test_explain_stays_a_function_whatever_was_imported() -> None:
    assert "function" in imported_by(
        "import cepheid; cepheid.match; cepheid.app if hasattr(cepheid, 'app') else 0\n"
        "import cepheid.app.cli\nprint(type(cepheid.explain).__name__)"
    )


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "options", "error", "part"),
    [
        ("EVENT SEQ(Shelf x, Exit z", {}, SyntaxProblem, "^"),
        ("EVENT SEQ(Shelf x, Exit z) WHERE x.tag = z.tag", {}, NameProblem, "did you mean `tag_id`?"),
        ("EVENT SEQ(Shelv x, Exit z)", {}, NameProblem, "did you mean `Shelf`?"),
        ("EVENT SEQ(Shelf x, Exit z) WHERE x.tag_id > n", {}, NameProblem, "parameter"),
        (PAIR, {"output": "rows"}, InputProblem, "one of `compressed`, `events`, `flat`, `long`, `positions`"),
        (PAIR, {"time_column": "tss"}, InputProblem, "did you mean `ts`?"),
        (
            PAIR,
            {"time_column": "type"},
            InputProblem,
            "the time `Shelf` in row 0 of `type` is a string, neither an integer nor",
        ),
        (PAIR, {"time_unit": "fortnights"}, InputProblem, "not a unit of time"),
        (PAIR, {"dialect": "cobol"}, InputProblem, "cobol"),
        (PAIR, {"evaluator": "quantum"}, NotAvailable, "no evaluator `quantum`"),
        (PAIR, {"evaluator": "runs"}, NotAvailable, "cannot evaluate this query"),
        (PAIR + " WITHIN 1 minute", {}, InputProblem, "whose unit is not known"),
    ],
)
def test_what_match_refuses(query: str, options: dict[str, Any], error: type[Exception], part: str) -> None:
    with pytest.raises(error) as caught:
        cepheid.match(query, SHOP, **options)
    assert part in str(caught.value)


@pytest.mark.parametrize("events", [5, None, object(), [1, 2]])
def test_what_is_no_table_is_refused(events: Any) -> None:
    with pytest.raises(InputProblem):
        list(cepheid.match(PAIR, events))


def test_an_event_without_a_time_is_refused() -> None:
    table = pa.table({"type": ["A", "B"], "ts": [1, None]})
    with pytest.raises(InputProblem, match="row 1 has no time"):
        cepheid.match("EVENT SEQ(A x, B y)", table)


def test_whole_numbers_stay_whole_in_the_events_that_other_queries_make() -> None:
    events = pa.table({"type": ["A", "B", "A"], "ts": [1, 2, 3], "id": [7, 7, 8], "v": [1.5, 2.0, 3.0]})
    query = """
    source A schema int id, double v source B schema int id
    primitive seen on A as x schema who as x.id, much as x.v
    complex pair on seen as p, B as b schema first as p.who, much as p.much event seq(p, b; 5)
    complex top on pair as q, A as a schema first as q.first, much as q.much, then as a.id event seq(q, a; 5)
    """
    found = cepheid.match(query, events)
    assert found.select(["first", "much", "then"]).to_pylist() == [{"first": 7, "much": 1.5, "then": 8}]
    assert [found.schema.field(name).type for name in ("first", "much", "then")] == [
        pa.int64(),
        pa.float64(),
        pa.int64(),
    ]


def test_a_time_that_is_no_whole_number_is_refused() -> None:
    table = pa.table({"type": ["A", "B"], "ts": [1.0, 1.5]})
    with pytest.raises(InputProblem, match="not a whole number"):
        cepheid.match("EVENT SEQ(A x, B y)", table)


def test_whole_numbers_held_as_floats_are_times() -> None:
    table = pa.table({"type": ["A", "B"], "ts": [1.0, 2.0]})
    assert cepheid.match("EVENT SEQ(A x, B y)", table).num_rows == 1


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputProblem, match="there is no file"):
        cepheid.match(PAIR, tmp_path / "shop.parquet")
    (tmp_path / "shop.parquet").write_text("not Parquet")
    with pytest.raises(InputProblem, match="as Parquet"):
        cepheid.match(PAIR, tmp_path / "shop.parquet")
    (tmp_path / "shop.txt").write_text("type,ts\nShelf,1\n")
    with pytest.raises(InputProblem, match=r"format of .* is not known by its name"):
        cepheid.match(PAIR, tmp_path / "shop.txt")


def test_a_parquet_row_without_a_time_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"type": ["A", "B"], "ts": [1, None]}), tmp_path / "events.parquet")
    with pytest.raises(InputProblem, match=r"row 2 of .* is not a valid event: no time"):
        cepheid.match("EVENT SEQ(A x, B y)", tmp_path / "events.parquet")


def test_batches_out_of_order_are_refused() -> None:
    batches = [SHOP.slice(2, 3).to_batches()[0], SHOP.slice(0, 2).to_batches()[0]]
    with pytest.raises(InputProblem, match="earlier than the one before it"):
        list(cepheid.match(PAIR, iter(batches)))


def test_batches_with_other_columns_are_refused() -> None:
    batches = [SHOP.to_batches()[0], pa.RecordBatch.from_pydict({"type": ["Exit"], "ts": [60]})]
    with pytest.raises(InputProblem, match="those of the first batch"):
        list(cepheid.match(PAIR, iter(batches)))


def test_names_that_only_all_events_could_settle_are_refused_in_a_stream() -> None:
    with pytest.raises(InputProblem, match="types of this input are not known yet") as caught:
        cepheid.match("PATTERN Shelf;Exit WITHIN 50", iter(SHOP.to_batches()))
    assert "^" in str(caught.value) and "`Shelf Shelf`" in str(caught.value)
    found = list(cepheid.match("PATTERN Shelf x;Exit z WITHIN 50", iter(SHOP.to_batches())))
    assert sum(batch.num_rows for batch in found) == 4


def test_an_iterator_of_nothing_gives_nothing() -> None:
    assert list(cepheid.match(PAIR, iter([]))) == []


# --- queries and explanations -----------------------------------------------------------------------------------------


def test_a_query_may_be_built_or_parsed() -> None:
    built = sase().seq(event("Shelf", "x"), event("Exit", "z")).where(same("tag_id")).build()
    assert cepheid.match(built, SHOP).equals(cepheid.match(PAIR, SHOP))


def test_explain_needs_no_events_for_what_a_query_means() -> None:
    assert "language: SASE" in cepheid.explain(PAIR) and "plan" not in cepheid.explain(PAIR)
    assert cepheid.explain(PAIR, format="mermaid").startswith("flowchart")
    with pytest.raises(InputProblem, match="depends on the columns and types"):
        cepheid.explain(PAIR, level="code")
    with pytest.raises(InputProblem, match="unknown level"):
        cepheid.explain(PAIR, SHOP, level="deep")


def test_explain_shows_the_plan() -> None:
    shown = cepheid.explain(PAIR + " AND x.tag_id > 1 WITHIN 30", SHOP)
    for part in (
        "evaluator: stacks, compiled",
        "bit 0, x begin: type Shelf, x.tag_id > 1",
        "z.tag_id = x.tag_id",
        "columns that travel: tag_id (int64)",
        "key: tag_id",
        "window: last - first <= 29 ticks",
    ):
        assert part in shown


def test_a_query_that_no_evaluator_can_run_is_an_error_and_the_oracle_runs_by_request() -> None:
    query = "SELECT * FROM Shelf+; Exit+ WHERE ALL(Shelf.tag_id) = ALL(Exit.tag_id)"
    for call in (cepheid.explain, cepheid.match):
        with pytest.raises(NotAvailable, match="no evaluator can run this query: ALL of several variables"):
            call(query, SHOP)
    assert "evaluator: reference" in cepheid.explain(query, SHOP, evaluator="reference")
    assert len(cepheid.match(query, SHOP, evaluator="reference")) > 0
    with pytest.raises(NotAvailable, match="no code is generated"):
        cepheid.explain(query, SHOP, level="code", evaluator="reference")


def test_explain_shows_the_code_without_text_of_the_query() -> None:
    code = cepheid.explain(PAIR + " AND x.tag_id != z.tag_id + 77.25", SHOP, level="code")
    assert "def step(" in code
    compiled = "\n".join(line for line in code.splitlines() if not line.startswith("#"))  # the legend is not code
    assert not any(text in compiled for text in ("Shelf", "Exit", "tag_id", "77.25"))


def test_a_forced_evaluator_finds_the_same() -> None:
    found = cepheid.match(PAIR, SHOP, evaluator="reference")
    assert found.equals(cepheid.match(PAIR, SHOP)) and found.num_rows == 2
    assert found.equals(cepheid.match(PAIR, SHOP, options={"algorithm": "basic"}))


# --- the how-to -------------------------------------------------------------------------------------------------------


def test_the_how_to_works_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "how-to" / "python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 8
    names: dict[str, Any] = {}
    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "python.md", "exec"), names)
        assert printed.getvalue() == expected, code


@pytest.mark.parametrize("options", [{"algoritm": "basic"}, {"algorithm": "fastest"}, {"algorithm": "backtrack"}])
def test_options_that_are_none_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(cepheid.CepheidError, match="algorithm"):
        cepheid.match(PAIR, SHOP, options=options)


def test_a_value_of_another_evaluators_option_is_refused() -> None:
    with pytest.raises(cepheid.CepheidError) as caught:
        cepheid.match(PAIR, SHOP, evaluator="stacks", options={"algorithm": "backtrack"})
    assert str(caught.value) == (
        "error: the option `algorithm` cannot be `backtrack` for `stacks`\n"
        "  expected: `ais`, `basic`\n"
        "  hint: it can be with the evaluator `runs`"
    )


def test_an_option_of_another_evaluator_is_left_to_it() -> None:
    found = cepheid.match(PAIR, SHOP, evaluator="stacks", options={"merge": "off", "shape": "bushy"})
    assert found.equals(cepheid.match(PAIR, SHOP))
    with pytest.raises(cepheid.CepheidError, match="`merge` cannot be `never`"):
        cepheid.match(PAIR, SHOP, evaluator="stacks", options={"merge": "never"})


def test_the_reference_evaluator_has_no_options_but_knows_those_of_others() -> None:
    found = cepheid.match(PAIR, SHOP, evaluator="reference", options={"merge": "off"})
    assert found.equals(cepheid.match(PAIR, SHOP))
    with pytest.raises(cepheid.CepheidError, match="no option `algoritm`"):
        cepheid.match(PAIR, SHOP, evaluator="reference", options={"algoritm": "basic"})


@pytest.mark.parametrize("off", [False, "False", "off"])
def test_rewriting_can_be_left_out(off: str | bool) -> None:
    text = PAIR + " AND 1 = 1"
    plain = _without_options(cepheid.explain(text, SHOP, options={"rewrite": off}))
    assert plain == _without_options(cepheid.explain(text, SHOP, options={"rewrite": "off"}))
    assert plain != _without_options(cepheid.explain(text, SHOP, options={"rewrite": "on"}))


def _without_options(shown: str) -> list[str]:
    return [line for line in shown.splitlines() if "options:" not in line]


def test_an_empty_result_says_how_far_the_events_got() -> None:
    events = pa.table({"type": ["A", "B"] * 5, "ts": range(10), "v": [1, 2] * 5})
    with pytest.warns(cepheid.CepheidWarning, match="5 of 5 events pass") as told:
        assert cepheid.match("EVENT SEQ(A a, B b) WHERE a.v = b.v WITHIN 10 units", events).num_rows == 0
    text = str(told[0].message)
    assert text.startswith("no match: 10 events, 0 fit no variable") and "partial matches" in text
    assert text.endswith("possible causes: the order of the events; the window of 10 units; a.v = b.v")
    assert told[0].filename == __file__
    batches = cepheid.match("EVENT SEQ(A a, B b) WHERE a.v = b.v WITHIN 10 units", iter(events.to_batches()))
    with pytest.warns(cepheid.CepheidWarning, match="5 of 5 events pass") as told:
        assert list(batches) == []
    assert str(told[0].message) == text and told[0].filename == __file__
    with pytest.warns(cepheid.CepheidWarning, match="a .A.: 0 of 5 events pass its conditions: nothing can match"):
        cepheid.match("EVENT SEQ(A a, B b) WHERE a.v > 5 WITHIN 10 units", events)


def test_an_empty_adaptive_run_says_how_far_the_events_got() -> None:
    """The first half has few events A, the second half few events C, so that the best tree changes."""
    kinds = [*("ABCCCCCC" * 750), *("AAAAAABC" * 750)]
    events = pa.table({"type": kinds, "ts": range(len(kinds)), "v": [i % 7 for i in range(len(kinds))]})
    query = "PATTERN A; B; C WHERE A.v + 9 < B.v AND B.v + 9 < C.v WITHIN 20"
    switches: list[Any] = []
    policy = Adaptive(drift=0.1, gain=0.01, observed_every=200, seconds_between=0)
    with pytest.warns(cepheid.CepheidWarning, match="no match: 12,000 events") as told:
        found = cepheid.match(query, events, evaluator="tree", adaptive=policy, on_switch=switches.append)
    assert found.num_rows == 0
    lines = str(told[0].message).splitlines()
    assert switches and "  B (B): 1,500 of 1,500 events pass its conditions" in lines
    assert any(line.endswith("since the last change of the plan; none is complete") for line in lines)


@pytest.mark.parametrize(
    "query",
    [
        "EVENT SEQ(A a, B b) WITHIN 10 units",
        "EVENT SEQ(A a, B b) WHERE a.v = b.v WITHIN 10 units RETURN count(*)",
        "EVENT SEQ(A a, B b) WHERE a.v = b.v WITHIN 10 units LIMIT 0",
    ],
)
def test_a_result_with_rows_or_no_wish_for_any_has_no_warning(query: str) -> None:
    events = pa.table({"type": ["A", "B"] * 5, "ts": range(10), "v": [1, 2] * 5})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cepheid.match(query, events)


@pytest.mark.parametrize(
    ("query", "least"),
    [
        ("SELECT * FROM A a @ d units", None),
        ("SELECT * FROM A a; B b WHERE (a, b) OCCURS WITHIN d units", 4),
        ("EVENT SEQ(A a, B b) WITHIN d units", 5),
        ("complex c on A as a, B as b event seq(a, b; d units)", 4),
    ],
)
def test_the_length_of_every_window_and_timer_can_be_a_parameter(query: str, least: int | None) -> None:
    events = pa.table({"type": ["A", "B"], "ts": [1, 5]})
    for length in (3, 4, 5):
        matches = cepheid.match(query, events, params={"d": length})
        assert matches.num_rows == (least is None or length >= least)
        if least is None:
            assert matches["match_end"].to_pylist() == [1 + length]
