"""Targets that transformers computes with the block in their checkpoints that predicts further tokens, and that block
in plain torch, of transformers' own layer; float32, no cache, no batch.

Tensors have the names of the public checkpoints. A block reads pairs (hidden state p of the target, token p + 1), and
its own hidden state takes the place of the former in the next pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from architectures import DEEPSEEK, write_model
from changed_files import change_tensors
from eagle_engines import transformers_target
from safetensors.torch import load_file
from torch.func import functional_call
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3DecoderLayer
from transformers.models.ernie4_5_moe.modeling_ernie4_5_moe import Ernie4_5_MoeDecoderLayer
from transformers.models.glm4_moe_lite.modeling_glm4_moe_lite import Glm4MoeLiteDecoderLayer

from specserve.models.safetensors_header import SINGLE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor, nn

    Tensors = dict[str, Tensor]


class Form(NamedTuple):
    """How a family's checkpoints name the parts of the block, and what it is."""

    name: str
    layer: type[nn.Module]
    number: int
    """Of a layer of the target that is made like the block's."""
    prefix: str
    """Of the names of the layer's tensors."""
    fc: str
    embedded: str
    hidden: str
    norm: str | None
    """None: hidden states are outputs of layers, and the target's final norm follows the block."""
    config: dict[str, Any]


GLM = "model.layers.2."
PARTS = tuple(f"{GLM}{name}.weight" for name in ("eh_proj", "enorm", "hnorm", "shared_head.norm"))
ONE_GROUP = DEEPSEEK | {"n_group": 1, "topk_group": 1}
FORMS = {
    "ernie": Form(
        "Ernie4_5_MoeForCausalLM", Ernie4_5_MoeDecoderLayer, 0, "model.mtp_block.0.", "model.mtp_linear_proj.0.weight",
        "model.mtp_emb_norm.0.weight", "model.mtp_hidden_norm.0.weight", None, {},
    ),
    "glm": Form(
        "Glm4MoeLiteForCausalLM", Glm4MoeLiteDecoderLayer, 1, GLM, *PARTS,
        ONE_GROUP | {"v_head_dim": 24, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ),
    "glm with narrow values": Form("Glm4MoeLiteForCausalLM", Glm4MoeLiteDecoderLayer, 1, GLM, *PARTS, ONE_GROUP),
    "deepseek": Form(
        "DeepseekV3ForCausalLM", DeepseekV3DecoderLayer, 1, GLM, *PARTS, ONE_GROUP | {"q_lora_rank": None},
    ),
}  # fmt: skip


def write_target(path: Path, form: Form, block: Tensors | None = None, **changes: Any) -> Path:
    """A random target with a block, which is random unless it is given."""
    write_model(path, form.name, num_nextn_predict_layers=1, **(form.config | changes))
    tensors = random_block(form, transformers_target(path).config) if block is None else block
    return change_tensors(path, **{name: each for item in tensors.items() for name, each in one_by_one(*item)})


def random_block(form: Form, config: Any, seed: int = 0) -> Tensors:
    """Norms are around one, biases around zero."""
    H, generator = config.hidden_size, torch.Generator().manual_seed(seed)
    parts = form.layer(config, form.number).state_dict()
    shapes = {form.prefix + name: t.shape for name, t in parts.items()} | {form.fc: (H, 2 * H)}
    shapes |= {name: (H,) for name in (form.embedded, form.hidden, form.norm) if name is not None}
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator) * (0.3 if len(shape) == 1 else shape[-1] ** -0.5)
        tensors[name] = noise + (1.0 if "norm" in name else 0.0)
    return tensors


def one_by_one(name: str, tensor: Tensor) -> list[tuple[str, Tensor]]:
    """As files have it: experts one by one."""
    block, _, part = name.partition(".experts.")
    if not part or tensor.dim() < len("EIH"):
        return [(name, tensor)]
    names = ("gate_proj", "up_proj") if part == "gate_up_proj" else (part,)
    return [
        (f"{block}.experts.{expert}.{each}.weight", weight.contiguous())
        for expert, weights in enumerate(tensor)
        for each, weight in zip(names, weights.chunk(len(names)), strict=True)
    ]


class Reference:
    """The block of the target in a directory. `weights`: experts stacked, as transformers has them."""

    def __init__(self, form: Form, path: Path) -> None:
        self.form, self.model = form, transformers_target(path)
        self.config = self.model.config
        self.layer = form.layer(self.config, form.number).eval()
        self.layer.self_attn.config._attn_implementation = "eager"
        stored = load_file(path / SINGLE)
        self.weights = {name: stacked(stored, name) for name in random_block(form, self.config)}

    def __call__(self, hidden: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """tokens: [N], those behind the hidden states. Own hidden states [N, H], logits [N, V]."""
        form, base, N = self.form, self.model.model, len(tokens)
        pair = self.norm(base.embed_tokens(tokens), form.embedded), self.norm(hidden, form.hidden)
        x = F.linear(torch.cat(pair, -1), self.weights[form.fc])
        given = {
            "attention_mask": torch.full((N, N), float("-inf")).triu(1)[None, None],
            "position_embeddings": base.rotary_emb(x[None], torch.arange(N)[None]),
        }
        names = (form.fc, form.embedded, form.hidden, form.norm)
        block = {name.removeprefix(form.prefix): t for name, t in self.weights.items() if name not in names}
        own = functional_call(self.layer, block, (x[None],), given)[0]
        if form.norm is None:
            return own, self.model.lm_head(base.norm(own))
        own = self.norm(own, form.norm)
        return own, self.model.lm_head(own)

    def norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weights[name], self.config.rms_norm_eps)

    def hidden(self, tokens: Sequence[int]) -> Tensor:
        """[N, H] of the target."""
        found: list[Tensor] = []
        hook = self.model.model.layers[-1].register_forward_hook(lambda _, given, made: found.append(made))
        with torch.inference_mode():
            self.model(torch.tensor([tokens]))
            hook.remove()
            states = found[0].view(len(tokens), -1)
            return states if self.form.norm is None else self.model.model.norm(states)


def stacked(stored: Tensors, name: str) -> Tensor:
    if name in stored:
        return stored[name]
    block, _, part = name.partition(".experts.")
    names = ("gate_proj", "up_proj") if part == "gate_up_proj" else (part,)
    count = sum(each.startswith(f"{block}.experts.") and each.endswith(f"{names[0]}.weight") for each in stored)
    return torch.stack([
        torch.cat([stored[f"{block}.experts.{expert}.{each}.weight"] for each in names]) for expert in range(count)
    ])  # fmt: skip
