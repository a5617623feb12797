"""The CUDA kernels on a machine without a GPU: interpreted and compared with torch's, and compiled for sm_90."""

from __future__ import annotations

import subprocess
import sys

import pytest
import triton_compile
import triton_interpret

from specserve import builtin
from specserve.attention.fitting import misfits
from specserve.attention.sdpa import SdpaFactory
from specserve.config import EngineConfig
from specserve.engine.roles import make_kernels
from specserve.errors import ConfigError
from specserve.plugins.host import PluginHost
from specserve.protocols import AttentionNeeds
from specserve_cuda import plugin
from specserve_graphs.make_runner import own_recorder
from triton_runs import needs_triton, outcomes


@pytest.fixture(scope="module")
def interpreted():
    return outcomes(triton_interpret)


@pytest.fixture(scope="module")
def compiled():
    return outcomes(triton_compile)


@needs_triton
@pytest.mark.parametrize("check", triton_interpret.names())
def test_interpreted(interpreted, check):
    assert interpreted[check] == "ok", interpreted[check]


@needs_triton
@pytest.mark.parametrize("check", triton_compile.names())
def test_compiled_for_hopper(compiled, check):
    assert compiled[check] == "ok", compiled[check]


@needs_triton
def test_cuda_gets_the_triton_kernels_and_the_cpu_the_torch_ones():
    assert (plugin.make_kernels("cuda").name, builtin.make_kernels("cpu", "bfloat16").name) == ("triton", "torch")
    assert (plugin.make_kernels("cpu"), builtin.make_kernels("cuda", "bfloat16")) == (None, None)


def test_graphs_records_on_the_cpu_and_the_plugin_on_cuda_alone():
    assert own_recorder(EngineConfig(graphs="full")).name == "reference"
    assert plugin.make_recorder("cpu") is None
    with pytest.raises(ConfigError, match="--graphs full: no enabled plugin records graphs on --device cuda"):
        own_recorder(EngineConfig(device="cuda", graphs="full"))


def test_a_start_on_cuda_without_the_plugin_says_what_to_install():
    config = EngineConfig(device="cuda", default_plugins=False)
    with pytest.raises(ConfigError, match=r"--device cuda: no enabled plugin has kernels .* specserve-plugin-cuda"):
        make_kernels(config, PluginHost.start(config))


def test_a_start_on_cuda_without_triton_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("specserve_cuda.kernels.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ConfigError, match="pip install triton"):
        plugin.make_kernels("cuda")


def test_a_start_on_the_cpu_imports_no_triton():
    code = "import sys; from specserve_cuda.plugin import *; make_kernels('cpu'); print('triton' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_attention_on_cuda_refuses_heads_that_would_need_another_arithmetic():
    def needs(dtype, head_bytes):
        return AttentionNeeds(
            device="cuda",
            dtype=dtype,
            block_size=16,
            head_dim=64,
            head_bytes=head_bytes,
            graphs="none",
            drafts=False,
            trees=False,
        )

    assert misfits(SdpaFactory.capabilities, needs("bfloat16", 40)) == [
        "the model's heads of 40 bytes are no multiple of its 16"
    ]
    assert misfits(SdpaFactory.capabilities, needs("float32", 80)) == []
