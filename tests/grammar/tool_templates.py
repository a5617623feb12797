"""Chat templates that write tools and calls in each form, and one without a place for tools."""

from __future__ import annotations

# That of harmony does not show that it reasons: thoughts of a toy model rarely end.
TEMPLATES = {
    "hermes": "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}",
    "mistral": "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[TOOL_CALLS][{{ c.function | tojson }}]{% endfor %}{% endfor %}",
    "mistral-v11": "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}"
    "{% endfor %}{% endfor %}",
    "llama3": "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}"
    '{% for c in m.tool_calls or [] %}{"name": "{{ c.function.name }}", "parameters": {}}{% endfor %}{% endfor %}',
    **{
        name: "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}" + call + "{% endfor %}{% endfor %}"
        for name, call in (
            ("granite", "<|tool_call|>[{{ c.function | tojson }}]"),
            ("phi4-mini", "<|tool_call|>[{{ c.function | tojson }}]<|/tool_call|>"),
            ("qwen3-coder", "<tool_call>\n<function={{ c.function.name }}>\n</function>\n</tool_call>"),
            ("olmo3", "<function_calls>{{ c.function.name }}()</function_calls>"),
            ("tool-code", "```tool_code\n{{ c.function.name }}()\n```"),
            ("functiongemma", "<start_function_call>call:{{ c.function.name }}{ {{- '}' }}<end_function_call>"),
            ("gemma4", "<|tool_call>call:{{ c.function.name }}{ {{- '}' }}<tool_call|>"),
            (
                "harmony",
                "<|start|>assistant to=functions.{{ c.function.name }}{{ '<|channel' }}|>commentary json<|message|>{}"
                "<|call|>",
            ),
        )
    },
    "none": "{% for m in messages %}{{ m.content }}{% endfor %}",
}
