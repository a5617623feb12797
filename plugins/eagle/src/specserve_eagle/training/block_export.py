"""config.json of trained block heads: DFlash in z-lab's layout, DSpark in DeepSeek's, whose architectures other engines
know."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specserve.api.files import RawJson
    from specserve.api.models import ModelConfig
    from specserve_eagle.training.block_heads import BlockHeadModule


def block_config(module: BlockHeadModule, target: ModelConfig) -> RawJson:
    """The head's own keys, beside those of its layers. Layer n of the file is the one whose output is hidden state
    n + 1."""
    shape = module.shape
    layers, mask = [layer - 1 for layer in shape.reads], int(module.mask_token)
    common = {
        "model_type": "qwen3",
        "num_hidden_layers": shape.num_layers,
        "num_target_layers": target.num_layers,
        "block_size": shape.block_size,
    }
    if module.kind == "dflash":
        nested = {"mask_token_id": mask, "target_layer_ids": layers}
        return common | {"architectures": ["DFlashDraftModel"], "dflash_config": nested}
    reduced = {} if module.draft_ids is None else {"draft_vocab_size": len(module.draft_ids)}
    own = {
        "architectures": ["Qwen3DSparkModel"],
        "mask_token_id": mask,
        "target_layer_ids": layers,
        "sample_from_anchor": shape.proposes_from_first,
        "markov_rank": shape.markov_rank,
        "markov_head_type": shape.markov_kind,
        "enable_confidence_head": shape.confidence != "nothing",
        "confidence_head_with_markov": shape.confidence == "hidden and token",
    }
    return common | own | reduced
