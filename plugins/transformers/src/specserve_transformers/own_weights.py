"""The modules of a model, put together as the layers of the engine's own decoders.

Knows which parts there are, and not whether they compute what the model computes: `specserve_transformers.own_decoder`
tries that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
import torch
from torch import nn

from specserve.api.models import (
    DecoderLayer,
    DecoderModel,
    DecoderWeights,
    DenseMlp,
    ModelConfig,
    Multipliers,
    RopeConfig,
    RotaryTable,
)
from specserve_transformers.activations import GatedMlp
from specserve_transformers.install import HEAD
from specserve_transformers.linears import PartOfProduct, Product
from specserve_transformers.norms import RowNorm

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from torch import Tensor

    from specserve.api import KernelSet
    from specserve.api.models import Projection
    from specserve_transformers.activations import Gate
    from specserve_transformers.blocks import Block
    from specserve_transformers.install import Installer
    from specserve_transformers.refusals import Geometry
    from specserve_transformers.stages import Stages

M = TypeVar("M", bound=nn.Module)
PLACES: dict[frozenset[str], Literal["before", "after", "around"]] = {
    frozenset({"input_norm", "mlp_norm"}): "before",
    frozenset({"attention_output_norm", "mlp_output_norm"}): "after",
    frozenset({"input_norm", "attention_output_norm", "mlp_norm", "mlp_output_norm"}): "around",
}
"""What the engine calls the places of a layer's norms."""


class OtherLayers(Exception):
    """They have a part that no decoder of the engine has."""


class OwnWeights(NamedTuple):
    """Of one model. `norm`: the last one."""

    config: ModelConfig
    weights: DecoderWeights
    norm: RowNorm

    def decoder(
        self, kernels: KernelSet, embedding_scale: float, rotations: Sequence[RotaryTable | None]
    ) -> DecoderModel:
        """rotations: by layer."""
        config = self.config
        ropes = tuple(None if each is None else rope_of(each, config.head_dim) for each in rotations)
        one = rotations[0] is not None and all(each is rotations[0] for each in rotations)
        nothing = torch.zeros((config.max_position_embeddings, 1, 2), device=self.norm.weight.device)
        first = next((each for each in rotations if each is not None), RotaryTable(nothing, nothing))
        config = msgspec.structs.replace(
            config,
            rope=rope_of(first, config.head_dim),
            layer_ropes=() if one else ropes,
            multipliers=msgspec.structs.replace(config.multipliers, embedding=embedding_scale),
        )
        return DecoderModel(config, kernels, self.weights, first, rotations)


def rope_of(table: RotaryTable, head_dim: int) -> RopeConfig:
    """What of a head is rotated; the angles are in the table alone."""
    return RopeConfig(partial_rotary_factor=table.cos.shape[-1] / head_dim)


def own_weights(stages: Stages, installed: Installer, geometry: Geometry) -> OwnWeights | None:
    """None where a part is none that the engine's own layers have."""
    try:
        return Reader(stages, installed, geometry).read()
    except OtherLayers:
        return None


class Reader:
    """Raises OtherLayers. What all layers must have in common is collected while they are read."""

    def __init__(self, stages: Stages, installed: Installer, geometry: Geometry) -> None:
        self.stages, self.installed, self.geometry = stages, installed, geometry
        self.norms: list[RowNorm] = []
        self.gates: set[Gate] = set()
        self.places: set[frozenset[str]] = set()

    def read(self) -> OwnWeights:
        blocks, embedding = self.installed.blocks, self.stages.embedding
        require(bool(blocks) and isinstance(embedding, nn.Embedding) and self.geometry.v_dim == self.geometry.head_dim)
        assert isinstance(embedding, nn.Embedding)
        layers = tuple(map(self.layer, blocks, self.geometry.sinks))
        norm = self.module(self.stages.last_norm, RowNorm)
        last = self.norm(self.stages.last_norm)
        weights = DecoderWeights(
            embedding.weight.detach(), layers, last, self.installed.projections[HEAD], self.installed.projections
        )
        return OwnWeights(self.config(weights), weights, norm)

    def layer(self, block: Block, sinks: str | None) -> DecoderLayer:
        mlp = self.module(block.mlp, GatedMlp)
        self.gates.add(mlp.gate)
        self.places.add(frozenset(block.norms))
        require(isinstance(mlp.down_proj, Product))
        assert isinstance(mlp.down_proj, Product)
        return DecoderLayer(
            qkv_proj=self.product(block.qkv),
            q_norm=self.norm(block.q_norm),
            k_norm=self.norm(block.k_norm),
            o_proj=self.product((block.o,)),
            mlp=DenseMlp(mlp.gate_up.product.projection, mlp.down_proj.projection, mlp.activate),
            input_norm=self.norm(block.norms.get("input_norm")),
            attention_output_norm=self.norm(block.norms.get("attention_output_norm")),
            mlp_norm=self.norm(block.norms.get("mlp_norm")),
            mlp_output_norm=self.norm(block.norms.get("mlp_output_norm")),
            sinks=None if sinks is None else self.installed.model.get_parameter(sinks).detach().float(),
        )

    def config(self, weights: DecoderWeights) -> ModelConfig:
        geometry, first = self.geometry, weights.layers[0]
        eps = {each.form.eps for each in self.norms}
        places = PLACES.get(next(iter(self.places)))
        norms_of_heads = {None if each.q_norm is None else len(each.q_norm) for each in weights.layers}
        caps = set(geometry.soft_caps)
        uniform = (eps, self.gates, self.places, norms_of_heads, caps)
        require(all(len(each) == 1 for each in uniform) and places is not None)
        assert places is not None
        one_head = norms_of_heads <= {None, geometry.head_dim}
        assert isinstance(first.mlp, DenseMlp)
        return ModelConfig(
            family=self.stages.architecture,
            vocab_size=weights.lm_head.out_features,
            hidden_size=self.stages.hidden_size,
            intermediate_size=first.mlp.down_proj.in_features,
            num_layers=len(weights.layers),
            num_heads=geometry.num_heads,
            num_kv_heads=geometry.num_kv_heads,
            head_dim=geometry.head_dim,
            norm_eps=eps.pop(),
            max_position_embeddings=self.installed.length,
            qkv_bias=first.qkv_proj.bias is not None,
            o_bias=first.o_proj.bias is not None,
            mlp_bias=first.mlp.down_proj.bias is not None,
            qk_norm=first.q_norm is not None,
            qk_norm_of="head" if one_head else "all heads",
            tied=False,
            dtype=str(weights.embedding.dtype).removeprefix("torch."),
            rope=RopeConfig(),
            sliding_windows=geometry.windows,
            norm_places=places,
            wide_norms=any(each.form.wide for each in self.norms),
            activation=next(iter(self.gates)),
            sinks=any(each is not None for each in geometry.sinks),
            multipliers=Multipliers(attention=geometry.scale, score_cap=caps.pop()),
        )

    # --- modules ------------------------------------------------------------------------------------

    def module(self, path: str | None, kind: type[M]) -> M:
        found = None if path is None else self.installed.model.get_submodule(path)
        if not isinstance(found, kind):
            raise OtherLayers
        return found

    def norm(self, path: str | None) -> Tensor | None:
        """Its weight, for a root-mean-square norm."""
        if path is None:
            return None
        found = self.module(path, RowNorm)
        require(not found.form.centred and found.bias is None)
        self.norms.append(found)
        return found.weight.detach()

    def product(self, paths: tuple[str, ...]) -> Projection:
        """All of these maps, in this order."""
        if len(paths) == 1:
            return self.module(paths[0], Product).projection
        parts = [self.module(path, PartOfProduct) for path in paths]
        product = parts[0].shared.product
        require([(each.shared.product, each.index) for each in parts] == [(product, i) for i in range(len(parts))])
        return product.projection


def require(there: bool) -> None:
    if not there:
        raise OtherLayers
