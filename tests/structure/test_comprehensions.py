"""No function uses a module's name that one of its comprehensions binds, too.

CPython 3.12 runs comprehensions in their function's frame, and its first releases then take the name for a local
variable that was never set: UnboundLocalError, where 3.11 and 3.13 find the function or class of that name.
"""

from __future__ import annotations

import ast
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for folder in (
        "core/src",
        "checks/src",
        "draft_models/src",
        "server/src",
        "workbench/src",
        "bench/src",
        "demo/src",
        "plugins",
        "template",
        "benchmarks",
        "tests",
    )
    for path in (ROOT / folder).rglob("*.py")
    if "build" not in path.parts
)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def names_in(node):
    return (each for each in ast.walk(node) if isinstance(each, ast.Name))


def clashes(source):
    """Function and name, in the order of the text."""
    tree = ast.parse(source)
    table = {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    assigned = (node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign))
    targets = chain.from_iterable(node.targets if isinstance(node, ast.Assign) else [node.target] for node in assigned)
    table |= {each.id for target in targets for each in names_in(target)}
    imports = (node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    table |= {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [(function.name, name) for function in functions for name in sorted(clashing(function) & table)]


def clashing(function):
    """Names that a comprehension of the function binds, and that the function reads outside of all that bind them."""
    binding = {}
    for node in ast.walk(function):
        if isinstance(node, COMPREHENSIONS):
            for name in chain.from_iterable(names_in(each.target) for each in node.generators):
                binding.setdefault(name.id, []).append(node)
    found = set()
    for name, nodes in binding.items():
        inside = {id(each) for node in nodes for each in names_in(node)}
        read = (each for each in names_in(function) if each.id == name and isinstance(each.ctx, ast.Load))
        if any(id(each) not in inside for each in read):
            found.add(name)
    return found


@pytest.mark.parametrize(
    "body",
    [
        "    names = {entry.name for entry in plugins}\n    return [entry(each) for each in names]",
        "    first = entry(plugins)\n    return {entry: 1 for entry in plugins}, first",
    ],
)
def test_a_clash_is_found(body):
    assert clashes(f"def entry(x):\n    return x\n\n\ndef f(plugins):\n{body}\n") == [("f", "entry")]


def test_a_name_of_the_comprehension_alone_is_none():
    assert clashes("def entry(x):\n    return x\n\n\ndef f(plugins):\n    return [entry for entry in plugins]\n") == []


def test_no_function_of_the_sources_has_one():
    found = {str(path.relative_to(ROOT)): clashes(path.read_text()) for path in SOURCES}
    assert {path: names for path, names in found.items() if names} == {}
    assert len(found) > 500
