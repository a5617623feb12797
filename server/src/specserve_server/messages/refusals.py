"""What the Messages API has and this server does not: refused by name where the answer would be another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import msgspec

from specserve.errors import RequestError
from specserve_checks.type_words import shown
from specserve_server.bodies.messages import ContextManagement
from specserve_server.generation.structured_output import is_null
from specserve_server.tools.schemas import decode_schema

if TYPE_CHECKING:
    from specserve_server.bodies.messages import ClientTool, CountTokensBody

UNSERVED = ("mcp_servers", "container", "context_management")


def refuse_unsupported(body: CountTokensBody) -> None:
    for name in UNSERVED:
        value = getattr(body, name)
        if not is_null(value) and bytes(value) != b"[]" and not (name == "context_management" and keeps_all(value)):
            refuse(name, "is not served; leave it out")
    for i, tool in enumerate(body.tools or ()):
        refuse_tool(tool, f"tools[{i}]")
    if body.tool_choice is not None and (body.tool_choice.type == "tool") != (body.tool_choice.name is not None):
        got = f"got {shown(body.tool_choice.type)} {'without' if body.tool_choice.name is None else 'with'} a name"
        refuse("tool_choice", f"type tool needs the name of a tool, and no other type has one; {got}")


def refuse_tool(tool: ClientTool, where: str) -> None:
    if tool.type not in (None, "custom"):
        text = f"{shown(tool.type)} is not served; describe it as a tool of your own, with name and input_schema"
        raise RequestError(f"{where}.type: {text}.", param="tools")
    if is_null(tool.input_schema):
        text = 'is missing; it must be a JSON schema, such as {"type": "object", "properties": {...}}'
        raise RequestError(f"{where}.input_schema: {text}.", param="tools")
    decode_schema(tool.input_schema, f"{where}.input_schema")


def keeps_all(management: msgspec.Raw) -> bool:
    """Every edit keeps all thoughts, as agents ask beside `thinking`: nothing is removed here anyway."""
    try:
        edits = msgspec.json.decode(management, type=ContextManagement).edits
    except (msgspec.DecodeError, RecursionError):
        return False
    return all(edit.type.startswith("clear_thinking") and edit.keep == "all" for edit in edits)


def refuse(param: str, text: str) -> NoReturn:
    raise RequestError(f"{param}: {text}.", param=param)
