"""The forms in which models write tool calls, and which of them a chat template writes.

The template says so itself: it is given a call, and what it writes is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from specserve.errors import RequestError
from specserve_server.tools.gemma import FUNCTION_GEMMA, GEMMA4
from specserve_server.tools.granite import GRANITE
from specserve_server.tools.harmony import HARMONY
from specserve_server.tools.hermes import HERMES
from specserve_server.tools.llama3 import LLAMA3
from specserve_server.tools.mistral import MISTRAL, MISTRAL_V11
from specserve_server.tools.phi4 import PHI4_MINI
from specserve_server.tools.pythonic import OLMO3, TOOL_CODE
from specserve_server.tools.qwen3_coder import QWEN3_CODER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve_server.templates.model_template import ModelTemplate
    from specserve_server.tools.form import ToolForm

FORMATS: dict[str, ToolForm] = {
    each.name: each
    for each in (
        *(HERMES, MISTRAL, MISTRAL_V11, LLAMA3, GRANITE, PHI4_MINI, QWEN3_CODER, OLMO3, TOOL_CODE, FUNCTION_GEMMA),
        *(GEMMA4, HARMONY),
    )
}
DESCRIBED: tuple[tuple[str, ToolForm], ...] = (
    ("[ARGS]", MISTRAL_V11),
    (MISTRAL.trigger, MISTRAL),
    ("<function=", QWEN3_CODER),
    ("<|/tool_call|>", PHI4_MINI),
    ("<|/tool|>", PHI4_MINI),
    (GRANITE.trigger, GRANITE),
    (OLMO3.trigger, OLMO3),
    (FUNCTION_GEMMA.trigger, FUNCTION_GEMMA),
    (GEMMA4.trigger, GEMMA4),
    (HARMONY.trigger, HARMONY),
    (HERMES.trigger, HERMES),
    ("python_tag", LLAMA3),
)
"""What tells the form of a template that writes no calls: the first that stands in it."""
OFFERED, CALLED, ANSWER = "offered_tool", "called_tool", "\N{BLACK STAR}answer"
TOOL = {
    "type": "function",
    "function": {"name": OFFERED, "description": "d", "parameters": {"type": "object", "properties": {}}},
}
QUESTION = {"role": "user", "content": "question"}
CALL_ID = "callid123"
"""Nine characters: Mistral's templates want them."""


class TemplateForm(NamedTuple):
    """`form`: None where a template has no place for tools, writes calls in another way, or shows none."""

    form: ToolForm | None
    written: str = ""
    """A call in another way."""
    lists_tools: bool = True
    writes_calls: bool = True
    """Else earlier calls are written into messages as text."""
    in_system: bool = False
    """It takes tools in a system message."""


KNOWN: WeakKeyDictionary[ModelTemplate, TemplateForm] = WeakKeyDictionary()
"""A template is asked once."""


def template_form(template: ModelTemplate) -> TemplateForm:
    found = KNOWN.get(template)
    if found is None:
        found = KNOWN[template] = form_of(template)
    return found


def form_of(template: ModelTemplate) -> TemplateForm:
    if "tools" not in template.source:
        return TemplateForm(None, lists_tools=False)
    listed = rendered(template, [QUESTION])
    if listed is not None and OFFERED not in listed:
        form, system = described_form(template.source), {"role": "system", "content": "", "tools": OFFERED}
        if form is not None and OFFERED in (rendered(template, [system, QUESTION]) or ""):
            return TemplateForm(form, writes_calls=False, in_system=True)
        return TemplateForm(None, lists_tools=False)
    written = written_call(template)
    if not written:
        form = described_form(listed or "") or described_form(template.source)
        return TemplateForm(form, writes_calls=False)
    form = next((form for form in FORMATS.values() if form.is_in(written, CALLED)), None)
    return TemplateForm(form, "" if form else written)


def written_call(template: ModelTemplate) -> str:
    """What the template writes for a call; "" where it writes none, or takes no message with one."""
    answer: dict[str, object] = {"role": "assistant", "content": ANSWER}
    plain = rendered(template, [QUESTION, answer])
    for arguments in ({"a": 1}, '{"a": 1}'):
        function = {"name": CALLED, "arguments": arguments}
        call = {"id": CALL_ID, "type": "function", "function": function}
        text = rendered(template, [QUESTION, {"role": "assistant", "content": "", "tool_calls": [call]}])
        if text is not None and (CALLED in text or CALL_ID in text):  # an id may hold the name, as Kimi's do
            return text.removeprefix((plain or "").partition(ANSWER)[0])
    return ""


def rendered(template: ModelTemplate, messages: Sequence[Mapping[str, object]]) -> str | None:
    """None where the template refuses the messages."""
    try:
        return template.render(messages, tools=[TOOL], add_generation_prompt=False)
    except RequestError:
        return None


def described_form(text: str) -> ToolForm | None:
    """Of a template that lists tools and writes no calls: what it tells the model, or says in its source."""
    return next((form for mark, form in DESCRIBED if mark in text), None)
