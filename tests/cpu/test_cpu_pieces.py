"""Where the layers cannot be one call, the native pieces serve, with the same bits unless others compute a part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve.models.tiled import TiledPass
from specserve_cpu.fused import FusedPass, SplitPass
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import accepted, assert_lossless, make_engine, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from specserve.engine.assembly import Assembled

REQUESTS = varied_requests(6)
each_dtype = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])


def engine_with(model: Path, adapt: Callable[[Any], None], **options: Any) -> Assembled:
    class Adapter:
        @hookimpl
        def adapt_model(self, model: Any) -> None:
            adapt(model)

    declaration = PluginDeclaration(name="adapter", provides={"lora.target": "a test's deltas"})
    return make_engine(model, extra={"adapter": InProcessPlugin(Adapter(), declaration)}, plugins=("cpu",), **options)


def decided(assembled: Assembled) -> dict[str, Any]:
    return run_requests(assembled.engine, REQUESTS).decided()


@each_dtype
def test_a_delta_is_called_between_the_pieces_which_keep_their_bits(toy_model: Path, dtype: str) -> None:
    rows = []

    def adapt(model: Any) -> None:
        for projection in model.projections.values():
            projection.add_delta(lambda x, out, at, lora: rows.append(len(x)))

    plain = make_engine(toy_model, plugins=("cpu",), dtype=dtype)
    with_delta = engine_with(toy_model, adapt, dtype=dtype)
    assert isinstance(plain.engine.runner.passes, FusedPass)
    assert isinstance(with_delta.engine.runner.passes, TiledPass)
    assert decided(plain) == decided(with_delta)
    assert rows


def test_a_kernel_of_another_plugin_is_called_too(toy_model: Path) -> None:
    called = []

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        called.append(len(x))
        return torch.nn.functional.linear(x, weight, bias)

    served = engine_with(toy_model, lambda model: model.projections["lm_head"].set_kernel(linear, "adapter"))
    assert isinstance(served.engine.runner.passes, TiledPass)
    assert decided(served)
    assert called


@each_dtype
def test_torch_may_attend_between_native_pieces(toy_model: Path, dtype: str) -> None:
    options: dict[str, Any] = {"plugins": ("cpu",), "attention": "sdpa", "dtype": dtype}
    assert isinstance(make_engine(toy_model, **options).engine.runner.passes, SplitPass)
    served = assert_lossless(
        toy_model,
        REQUESTS,
        lambda outputs: NoisyDrafter(outputs, p=0.7, max_width=8, vocab_size=TOY_VOCAB),
        **options,
    )
    assert accepted(served) > (0, 0)


def test_an_odd_number_of_inputs_is_served_in_pieces(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, intermediate_size=201)
    served = make_engine(path, plugins=("cpu",), dtype="bfloat16")
    assert isinstance(served.engine.runner.passes, TiledPass)
    assert decided(served)
