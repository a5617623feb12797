"""Sizes of files and functions, read from the sources."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PRODUCT = (
    *("checks", "core", "draft_models", "server", "workbench", "bench", "demo", "page"),
    *("plugins", "deploy", "template"),
)
BUILT = {"build", ".venv", "__pycache__"}
CODE = {".py", ".cpp", ".hpp", ".js", ".css"}


class Function(NamedTuple):
    where: str
    num_lines: int
    num_arguments: int
    on_gpu: bool
    """Without `self` and `cls`; `*args` and `**kwargs` are one each."""


@cache
def sources(*folders: str) -> tuple[Path, ...]:
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("*")))
    return tuple(p for p in paths if p.suffix in CODE and BUILT.isdisjoint(p.relative_to(ROOT).parts))


def num_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


@cache
def functions(*folders: str) -> list[Function]:
    """Every Python function, nested ones counted for themselves and for the one around them."""
    found = []
    for path in sources(*folders):
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    on_gpu = any("triton.jit" in ast.unparse(decorator) for decorator in node.decorator_list)
                    where = f"{path.relative_to(ROOT)}::{node.name}"
                    found.append(Function(where, length(node), len(arguments(node)), on_gpu))
    return found


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    every = [*node.args.posonlyargs, *node.args.args, node.args.vararg, *node.args.kwonlyargs, node.args.kwarg]
    return [argument.arg for argument in every if argument and argument.arg not in ("self", "cls")]


def names(name: str, *folders: str) -> list[str]:
    """Where a name is used: the path, as often as the name stands there."""
    return [
        str(path.relative_to(ROOT))
        for path in sources(*folders)
        if path.suffix == ".py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and node.id == name
    ]
