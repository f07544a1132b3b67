"""The lines at the end of a run."""

from __future__ import annotations

from pathlib import Path

from cepheid.app.file_run import FileRun
from cepheid.app.report import summary
from cepheid.engine.query_text import QueryText
from cepheid.io.inputs import DEFAULT_COLUMNS, Input


def test_inputs_that_one_task_of_spark_merges_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("at,k\n1700000000,1\n")
    (tmp_path / "b.csv").write_text("ts,k\n1700000000000,1\n")
    a, b = Input(str(tmp_path / "a.csv"), "A", time_column="at"), Input(str(tmp_path / "b.csv"), "B")
    text = QueryText("EVENT SEQ(A a, B b) WHERE [k] WITHIN 1 hour")
    for inputs, backend, is_told in (([a, b], "spark", True), ([a, b], "local", False), ([b], "spark", False)):
        query = QueryText("EVENT B b").parse() if inputs == [b] else text.parse()
        run = FileRun.open(text, query, inputs, DEFAULT_COLUMNS, backend=backend)
        assert any("one task of Spark merged the inputs" in line for line in summary(run, 0, 0, None)) == is_told
