"""A stand-alone draft model: any supported model with the target's vocabulary, and no hidden states of the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve.models.config import read_config
from specserve.models.loader import load_model
from specserve.models.rope import supported_length
from specserve.protocols import DraftLayers
from specserve_eagle.passes import DraftStep

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.config import EngineConfig
    from specserve.models.decoder import DecoderModel
    from specserve.protocols import DraftRuntime, Feed
    from specserve_eagle.passes import Lookahead


class StandaloneModel:
    """`specserve_eagle.passes.DraftModel`."""

    hidden_layers: tuple[int, ...] = ()
    draft_ids: Tensor | None = None

    def __init__(self, model: DecoderModel, layers: DraftLayers) -> None:
        self.model, self.layers = model, layers

    @classmethod
    def load(cls, path: Path, config: EngineConfig, target: DecoderModel, lookahead: Lookahead) -> StandaloneModel:
        model_config = read_config(path)
        if model_config.vocab_size != target.vocab_size:
            raise ModelError(
                f"{path}: a draft model needs the target's vocabulary of {target.vocab_size} tokens; this one has "
                f"{model_config.vocab_size}. Choose a draft model of the same family as {config.model}."
            )
        length = min(target.max_model_len, supported_length(model_config))
        model = load_model(path, kernels=target.kernels, dtype=config.dtype, device=config.device, max_model_len=length)
        for projection in model.projections.values():
            projection.seal(model.kernels.prepare_linear)
        layers = DraftLayers(
            num_heads=model.num_heads,
            num_kv_heads=model.num_kv_heads,
            head_dim=model.head_dim,
            scale=model.scale,
            sliding_windows=model.sliding_windows,
            reads_hidden=False,
            has_trees=lookahead.has_trees,
            max_draft_rows=lookahead.num_rows,
            max_len=length,
        )
        return cls(model, layers)

    def connect(self, runtime: DraftRuntime) -> None:
        self.attention = runtime.attention
        self.passes = runtime.forward_pass(self.model)

    def read_committed(self, feed: Feed) -> DraftStep:
        return self.read_drafted(feed.batch, None)

    def read_drafted(self, batch: Batch, hidden: Tensor | None) -> DraftStep:
        x = self.passes.layers(self.passes.embed(batch), batch, self.attention.plan(batch))
        return DraftStep(self.passes.logits(x, batch), None)
