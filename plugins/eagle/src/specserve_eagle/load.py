"""Loads what `eagle.model` names: a head of any known format, or a stand-alone model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ConfigError, ModelError
from specserve.api.files import locate_model, read_json
from specserve.api.models import DecoderModel
from specserve_eagle.checkpoints.detect import kind_of, why_no_block
from specserve_eagle.checkpoints.stored import open_stored
from specserve_eagle.load_head import load_head
from specserve_eagle.standalone import load_standalone

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.api import EngineConfig
    from specserve.api.models import ServedModel
    from specserve_eagle.draft_model import DraftModel, Lookahead
    from specserve_eagle.options import EagleOptions


def load_draft_model(
    config: EngineConfig, options: EagleOptions, target: ServedModel, lookahead: Lookahead
) -> DraftModel:
    """Everything that can be wrong is found here, before the KV cache is sized."""
    if options.model is None:
        raise ConfigError(
            "eagle.model is not set: which draft head or draft model? Pass --set eagle.model=PATH, a directory with "
            "config.json and safetensors."
        )
    path = locate_model(options.model)
    if kind_of(path) == "standalone":
        if path == locate_model(config.model):
            expect_no_block(path)
        return load_standalone(path, config, target, lookahead)
    if not isinstance(target, DecoderModel):
        raise ConfigError(
            f"eagle.model: {options.model} is a draft head, which shares norms and rotation with its target; "
            f"{config.model} is served by a library that keeps them to itself. Use a stand-alone draft model, or "
            "n-gram drafts."
        )
    return load_head(path, target, lookahead)


def expect_no_block(path: Path) -> None:
    """ModelError where the target would be its own stand-alone draft model, and has or promises an MTP block."""
    raw = read_json(path / "config.json")
    if reason := why_no_block(raw, frozenset(open_stored(path, raw.get("quantization_config")).tensors)):
        raise ModelError(f"eagle.model: {path} is the target itself, which has no MTP block that is known.{reason}")
