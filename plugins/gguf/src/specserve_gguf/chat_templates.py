"""Chat templates of a GGUF file: the text as the file has it. Nothing is rendered here: the server does, in its
sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specserve_gguf.text_keys import TextKeys

TEMPLATE = "tokenizer.chat_template"
NAMES = "tokenizer.chat_templates"
MAX_TEMPLATES = 64


def chat_templates(keys: TextKeys) -> dict[str, str]:
    """By name; `default` is the one without a name. Raises ModelError."""
    names = keys.texts(NAMES) or []
    if len(names) > MAX_TEMPLATES:
        raise keys.broken(f"{NAMES} has {len(names)} entries; at most {MAX_TEMPLATES} are read")
    named = {"default": keys.text(TEMPLATE), **{name: keys.text(f"{TEMPLATE}.{name}") for name in names}}
    return {name: text for name, text in named.items() if text is not None}


def as_setting(templates: dict[str, str]) -> list[dict[str, str]]:
    """As tokenizer_config.json has several templates. A name is never one of a file: it comes from outside."""
    return [{"name": name, "template": text} for name, text in templates.items()]
