"""Writes docs/plugins/reference.md from the signatures and docstrings of the plugin interface.

`make pages` runs it. Reads sources and imports none of them.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SOURCE = Path(__file__).resolve().parents[1] / "core" / "src" / "specserve"
PARTS = {
    "Speculation": (
        "protocols/drafter.py",
        "protocols/planner.py",
        "batch/proposals.py",
        "protocols/verifier.py",
        "protocols/draft_model.py",
        "protocols/draft_pass.py",
        "protocols/target_pass.py",
        "protocols/target_keys.py",
    ),
    "What drafters, planners and observers are given": (
        "types.py",
        "batch/batch.py",
        "batch/span.py",
        "batch/request.py",
    ),
    "Tokens and logits": ("protocols/sampling.py", "batch/processor_state.py"),
    "Serving": ("protocols/serving.py", "protocols/prefix_cache.py"),
    "Attention": ("protocols/attention.py",),
    "Families of models": ("models/family.py",),
    "Formats of weights": ("models/weight_format.py",),
    "Parts of a model": ("models/part.py", "protocols/part.py", "engine/worker.py"),
    "Kernels and the model": ("protocols/model.py", "protocols/quantised.py"),
    "Layers without attention": (
        "models/mixer.py",
        "protocols/mixer.py",
        "protocols/recurrent.py",
        "batch/mixer_inputs.py",
        "batch/preceding.py",
        "batch/state_runs.py",
        "batch/span_states.py",
    ),
    "Adapters": ("protocols/lowrank.py", "batch/lora_plan.py"),
    "Graphs": ("protocols/graphs.py",),
    "Declarations": ("declare.py",),
    "The configuration that hooks are given": ("config.py",),
}
BEGIN = """# Reference of the plugin interface

Every class and name that a plugin meets, with its signature, as the code has it: `make pages` writes this page.
[plugins.md](../plugins.md#hooks) lists the hooks, [contract.md](contract.md) explains when what is called.
"""


def main() -> int:
    print(page(), end="")
    return 0


def page() -> str:
    parts = [BEGIN]
    for title, files in PARTS.items():
        parts.append(f"## {title}\n")
        for file in files:
            parts += described(file)
    return "\n".join(parts)


def described(file: str) -> Iterator[str]:
    own, doors = f"specserve.{file.removesuffix('.py').replace('/', '.')}", offered()
    for node, after in with_next(ast.parse((SOURCE / file).read_text()).body):
        name = node.name if isinstance(node, ast.ClassDef) else assigned(node)
        module = doors.get((own, name), own)
        if isinstance(node, ast.ClassDef) and is_public(name):
            yield f"### `{name}`\n"
            yield from class_text(node, module)
        elif is_public(name) and (string(after) or (own, name) in doors):
            yield f"### `{name}`\n\n`{ast.unparse(node)}`, in `{module}`\n"
            if about := string(after):
                yield f"{text(about)}\n"


@cache
def offered() -> dict[tuple[str, str], str]:
    """(module, name) -> the module of `specserve.api` that has this name of that module."""
    doors = {}
    for file in sorted((SOURCE / "api").glob("*.py")):
        door = "specserve.api" if file.stem == "__init__" else f"specserve.api.{file.stem}"
        doors |= dict.fromkeys(imported(file), door)
    for module, name in list(doors):
        if (module, name) == ("specserve.protocols", "*"):
            doors |= dict.fromkeys(imported(SOURCE / "protocols" / "__init__.py"), doors[module, name])
    return doors


def imported(file: Path) -> Iterator[tuple[str, str]]:
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def class_text(node: ast.ClassDef, module: str) -> Iterator[str]:
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    yield f"`class {node.name}{bases and f'({bases})'}`, in `{module}`\n"
    if docstring := ast.get_docstring(node):
        yield f"{text(docstring)}\n"
    if fields := list(attributes(node)):
        yield "\n".join(fields) + "\n"
    for method in methods(node):
        yield f"#### `{node.name}.{signature(method)}`\n"
        if docstring := ast.get_docstring(method):
            yield f"{text(docstring)}\n"


def attributes(node: ast.ClassDef) -> Iterator[str]:
    """Fields, and properties, which are read like fields."""
    for each, after in with_next(node.body):
        if isinstance(each, ast.AnnAssign) and is_public(name := ast.unparse(each.target)):
            default = (
                f" = {ast.unparse(each.value)}" if each.value is not None and "field(" not in ast.unparse(each) else ""
            )
            yield item(f"{name}: {ast.unparse(each.annotation)}{default}", string(after))
        elif isinstance(each, ast.FunctionDef) and is_property(each) and is_public(each.name):
            yield item(f"{each.name}: {returns(each)}", ast.get_docstring(each) or "")


def methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and is_public(each.name) and not is_property(each):
            yield each


def signature(method: ast.FunctionDef) -> str:
    arguments = ast.unparse(method.args)
    first, _, rest = arguments.partition(", ")
    return f"{method.name}({rest if first in ('self', 'cls') else arguments}) -> {returns(method)}"


def returns(method: ast.FunctionDef) -> str:
    return "None" if method.returns is None else ast.unparse(method.returns)


def is_property(method: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) == "property" for decorator in method.decorator_list)


def is_public(name: str) -> bool:
    return name != "" and not name.startswith("_")


def assigned(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else ""


def string(node: ast.stmt | None) -> str:
    """A docstring that stands behind what it describes; empty where this is none."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return ast.literal_eval(node.value) if is_text else ""  # type: ignore[union-attr]


def with_next(nodes: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.stmt | None]]:
    yield from zip(nodes, [*nodes[1:], None], strict=True)


def item(code: str, about: str) -> str:
    return f"- `{code}`" + (f": {' '.join(text(about).split())}" if about else "")


def text(docstring: str) -> str:
    """Lines of a paragraph joined; shapes in brackets are no links."""
    paragraphs = docstring.split("\n\n")
    return "\n\n".join(" ".join(line.strip() for line in each.splitlines()) for each in paragraphs)


if __name__ == "__main__":
    sys.exit(main())
