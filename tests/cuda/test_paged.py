"""`triton_paged` on a machine without a GPU: its plan on a torch reference, its kernels interpreted, and compiled."""

from __future__ import annotations

import subprocess
import sys

import paged_checks
import paged_compile
import pytest
import torch
from cuda_references import reference_plugin
from paged_cases import TREE, Shape, World

from specserve.attention.sdpa import SdpaFactory
from specserve.errors import ConfigError
from specserve.protocols import AttentionNeeds
from specserve_cuda.attention.backends import cuda_backends
from specserve_cuda.attention.paged import PagedFactory
from specserve_cuda.attention.paged_plan import make_plan, tile_config_for
from specserve_cuda.attention.paged_reference import TorchPaged
from specserve_cuda.attention.tree_masks import TorchTrees
from specserve_hybrid_attn.choose_backends import choose
from specserve_hybrid_attn.options import HybridOptions
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import accepted, assert_lossless, run
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests
from specserve_workbench.testing.toy import write_checkpoint
from triton_runs import needs_triton, outcomes


@pytest.fixture(scope="module")
def interpreted():
    return outcomes(paged_checks)


@pytest.fixture(scope="module")
def compiled():
    return outcomes(paged_compile)


@pytest.mark.parametrize("check", paged_checks.CHECKS)
def test_the_reference(check):
    check(TorchPaged)


@needs_triton
@pytest.mark.parametrize("check", paged_checks.CHECKS)
def test_interpreted(interpreted, check):
    assert interpreted[check.__name__] == "ok", interpreted[check.__name__]


@needs_triton
@pytest.mark.parametrize("check", paged_compile.CHECKS)
def test_compiled_for_hopper(compiled, check):
    assert compiled[check.__name__] == "ok", compiled[check.__name__]


def test_a_plan_has_every_row_once_and_every_split_of_its_keys_once():
    world = World(Shape())
    spans = world.ragged()
    batch = world.builder.schedule(spans)
    plan = make_plan(batch, tile_config_for(4, 2), 1, TorchTrees(), world.device)
    all_tiles = [tile for launch in plan.launches for tile in launch.tiles.tolist()]
    rows = [row for first, count, *_ in all_tiles for row in range(first, first + count)]
    assert sorted(rows) == list(range(batch.num_rows))
    for launch in plan.launches:
        tiles, items = launch.tiles.tolist(), launch.items.tolist()
        assert launch.counts[0] == len(items) == launch.programs
        for index, (_, count, length, *_, first_item, _) in enumerate(tiles):
            splits = [split for tile, split in items if tile == index]
            assert splits == list(range(-(-(length + count - 1) // 256)))
            assert items[first_item] == [index, 0]


def test_a_tree_shares_tiles_only_along_a_branch():
    world = World(Shape())
    batch = world.builder.schedule([world.tree(50, TREE)])
    plan = make_plan(batch, tile_config_for(4, 1), 1, TorchTrees(), world.device)
    assert [(first, count) for launch in plan.launches for first, count, *_ in launch.tiles.tolist()] == [
        (0, 3),  # the committed token and the leading chain of nodes 0 and 1
        (3, 1),
        (4, 1),
        (5, 2),  # nodes 4 and 5
        (7, 1),
        (8, 2),  # nodes 7 and 8
        (10, 1),
    ]


@pytest.mark.parametrize("architecture", ["llama", "mistral"])
def test_an_engine_on_the_reference_is_lossless_with_trees(tmp_path, architecture):
    model = write_checkpoint(
        tmp_path / "model", architecture=architecture, **({"sliding_window": 24} if architecture == "mistral" else {})
    )
    requests = [r for r in varied_requests(16, seed=3) if len(r.prompt_token_ids) < 60][:5]
    speculative = assert_lossless(
        model,
        requests,
        lambda outputs: NoisyDrafter(outputs, p=0.8, max_width=6, vocab_size=TOY_VOCAB),
        extra={"cuda_references": reference_plugin()},
        attention="triton_paged",
        max_num_batched_tokens=32,
    )
    assert accepted(speculative)[0] > 0
    assert speculative.tokens() == run(model, requests).tokens()


def test_on_a_machine_without_triton_the_build_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "specserve_cuda.attention.paged_kernels", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    world = World(Shape())
    with pytest.raises(ConfigError, match="pip install triton"):
        PagedFactory().build(world.spec, world.cache, torch.device("cuda"), torch.bfloat16)


def test_offering_the_backends_imports_none_of_the_heavy_packages():
    code = (
        "import sys; from specserve_cuda.attention.backends import cuda_backends; "
        "names = [factory.name for factory in cuda_backends()]; "
        "print(*names[:2], *({'triton', 'cupy', 'flashinfer'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "triton_paged flash\n"


@pytest.mark.parametrize(("dtype", "chosen"), [
    ("bfloat16", "hybrid(prefill=flash, verify=triton_paged)"),
    ("float16", "hybrid(prefill=flash, verify=triton_paged)"),
    ("float32", "hybrid(prefill=triton_paged, verify=triton_paged)"),
])  # fmt: skip
def test_what_auto_chooses_on_cuda(dtype, chosen):
    needs = AttentionNeeds(
        device="cuda", dtype=dtype, block_size=16, head_dim=64, head_bytes=128, graphs="none", drafts=True, trees=True
    )
    offers = {factory.name: factory for factory in [SdpaFactory(), *cuda_backends()]}
    factory = choose(HybridOptions(), offers, needs)
    assert factory.name == chosen
    assert factory.capabilities.row_invariant
    assert factory.capabilities.tree_mask
