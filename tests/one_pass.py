"""What a causal model of transformers says along a text that is known before: one pass over it gives the logits behind
each of its prefixes, which are those of as many passes.

A text is the greedy one, or the sampled one, where each of its tokens is what they choose: by induction, the same holds
for all of it. Where one is another, what follows it is known to be another text, and is computed anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@torch.inference_mode()
def greedy_along(model: Any, prompt: Sequence[int], answer: Sequence[int]) -> list[int]:
    """The best token behind the prompt, and behind each token of the answer but its last."""
    text = torch.tensor([[*prompt, *answer[:-1]]])
    return model(text, logits_to_keep=len(answer)).logits[0].argmax(-1).tolist()


def next_logits_along(model: Any, *texts: Sequence[int]) -> Callable[[Sequence[int]], list[float]]:
    """The logits behind any tokens; those behind a prefix of a text are computed beforehand."""
    rows: dict[tuple[int, ...], torch.Tensor] = {}

    @torch.inference_mode()
    def read(text: Sequence[int]) -> None:
        for at, row in enumerate(model(torch.tensor([list(text)])).logits[0], 1):
            rows[tuple(text[:at])] = row

    def next_logits(tokens: Sequence[int]) -> list[float]:
        if tuple(tokens) not in rows:
            read(tokens)
        return rows[tuple(tokens)].tolist()

    for text in texts:
        read(text)
    return next_logits
