"""A draft adapter that has learned what a toy target answers to a few prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from plain_llama import PlainLlama

from draft_adapters import BLOCK, UNO_CONFIG, write_draft_adapter
from specserve_lora.uno.noise import noise_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

RATE = 1e-2


def train_adapter(path: Path, target: Path, texts: Sequence[tuple[int, Sequence[int]]], steps: int) -> Path:
    """texts: prompt lengths, and prompts with their answers. Random tokens behind every token of an answer learn what
    comes at their places."""
    rank = 16
    start = write_draft_adapter(path, target, rank=rank, lora_alpha=rank, size=1e-3)
    llama = PlainLlama(target)
    pairs = llama.load(start)
    weights = [part.requires_grad_() for pair in pairs.values() for part in pair]
    optimizer = torch.optim.Adam(weights, lr=RATE)
    for _ in range(steps):
        torch.stack([loss_of(llama, start, *text) for text in texts]).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    learned = {
        f"base_model.model.{name}.lora_{part}.weight": weight.detach()
        for name, pair in pairs.items()
        for part, weight in zip("AB", pair, strict=True)
    }
    return write_draft_adapter(path, target, rank=rank, lora_alpha=rank, tensors=learned)


def loss_of(llama: PlainLlama, adapter: Path, prompt_len: int, tokens: Sequence[int]) -> Tensor:
    count, width = len(tokens), BLOCK - 1
    anchors = range(prompt_len + 1, count - width)
    noise = [token for at in anchors for token in noise_tokens(at, width, UNO_CONFIG["mask_token_id"])]
    right = torch.tensor([token for at in anchors for token in tokens[at + 1 : at + 1 + width]])
    positions = torch.tensor([*range(count), *(at + i for at in anchors for i in range(width))])
    block = torch.tensor([-1] * count + [at for at in anchors for _ in range(width)])
    sees = (positions[:, None] >= positions) & ((block == -1) | (block == block[:, None]))
    sees &= (block[:, None] == -1) | (block != -1) | (positions < block[:, None])
    adapters = [None] * count + [adapter] * len(noise)
    logits = llama.logits([*tokens, *noise], adapters, (positions, sees))
    return torch.nn.functional.cross_entropy(logits[count:], right)
