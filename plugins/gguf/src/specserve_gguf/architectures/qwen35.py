"""Qwen 3.5 and 3.6, dense and with experts: gated delta nets beside attention, and the block that drafts (MTP), which
files have as further layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve_gguf.architectures.architecture import Architecture
from specserve_gguf.keys import MAX_EXPERTS, MAX_HEAD
from specserve_gguf.parts import Part
from specserve_gguf.value_heads import ValueHeads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from specserve_gguf.model_file import ModelFile

VECTORS = {"ssm_a": "A_log", "ssm_dt.bias": "dt_bias"}
"""By their whole names in the layer: Hugging Face's have no `.weight` or `.bias`."""
MAPS = {"attn_gate": "in_proj_z", "ssm_beta": "in_proj_b", "ssm_alpha": "in_proj_a"}
"""Whose rows are value heads."""
CHANNELS = {"attn_qkv": "in_proj_qkv", "ssm_conv1d": "conv1d"}
"""Whose rows are queries, keys and values."""
BLOCK = {
    "nextn.eh_proj": "mtp.fc",
    "nextn.enorm": "mtp.pre_fc_norm_embedding",
    "nextn.hnorm": "mtp.pre_fc_norm_hidden",
    "nextn.shared_head_norm": "mtp.norm",
}
"""What stands in front of the block's layers and behind them; the file has it in the first one."""
FIRST = "mtp.layers.0"
RECURRENT, HEADS, INNER = "attention.recurrent_layers", "ssm.time_step_rank", "ssm.inner_size"


class Qwen35(Architecture):
    name = "qwen35"
    model_type = "qwen3_5_text"
    model_class = "Qwen3_5ForCausalLM"
    norms: Mapping[str, str] = {
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_attention_layernorm",
    }
    norm_offset = 1.0
    layers_of_a_period = 4
    """The last one of each has attention where the file does not say which do."""

    def __init__(self, file: ModelFile) -> None:
        super().__init__(file)
        self.block_count = self.num_layers
        drafting = self.keys.count("nextn_predict_layers", self.block_count - 1)
        self.num_layers -= drafting
        self.drafting = {str(self.num_layers + layer): f"mtp.layers.{layer}" for layer in range(drafting)}
        """The new path of each layer of the block, by its number in the file."""
        whole = self.keys.whole
        self.key_heads, self.key_dim = whole("ssm.group_count"), self.keys.at_most("ssm.state_size", MAX_HEAD)
        self.num_value_heads = whole(HEADS)
        if self.num_value_heads % self.key_heads:
            raise self.keys.wrong(HEADS, f"a multiple of ssm.group_count, {self.key_heads}")
        self.value_dim, rest = divmod(whole(INNER), self.num_value_heads)
        if rest or self.value_dim > MAX_HEAD:
            raise self.keys.wrong(INNER, f"1 to {MAX_HEAD} numbers for each of {self.num_value_heads} value heads")

    def own_config(self) -> dict[str, Any]:
        self.keys.value("rope.dimension_sections")  # of images: a token of text has the same position in all of them
        return {
            "layer_types": [
                "linear_attention" if recurrent else "full_attention" for recurrent in self.recurrent_layers()
            ],
            "linear_num_key_heads": self.key_heads,
            "linear_num_value_heads": self.num_value_heads,
            "linear_key_head_dim": self.key_dim,
            "linear_value_head_dim": self.value_dim,
            "linear_conv_kernel_dim": self.keys.whole("ssm.conv_kernel"),
            "attention_bias": self.some_layer_has("attn_q.bias"),
            "sliding_window": self.window,
            "mtp_num_hidden_layers": len(self.drafting) or None,
        }

    def recurrent_layers(self) -> list[bool]:
        """Whether each layer is a gated delta net."""
        period = self.keys.whole("full_attention_interval", self.layers_of_a_period)
        if isinstance(self.keys.value(RECURRENT), int):
            raise self.keys.wrong(RECURRENT, f"true or false for each of {self.num_layers} layers")
        given = self.keys.flags_of_layers(RECURRENT, self.num_layers)
        return given or [(layer + 1) % period != 0 for layer in range(self.num_layers)]

    def parts_of(self, tensor: str) -> Iterator[tuple[str, Part]]:
        first, _, rest = tensor.partition(".")
        layer, _, inner = rest.partition(".") if first == "blk" else ("", "", "")
        stem, _, kind = inner.rpartition(".")
        if inner in VECTORS:
            part = Part(tensor, value_rows=self.value_heads(1), is_decay=inner == "ssm_a")
            yield f"model.layers.{layer}.linear_attn.{VECTORS[inner]}", part
        elif stem in BLOCK and self.drafting.get(layer) == FIRST:
            yield f"{BLOCK[stem]}.{kind}", Part(tensor, less=0.0 if stem == "nextn.eh_proj" else self.norm_offset)
        else:
            path = f"model.layers.{layer}."
            for name, part in super().parts_of(tensor):
                renamed = layer in self.drafting and name.startswith(path)
                yield f"{self.drafting[layer]}.{name.removeprefix(path)}" if renamed else name, part

    def of_layer(self, inner: str, tensor: str) -> Iterator[tuple[str, Part]]:
        if inner in MAPS:
            size = self.value_dim if inner == "attn_gate" else 1
            yield f"linear_attn.{MAPS[inner]}", Part(tensor, value_rows=self.value_heads(size))
        elif inner in CHANNELS:
            heads = self.value_heads(self.value_dim, before=2 * self.key_heads * self.key_dim)
            yield f"linear_attn.{CHANNELS[inner]}", Part(tensor, value_rows=heads, of_channels=inner == "ssm_conv1d")
        elif inner == "ssm_out":
            yield "linear_attn.out_proj", Part(tensor, value_columns=self.value_heads(self.value_dim))
        elif inner == "ssm_norm":
            yield "linear_attn.norm", Part(tensor)
        else:
            yield from super().of_layer(inner, tensor)

    def value_heads(self, size: int, before: int = 0) -> ValueHeads | None:
        """None where each key head has one, which leaves them in their order."""
        if self.num_value_heads == self.key_heads:
            return None
        return ValueHeads(self.key_heads, self.num_value_heads, size, before)


class Qwen35Moe(Qwen35):
    name = "qwen35moe"
    model_type = "qwen3_5_moe_text"
    model_class = "Qwen3_5MoeForCausalLM"

    @property
    def expert_size(self) -> int:
        return self.keys.whole("expert_feed_forward_length")

    def inner_size(self) -> int:
        """No layer has an MLP of another width, and files may leave it out."""
        return self.keys.whole("feed_forward_length", self.expert_size)

    def own_config(self) -> dict[str, Any]:
        return super().own_config() | {
            "num_experts": self.keys.at_most("expert_count", MAX_EXPERTS),
            "num_experts_per_tok": self.keys.whole("expert_used_count"),
            "moe_intermediate_size": self.expert_size,
            "norm_topk_prob": self.keys.flag("expert_weights_norm", default=True),
            "shared_expert_intermediate_size": self.keys.whole("expert_shared_feed_forward_length", self.inner_size()),
        }
