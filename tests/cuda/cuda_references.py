"""The CUDA backends as a CPU can run them: their own plans and logic, over references of the kernels in torch.

And the plugin hybrid_attn as an object, for machines where nothing is installed.
"""

from __future__ import annotations

import msgspec

from specserve.declare import Compatible, InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve_cuda.attention.flash import FlashAttention, FlashFactory
from specserve_cuda.attention.paged import PagedAttention, PagedFactory
from specserve_cuda.attention.paged_plan import tile_config_for
from specserve_cuda.attention.paged_reference import TorchPaged
from specserve_cuda.attention.varlen import varlen_attn_reference
from specserve_hybrid_attn import plugin
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import accepted, make_engine, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB


def on_the_cpu(capabilities):
    return msgspec.structs.replace(capabilities, devices=("cpu",), dtypes=("float32", "bfloat16", "float16"))


class ReferencePagedFactory:
    """One row per tile: the interpreter's rounding follows a row's place (see `paged_checks`)."""

    name = PagedFactory.name
    capabilities = on_the_cpu(PagedFactory.capabilities)

    def __init__(self, make=TorchPaged):
        self.make = make

    def build(self, spec, cache, device, dtype):
        config = tile_config_for(dtype.itemsize, spec.num_heads // spec.num_kv_heads, rows=1)
        return PagedAttention(spec, cache, device, self.make, config._replace(split_size=64))


class ReferenceFlashFactory:
    name = FlashFactory.name
    capabilities = on_the_cpu(FlashFactory().capabilities)

    def build(self, spec, cache, device, dtype):
        return FlashAttention(spec, cache, device, varlen_attn_reference)


class ReferencePlugin:
    def __init__(self, make=TorchPaged):
        self.factories = [ReferencePagedFactory(make), ReferenceFlashFactory()]

    @hookimpl
    def attention_backends(self):
        return self.factories


def reference_plugin(make=TorchPaged):
    """Brings `triton_paged` and `flash` to an engine on the CPU."""
    holds = Compatible("a test runs both together")
    declaration = PluginDeclaration(
        name="cuda_references",
        provides={"attention.backend": "the CUDA backends over references in torch"},
        compatible={"draft.chain": holds, "draft.tree": holds, "attention.hybrid": holds},
    )
    return InProcessPlugin(ReferencePlugin(make), declaration)


def hybrid_plugin():
    """hybrid_attn, installed or not."""
    holds = Compatible("a test runs both together")
    declaration = PluginDeclaration(
        name="hybrid_attn",
        provides={"attention.hybrid": "two backends as one"},
        compatible={"draft.chain": holds, "draft.tree": holds, "attention.backend": holds},
    )
    return InProcessPlugin(plugin, declaration)


def assert_hybrid_is_lossless(model, requests, extra, vocab_size=TOY_VOCAB, prefill="flash", **options):
    """Prompts by `prefill`, generated positions by `triton_paged`: trees change nothing. Returns the drafted run."""

    def hybrid(drafter, generated):
        settings = {"prefill": prefill, generated: "triton_paged"}
        plugins = {"hybrid_attn": hybrid_plugin(), **extra}
        return make_engine(model, drafter, extra=plugins, plugin_options={"hybrid_attn": settings}, **options)

    plain = run_requests(hybrid(None, "decode").engine, requests)
    drafter = NoisyDrafter(plain.tokens(), p=0.8, max_width=6, vocab_size=vocab_size)
    assembled = hybrid(drafter, "verify")
    assert f"hybrid(prefill={prefill}, verify=triton_paged)" in assembled.description["attention"]
    speculative = run_requests(assembled.engine, requests)
    assert not speculative.metrics.drafter_faults
    assert speculative.decided() == plain.decided()
    assert accepted(speculative)[0] > 0
    return speculative
