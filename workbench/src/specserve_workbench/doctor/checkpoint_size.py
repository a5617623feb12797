"""How large a checkpoint's weights are, from the headers of its files; of data, only an output head is compared."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.models.families import BUILT_IN, family_named
from specserve.models.loader import arrange, check_tensors
from specserve.models.tied_head import tied_as_stored
from specserve.models.weights import FLOATS, ITEM_SIZES, Checkpoint
from specserve_workbench.collected_warnings import collected_warnings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from specserve.models.config import ModelConfig
    from specserve.models.family import ModelFamily


class CheckpointSize(NamedTuple):
    """`stored` and `served` in bytes: in the files, and in the dtype that is served. `kinds` counts tensors."""

    kinds: Counter[str]
    stored: int
    served: int
    warnings: list[str]


def checkpoint_size(
    path: Path, config: ModelConfig, dtype: str, families: Sequence[ModelFamily] = BUILT_IN
) -> CheckpointSize:
    """Checks all tensors, as loading does. Raises ModelError."""
    family = family_named(config.family, families)
    served_dtype: torch.dtype = getattr(torch, dtype)
    item_size = served_dtype.itemsize
    kinds: Counter[str] = Counter()
    stored = served = 0
    with collected_warnings() as said:
        checkpoint = Checkpoint(path)
        arrange(checkpoint, family.stored_as(config))
        shapes = check_tensors(tied_as_stored(config, checkpoint, served_dtype), checkpoint)
    for name, shape in shapes.items():
        kind, count = checkpoint.kind(name), math.prod(shape)
        kinds[kind] += 1
        stored += count * ITEM_SIZES.get(kind, 1)
        served += count * (item_size if kind in FLOATS else ITEM_SIZES.get(kind, 1))
    return CheckpointSize(kinds, stored, served, said)
