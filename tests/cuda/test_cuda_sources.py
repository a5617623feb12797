"""The CuPy kernels without CuPy or a GPU: launched through a fake of the package, which runs their sources on the host,
and compiled by nvcc."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from contextlib import nullcontext
from types import ModuleType

import numpy
import pytest
import torch
from host_cuda import COMPILER, HostCuda
from tree_cases import assert_masks_are_right, assert_trees_are_right, some_moves

from specserve.kv.cache import KVCache, move_tokens
from specserve_cuda.attention import cuda_sources
from specserve_cuda.attention.choose_kernels import mover_for, tree_kernels
from specserve_cuda.attention.tree_masks import TorchTrees

WINDOWS = [None, 1, 4, 37]
MODULE = "specserve_cuda.attention.cupy_kernels"

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("host_cuda")


@pytest.fixture
def cupy(monkeypatch, folder):
    """A package of that name, whose kernels run on the host."""
    fake = ModuleType("cupy")
    host = HostCuda(folder)
    fake.RawKernel, fake.from_dlpack, fake.int64, fake.launched = host.kernel, identity, numpy.int64, host.launched
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


@pytest.fixture
def cupy_kernels(cupy, monkeypatch):
    """The module over the fake; only the stream, which a CPU has not, is left out."""
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    module = importlib.import_module(MODULE)
    monkeypatch.setattr(module, "torch_stream", nullcontext)
    yield module
    sys.modules.pop(MODULE, None)


def identity(tensor):
    return tensor


def test_the_torch_version_of_the_tree_kernels():
    assert_trees_are_right(TorchTrees())


@pytest.mark.parametrize("window", WINDOWS)
def test_the_torch_version_of_the_masks(window):
    assert_masks_are_right(TorchTrees(), window)


@needs_compiler
def test_the_tree_kernels_run_on_the_host(cupy, cupy_kernels):
    assert_trees_are_right(cupy_kernels.CupyTrees())
    assert cupy.launched == ["tree_paths", "tree_ancestors"]


@needs_compiler
@pytest.mark.parametrize("window", WINDOWS)
def test_the_mask_kernel_runs_on_the_host(cupy, cupy_kernels, window):
    assert_masks_are_right(cupy_kernels.CupyTrees(), window)
    assert cupy.launched == ["tree_ancestors", "tree_mask"]


@needs_compiler
@pytest.mark.parametrize(("dtype", "heads", "head_dim"), [
    (torch.float32, 2, 16),
    (torch.bfloat16, 2, 16),
    (torch.float32, 1, 5),  # 4-byte words
    (torch.float16, 1, 5),  # 2-byte words
], ids=str)  # fmt: skip
def test_the_moves_run_on_the_host_as_if_all_were_read_first(cupy_kernels, dtype, heads, head_dim):
    data = torch.randn(3, 2, 40, heads, head_dim).to(dtype)
    for count in (1, 2, 17):
        expected, ours = data.clone(), data.clone()
        source, target = some_moves(count, 40, seed=count)
        move_tokens(expected, source, target)
        cupy_kernels.move_with_cupy(ours, source, target)
        assert torch.equal(ours, expected)
        kept = [slot for slot in range(40) if slot not in target]
        assert torch.equal(ours[:, :, kept], data[:, :, kept])


def test_the_torch_move_reads_all_before_it_writes_any():
    data = torch.arange(2 * 2 * 4.0).view(2, 2, 4, 1, 1)
    moved = data.clone()
    move_tokens(moved, [1, 2, 3], [2, 3, 1])
    assert torch.equal(moved, data[:, :, [0, 3, 1, 2]])


def test_a_cache_moves_by_its_mover():
    cache = KVCache(
        num_layers=1,
        num_blocks=2,
        block_size=4,
        num_kv_heads=1,
        head_dim=2,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    assert cache.mover is move_tokens
    calls = []
    cache.mover = lambda *arguments: calls.append(arguments)
    cache.move([], [])
    cache.move([3], [1])
    assert calls == [(cache.data, [3], [1])]


def test_a_device_without_cupy_gets_the_torch_versions(monkeypatch):
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setitem(sys.modules, "cupy", None)
    for device in (cpu, cuda):
        assert mover_for(device) is move_tokens
        assert isinstance(tree_kernels(device), TorchTrees)


@needs_compiler
def test_a_device_with_cupy_gets_its_kernels_and_the_cpu_does_not(cupy_kernels, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert mover_for(torch.device("cuda")) is cupy_kernels.move_with_cupy
    assert isinstance(tree_kernels(torch.device("cuda")), cupy_kernels.CupyTrees)
    assert mover_for(torch.device("cpu")) is move_tokens
    assert isinstance(tree_kernels(torch.device("cpu")), TorchTrees)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")
@pytest.mark.parametrize("source", [cuda_sources.TREES, *map(cuda_sources.moves_source, cuda_sources.WORDS)])
def test_nvcc_compiles_the_sources_for_hopper(tmp_path, source):
    (tmp_path / "kernels.cu").write_text(source)
    command = ["nvcc", "-arch=sm_90", "-cubin", "-Werror", "all-warnings", "kernels.cu", "-o", "kernels.cubin"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert (tmp_path / "kernels.cubin").stat().st_size > 1000
