"""Small random block heads in the public layouts, and their drafts by a plain torch implementation.

The reference computes every block from nothing: keys and values of all committed tokens, and of the block, at their own
positions, without a cache.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from toy_heads import HEAD_DIM, HEADS, INNER, KV_HEADS, SIZES, D, H, V, reduced_vocabulary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    Tensors = dict[str, Tensor]

BLOCK, MASK, RANK, LAYERS, READS = 5, 63, 6, 2, (0, 1)
"""READS: the target's layers whose outputs are read, counted from 0."""
EPS, THETA = 1e-5, 10000.0
SHAPE: dict[str, Any] = SIZES | {"num_hidden_layers": LAYERS, "model_type": "qwen3"}
DFLASH = SHAPE | {
    "architectures": ["DFlashDraftModel"],
    "block_size": BLOCK,
    "num_target_layers": 2,
    "dflash_config": {"mask_token_id": MASK, "target_layer_ids": list(READS)},
}
MARKOV = {"markov_rank": RANK, "markov_head_type": "vanilla", "mask_token_id": MASK, "block_size": BLOCK}
DSPARK = (
    SHAPE
    | MARKOV
    | {
        "architectures": ["DSparkDraftModel"],
        "target_layer_ids": list(READS),
        "sample_from_anchor": True,
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
    }
)
SPECULATORS = MARKOV | {
    "architectures": ["DSparkSpeculator"],
    "speculators_model_type": "dspark",
    "transformer_layer_config": SHAPE,
    "aux_hidden_state_layer_ids": [1, 2],
    "sample_from_anchor": False,
    "draft_vocab_size": D,
}
FORMS = {"dflash": DFLASH, "dspark": DSPARK, "speculators": SPECULATORS}
STATEFUL = {kind: DSPARK | {"markov_head_type": kind} for kind in ("gated", "rnn")}
"""Markov heads that read the state of a place, too."""
ALL_FORMS: dict[str, dict[str, Any]] = FORMS | STATEFUL


def random_block_head(form: str, seed: int = 0, head_dim: int = HEAD_DIM) -> Tensors:
    """Tensors by the names of a file. `head_dim`: of as many numbers of all heads together."""
    generator = torch.Generator().manual_seed(seed)

    def weight(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator).div(columns**0.5)

    def norm(size: int) -> Tensor:
        return 1 + 0.2 * torch.randn(size, generator=generator)

    head = {"fc.weight": weight(H, len(READS) * H), "hidden_norm.weight": norm(H), "norm.weight": norm(H)}
    for layer in range(LAYERS):
        parts = {
            "input_layernorm": norm(H),
            "post_attention_layernorm": norm(H),
            "self_attn.q_proj": weight(HEADS * HEAD_DIM, H),
            "self_attn.k_proj": weight(KV_HEADS * HEAD_DIM, H),
            "self_attn.v_proj": weight(KV_HEADS * HEAD_DIM, H),
            "self_attn.o_proj": weight(H, HEADS * HEAD_DIM),
            "self_attn.q_norm": norm(head_dim),
            "self_attn.k_norm": norm(head_dim),
            "mlp.gate_proj": weight(INNER, H),
            "mlp.up_proj": weight(INNER, H),
            "mlp.down_proj": weight(H, INNER),
        }
        head |= {f"layers.{layer}.{name}.weight": tensor for name, tensor in parts.items()}
    if form == "dflash":
        return head
    reduced = form == "speculators"
    head |= {"markov_head.markov_w1.weight": weight(V, RANK)}
    head |= {"markov_head.markov_w2.weight": 3 * weight(D if reduced else V, RANK)}
    if form in STATEFUL:
        name, rows, columns = (
            ("gate_proj", RANK, H + RANK) if form == "gated" else ("joint_proj", 3 * RANK, 2 * RANK + H)
        )
        head |= {
            f"markov_head.{name}.weight": 2 * weight(rows, columns),
            f"markov_head.{name}.bias": weight(1, rows)[0],
        }
    if reduced:
        tables = reduced_vocabulary(weight(D, H))
        head |= {"lm_head.weight": tables["lm_head"], "d2t": tables["d2t"], "t2d": tables["t2d"]}
    else:
        head |= {"confidence_head.proj.weight": weight(1, H + RANK), "confidence_head.proj.bias": torch.zeros(1)}
    return head


def write_block_head(path: Path, form: str, head: Tensors | None = None, **changes: Any) -> Path:
    """The head in directory `path`; `changes` are keys of config.json."""
    path.mkdir(parents=True, exist_ok=True)
    tensors = random_block_head(form, head_dim=changes.get("head_dim", HEAD_DIM)) if head is None else head
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(ALL_FORMS[form] | changes))
    return path


class Reference:
    """Greedy blocks of a head in float32. `target`: transformers' model; `windows`: of each layer."""

    def __init__(
        self,
        form: str,
        head: Tensors,
        target: Any,
        *,
        windows: Sequence[int | None] = (None,) * LAYERS,
        is_causal: bool = False,
    ) -> None:
        self.form, self.head, self.target, self.windows, self.is_causal = form, head, target, windows, is_causal
        self.from_first = bool(ALL_FORMS[form].get("sample_from_anchor"))

    def block(self, tokens: Sequence[int]) -> tuple[list[int], list[float]]:
        """The draft tokens after these, of which the target has computed all but the last one; and how likely each is
        accepted if those before it are."""
        last, chosen, sure, memory = tokens[-1], [], [], torch.zeros(RANK)
        for row, state in zip(*self.logits(tokens), strict=True):
            ((last, probability),), memory = self.best(row, state, last, memory, 1)
            chosen.append(last)
            sure.append(probability)
        return chosen, sure

    def best(
        self, row: Tensor, state: Tensor, last: int, memory: Tensor, count: int
    ) -> tuple[list[tuple[int, float]], Tensor]:
        """The likeliest tokens of a place behind token `last`, and the memory of the next place."""
        scores, entry = row, None
        if "markov_head.markov_w1.weight" in self.head:
            entry = self.head["markov_head.markov_w1.weight"][last]
            read, memory = self.markov(entry, state, memory)
            scores = row + self.head["markov_head.markov_w2.weight"] @ read
        values, tokens = scores.softmax(-1).topk(count)
        found = [token + int(self.head["d2t"][token]) if "d2t" in self.head else token for token in tokens.tolist()]
        if "confidence_head.proj.weight" in self.head:
            logit = self.linear("confidence_head.proj", torch.cat((state, entry)))
            sure, first = float(logit.sigmoid()), float(values[0])
            values = values * min(sure / first, (1 - sure) / (1 - first))
            values[0] = sure
        return list(zip(found, values.tolist(), strict=True)), memory

    def markov(self, entry: Tensor, state: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """What is read of a token's entry, and what goes on to the next place."""
        if self.form == "gated":
            gates = self.linear("markov_head.gate_proj", torch.cat((state, entry)))
            return gates.sigmoid() * entry, memory
        if self.form == "rnn":
            made = self.linear("markov_head.joint_proj", torch.cat((memory, entry, state)))
            gates = made[:RANK].sigmoid()
            return made[2 * RANK :].tanh(), gates * memory + (1 - gates) * made[RANK : 2 * RANK].tanh()
        return entry, memory

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.head[f"{name}.weight"], self.head[f"{name}.bias"])

    def logits(self, tokens: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Of the rows that propose, and what the output head reads: [n, D], [n, H]."""
        head, n = self.head, len(tokens) - 1
        outputs = self.target(torch.tensor([tokens[:-1]]), output_hidden_states=True).hidden_states
        # transformers' last hidden state is behind the final norm: the layer's own output is asked of the layer
        states = [outputs[layer + 1][0] for layer in READS[:-1]] + [self.last_output(tokens[:-1])]
        context = norm(torch.cat(states, -1) @ head["fc.weight"].T, head["hidden_norm.weight"])
        x = self.target.get_input_embeddings().weight[[tokens[-1], *[MASK] * (BLOCK - 1)]]
        for layer in range(LAYERS):
            x = self.layer(layer, x, context, torch.arange(n), torch.arange(n, n + BLOCK))
        x = norm(x, head["norm.weight"])
        table = head.get("lm_head.weight", self.target.get_output_embeddings().weight)
        first = 0 if self.from_first else 1
        return (x @ table.T)[first:], x[first:]

    def last_output(self, tokens: Sequence[int]) -> Tensor:
        found: list[Tensor] = []
        hook = self.target.model.layers[READS[-1]].register_forward_hook(
            lambda module, given, made: found.append(made if isinstance(made, torch.Tensor) else made[0])
        )
        self.target(torch.tensor([tokens]))
        hook.remove()
        return found[0].reshape(len(tokens), -1)

    def hidden_keys(self, layer: int, queries: Tensor, keys: Tensor) -> Tensor:
        """Positions of both -> [queries, keys]."""
        window, after = self.windows[layer], keys[None] > queries[:, None]
        hidden = after if self.is_causal else torch.zeros_like(after)
        return hidden if window is None else hidden | (keys[None] <= queries[:, None] - window)

    def layer(self, layer: int, x: Tensor, context: Tensor, before: Tensor, at: Tensor) -> Tensor:
        prefix = f"layers.{layer}."

        def part(name: str, rows: Tensor, of: Tensor | None = None) -> Tensor:
            heads = (rows @ self.head[f"{prefix}self_attn.{name}_proj.weight"].T).unflatten(-1, (-1, HEAD_DIM))
            weight = self.head.get(f"{prefix}self_attn.{name}_norm.weight")
            return heads if of is None else rotated(norm(heads, weight), of)

        h = norm(x, self.head[f"{prefix}input_layernorm.weight"])
        keys = torch.cat((part("k", context, before), part("k", h, at)))
        values = torch.cat((part("v", context), part("v", h)))
        queries = part("q", h, at)
        group = queries.shape[1] // keys.shape[1]
        scores = torch.einsum("qhd,khd->hqk", queries, keys.repeat_interleave(group, 1)) / HEAD_DIM**0.5
        scores = scores.masked_fill(self.hidden_keys(layer, at, torch.cat((before, at))), float("-inf"))
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values.repeat_interleave(group, 1)).flatten(1)
        x = x + mixed @ self.head[f"{prefix}self_attn.o_proj.weight"].T
        h = norm(x, self.head[f"{prefix}post_attention_layernorm.weight"])
        inner = F.silu(h @ self.head[f"{prefix}mlp.gate_proj.weight"].T) * (
            h @ self.head[f"{prefix}mlp.up_proj.weight"].T
        )
        return x + inner @ self.head[f"{prefix}mlp.down_proj.weight"].T


def norm(x: Tensor, weight: Tensor | None) -> Tensor:
    assert weight is not None
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """x: [n, heads, d]."""
    half = HEAD_DIM // 2
    angles = positions[:, None, None] * THETA ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)
