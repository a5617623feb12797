"""Prompts of files: ShareGPT's JSON, or JSONL with an object a line. Owns what is read of them and their errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.errors import ConfigError
from specserve_bench.prompts.prompt import Message, Prompt

if TYPE_CHECKING:
    from pathlib import Path


class Turn(msgspec.Struct, frozen=True):
    sender: str = msgspec.field(name="from")
    value: str = ""


class Conversation(msgspec.Struct, frozen=True):
    conversations: list[Turn] = []


class Line(msgspec.Struct, frozen=True):
    """One of `prompt` and `messages`. Other fields are left out."""

    prompt: str | None = None
    messages: list[Message] | None = None
    max_tokens: int | None = None
    kind: str | None = None


def read_prompts(path: Path) -> list[Prompt]:
    """ConfigError names the file, and the line where it has lines."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"bench: --prompts {path} is not readable: {error.strerror}.") from None
    prompts = share_gpt(path, content) if content.lstrip()[:1] == b"[" else json_lines(path, content)
    if not prompts:
        raise ConfigError(f"bench: --prompts {path} holds no prompt.")
    return prompts


def share_gpt(path: Path, content: bytes) -> list[Prompt]:
    """The first turn of each conversation that a human began and that was answered."""
    try:
        found = msgspec.json.decode(content, type=list[Conversation])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"bench: --prompts {path} begins with [ and is no ShareGPT file: {error}. It is a list of objects with "
            '"conversations": [{"from": "human", "value": "..."}, ...].'
        ) from None
    begun = (each.conversations for each in found if len(each.conversations) > 1)
    return [Prompt(kind="sharegpt", text=turns[0].value) for turns in begun if turns[0].sender in ("human", "user")]


def json_lines(path: Path, content: bytes) -> list[Prompt]:
    lines = enumerate(content.splitlines(), 1)
    return [parse_line(f"{path}:{number}", line, path.stem) for number, line in lines if line.strip()]


def parse_line(where: str, content: bytes, kind: str) -> Prompt:
    try:
        line = msgspec.json.decode(content, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f'bench: --prompts {where}: {error}. A line is an object such as {{"prompt": "..."}}.'
        ) from None
    if (line.prompt is None) == (line.messages is None):
        raise ConfigError(f"bench: --prompts {where} must have one of prompt and messages.")
    return Prompt(
        kind=line.kind or kind,
        text=line.prompt,
        messages=None if line.messages is None else tuple(line.messages),
        max_tokens=line.max_tokens,
    )
