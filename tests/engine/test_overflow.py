"""A request whose numbers overflow keeps them to itself: not through recycled blocks, neighbours or guesses."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from specserve.types import Draft
from specserve_workbench.testing.drafters import ScriptedDrafter
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import write_checkpoint

pytestmark = pytest.mark.usefixtures("each_kernel_set")

OVERFLOWING = 7
HEALTHY = toy_request("healthy", (10, 11, 12, 13), max_tokens=20)
SICK = toy_request("sick", [OVERFLOWING] * 70, max_tokens=4)


@pytest.fixture(scope="module")
def fragile_model(tmp_path_factory):
    """A float16 model of finite weights in which one token overflows inside the first layer."""
    path = write_checkpoint(tmp_path_factory.mktemp("fragile"), dtype="float16")
    weights = load_file(path / "model.safetensors")
    weights["model.embed_tokens.weight"][OVERFLOWING] = 65504.0
    weights["model.layers.0.self_attn.o_proj.weight"] *= 20
    assert all(torch.isfinite(w).all() for w in weights.values())
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path


def test_recycled_blocks_carry_nothing_over(fragile_model):
    expected = run(fragile_model, [HEALTHY], prefix_cache=False).tokens()["healthy"]
    engine = make_engine(fragile_model, prefix_cache=False).engine
    run_requests(engine, [SICK])
    assert run_requests(engine, [HEALTHY]).tokens()["healthy"] == expected


def test_a_neighbour_is_not_reached(fragile_model):
    expected = run(fragile_model, [HEALTHY], prefix_cache=False).tokens()["healthy"]
    assert run(fragile_model, [SICK, HEALTHY], prefix_cache=False).tokens()["healthy"] == expected


def test_a_rejected_guess_that_overflows_changes_nothing(fragile_model):
    class Fatal(ScriptedDrafter):
        def draft(self, request, limit):
            return Draft(tokens=(9, OVERFLOWING)) if limit >= 2 else None

    plain = run(fragile_model, [HEALTHY])
    speculative = run(fragile_model, [HEALTHY], Fatal({}))
    assert speculative.metrics.num_draft_tokens > 10
    assert speculative.decided() == plain.decided()
