"""From a block head's checkpoint to a `BlockHead`. Whatever does not fit the target is found before serving."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.api import DraftLayers, DraftVocabulary, ModelError
from specserve.api.models import (
    BlockHead,
    DecoderLayer,
    DecoderModel,
    DecoderWeights,
    DenseMlp,
    MarkovHead,
    rotary_table,
)
from specserve_eagle.block.config import read_block_config
from specserve_eagle.block.tensors import open_block_head
from specserve_eagle.checkpoints.vocabulary import draft_ids
from specserve_eagle.head_reader import HeadReader, Pairs

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.api.models import Projection, ServedModel
    from specserve_eagle.block.config import BlockConfig
    from specserve_eagle.checkpoints.tensors import HeadCheckpoint
    from specserve_eagle.options import DraftWeights


class BlockModel(NamedTuple):
    """A head, and what its layers need of the engine."""

    head: BlockHead
    config: BlockConfig
    layers: DraftLayers


def load_block_head(path: Path, target: ServedModel, weights: DraftWeights) -> BlockModel:
    """Raises ModelError for whatever does not fit the target."""
    config = read_block_config(path, target)
    checkpoint = open_block_head(path, config)
    ids = draft_ids(checkpoint, config)
    builder = BlockBuilder(config, checkpoint, target, weights)
    head = builder.head(None if ids is None else DraftVocabulary(ids.to(target.device), target.vocab_size))
    numbers = config.layers
    layers = DraftLayers(
        num_heads=numbers.num_heads,
        num_kv_heads=numbers.num_kv_heads,
        head_dim=numbers.head_dim,
        scale=head.decoder.scale,
        sliding_windows=head.decoder.sliding_windows,
        reads_hidden=True,
        has_trees=False,
        max_draft_rows=1 + config.block_size,
        max_len=target.max_model_len,
    )
    return BlockModel(head, config, layers)


class BlockBuilder(HeadReader):
    def __init__(
        self, config: BlockConfig, checkpoint: HeadCheckpoint, target: ServedModel, weights: DraftWeights
    ) -> None:
        numbers = config.layers
        pairs = Pairs(numbers.head_dim, numbers.rotary_dim) if config.has_interleaved_rotation else None
        super().__init__(checkpoint, target, weights, pairs)
        self.config = config

    def head(self, vocabulary: DraftVocabulary | None) -> BlockHead:
        config, numbers = self.config, self.config.layers
        layers = range(numbers.num_layers)
        weights = DecoderWeights(
            self.embedding(),
            tuple(self.layer(index) for index in layers),
            self.tensor("norm"),
            self.lm_head(),
            projections=self.projections,
        )
        table = rotary_table(numbers, self.target.max_model_len).on(self.target.device)
        names = [f"layers.{index}.{part}" for index in layers for part in ("k_proj", "v_proj")]
        return BlockHead(
            decoder=DecoderModel(numbers, self.kernels, weights, table),
            vocabulary=vocabulary,
            first_proposing=config.first_proposing,
            fc=self.projection("fc"),
            hidden_norm=self.tensor("hidden_norm"),
            keys_values=self.projection("keys_values", *names),
            markov=self.markov() if config.markov_rank else None,
            confidence=None if config.confidence == "nothing" else self.confidence(),
        )

    def confidence(self) -> Projection:
        """ModelError where a number of it is not finite: with it nothing would be drafted."""
        for name in ("confidence", "confidence.bias"):
            if self.checkpoint.has(name) and not self.tensor(name).isfinite().all():
                raise ModelError(
                    f"{self.checkpoint.path}: the confidence head has numbers in {name} that are not finite; all must "
                    "be. Get or train the head again."
                )
        return self.projection("confidence")

    def markov(self) -> MarkovHead:
        return MarkovHead(
            self.tensor("markov_in"),
            self.projection("markov_out"),
            gate=self.projection("markov_gate") if self.config.markov_kind == "gated" else None,
            joint=self.projection("markov_joint") if self.config.markov_kind == "rnn" else None,
        )

    def layer(self, index: int) -> DecoderLayer:
        def name(part: str) -> str:
            return f"layers.{index}.{part}"

        return DecoderLayer(
            input_norm=self.tensor(name("input_norm")),
            qkv_proj=self.projection(name("qkv_proj"), name("q_proj"), name("k_proj"), name("v_proj")),
            q_norm=self.tensor(name("q_norm")),
            k_norm=self.tensor(name("k_norm")),
            o_proj=self.projection(name("o_proj")),
            mlp_norm=self.tensor(name("post_attention_norm")),
            mlp=DenseMlp(
                self.projection(name("gate_up_proj"), name("gate_proj"), name("up_proj")),
                self.projection(name("down_proj")),
                self.kernels.silu_and_multiply,
            ),
        )
