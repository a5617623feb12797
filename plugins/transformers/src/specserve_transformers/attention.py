"""Attention of a layer of transformers' model by the engine's backend, over the rows of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.nn.functional as F

from specserve.api import BadAnswerError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from specserve_transformers.step import Step


class LayerAttention:
    """`specserve_transformers.interface.AttentionCall` of one layer. `missing`: numbers of a head that values lack: the
    cache has keys and values of one size."""

    def __init__(self, layer: int, step: Step, missing: int) -> None:
        self.layer, self.step, self.missing = layer, step, missing

    def __call__(
        self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: object, settings: dict[str, Any]
    ) -> Tensor:
        attend, missing = self.step.attend, self.missing
        assert attend is not None, "called within a pass"
        if missing:
            v = F.pad(v, (0, missing))
        if q.shape[2] == 1:
            rows = [each.reshape(1, -1, each.shape[3]).contiguous() for each in (q, k, v)]
        else:
            rows = [each[0].transpose(0, 1).contiguous() for each in (q, k, v)]
        out = attend(self.layer, *rows)
        if out.shape != rows[0].shape:  # a broadcast would reach the rows of other requests
            raise BadAnswerError("gave attention of another shape than the queries")
        out = out.to(q.dtype)
        return (out[..., :-missing] if missing else out)[None]
