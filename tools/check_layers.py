"""Checks that every module of the package imports only from its own layer or from layers below it.

usage: python tools/check_layers.py [package directory]      (default: src/cepheid)
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = "__init__"


@dataclass(frozen=True)
class Layer:
    """Modules and subpackages on one level. In an ordered layer each may import only those named before it."""

    members: tuple[str, ...]
    ordered: bool = False


LAYERS = (
    Layer(("errors", "events", "version"), ordered=True),
    Layer(("expr", "pattern", "checks", "core_language", "binding", "semantics"), ordered=True),
    Layer(("lang", "physical", "nfa", "explanation")),
    Layer(("optimize",)),
    Layer(("runtime", "codegen", "kernels"), ordered=True),
    Layer(("io", "engine", "streaming", "spark")),
    Layer(("api",)),
    Layer(("datasets", "app", "__main__"), ordered=True),
    Layer((TOP,)),
)


def ranks(layers: tuple[Layer, ...]) -> dict[str, tuple[int, int]]:
    """Where each member stands: its layer, then its place in it (the same for all unless the layer is ordered)."""
    return {
        member: (level, place if layer.ordered else 0)
        for level, layer in enumerate(layers)
        for place, member in enumerate(layer.members)
    }


def imported_members(
    tree: ast.AST, package: str, inside: tuple[str, ...], known: set[str]
) -> Iterator[tuple[int, str]]:
    """Line and member for each import of the package, wherever it stands: one inside a function leaks just as much.

    `inside` is the dotted path of the package that relative imports start from.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            paths = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            paths = [(*base, alias.name) for alias in node.names]
        else:
            continue
        for path in paths:
            if path[0] != package:
                continue
            # `from cepheid import errors` names a module, `from cepheid import run` a name of the top; `from
            # cepheid.lang import sase` is about `lang` either way.
            from_top = len(path) == 1 or (isinstance(node, ast.ImportFrom) and len(path) == 2 and path[1] not in known)
            yield node.lineno, TOP if from_top else path[1]


def violations(root: Path, layers: tuple[Layer, ...] = LAYERS) -> list[str]:
    """One line for each import that goes up, and for each module without a place. Empty when all is well."""
    rank = ranks(layers)
    found = []
    for file in sorted(root.rglob("*.py")):
        steps = file.relative_to(root).with_suffix("").parts
        member, shown = steps[0], f"{root.name}/{file.relative_to(root).as_posix()}"
        if member not in rank:
            found.append(
                f"{shown}: `{member}` has no layer; add it to LAYERS in tools/check_layers.py, "
                "on the lowest layer from which it can reach what it imports"
            )
            continue
        tree = ast.parse(file.read_bytes(), filename=str(file))
        for line, target in imported_members(tree, root.name, (root.name, *steps[:-1]), set(rank)):
            if target == member:
                continue
            if target not in rank:
                found.append(f"{shown}:{line}: imports `{target}`, which has no layer in tools/check_layers.py")
            elif rank[target] > rank[member]:
                found.append(
                    f"{shown}:{line}: `{member}` ({_place(rank[member])}) must not import `{target}` "
                    f"({_place(rank[target])}); move what both need to the lower one"
                )
    return found


def _place(rank: tuple[int, int]) -> str:
    return f"layer {rank[0]}" + (f", place {rank[1] + 1}" if rank[1] else "")


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent / "src" / "cepheid"
    found = violations(root.resolve())
    for line in found:
        print(line)
    print(f"layers: {len(found)} violation{'' if len(found) == 1 else 's'}" if found else "layers: all imports go down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
