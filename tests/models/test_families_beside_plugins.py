"""Families with capped scores, scaled queries, convolutions, windows by layer or experts: drafts of every plugin change
nothing.

Numbers of requests, dtypes and kernels take turns. `make test` runs each family beside three plugins or more, and each
plugin beside two families or more; `make test-all` runs all of them.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
from beside_plugins import BESIDE, LIMITS, Case, draft_model_of, for_engine, requests_for
from expert_adapters import MODELS

from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.toy import write_checkpoint

DENSE = ("gemma2", "lfm2", "ministral", "ministral3", "qwen3_5_text")
KINDS = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"]
SHARING = {"num_hidden_layers": 5, "layer_types": KINDS, "num_kv_shared_layers": 2, "use_double_wide_mlp": True}
VARIED = {"gemma4_text that shares keys": SHARING}
RECORDED_NEVER = ("gemma4_text", *VARIED)
"""Steps of heads of several sizes are not recorded as graphs."""
EXPERTS = MODELS | {"granitemoe": {"intermediate_size": 90}}
"""By architecture, what differs from its toy. Granite's experts fill no panel of the native kernels, so that layers are
called piece by piece; a layer of Qwen3-MoE's is plain."""
FAMILIES = (*DENSE, *EXPERTS, *VARIED)
DTYPES = ("float32", "bfloat16")


def cover():
    """Each family beside each plugin, one of them with torch's kernels, whose requests alone are slow."""
    for (f, family), (b, beside) in product(enumerate(FAMILIES), enumerate(BESIDE)):
        marks = () if (b + f // 2) % 4 == 0 else pytest.mark.sweep
        if family in RECORDED_NEVER and "graphs" in beside:
            continue
        if f == b % len(FAMILIES) and "int8" not in beside:
            yield pytest.param(family, beside, "torch", DTYPES[b % 2], LIMITS[1 + b // 2 % 2], marks=marks)
        else:
            yield pytest.param(family, beside, "cpu", DTYPES[(f + b) % 2], LIMITS[(f + b) % 3], marks=marks)


@pytest.fixture(scope="module")
def model_of(tmp_path_factory):
    @cache
    def write(family):
        path = tmp_path_factory.mktemp("model") / family
        return write_checkpoint(path, architecture=family.partition(" ")[0], **(EXPERTS | VARIED).get(family, {}))

    return write


def check(case, names):
    requests = requests_for(case.beside, 13, 20) if "32 preempted" in names else requests_for(case.beside, 9)
    plain = case.plain_engine()
    expected = run_requests(plain, for_engine(plain, requests, case.beside)).decided()
    assert len({tuple(each[0]) for each in expected.values()}) > 8
    for name in names:
        engine = case.engine(**case.limits()[name])
        drafted = run_requests(engine, for_engine(engine, requests, case.beside))
        assert drafted.decided() == expected, name
        assert not drafted.metrics.drafter_faults
        by_itself = draft_model_of(case.model) == case.model or "eagle" not in case.beside
        assert drafted.metrics.num_accepted_tokens > (4 if "adaptive" in case.beside else 50 if by_itself else 25)
        if name == "32 preempted" and case.beside != "eagle int8":  # whose cache has twice the room
            assert drafted.metrics.num_preemptions > 0
        if "graphs" in case.beside:
            steps = drafted.metrics.graph_steps
            assert steps[case.graphs, ""] > 5
            assert steps["full", ""] + steps["piecewise", ""] > 20


@pytest.mark.parametrize(("family", "beside", "kernels", "dtype", "limits"), list(cover()))
def test_drafts_of_plugins_change_nothing(model_of, family, beside, kernels, dtype, limits):
    check(Case(model_of(family), beside, kernels, dtype), [limits])


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernels", ["cpu", "torch"])
@pytest.mark.parametrize(("family", "beside"), list(product(FAMILIES, BESIDE)))
def test_nothing_changes_in_batches_of_any_size(model_of, family, beside, kernels, dtype):
    if kernels == "torch" and "int8" in beside:
        pytest.skip("weights of 8 bits are the native kernels'")
    if family in RECORDED_NEVER and "graphs" in beside:
        pytest.skip("no step of such a model is recorded")
    check(Case(model_of(family), beside, kernels, dtype), LIMITS)
