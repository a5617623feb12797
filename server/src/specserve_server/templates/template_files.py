"""The chat template of a model, in the files and forms that model directories have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve_checks.type_words import shown
from specserve_server.templates.chat_template import SPECIAL_TOKENS, ChatTemplate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NEWLINE = "\n"
CORRECT = "Correct the file or download it again."


def find_chat_template(path: Path, settings: Mapping[str, object], given: Path | None = None) -> ChatTemplate | None:
    """The given file, else those of the directory, else `chat_template` of tokenizer_config.json: a string or a list of
    named ones. Of named ones `tool_use` is for messages with tools, `default` for all others."""
    named = {"default": read_source(given)} if given is not None else templates_of(path) or templates_in(settings)
    if "default" not in named:
        return None
    source = combined(named["default"], named["tool_use"]) if "tool_use" in named else named["default"]
    return ChatTemplate(source, special_tokens(settings))


def templates_of(path: Path) -> dict[str, str]:
    """By name, of the files of a model directory."""
    files = {file.stem: file for file in sorted((path / "additional_chat_templates").glob("*.jinja"))}
    if (path / "chat_template.jinja").is_file():
        files["default"] = path / "chat_template.jinja"
    return {name: read_source(file) for name, file in files.items()}


def templates_in(settings: Mapping[str, object]) -> dict[str, str]:
    """By name, of tokenizer_config.json."""
    given = settings.get("chat_template")
    if given is None:
        return {}
    entries = given if isinstance(given, list) else [{"name": "default", "template": given}]
    pairs = [(entry.get("name"), entry.get("template")) for entry in entries if isinstance(entry, dict)]
    named = {name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)}
    if len(named) < len(entries):
        allowed = "a text, a list of {name, template} with names of their own, or null"
        raise ModelError(f"tokenizer_config.json: chat_template must be {allowed}; got {shown(given)}. {CORRECT}")
    return named


def read_source(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{file} is not readable: {getattr(error, 'strerror', None) or error}.") from error


def combined(default: str, tool_use: str) -> str:
    """One template that renders either, exactly as it would alone: `+` keeps the line breaks and blanks at their ends,
    and jinja2 drops the last line break of a template."""
    return (
        f"{{% if tools +%}}{tool_use.removesuffix(NEWLINE)}{{%+ else +%}}{default.removesuffix(NEWLINE)}{{%+ endif %}}"
    )


def special_tokens(settings: Mapping[str, object]) -> dict[str, str]:
    """The special tokens of tokenizer_config.json, by name."""
    contents = {name: token_content(name, settings.get(name)) for name in SPECIAL_TOKENS}
    return {name: content for name, content in contents.items() if content is not None}


def token_content(name: str, token: object) -> str | None:
    """A special token is written as a string or as an object with `content`. Raises ModelError."""
    content = token.get("content") if isinstance(token, dict) else token
    if content is None or isinstance(content, str):
        return content
    allowed = "a text, an object with its content, or null"
    raise ModelError(f"tokenizer_config.json: {name} must be {allowed}; got {shown(token)}. {CORRECT}")
