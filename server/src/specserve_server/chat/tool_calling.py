"""What a chat request's tools mean for its prompt, its text and its response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specserve.errors import RequestError
from specserve_checks.type_words import shown
from specserve_server.bodies.tools import ToolChoice
from specserve_server.chat.tool_response import ToolFormatter
from specserve_server.generation.structured_output import structured_output
from specserve_server.tools.borrowing import BORROWED
from specserve_server.tools.formats import FORMATS, template_form
from specserve_server.tools.reading import CallReading
from specserve_server.tools.schemas import decode_schema
from specserve_server.tools.structure import call_structure, must_call, offered_tools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.types import StructuredOutput
    from specserve_server.bodies.requests import ChatBody
    from specserve_server.bodies.tools import Tool
    from specserve_server.chat.response import ChatFormatter
    from specserve_server.engine_client import EngineClient
    from specserve_server.generation.prepared_request import ResponseFormatter
    from specserve_server.templates.model_template import ModelTemplate
    from specserve_server.tools.form import ToolForm
    from specserve_server.tools.formats import TemplateForm


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalling:
    """`reading`: None where the request calls no tools."""

    tools: Sequence[Tool] = ()
    """For the prompt."""
    structure: StructuredOutput | None = None
    reading: CallReading | None = None
    is_named: bool = False
    shows_special_tokens: bool = False
    """The model marks its calls with special tokens."""
    stop_token_ids: tuple[int, ...] = ()
    """With which the model ends a text with calls."""

    def formatter(self, chat: ChatFormatter) -> ResponseFormatter:
        if self.reading is None:
            return chat
        return ToolFormatter(chat.tokenizer, chat.body, self.reading, self.is_named)


def tool_calling(engine: EngineClient, body: ChatBody) -> ToolCalling:
    """Raises RequestError for tools that cannot be served."""
    tools, structure = offered_tools(body), structured_output(body)
    if not tools:
        return ToolCalling(structure=structure)
    if structure is not None and structure.kind == "structural_tag":
        raise RequestError(
            f"{structure.param}: no structural_tag beside tools, which are one; leave one of them out.",
            param=structure.param,
        )
    form = usable_form(engine.template)
    if structure is not None or must_call(body) or "structural_tag" in engine.output_kinds:
        structure = call_structure(body, tools, form, structure)
    reading = CallReading(
        form=form,
        names={
            tool.function.name: decode_schema(tool.function.parameters, f"tools[{i}].function.parameters")
            for i, tool in enumerate(body.tools or ())
            if tool in tools
        },
        most_calls=1 if body.parallel_tool_calls is False else None,
        is_all=must_call(body),
    )
    return ToolCalling(
        tools=body.tools or (),
        structure=structure,
        reading=reading,
        is_named=isinstance(body.tool_choice, ToolChoice),
        shows_special_tokens=any(map(engine.tokenizer.is_special, form.marks)),
        stop_token_ids=tuple(
            token
            for text in filter(engine.tokenizer.is_special, form.stops)
            for token in engine.tokenizer.encode(text, add_special_tokens=False)
        ),
    )


def usable_form(template: ModelTemplate) -> ToolForm:
    """Raises RequestError where the template has no place for tools, or writes calls in an unknown way."""
    if template in BORROWED:
        return BORROWED[template]
    found = template_form(template)
    if found.form is not None:
        return found.form
    raise RequestError(f"tools: the chat template of this model {without_form(found)}.", param="tools")


def without_form(found: TemplateForm) -> str:
    option = f"start the server with --tool-form and one of {', '.join(FORMATS)}"
    if found.written:
        return f"writes calls in a form that is not served, {shown(found.written)}; {option} to use another"
    if found.lists_tools:
        return f"lists them and does not show how calls are written; {option}, in which the model writes calls"
    return (
        f"has no place for them; use a model that was trained to call tools, or {option}: "
        "the model borrows that form then"
    )
