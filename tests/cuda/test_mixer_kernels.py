"""The CUDA kernels of layers without attention on a machine without a GPU: interpreted, and compiled for sm_90."""

from __future__ import annotations

import mixer_compile
import mixer_interpret
import pytest

from triton_runs import needs_triton, outcomes


@pytest.fixture(scope="module")
def interpreted():
    return outcomes(mixer_interpret)


@pytest.fixture(scope="module")
def compiled():
    return outcomes(mixer_compile)


@needs_triton
@pytest.mark.parametrize("check", mixer_interpret.names())
def test_interpreted(interpreted, check):
    assert interpreted[check] == "ok", interpreted[check]


@needs_triton
@pytest.mark.parametrize("check", mixer_compile.names())
def test_compiled_for_hopper(compiled, check):
    assert compiled[check] == "ok", compiled[check]
