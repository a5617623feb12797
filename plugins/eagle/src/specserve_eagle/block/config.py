"""Reads the numbers of a block head from config.json, in the layouts of z-lab, DeepSeek and speculators.

The layers' own numbers are read by the core as those of a Qwen3 model, which they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from specserve.api import ModelError
from specserve.api.files import read_json
from specserve.api.models import ModelConfig
from specserve.models.read_config import parse_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from specserve.api.files import RawJson
    from specserve_eagle.checkpoints.target_sizes import TargetSizes

NESTED = ("dflash_config", "dspark_config")
"""Objects of config.json that may hold any of the head's own keys, which then count before those outside."""
OUTER_KEYS = ("dtype", "torch_dtype", "quantization_config")
"""Keys that the speculators format keeps outside of the layers' own config."""
MAX_BLOCK, MAX_RANK = 64, 4096
FULL, SLIDING = "full_attention", "sliding_attention"
"""Kinds of layers."""
CONVOLUTIONS, SELECTOR = "DFlash2's convolutions", "DFlash2's candidate selector"
UNSUPPORTED = {
    "attention_sink_bias": "attention sinks",
    "attention_value_scale": "scaled values",
    "output_multiplier": "a multiplier of the head's output",
    "conv_kernel_size": CONVOLUTIONS,
    "conv_group_size": CONVOLUTIONS,
    "selector_rank": SELECTOR,
    "selector_top_k": SELECTOR,
    "num_experts": "a mixture of experts",
    "kv_lora_rank": "multi-head latent attention",
}
"""Options that must be absent, null, false or 0: to ignore one would cost acceptance, silently."""
INSTEAD = "Use a DFlash or DSpark head without it, a head of another kind for this target, or n-gram drafts."
FACTORS = ("attention_value_scale", "output_multiplier")
"""Those of them that may be 1."""

MarkovKind = Literal["vanilla", "gated", "rnn"]
ConfidenceReads = Literal["nothing", "hidden", "hidden and token"]


class BlockConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A block head's numbers. Letters of the shapes: H hidden size, T the target's, V vocabulary, D draft vocabulary, r
    rank of the Markov head."""

    layers: ModelConfig
    """Of the decoder layers; vocab_size is D."""
    block_size: int
    """Rows of a pass."""
    mask_token: int
    """The token of every row but the first."""
    hidden_layers: tuple[int, ...]
    """The target's hidden states that the head reads: 0 is the embedding, n the output of layer n - 1."""
    proposes_from_first: bool
    """The first row, the last committed token's, proposes too; else row i proposes the token at its own place."""
    is_causal: bool
    vocab_size: int
    """The target's."""
    target_hidden_size: int
    markov_rank: int
    """0: none."""
    markov_kind: MarkovKind
    """What it makes of a token's entry: nothing; a product with gates of the state; a recurrence over the block."""
    confidence: ConfidenceReads
    has_interleaved_rotation: bool
    """Numbers 2i and 2i + 1 of a head are rotated together, not i and i + d/2."""

    @property
    def draft_vocab_size(self) -> int:
        """D: vocab_size where the head proposes every token."""
        return self.layers.vocab_size

    @property
    def num_proposed(self) -> int:
        """Draft tokens of a block."""
        return self.block_size if self.proposes_from_first else self.block_size - 1

    @property
    def first_proposing(self) -> int:
        """The first row that proposes."""
        return 0 if self.proposes_from_first else 1


def read_block_config(path: Path, target: TargetSizes) -> BlockConfig:
    """The configuration of the head in directory `path`, for this target. Raises ModelError."""
    where = str(path / "config.json")
    raw = read_json(path / "config.json")
    keys = own_keys(raw)
    refuse_unsupported(keys, where)
    block_size = integer(keys, "block_size", where, range(2, MAX_BLOCK + 1))
    reduced = keys.get("draft_vocab_size") or target.vocab_size
    own = layer_keys(raw, where)
    layers = layer_numbers(keys, own, where)
    if layers.vocab_size not in (target.vocab_size, reduced):
        raise ModelError(
            f"{where}: vocabulary of the head: {layers.vocab_size} tokens; of the target: {target.vocab_size}. The "
            "head was trained for another target; use one that was trained for this model."
        )
    is_dspark = bool(keys.get("markov_rank"))
    with_token = bool(keys.get("confidence_head_with_markov", True))
    return BlockConfig(
        layers=msgspec.structs.replace(layers, vocab_size=reduced),
        block_size=block_size,
        mask_token=integer(keys, "mask_token_id", where, range(target.vocab_size)),
        hidden_layers=hidden_layers(keys, layers.num_layers, target.num_layers, where),
        proposes_from_first=bool(keys.get("sample_from_anchor", is_dspark)),
        is_causal=is_causal(keys, own, where),
        vocab_size=target.vocab_size,
        target_hidden_size=target.hidden_size,
        markov_rank=integer(keys, "markov_rank", where, range(1, MAX_RANK + 1)) if is_dspark else 0,
        markov_kind=markov_kind(keys, where),
        confidence=("hidden and token" if with_token else "hidden")
        if keys.get("enable_confidence_head")
        else "nothing",
        has_interleaved_rotation=keys.get("is_neox_style", keys.get("rope_is_neox_style", True)) is False,
    )


def own_keys(raw: RawJson) -> RawJson:
    """All keys of the head in one mapping."""
    found = dict(raw)
    for name in NESTED:
        if isinstance(raw.get(name), dict):
            found |= raw[name]
    return found


def refuse_unsupported(keys: Mapping[str, Any], where: str) -> None:
    for key, meaning in UNSUPPORTED.items():
        if keys.get(key) and not (key in FACTORS and keys[key] == 1):
            raise ModelError(f"{where}: {key} = {keys[key]!r} ({meaning}) is not supported in a block head. {INSTEAD}")


def markov_kind(keys: RawJson, where: str) -> MarkovKind:
    kinds: dict[Any, MarkovKind] = {kind: kind for kind in get_args(MarkovKind)}
    found = keys.get("markov_head_type") or "vanilla"
    if not isinstance(found, str) or found not in kinds:
        raise ModelError(f"{where}: markov_head_type must be one of {', '.join(kinds)}; got {found!r}.")
    return kinds[found]


def layer_keys(raw: RawJson, where: str) -> RawJson:
    """Those of the decoder layers."""
    inner = raw.get("transformer_layer_config")
    if inner is not None and not isinstance(inner, dict):
        raise ModelError(f"{where}: transformer_layer_config must be an object; got {inner!r}.")
    return raw if inner is None else inner | {key: raw[key] for key in OUTER_KEYS if key in raw}


def layer_numbers(keys: RawJson, layers: RawJson, where: str) -> ModelConfig:
    """Of the decoder layers, which are those of a Qwen3 model."""
    plain: RawJson = {"architectures": [], "model_type": "qwen3"} | windows(keys, layers, where)
    return parse_config(layers | plain, {}, where=where)


def windows(keys: RawJson, layers: RawJson, where: str) -> RawJson:
    """What a Qwen3 model says of its layers' windows. `use_swa` without a sliding layer in `layer_types` means all."""
    kinds = layer_kinds(layers, where)
    if keys.get("use_swa") and SLIDING not in kinds:
        kinds = [SLIDING] * len(kinds)
    if SLIDING not in kinds:
        return {"layer_types": kinds, "sliding_window": None, "use_sliding_window": False}
    size = keys.get("swa_window_size") or layers.get("sliding_window")
    if size is None:
        raise ModelError(
            f"{where}: the head's attention has sliding windows, but neither swa_window_size nor sliding_window says "
            "how many tokens. Correct the file."
        )
    return {"layer_types": kinds, "sliding_window": size, "use_sliding_window": True}


def layer_kinds(layers: RawJson, where: str) -> list[str]:
    """`layer_types`; without it no layer has a window."""
    count = layers.get("num_hidden_layers")
    kinds = layers.get("layer_types") or [FULL] * (count if type(count) is int else 0)
    if not isinstance(kinds, list) or len(kinds) != count or not {FULL, SLIDING}.issuperset(kinds):
        raise ModelError(
            f"{where}: layer_types must name one of {FULL}, {SLIDING} for each of the {count} layers; got {kinds!r}."
        )
    return kinds


def is_causal(keys: RawJson, layers: RawJson, where: str) -> bool:
    """Whether rows of a block see only those before them: `causal`, or else where `layer_types` says sliding."""
    stated = keys.get("causal")
    kinds = layer_kinds(layers, where)
    if stated is None and SLIDING in kinds and FULL in kinds:
        raise ModelError(
            f"{where}: layer_types {kinds} without causal (sliding layers see the rows before them, full ones the "
            "whole block) is not supported in a block head. Supported: layers of one kind, or causal, true or false, "
            "for all of them."
        )
    return SLIDING in kinds if stated is None else bool(stated)


def hidden_layers(keys: RawJson, num_layers: int, num_target_layers: int, where: str) -> tuple[int, ...]:
    """`target_layer_ids` counts layers from 0, whose outputs are read; `aux_hidden_state_layer_ids` is one more.
    Without either they lie evenly between the second and the third but last, one for each of the head's layers."""
    key, shift = "target_layer_ids", 1
    if keys.get(key) is None and keys.get("aux_hidden_state_layer_ids") is not None:
        key, shift = "aux_hidden_state_layer_ids", 0
    ids: Sequence[Any] | None = keys.get(key)
    if ids is None:
        last = num_target_layers - 3
        ids = [num_target_layers // 2]
        if num_layers > 1:
            ids = [round(1 + i * (last - 1) / (num_layers - 1)) for i in range(num_layers)]
    if not isinstance(ids, list) or not ids or not all(type(i) is int for i in ids):
        raise ModelError(f"{where}: {key} must be a list of layer numbers; got {ids!r}. Correct the file.")
    if min(ids) + shift < 0 or max(ids) + shift > num_target_layers:
        raise ModelError(
            f"{where}: {key} = {ids}, but this target has {num_target_layers} layers. The head was trained for another "
            "target; use one that was trained for this model."
        )
    return tuple(i + shift for i in ids)


def integer(keys: RawJson, key: str, where: str, allowed: range) -> int:
    value = keys.get(key)
    if type(value) is not int or value not in allowed:
        raise ModelError(
            f"{where}: {key} must be a whole number from {allowed[0]} to {allowed[-1]}; got {value!r}. Correct the "
            "file."
        )
    return value
