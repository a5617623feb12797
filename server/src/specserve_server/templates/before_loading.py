"""A chat template that cannot be used is refused at once: before torch is imported and before a model is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.locate import locate_on_disk, locate_tokenizer
from specserve_server.templates.model_template import read_model_template

if TYPE_CHECKING:
    from specserve.config import EngineConfig


def check_template(engine: EngineConfig, file: str | None) -> None:
    """`file`: ServerConfig.chat_template. The template of a model that has to be downloaded is read when it is there.
    Raises ModelError."""
    read_model_template(locate_on_disk(engine.model) if engine.tokenizer is None else locate_tokenizer(engine), file)
