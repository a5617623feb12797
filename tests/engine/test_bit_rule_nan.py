"""Weights that hold NaN or infinity: what they break stays in the requests whose tokens meet them."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load_file, save_file
from spoilt_weights import spoil
from torch.nn import functional

from covering import covering
from specserve.types import Draft
from specserve_workbench.testing.drafters import ScriptedDrafter
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import write_checkpoint

pytestmark = pytest.mark.usefixtures("each_kernel_set")

BROKEN = 7
SIZES = [(48, 64, 32), (50, 13, 20), (64, 50, 32), (144, 33, 80)]
"""Hidden size, inner size, head size."""
SICK = toy_request("sick", [BROKEN] * 20, max_tokens=6, ignore_eos=True, logprobs=2)
HEALTHY = [
    toy_request(f"healthy {i}", range(10, 13 + i), max_tokens=8, ignore_eos=True, logprobs=2, bad_words=((BROKEN,),))
    for i in range(3)
]


def broken_model(path, value, sizes, dtype="bfloat16", name="model.embed_tokens.weight", rows=BROKEN):
    hidden, inner, head = sizes
    write_checkpoint(path, dtype=dtype, hidden_size=hidden, intermediate_size=inner, head_dim=head)
    return spoil(path, name, rows, value)


@covering(
    ("each_kernel_set", "sizes"), ("each_kernel_set", "dtype"), ("sizes", "dtype"), ("each_kernel_set", "value"),
    each_kernel_set=["torch", "cpu"], sizes=SIZES, value=[math.nan, math.inf], dtype=["float32", "bfloat16", "float16"],
    indirect=["each_kernel_set"],
)  # fmt: skip
def test_a_broken_request_reaches_no_neighbour(tmp_path, sizes, value, dtype):
    model = broken_model(tmp_path, value, sizes, dtype)
    expected = run(model, HEALTHY, prefix_cache=False).decided()
    engine = make_engine(model, prefix_cache=False)
    beside = run_requests(engine.engine, [HEALTHY[0], SICK, *HEALTHY[1:]])
    assert math.isnan(beside.outputs["sick"].logprobs[0].logprob)
    assert {name: beside.decided()[name] for name in expected} == expected
    assert run_requests(engine.engine, HEALTHY).decided() == expected, "recycled blocks carry something over"


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_broken_guess_changes_nothing(tmp_path, sizes):
    class Fatal(ScriptedDrafter):
        def draft(self, request, limit):
            return Draft(tokens=(9, BROKEN)) if limit >= 2 else None

    model = broken_model(tmp_path, math.nan, sizes)
    speculative = run(model, HEALTHY, Fatal({}))
    assert speculative.metrics.num_draft_tokens > 10
    assert speculative.decided() == run(model, HEALTHY).decided()


@pytest.mark.parametrize("attention", ["auto", "sdpa"])
def test_the_cache_holds_finite_numbers_only_whoever_writes_it(tmp_path, attention):
    assembled = make_engine(broken_model(tmp_path, math.nan, SIZES[0]), attention=attention)
    run_requests(assembled.engine, [SICK])
    numbers = assembled.engine.committer.cache.data
    assert numbers.isfinite().all()
    assert numbers.count_nonzero() > 0


def test_torchs_attention_gets_finite_queries_where_heads_end_inside_a_tile(tmp_path, monkeypatch):
    finite, attention = [], functional.scaled_dot_product_attention

    def watched(query, key, value, **options):
        finite.append(bool(query.isfinite().all() and key.isfinite().all() and value.isfinite().all()))
        return attention(query, key, value, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", watched)
    run(broken_model(tmp_path, math.nan, SIZES[1]), [SICK, *HEALTHY], attention="sdpa")
    assert finite
    assert all(finite)


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "seed": 3}, {"temperature": 1.0, "seed": 3, "top_k": 5}])
def test_a_row_of_nan_alone_decides_for_token_0_and_has_no_logprobs(tmp_path, params):
    model = broken_model(tmp_path, math.nan, SIZES[0], "float32", "lm_head.weight", slice(None))
    output = run(model, [toy_request("r", (1, 2), max_tokens=3, logprobs=2, **params)]).outputs["r"]
    assert output.tokens == [0, 0, 0]
    assert all(math.isnan(entry.logprob) and entry.top_ids == () for entry in output.logprobs)


def test_only_torch_minds_a_forbidden_token_0_in_a_row_of_nan_alone(tmp_path, each_kernel_set):
    model = broken_model(tmp_path, math.nan, SIZES[0], "float32", "lm_head.weight", slice(None))
    request = toy_request("r", (1, 2), max_tokens=3, bad_words=((0,),))
    assert run(model, [request]).outputs["r"].tokens == [{"torch": 1, "cpu": 0}[each_kernel_set]] * 3


def test_a_logit_of_nan_among_others_is_chosen_by_torch_and_never_by_the_native_sampler(tmp_path, each_kernel_set):
    model = broken_model(tmp_path, math.nan, SIZES[0], "float32", "lm_head.weight", torch.tensor([40, 200]))
    tokens = run(model, [toy_request("r", (1, 2), max_tokens=4, ignore_eos=True)]).outputs["r"].tokens
    if each_kernel_set == "torch":
        assert tokens == [40] * 4
    else:
        assert not {40, 200}.intersection(tokens)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_scores_beyond_every_number_stay_in_their_row(tmp_path, architecture, dtype):
    """All weights are the largest number: what a row does not see must not decide whether it is NaN."""
    write_checkpoint(tmp_path, architecture=architecture, dtype=dtype, num_hidden_layers=1)
    weights = load_file(tmp_path / "model.safetensors")
    largest = torch.finfo(getattr(torch, dtype)).max
    save_file({k: torch.full_like(t, largest) for k, t in weights.items()}, tmp_path / "model.safetensors")
    requests = [
        toy_request(str(i), range(5, 6 + i), max_tokens=4, temperature=1.0, seed=i, logprobs=1) for i in range(4)
    ]
    alone = {r.request_id: repr(run(tmp_path, [r]).decided()[r.request_id]) for r in requests}
    together = run(tmp_path, requests, max_num_batched_tokens=3).decided()
    assert {name: repr(decided) for name, decided in together.items()} == alone
