"""The fields of bodies that ask for a form of the text: OpenAI's `response_format` and vLLM's `structured_outputs`.

Schemas stay JSON text: a plugin reads them. An empty one was not sent: msgspec allows no `Raw | None`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from specserve_server.limits import MAX_CHOICES

Choices = Annotated[list[str], Meta(min_length=1, max_length=MAX_CHOICES)]


class JsonSchemaFormat(msgspec.Struct, frozen=True, kw_only=True):
    """`strict` changes nothing: a schema is always kept."""

    name: str | None = None
    description: str | None = None
    schema: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True, kw_only=True):
    """`structures` and `triggers` belong to the type structural_tag."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"] | None = None
    json_schema: JsonSchemaFormat | None = None
    structures: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    triggers: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class StructuredOutputs(msgspec.Struct, frozen=True, kw_only=True):
    """vLLM's field: one of the first six, and how JSON is written."""

    json: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    json_object: bool | None = None
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None
    structural_tag: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    whitespace_pattern: str | None = None
