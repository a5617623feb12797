"""How files of one architecture say what Hugging Face's config.json says, and what they call its tensors.

A subclass for each architecture of llama.cpp; what is not overridden is Llama's. Sources: llama.cpp's
convert_hf_to_gguf.py and gguf-py's constants. Knows nothing about bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.api import ModelError
from specserve_gguf.architectures.rotation import rotation
from specserve_gguf.keys import MAX_EXPERTS, MAX_HEAD, MAX_LAYERS, MAX_SIZE, Keys
from specserve_gguf.parts import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from specserve_gguf.model_file import ModelFile

ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
MLP = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate"}
SHARED_EXPERT = {
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
SHARED_GATE = "ffn_gate_inp_shexp"
EXPERTS = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}
NORMS_BEFORE = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}

CHOICE, SIGMOIDS = "expert_gating_func", 2

NULLS = ("sliding_window", "attn_logit_softcapping", "final_logit_softcapping")
"""Keys of config.json that mean something else where they are absent."""


class Architecture:
    """Of one file."""

    name: str
    """`general.architecture`."""
    model_type: str
    model_class: str
    """As `architectures` in config.json has it."""
    norms: Mapping[str, str] = NORMS_BEFORE
    pairs_are_neighbours = False
    """Whether the rows of queries and keys are in llama.cpp's order, in which the two that are rotated together are
    neighbours; Hugging Face has them half a head apart."""
    norm_offset = 0.0
    """What the file's norms have more than Hugging Face's."""
    theta = 10_000.0
    """The base of the rotation where the file says nothing."""

    def __init__(self, file: ModelFile) -> None:
        self.file = file
        self.keys = Keys(file, self.name)
        self.num_layers = self.keys.at_most("block_count", MAX_LAYERS)

    def has(self, name: str) -> bool:
        return name in self.file.tensors

    def some_layer_has(self, name: str) -> bool:
        return any(tensor.endswith(f".{name}") for tensor in self.file.tensors)

    def check_sigmoids(self) -> None:
        """Raises ModelError where a token's experts are chosen otherwise; 0 says nothing."""
        if self.keys.count(CHOICE, MAX_SIZE) not in (0, SIGMOIDS):
            raise self.keys.wrong(CHOICE, f"{SIGMOIDS}, by sigmoids")

    @property
    def heads(self) -> int:
        return self.keys.whole("attention.head_count")

    @property
    def kv_heads(self) -> int:
        return self.keys.whole("attention.head_count_kv", self.heads)

    @property
    def head_dim(self) -> int:
        hidden = self.keys.whole("embedding_length")
        found = self.keys.at_most("attention.key_length", MAX_HEAD, max(hidden // self.heads, 1))
        if self.keys.whole("attention.value_length", found) != found:
            raise self.keys.wrong("attention.value_length", f"as attention.key_length, {found}")
        return found

    @property
    def window(self) -> int | None:
        """How many keys a query sees."""
        return self.keys.count("attention.sliding_window", MAX_SIZE) or None

    @property
    def num_experts(self) -> int:
        """Of a layer; 0 where it has none."""
        return self.keys.count("expert_count", MAX_EXPERTS)

    def config(self) -> dict[str, Any]:
        """What config.json says."""
        whole = self.keys.whole
        found = {
            "architectures": [self.model_class],
            "model_type": self.model_type,
            "dtype": "bfloat16",
            "vocab_size": self.vocab_size(),
            "hidden_size": whole("embedding_length"),
            "intermediate_size": self.inner_size(),
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": whole("context_length"),
            "rms_norm_eps": self.keys.number("attention.layer_norm_rms_epsilon"),
            "tie_word_embeddings": not self.has("output.weight"),
            "rope_parameters": self.rotation(),
        }
        return {key: value for key, value in (found | self.own_config()).items() if value is not None or key in NULLS}

    def own_config(self) -> dict[str, Any]:
        """What this architecture has beyond that, or otherwise."""
        return {}

    def experts_config(self) -> dict[str, Any]:
        """For the families whose experts are as wide as `intermediate_size`."""
        return {
            "num_local_experts": self.num_experts,
            "num_experts_per_tok": self.keys.whole("expert_used_count"),
        }

    def rotation(self) -> dict[str, Any]:
        """`rope_parameters` in config.json."""
        return rotation(self.keys, self.head_dim, self.theta)

    def inner_size(self) -> int:
        return self.keys.whole("feed_forward_length")

    def vocab_size(self) -> int:
        embedding = self.file.tensors.get("token_embd.weight")
        if embedding is None:
            raise ModelError(f"{self.file.file} has no tensor token_embd.weight, so it is no language model.")
        return embedding.info.shape[0]

    def parts(self) -> dict[str, Part]:
        """The file's tensors by the names that the engine looks for; those that it has no name for as they are."""
        return {name: part for tensor in self.file.tensors for name, part in self.parts_of(tensor)}

    def parts_of(self, tensor: str) -> Iterator[tuple[str, Part]]:
        """Each of the engine's tensors that is in this one."""
        stem, _, kind = tensor.rpartition(".")
        if stem in TOP:
            yield f"{TOP[stem]}.{kind}", Part(tensor, less=self.norm_offset if stem == "output_norm" else 0.0)
            return
        if not stem.startswith("blk."):
            yield from self.others(tensor)
            return
        layer, _, inner = stem.removeprefix("blk.").partition(".")
        for name, part in self.of_layer(inner, tensor):
            yield f"model.layers.{layer}.{name}.{kind}", part

    def others(self, tensor: str) -> Iterator[tuple[str, Part]]:
        """Of no layer. The factors of a rotation are in config.json."""
        if not tensor.startswith("rope_f"):
            yield tensor, Part(tensor)

    def of_layer(self, inner: str, tensor: str) -> Iterator[tuple[str, Part]]:
        """inner: the tensor's name within its layer, without `.weight`."""
        if inner in self.norms or inner in ("attn_q_norm", "attn_k_norm"):
            yield {**self.norms, **ATTENTION}[inner], Part(tensor, less=self.norm_offset)
        elif inner in EXPERTS:
            for expert in range(self.num_experts):
                yield f"mlp.experts.{expert}.{EXPERTS[inner]}", Part(tensor, matrix=expert)
        elif inner == "ffn_gate_up_exps":
            size = self.keys.whole("expert_feed_forward_length")
            for expert in range(self.num_experts):
                yield f"mlp.experts.{expert}.gate_proj", Part(tensor, slice(0, size), matrix=expert)
                yield f"mlp.experts.{expert}.up_proj", Part(tensor, slice(size, 2 * size), matrix=expert)
        elif inner == SHARED_GATE:
            yield "mlp.shared_expert_gate", Part(tensor, as_row=True)
        elif inner in ("attn_q", "attn_k") and self.pairs_are_neighbours:
            yield ATTENTION[inner], Part(tensor, heads=self.heads if inner == "attn_q" else self.kv_heads)
        else:
            yield (ATTENTION | MLP | SHARED_EXPERT).get(inner, inner), Part(tensor)
