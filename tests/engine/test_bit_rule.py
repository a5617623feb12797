"""A row's bits depend on its own path: never on chunks, neighbours, preemption or prefix hits."""

from __future__ import annotations

import pytest

from covering import covering
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

CONFIGURATIONS = [("float32", 1), ("float32", 2), ("bfloat16", 1), ("bfloat16", 2), ("float16", 1)]
"""Dtype and threads."""
LIMITS = [(8, 512), (24, 64), (5, 17), (3, 4)]
"""Requests that run together, and tokens of a step."""
each_configuration = covering(
    each_kernel_set=["torch", "cpu"], configuration=CONFIGURATIONS, indirect=["each_kernel_set"]
)


@pytest.fixture(autouse=True)
def _once_in_float16(request, each_kernel_set):
    """In which torch serves in both sets: tests/cpu holds it to that."""
    parameters = request.node.callspec.params
    dtype = parameters["configuration"][0] if "configuration" in parameters else parameters["dtype"]
    if each_kernel_set == "cpu" and dtype == "float16":
        pytest.skip("torch serves in float16")


def with_logprobs(count, seed):
    from msgspec.structs import replace

    return [replace(r, params=replace(r.params, logprobs=3)) for r in varied_requests(count, seed=seed)]


@covering(
    ("each_kernel_set", "configuration"), ("each_kernel_set", "limits"),
    each_kernel_set=["torch", "cpu"], configuration=CONFIGURATIONS, limits=LIMITS, indirect=["each_kernel_set"],
)  # fmt: skip
def test_chunks_and_neighbours_change_no_token_and_no_logprob(toy_model, configuration, limits):
    requests = with_logprobs(24, 3)
    common = dict(zip(("dtype", "threads"), configuration, strict=True))
    expected = run(toy_model, requests, max_num_seqs=1, max_num_batched_tokens=512, **common).decided()
    sequences, budget = limits
    got = run(toy_model, requests, max_num_seqs=sequences, max_num_batched_tokens=budget, **common).decided()
    assert got == expected


@each_configuration
def test_preemption_changes_no_token_and_no_logprob(toy_model, configuration):
    dtype, threads = configuration
    requests = with_logprobs(24, 4)
    expected = run(toy_model, requests, dtype=dtype, threads=threads).decided()
    size = "440K" if dtype == "float32" else "220K"  # room for the longest request, not for two
    tight = run(toy_model, requests, dtype=dtype, threads=threads, kv_memory=size)
    assert tight.metrics.num_preemptions > 0
    assert tight.decided() == expected


@each_configuration
def test_hits_on_prompts_and_on_generated_blocks_change_nothing(toy_model, configuration):
    dtype, threads = configuration
    first = toy_request("first", range(1, 50), max_tokens=60, ignore_eos=True, logprobs=3)
    engine = make_engine(toy_model, dtype=dtype, threads=threads).engine
    generated = run_requests(engine, [first]).tokens()["first"]
    again = [
        toy_request("same", range(1, 50), max_tokens=60, ignore_eos=True, logprobs=3),
        toy_request("longer", [*range(1, 50), *generated], max_tokens=20, ignore_eos=True, logprobs=3),
        toy_request("sampled", [*range(1, 50), *generated[:30]], temperature=1.0, seed=5, logprobs=3),
    ]
    warm = run_requests(engine, again)
    assert [warm.outputs[r.request_id].steps[0].cached_tokens for r in again] == [48, 96, 64]
    assert warm.decided() == run(toy_model, again, dtype=dtype, threads=threads, prefix_cache=False).decided()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_number_of_threads_changes_nothing_at_these_widths(toy_model, dtype):
    requests = with_logprobs(16, 5)
    one = run(toy_model, requests, dtype=dtype, threads=1).decided()
    assert run(toy_model, requests, dtype=dtype, threads=2).decided() == one


@pytest.mark.sweep
@pytest.mark.parametrize(("dtype", "threads"), CONFIGURATIONS)
def test_the_rule_holds_at_the_widths_of_a_half_billion_parameters(tmp_path, dtype, threads):
    sizes = {"hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14, "head_dim": 64}
    model = write_checkpoint(tmp_path / "wide", architecture="qwen2", **sizes)
    requests, common = with_logprobs(16, 3), {"dtype": dtype, "threads": threads}
    expected = run(model, requests, max_num_seqs=1, max_num_batched_tokens=512, **common).decided()
    for sequences, budget in ((8, 512), (5, 17)):
        got = run(model, requests, max_num_seqs=sequences, max_num_batched_tokens=budget, **common).decided()
        assert got == expected, (sequences, budget)
