"""From a head's checkpoint to a `DraftHead`: its layers as a decoder of their own.

Where the checkpoint has no embedding or no output head, the target's are shared. The block of a Qwen3.5 checkpoint
computes what vLLM's qwen3_5_mtp.py and SGLang's do: `fc` reads [normed embedding ; normed hidden state], the latter
behind the target's final norm or `mtp.norm`, and norms multiply by 1 + their weights. The pair of hidden state p and
token p + 1 has position p there and p + 1 here, which changes no score: rotations are relative. The block of an Ernie
4.5 reads the last layer's output, and its own output passes the target's final norm, as in Baidu's ERNIE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.api import DraftLayers, DraftVocabulary
from specserve.api.models import (
    DecoderLayer,
    DecoderModel,
    DecoderWeights,
    DenseMlp,
    DraftHead,
    MixtureOfExperts,
    Mlp,
    RotaryTable,
    Router,
    SharedExpert,
    TargetNorm,
    WideRouter,
    rotary_table,
)
from specserve.models.tensor_names import SHARED_EXPERT, SHARED_GATE
from specserve_draft_models import Masks
from specserve_eagle.checkpoints.head_config import decoder_config
from specserve_eagle.checkpoints.layout import MASK_HIDDEN
from specserve_eagle.checkpoints.tensors import open_head
from specserve_eagle.checkpoints.vocabulary import draft_ids
from specserve_eagle.draft_model import DraftModel
from specserve_eagle.head_reader import HeadReader, Pairs
from specserve_eagle.latent.decoder import LatentDecoder, LatentLayer
from specserve_eagle.latent.read import read_input, read_latent, read_output

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from specserve.api.models import Projection, ServedModel
    from specserve_eagle.checkpoints.head_config import HeadConfig
    from specserve_eagle.checkpoints.tensors import HeadCheckpoint
    from specserve_eagle.draft_model import Lookahead
    from specserve_eagle.options import DraftWeights


AS_IT_IS = TargetNorm(None, 0.0)
"""For heads that read the last layer's output."""


def load_head(
    path: Path, config: HeadConfig, target: ServedModel, lookahead: Lookahead, weights: DraftWeights
) -> DraftModel:
    """Raises ModelError for whatever does not fit the target."""
    checkpoint = open_head(path, config)
    ids = draft_ids(checkpoint, config)
    builder = HeadBuilder(config, checkpoint, target, weights)
    decoder = builder.decoder()
    layers = DraftLayers(
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        scale=decoder.scale,
        sliding_windows=decoder.sliding_windows,
        soft_caps=decoder.soft_caps,
        sinks=decoder.sinks,
        reads_hidden=True,
        has_trees=lookahead.has_trees,
        max_draft_rows=lookahead.num_rows,
        max_len=target.max_model_len,
    )
    vocabulary = None if ids is None else DraftVocabulary(ids.to(target.device), target.vocab_size)
    return DraftModel(
        head=builder.head(decoder, vocabulary),
        layers=layers,
        hidden_layers=config.hidden_layers,
        masks=builder.masks(),
        tokens_per_pass=1 if config.masks is None else config.masks.num_tokens,
    )


class HeadBuilder(HeadReader):
    """Makes the layers of the formats that read a hidden state per row."""

    def __init__(
        self, config: HeadConfig, checkpoint: HeadCheckpoint, target: ServedModel, weights: DraftWeights
    ) -> None:
        pairs = Pairs(config.head_dim, config.rotary_dim) if config.rotation == "interleaved" else None
        super().__init__(checkpoint, target, weights, pairs)
        self.config = config

    def decoder(self) -> DecoderModel:
        config, target = self.config, self.target
        numbers = decoder_config(config)
        rotary = rotary_table(numbers, target.max_model_len)
        weights = DecoderWeights(
            self.embedding(),
            tuple(self.layer(index) for index in range(config.num_layers)),
            self.optional_norm("norm") if config.reads == "normed" else target.output_norm().weight,
            self.lm_head(),
            projections=self.projections,
        )
        table = RotaryTable(rotary.cos.to(target.device), rotary.sin.to(target.device))
        kind = DecoderModel if config.latent is None else LatentDecoder
        return kind(numbers, self.kernels, weights, table)

    def head(self, decoder: DecoderModel, vocabulary: DraftVocabulary | None) -> DraftHead:
        config, target = self.config, self.target
        if config.kind == "eagle3":
            return DraftHead(
                decoder=decoder,
                vocabulary=vocabulary,
                from_target=self.projection("fc"),
                target_norms=self.target_norms(),
                hnorm=self.norm("layers.0.hidden_norm") if config.norm_before_residual else None,
                feeds_back_norm=config.feeds_back_norm,
            )
        return DraftHead(
            decoder=decoder,
            vocabulary=vocabulary,
            from_target=target.output_norm() if config.reads == "normed" else AS_IT_IS,
            fc=self.projection("fc"),
            embedding_first=config.embedding_first,
            enorm=self.optional_norm("enorm"),
            hnorm=self.optional_norm("hnorm"),
            feeds_back_norm=config.feeds_back_norm,
        )

    def masks(self) -> Masks | None:
        masks = self.config.masks
        return None if masks is None else Masks(masks.token, self.tensor(MASK_HIDDEN).view(1, -1))

    def target_norms(self) -> tuple[Tensor, ...]:
        match self.config.target_norms:
            case "each":
                return tuple(self.norm(f"fc_norm.{i}") for i in range(len(self.config.hidden_layers)))
            case "all":
                return (self.norm("input_norm"),)
        return ()

    def layer(self, index: int) -> DecoderLayer:
        def name(part: str) -> str:
            return f"layers.{index}.{part}"

        if (latent := self.config.latent) is not None:
            return LatentLayer(
                input_norm=self.norm(name("input_norm")),
                qkv_proj=read_input(self, name(""), latent),
                q_norm=None,
                k_norm=None,
                o_proj=read_output(self, name("o_proj"), latent),
                mlp_norm=self.norm(name("post_attention_norm")),
                mlp=self.mlp(name("")),
                latent=read_latent(self, name(""), latent),
            )
        reads_aux = self.checkpoint.has(name("hidden_norm"))  # EAGLE-3: input_norm is the embedding's
        input_norm = self.optional_norm(name("hidden_norm" if reads_aux else "input_norm"))
        return DecoderLayer(
            input_norm=None if reads_aux and self.config.norm_before_residual else input_norm,
            aux_norm=self.norm(name("input_norm")) if reads_aux else None,
            qkv_proj=self.projection(name("qkv_proj"), name("q_proj"), name("k_proj"), name("v_proj")),
            q_norm=self.optional_norm(name("q_norm")),
            k_norm=self.optional_norm(name("k_norm")),
            o_proj=self.projection(name("o_proj")),
            mlp_norm=self.norm(name("post_attention_norm")),
            mlp=self.mlp(f"layers.{index}."),
        )

    def mlp(self, layer: str) -> Mlp:
        """layer: how its canonical names begin."""
        experts = self.config.experts
        if experts is None:
            return self.dense_mlp(layer)
        shared = None
        if experts.shared_size is not None:
            gate = self.router(f"{layer}{SHARED_GATE}") if experts.shared_gate else None
            shared = SharedExpert(self.dense_mlp(f"{layer}{SHARED_EXPERT}."), gate, self.kernels)
        return MixtureOfExperts(
            experts,
            (self.wide_router if experts.wide_logits else self.router)(f"{layer}gate"),
            tuple(self.dense_mlp(f"{layer}experts.{expert}.") for expert in range(experts.count)),
            self.kernels,
            choice_bias=self.wide(f"{layer}choice.bias") if experts.choice_bias else None,
            shared=shared,
        )

    def dense_mlp(self, block: str) -> DenseMlp:
        return DenseMlp(
            self.projection(f"{block}gate_up_proj", f"{block}gate_proj", f"{block}up_proj"),
            self.projection(f"{block}down_proj"),
            self.kernels.silu_and_multiply,
        )

    def router(self, name: str) -> Projection:
        return self.made(name, self.tensor(name), kind=Router)

    def wide_router(self, name: str) -> Projection:
        return self.made(name, self.wide(name), kind=WideRouter)

    def optional_norm(self, name: str) -> Tensor | None:
        return self.norm(name) if self.checkpoint.has(name) else None

    def norm(self, name: str) -> Tensor:
        """Its weight, with what the family adds to it; in float32 where it is multiplied so."""
        if not self.config.wide_norms:
            return self.tensor(name)
        return self.wide(name) + self.config.norm_offset

    def wide(self, name: str) -> Tensor:
        """In float32."""
        return self.checkpoint.take(name).to(self.target.device, torch.float32)
