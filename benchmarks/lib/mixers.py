"""The layers that have no attention, alone: short convolutions and gated delta nets, over random rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.batch.preceding import PrecedingTokens
from specserve.batch.state_runs import state_runs
from specserve.models.short_conv import ShortConv
from specserve_cpu.kernels import CpuKernels
from specserve_cpu.short_conv import NativeShortConv

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.batch.batch import Batch
    from specserve.models.decoder import DecoderModel


def mixing(model: DecoderModel, batch: Batch) -> Callable[[], None]:
    """The native calls of all such layers, without the linear maps before and behind them."""
    return recurrences(model, batch) if model.recurrent else convolutions(model, batch)


def convolutions(model: DecoderModel, batch: Batch) -> Callable[[], None]:
    assert model.reach is not None, "it has convolutions"
    tokens = PrecedingTokens.of(batch, model.reach, model.device)
    rows = torch.randn(batch.num_rows, 3 * model.hidden_size).to(model.dtype)
    kernels, mixers = model.kernels, [model.layers[layer].mixer for layer in model.state_layers]
    assert isinstance(kernels, CpuKernels), "the cpu plugin serves"
    convs = [mixer for mixer in mixers if isinstance(mixer, ShortConv)]
    natives = [NativeShortConv(kernels.machine, conv, model.dtype) for conv in convs]

    def mix() -> None:
        for native, kept in zip(natives, model.token_states, strict=True):
            native.mix(rows, kept, tokens)

    return mix


def recurrences(model: DecoderModel, batch: Batch) -> Callable[[], None]:
    runs = state_runs(batch)
    width = model.recurrent[0].trail_width + model.recurrent[0].out_features
    rows = torch.randn(batch.num_rows, width).to(model.dtype)

    def mix() -> None:
        for mixer, states in zip(model.recurrent, model.layer_states, strict=True):
            mixer.mix(rows, states, runs)

    return mix
