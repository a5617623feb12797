"""Phi 3 and Phi 4 (mini): the matrices of queries, keys and values are one, and those of the MLP's inputs, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve_gguf.architectures.architecture import ATTENTION, Architecture
from specserve_gguf.architectures.rotation import ORIGINAL, numbers
from specserve_gguf.parts import Part

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"


class Phi3(Architecture):
    name = "phi3"
    model_type = "phi3"
    model_class = "Phi3ForCausalLM"

    def own_config(self) -> dict[str, Any]:
        return {"sliding_window": self.window}

    def rotation(self) -> dict[str, Any]:
        found = super().rotation()
        if not self.has(LONG) or not self.has(SHORT):
            return found
        original = self.keys.whole(ORIGINAL)
        factors = {"short_factor": numbers(self.file, SHORT), "long_factor": numbers(self.file, LONG)}
        given = self.keys.value("rope.scaling.attn_factor") is not None
        scale = {"attention_factor": self.keys.number("rope.scaling.attn_factor")} if given else {}
        return found | {"rope_type": "longrope", "original_max_position_embeddings": original} | factors | scale

    def of_layer(self, inner: str, tensor: str) -> Iterator[tuple[str, Part]]:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        if inner == "attn_qkv":
            begin = 0
            for name, count in (("attn_q", queries), ("attn_k", keys), ("attn_v", keys)):
                yield ATTENTION[name], Part(tensor, slice(begin, begin + count))
                begin += count
        elif inner == "ffn_up":
            size = self.inner_size()
            yield "mlp.gate_proj", Part(tensor, slice(0, size))
            yield "mlp.up_proj", Part(tensor, slice(size, 2 * size))
        else:
            yield from super().of_layer(inner, tensor)
