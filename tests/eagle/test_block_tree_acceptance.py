"""Of trained block heads' drafts: a tree of 16 nodes has more tokens accepted than the chain, on the same inputs."""

from __future__ import annotations

import pytest
from eagle_engines import eagle_engine, write_target
from trained_blocks import texts, train_blocks

from covering import covering
from specserve_eagle.training.target import Target
from specserve_workbench.testing.engines import accepted, run, run_requests
from specserve_workbench.testing.requests import toy_request

CHAIN, TREE = {"steps": 16}, {"steps": 16, "topk": 4, "draft_tokens": 17}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def heads(target, tmp_path_factory):
    path, loaded = tmp_path_factory.mktemp("heads"), Target.load(target, "cpu", "float32")
    return {kind: train_blocks(kind, loaded, path / kind).path for kind in ("dflash", "dspark")}


@pytest.mark.usefixtures("each_kernel_set")
@covering(
    ("each_kernel_set", "kind"), ("kind", "temperature"), ("each_kernel_set", "temperature"),
    each_kernel_set=["torch", "cpu"], kind=["dflash", "dspark"], temperature=[0.0, 0.8], indirect=["each_kernel_set"],
)  # fmt: skip
def test_more_of_a_tree_is_accepted_than_of_a_chain(target, heads, kind, temperature):
    requests = [
        toy_request(f"{i}", window, max_tokens=24, ignore_eos=True, temperature=temperature, seed=i)
        for i, window in enumerate(texts(8).tolist())
    ]
    found = {}
    for name, settings in {"chain": CHAIN, "tree": TREE}.items():
        outcome = run_requests(eagle_engine(target, heads[kind], settings=settings, dtype="float32"), requests)
        assert outcome.decided() == run(target, requests, dtype="float32").decided()
        found[name], _ = accepted(outcome)
    assert found["tree"] > 1.1 * found["chain"] > 0
