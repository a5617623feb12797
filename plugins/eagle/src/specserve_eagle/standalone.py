"""A stand-alone draft model: any supported model with the target's vocabulary, and no hidden states of the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import DraftLayers, ModelError
from specserve.api.models import DraftHead, supported_length
from specserve.models.loader import ModelLoader
from specserve.models.read_config import read_config
from specserve_eagle.checkpoints.stored import formats_for
from specserve_eagle.draft_model import DraftModel
from specserve_eagle.draft_weights import finalize

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.api import EngineConfig
    from specserve.api.models import ServedModel
    from specserve_eagle.draft_model import Lookahead
    from specserve_eagle.options import DraftWeights


def load_standalone(
    path: Path, config: EngineConfig, target: ServedModel, lookahead: Lookahead, weights: DraftWeights
) -> DraftModel:
    """Raises ModelError for another vocabulary."""
    model_config = read_config(path)
    if model_config.vocab_size != target.vocab_size:
        raise ModelError(
            f"{path}: a draft model needs the target's vocabulary of {target.vocab_size} tokens; this one has "
            f"{model_config.vocab_size}. Choose a draft model of the same family as {config.model}."
        )
    if model_config.recurrent:
        raise ModelError(
            f"{path}: a draft model must have no recurrent layers, and family {model_config.family} has some. Choose "
            "another draft model."
        )
    if model_config.is_varied:
        raise ModelError(
            f"{path}: a draft model must have a plain decoder, and that of family {model_config.family} "
            "(VariedDecoder) is none. Choose another draft model, or draft with n-gram."
        )
    length = min(target.max_model_len, supported_length(model_config))
    loader = ModelLoader(formats=formats_for(path, model_config.quantization))
    model = loader.load_decoder(
        path, kernels=target.kernels, dtype=config.dtype, device=config.device, max_model_len=length
    )
    for projection in model.projections.values():
        finalize(projection, model.kernels, weights, path)
    layers = DraftLayers(
        num_heads=model.num_heads,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        scale=model.scale,
        sliding_windows=model.sliding_windows,
        soft_caps=model.soft_caps,
        sinks=model.sinks,
        token_widths=model.token_widths,
        reads_hidden=False,
        has_trees=lookahead.has_trees,
        max_draft_rows=lookahead.num_rows,
        max_len=length,
    )
    return DraftModel(DraftHead(decoder=model, vocabulary=None, from_target=None), layers, ())
