"""An engine with the chat template of its model: what the routes of the server are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

if TYPE_CHECKING:
    from specserve_checks.json_types import JsonValue
    from specserve_server.engine_client import LoadedEngine, ServedEngine
    from specserve_server.templates.model_template import ModelTemplate


def templated(engine: LoadedEngine, template: ModelTemplate) -> ServedEngine:
    return cast("ServedEngine", TemplatedEngine(engine, template))


class TemplatedEngine:
    """All but `template` and `describe` is the engine's own."""

    def __init__(self, engine: LoadedEngine, template: ModelTemplate) -> None:
        self._engine, self.template = engine, template

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def describe(self) -> dict[str, JsonValue]:
        """The configuration with the file of the template, which shapes prompts as its tokenizer does."""
        described = dict(self._engine.describe())
        if isinstance(config := described.get("config"), msgspec.Struct):
            described["config"] = with_template_file(config, self.template.file)
        return described


def with_template_file(config: msgspec.Struct, file: str | None) -> dict[str, JsonValue]:
    """Beside the tokenizer."""
    fields: dict[str, JsonValue] = {}
    for name, value in msgspec.structs.asdict(config).items():
        fields[name] = value
        if name == "tokenizer":
            fields["chat_template"] = file
    return fields
