"""The promise with the real drafter: same tokens, log-probabilities and ends with and without it, and it is accepted.

Every engine serves its requests twice. The second time the index has seen all answers, so that most draft
tokens are accepted; the first time most are rejected.
"""

from __future__ import annotations

import msgspec
import pytest

from covering import covering
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests

pytestmark = pytest.mark.usefixtures("each_kernel_set")

MATCH_TYPES = ("learned", "bfs", "prob")


def ngram_engine(model, *, planner=None, settings=None, **options):
    """Unlikely tokens are drafted too, and all are verified unless the planner is the product's own."""
    tables = {"ngram": {"min_survival": 0.01, **(settings or {})}}
    chosen = None if planner == "own" else FixedWidthPlanner(32)
    return make_engine(model, planner=chosen, plugins=("ngram",), plugin_options=tables, **options).engine


def again(requests):
    return [msgspec.structs.replace(request, request_id=f"{request.request_id} again") for request in requests]


def assert_lossless_twice(model, requests, *, settings=None, planner=None, **options):
    """Returns how many draft tokens were accepted the first time and the second."""
    plain = plain_run(model, requests, **options).decided()
    engine = ngram_engine(model, settings=settings, planner=planner, **options)
    first = run_requests(engine, requests)
    counts = [engine.metrics.num_accepted_tokens]
    second = run_requests(engine, again(requests))
    counts.append(engine.metrics.num_accepted_tokens - counts[0])
    assert not engine.metrics.drafter_faults
    assert first.decided() == plain
    assert {name.removesuffix(" again"): decided for name, decided in second.decided().items()} == plain
    return counts


@covering(
    ("each_kernel_set", "match_type"), ("each_kernel_set", "batch_size"),
    each_kernel_set=["torch", "cpu"], match_type=MATCH_TYPES, batch_size=[1, 8, 32], indirect=["each_kernel_set"],
)  # fmt: skip
def test_every_match_type_changes_nothing(toy_model, match_type, batch_size):
    requests = varied_requests(32)
    first, second = assert_lossless_twice(
        toy_model, requests, settings={"match_type": match_type}, max_num_seqs=batch_size
    )
    assert second > first
    assert second > 100


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_it_changes_nothing_in_half_precision(toy_model, dtype):
    assert_lossless_twice(toy_model, varied_requests(24, seed=3), dtype=dtype)


@covering(indirect=["each_kernel_set"], each_kernel_set=["torch", "cpu"], options=[
    {"kv_memory": "440K"},
    {"max_num_batched_tokens": 24},
    {"block_size": 1},
    {"block_size": 64},
    {"prefix_cache": False},
    {"chunked_prefill": False},
])  # fmt: skip
def test_it_changes_nothing_when_everything_else_is_tight(toy_model, options):
    assert_lossless_twice(toy_model, varied_requests(24, seed=1), **options)


@covering(indirect=["each_kernel_set"], each_kernel_set=["torch", "cpu"], settings=[
    {"shared": False},
    {"capacity": 1000, "generations": 2},
    {"max_draft_tokens": 3},
    {"max_breadth": 1},
    {"max_depth": 2},
    {"min_match": 3, "max_match": 4},
])  # fmt: skip
def test_no_setting_changes_anything(toy_model, settings):
    assert_lossless_twice(toy_model, varied_requests(24, seed=2), settings=settings)


def test_the_cost_planner_changes_nothing_either(toy_model):
    assert_lossless_twice(toy_model, varied_requests(24), planner="own")


def test_preemption_and_drafts_meet(toy_model):
    engine = ngram_engine(toy_model, kv_memory="440K")
    requests = varied_requests(24, seed=1)
    plain = plain_run(toy_model, requests, kv_memory="440K").decided()
    run_requests(engine, requests)
    second = run_requests(engine, again(requests))
    assert second.metrics.num_preemptions > 0
    assert second.metrics.num_accepted_tokens > 100
    assert {name.removesuffix(" again"): decided for name, decided in second.decided().items()} == plain


def test_aborts_in_the_mix_change_nothing_for_the_others(toy_model):
    requests = varied_requests(16, seed=4)
    plain = plain_run(toy_model, requests).decided()
    engine = ngram_engine(toy_model)
    outputs = {}
    for request in [*requests, *(toy_request(f"gone {i}", (5, 6, 6, i), max_tokens=40) for i in range(8))]:
        engine.add(request)
    for step in range(10_000):
        if not engine.has_work:
            break
        for output in engine.step():
            outputs.setdefault(output.request_id, []).extend(output.tokens)
        if step % 3 == 0:
            engine.abort(f"gone {step // 3}")
    engine.check_integrity()
    assert {name: outputs[name] for name in plain} == {name: decided[0] for name, decided in plain.items()}


def test_choices_of_one_prompt_draft_from_each_other(toy_model):
    """n > 1 without noise: the second answer is the first one, so all of it was seen."""
    same = [toy_request(f"choice {i}", range(1, 30), max_tokens=40, ignore_eos=True) for i in range(2)]
    engine = ngram_engine(toy_model)
    alone = run_requests(engine, same[:1]).outputs["choice 0"]
    other = run_requests(engine, same[1:]).outputs["choice 1"]
    assert other.tokens == alone.tokens
    assert len(other.steps) < len(alone.steps)
    assert other.steps[-1].stats.num_accepted_draft_tokens > 20


def test_nothing_is_shared_across_namespaces(toy_model):
    secret, other = (
        msgspec.structs.replace(
            toy_request(name, range(1, 30), max_tokens=40, ignore_eos=True, temperature=0.0), cache_salt=name
        )
        for name in ("one tenant", "another")
    )
    engine = ngram_engine(toy_model, settings={"min_survival": 0.0})
    run_requests(engine, [secret])
    fresh = run_requests(ngram_engine(toy_model, settings={"min_survival": 0.0}), [other])
    outcome = run_requests(engine, [other])
    # the shared statistics may change how much is drafted, but no text of the other tenant is drafted
    figures = [r.outputs["another"].steps[-1].stats.num_accepted_draft_tokens for r in (fresh, outcome)]
    assert figures[1] < 20
    assert abs(figures[0] - figures[1]) <= 5


def demo_requests(demo_model, count):
    from specserve.text.tokenizer import HfTokenizer

    tokenizer = HfTokenizer.from_dir(demo_model)
    heads = ["import ", "class Reader:\n    def ", "def add(a, b):\n    return a + b\n\n\ndef add(", "for key in "]
    return [
        toy_request(
            str(i),
            tokenizer.encode(heads[i % len(heads)] + f"name_{i}" * (1 + i % 9)),
            max_tokens=24 + i % 17,
            temperature=(0.0, 0.8, 1.0)[i % 3],
            seed=i,
            logprobs=(None, 2)[i % 2],
            repetition_penalty=(1.0, 1.1)[i % 5 == 0],
        )
        for i in range(count)
    ]


def test_the_demo_model_is_lossless_in_bfloat16(demo_model):
    requests = demo_requests(demo_model, 24)
    first, second = assert_lossless_twice(demo_model, requests, dtype="bfloat16", kv_memory="128M")
    assert first > 30
    assert second > 300


@pytest.mark.sweep
@pytest.mark.parametrize("batch_size", [1, 8, 32])
def test_200_prompts_of_the_demo_model_are_lossless_in_bfloat16(demo_model, batch_size):
    requests = demo_requests(demo_model, 200)
    assert_lossless_twice(demo_model, requests, dtype="bfloat16", kv_memory="512M", max_num_seqs=batch_size, threads=2)
