"""Where a native pass copies the hidden states of its layers to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from specserve.batch.builder import BatchBuilder
from specserve.batch.hidden_states import HiddenStates
from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan
from specserve_cpu.dlpack import dlpack
from specserve_cpu.fused import native_taps
from specserve_cpu.gated_delta_net import NO_RUNS
from specserve_workbench.testing.engines import make_engine
from specserve_workbench.testing.requests import toy_request

if TYPE_CHECKING:
    from pathlib import Path

T, FIRST = 3, 5


def taps_of(toy_model: Path, make: Any) -> tuple[Any, torch.Tensor]:
    """The hidden states that a pass over three rows leaves where `make` tells, for the layers 0 and 2."""
    runner = make_engine(toy_model, plugins=("cpu",)).engine.runner
    wire = toy_request("a", (7, 8, 9))
    request = Request.admit(wire, seed=0, arrival=0.0, order=0, max_len=8)
    request.blocks = [0]
    batch = BatchBuilder(16, torch.device("cpu")).schedule([ScheduledSpan.of(request, 0, T, scored=1)])
    x = runner.passes.embed(batch)
    taps = make(x.shape[1])
    out = runner.passes.layers(x.clone(), batch, runner.attention.plan(batch), taps)
    return taps, out


@torch.inference_mode()
def test_layers_become_columns_of_the_step_s_rows_and_nothing_else_changes(toy_model: Path) -> None:
    source = torch.full((20, 0), 0.0)

    def columns(width: int) -> HiddenStates:
        nonlocal source
        source = torch.full((20, 2 * width), 99.0, dtype=torch.float32)
        return HiddenStates((0, 2), source, FIRST, FIRST + T)

    def tensors(width: int) -> dict[int, torch.Tensor]:
        return {layer: torch.empty(T, width) for layer in (0, 2)}

    taps, out = taps_of(toy_model, columns)
    expected, same_out = taps_of(toy_model, tensors)
    assert torch.equal(out, same_out)
    for layer in (0, 2):
        assert torch.equal(taps[layer], expected[layer])
    assert (source[:FIRST] == 99.0).all()
    assert (source[FIRST + T :] == 99.0).all()


@pytest.mark.parametrize(("row", "column"), [(-1, 0), (18, 0), (0, -1), (0, 1), (2**62, 0), (0, 2**62)])
@torch.inference_mode()
def test_a_tap_outside_of_its_tensor_is_refused(toy_model: Path, row: int, column: int) -> None:
    runner = make_engine(toy_model, plugins=("cpu",)).engine.runner
    stack: Any = runner.passes.stack
    hidden = runner.model.hidden_size
    x, numbers = torch.zeros(T, hidden), torch.arange(T)
    source = torch.full((20, hidden), 99.0)
    request = Request.admit(toy_request("a", (7, 8, 9)), seed=0, arrival=0.0, order=0, max_len=8)
    request.blocks = [0]
    batch = BatchBuilder(16, torch.device("cpu")).schedule([ScheduledSpan.of(request, 0, T, scored=1)])
    plan: Any = runner.attention.plan(batch)
    with pytest.raises(ValueError, match="must lie in its tensor; got"):
        stack.forward(
            dlpack(x),
            dlpack(numbers),
            dlpack(numbers),
            plan.native,
            [],
            None,
            [(1, dlpack(source), row, column)],
            NO_RUNS,
        )
    assert (source == 99.0).all()
    assert not x.any()


def test_taps_of_one_tensor_need_no_views() -> None:
    taps = HiddenStates((1, 4), torch.empty(20, 16), 3, 5)
    assert [(layer, row, column) for layer, _, row, column in native_taps(taps)] == [(1, 3, 0), (4, 3, 8)]
    assert taps.columns is None
