"""The form of calls follows from what a chat template writes for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from specserve.text.tokenizer import HfTokenizer
from specserve_server.templates.model_template import read_model_template
from specserve_server.tools.formats import FORMATS, form_of

if TYPE_CHECKING:
    from pathlib import Path

    from specserve_server.templates.model_template import ModelTemplate

LISTED = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
TURNS = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}%s{% endfor %}{% endfor %}"
)
NAME, DUMPED = "{{ c.function.name }}", "{{ c.function.arguments | tojson }}"
WRITTEN: tuple[tuple[str, str | None], ...] = (
    ('\n<tool_call>\n{"name": "%n", "arguments": %a}\n</tool_call>', "hermes"),
    ("<tool_call>{{ c.function | tojson }}</tool_call>", "hermes"),
    ('[TOOL_CALLS] [{"name": "%n", "arguments": %a, "id": "{{ c.id }}"}]', "mistral"),
    ("[TOOL_CALLS]%n[ARGS]%a", "mistral-v11"),
    ("[TOOL_CALLS]%n[CALL_ID]{{ c.id }}[ARGS]%a", "mistral-v11"),
    ("[TOOL_CALLS]%n%a", "mistral-v11"),
    ("<|call_begin|>{{ c.id }}<|call_argument_begin|>%a<|call_end|>", None),
    ('<|python_tag|>{"name": "%n", "parameters": %a}', "llama3"),
    ('{"name": "%n", "parameters": %a}', "llama3"),
    ("<tool_call>\n<function=%n>\n</function>\n</tool_call>", "qwen3-coder"),
    ("<|tool_call|>[{{ c.function | tojson }}]", "granite"),
    ("<|tool_call|>{{ c.function | tojson }}<|/tool_call|>", "phi4-mini"),
    ("<function_calls>%n(a=1)</function_calls>", "olmo3"),
    ("<start_function_call>call:%n{a:1}<end_function_call>", "functiongemma"),
    ("<|tool_call>call:%n{a:1}<tool_call|>", "gemma4"),
    ("<|start|>assistant to=functions.%n<|channel|>commentary json<|message|>%a<|call|>", "harmony"),
    ("<tool_call>[{{ c.function | tojson }}]</tool_call>", "hermes"),
    ("{# [TOOL_CALLS] #}<|call|>%n %a", None),
    ('{# [TOOL_CALLS] #}<tool_call>{"name": "%n", "arguments": %a}</tool_call>', "hermes"),
    ("{% if c.function.arguments is not string %}{{ raise_exception('text') }}{% endif %}[TOOL_CALLS]%n[ARGS]{{ "
     "c.function.arguments }}", "mistral-v11"),
    ("{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}[TOOL_CALLS]%n[ARGS]%a", "mistral-v11"),
)  # fmt: skip


def tokenizer_of(path: Path, template: str) -> HfTokenizer:
    from tiny_tokenizer import write_model_dir

    write_model_dir(path, template)
    return HfTokenizer.from_dir(path)


def template_of(path: Path, template: str) -> ModelTemplate:
    return read_model_template(tokenizer_of(path, template).path)


@pytest.mark.parametrize(("written", "name"), WRITTEN)
def test_the_form_is_that_of_a_call_that_the_template_writes(tmp_path: Path, written: str, name: str | None) -> None:
    template = LISTED + TURNS.replace("%s", written.replace("%n", NAME).replace("%a", DUMPED))
    found = form_of(template_of(tmp_path, template))
    assert found.form is (FORMATS[name] if name else None)
    assert ("called_tool" in found.written or "callid123" in found.written) == (name is None)


DESCRIBED = (
    ("{{ messages }}", None, False),
    ("{% set tools = 1 %}{{ messages }}", None, False),
    ("{% if tools %}{{ messages }}{% endif %}", None, False),
    ("<tool_call>" + LISTED, "hermes", True),
    ("[TOOL_CALLS]" + LISTED, "mistral", True),
    ("[TOOL_CALLS]name[ARGS]" + LISTED, "mistral-v11", True),
    ("<|python_tag|>" + LISTED, "llama3", True),
    ("<tool_call><function=" + LISTED, "qwen3-coder", True),
    ("<|tool_call|>" + LISTED, "granite", True),
    ("<|tool_call|><|/tool_call|>" + LISTED, "phi4-mini", True),
    ("<function_calls>" + LISTED, "olmo3", True),
    (LISTED, None, True),
)


@pytest.mark.parametrize(("template", "name", "lists_tools"), DESCRIBED)
def test_of_a_template_that_writes_no_calls_its_instructions_tell(
    tmp_path: Path, template: str, name: str | None, lists_tools: bool
) -> None:
    form = FORMATS[name] if name else None
    found = form_of(template_of(tmp_path, template))
    assert (found.form, found.written, found.lists_tools) == (form, "", lists_tools)


@pytest.mark.parametrize(
    ("turns", "says"),
    [
        (TURNS.replace("%s", "<|call|>" + NAME), 'writes calls in a form that is not served, "<|call|>called_tool"'),
        ("", "lists them and does not show how calls are written"),
    ],
)
async def test_tools_of_a_template_in_an_unknown_form_are_refused_by_name(
    connect: Any, tmp_path: Path, turns: str, says: str
) -> None:
    from fake_engine import FakeEngine

    client = await connect(FakeEngine(tokenizer_of(tmp_path, LISTED + turns)))
    tool = {"type": "function", "function": {"name": "f"}}
    body = {"messages": [{"role": "user", "content": "a"}], "tools": [tool]}
    for path in ("/v1/chat/completions", "/tokenize"):
        response = await client.post(path, json=body)
        error = (await response.json())["error"]
        assert (response.status, error["param"]) == (400, "tools")
        assert says in error["message"]
        assert "--tool-form" in error["message"]
