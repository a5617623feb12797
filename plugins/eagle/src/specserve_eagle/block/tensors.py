"""The tensors of a block head by canonical name. Letters of the shapes: see `BlockConfig`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ModelError
from specserve_eagle.block.config import CONVOLUTIONS, INSTEAD, SELECTOR
from specserve_eagle.checkpoints.block_names import candidates
from specserve_eagle.checkpoints.stored import open_stored
from specserve_eagle.checkpoints.tensors import Expected, HeadCheckpoint

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from specserve_eagle.block.config import BlockConfig

UNSUPPORTED_PARTS = {"attention_conv": CONVOLUTIONS, "mlp_conv": CONVOLUTIONS, "candidate_selector": SELECTOR}
"""Modules by a part of their tensors' names."""


def expected_tensors(config: BlockConfig) -> dict[str, Expected]:
    """Every canonical name with its shape."""
    layers, V = config.layers, config.vocab_size
    H, D, r, reduced = layers.hidden_size, layers.vocab_size, config.markov_rank, config.layers.vocab_size < V
    tensors = {
        "fc": Expected((H, len(config.hidden_layers) * config.target_hidden_size)),
        "hidden_norm": Expected((H,)),
        "norm": Expected((H,)),
        "embed_tokens": Expected((V, H), required=False),
        "lm_head": Expected((D, H), required=reduced),
        "d2t": Expected((D,), required=reduced),
        "t2d": Expected((V,), required=False),
    }
    if r:
        tensors |= {"markov_in": Expected((V, r)), "markov_out": Expected((D, r))} | markov_tensors(config)
    if config.confidence != "nothing":
        inputs = H + r if config.confidence == "hidden and token" else H
        tensors |= {"confidence": Expected((1, inputs)), "confidence.bias": Expected((1,), required=False)}
    for layer in range(layers.num_layers):
        tensors |= {f"layers.{layer}.{name}": Expected(shape) for name, shape in layer_shapes(config).items()}
    return tensors


def markov_tensors(config: BlockConfig) -> dict[str, Expected]:
    """What a Markov head has beside its two tables."""
    H, r = config.layers.hidden_size, config.markov_rank
    shapes = {"vanilla": {}, "gated": {"markov_gate": (r, H + r)}, "rnn": {"markov_joint": (3 * r, 2 * r + H)}}
    tensors: dict[str, Expected] = {}
    for name, shape in shapes[config.markov_kind].items():
        tensors |= {name: Expected(shape), f"{name}.bias": Expected(shape[:1])}
    return tensors


def layer_shapes(config: BlockConfig) -> dict[str, tuple[int, ...]]:
    layers = config.layers
    H, inner, d = layers.hidden_size, layers.intermediate_size, layers.head_dim
    q_size, kv_size = layers.num_heads * d, layers.num_kv_heads * d
    shapes: dict[str, tuple[int, ...]] = {
        "input_norm": (H,),
        "q_proj": (q_size, H),
        "k_proj": (kv_size, H),
        "v_proj": (kv_size, H),
        "o_proj": (H, q_size),
        "q_norm": (d,),
        "k_norm": (d,),
        "post_attention_norm": (H,),
        "gate_proj": (inner, H),
        "up_proj": (inner, H),
        "down_proj": (H, inner),
    }
    biased = {"q_proj": layers.qkv_bias, "k_proj": layers.qkv_bias, "v_proj": layers.qkv_bias, "o_proj": layers.o_bias}
    return shapes | {f"{name}.bias": shapes[name][:1] for name, has in biased.items() if has}


def open_block_head(path: Path, config: BlockConfig) -> HeadCheckpoint:
    """The checkpoint in directory `path`, checked from its headers. Raises ModelError."""
    source = open_stored(path, config.layers.quantization)
    refuse_unsupported_parts(source.tensors, str(path))
    return HeadCheckpoint(source, expected_tensors(config), candidates, "block head")


def refuse_unsupported_parts(names: Iterable[str], where: str) -> None:
    """Whatever config.json calls their numbers."""
    for name in sorted(names):
        for part, meaning in UNSUPPORTED_PARTS.items():
            if part in name.split("."):
                raise ModelError(f"{where}: tensor {name} ({meaning}) is not supported in a block head. {INSTEAD}")
