"""Reads a checkpoint's tensors in the model's order, and makes its layers of them.

Owns the fusion of the checkpoint's tensors into one projection per matrix product; knows nothing of config.json, nor
which format the files have.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.models.decoder import DecoderLayer, DecoderWeights
from specserve.models.mlp import DenseMlp, MixtureOfExperts, MlpBesideExperts, NormsOfBoth, SharedExpert, activation_of
from specserve.models.part import WHOLE_MODEL, ModelPart
from specserve.models.projection import Projection, Router, WideRouter
from specserve.models.quantised import DeferredWeight, dense, placed, stacked
from specserve.models.tensor_names import (
    BLOCKS,
    BOTH_NORMS,
    CHOICE_BIAS,
    EXPERT_SCALES,
    GIVEN_GATE,
    GIVEN_NORM,
    GIVEN_OUTPUT,
    LAYER_SCALE,
    MLP_NORM,
    NORMS,
    ROUTER_SCALE,
    SHARED_EXPERT,
    SHARED_GATE,
    TOKEN_NORM,
    TOKEN_PROJECTION,
    TOKEN_TABLE,
    expected_shapes,
    rows_of,
)
from specserve.models.token_inputs import GivenInput, InputsOfTokens
from specserve.protocols.part import StoredAs, WholeMap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from specserve.models.checkpoint import Checkpoint
    from specserve.models.config import ModelConfig
    from specserve.models.mixer import MixerConfig
    from specserve.models.mlp import Mlp
    from specserve.protocols import KernelSet
    from specserve.protocols.part import LinearMaps
    from specserve.protocols.quantised import QuantisedWeight


class Place(NamedTuple):
    """Where weights are, and as what."""

    device: torch.device
    dtype: torch.dtype


class WeightReader:
    """Reads tensors in the model's order and puts the parts of a projection into one weight. config: of the whole
    model."""

    def __init__(
        self,
        config: ModelConfig,
        kernels: KernelSet,
        checkpoint: Checkpoint,
        place: Place,
        part: ModelPart,
        stored_as: Mapping[str, StoredAs],
    ) -> None:
        self.config = config
        self.stored_as = stored_as
        self.kernels = kernels
        self.checkpoint = checkpoint
        self.device, self.dtype = place
        self.part = part
        self.whole_shapes = expected_shapes(config)
        parts = {name: part.tensor(name, shape) for name, shape in self.whole_shapes.items()}
        self.parts = {name: own for name, own in parts.items() if own is not None}
        self.shapes = {name: own.shape_of(self.whole_shapes[name]) for name, own in self.parts.items()}
        self.projections: dict[str, Projection] = {}
        self.tables: list[Projection] = []

    def read(self) -> DecoderWeights:
        config = self.config
        read = self.linear_weight(("model.embed_tokens",))
        layers = tuple(self.layer(index) for index in range(config.num_layers))
        head = read if config.tied else self.linear_weight(("lm_head",))
        whole = WholeMap(config.hidden_size, {"lm_head": slice(0, config.vocab_size)}, self.part.combine("lm_head"))
        lm_head = Projection("lm_head", head, None, self.kernels.linear, whole=whole)
        self.projections["lm_head"] = lm_head
        embedding = self.embedding(read, lm_head)
        final_norm = self.norm("model.norm")
        of_tokens = None if config.token_inputs is None else self.inputs_of_tokens()
        read_whole = None if self.part is WHOLE_MODEL else self.whole
        return DecoderWeights(
            embedding, layers, final_norm, lm_head, self.projections, self.part, of_tokens, read_whole, self.tables
        )

    def embedding(self, weight: Tensor | DeferredWeight, lm_head: Projection) -> Tensor | Projection:
        """The tokens' vectors; those of a quantised weight are kept once where the head has them, too."""
        if self.config.tied and isinstance(weight, DeferredWeight):
            lm_head.serve_rows()
            return lm_head
        return self.table("embed_tokens", weight)

    def table(self, name: str, weight: Tensor | DeferredWeight) -> Tensor | Projection:
        """Vectors that nothing is multiplied by; those of a quantised weight are kept packed."""
        if not isinstance(weight, DeferredWeight):
            return weight
        table = Projection(name, weight, None, self.kernels.linear)
        table.serve_rows()
        table.finalize(self.kernels)
        self.tables.append(table)
        return table

    def whole(self, name: str) -> Tensor:
        """All of a tensor, whatever the part of this process."""
        return dense(self.checkpoint.rows(name)).to(self.device, self.dtype)

    def layer(self, index: int) -> DecoderLayer:
        prefix, qk_norm = f"model.layers.{index}", self.config.qk_norm
        experts = self.config.experts
        beside = experts is not None and experts.beside_mlp and experts.layers[index]
        norms = {
            ours: self.norm(f"{prefix}.{theirs}")
            for ours, theirs in NORMS[self.config.norm_places].items()
            if not (beside and theirs == MLP_NORM)  # which the MLP itself has then
        }
        mixer = self.config.mixer(index)
        if mixer is not None:
            return self.mixing_layer(index, mixer, norms)
        own = self.config.attention(index)
        parts = ("q_proj", "k_proj", "v_proj")[: 1 if own.reads is not None else 3 if own.projects_values else 2]
        return DecoderLayer(
            input_norm=norms.get("input_norm"),
            qkv_proj=self.projection(index, "qkv_proj", "self_attn", parts),
            q_norm=self.norm(f"{prefix}.self_attn.q_norm") if qk_norm else None,
            k_norm=self.norm(f"{prefix}.self_attn.k_norm") if qk_norm and own.reads is None else None,
            o_proj=self.projection(index, "o_proj", "self_attn", ("o_proj",)),
            attention_output_norm=norms.get("attention_output_norm"),
            mlp_norm=norms.get("mlp_norm"),
            mlp_output_norm=norms.get("mlp_output_norm"),
            mlp=self.mlp(index),
            sinks=self.wide(f"{prefix}.self_attn.sinks") if self.config.sinks else None,
            gate_proj=self.projection(index, "g_proj", "self_attn", ("g_proj",)) if self.config.num_gates else None,
            given=None if self.config.token_inputs is None else self.given_input(index),
            scale=self.joined((f"{prefix}.{LAYER_SCALE}",)) if self.config.layer_scales else None,
        )

    def inputs_of_tokens(self) -> InputsOfTokens:
        name = TOKEN_PROJECTION.rpartition(".")[2]
        weight, rows = self.linear_weight((TOKEN_PROJECTION,)), rows_of((TOKEN_PROJECTION,), self.whole_shapes)
        whole = WholeMap(self.config.hidden_size, rows, stored={name: StoredAs(TOKEN_PROJECTION)})
        projection = self.projections[name] = Projection(name, weight, None, self.kernels.linear, whole=whole)
        table = self.table("embed_tokens_per_layer", self.linear_weight((TOKEN_TABLE,)))
        norm = self.norm(TOKEN_NORM)
        scale = torch.tensor(math.sqrt(len(norm)), dtype=self.dtype, device=self.device)
        return InputsOfTokens(table, projection, norm, self.config.norm_eps, scale)

    def given_input(self, index: int) -> GivenInput:
        gate, output = (self.projection(index, name, "", (name,)) for name in (GIVEN_GATE, GIVEN_OUTPUT))
        return GivenInput(gate, output, self.norm(f"model.layers.{index}.{GIVEN_NORM}"))

    def mixing_layer(self, index: int, mixer: MixerConfig, norms: Mapping[str, Tensor]) -> DecoderLayer:
        hidden = self.config.hidden_size
        tensors = {name: self.wide(f"model.layers.{index}.{name}") for name in mixer.tensors(hidden)}
        made = mixer.make(tensors)
        return DecoderLayer(
            input_norm=norms.get("input_norm"),
            qkv_proj=self.map_of(index, mixer.input_maps(hidden)),
            q_norm=None,
            k_norm=None,
            o_proj=self.map_of(index, mixer.output_map(hidden)),
            attention_output_norm=norms.get("attention_output_norm"),
            mlp_norm=norms.get("mlp_norm"),
            mlp_output_norm=norms.get("mlp_output_norm"),
            mlp=self.mlp(index),
            mixer=self.kernels.prepare_mixer(made) or made,
        )

    def map_of(self, index: int, maps: LinearMaps) -> Projection:
        """Linear maps of one block of a layer as one, named after the first."""
        block, _, name = next(iter(maps)).rpartition(".")
        return self.projection(index, name, block, tuple(path.rpartition(".")[2] for path in maps))

    def mlp(self, index: int) -> Mlp:
        experts = self.config.experts
        if experts is None or not experts.layers[index]:
            return self.dense_mlp(index)
        kind = WideRouter if experts.wide_logits else Router
        router = self.projection(index, "router", "mlp", ("gate",), kind)
        made = tuple(self.dense_mlp(index, f"experts.{expert}") for expert in range(experts.count))
        bias = self.wide(f"model.layers.{index}.{CHOICE_BIAS}") if experts.choice_bias else None
        shared = None
        if experts.shared_size is not None:
            gate = self.projection(index, SHARED_GATE, "mlp", (SHARED_GATE,), Router) if experts.shared_gate else None
            shared = SharedExpert(self.dense_mlp(index, SHARED_EXPERT), gate, self.kernels)
        combine = self.part.combine(f"layers.{index}.experts")
        prefix = f"model.layers.{index}"
        scales = self.wide(f"{prefix}.{EXPERT_SCALES}") if experts.expert_scales else None
        mixture = MixtureOfExperts(experts, router, made, self.kernels, combine, bias, shared, scales)
        if not experts.beside_mlp:
            return mixture
        ones = torch.ones(self.config.hidden_size, dtype=torch.float32, device=self.device)
        before, behind, of_input, of_output = (self.norm(f"{prefix}.{name}") for name in (MLP_NORM, *BOTH_NORMS))
        norms = NormsOfBoth(before, behind, of_input, of_output, ones, self.config.norm_eps)
        router_scale = self.joined((f"{prefix}.{ROUTER_SCALE}",))
        return MlpBesideExperts(self.dense_mlp(index), mixture, norms, router_scale, self.kernels)

    def dense_mlp(self, index: int, expert: str = "") -> DenseMlp:
        """Of the layer, or of one of its experts."""
        name, block = (f"{expert}.", f"mlp.{expert}") if expert else ("", "mlp")
        gate_up = self.projection(index, f"{name}gate_up_proj", block, ("gate_proj", "up_proj"))
        down = self.projection(index, f"{name}down_proj", block, ("down_proj",))
        return DenseMlp(gate_up, down, activation_of(self.kernels, self.config))

    def norm(self, path: str) -> Tensor:
        """Its weight, with what the family adds to it; in float32 where it is multiplied so."""
        name = f"{path}.weight"
        if not self.config.wide_norms:
            return self.joined((name,))
        return self.wide(name) + self.config.norm_offset

    def wide(self, name: str) -> Tensor:
        """One tensor as the file has it, in float32."""
        return dense(self.checkpoint.take(name, self.parts[name])).to(self.device, torch.float32)

    def projection(
        self, index: int, name: str, block: str, parts: tuple[str, ...], kind: type[Projection] = Projection
    ) -> Projection:
        """block: of the layer, where the maps stand in one."""
        within = f"model.layers.{index}.{block}".rstrip(".")
        paths = [f"{within}.{part}" for part in parts]
        weight = self.wide(f"{paths[0]}.weight") if kind is WideRouter else self.linear_weight(paths)
        biased = f"{paths[0]}.bias" in self.shapes
        bias = self.joined(tuple(f"{path}.bias" for path in paths)) if biased else None
        full = f"layers.{index}.{name}"
        inputs = self.whole_shapes[f"{paths[0]}.weight"][1]
        unlike_llama = block.partition(".")[0] not in BLOCKS
        named = {path: self.stored_at(path) or (StoredAs(path) if unlike_llama else None) for path in paths}
        stored = {path.rpartition(".")[2]: part for path, part in named.items() if part is not None}
        whole = WholeMap(inputs, rows_of(paths, self.whole_shapes), self.part.combine(full), stored)
        own = rows_of(paths, self.shapes)
        self.projections[full] = kind(full, weight, bias, self.kernels.linear, own, whole)
        return self.projections[full]

    def stored_at(self, path: str) -> StoredAs | None:
        """Where the checkpoint has this linear map, if not under this name."""
        return self.stored_as.get(path) or self.stored_as.get(f"{path}.weight")

    def linear_weight(self, paths: Sequence[str]) -> Tensor | DeferredWeight:
        """The weight of these linear maps of the checkpoint, stacked."""
        names = tuple(f"{path}.weight" for path in paths)
        if not any(self.checkpoint.find(name).quantised for name in names):
            return self.joined(names)
        shape = sum(self.shapes[name][0] for name in names), self.shapes[names[0]][1]
        parts = {name: self.parts[name] for name in names}
        return DeferredWeight(
            shape,
            self.dtype,
            lambda: stacked([self.weight(name) for name in names]),
            lambda: (placed(piece, self.device, self.dtype) for piece in self.checkpoint.pieces(parts)),
        )

    def weight(self, name: str) -> Tensor | QuantisedWeight:
        """One tensor in the model's dtype, on its device."""
        if not self.checkpoint.find(name).quantised:
            return self.joined((name,))
        return placed(self.checkpoint.take(name, self.parts[name]), self.device, self.dtype)

    def joined(self, names: tuple[str, ...]) -> Tensor:
        """The named tensors stacked along their first dimension, in the model's dtype, on its device."""
        shapes = [self.shapes[name] for name in names]
        out = torch.empty((sum(shape[0] for shape in shapes), *shapes[0][1:]), dtype=self.dtype, device=self.device)
        for name, piece in zip(names, out.split_with_sizes([shape[0] for shape in shapes]), strict=True):
            piece.copy_(dense(self.checkpoint.take(name, self.parts[name])))
        return out
