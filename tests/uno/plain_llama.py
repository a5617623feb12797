"""A Llama in plain torch, each row with an adapter of its own: what drafts are compared with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

import torch
from safetensors.torch import load_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor


Pairs: TypeAlias = "dict[str, tuple[Tensor, Tensor]]"
"""down and up of each module."""


class PlainLlama:
    """Letters: T rows, H heads, K key heads, d head size."""

    def __init__(self, path: Path) -> None:
        self.config = json.loads((path / "config.json").read_text())
        self.weights = load_file(path / "model.safetensors")
        self.adapters: dict[Path, Pairs] = {}

    def load(self, adapter: Path) -> Pairs:
        """Read once."""
        if adapter not in self.adapters:
            self.adapters[adapter] = load_adapter(adapter)
        return self.adapters[adapter]

    def logits(
        self, tokens: Sequence[int], adapters: Sequence[Path | None], places: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """[T, V]: of the token behind each. adapters: the directory of each row's. places: positions [T], and which
        rows each row sees [T, T]; None: those before it."""
        count = len(tokens)
        positions, sees = places or (torch.arange(count), torch.ones(count, count, dtype=torch.bool).tril())
        low_rank = [(adapter, self.load(adapter)) for adapter in {*adapters} if adapter is not None]
        rows = {adapter: torch.tensor([each == adapter for each in adapters])[:, None] for adapter, _ in low_rank}

        def linear(name: str, x: Tensor) -> Tensor:
            out = x @ self.weights[f"{name}.weight"].T
            for adapter, pairs in low_rank:
                down, up = pairs[name]
                out = out + rows[adapter] * (x @ down.T @ up.T)
            return out

        x = self.weights["model.embed_tokens.weight"][list(tokens)]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            normed = self.normed(x, f"{name}.input_layernorm")
            q, k, v = (linear(f"{name}.self_attn.{part}_proj", normed) for part in "qkv")
            x = x + linear(f"{name}.self_attn.o_proj", self.attended(q, k, v, positions, sees))
            normed = self.normed(x, f"{name}.post_attention_layernorm")
            gate, up = (linear(f"{name}.mlp.{part}_proj", normed) for part in ("gate", "up"))
            x = x + linear(f"{name}.mlp.down_proj", torch.nn.functional.silu(gate) * up)
        head = self.weights.get("lm_head.weight", self.weights["model.embed_tokens.weight"])
        return self.normed(x, "model.norm") @ head.T

    def normed(self, x: Tensor, name: str) -> Tensor:
        eps = self.config["rms_norm_eps"]
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * self.weights[f"{name}.weight"]

    def attended(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, sees: Tensor) -> Tensor:
        """q: [T, H d]; k, v: [T, K d]."""
        count, heads, key_heads = len(q), self.config["num_attention_heads"], self.config["num_key_value_heads"]
        queries = self.rotated(q.view(count, heads, -1), positions)
        keys = self.rotated(k.view(count, key_heads, -1), positions)
        out = torch.nn.functional.scaled_dot_product_attention(
            queries.transpose(0, 1)[None], keys.transpose(0, 1)[None],
            v.view(count, key_heads, -1).transpose(0, 1)[None], attn_mask=sees, enable_gqa=True,
        )  # fmt: skip
        return out[0].transpose(0, 1).reshape(count, -1)

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: [T, heads, d]."""
        size = x.shape[-1]
        frequencies = self.config["rope_theta"] ** -(torch.arange(0, size, 2) / size)
        angles = (positions[:, None] * frequencies)[:, None]
        first, second = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def load_adapter(path: Path) -> Pairs:
    """The scaling of the adapters in these tests is 1."""
    tensors = load_file(path / "adapter_model.safetensors")
    names = {name.removeprefix("base_model.model.").rpartition(".lora_")[0] for name in tensors}
    return {
        name: tuple(tensors[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")  # type: ignore[misc]
        for name in names
    }
