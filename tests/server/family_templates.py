"""Chat templates in the forms of several families, each as short as what is tested of it allows, with tokenizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiny_tokenizer import write_model_dir
from tokenizers import AddedToken, Tokenizer

from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from pathlib import Path

HARMONY = """\
{%- set effort = reasoning_effort | default("medium") -%}
<|start|>system<|message|>{{ model_identity | default("You are a test.") }}
Current date: {{ strftime_now("%Y-%m-%d") }}
Reasoning: {{ effort }}{% if builtin_tools %} {{ builtin_tools | join(",") }}{% endif %}<|end|>
{%- if tools %}<|start|>developer<|message|>namespace functions {
{%- for tool in tools %} type {{ tool.function.name }}{% endfor %} }<|end|>{% endif %}
{%- set last = namespace(name=none) %}
{%- for message in messages %}
{%- if message.role == "assistant" and message.tool_calls %}
{%- set call = message.tool_calls[0].function %}
{%- if message.content and message.thinking %}{{ raise_exception("content and thinking") }}{% endif %}
{%- for text in [message.content, message.thinking] if text -%}
<|start|>assistant<|channel|>analysis<|message|>{{ text }}<|end|>
{%- endfor %}<|start|>assistant to=functions.{{ call.name }}<|channel|>commentary json<|message|>
{{- call.arguments | tojson }}<|call|>{% set last.name = call.name %}
{%- elif message.role == "assistant" %}<|start|>assistant<|channel|>final<|message|>{{ message.content }}<|end|>
{%- elif message.role == "tool" %}
{%- if last.name is none %}{{ raise_exception("no call") }}{% endif -%}
<|start|>functions.{{ last.name }} to=assistant<|channel|>commentary<|message|>{{ message.content }}<|end|>
{%- else %}<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""

GRANITE = """\
{%- if tools %}<|start_of_role|>system<|end_of_role|>{{ strftime_now("%B %d, %Y") }}. Call by <|tool_call|> and a list.
{%- if thinking %} Your thoughts are between <think></think>, your answer between <response></response>.{% endif -%}
<|end_of_text|>
<|start_of_role|>tools<|end_of_role|>{{ tools | tojson(indent=4) }}<|end_of_text|>
{% elif thinking %}<|start_of_role|>system<|end_of_role|>think in <think></think>, answer in <response></response>
{% endif %}
{%- for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}<|end_of_text|>
{% endfor %}
{%- if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"""

SMOLLM3 = """\
{%- set mode = "/think" if enable_thinking | default(true) else "/no_think" -%}
<|im_start|>system
Today: {{ strftime_now("%d %B %Y") }}. Mode: {{ mode }}
{%- if xml_tools or python_tools or tools %}
{%- set listed = namespace(value="") %}
{%- for tool in tools[:] %}{% set listed.value = listed.value ~ (tool | string) %}{% endfor %}
<tools>{{ listed.value }}</tools> Calls are <tool_call>{"name": <name>, "arguments": <object>}</tool_call>.
{%- endif %}<|im_end|>
{% for m in messages %}
{%- if m.role == "assistant" %}<|im_start|>assistant
{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}
{% elif m.role == "tool" %}<|im_start|>user
{{ m.content }}<|im_end|>
{% else %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if mode == "/no_think" %}<think>

</think>
{% endif %}{% endif %}"""

PHI4_MINI = """\
{% for m in messages %}{% if m['role'] == 'system' and 'tools' in m and m['tools'] is not none -%}
{{ '<|' + m['role'] + '|>' + m['content'] + '<|tool|>' + m['tools'] + '<|/tool|>' + '<|end|>' }}
{%- else %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"""

OLMO3 = """\
{%- if tools %}<|im_start|>system
<functions>{{ tools | tojson }}</functions><|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ 'environment' if m.role == 'tool' else m.role }}
{{ m.get('content', none) or '' }}{% if m.get('tool_calls', none) is not none %}<function_calls>
{%- for call in m.tool_calls %}{% set ns = namespace(written=[]) %}
{%- for key, value in call.function.arguments.items() %}
{%- set ns.written = ns.written + [key ~ '=' ~ (value | tojson)] %}{% endfor %}
{{- call.function.name + '(' + ns.written | join(', ') + ')' }}{% if not loop.last %}{{ '\\n' }}{% endif %}
{%- endfor %}</function_calls>{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
<think>{% endif %}"""

QWEN3_CODER = """\
{%- macro item(value) %}{{ value | string if value is string else value | tojson | safe }}{% endmacro %}
{%- if tools %}<tools>{% for t in tools %}<name>{{ t.function.name }}</name>{% endfor %}</tools>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls or [] %}{% set call = call.function %}
<tool_call>
<function={{ call.name }}>
{% for key, value in call.arguments | items %}<parameter={{ key }}>
{{ item(value) }}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

GEMMA4 = """\
{%- macro argument(value) %}
{%- if value is string %}{{ '<|"|>' + value + '<|"|>' }}
{%- elif value is boolean %}{{ 'true' if value else 'false' }}
{%- elif value is mapping %}{{ '{' }}{% for k, v in value | dictsort %}{{ k }}:{{ argument(v) }}
{%- if not loop.last %},{% endif %}{% endfor %}{{ '}' }}
{%- elif value is sequence %}[{% for v in value %}{{ argument(v) }}{% if not loop.last %},{% endif %}{% endfor %}]
{%- else %}{{ value }}{% endif %}{% endmacro %}
{{- bos_token }}{% if enable_thinking | default(false) or tools %}<|turn>system
{% if enable_thinking | default(false) %}<|think|>{% endif %}
{%- for t in tools or [] %}<|tool>declaration:{{ t.function.name }}<tool|>{% endfor %}<turn|>
{% endif %}
{%- for m in messages %}<|turn>{{ 'model' if m.role == 'assistant' else m.role }}
{% for call in m.tool_calls or [] %}<|tool_call>call:{{ call.function.name }}{{ argument(call.function.arguments) }}
{{- '<tool_call|>' }}{% endfor %}{{ m.content }}<turn|>
{% endfor %}
{%- if add_generation_prompt %}<|turn>model
{% if not enable_thinking | default(false) %}{{ '<|channel>thought\\n<channel|>' }}{% endif %}{% endif %}"""

SPECIAL = {
    "harmony": ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|call|>", "<|return|>"),
    "gemma4": ("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>", "<|tool_response>"),
    "granite": ("<|tool_call|>",),
    "phi4-mini": ("<|tool_call|>", "<|/tool_call|>"),
}
"""Special tokens of each family, beside `<|end|>`."""


def tokenizer_of(path: Path, template: str, family: str = "") -> HfTokenizer:
    write_model_dir(path, template)
    file = str(path / "tokenizer.json")
    tokenizer = Tokenizer.from_file(file)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL.get(family, ())])
    tokenizer.save(file)
    return HfTokenizer.from_dir(path)
