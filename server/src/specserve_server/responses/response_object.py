"""The response object without its output: what the request asked for, and what was chosen for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import UNSET

from specserve_server.bodies.responses import TOOL_TYPES
from specserve_server.chat.template_variables import DEFAULT_VERBOSITY
from specserve_server.generation.prepared_request import SERVICE_TIER
from specserve_server.generation.structured_output import is_null
from specserve_server.generation.usage import usage
from specserve_server.responses import answer
from specserve_server.responses.tools import warnings_of

if TYPE_CHECKING:
    from specserve_checks.json_types import JsonObject, JsonValue
    from specserve_server.bodies.responses import FunctionTool, ResponsesBody
    from specserve_server.generation.choices import Choice


def new_response(id: str, body: ResponsesBody, model: str, choice: Choice) -> answer.Response:
    params = choice.request.params
    return answer.Response(
        id=id,
        object="response",
        created_at=int(time.time()),
        completed_at=None,
        status="in_progress",
        background=False,
        error=None,
        incomplete_details=None,
        model=model,
        service_tier=SERVICE_TIER,
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        reasoning=answer.AnswerReasoning(body.reasoning.effort if body.reasoning else None, None),
        store=body.store is not False,
        temperature=params.temperature,
        text=answer.AnswerText(format_of(body), verbosity_of(body)),
        tool_choice=body.tool_choice or "auto",
        tools=[tool_of(tool) for tool in body.tools or () if tool.type in TOOL_TYPES],
        top_p=params.top_p,
        truncation=body.truncation or "disabled",
        user=body.user,
        usage=None,
        warnings=warnings_of(body) or UNSET,
        output=[],
    )


def format_of(body: ResponsesBody) -> JsonObject:
    given = body.text.format if body.text else None
    if given is None or given.type != "json_schema":
        return {"type": "text" if given is None or given.type is None else given.type}
    named: JsonObject = {"name": given.name, "description": given.description, "schema": given.schema}
    return {"type": "json_schema", **named, "strict": bool(given.strict)}


def verbosity_of(body: ResponsesBody) -> str:
    return (body.text.verbosity if body.text else None) or DEFAULT_VERBOSITY


def tool_of(tool: FunctionTool) -> JsonObject:
    if tool.type == "namespace":
        inner: list[JsonValue] = [tool_of(each) for each in tool.tools or () if each.type in TOOL_TYPES[:2]]
        return {"type": tool.type, "name": tool.name, "description": tool.description, "tools": inner}
    if tool.type == "custom":
        form: JsonValue = {"type": "text"} if is_null(tool.format) else tool.format
        return {"type": tool.type, "name": tool.name, "description": tool.description, "format": form}
    parameters: JsonValue = None if is_null(tool.parameters) else tool.parameters
    described: JsonObject = {"description": tool.description, "parameters": parameters, "strict": bool(tool.strict)}
    return {"type": "function", "name": tool.name, **described}


def response_usage(choice: Choice) -> answer.ResponseUsage:
    counts = usage([choice], 1)
    return answer.ResponseUsage(
        counts.prompt_tokens,
        answer.InputTokensDetails(choice.cached_tokens, cache_write_tokens=0),
        counts.completion_tokens,
        answer.OutputTokensDetails(choice.reasoning_tokens),
        counts.total_tokens,
    )
