"""Fields within fields of a body that no Struct has, for a server with `--strict-fields`.

Walks the body beside its type. What plugins, templates or tools read (schemas, arguments, template variables, metadata)
may have any names, and is not walked: its type is `Raw` or a plain dict.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import inspect

from specserve.errors import RequestError
from specserve.server.messages import bodies as messages
from specserve.server.request_bodies import ContentPart, Message, StreamOptions
from specserve.server.responses import bodies as responses
from specserve.server.tools.bodies import Tool, ToolCall
from specserve.type_words import LISTS, members

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_DEPTH = 32
CACHED = ("cache_control",)
"""Every prefix is cached."""
OF_TOOLS = (*CACHED, "defer_loading", "allowed_callers", "input_examples", "eager_input_streaming")
IGNORED: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    StreamOptions: ("include_obfuscation",),
    Message: ("annotations", "reasoning_details", *CACHED),
    ContentPart: ("annotations", "logprobs", *CACHED),
    Tool: OF_TOOLS,
    ToolCall: ("index", *CACHED),
    messages.Block: ("citations", "signature", "data", "title", "context", "caller", *CACHED),
    messages.ClientTool: OF_TOOLS,
    messages.Thinking: ("budget_tokens", "display"),
    messages.OutputConfig: ("task_budget",),
    responses.InputItem: ("status", "phase", "encrypted_content", "created_by"),
    responses.InputPart: ("annotations", "logprobs", "prompt_cache_breakpoint"),
    responses.FunctionTool: OF_TOOLS,
    responses.Reasoning: ("summary", "generate_summary", "context"),
}
"""What the APIs define and what changes no answer here: clients send back what they were answered."""
HOSTED = frozenset({responses.FunctionTool, messages.ClientTool})
"""Tools of other types than these Structs describe are left out of the prompt or refused with their type."""
OWN_TYPES = frozenset({"function", "custom", "namespace", "null"})


class UnknownField(NamedTuple):
    path: str
    """`messages[0].content[1].txet`."""
    name: str
    known: frozenset[str]


def unknown_fields(data: bytes, body_type: type[msgspec.Struct]) -> Iterator[UnknownField]:
    """Of all fields that the Struct has. `data` was decoded as a `body_type` before."""
    kinds = field_kinds(described(body_type))
    for name, value in msgspec.json.decode(data, type=dict[str, msgspec.Raw]).items():
        if name in kinds:
            yield from walk(bytes(value), kinds[name], name)


def walk(data: bytes, kind: inspect.Type, path: str, depth: int = 0) -> Iterator[UnknownField]:
    """Each level is decoded anew, so that their number is bounded."""
    if depth > MAX_DEPTH:
        field = path.partition("[")[0].partition(".")[0]
        raise RequestError(
            f"{field}: it nests too deeply; at most {MAX_DEPTH} levels with --strict-fields.", param=field
        )
    begins = data.lstrip()[:1]
    for member in members(kind):
        if begins == b"{" and isinstance(member, inspect.StructType):
            yield from walk_struct(data, member, path, depth)
        elif begins == b"[" and isinstance(member, LISTS):
            for i, item in enumerate(msgspec.json.decode(data, type=list[msgspec.Raw])):
                yield from walk(bytes(item), member.item_type, f"{path}[{i}]", depth + 1)


def walk_struct(data: bytes, kind: inspect.StructType, path: str, depth: int) -> Iterator[UnknownField]:
    values = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    if kind.cls in HOSTED and bytes(values.get("type", msgspec.Raw(b"null"))).decode().strip('"') not in OWN_TYPES:
        return
    kinds = field_kinds(kind)
    known = frozenset(kinds) | frozenset(IGNORED.get(kind.cls, ()))
    for name, value in values.items():
        if name not in known:
            yield UnknownField(f"{path}.{name}", name, known)
        elif name in kinds:
            yield from walk(bytes(value), kinds[name], f"{path}.{name}", depth + 1)


def field_kinds(kind: inspect.StructType) -> dict[str, inspect.Type]:
    return {field.encode_name: field.type for field in kind.fields}


@cache
def described(body_type: type[msgspec.Struct]) -> inspect.StructType:
    found = inspect.type_info(body_type)
    assert isinstance(found, inspect.StructType)
    return found
