"""The Markov head of a DSpark head as a trainable module: what the tokens before a place add to its logits.

Letters: V the target's vocabulary, D draft vocabulary, H hidden size, r rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from specserve_eagle.block.places import gated, remembered

if TYPE_CHECKING:
    from torch import Tensor

    from specserve_eagle.block.config import MarkovKind


class MarkovHead(nn.Module):
    """A product of two tables, which reads the token before a place: *vanilla*. *gated*: its entry passes gates, which
    read the place's state, too. *rnn*: a memory of the block's earlier tokens is read as well.

    It begins as nothing, and tokens begin as the target's embedding has them, so that what is learnt of one holds for
    those like it. A memory begins as a mean of the entries, and gates half open."""

    def __init__(
        self, embedding: Tensor, hidden_size: int, draft_vocab_size: int, rank: int, kind: MarkovKind = "vanilla"
    ) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(len(embedding), rank)
        self.markov_w1.weight.data.copy_(principal_components(embedding, rank))
        self.markov_w2 = nn.Linear(rank, draft_vocab_size, bias=False)
        nn.init.zeros_(self.markov_w2.weight)
        self.gate_proj = closed(nn.Linear(hidden_size + rank, rank)) if kind == "gated" else None
        self.joint_proj = closed(nn.Linear(2 * rank + hidden_size, 3 * rank)) if kind == "rnn" else None
        if self.joint_proj is not None:
            of_entry = self.joint_proj.weight.data[:, rank : 2 * rank]
            of_entry[rank:].copy_(torch.eye(rank).repeat(2, 1))

    def read(self, entry: Tensor, state: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """entry: [..., r] of the token before the place; state: [..., H]; memory: [..., r] of the place before
        -> what the second table multiplies, and the memory for the next place."""
        if self.gate_proj is not None:
            return gated(self.gate_proj)(entry, state), None
        if self.joint_proj is not None:
            before = torch.zeros_like(entry) if memory is None else memory
            read, after = remembered(self.joint_proj)(entry, state, before).chunk(2, -1)
            return read, after
        return entry, None


def closed(linear: nn.Linear) -> nn.Linear:
    """With zeros alone."""
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


@torch.no_grad()
def principal_components(rows: Tensor, rank: int) -> Tensor:
    """rows: [V, H] -> [V, rank] float32 of standard deviation 1: how rows differ most, and noise beyond H numbers."""
    centred = rows.float() - rows.float().mean(0)
    directions = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, :rank]
    components = centred @ directions
    components = components / components.std().clamp_min(1e-6)
    noise = torch.randn(len(rows), rank - components.shape[1], device=rows.device)
    return torch.cat((components, noise), 1)
