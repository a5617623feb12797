"""A target of Ernie 4.5 with experts and the block in its checkpoint that predicts further tokens, and that block in
plain torch, of transformers' own layer; float32, no cache, no batch.

Tensors have the names of the public checkpoints. The block reads pairs (output of the target's last layer p, token
p + 1), and its own output, which the target's final norm follows, takes the place of the former in the next pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from architectures import write_model
from changed_files import change_tensors
from eagle_engines import transformers_target
from safetensors.torch import load_file
from torch.func import functional_call
from transformers.models.ernie4_5_moe.modeling_ernie4_5_moe import Ernie4_5_MoeDecoderLayer

from specserve.models.safetensors_header import SINGLE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    Tensors = dict[str, Tensor]

NAME = "Ernie4_5_MoeForCausalLM"
BLOCK = "model.mtp_block.0."
FC, EMBEDDED, HIDDEN = (f"model.mtp_{name}.0.weight" for name in ("linear_proj", "emb_norm", "hidden_norm"))
DENSE = 0
"""The number of a layer without experts, as the block is."""


def write_target(path: Path, block: Tensors | None = None, **changes: Any) -> Path:
    """A random target with a block, which is random unless it is given."""
    write_model(path, NAME, num_nextn_predict_layers=1, **changes)
    return change_tensors(path, **(random_block(transformers_target(path).config) if block is None else block))


def random_block(config: Any, seed: int = 0) -> Tensors:
    """Norms are around one."""
    H, generator = config.hidden_size, torch.Generator().manual_seed(seed)
    parts = Ernie4_5_MoeDecoderLayer(config, DENSE).state_dict()
    shapes = {FC: (H, 2 * H), EMBEDDED: (H,), HIDDEN: (H,)} | {BLOCK + name: t.shape for name, t in parts.items()}
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator) * (0.3 if len(shape) == 1 else shape[1] ** -0.5)
        tensors[name] = noise + (1.0 if len(shape) == 1 else 0.0)
    return tensors


class Reference:
    """The block of the target in a directory. hidden: [N, H], outputs of the target's last layer or the block's own."""

    def __init__(self, path: Path) -> None:
        self.model = transformers_target(path)
        self.config = self.model.config
        self.layer = Ernie4_5_MoeDecoderLayer(self.config, DENSE).eval()
        self.weights = {name: tensor for name, tensor in load_file(path / SINGLE).items() if "mtp_" in name}

    def __call__(self, hidden: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """tokens: [N], those behind the hidden states. Own hidden states [N, H], logits [N, V]."""
        pair = self.norm(self.model.model.embed_tokens(tokens), EMBEDDED), self.norm(hidden, HIDDEN)
        x = F.linear(torch.cat(pair, -1), self.weights[FC])
        N = len(tokens)
        given = {
            "attention_mask": torch.full((N, N), float("-inf")).triu(1)[None, None],
            "position_embeddings": self.model.model.rotary_emb(x[None], torch.arange(N)[None]),
        }
        block = {name.removeprefix(BLOCK): t for name, t in self.weights.items() if name.startswith(BLOCK)}
        own = functional_call(self.layer, block, (x[None],), given)[0]
        return own, self.model.lm_head(self.model.model.norm(own))

    def norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weights[name], self.config.rms_norm_eps)

    def hidden(self, tokens: Sequence[int]) -> Tensor:
        """[N, H], outputs of the target's last layer."""
        found: list[Tensor] = []
        hook = self.model.model.layers[-1].register_forward_hook(lambda _, given, made: found.append(made))
        with torch.inference_mode():
            self.model(torch.tensor([tokens]))
        hook.remove()
        return found[0].view(len(tokens), -1)
