"""Numbers of one tensor of a GGUF file, as torch has them: dense, or a quantised weight. Knows nothing about what a
tensor means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from specserve.api.models import ALL_ROWS, QuantisedWeight, dense
from specserve_gguf.blocks import FORMS
from specserve_gguf.blocks.unpacking import unpacked
from specserve_gguf.cursor import broken
from specserve_gguf.model_file import FileRows, read_rows, slice_of
from specserve_gguf.ordered_columns import in_order

if TYPE_CHECKING:
    from torch import Tensor

    from specserve_gguf.model_file import FileTensor, Rows
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
    found = read_in_order(tensor, part, stored[part.rows], rows)
    if part.value_columns is not None:
        found = in_order(found, part.value_columns)
    if part.of_channels:
        return dense(found).unsqueeze(1)
    if part.is_decay:
        return logarithm(dense(found), tensor)
    return less(found, part.less)


def read_in_order(tensor: FileTensor, part: Part, stored: range, rows: slice) -> Tensor | QuantisedWeight:
    """Some of the stored rows, in the model's order."""
    if part.value_rows is not None:
        return read_tensor(tensor, stored.start + part.value_rows.order()[rows])
    if part.heads is None:
        return read_tensor(tensor, slice_of(stored[rows]))
    size, wanted = len(stored) // part.heads, range(len(stored))[rows]
    begin, end = wanted.start // size * size, -(-wanted.stop // size) * size
    found = read_tensor(tensor, slice_of(stored[begin:end]))
    order = neighbours_apart(end - begin, (end - begin) // size)
    return picked(found, order[wanted.start - begin : wanted.stop - begin : wanted.step])


def read_tensor(tensor: FileTensor, rows: Rows = ALL_ROWS) -> Tensor | QuantisedWeight:
    """Some of the first dimension."""
    shape, kind = tensor.info.shape, tensor.info.type.name
    if kind not in DENSE and len(shape) == 2:
        return unpacked(FORMS[kind], FileRows(tensor, rows), tensor.info.type.block)
    if len(shape) == 1:
        whole = torch.from_numpy(np.ascontiguousarray(read_rows(tensor, ALL_ROWS))).view(DENSE[kind])
        return whole.flatten()[rows]
    raw = read_rows(tensor, rows)
    count = len(raw)
    if kind in DENSE:
        found = torch.from_numpy(np.ascontiguousarray(raw)).view(DENSE[kind])
        return found.reshape(count, *shape[1:])
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


def logarithm(decay: Tensor, tensor: FileTensor) -> Tensor:
    """x of -exp(x), to the rounding of float32."""
    if not (decay.isfinite() & (decay < 0)).all():
        raise broken(tensor.file, f"tensor {tensor.info.name} must have negative numbers alone, all of them finite")
    return decay.double().neg().log().float()


def neighbours_apart(rows: int, heads: int) -> Tensor:
    """Which row of the file is each row of the model. In a head of the model the first of all pairs come before the
    second ones."""
    return torch.arange(rows).view(heads, -1, 2).transpose(1, 2).flatten()
