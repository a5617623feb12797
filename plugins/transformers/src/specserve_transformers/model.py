"""A model of transformers as the engine sees one, and its forward pass."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from specserve.api import ForwardPass, ModelError
from specserve.api.models import NO_TAPS, BatchRows, ServedModel, TargetNorm, forward_pass
from specserve_transformers.install import HEAD
from specserve_transformers.norms import RowNorm
from specserve_transformers.own_decoder import own_decoder
from specserve_transformers.self_test import Tested, check_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from specserve.api import AttentionBackend
    from specserve.api.batch import Batch
    from specserve.api.models import DecoderModel, LoadRequest, Projection
    from specserve_transformers.install import Installer
    from specserve_transformers.refusals import Geometry
    from specserve_transformers.stages import Stages


class TransformersModel(ServedModel):
    """`stages`: the calls that a pass is made of."""

    def __init__(self, stages: Stages, installed: Installer, geometry: Geometry, request: LoadRequest) -> None:
        self.stages, self.step, self.private = stages, installed.step, installed.private
        self.products = installed.products
        self.kernels, self.dtype, self.device = request.kernels, request.dtype, request.device
        self.family = stages.architecture
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
        self.installed, self.geometry = installed, geometry
        self.checked = False
        self.decoder: DecoderModel | None = None
        """The engine's own, where it has the model's numbers."""

    @property
    def tested(self) -> Tested:
        return Tested(self.stages, self.step, self.num_heads, self.vocab_size, self.max_model_len, self.device)

    def forward_pass(self, attention: AttentionBackend) -> ForwardPass:
        if not self.checked:
            for projection in self.private:
                projection.finalize(self.kernels)
            for product in self.products:
                product.finish()
            check_rows(self.tested)
            self.decoder = own_decoder(self.stages, self.installed, self.geometry, self.kernels)
            self.checked = True
        if self.decoder is None:
            return TransformersPass(self, attention)
        return OwnPass(self.stages, forward_pass(self.decoder, self.kernels, attention))

    def output_norm(self) -> TargetNorm:
        path = self.stages.last_norm
        norm = None if path is None else self.stages.model.get_submodule(path)
        if not isinstance(norm, RowNorm) or norm.form.centred:
            raise ModelError(
                f"{self.stages.architecture}: what transformers computes behind the last layer is no root-mean-square "
                "norm, and this draft head reads what is behind it. Use a head that reads outputs of layers (EAGLE-3, "
                "DFlash, DSpark), a stand-alone draft model, or n-gram drafts."
            )
        return TargetNorm(norm.weight.detach(), norm.form.eps)

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


class OwnPass(ForwardPass):
    """The engine's own pass over the layers. What the class does to hidden states afterwards is its own, unless that is
    the output head alone."""

    def __init__(self, stages: Stages, layers: ForwardPass) -> None:
        self.stages, self.own = stages, layers

    def reserve(self, rows: int) -> None:
        self.own.reserve(rows)

    def embed(self, batch: Batch) -> Tensor:
        return self.own.embed(batch)

    def layers(
        self, x: Tensor, batch: Batch, plan: Any, taps: Mapping[int, Tensor] = NO_TAPS, aux: Tensor | None = None
    ) -> Tensor:
        return self.own.layers(x, batch, plan, taps, aux)

    def logits(self, x: Tensor, batch: Batch) -> Tensor:
        if self.stages.plain_head or batch.num_scored == 0:
            return self.own.logits(x, batch)
        return self.stages.logits(self.stages.normed(scored(x, batch))).float()


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
        return self.stages.logits(scored(x, batch)).float()


def scored(x: Tensor, batch: Batch) -> Tensor:
    """The rows whose logits are wanted."""
    rows = x[: batch.num_rows]
    return rows if batch.scored_rows is None else rows.index_select(0, batch.scored_rows)


def attend_by(attention: AttentionBackend, plan: Any, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attention.forward(layer, q, k, v, plan)
