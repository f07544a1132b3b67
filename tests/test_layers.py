"""The layer checker: the real tree passes, and made-up trees with each kind of violation do not."""

from pathlib import Path

import check_layers
import pytest

ROOT = Path(__file__).parent.parent


def tree(directory: Path, modules: dict[str, str]) -> Path:
    """A package `cepheid` with the given module texts, by path."""
    for name, text in modules.items():
        file = directory / "cepheid" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return directory / "cepheid"


def test_the_real_tree_imports_downwards() -> None:
    assert check_layers.violations(ROOT / "src" / "cepheid") == []


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("errors", "from cepheid.expr import Expr"),
        ("errors", "import cepheid.expr"),
        ("errors", "import os, cepheid.expr as e"),
        ("errors", "from cepheid import expr"),
        ("errors", "from . import expr"),
        ("errors", "from .expr import Expr"),
        ("lang/sase", "from ..optimize import rules"),
        ("lang/sase", "from .. import optimize"),
        ("errors", "def late():\n    from cepheid.expr import Expr"),
        ("errors", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cepheid.expr import Expr"),
        ("expr", "from cepheid.pattern import Query"),  # same layer, wrong order
        ("pattern", "from cepheid.binding import bind"),
        ("codegen/masks", "from cepheid.kernels import registry"),
        ("io/source", "from cepheid.engine.run import run"),
        ("engine/run", "from cepheid.streaming.plan import x"),
        ("physical", "from cepheid.nfa import x"),
        ("errors", "from cepheid.events import Event"),
        ("app/cli", "import cepheid"),
        ("app/cli", "from cepheid import __version__"),
    ],
)
def test_an_import_that_goes_up_is_found(tmp_path: Path, module: str, text: str) -> None:
    found = check_layers.violations(tree(tmp_path, {module: text}))
    assert len(found) == 1
    assert "must not import" in found[0]


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("events", "from cepheid.errors import CepheidError"),
        ("semantics", "from cepheid.pattern import Query\nfrom cepheid import expr, errors"),
        ("lang/sase", "from .builder import seq\nfrom ..pattern import Query\nfrom . import zstream"),
        ("kernels/stacks", "from cepheid.codegen import source"),
        ("app/cli", "from cepheid import datasets, lang\nimport cepheid.engine.local"),
        ("__init__", "from cepheid.app.cli import main\nfrom .lang import parse"),
        ("lang/__init__", "from .sase import parse\nfrom cepheid.lang import zstream"),
        ("errors", "import cepheidlike\nfrom events import x"),  # other packages are no concern
    ],
)
def test_an_import_that_goes_down_or_stays_is_fine(tmp_path: Path, module: str, text: str) -> None:
    assert check_layers.violations(tree(tmp_path, {module: text})) == []


def test_a_violation_says_where_and_what_to_do(tmp_path: Path) -> None:
    package = tree(tmp_path, {"errors": "import os\nfrom cepheid.expr import Expr\n"})
    assert check_layers.violations(package) == [
        "cepheid/errors.py:2: `errors` (layer 0) must not import `expr` (layer 1, position 2); "
        "move what both need to the lower one"
    ]


def test_a_module_without_a_layer_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (found,) = check_layers.violations(tree(tmp_path, {"helpers": "", "errors": ""}))
    assert found.startswith("cepheid/helpers.py: `helpers` has no layer; add it to LAYERS in tools/check_layers.py")


def test_an_import_of_a_module_without_a_layer_is_an_error(tmp_path: Path) -> None:
    (found,) = check_layers.violations(tree(tmp_path, {"app/cli": "from cepheid.helpers import x"}))
    assert found == "cepheid/app/cli.py:1: imports `helpers`, which has no layer in tools/check_layers.py"


# --- cycles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "cycle", "modules"),
    [
        (
            "cepheid.kernels",
            ("runs -> stacks", "stacks -> runs"),
            {
                "kernels/stacks/plan": "from cepheid.kernels.runs.edges import x",
                "kernels/runs/edges": "from ..stacks import plan",
            },
        ),
        (
            "cepheid.io",
            ("formats -> source", "source -> formats"),
            {
                "io/source": "from cepheid.io.formats import csv",
                "io/formats/csv": "from cepheid.io.source import Source",
            },
        ),
        (
            "cepheid.io",
            ("__init__ -> formats", "formats -> __init__"),
            {"io/__init__": "from .formats.csv import read", "io/formats/csv": "from cepheid.io import read"},
        ),
        (
            "cepheid.io.formats",
            ("csv -> jsonl", "jsonl -> csv"),
            {
                "io/formats/csv": "def late():\n    from . import jsonl",
                "io/formats/jsonl": "import cepheid.io.formats.csv",
            },
        ),
        (
            "cepheid.lang",
            ("cql -> eql", "eql -> sase", "sase -> cql"),
            {"lang/sase": "from .cql import a", "lang/cql": "from .eql import b", "lang/eql": "from .sase import c"},
        ),
    ],
)
def test_a_cycle_is_found_at_every_depth(
    tmp_path: Path, package: str, cycle: tuple[str, ...], modules: dict[str, str]
) -> None:
    packages = {f"{Path(name).parent}/__init__": "" for name in modules}
    (found,) = check_layers.violations(tree(tmp_path, {**packages, **modules}))
    assert found.startswith(f"{package}: a cycle of imports: ")
    assert all(step in found for step in cycle)


def test_a_cycle_between_packages_is_found_whatever_their_layers(tmp_path: Path) -> None:
    modules = {"codegen/masks": "import cepheid.kernels.tree", "kernels/tree": "import cepheid.codegen.masks"}
    upward, cycle = check_layers.violations(tree(tmp_path, modules))
    assert "`codegen` (layer 5, position 2) must not import `kernels` (layer 5, position 3)" in upward
    assert cycle == (
        "cepheid: a cycle of imports: codegen -> kernels (cepheid/codegen/masks.py:1), "
        "kernels -> codegen (cepheid/kernels/tree.py:1)"
    )


def test_modules_that_share_a_third_are_no_cycle(tmp_path: Path) -> None:
    modules = {"lang/sase": "from . import builder", "lang/eql": "from . import builder, sase", "lang/builder": ""}
    assert check_layers.violations(tree(tmp_path, {**modules, "lang/__init__": "from .eql import parse"})) == []


# --- packages with one home -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "text", "said"),
    [
        ("engine/run", "def late():\n    import pyspark", "only spark may import `pyspark`"),
        ("engine/run", "from pyspark.sql import Row", "only spark may import `pyspark`"),
        ("io/source", "from py4j.protocol import Py4JError", "only spark may import `py4j`"),
        ("app/demo", "from pyspark.sql import SparkSession", "must be imported inside a function here"),
        ("api", "from cepheid.spark.batch import run", "must be imported inside a function here"),
        ("engine/run", "from cepheid.semantics import evaluate", "only semantics, engine.oracle may import"),
        ("optimize/rules", "from ..semantics.runs import x", "only semantics, engine.oracle may import"),
    ],
)
def test_an_import_outside_its_home_is_found(tmp_path: Path, module: str, text: str, said: str) -> None:
    (found,) = check_layers.violations(tree(tmp_path, {module: text}))
    assert said in found


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("spark/batch", "from pyspark.sql import Row\nimport py4j"),
        ("app/demo", "def show():\n    from pyspark.sql import SparkSession"),
        ("api", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
        ("engine/oracle", "from cepheid.semantics import evaluate"),
        ("semantics/runs", "from cepheid.semantics.common import x"),
        ("engine/run", "import pysparkling"),
    ],
)
def test_an_import_at_home_or_inside_a_function_is_fine(tmp_path: Path, module: str, text: str) -> None:
    assert check_layers.violations(tree(tmp_path, {module: text})) == []


def test_the_exit_code_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_layers.main([]) == 0
    assert check_layers.main([str(tree(tmp_path, {"errors": "import cepheid.app.cli"}))]) == 1
    assert capsys.readouterr().out.endswith("layers: 1 violation\n")
