"""How large a checkpoint's weights are, from the headers of its files; of data, only an output head is compared."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.models.checkpoint import Checkpoint
from specserve.models.families import BUILT_IN, family_named
from specserve.models.loader import arrange_for, check_tensors
from specserve.models.open_weights import BUILT_IN as FORMATS
from specserve.models.open_weights import open_weights
from specserve.models.tied_head import tied_as_stored
from specserve_workbench.collected_warnings import collected_warnings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from specserve.models.config import ModelConfig
    from specserve.models.family import ModelFamily
    from specserve.models.weight_format import WeightFormat


class CheckpointSize(NamedTuple):
    """`stored` and `served` in bytes: in the files, and in the dtype that is served. `dtypes` counts tensors,
    `by_dtype` their bytes in the files."""

    dtypes: Counter[str]
    by_dtype: Counter[str]
    parameters: int
    stored: int
    served: int
    warnings: list[str]


def checkpoint_size(
    path: Path,
    config: ModelConfig,
    dtype: str,
    families: Sequence[ModelFamily] = BUILT_IN,
    formats: Sequence[WeightFormat] = FORMATS,
) -> CheckpointSize:
    """Checks all tensors, as loading does. Raises ModelError."""
    family = family_named(config.family, families)
    served_dtype: torch.dtype = getattr(torch, dtype)
    item_size = served_dtype.itemsize
    dtypes: Counter[str] = Counter()
    by_dtype: Counter[str] = Counter()
    parameters = served = 0
    with collected_warnings() as said:
        checkpoint = Checkpoint(open_weights(path, config.quantization, formats))
        arrange_for(family, config, checkpoint)
        shapes = check_tensors(tied_as_stored(config, checkpoint, served_dtype), checkpoint)
    for name, shape in shapes.items():
        found = checkpoint.find(name)
        dtypes[found.dtype] += 1
        by_dtype[found.dtype] += found.num_bytes
        parameters += math.prod(shape)
        served += found.num_bytes if found.quantised else math.prod(shape) * item_size
    return CheckpointSize(dtypes, by_dtype, parameters, by_dtype.total(), served, said)
