"""Who imports whom, read from the sources without importing them.

An edge leads from a module to a module of the same sources. At run time an import also runs the `__init__` of the
packages around what is imported; a module's own packages do not count, they began before it.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
OWN = ("checks", "core", "draft_models", "page", "server", "workbench", "bench", "demo", "template")
PACKAGES = (*OWN, "plugins/*", "deploy/*")
SOURCE_FOLDERS = [folder for package in PACKAGES for folder in sorted(ROOT.glob(f"{package}/src"))]

Graph = dict[str, set[str]]


class Import(NamedTuple):
    name: str
    when: str
    """"load": when the module is loaded; "call": inside a function; "types": for annotations only."""


def module_name(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_name(path, folder): path for folder in SOURCE_FOLDERS for path in sorted(folder.rglob("*.py"))}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def statements(node: ast.AST, when: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, when
        elif is_type_checking(child):
            yield from statements(child, "types")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from statements(child, "call")
        else:
            yield from statements(child, when)


def imports_in(source: str, is_module=lambda name: name in modules()) -> set[Import]:
    """Every module that a source names; `from a import b` names `a.b` where that is a module."""
    found = set()
    for statement, when in statements(ast.parse(source), "load"):
        if isinstance(statement, ast.Import):
            found |= {Import(alias.name, when) for alias in statement.names}
            continue
        assert statement.level == 0, "relative imports are not used here"
        for alias in statement.names:
            inner = f"{statement.module}.{alias.name}"
            found.add(Import(inner if is_module(inner) else str(statement.module), when))
    return found


@cache
def imports_of(module: str) -> frozenset[Import]:
    return frozenset(imports_in(modules()[module].read_text()))


def packages_around(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def run_time_graph() -> Graph:
    graph = {}
    for module in modules():
        loaded = {name for name, when in imports_of(module) if when == "load"}
        around = {package for name in loaded for package in packages_around(name)} - set(packages_around(module))
        graph[module] = ((loaded | around) & modules().keys()) - {module}
    return graph


def type_graph() -> Graph:
    """With the imports in functions and for annotations, file by file."""
    return {module: ({name for name, _ in imports_of(module)} & modules().keys()) - {module} for module in modules()}


def reached_from(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        waiting += graph[module] if (module := waiting.pop()) not in seen else ()
        seen.add(module)
    return seen


def circles(graph: Graph) -> list[tuple[str, ...]]:
    """Modules that import each other, directly or by way of others: the graph's strong components of two or more."""
    reach = {start: set().union(*(reached_from(graph, end) for end in graph[start])) for start in graph}
    found = {tuple(sorted(m for m in reach[start] if start in reach[m])) for start in graph if start in reach[start]}
    return sorted(found)
