"""Checks the imports of the package: downwards only, without cycles, and of some packages only where they belong.

usage: python tools/check_layers.py [package directory]      (default: src/cepheid)

1. A module imports only from layers below its own, and in its own layer from those named before it.
2. The modules and subpackages of a package do not import each other in a circle, at any depth.
3. Some packages are imported in one place only (RESTRICTED), or elsewhere only inside functions.

An import counts wherever it stands: inside a function or under TYPE_CHECKING it couples two modules just as much.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TOP = "__init__"


@dataclass(frozen=True)
class Restricted:
    """A package that only some modules import. `lazily` names those that may import it inside functions, so that it is
    loaded when it is needed."""

    package: str
    only: tuple[str, ...]
    lazily: tuple[str, ...] = ()


LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "content", "types", "events", "version"),
    (
        "values",
        "expr",
        "functions",
        "inference",
        "evaluation",
        "dialect",
        "parameters",
        "pattern",
        "checks",
        "inner_aggregates",
        "binding",
        "cautions",
        "semantics",
        "logic",
        "core_language",
    ),
    (
        "analysis",
        "limits",
        "tree_plan",
        "physical",
        "graph",
        "evaluator",
        "nfa",
        "picture",
        "rendering",
        "explanation",
        "lang",
        "builder",
    ),
    ("optimize",),
    ("acquire",),
    ("runtime", "codegen", "kernels"),
    ("io", "engine", "deploy", "detection", "streaming", "spark"),
    ("api",),
    ("datasets", "app", "__main__"),
    (TOP,),
)
"""Modules and subpackages from bottom to top. Those of one layer import only those named before them."""
RESTRICTED = (
    Restricted("pyspark", only=("spark",), lazily=("api", "app")),
    Restricted("py4j", only=("spark",), lazily=("api", "app")),
    Restricted("cepheid.spark", only=("spark",), lazily=("api", "app", TOP)),
    Restricted("cepheid.semantics", only=("semantics", "engine.oracle")),
)


@dataclass(frozen=True)
class Import:
    """One import statement. `path` is what is imported, with the imported name as its last part."""

    path: tuple[str, ...]
    line: int
    lazy: bool
    """Whether it stands in a function or under TYPE_CHECKING."""


@dataclass(frozen=True)
class Module:
    """A file of the package. `name` is its path inside the package: `("lang", "sase")`, `("lang", "__init__")`."""

    name: tuple[str, ...]
    file: str
    imports: tuple[Import, ...]

    @property
    def member(self) -> str:
        return self.name[0]


def modules(root: Path) -> list[Module]:
    found = []
    for file in sorted(root.rglob("*.py")):
        relative = file.relative_to(root)
        name = relative.with_suffix("").parts
        tree = ast.parse(file.read_bytes(), filename=str(file))
        imports = tuple(_imports(tree, (root.name, *name[:-1]), lazy=False))
        found.append(Module(name, f"{root.name}/{relative.as_posix()}", imports))
    return found


def _imports(node: ast.AST, inside: tuple[str, ...], lazy: bool) -> Iterator[Import]:
    """`inside` is the package that relative imports start from."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(tuple(alias.name.split(".")), child.lineno, lazy)
        elif isinstance(child, ast.ImportFrom):
            base = inside[: len(inside) - child.level + 1] if child.level else ()
            base += tuple(child.module.split(".")) if child.module else ()
            for alias in child.names:
                yield Import((*base, alias.name), child.lineno, lazy)
        else:
            deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or _is_for_types(child)
            yield from _imports(child, inside, lazy or deferred)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def violations(
    root: Path, layers: tuple[tuple[str, ...], ...] = LAYERS, restricted: tuple[Restricted, ...] = RESTRICTED
) -> list[str]:
    """One line for each violation. Empty when all is well."""
    found = modules(root)
    return [*_upward(found, root.name, layers), *_cycles(found, root.name), *_misplaced(found, restricted)]


# --- layers -----------------------------------------------------------------------------------------------------------


def ranks(layers: tuple[tuple[str, ...], ...]) -> dict[str, tuple[int, int]]:
    """The rank of each member: its layer, then its position in it."""
    return {member: (level, at) for level, layer in enumerate(layers) for at, member in enumerate(layer)}


def _upward(found: list[Module], package: str, layers: tuple[tuple[str, ...], ...]) -> Iterator[str]:
    rank = ranks(layers)
    for module in found:
        member = module.member
        if member not in rank:
            yield (
                f"{module.file}: `{member}` has no layer; add it to LAYERS in tools/check_layers.py, "
                "on the lowest layer from which it can reach what it imports"
            )
            continue
        for imported in module.imports:
            target = _member(imported.path, package, rank)
            if target is None or target == member:
                continue
            if target not in rank:
                yield f"{module.file}:{imported.line}: imports `{target}`, which has no layer in tools/check_layers.py"
            elif rank[target] > rank[member]:
                yield (
                    f"{module.file}:{imported.line}: `{member}` ({_shown(rank[member])}) must not import `{target}` "
                    f"({_shown(rank[target])}); move what both need to the lower one"
                )


def _member(path: tuple[str, ...], package: str, rank: Mapping[str, object]) -> str | None:
    """The member that an import is about: `from cepheid import errors` names a module, `from cepheid import run` a name
    of the top."""
    if path[0] != package:
        return None
    return TOP if len(path) == 1 or (len(path) == 2 and path[1] not in rank) else path[1]


def _shown(rank: tuple[int, int]) -> str:
    return f"layer {rank[0]}" + (f", position {rank[1] + 1}" if rank[1] else "")


# --- cycles -----------------------------------------------------------------------------------------------------------

Graph = dict[str, dict[str, str]]
"""For each child of a package, the children that it imports, each with a file and line that does."""


def _cycles(found: list[Module], package: str) -> Iterator[str]:
    for parent, graph in sorted(_graphs(found, package).items()):
        for cycle in _circles(graph):
            steps = [f"{a} -> {b} ({graph[a][b]})" for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
            yield f"{'.'.join((package, *parent))}: a cycle of imports: {', '.join(steps)}"


def _graphs(found: list[Module], package: str) -> dict[tuple[str, ...], Graph]:
    """For each package, how its children (modules and subpackages) import each other."""
    known = {module.name for module in found}
    graphs: dict[tuple[str, ...], Graph] = {}
    for module in found:
        for imported in module.imports:
            target = _module(imported.path, package, known)
            if target is None or target == module.name:
                continue
            depth = next(i for i, (a, b) in enumerate(zip(module.name, target, strict=False)) if a != b)
            graph = graphs.setdefault(module.name[:depth], {})
            graph.setdefault(module.name[depth], {}).setdefault(target[depth], f"{module.file}:{imported.line}")
    return graphs


def _module(path: tuple[str, ...], package: str, known: set[tuple[str, ...]]) -> tuple[str, ...] | None:
    """The module that an import loads: `from cepheid.lang import sase` may name a module or a name in `__init__`."""
    if path[0] != package:
        return None
    inner = path[1:]
    for name in (inner, (*inner, TOP), inner[:-1], (*inner[:-1], TOP)):
        if name in known:
            return name
    return None


def _circles(graph: Graph) -> Iterator[list[str]]:
    """One circle for each set of children that reach each other."""
    reported: set[str] = set()
    for start in sorted(graph):
        if start not in reported and (circle := _way_back(graph, start)) is not None:
            reported.update(circle)
            yield circle


def _way_back(graph: Graph, start: str) -> list[str] | None:
    """The shortest way from a child back to itself."""
    ways = [[start]]
    seen: set[str] = set()
    for way in ways:
        for target in sorted(graph.get(way[-1], ())):
            if target == start:
                return way
            if target not in seen:
                seen.add(target)
                ways.append([*way, target])
    return None


# --- packages with one home -------------------------------------------------------------------------------------------


def _misplaced(found: list[Module], restricted: tuple[Restricted, ...]) -> Iterator[str]:
    for rule in restricted:
        package = tuple(rule.package.split("."))
        for module in found:
            if _is_in(module, rule.only):
                continue
            for imported in module.imports:
                if imported.path[: len(package)] != package:
                    continue
                if not _is_in(module, rule.lazily):
                    yield f"{module.file}:{imported.line}: only {', '.join(rule.only)} may import `{rule.package}`"
                elif not imported.lazy:
                    yield f"{module.file}:{imported.line}: `{rule.package}` must be imported inside a function here"


def _is_in(module: Module, names: tuple[str, ...]) -> bool:
    return any(module.name[: len(parts)] == parts for parts in (tuple(name.split(".")) for name in names))


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent / "src" / "cepheid"
    found = violations(root.resolve())
    for line in found:
        print(line)
    print(f"layers: {len(found)} violation{'' if len(found) == 1 else 's'}" if found else "layers: all imports go down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
