"""The tools of a response, as functions of a chat, and what their calls are in the API.

A tool of kind `custom` takes text: it is a function with one string. A `namespace` is a group of tools, whose functions
have its name before theirs. Kinds that OpenAI runs itself are left out with a warning: agents offer them to all models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve_checks.type_words import shown
from specserve_server.bodies.responses import TOOL_TYPES
from specserve_server.bodies.tools import Function, Tool
from specserve_server.generation.structured_output import is_null

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from specserve_server.bodies.responses import FunctionTool, ResponsesBody

INPUT = "input"
"""The one parameter of a custom tool."""
CUSTOM_PARAMETERS = msgspec.Raw(
    msgspec.json.encode(
        {
            "type": "object",
            "properties": {INPUT: {"type": "string"}},
            "required": [INPUT],
            "additionalProperties": False,
        }
    )
)


class ServedTool(NamedTuple):
    kind: str
    name: str
    namespace: str | None
    tool: Tool
    """Its name is the one that the model knows."""


class CustomFormat(msgspec.Struct, frozen=True):
    """How the text of a custom tool is written: the model is told, and nothing enforces it."""

    syntax: str = ""
    definition: str = ""


def served_tools(body: ResponsesBody) -> Mapping[str, ServedTool]:
    """By the names that the model knows; of two with the same name the first."""
    found: dict[str, ServedTool] = {}
    for each in all_served(body.tools or (), None):
        found.setdefault(each.tool.function.name, each)
    return found


def all_served(tools: Sequence[FunctionTool], namespace: str | None) -> Iterator[ServedTool]:
    for tool in tools:
        if tool.type == "namespace" and namespace is None:
            yield from all_served(tool.tools or (), tool.name or "")
        elif tool.type in ("function", "custom"):
            function = custom_function(tool, namespace) if tool.type == "custom" else plain_function(tool, namespace)
            yield ServedTool(tool.type, tool.name or "", namespace, Tool(type="function", function=function))


def warnings_of(body: ResponsesBody) -> list[str]:
    """Of tools that are left out."""
    found = []
    for i, tool in enumerate(body.tools or ()):
        if tool.type not in TOOL_TYPES:
            found.append(f"tools[{i}]: kind {shown(tool.type)} is not served; the model was not told of it.")
        for j, inner in enumerate((tool.tools or ()) if tool.type == "namespace" else ()):
            if inner.type not in TOOL_TYPES[:2]:
                found.append(f"tools[{i}].tools[{j}]: kind {shown(inner.type)} is not served; the model was not told.")
    return found


def full_name(name: str, namespace: str | None) -> str:
    return name if not namespace else f"{namespace.rstrip('_')}__{name}"


def plain_function(tool: FunctionTool, namespace: str | None) -> Function:
    return Function(
        name=full_name(tool.name or "", namespace),
        description=tool.description,
        parameters=tool.parameters,
        strict=tool.strict,
    )


def custom_function(tool: FunctionTool, namespace: str | None) -> Function:
    description = tool.description or ""
    try:
        form = CustomFormat() if is_null(tool.format) else msgspec.json.decode(tool.format, type=CustomFormat)
    except (msgspec.DecodeError, RecursionError):
        form = CustomFormat()
    if form.definition:
        description = f"{description}\n\nThe input follows this {form.syntax or 'grammar'}:\n{form.definition}"
    name = full_name(tool.name or "", namespace)
    return Function(name=name, description=description, parameters=CUSTOM_PARAMETERS, strict=True)


def custom_arguments(text: str) -> str:
    return msgspec.json.encode({INPUT: text}).decode()


def custom_input(arguments: str) -> str:
    """The text; of arguments that are otherwise, such as ones that were cut off, the arguments themselves."""
    try:
        found = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    text = found.get(INPUT) if isinstance(found, dict) and len(found) == 1 else None
    return text if isinstance(text, str) else arguments
