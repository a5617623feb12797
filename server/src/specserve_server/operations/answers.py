"""The answers of the routes of operators and tools. Their schemas in /openapi.json come from here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from specserve_server.engine_client import Status
from specserve_server.load_progress import Progress


class Health(msgspec.Struct):
    """`progress`: while the engine loads."""

    status: Status
    progress: Progress | UnsetType = UNSET


class Load(msgspec.Struct):
    """Requests that run or wait."""

    server_load: int


class Version(msgspec.Struct):
    version: str


class ModelCard(msgspec.Struct):
    """`root`: the model's own name. `parent`: of an adapter, the model that it changes."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: str | None
    max_model_len: int


class ModelList(msgspec.Struct):
    object: Literal["list"]
    data: list[ModelCard]


class PluginList(msgspec.Struct):
    """`engine`: what was chosen, and the effective configuration."""

    object: Literal["list"]
    data: Sequence[dict[str, Any]]
    engine: Mapping[str, Any]


class PluginPair(msgspec.Struct, frozen=True):
    """`verdict`: as in /v1/plugins, or `unusable` where a declaration is."""

    plugins: tuple[str, str]
    verdict: Literal["compatible", "conflict", "undeclared", "unusable"]
    sentence: str


class PluginPairs(msgspec.Struct):
    """Of all installed plugins, each pair once."""

    object: Literal["list"]
    data: list[PluginPair]


class Tokens(msgspec.Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class TokenText(msgspec.Struct):
    prompt: str


class TokenizerInfo(msgspec.Struct):
    """`chat_template`: null where the model has none."""

    tokenizer_class: str | None
    special_tokens: Mapping[str, str]
    chat_template: str | None


class CacheReset(msgspec.Struct):
    success: bool
