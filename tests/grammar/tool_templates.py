"""Chat templates that write tools and calls in each form, and one without a place for tools."""

from __future__ import annotations

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
    "none": "{% for m in messages %}{{ m.content }}{% endfor %}",
}
