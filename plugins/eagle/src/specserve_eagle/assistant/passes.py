"""Passes of an assistant: from a token and a hidden state to the next ones.

As in transformers, all tokens of a draft are computed at the position of the last committed token, and see the keys of
the tokens before it. Letters: n rows, T the target's hidden size, H the assistant's, V vocabulary.
"""

from __future__ import annotations

from functools import partial
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F

from specserve.api import DraftStep
from specserve.api.batch import to_device
from specserve.api.models import NO_BATCH, Rotation, in_tiles
from specserve.api.sampling import choose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import KeyPlan, KeyReader, ScoredRow
    from specserve.api.batch import Request
    from specserve.api.models import DecoderModel
    from specserve_eagle.assistant.load import Assistant, ClusteredTokens


class Queries(NamedTuple):
    """Where the rows of a pass stand."""

    requests: list[Request]
    rotations: Sequence[Rotation | None]
    """By layer."""
    plan: KeyPlan


class AssistantPass:
    """`target`: whose embedding, final norm and keys are read."""

    def __init__(self, assistant: Assistant, target: DecoderModel, reader: KeyReader) -> None:
        self.assistant, self.decoder, self.target, self.reader = assistant, assistant.decoder, target, reader
        self.in_tiles = partial(in_tiles, target.kernels.row_tile)
        self.queries: Queries | None = None
        """Of the latest pass: the next one of the same step has mostly the same."""

    def from_target(self, hidden: Tensor) -> Tensor:
        """[n, T], the last layer's output -> what `step` reads. A step begins with this, and ends with `forget`."""
        return self.in_tiles(lambda rows: self.target.normed(rows, self.target.final_norm), hidden)

    def step(self, rows: Sequence[ScoredRow], hidden: Tensor, count: int) -> DraftStep:
        """rows: each at the end of its path behind the request's last token; hidden: [n, T]."""
        ids = [row.path[-1] if row.path else row.request.tokens[-1] for row in rows]
        embedded = self.target.embed(to_device(ids, hidden.device))
        x = self.in_tiles(self.assistant.from_target, torch.cat((embedded, hidden), -1))
        x = self.layers(x, self.queries_of([row.request for row in rows]))
        tokens = choose(self.decoder.kernels.sampler, self.logits(x), rows, None, count)
        return DraftStep(tokens, self.in_tiles(lambda rows: self.assistant.to_target(self.normed(rows)), x))

    def queries_of(self, requests: list[Request]) -> Queries:
        known = self.queries
        if known is None or len(known.requests) != len(requests) or not all(map(is_, known.requests, requests)):
            positions = to_device([len(request.tokens) - 1 for request in requests], self.target.device)
            known = Queries(requests, self.decoder.rotations(positions), self.reader.plan(requests))
            self.queries = known
        return known

    def forget(self) -> None:
        """Keep nothing of a step's requests: they may end, and plans of their keys are valid in that step alone."""
        self.queries = None

    def layers(self, x: Tensor, at: Queries) -> Tensor:
        """[n, H] -> the last layer's output."""
        model = self.decoder
        for layer, rotation in enumerate(at.rotations):
            assert rotation is not None, "every layer rotates"

            def queries(rows: Tensor, cos: Tensor, sin: Tensor, layer: int = layer) -> Tensor:
                return model.attention_input(layer, rows, Rotation(cos, sin), NO_BATCH).q

            def output(rows: Tensor, attended: Tensor, layer: int = layer) -> Tensor:
                return model.layer_end(layer, model.attention_output(layer, rows, attended, NO_BATCH), NO_BATCH)

            q = self.in_tiles(queries, x, rotation.cos, rotation.sin)
            attended = self.reader.attend(layer, q, at.plan)
            x = self.in_tiles(output, x, attended.to(q.dtype).contiguous())
        return x

    def normed(self, x: Tensor) -> Tensor:
        return self.decoder.normed(x, self.decoder.final_norm)

    def logits(self, x: Tensor) -> Tensor:
        """[n, V] float32."""
        clusters = self.assistant.clusters
        if clusters is None:
            return self.in_tiles(self.decoder.head, x)
        return torch.stack([self.logits_of(row, clusters) for row in self.in_tiles(self.normed, x)])

    def logits_of(self, row: Tensor, clusters: ClusteredTokens) -> Tensor:
        """row: [H], normed -> [V] float32. Tokens of other clusters have a logit less than the least of these."""
        likeliest = F.linear(row, clusters.centroids).topk(clusters.num_chosen).indices
        tokens = clusters.tokens.index_select(0, likeliest).flatten()
        logits = F.linear(row, self.decoder.embedding_rows(tokens)).float()
        return (logits.min() - 1).repeat(self.decoder.vocab_size).index_copy_(0, tokens, logits)
