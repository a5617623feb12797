"""Losslessness: a request gives the same tokens, log-probabilities and end with and without speculation."""

from __future__ import annotations

import math

import pytest

from covering import covering
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import SpeculationParams
from specserve_workbench.testing.drafters import NoisyDrafter, OracleDrafter, WrongDrafter
from specserve_workbench.testing.engines import accepted, assert_lossless, make_engine, run
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests

pytestmark = pytest.mark.usefixtures("each_kernel_set")


def noisy(vocab_size=TOY_VOCAB, p=0.7, seed=0):
    return lambda outputs: NoisyDrafter(outputs, p=p, max_width=16, vocab_size=vocab_size, seed=seed)


@covering(
    ("each_kernel_set", "dtype"), ("each_kernel_set", "batch_size"),
    each_kernel_set=["torch", "cpu"], dtype=["float32", "bfloat16"], batch_size=[1, 8, 32],
    indirect=["each_kernel_set"],
)  # fmt: skip
def test_noisy_chains_and_trees_change_nothing(toy_model, dtype, batch_size):
    speculative = assert_lossless(
        toy_model, varied_requests(48), noisy(), dtype=dtype, max_num_seqs=batch_size, max_num_batched_tokens=512
    )
    good, drafted = accepted(speculative)
    assert 0.15 < good / drafted < 0.9


@pytest.mark.parametrize("options", [
    {"kv_memory": "440K"},
    {"max_num_batched_tokens": 24},
    {"block_size": 1},
    {"block_size": 64},
    {"prefix_cache": False},
    {"chunked_prefill": False},
], ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()))  # fmt: skip
def test_noisy_drafts_change_nothing_when_everything_else_is_tight(toy_model, options):
    assert_lossless(toy_model, varied_requests(16, seed=1), noisy(), **options)


@pytest.mark.parametrize("architecture", ["mistral", "qwen2", "qwen3"])
def test_noisy_drafts_change_nothing_on_other_families(tmp_path, architecture):
    from specserve_workbench.testing.toy import write_checkpoint

    extra = {"sliding_window": 32} if architecture == "mistral" else {}
    model = write_checkpoint(tmp_path / "model", architecture=architecture, **extra)
    assert_lossless(model, varied_requests(24, seed=2), noisy())


def test_the_engines_own_planner_changes_nothing_but_what_is_verified(toy_model):
    """It drafts while few requests run."""
    planned = assert_lossless(toy_model, varied_requests(32), noisy(p=0.9), planner=FixedWidthPlanner(4, 4))
    eager = assert_lossless(toy_model, varied_requests(32), noisy(p=0.9))
    assert 0 < planned.metrics.num_draft_tokens < eager.metrics.num_draft_tokens


@pytest.mark.parametrize("width", [1, 3, 8])
def test_an_oracle_needs_one_verify_step_per_width_plus_one_tokens(toy_model, width):
    requests = [toy_request(str(i), range(1, 20 + i), max_tokens=33, ignore_eos=True) for i in range(3)]
    speculative = assert_lossless(toy_model, requests, lambda outputs: OracleDrafter(outputs, width))
    for output in speculative.outputs.values():
        figures = output.steps[-1].stats
        steps = len(output.steps) - 1  # the first token came with the prompt
        assert steps == math.ceil((33 - 1) / (width + 1))
        # every step brings one token beyond its guesses, the last one too: nothing is guessed past the end
        assert figures.num_accepted_draft_tokens == figures.num_draft_tokens == 33 - 1 - steps


def test_a_wrong_drafter_is_never_accepted(toy_model):
    speculative = assert_lossless(toy_model, varied_requests(16), lambda outputs: WrongDrafter(outputs, 4, TOY_VOCAB))
    good, drafted = accepted(speculative)
    assert good == 0
    assert drafted > 100


def test_speculation_can_be_limited_and_switched_off_per_request(toy_model):
    prompt = range(1, 30)
    requests = [
        toy_request("free", prompt, max_tokens=30, ignore_eos=True),
        toy_request("two", prompt, max_tokens=30, ignore_eos=True, speculation=SpeculationParams(max_draft_tokens=2)),
        toy_request("off", prompt, max_tokens=30, ignore_eos=True, speculation=SpeculationParams(enabled=False)),
    ]
    speculative = assert_lossless(toy_model, requests, lambda outputs: OracleDrafter(outputs, 8))
    figures = {name: output.steps[-1].stats for name, output in speculative.outputs.items()}
    assert len(figures["free"].acceptance_histogram) > 3
    assert len(figures["two"].acceptance_histogram) == 3
    assert figures["off"].num_spec_steps == 0


def test_prefix_cache_hits_are_the_same_with_and_without_speculation(toy_model):
    def hits(drafter):
        engine = make_engine(toy_model, drafter).engine
        counts = []
        for i in range(4):  # each prompt continues the one before and its output
            prompt = list(range(1, 40)) + expected[: 16 * i]
            from specserve_workbench.testing.engines import run_requests

            outcome = run_requests(engine, [toy_request(f"turn {i}", prompt, ignore_eos=True)])
            counts.append(outcome.outputs[f"turn {i}"].steps[0].cached_tokens)
        return counts

    expected = run(toy_model, [toy_request("all", range(1, 40), max_tokens=80, ignore_eos=True)]).tokens()["all"]
    script = {f"turn {i}": expected[16 * i :] for i in range(4)}
    assert hits(NoisyDrafter(script, p=0.8, max_width=8, vocab_size=TOY_VOCAB)) == hits(None) == [0, 48, 64, 80]


def demo_requests(demo_model, count):
    from specserve.text.tokenizer import HfTokenizer

    tokenizer = HfTokenizer.from_dir(demo_model)
    heads = ["import ", "class Reader:\n    def ", "def read_json(path):\n", "for key, value in ", "# Copyright\n\n"]
    requests = []
    for i in range(count):
        prompt = tokenizer.encode(heads[i % len(heads)] + f"name_{i}" * (1 + i % 9))
        requests.append(
            toy_request(
                str(i),
                prompt,
                max_tokens=24 + i % 17,
                temperature=(0.0, 0.8, 1.0)[i % 3],
                seed=i,
                logprobs=(None, 2)[i % 2],
                repetition_penalty=(1.0, 1.1)[i % 5 == 0],
            )
        )
    return requests


def test_the_demo_model_is_lossless_in_bfloat16(demo_model):
    requests = demo_requests(demo_model, 15)
    assert_lossless(demo_model, requests, noisy(8192), dtype="bfloat16", kv_memory="128M")


@pytest.mark.sweep
@pytest.mark.parametrize("batch_size", [1, 8, 32])
def test_200_prompts_of_the_demo_model_are_lossless_in_bfloat16(demo_model, batch_size):
    requests = demo_requests(demo_model, 200)
    assert_lossless(
        demo_model, requests, noisy(8192), dtype="bfloat16", kv_memory="512M", max_num_seqs=batch_size, threads=2
    )
