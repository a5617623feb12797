"""Gemma 4, text: Gemma Team, 2026."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve.models.config import Multipliers
from specserve.models.experts_config import ExpertsConfig
from specserve.models.families.gemma3 import CAP
from specserve.models.family import LayerTraits, ModelFamily, StoredAs, positive
from specserve.models.kinds_of_layers import FULL, kinds, main_rotation, rotations, windows
from specserve.models.layer_attention import LayerAttention, TokenInputs
from specserve.models.layers_with_experts import counts, whole_number
from specserve.models.varied_decoder import VariedDecoder
from specserve.models.windows import SLIDING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.config import ModelConfig

FULL_EVERY = 6
BASES = {FULL: (None, 1_000_000.0), SLIDING: (None, 10_000.0)}
ABSENT_ROTATIONS = {
    FULL: {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.25},
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
}
"""Where the file has no `rope_parameters`."""
TOKEN_SIZE, TOKEN_VOCAB = "hidden_size_per_layer_input", "vocab_size_per_layer_input"
SHARED = "num_kv_shared_layers"
BY_LAYER = "per_layer_config"
HEADS, KEY_HEADS = "head_dim", "num_key_value_heads"
FULL_HEADS = {HEADS: "global_head_dim", KEY_HEADS: "num_global_key_value_heads"}
"""The keys of layers without a window; newer files have these numbers in `per_layer_config`."""
UNREAD = ("k_proj", "v_proj", "k_norm", "v_norm")
"""Of attention in layers that read other layers' keys and values: files may have them all the same."""


class Gemma4(ModelFamily):
    """Norms around attention and the MLP, and of queries, keys and values; layers without a window have larger heads;
    the last layers may read the keys and values of earlier ones; every layer may be given a vector of each token."""

    name = "gemma4_text"
    architectures = ("Gemma4ForCausalLM",)
    within: tuple[str, ...] = ("Gemma4ForConditionalGeneration",)
    activation_key = "hidden_activation"
    activations = ("gelu_pytorch_tanh",)
    decoder = VariedDecoder
    reads: tuple[str, ...] = (
        "hidden_activation",
        CAP,
        "attention_k_eq_v",
        "enable_moe_block",
        "use_bidirectional_attention",
        "use_double_wide_mlp",
        TOKEN_SIZE,
        TOKEN_VOCAB,
        SHARED,
        BY_LAYER,
        *FULL_HEADS.values(),
        "num_experts",
        "top_k_experts",
        "moe_intermediate_size",
    )
    absent: Mapping[str, object] = {
        "vocab_size": 262_144,
        "max_position_embeddings": 131_072,
        "num_attention_heads": 8,
        KEY_HEADS: 4,
        HEADS: 256,
        FULL_HEADS[HEADS]: 512,
        "sliding_window": 512,
        "tie_word_embeddings": True,
        TOKEN_SIZE: 256,
        TOKEN_VOCAB: 262_144,
        SHARED: 0,
    }
    toy: Mapping[str, object] = {
        "sliding_window": 40,
        "layer_types": [SLIDING, FULL],
        HEADS: 16,
        FULL_HEADS[HEADS]: 32,
        TOKEN_SIZE: 24,
        TOKEN_VOCAB: 340,
    }

    def renamed(self, raw: RawJson) -> RawJson:
        return raw | {"rope_parameters": raw.get("rope_parameters") or ABSENT_ROTATIONS}

    def traits(self, raw: RawJson) -> LayerTraits:
        biased = raw.get("attention_bias", False)
        return LayerTraits(
            qkv_bias=biased,
            o_bias=biased,
            qk_norm=True,
            norm_places="around",
            wide_norms=True,
            activation="gelu_tanh",
            value_norm=True,
            layer_scales=True,
            token_inputs=token_inputs(raw),
            multipliers=Multipliers(
                embedding=math.sqrt(positive(raw, "hidden_size")),
                attention=1.0,
                logit_cap=None if raw.get(CAP) is None else positive(raw, CAP),
            ),
        )

    def kinds(self, raw: RawJson, num_layers: int, where: str) -> list[str]:
        """The last layer has no window, whatever the file says."""
        return [*kinds(raw, num_layers, FULL_EVERY, where)[:-1], FULL]

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        return windows(raw, self.kinds(raw, num_layers, where), where)

    def layer_attention(self, raw: RawJson, num_layers: int, where: str) -> tuple[LayerAttention, ...]:
        kinds = self.kinds(raw, num_layers, where)
        own = own_keys(raw, kinds, where)
        sizes = heads_by_kind(raw, kinds, where)
        alike = switch(raw, "attention_k_eq_v")
        return tuple(
            LayerAttention(
                num_kv_heads=sizes[kind][KEY_HEADS],
                head_dim=sizes[kind][HEADS],
                reads=None if layer < own else own - 1 - kinds[:own][::-1].index(kind),
                projects_values=not (alike and kind == FULL),
            )
            for layer, kind in enumerate(kinds)
        )

    def inner_sizes(self, raw: RawJson, num_layers: int) -> tuple[int, ...]:
        """Layers that read others' keys and values may have an MLP of twice the width."""
        if not switch(raw, "use_double_wide_mlp"):
            return ()
        inner, own = raw["intermediate_size"], num_layers - raw[SHARED]
        return tuple(inner if layer < own else 2 * inner for layer in range(num_layers))

    def main_rotation(self, raw: RawJson) -> RawJson:
        return main_rotation(raw, BASES)

    def rotations(self, raw: RawJson, num_layers: int, where: str) -> tuple[RawJson | None, ...]:
        return rotations(raw, self.kinds(raw, num_layers, where), BASES, where)

    def check(self, raw: RawJson, where: str) -> None:
        """`kinds` and `windows` have checked what the file says of windows."""
        found = raw.get("use_bidirectional_attention")
        if found not in (None, "vision"):
            raise ModelError(
                f'{where}: use_bidirectional_attention = {found!r} is not implemented; allowed: null, or "vision", '
                "which changes nothing in text. Serve a model that reads text from left to right."
            )

    def experts(self, raw: RawJson, num_layers: int) -> ExpertsConfig | None:
        if not switch(raw, "enable_moe_block"):
            return None
        count, chosen = counts(raw, default=0, keys=("num_experts",), of_token="top_k_experts")
        return ExpertsConfig(
            count=count,
            chosen=chosen,
            inner_size=whole_number(raw, "moe_intermediate_size"),
            layers=(True,) * num_layers,
            renormalised=True,
            rounded=False,
            expert_scales=True,
            beside_mlp=True,
        )

    def stored_as(self, config: ModelConfig) -> Mapping[str, StoredAs]:
        """Routers beside the experts, which are stacks of matrices."""
        found: dict[str, StoredAs] = {}
        if config.experts is None:
            return found
        inner = config.experts.inner_size
        for layer in range(config.num_layers):
            prefix = f"model.layers.{layer}"
            found[f"{prefix}.mlp.gate"] = StoredAs(f"{prefix}.router.proj")
            for expert in range(config.experts.count):
                ours = f"{prefix}.mlp.experts.{expert}"
                gate = StoredAs(f"{prefix}.experts.gate_up_proj", 0, inner, of_stack=expert)
                found[f"{ours}.gate_proj.weight"] = gate
                found[f"{ours}.up_proj.weight"] = gate._replace(first_row=inner)
                found[f"{ours}.down_proj.weight"] = StoredAs(f"{prefix}.experts.down_proj", of_stack=expert)
        return found

    def left_out(self, config: ModelConfig) -> tuple[str, ...]:
        reading = (layer for layer in range(config.num_layers) if config.attention(layer).reads is not None)
        return tuple(f"model.layers.{layer}.self_attn.{name}" for layer in reading for name in UNREAD)


def switch(raw: RawJson, key: str) -> bool:
    """One that is off where the file has null. Raises ModelError."""
    value = raw.get(key)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise ModelError(f"config.json: {key} must be true, false or null; got {value!r}. Correct the file.")


def token_inputs(raw: RawJson) -> TokenInputs | None:
    if not raw[TOKEN_SIZE]:
        return None
    tokens, known = whole_number(raw, "vocab_size"), whole_number(raw, TOKEN_VOCAB)
    if known < tokens:
        raise ModelError(
            f"config.json: {TOKEN_VOCAB} must be at least vocab_size, {tokens}; got {known}. Correct the file."
        )
    return TokenInputs(size=whole_number(raw, TOKEN_SIZE), vocab_size=known)


def own_keys(raw: RawJson, kinds: list[str], where: str) -> int:
    """How many layers have keys and values of their own; the others come last."""
    shared = raw[SHARED]
    if type(shared) is not int or not 0 <= shared < len(kinds):
        raise ModelError(
            f"{where}: {SHARED} must be a number of layers from 0 to {len(kinds) - 1}, so that one at least has keys "
            f"and values of its own; got {shared!r}. Correct the file."
        )
    own = len(kinds) - shared
    if missing := {*kinds[own:]} - {*kinds[:own]}:
        raise ModelError(
            f"{where}: the last {shared} layers ({SHARED}) read keys and values of earlier layers of their kind, and "
            f"none is of kind {', '.join(sorted(missing))}. Correct {SHARED} or layer_types."
        )
    return own


def heads_by_kind(raw: RawJson, kinds: list[str], where: str) -> dict[str, dict[str, int]]:
    """The numbers of a layer's heads: those of the layers without a window may be others."""
    plain = {key: whole_number(raw, key) for key in (HEADS, KEY_HEADS)}
    sizes = {SLIDING: plain, FULL: plain | given_for_full(raw, kinds, where)}
    heads = whole_number(raw, "num_attention_heads")
    for kind, each in sizes.items():
        if heads % each[KEY_HEADS] or each[HEADS] % 2:
            raise ModelError(
                f"{where}: layers of kind {kind} must have an even size of heads, and a number of key heads that "
                f"divides num_attention_heads ({heads}); got {each[HEADS]} and {each[KEY_HEADS]}. Correct the file."
            )
    return sizes


def given_for_full(raw: RawJson, kinds: list[str], where: str) -> dict[str, int]:
    by_layer = raw.get(BY_LAYER)
    if by_layer is None:
        of_keys = switch(raw, "attention_k_eq_v") and raw.get(FULL_HEADS[KEY_HEADS]) is not None
        keys = [HEADS, KEY_HEADS] if of_keys else [HEADS]
        return {key: whole_number(raw, FULL_HEADS[key]) for key in keys}
    if by_layer == {}:
        return {}
    full = [str(layer) for layer, kind in enumerate(kinds) if kind == FULL]
    first = by_layer.get(full[0]) if isinstance(by_layer, dict) else None
    if not isinstance(first, dict) or by_layer != dict.fromkeys(full, first) or not {*first} <= {HEADS, KEY_HEADS}:
        raise ModelError(
            f"{where}: {BY_LAYER} must give the same {HEADS}, and perhaps {KEY_HEADS}, for each layer without a window "
            f"({', '.join(full)}) and for no other; got {by_layer!r}. Other numbers by layer are not implemented."
        )
    return {key: whole_number(first, key) for key in first}
