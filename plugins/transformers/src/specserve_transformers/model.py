"""A model of transformers as the engine sees one, and its forward pass."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from specserve.api import ForwardPass, ModelError
from specserve.api.models import NO_TAPS, BatchRows, ServedModel
from specserve_transformers.install import HEAD
from specserve_transformers.self_test import Tested, check_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from specserve.api import AttentionBackend
    from specserve.api.batch import Batch
    from specserve.api.models import LoadRequest, Projection
    from specserve_transformers.install import Installer
    from specserve_transformers.refusals import Geometry
    from specserve_transformers.stages import Stages


class TransformersModel(ServedModel):
    """`stages`: the calls that a pass is made of."""

    def __init__(self, stages: Stages, installed: Installer, geometry: Geometry, request: LoadRequest) -> None:
        self.stages, self.step, self.private = stages, installed.step, installed.private
        self.products = installed.products
        self.kernels, self.dtype, self.device = request.kernels, request.dtype, request.device
        self.num_layers = len(geometry.paths)
        self.num_heads, self.num_kv_heads, self.head_dim = geometry.num_heads, geometry.num_kv_heads, geometry.head_dim
        self.scale, self.sliding_windows = geometry.scale, geometry.windows
        self.soft_caps = geometry.soft_caps
        self.sinks = tuple(
            None if path is None else stages.model.get_parameter(path).detach().float() for path in geometry.sinks
        )
        self.hidden_size, self.max_model_len = stages.hidden_size, installed.length
        self.projections: Mapping[str, Projection] = installed.projections
        self.vocab_size = self.projections[HEAD].out_features
        self.checked = False

    @property
    def tested(self) -> Tested:
        return Tested(self.stages, self.step, self.num_heads, self.vocab_size, self.max_model_len, self.device)

    def forward_pass(self, attention: AttentionBackend) -> TransformersPass:
        if not self.checked:
            for projection in self.private:
                projection.finalize(self.kernels)
            for product in self.products:
                product.finish()
            check_rows(self.tested)
            self.checked = True
        return TransformersPass(self, attention)

    def whole_embedding(self) -> Tensor:
        embedding = self.stages.embedding
        if type(embedding) is not nn.Embedding:
            raise ModelError(
                f"{self.stages.architecture}: draft heads need the target's embedding, and {type(embedding).__name__} "
                "of transformers changes it. Use a stand-alone draft model, or n-gram drafts."
            )
        return embedding.weight.detach()

    def whole_head(self) -> Projection:
        head: Projection = self.projections[HEAD]
        return head


class TransformersPass(ForwardPass):
    """One pass after the other: the model's modules know the step that is computed."""

    def __init__(self, model: TransformersModel, attention: AttentionBackend) -> None:
        self.model, self.attention, self.stages = model, attention, model.stages

    def embed(self, batch: Batch) -> Tensor:
        out: Tensor = self.stages.embedding(batch.input_ids)
        return out

    def layers(
        self, x: Tensor, batch: Batch, plan: Any, taps: Mapping[int, Tensor] = NO_TAPS, aux: Tensor | None = None
    ) -> Tensor:
        step = self.model.step
        step.attend = partial(attend_by, self.attention, plan)
        step.at = BatchRows(slice(0, batch.num_rows), batch.lora)
        step.taps = taps
        if taps:
            self.stages.watch_taps(taps, step)
        return self.stages.layers(batch.input_ids, batch.positions)

    def logits(self, x: Tensor, batch: Batch) -> Tensor:
        if batch.num_scored == 0:
            return x.new_empty((0, self.model.vocab_size), dtype=torch.float32)
        rows = x[: batch.num_rows]
        scored = rows if batch.scored_rows is None else rows.index_select(0, batch.scored_rows)
        return self.stages.logits(scored).float()


def attend_by(attention: AttentionBackend, plan: Any, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attention.forward(layer, q, k, v, plan)
