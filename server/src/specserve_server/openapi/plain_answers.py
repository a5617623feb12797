"""The answers of the routes that generate nothing."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType


class Progress(msgspec.Struct):
    """`done` and `total`: of the stage, where something of it can be counted. `seconds`: since the start."""

    stage: str
    seconds: float
    done: int | UnsetType = UNSET
    total: int | UnsetType = UNSET
    unit: Literal["bytes", "items"] | UnsetType = UNSET


class Health(msgspec.Struct):
    """`progress`: while the engine loads."""

    status: Literal["loading", "ready", "draining", "dead"]
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
    data: list[dict[str, Raw]]
    engine: dict[str, Raw]


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
    special_tokens: dict[str, str]
    chat_template: str | None


class CacheReset(msgspec.Struct):
    success: bool
