"""Passes of a block head piece by piece: over any kernel set, any attention backend and any sampler.

Every row-wise piece is computed in the kernel set's tiles, so that a row's bits do not depend on its neighbours.
Letters: R rows, H the head's hidden size, W numbers of the target's hidden state, L layers, K key heads, d head size.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec
import torch

from specserve.api import BlockPass, DraftStep, DraftToken, ScoredRow
from specserve.api.batch import to_device
from specserve.api.models import forward_pass, in_tiles
from specserve.api.sampling import choose

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.api import AttentionBackend
    from specserve.api.batch import Batch, Request
    from specserve.api.models import BlockHead, Projection


ROW_TILE = 32
"""Of torch's sigmoids and hyperbolic tangents, the last bits of which depend on where a number lies in its tensor."""


class PiecewiseBlockPass(BlockPass):
    """`specserve.api.BlockPass`."""

    def __init__(self, head: BlockHead, attention: AttentionBackend) -> None:
        self.head, self.attention = head, attention
        decoder = head.decoder
        self.decoder, self.kernels = decoder, decoder.kernels
        self.passes = forward_pass(decoder, decoder.kernels, attention)
        self.in_tiles = partial(in_tiles, decoder.kernels.row_tile)
        self.in_fixed_tiles = partial(in_tiles, decoder.kernels.row_tile or ROW_TILE)

    def step(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], count: int, *, from_target: bool
    ) -> DraftStep:
        assert hidden is not None, "every row reads a hidden state"
        config = self.decoder.config
        shape = (-1, config.num_layers, 2, config.num_kv_heads, config.head_dim)
        made = self.in_tiles(self.keys_values, hidden, batch.positions).view(shape)
        for layer in range(config.num_layers):
            keys, values = made[:, layer].unbind(1)
            self.attention.write(layer, keys.contiguous(), values.contiguous(), batch)
        return DraftStep([[] for _ in rows], None)

    def keys_values(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """hidden: [R, W]; positions: [R] int64 -> [R, 2 L K d], the keys normed and rotated."""
        head, config = self.head, self.decoder.config
        context = self.kernels.rms_norm(head.fc(hidden), head.hidden_norm, config.norm_eps)
        made = head.keys_values(context).view(-1, config.num_layers, 2, config.num_kv_heads, config.head_dim)
        made = made.clone()
        for layer, rotation in enumerate(self.decoder.rotations(positions)):
            norm = self.decoder.layers[layer].k_norm
            assert norm is not None
            assert rotation is not None
            keys = self.decoder.normed_heads(made[:, layer, 0].contiguous(), norm)
            made[:, layer, 0] = self.kernels.rotary(keys, rotation.cos, rotation.sin)
        return made.flatten(1)

    def draft(
        self, committed: Batch, hidden: Tensor, blocks: Batch, requests: Sequence[Request], wanted: Sequence[int]
    ) -> list[list[DraftToken]]:
        self.step(committed, hidden, [], 1, from_target=True)
        places = [
            offset + self.head.first_proposing + i
            for offset, count in zip(blocks.row_offsets, wanted, strict=True)
            for i in range(count)
        ]
        scored = to_device(places, self.decoder.device)
        batch = msgspec.structs.replace(blocks, scored_rows=scored, num_scored=len(places))
        x = self.passes.layers(self.passes.embed(batch), batch, self.attention.plan(batch))
        states = None
        if self.reads_states:
            rows = x[: batch.num_rows].index_select(0, scored)
            states = self.in_tiles(lambda part: self.decoder.normed(part, self.decoder.final_norm), rows)
        logits = self.passes.logits(x, batch)
        return self.choose_chains(logits, states, requests, wanted)

    @property
    def reads_states(self) -> bool:
        """Whether the Markov head or the confidence head does."""
        markov = self.head.markov
        return self.head.confidence is not None or (markov is not None and markov.reads_state)

    def choose_chains(
        self, logits: Tensor, states: Tensor | None, requests: Sequence[Request], counts: Sequence[int]
    ) -> list[list[DraftToken]]:
        """logits: [n, D], counts[i] rows of each request; states: [n, H] of the same rows, where they are read."""
        chains: list[list[DraftToken]] = [[] for _ in requests]
        firsts = list(accumulate(counts, initial=0))
        going = [i for i, count in enumerate(counts) if count]
        memory: Tensor | None = None
        for depth in range(max(counts, default=0)):
            kept = [k for k, i in enumerate(going) if depth < counts[i] and len(chains[i]) == depth]
            if not kept:
                break
            if memory is not None and len(kept) < len(going):
                memory = memory.index_select(0, to_device(kept, memory.device))
            going = [going[k] for k in kept]
            index = to_device([firsts[i] + depth for i in going], logits.device)
            entry = self.entries([chains[i][-1].token if depth else requests[i].tokens[-1] for i in going])
            state = None if states is None else states.index_select(0, index)
            scores = logits.index_select(0, index)
            if entry is not None and self.head.markov is not None:
                read, memory = self.read_by_markov(entry, state, memory)
                scores = scores + self.in_tiles(self.head.markov.out, read).float()
            paths = [tuple(token for token, _ in chains[i]) for i in going]
            rows = [ScoredRow(k, requests[i], paths[k]) for k, i in enumerate(going)]
            best = choose(self.kernels.sampler, scores, rows, self.head.vocabulary, 1)
            sure = self.confidences(state, entry)
            for k, i in enumerate(going):
                chains[i] += [token if sure is None else DraftToken(token.token, sure[k]) for token in best[k]]
        return chains

    def entries(self, tokens: Sequence[int]) -> Tensor | None:
        """[n, r] of the Markov head."""
        markov = self.head.markov
        return None if markov is None else markov.entry.index_select(0, to_device(tokens, markov.entry.device))

    def read_by_markov(
        self, entry: Tensor, state: Tensor | None, memory: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """entry: [n, r]; state: [n, H]; memory: [n, r], None at the first place. What `MarkovHead.out` reads, and the
        memory of the next place."""
        markov = self.head.markov
        assert markov is not None
        if markov.gate is not None:
            assert state is not None, "the Markov head reads states"
            return self.in_fixed_tiles(gated(markov.gate), entry, state), None
        if markov.joint is not None:
            assert state is not None, "the Markov head reads states"
            before = torch.zeros_like(entry) if memory is None else memory
            both = self.in_fixed_tiles(remembered(markov.joint), entry, state, before)
            read, after = both.chunk(2, -1)
            return read.contiguous(), after.contiguous()
        return entry, None

    def confidences(self, states: Tensor | None, entry: Tensor | None) -> list[float] | None:
        """[n]: each row's; None where the head states none."""
        if states is None or self.head.confidence is None:
            return None
        inputs = torch.cat((states, entry), 1) if self.head.judges_token and entry is not None else states
        found: list[float] = self.in_tiles(self.head.confidence, inputs)[:, 0].float().sigmoid().tolist()
        return found


def gated(gate: Projection) -> Callable[[Tensor, Tensor], Tensor]:
    """See `MarkovHead.gate`."""
    return lambda entry, state: gate(torch.cat((state, entry), -1)).sigmoid() * entry


def remembered(joint: Projection) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """See `MarkovHead.joint`. [n, 2 r]: what `out` reads, and the memory of the next place."""

    def step(entry: Tensor, state: Tensor, memory: Tensor) -> Tensor:
        stays, comes, read = joint(torch.cat((memory, entry, state), -1)).chunk(3, -1)
        share = stays.sigmoid()
        return torch.cat((read.tanh(), share * memory + (1 - share) * comes.tanh()), -1)

    return step
