"""Blocks that draft within checkpoints change nothing: beside every plugin, in batches of every size, and when room is
scarce."""

from __future__ import annotations

from functools import cache

import nextn_blocks
import pytest
from beside_plugins import BESIDE, BESIDE_BLOCKS, LIMITS, Case, for_engine, requests_for
from qwen35_blocks import write_target

from covering import covering
from specserve_workbench.testing.engines import run_requests

NUM_REQUESTS = dict(zip(LIMITS, (5, 10, 13), strict=True))
"""One after the other they take many steps: fewer of them."""
PLUGINS = [name for name in (*BESIDE, *BESIDE_BLOCKS) if "eagle" in name]


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("model") / "target", num_hidden_layers=2)


def check(case, limits):
    requests = requests_for(case.beside, NUM_REQUESTS[limits], 20 if "preempted" in limits else 3)
    plain = case.plain_engine()
    expected = run_requests(plain, for_engine(plain, requests, case.beside)).decided()
    engine = case.engine(**case.limits()[limits])
    for _ in range(2):  # the second time the prefix cache has what room there was for
        drafted = run_requests(engine, for_engine(engine, requests, case.beside))
        assert drafted.decided() == expected
    metrics = engine.metrics
    assert not metrics.drafter_faults
    assert metrics.num_accepted_tokens > (8 if "adaptive" in case.beside else 50)
    if "preempted" in limits and case.beside != "eagle int8":  # whose cache has twice the room
        assert metrics.num_preemptions > 0


@covering(
    ("beside",), ("kernels", "dtype"), ("dtype", "limits"),
    beside=PLUGINS, kernels=["cpu", "torch"], dtype=["float32", "bfloat16"], limits=LIMITS,
)  # fmt: skip
def test_the_block_changes_nothing(target, beside, kernels, dtype, limits):
    if kernels == "torch" and "int8" in beside:
        pytest.skip("weights of 8 bits are the native kernels'")
    check(Case(target, beside, kernels, dtype), limits)


@pytest.fixture(scope="module")
def target_of(tmp_path_factory):
    @cache
    def write(family):
        path = tmp_path_factory.mktemp("model") / family
        if family.startswith("qwen3_5"):
            return write_target(path, architecture=family, num_hidden_layers=2)
        return nextn_blocks.write_target(path, family)

    return write


@pytest.mark.parametrize(("family", "beside", "kernels", "dtype", "limits"), [
    ("qwen3_5_moe_text", "eagle", "cpu", "float32", "1"),
    ("qwen3_5_moe_text", "eagle", "cpu", "bfloat16", "32 preempted"),
    ("qwen3_5_moe_text", "eagle", "torch", "bfloat16", "8 in chunks"),
    ("glm4_moe", "ngram eagle adaptive", "cpu", "float32", "1"),
    ("glm4_moe", "eagle lora grammar", "cpu", "bfloat16", "8 in chunks"),
    ("glm4_moe", "ngram eagle adaptive", "torch", "float32", "32 preempted"),
    ("mimo", "eagle lora grammar", "cpu", "float32", "32 preempted"),
    ("mimo", "eagle lora grammar", "cpu", "bfloat16", "8 in chunks"),
])  # fmt: skip
def test_blocks_of_other_families_change_nothing(target_of, family, beside, kernels, dtype, limits):
    check(Case(target_of(family), beside, kernels, dtype), limits)
