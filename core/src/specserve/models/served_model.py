"""What the engine, drafters and plugins need of any model, whoever computes its layers.

`specserve.models.decoder.DecoderModel` is the engine's own. A model of another library extends this class and makes its
forward passes itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.part import WHOLE_MODEL, ModelPart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from torch import Tensor

    from specserve.kv.head_shape import HeadShape
    from specserve.models.projection import Projection
    from specserve.models.target_norm import TargetNorm
    from specserve.protocols import (
        AdaptableProjection,
        AdapterWeights,
        AttentionBackend,
        ForwardPass,
        KernelSet,
        LayerStates,
        RecurrentMixer,
    )


class ServedModel:
    """Inference only; the caller holds torch.inference_mode."""

    kernels: KernelSet
    family: str
    """One of the engine's; of a model that another library computes, the architecture in its config.json."""
    num_layers: int
    vocab_size: int
    hidden_size: int
    """Of the hidden states between layers."""
    num_heads: int
    """Query heads of every layer."""
    num_kv_heads: int
    head_dim: int
    scale: float
    """What attention multiplies scores by."""
    sliding_windows: tuple[int | None, ...]
    """Per layer with attention: how many keys a query sees, itself included; None for all."""
    soft_caps: tuple[float | None, ...] = ()
    sinks: tuple[Tensor | None, ...] = ()
    """Per layer with attention, or empty where no layer has any: see `specserve.protocols.AttentionSpec`."""
    head_shapes: tuple[HeadShape, ...] = ()
    """Per layer with keys and values: the sizes of those; empty where all have `num_kv_heads` of `head_dim`."""
    token_widths: tuple[int, ...] = ()
    """Per layer without attention: how many numbers of the model's dtype it keeps of each token."""
    reach: int | None = None
    """How many tokens before a row those layers read; None where there are none."""
    token_states: Sequence[Tensor] = ()
    """For each of those, [slots, width]: where the KV cache has them. The engine sets it before passes are made."""
    recurrent: Sequence[RecurrentMixer] = ()
    layer_states: Sequence[LayerStates] = ()
    """For each of its recurrent layers; the engine sets the latter before passes are made."""
    max_model_len: int
    dtype: torch.dtype
    device: torch.device
    projections: Mapping[str, AdaptableProjection]
    """Linear maps that plugins may adapt, and `lm_head`, which they leave. The engine has the kernel set pack all of
    them after `adapt_model`."""
    part: ModelPart = WHOLE_MODEL
    tables: Sequence[Projection] = ()
    """Vectors of tokens that files have quantised and that nothing is multiplied by: packed when they are read."""

    def forward_pass(self, attention: AttentionBackend) -> ForwardPass:
        """A pass of its own over these keys and values, called once all projections are packed, and again for another
        backend and for graphs. The engine makes the passes of its own decoders. Raises ModelError."""
        raise NotImplementedError(f"{type(self).__name__} makes no passes")

    def output_norm(self) -> TargetNorm:
        """What stands between the last layer and the output head, for drafters that read what is behind it. Raises
        ModelError where that is something else."""
        raise NotImplementedError(f"{type(self).__name__} gives no norm")

    def whole_embedding(self) -> Tensor:
        """[V, H], for drafters."""
        raise NotImplementedError(f"{type(self).__name__} gives no embedding")

    def whole_head(self) -> Projection:
        """The output head, packed, for drafters."""
        raise NotImplementedError(f"{type(self).__name__} gives no head")

    def pack_adapter(self, weights: AdapterWeights) -> object:
        """weights: of the whole model. What `Segment.adapter` is for its rows, until `free_adapter`."""
        return self.part.pack_adapter(self.kernels, weights)

    def free_adapter(self, packed: object) -> None:
        self.part.free_adapter(packed)
