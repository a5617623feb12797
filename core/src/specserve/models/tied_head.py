"""Whether a file's output head is the embedding, where config.json says that they are one matrix.

The rule is that of transformers: the file has the last word. With two matrices that differ in the dtype that is served,
the head is not tied; with the head alone, it is the embedding. Knows nothing about projections.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
import torch

from specserve.models.quantised import dense
from specserve.models.weight_format import FLOATS

if TYPE_CHECKING:
    from specserve.models.checkpoint import Checkpoint
    from specserve.models.config import ModelConfig

log = logging.getLogger(__name__)

HEAD, EMBEDDING = "lm_head", "model.embed_tokens"
ROWS_AT_ONCE = 4096
"""How many tokens' rows are compared at once: two large matrices need not be in memory as a whole."""


def tied_as_stored(config: ModelConfig, checkpoint: Checkpoint, dtype: torch.dtype) -> ModelConfig:
    """`config`, untied where the file holds a head of its own; an embedding that is stored as the head gets its name.

    dtype: what is served. Reads the data of both matrices where there are two.
    """
    head, embedding = f"{HEAD}.weight", f"{EMBEDDING}.weight"
    if not config.tied:
        return config
    if head not in checkpoint.names:
        return config
    if embedding not in checkpoint.names:
        checkpoint.rename(head, embedding)
        return config
    if same_numbers(checkpoint, head, embedding, dtype):
        return config
    log.warning(
        "%s: config.json says tie_word_embeddings, but %s.weight is not the embedding. The file's head is used, as "
        "transformers does; set tie_word_embeddings to false in config.json",
        checkpoint.path,
        HEAD,
    )
    return msgspec.structs.replace(config, tied=False)


def same_numbers(checkpoint: Checkpoint, one: str, other: str, dtype: torch.dtype) -> bool:
    """Whether two tensors hold the same numbers in `dtype`. What cannot be compared is not the same."""
    first, second = checkpoint.find(one), checkpoint.find(other)
    if first.shape != second.shape or not {first.dtype, second.dtype}.issubset(FLOATS):
        return False
    rows = first.shape[0]
    pieces = (slice(start, min(start + ROWS_AT_ONCE, rows)) for start in range(0, rows, ROWS_AT_ONCE))
    return all(
        torch.equal(*(dense(checkpoint.rows(name, piece)).to(dtype) for name in (one, other))) for piece in pieces
    )
