"""Backends that answer in another dtype or layout, or that override one method of another backend."""

from __future__ import annotations

import pytest

from specserve.attention.sdpa import SdpaAttention, SdpaFactory
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve_graphs.cut_attention import CutAttention
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import varied_requests
from triton_runs import needs_triton


class InDouble(SdpaAttention):
    """What sdpa computes, in float64 and transposed in memory. As precise, so that tokens stay as they are."""

    name = "double"

    def forward(self, layer, q, k, v, plan):
        out = super().forward(layer, q, k, v, plan).double()
        return out.transpose(0, 1).contiguous().transpose(0, 1)


class Factory:
    name = InDouble.name
    capabilities = SdpaFactory.capabilities

    def build(self, spec, cache, device, dtype):
        return InDouble(spec, cache, device, dtype)


class Plugin:
    @hookimpl
    def attention_backends(self):
        return [Factory()]


@pytest.mark.parametrize("rows", [32, 33])
def test_an_answer_in_another_dtype_and_layout_counts_as_its_values(toy_model, rows):
    """32 rows are a whole tile, which needs no padding."""
    plugin = InProcessPlugin(Plugin(), PluginDeclaration(name="guest", provides={"attention.backend": "a test's"}))
    requests = varied_requests(10)
    options = {"dtype": "bfloat16", "max_num_batched_tokens": rows}
    engine = make_engine(toy_model, extra={"guest": plugin}, attention="double", **options).engine
    assert (
        run_requests(engine, requests).decided()
        == plain_run(toy_model, requests, attention="sdpa", **options).decided()
    )


@needs_triton
def test_the_fused_cuda_pass_declines_where_a_subclass_has_its_own_forward():
    from specserve_cuda.kernels.forward_pass import overrides_forward

    class OwnAttend(SdpaAttention):
        def attend(self, layer, q, plan):
            return super().attend(layer, q, plan)

    class Both(InDouble):
        def attend(self, layer, q, plan):
            return super().attend(layer, q, plan)

    made = [cls.__new__(cls) for cls in (SdpaAttention, OwnAttend, Both, InDouble)]
    assert [overrides_forward(backend) for backend in made] == [False, False, False, True]
    cut = [CutAttention(backend, None, None) for backend in made]
    assert [overrides_forward(backend) for backend in cut] == [False, False, False, True], "between pieces too"
