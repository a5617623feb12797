"""Numbers of one tensor of a GGUF file, as torch has them: dense, or a quantised weight. Knows nothing about what a
tensor means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from specserve.api.models import ALL_ROWS, QuantisedWeight
from specserve_gguf.blocks import FORMS
from specserve_gguf.blocks.unpacking import unpacked
from specserve_gguf.model_file import read_rows

if TYPE_CHECKING:
    from torch import Tensor

    from specserve_gguf.model_file import FileTensor
    from specserve_gguf.parts import Part

DENSE = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def read_part(tensor: FileTensor, part: Part, rows: slice) -> Tensor | QuantisedWeight:
    """Some rows of a part of a model. Raises OSError and ModelError."""
    if part.matrix is not None:
        matrix = read_tensor(tensor, slice(part.matrix, part.matrix + 1))
        found = picked(matrix, 0)
    elif part.heads is None and part.rows == ALL_ROWS:
        return less(read_tensor(tensor, rows), part.less)
    else:
        found = read_tensor(tensor, part.rows)
    if part.heads is not None:
        found = picked(found, neighbours_apart(found.shape[0], part.heads))
    return less(picked(found, rows), part.less)


def read_tensor(tensor: FileTensor, rows: slice = ALL_ROWS) -> Tensor | QuantisedWeight:
    """Some of the first dimension."""
    shape, kind = tensor.info.shape, tensor.info.type.name
    raw = read_rows(tensor, rows)
    count = len(raw)
    if kind in DENSE:
        dense = torch.from_numpy(np.ascontiguousarray(raw)).view(DENSE[kind])
        return dense.flatten()[rows] if len(shape) == 1 else dense.reshape(count, *shape[1:])
    weight = unpacked(FORMS[kind], raw.reshape(-1, *raw.shape[-2:]), tensor.info.type.block)
    return weight if len(shape) == 2 else weight.mapped(lambda each: each.view(count, *shape[1:-1], each.shape[1]))


def picked(weight: Tensor | QuantisedWeight, which: int | slice | Tensor) -> Tensor | QuantisedWeight:
    """Of the first dimension."""
    if isinstance(weight, QuantisedWeight):
        return weight.mapped(lambda tensor: tensor[which])
    return weight[which]


def less(weight: Tensor | QuantisedWeight, number: float) -> Tensor | QuantisedWeight:
    if number == 0 or isinstance(weight, QuantisedWeight):
        return weight
    return weight.float() - number


def neighbours_apart(rows: int, heads: int) -> Tensor:
    """Which row of the file is each row of the model. In a head of the model the first of all pairs come before the
    second ones."""
    return torch.arange(rows).view(heads, -1, 2).transpose(1, 2).flatten()
