"""The options of block heads: what is wrong with them, and the numbers of the head that they ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ConfigError
from specserve_eagle.block.config import MAX_BLOCK, MAX_RANK
from specserve_eagle.training.block_heads import BlockShape, block_reads
from specserve_eagle.training.modules import HeadShape

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api.models import ModelConfig
    from specserve_eagle.training.train_options import TrainOptions

BLOCK_HEADS = ("dflash", "dspark")
DEFAULT_BLOCK = {"dflash": 16, "dspark": 7}
DEFAULT_BLOCK_LAYERS = 2
DEFAULT_RANK = 256
DEFAULT_ANCHORS = 64
MIN_BLOCK = 2


def check_block_options(options: TrainOptions) -> None:
    """ConfigError for a value that no target allows."""
    for name, given, most in (
        ("--block-size", options.block_size, MAX_BLOCK),
        ("--markov-rank", options.markov_rank, MAX_RANK),
    ):
        least = MIN_BLOCK if name == "--block-size" else 1
        if given is not None and not least <= given <= most:
            raise ConfigError(f"{name} must be between {least} and {most}; got {given}.")
    if options.mask_token is not None and options.mask_token < 0:
        raise ConfigError(f"--mask-token must be a token's number, at least 0; got {options.mask_token}.")


def check_block_head(options: TrainOptions, target: ModelConfig) -> None:
    """ConfigError for what this target does not allow."""
    layer = layer_shape(options, target)
    if layer.num_heads % layer.num_kv_heads:
        raise ConfigError(
            f"--heads must be a multiple of --kv-heads; got {layer.num_heads} and {layer.num_kv_heads}. Without them "
            f"a layer has the target's, {target.num_heads} and {target.num_kv_heads}."
        )
    most = target.vocab_size - 1
    if options.mask_token is not None and options.mask_token > most:
        raise ConfigError(f"--mask-token must be a token of the target, 0 to {most}; got {options.mask_token}.")


def block_shape(options: TrainOptions, target: ModelConfig) -> BlockShape:
    """The numbers of the head that a run trains."""
    is_dspark = options.head == "dspark"
    return BlockShape(
        layer=layer_shape(options, target),
        num_layers=options.layers or DEFAULT_BLOCK_LAYERS,
        block_size=options.block_size or DEFAULT_BLOCK[options.head],
        reads=block_reads(target.num_layers),
        proposes_from_first=is_dspark,
        markov_rank=(options.markov_rank or DEFAULT_RANK) if is_dspark else 0,
        markov_kind=options.markov or "vanilla",
        confidence="hidden and token" if is_dspark else "nothing",
    )


def layer_shape(options: TrainOptions, target: ModelConfig) -> HeadShape:
    """The target's, where nothing else is asked for."""
    layer = HeadShape.of(target)
    return layer._replace(
        intermediate_size=options.intermediate_size or layer.intermediate_size,
        num_heads=options.heads or layer.num_heads,
        num_kv_heads=options.kv_heads or layer.num_kv_heads,
    )


def block_identity(options: TrainOptions, target: ModelConfig) -> dict[str, object]:
    """What a checkpoint can only be resumed with, beside what every head has."""
    shape = block_shape(options, target)
    identity: dict[str, object] = {"layers": shape.num_layers, "block_size": shape.block_size}
    identity |= {"heads": shape.layer.num_heads, "kv_heads": shape.layer.num_kv_heads}
    if options.head == "dspark":
        identity |= {"markov_rank": shape.markov_rank, "markov": shape.markov_kind, "draft_vocab": options.draft_vocab}
    return identity | {"mask_token": options.mask_token}


def unnamed_identity(target: ModelConfig) -> dict[str, object]:
    """What is meant where the record of an older run names none of these."""
    return {"heads": target.num_heads, "kv_heads": target.num_kv_heads, "markov": "vanilla"}


def find_mask_token(stream: Tensor, vocab_size: int) -> int:
    """The last token of the vocabulary that the text [tokens] does not use. ConfigError where it uses all."""
    unused = (stream.bincount(minlength=vocab_size) == 0).nonzero()
    if not len(unused):
        raise ConfigError(
            f"--data uses all {vocab_size} tokens of the target, and a block head needs one that stands for a token "
            "that is not known yet. Name one with --mask-token, best one that the target seldom sees."
        )
    return int(unused[-1])
