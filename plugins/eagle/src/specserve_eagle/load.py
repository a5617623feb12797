"""Loads what `eagle.model` names: a head of any known format, or a stand-alone model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ConfigError, ModelError
from specserve.api.files import locate_model, read_json
from specserve.api.models import DecoderModel
from specserve_eagle.assistant.drafter import AssistantDrafter
from specserve_eagle.assistant.load import load_assistant
from specserve_eagle.block.drafter import BlockDrafter
from specserve_eagle.block.load import load_block_head
from specserve_eagle.block.tree_drafter import BlockTreeDrafter
from specserve_eagle.card import AcceptanceWatch, read_card
from specserve_eagle.checkpoints.config import read_head_config
from specserve_eagle.checkpoints.detect import kind_of, why_no_mtp
from specserve_eagle.checkpoints.stored import open_stored
from specserve_eagle.draft_model import Lookahead
from specserve_eagle.drafter import EagleDrafter
from specserve_eagle.load_head import load_head
from specserve_eagle.options import AUTO
from specserve_eagle.parallel import ParallelDrafter
from specserve_eagle.standalone import load_standalone

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.api import Drafter, EngineConfig
    from specserve.api.models import ServedModel
    from specserve_eagle.draft_model_drafter import WatchedDrafter
    from specserve_eagle.options import EagleOptions


def load_drafter(config: EngineConfig, options: EagleOptions, target: ServedModel) -> Drafter:
    """Everything that can be wrong is found here, before the KV cache is sized."""
    if options.model is None:
        raise ConfigError(
            "eagle.model is not set: which draft head or draft model? Pass --set eagle.model=PATH, a directory with "
            "config.json and safetensors."
        )
    path = locate_model(options.model)
    drafter, card = drafter_at(path, config, options, target), read_card(path)
    if card is not None:
        drafter.watch = AcceptanceWatch(card, drafter.name, options.model)
    return drafter


def drafter_at(path: Path, config: EngineConfig, options: EagleOptions, target: ServedModel) -> WatchedDrafter:
    lookahead = Lookahead(options.max_rows, options.topk > 1)
    kind = kind_of(path)
    options.check_size(kind)
    if kind == "standalone":
        if path == locate_model(config.model):
            expect_no_mtp(path)
        return EagleDrafter(load_standalone(path, config, target, lookahead, options.weights), options)
    if kind == "assistant":
        if not isinstance(target, DecoderModel):
            raise ConfigError(
                f"eagle.model: {options.model} is an assistant, which reads its target's embedding, final norm, and "
                f"keys and values; {config.model} is served by a library that keeps them to itself. Use a stand-alone "
                "draft model, or n-gram drafts."
            )
        return AssistantDrafter(load_assistant(path, target, options.weights), target, options)
    if kind == "block":
        model = load_block_head(path, target, options.weights)
        return BlockDrafter(model, options.max_nodes) if options.topk == 1 else BlockTreeDrafter(model, options)
    head = read_head_config(path, target)
    if head.masks is None:
        return EagleDrafter(load_head(path, head, target, lookahead, options.weights), options)
    refuse_trees(options)
    parallel = load_head(path, head, target, lookahead, options.weights)
    steps = parallel.tokens_per_pass if options.steps == AUTO else options.steps
    return ParallelDrafter(parallel, min(steps, options.max_nodes))


def refuse_trees(options: EagleOptions) -> None:
    if options.topk > 1:
        raise ConfigError(
            f"eagle.topk = {options.topk}: {options.model} is a P-EAGLE head, which drafts chains. Leave topk out."
        )


def expect_no_mtp(path: Path) -> None:
    """ModelError where the target would be its own stand-alone draft model, and has or promises an MTP block."""
    raw = read_json(path / "config.json")
    if reason := why_no_mtp(raw, frozenset(open_stored(path, raw.get("quantization_config")).tensors)):
        raise ModelError(f"eagle.model: {path} is the target itself, which has no MTP block that is known.{reason}")
