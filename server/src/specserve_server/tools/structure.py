"""The form of a text that calls tools, as a structural tag: which calls may come, and whether one must.

Where the model chooses, free text comes before and between calls; arguments of a tool that is strict follow its
schema, others are a JSON object. Where a call must come, all follow theirs. Where answers have a form, the text is
either calls or such an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.errors import RequestError
from specserve.types import StructuredOutput
from specserve_checks.type_words import shown
from specserve_server.bodies.tools import ToolChoice

MAX_SHOWN_NAMES = 8

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.bodies.requests import ChatBody
    from specserve_server.bodies.tools import Tool
    from specserve_server.tools.form import ToolForm


def offered_tools(body: ChatBody) -> Sequence[Tool]:
    """Those that the model may call. Raises RequestError for a choice of none of them."""
    tools = body.tools or []
    names = [tool.function.name for tool in tools]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise RequestError(f"tools: two have the same name, {shown(twice)}; rename one of them.", param="tools")
    choice = body.tool_choice
    if isinstance(choice, ToolChoice):
        wanted = choice.function.name
        if wanted not in names:
            offered = f"tools has {', '.join(map(shown, names[:MAX_SHOWN_NAMES]))}" if names else "there are no tools"
            text = f"no tool is called {shown(wanted)}; {offered}"
            raise RequestError(f"tool_choice: {text}.", param="tool_choice")
        return [tool for tool in tools if tool.function.name == wanted]
    if choice == "required" and not tools:
        text = "a call is required, which needs tools; send tools, or leave out tool_choice"
        raise RequestError(f"tool_choice: {text}.", param="tool_choice")
    return [] if choice == "none" else tools


def must_call(body: ChatBody) -> bool:
    return isinstance(body.tool_choice, ToolChoice) or body.tool_choice == "required"


def call_structure(
    body: ChatBody, tools: Sequence[Tool], form: ToolForm, answer: StructuredOutput | None
) -> StructuredOutput:
    """`answer`: the form of a text that calls no tool; None where it is free."""
    required = must_call(body)
    structures = [structure_of(tool, form, bound=required or bool(tool.function.strict)) for tool in tools]
    one = isinstance(body.tool_choice, ToolChoice) or body.parallel_tool_calls is False or form.takes_one
    tag: dict[str, object] = {
        "structures": structures,
        "triggers": [form.trigger or '{"name": '],
        "separator": form.separator,
        "at_least_one": required,
        "stop_after_first": one,
    }
    param = "tool_choice" if required else "tools"
    wanted = StructuredOutput(kind="structural_tag", param=param)
    if answer is not None and not required:
        tag["answer"] = {"kind": answer.kind, "text": answer.text}
        wanted = msgspec.structs.replace(answer, kind="structural_tag")
    return msgspec.structs.replace(wanted, text=msgspec.json.encode(tag).decode())


def structure_of(tool: Tool, form: ToolForm, *, bound: bool) -> dict[str, object]:
    parameters = tool.function.parameters
    schema = parameters if bound and bytes(parameters) not in (b"", b"null") else {"type": "object"}
    end = "" if form.end in form.stops else form.end  # the end of the whole text
    style = {} if form.style == "json" else {"style": form.style}
    return {"begin": form.begin(tool.function.name), "schema": schema, "end": end, **style}
