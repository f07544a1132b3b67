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
        ("pattern", "from cepheid.semantics import matches"),
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
        ("kernels/stacks", "from cepheid.codegen import source"),  # an unordered layer
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
        "cepheid/errors.py:2: `errors` (layer 0) must not import `expr` (layer 1); move what both need to the lower one"
    ]


def test_a_module_without_a_layer_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (found,) = check_layers.violations(tree(tmp_path, {"helpers": "", "errors": ""}))
    assert found.startswith("cepheid/helpers.py: `helpers` has no layer; add it to LAYERS in tools/check_layers.py")


def test_an_import_of_a_module_without_a_layer_is_an_error(tmp_path: Path) -> None:
    (found,) = check_layers.violations(tree(tmp_path, {"app/cli": "from cepheid.helpers import x"}))
    assert found == "cepheid/app/cli.py:1: imports `helpers`, which has no layer in tools/check_layers.py"


def test_the_exit_code_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_layers.main([]) == 0
    assert check_layers.main([str(tree(tmp_path, {"errors": "import cepheid.app.cli"}))]) == 1
    assert capsys.readouterr().out.endswith("layers: 1 violation\n")
