"""Targets of families glm4_moe and mimo with the block that predicts further tokens in the same file, and that block in
plain torch; float32, no cache, no batch.

Tensors have the names of the public checkpoints. The block reads pairs (hidden state p behind the target's final norm,
token p + 1), of which the i-th has position i, and feeds back its own output behind its norm.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from changed_files import change_json, change_tensors
from safetensors.torch import load_file

from mtp_blocks import mlp_shapes
from specserve.models.safetensors_header import SINGLE
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    Tensors = dict[str, Tensor]

LAYERS = 2
"""Of the targets."""


class Names(NamedTuple):
    """What a family's checkpoints call the parts of the block."""

    prefix: str
    fc: str
    enorm: str
    hnorm: str
    norm: str
    hidden_first: bool = False


NAMES = {
    "glm4_moe": Names(f"model.layers.{LAYERS}.", "eh_proj", "enorm", "hnorm", "shared_head.norm"),
    "mimo": Names(
        "model.mtp_layers.0.", "input_proj", "token_layernorm", "hidden_layernorm", "final_layernorm", hidden_first=True
    ),
}
SCORES = "mlp.gate.e_score_correction_bias"
COPIES = {"embed_tokens": "model.embed_tokens", "shared_head.head": "lm_head"}
"""GLM's block has the target's embedding and head once more."""


def write_target(path: Path, family: str, block: Tensors | None = None, **changes: Any) -> Path:
    """A random target with a block, which is random unless it is given."""
    write_checkpoint(path, architecture=family, num_hidden_layers=LAYERS, num_nextn_predict_layers=1, **changes)
    tensors = random_block(raw_of(path)) if block is None else block
    if family == "glm4_moe":
        held = load_file(path / SINGLE)
        copies = {f"{NAMES[family].prefix}{ours}.weight": held[f"{theirs}.weight"] for ours, theirs in COPIES.items()}
        tensors = copies | tensors
    return change_tensors(path, **tensors)


def as_qwen2(path: Path) -> Path:
    """transformers' class for a MiMo, without its block."""
    change_json(path / "config.json", architectures=["Qwen2ForCausalLM"], model_type="qwen2")
    return change_tensors(path, **dict.fromkeys(name for name in load_file(path / SINGLE) if "mtp_layers" in name))


def raw_of(path: Path) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads((path / "config.json").read_text())
    return raw


def shapes_of(raw: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    H, d, names = raw["hidden_size"], raw["head_dim"], NAMES[raw["model_type"]]
    queries, keys = raw["num_attention_heads"] * d, raw["num_key_value_heads"] * d
    maps = {"self_attn.q_proj": (queries, H), "self_attn.k_proj": (keys, H), "self_attn.v_proj": (keys, H)}
    biases = {f"{name}.bias": shape[:1] for name, shape in maps.items()}
    maps |= {"self_attn.o_proj": (H, queries), names.fc: (H, 2 * H)}
    norms = dict.fromkeys((names.enorm, names.hnorm, names.norm, "input_layernorm", "post_attention_layernorm"), (H,))
    if raw["model_type"] == "mimo":
        maps |= mlp_shapes("mlp", H, raw["intermediate_size"])
    else:
        count, inner = raw["n_routed_experts"], raw["moe_intermediate_size"]
        maps |= {"mlp.gate": (count, H)} | mlp_shapes("mlp.shared_experts", H, inner)
        for expert in range(count):
            maps |= mlp_shapes(f"mlp.experts.{expert}", H, inner)
        biases[SCORES] = (count,)
    weights = {f"{name}.weight": shape for name, shape in (maps | norms).items()}
    return {names.prefix + name: shape for name, shape in (weights | biases).items()}


def random_block(raw: dict[str, Any], seed: int = 0) -> Tensors:
    """Norms are around one, biases around zero."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes_of(raw).items():
        noise = torch.randn(shape, generator=generator) * (0.3 if len(shape) == 1 else shape[1] ** -0.5)
        tensors[name] = noise + (1.0 if "norm.weight" in name else 0.0)
    return tensors


class Reference:
    """The block of the target in a directory. hidden: [N, H] behind the target's final norm, or the block's own."""

    def __init__(self, path: Path) -> None:
        tensors = load_file(path / SINGLE)
        self.raw = raw_of(path)
        self.names = NAMES[self.raw["model_type"]]
        prefix = self.names.prefix
        block = {name: t.float() for name, t in tensors.items() if name.startswith(prefix)}
        self.weights = {n: t for n, t in block.items() if not n.removeprefix(prefix).startswith((*COPIES,))}
        self.embedding = tensors["model.embed_tokens.weight"].float()
        self.head = tensors["lm_head.weight"].float()

    def tensor(self, name: str) -> Tensor:
        return self.weights[self.names.prefix + name]

    def norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.tensor(f"{name}.weight"), self.raw["rms_norm_eps"])

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.tensor(f"{name}.weight"), self.weights.get(f"{self.names.prefix}{name}.bias"))

    def __call__(self, hidden: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """tokens: [N], those behind the hidden states. Own hidden states [N, H], logits [N, V]."""
        names = self.names
        pair = self.norm(self.embedding[tokens], names.enorm), self.norm(hidden, names.hnorm)
        x = self.linear(torch.cat(pair[::-1] if names.hidden_first else pair, -1), names.fc)
        x = x + self.attention(self.norm(x, "input_layernorm"))
        y = self.norm(x, "post_attention_layernorm")
        own = self.norm(x + (self.experts(y) if "n_routed_experts" in self.raw else self.mlp(y, "mlp")), names.norm)
        return own, own @ self.head.T

    def mlp(self, x: Tensor, block: str) -> Tensor:
        gate, up = (self.linear(x, f"{block}.{name}_proj") for name in ("gate", "up"))
        return self.linear(F.silu(gate) * up, f"{block}.down_proj")

    def experts(self, x: Tensor) -> Tensor:
        """The scores of those that are chosen by scores and biases, of sum one, times a factor; and the shared one."""
        scores = self.linear(x, "mlp.gate").sigmoid()
        chosen = (scores + self.tensor(SCORES)).topk(self.raw["num_experts_per_tok"]).indices
        weights = scores.gather(1, chosen)
        weights = weights / weights.sum(-1, keepdim=True) * self.raw["routed_scaling_factor"]
        out = self.mlp(x, "mlp.shared_experts")
        for expert in range(self.raw["n_routed_experts"]):
            share = (weights * (chosen == expert)).sum(-1, keepdim=True)
            out = out + share * self.mlp(x, f"mlp.experts.{expert}")
        return out

    def attention(self, x: Tensor) -> Tensor:
        heads, d, N = self.raw["num_attention_heads"], self.raw["head_dim"], len(x)
        q, k, v = (self.linear(x, f"self_attn.{name}_proj").view(N, -1, d) for name in "qkv")
        k, v = (each.repeat_interleave(heads // each.shape[1], 1) for each in (self.rotated(k), v))
        scores = torch.einsum("nhd,mhd->hnm", self.rotated(q), k) * d**-0.5
        scores = scores.masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), float("-inf"))
        return self.linear(torch.einsum("hnm,mhd->nhd", scores.softmax(-1), v).flatten(1), "self_attn.o_proj")

    def rotated(self, x: Tensor) -> Tensor:
        """The first part of each head, whose halves make pairs; all of it in a MiMo."""
        size = int(x.shape[-1] * self.raw.get("partial_rotary_factor", 1.0))
        speeds = self.raw["rope_theta"] ** (-torch.arange(0, size, 2) / size)
        angles = torch.arange(len(x))[:, None, None] * speeds
        first, second = x[..., :size].chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin, x[..., size:]), -1)
