"""What the Responses API has and this server does not: refused by name where the answer would be another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from specserve.errors import RequestError
from specserve_checks.type_words import shown
from specserve_server.bodies.responses import TOOL_TYPES
from specserve_server.bodies.tools import NAME_RULE
from specserve_server.generation.structured_output import is_null
from specserve_server.tools.schemas import decode_schema

if TYPE_CHECKING:
    from specserve_server.bodies.responses import FunctionTool, ResponsesBody

ADVICE = {
    "conversation": "send previous_response_id, or the whole conversation as input",
    "prompt": "send its text as instructions and input",
    "context_management": "send truncation auto, or a shorter input",
    "moderation": "leave it out",
}
EMPTY_INCLUDES = ("reasoning.encrypted_content",)
"""Reasoning comes as it is, and nothing is encrypted."""


def refuse_unsupported(body: ResponsesBody) -> None:
    for name, advice in ADVICE.items():
        if not is_null(getattr(body, name)):
            refuse(name, f"is not served; {advice}")
    if body.background:
        refuse("background", "is not served; wait for the answer, or read it as a stream")
    for name in body.include or ():
        if name not in EMPTY_INCLUDES:
            refuse("include", f"{shown(name)} is not served; leave it out")
    if body.top_logprobs:
        refuse("top_logprobs", "is not served; log-probabilities come from /v1/chat/completions")
    for i, tool in enumerate(body.tools or ()):
        refuse_tool(tool, f"tools[{i}]")
    choice = body.tool_choice
    if (
        choice is not None
        and not isinstance(choice, str)
        and (choice.type not in ("function", "custom") or choice.name is None)
    ):
        allowed = 'none, auto, required or {"type": "function", "name": ...}'
        refuse("tool_choice", f"type {shown(choice.type)} without a function's name is not served; send {allowed}")


def refuse_tool(tool: FunctionTool, where: str) -> None:
    if tool.type not in TOOL_TYPES:
        return  # it is left out with a warning
    if tool.name is None:
        text = f"is missing; it must be {NAME_RULE}, and stands beside type: this API has no function around it"
        raise RequestError(f"{where}.name: {text}.", param="tools")
    if tool.type == "function":
        decode_schema(tool.parameters, f"{where}.parameters")
    for i, inner in enumerate((tool.tools or ()) if tool.type == "namespace" else ()):
        if inner.type != "namespace":
            refuse_tool(inner, f"{where}.tools[{i}]")


def refuse(param: str, text: str) -> NoReturn:
    raise RequestError(f"{param}: {text}.", param=param)
