"""Numbers of one tensor of a GGUF file, as torch has them: dense, or a quantised weight. Knows nothing about what a
tensor means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from specserve.api.models import ALL_ROWS, QuantisedWeight, dense
from specserve_gguf.blocks import FORMS
from specserve_gguf.blocks.unpacking import unpacked
from specserve_gguf.model_file import FileRows, read_rows, slice_of

if TYPE_CHECKING:
    from torch import Tensor

    from specserve_gguf.model_file import FileTensor
    from specserve_gguf.parts import Part

DENSE = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def read_part(tensor: FileTensor, part: Part, rows: slice) -> Tensor | QuantisedWeight:
    """Some rows of a part of a model; no others are read, but of heads that are rotated, whole ones. Raises OSError and
    ModelError."""
    if part.as_row:
        return dense(read_tensor(tensor)).view(1, -1)[rows]
    count, *inner = tensor.info.shape
    stored = range(count)
    if part.matrix is not None:  # rows of all matrices, one behind the other
        each, *inner = inner
        stored = range(part.matrix * each, (part.matrix + 1) * each)
        tensor = tensor._replace(info=tensor.info._replace(shape=(count * each, *inner)))
    stored = stored[part.rows]
    if part.of_channels:
        return dense(read_tensor(tensor, slice_of(stored[rows]))).unsqueeze(1)
    if part.heads is None:
        return less(read_tensor(tensor, slice_of(stored[rows])), part.less)
    size, wanted = len(stored) // part.heads, range(len(stored))[rows]
    begin, end = wanted.start // size * size, -(-wanted.stop // size) * size
    found = read_tensor(tensor, slice_of(stored[begin:end]))
    order = neighbours_apart(end - begin, (end - begin) // size)
    return less(picked(found, order[wanted.start - begin : wanted.stop - begin : wanted.step]), part.less)


def read_tensor(tensor: FileTensor, rows: slice = ALL_ROWS) -> Tensor | QuantisedWeight:
    """Some of the first dimension."""
    shape, kind = tensor.info.shape, tensor.info.type.name
    if kind not in DENSE and len(shape) == 2:
        return unpacked(FORMS[kind], FileRows(tensor, rows), tensor.info.type.block)
    raw = read_rows(tensor, rows)
    count = len(raw)
    if kind in DENSE:
        found = torch.from_numpy(np.ascontiguousarray(raw)).view(DENSE[kind])
        return found.flatten()[rows] if len(shape) == 1 else found.reshape(count, *shape[1:])
    stack = unpacked(FORMS[kind], raw.reshape(-1, *raw.shape[-2:]), tensor.info.type.block)
    return stack.mapped(lambda each: each.view(count, *shape[1:-1], each.shape[1]))


def picked(weight: Tensor | QuantisedWeight, which: Tensor) -> Tensor | QuantisedWeight:
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
