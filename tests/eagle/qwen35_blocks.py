"""Targets of family qwen3_5_text with the block that predicts further tokens in the same file, and that block in plain
torch; float32, no cache, no batch.

Tensors have the names of the public checkpoints. The block reads pairs (hidden state p behind the target's final norm,
token p + 1), of which the i-th has position i, as in vLLM's qwen3_5_mtp and SGLang's; [embedding ; hidden state] is the
order of `fc`; it feeds back its own output behind `mtp.norm`; every norm multiplies by 1 + its weight.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from changed_files import change_json, change_tensors
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from mtp_blocks import LAYER, random_block, with_stacks
from specserve.models.safetensors_header import SINGLE
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    Tensors = dict[str, Tensor]

SHAPE = {"num_hidden_layers": 4, "mtp_num_hidden_layers": 1, "attn_output_gate": True}


def write_target(path: Path, block: Tensors | None = None, **changes: Any) -> Path:
    """A random target with a block, which is random unless it is given."""
    write_checkpoint(path, **(SHAPE | {"architecture": "qwen3_5_text"} | changes))
    return change_tensors(path, **(random_block(raw_of(path)) if block is None else block))


def with_stacked_experts(path: Path) -> Path:
    """The target with its block's experts as two stacks of matrices."""
    held = load_file(path / SINGLE)
    gone = dict.fromkeys(name for name in held if name.startswith(f"{LAYER}mlp.experts."))
    block = {name: tensor for name, tensor in held.items() if name.startswith("mtp.")}
    return change_tensors(path, **(gone | with_stacks(block, raw_of(path)["num_experts"])))


def write_reading_target(path: Path, target: Path) -> Path:
    """The same in the form of checkpoints that also read images."""
    raw = raw_of(target)
    tensors = load_file(target / SINGLE)
    renamed = {
        name.replace("model.", "model.language_model.", 1): t for name, t in tensors.items() if "mtp." not in name
    }
    renamed |= {name: tensor for name, tensor in tensors.items() if name.startswith(("mtp.", "lm_head."))}
    path.mkdir()
    for file in target.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    named = [name.replace("ForCausalLM", "ForConditionalGeneration") for name in raw["architectures"]]
    outer = {"architectures": named, "model_type": "qwen3_5", "vision_config": {}}
    outer |= {"tie_word_embeddings": raw["tie_word_embeddings"], "eos_token_id": raw["eos_token_id"]}
    inner = {key: value for key, value in raw.items() if key != "architectures"}
    (path / "config.json").write_text(json.dumps(outer | {"text_config": inner}))
    none = dict.fromkeys(set(tensors) - set(renamed))
    return change_tensors(path, **none, **renamed, **{"model.visual.blocks.0.norm1.weight": torch.ones(4)})


def write_saved_target(path: Path) -> Path:
    """A target that transformers makes and saves, to whose file a block is added."""
    made = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(write_target(path)))
    for parameter in made.parameters():
        parameter.data.mul_(3)
    made.save_pretrained(path)
    return change_tensors(path, **random_block(raw_of(path), seed=3))


def raw_of(path: Path) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads((path / "config.json").read_text())
    return raw


def change_config(path: Path, **changes: Any) -> Path:
    change_json(path / "config.json", **changes)
    return path


class Reference:
    """The block of the target in a directory. hidden: [N, H] behind the target's final norm, or the block's own."""

    def __init__(self, path: Path) -> None:
        tensors = load_file(path / SINGLE)
        self.raw = raw_of(path)
        self.rope = self.raw.get("rope_parameters") or self.raw
        self.weights = {name: t.float() for name, t in tensors.items() if name.startswith("mtp.")}
        self.embedding = tensors["model.embed_tokens.weight"].float()
        self.head = tensors.get("lm_head.weight", self.embedding).float()

    def norm(self, x: Tensor, name: str) -> Tensor:
        scale = (x.square().mean(-1, keepdim=True) + self.raw["rms_norm_eps"]).rsqrt()
        return x * scale * (1 + self.weights[f"{name}.weight"])

    def linear(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weights[f"{LAYER}{name}.weight"].T

    def __call__(self, hidden: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """tokens: [N], those behind the hidden states. Own hidden states [N, H], logits [N, V]."""
        pair = (
            self.norm(self.embedding[tokens], "mtp.pre_fc_norm_embedding"),
            self.norm(hidden, "mtp.pre_fc_norm_hidden"),
        )
        x = torch.cat(pair, -1) @ self.weights["mtp.fc.weight"].T
        x = x + self.attention(self.norm(x, f"{LAYER}input_layernorm"))
        y = self.norm(x, f"{LAYER}post_attention_layernorm")
        x = x + (self.experts(y) if "num_experts" in self.raw else self.mlp(y, "mlp"))
        own = self.norm(x, "mtp.norm")
        return own, own @ self.head.T

    def mlp(self, x: Tensor, block: str) -> Tensor:
        return self.linear(
            F.silu(self.linear(x, f"{block}.gate_proj")) * self.linear(x, f"{block}.up_proj"), f"{block}.down_proj"
        )

    def experts(self, x: Tensor) -> Tensor:
        """Those with the highest logits, and the shared one, which has a gate."""
        weights, chosen = self.linear(x, "mlp.gate").softmax(-1).topk(self.raw["num_experts_per_tok"])
        weights = weights / weights.sum(-1, keepdim=True)
        out = self.linear(x, "mlp.shared_expert_gate").sigmoid() * self.mlp(x, "mlp.shared_expert")
        for expert in range(self.raw["num_experts"]):
            share = (weights * (chosen == expert)).sum(-1, keepdim=True)
            out = out + share * self.mlp(x, f"mlp.experts.{expert}")
        return out

    def attention(self, x: Tensor) -> Tensor:
        heads, d, N = self.raw["num_attention_heads"], self.raw["head_dim"], len(x)
        q, gate = self.linear(x, "self_attn.q_proj").view(N, heads, 2 * d).chunk(2, -1)
        k, v = (self.linear(x, f"self_attn.{name}_proj").view(N, -1, d) for name in "kv")
        q, k = self.norm(q, f"{LAYER}self_attn.q_norm"), self.norm(k, f"{LAYER}self_attn.k_norm")
        k, v = (each.repeat_interleave(heads // each.shape[1], 1) for each in (self.rotated(k), v))
        scores = torch.einsum("nhd,mhd->hnm", self.rotated(q), k) * d**-0.5
        scores = scores.masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), float("-inf"))
        out = torch.einsum("hnm,mhd->nhd", scores.softmax(-1), v) * gate.sigmoid()
        return self.linear(out.flatten(1), "self_attn.o_proj")

    def rotated(self, x: Tensor) -> Tensor:
        """The first quarter of each head, whose halves make pairs."""
        size = int(x.shape[-1] * self.rope["partial_rotary_factor"])
        speeds = self.rope["rope_theta"] ** (-torch.arange(0, size, 2) / size)
        angles = torch.arange(len(x))[:, None, None] * speeds
        first, second = x[..., :size].chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin, x[..., size:]), -1)
