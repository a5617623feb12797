"""The target's ids of a reduced draft vocabulary, from the tables d2t and t2d of a checkpoint.

d2t holds offsets: draft id i is target id i + d2t[i]. t2d marks, for every target id, whether a draft id means it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from specserve.api import ModelError

if TYPE_CHECKING:
    from torch import Tensor

    from specserve_eagle.checkpoints.tensors import HeadCheckpoint


class Vocabularies(Protocol):
    """The sizes of the target's and of the head's, which a head's config has."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def draft_vocab_size(self) -> int: ...


def draft_ids(checkpoint: HeadCheckpoint, config: Vocabularies) -> Tensor | None:
    """[D] int64, the target's id of every draft id; None where draft ids are the target's. Raises ModelError."""
    if not checkpoint.has("d2t"):
        return None
    ids = torch.arange(config.draft_vocab_size) + checkpoint.take("d2t").long()
    where = f"{checkpoint.path}: d2t"
    if int(ids.min()) < 0 or int(ids.max()) >= config.vocab_size:
        bad = int(((ids < 0) | (ids >= config.vocab_size)).nonzero()[0])
        raise ModelError(
            f"{where} gives draft token {bad} the target's id {int(ids[bad])}; allowed: 0 to {config.vocab_size - 1}. "
            "It must hold offsets, target id - draft id."
        )
    if len(set(ids.tolist())) < len(ids):
        raise ModelError(f"{where} gives two draft tokens the same target id. It must hold offsets, target - draft id.")
    if checkpoint.has("t2d"):
        _check_mask(ids, checkpoint.take("t2d").bool(), where)
    identity = len(ids) == config.vocab_size and bool((ids == torch.arange(len(ids))).all())
    return None if identity else ids


def _check_mask(ids: Tensor, mask: Tensor, where: str) -> None:
    expected = torch.zeros_like(mask)
    expected[ids] = True
    if not torch.equal(mask, expected):
        bad = int((mask != expected).nonzero()[0])
        raise ModelError(
            f"{where} and t2d disagree about target token {bad}: t2d says {bool(mask[bad])}. "
            "The two tables are not of the same draft vocabulary."
        )
