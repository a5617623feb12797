"""How each public format names a head's tensors.

Canonical names are ours: `fc`, `layers.0.q_proj`, `norm`, ...; with `.bias` for a bias, alone for a weight. A format is
told by names that only it has. Knows nothing about shapes or config.json.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

HeadKind: TypeAlias = Literal["eagle", "eagle3", "mtp"]
TargetState: TypeAlias = Literal["normed", "layer"]
"""Which hidden state of the target a head of EAGLE-1/2 or MTP reads: the one behind the final norm, or the last layer's
output. The latter's own final norm is the target's, and its own hidden state is fed back before that."""
Rotation: TypeAlias = Literal["halves", "interleaved"]
"""Which numbers of a query or key are rotated together: i and i + half, or 2i and 2i + 1."""

LAYER_PARTS = {
    "input_norm": "input_layernorm",
    "hidden_norm": "hidden_norm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "o_proj": "self_attn.o_proj",
    "q_a_proj": "self_attn.q_a_proj",
    "q_a_norm": "self_attn.q_a_layernorm",
    "q_b_proj": "self_attn.q_b_proj",
    "kv_a_proj": "self_attn.kv_a_proj_with_mqa",
    "kv_a_norm": "self_attn.kv_a_layernorm",
    "kv_b_proj": "self_attn.kv_b_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "gate_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "down_proj": "mlp.down_proj",
}
"""What belongs to experts has its name within `mlp`."""
MAPS = ("d2t", "t2d")
"""Tables of the draft vocabulary; their names have no suffix in any format."""
MASK_HIDDEN = "mask_hidden"
"""What a P-EAGLE head reads in place of hidden states; its name has no suffix either."""
DEEPSEEK_LAYER = re.compile(r"model\.layers\.(\d+)\.eh_proj\.weight")
DEEPSEEK_MODULES = {
    "fc": "eh_proj",
    "enorm": "enorm",
    "hnorm": "hnorm",
    "norm": "shared_head.norm",
    "embed_tokens": "embed_tokens",
    "lm_head": "shared_head.head",
}
QWEN = "mtp."
QWEN_MODULES = {"fc": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "norm": "norm"}
MTP_LAYERS_MODULES = {
    "fc": "input_proj",
    "enorm": "token_layernorm",
    "hnorm": "hidden_layernorm",
    "norm": "final_layernorm",
}
ERNIE = "model.mtp_"
"""How names of the block of an Ernie 4.5 begin, which has the target's final norm."""
ERNIE_MODULES = {"fc": "linear_proj.0", "enorm": "emb_norm.0", "hnorm": "hidden_norm.0"}
SHARED: dict[str, tuple[str, ...]] = {"embed_tokens": ("model.embed_tokens", "embed_tokens"), "lm_head": ("lm_head",)}
TEXT = "model."
"""How names of a text model's tensors begin."""
TEXT_PARTS = ("model.language_model.", "language_model.model.", "language_model.")
"""The same of the text part of a model that also reads images."""
MTP_LAYERS = re.compile(r"(model\.|)mtp_layers\.0\.input_proj\.weight")


class Layout(NamedTuple):
    """One format's names. A module that `modules` lacks has its canonical name; one without names is in no file."""

    kind: HeadKind
    modules: dict[str, tuple[str, ...]]
    """Canonical name to the names of the module, of which a file has one."""
    first_layer: str
    """The prefix of layer 0."""
    other_layers: str = "layers.{}."
    embedding_first: bool = True
    """The order of the two inputs of `fc`."""
    layer_index: int | None = None
    """The number that the file gives the head's layer, where the numbering goes on from the target's layers."""
    optional_prefix: str = ""
    """Files exist with this prefix and without."""
    reads: TargetState = "normed"
    rotation: Rotation = "halves"

    def has_experts(self, names: frozenset[str]) -> bool:
        """Whether the head's layer, whose family has experts, has them too. names: of the file's tensors."""
        return names.isdisjoint(self.candidates("layers.0.gate_proj"))

    def candidates(self, canonical: str) -> tuple[str, ...]:
        """The names that the tensor may have in a file, the usual one first."""
        if canonical in MAPS:
            return (canonical,)
        module = canonical.removesuffix(".bias")
        suffix = ".bias" if module != canonical else "" if module == MASK_HIDDEN else ".weight"
        names = tuple(name + suffix for name in self._modules(module))
        return names + tuple(self.optional_prefix + name for name in names if self.optional_prefix)

    def _modules(self, module: str) -> tuple[str, ...]:
        if module.startswith("fc_norm."):  # the speculators format has the plural
            return module, module.replace("fc_norm.", "fc_norms.")
        if not module.startswith("layers."):
            return self.modules.get(module, (module,))
        _, index, part = module.split(".", 2)
        prefix = self.first_layer if index == "0" else self.other_layers.format(index)
        return (prefix + (LAYER_PARTS.get(part) or f"mlp.{part}"),)


def layout_of(names: Iterable[str], kind: HeadKind) -> Layout | None:
    """The layout of a head of that kind whose file has these tensors; None where MTP tensors are not recognised."""
    held = frozenset(names)
    if kind == "eagle3":
        midlayer = any("midlayer." in name for name in held)
        return Layout(kind, {}, "midlayer." if midlayer else "layers.0.", optional_prefix="model.")
    if kind == "eagle":
        if "fusion_fc.weight" in held:  # the speculators format
            return Layout(kind, {"fc": ("fusion_fc",)}, "transformer.")
        return Layout(kind, {}, "layers.0.", optional_prefix="model.")
    return _mtp_layout(held)


def target_prefix(names: frozenset[str]) -> str | None:
    """How names of the target's tensors begin, where the head lies within its target's checkpoint; None elsewhere."""
    return next((prefix for prefix in (TEXT, *TEXT_PARTS) if f"{prefix}norm.weight" in names), None)


def _mtp_layout(held: frozenset[str]) -> Layout | None:
    # Beside the target's checkpoint these are the head's copies; within it they are the target's own.
    shared = dict.fromkeys(SHARED, ()) if target_prefix(held) else SHARED
    if f"{QWEN}fc.weight" in held:  # Qwen3-Next and Qwen3.5
        return Layout("mtp", shared | _prefixed(QWEN, QWEN_MODULES), f"{QWEN}layers.0.")
    if f"{ERNIE}linear_proj.0.weight" in held:
        modules = shared | _prefixed(ERNIE, ERNIE_MODULES)
        return Layout("mtp", modules, f"{ERNIE}block.0.", reads="layer", rotation="interleaved")
    for name in sorted(held):
        if match := DEEPSEEK_LAYER.fullmatch(name):
            index = int(match[1])
            prefix = f"model.layers.{index}."
            own = _prefixed(prefix, DEEPSEEK_MODULES)  # the layer's own copies have priority
            modules = {ours: theirs + shared.get(ours, ()) for ours, theirs in own.items()}
            return Layout("mtp", modules, prefix, layer_index=index)
        if match := MTP_LAYERS.fullmatch(name):  # MiMo has the prefix model. and the hidden state first
            prefix = f"{match[1]}mtp_layers.0."
            modules = shared | _prefixed(prefix, MTP_LAYERS_MODULES)
            return Layout("mtp", modules, prefix, embedding_first=not match[1])
    return None


def _prefixed(prefix: str, modules: dict[str, str]) -> dict[str, tuple[str, ...]]:
    return {ours: (prefix + theirs,) for ours, theirs in modules.items()}
