"""Losslessness under every choice of backends: drafts change nothing, whichever backend computes what.

The backends of a CPU differ in their last bits, which the log-probabilities show: a position that went to the wrong
backend would be seen.
"""

from __future__ import annotations

import pytest
from hybrids import CHOICES, hybrid_engine, hybrid_options, undrafted

from covering import covering
from specserve_workbench.testing import engines
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import accepted, run_requests, verify_everything
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests

TIGHT = [
    {"kv_memory": "440K"},
    {"max_num_batched_tokens": 24},
    {"block_size": 1},
    {"block_size": 64},
    {"prefix_cache": False},
    {"chunked_prefill": False},
    {"threads": 2},
]


def settings_of(choice):
    return dict(zip(("prefill", "decode", "verify"), choice, strict=True))


def plain_run(model, choice, requests, **options):
    """No drafter: generated positions are served by what verifies elsewhere."""
    prefill, _, verify = choice
    return engines.plain_run(model, requests, **hybrid_options(prefill=prefill, decode=verify), **options)


def assert_lossless(model, choice, requests, **options):
    plain = plain_run(model, choice, requests, **options)
    drafter = NoisyDrafter(plain.tokens(), p=0.7, max_width=16, vocab_size=TOY_VOCAB, seed=0)
    engine = hybrid_engine(model, drafter, settings=settings_of(choice), **options).engine
    speculative = run_requests(engine, requests)
    assert not speculative.metrics.drafter_faults
    good, drafted = accepted(speculative)
    switched_off = run_requests(engine, undrafted(requests))
    assert accepted(switched_off) == (good, drafted)
    assert speculative.decided() == plain.decided()
    assert switched_off.decided() == plain.decided()
    return good, drafted


@covering(choice=CHOICES, dtype=["float32", "bfloat16"])
def test_drafts_change_nothing_whichever_backends_serve(toy_model, choice, dtype):
    good, drafted = assert_lossless(toy_model, choice, varied_requests(32), dtype=dtype, max_num_batched_tokens=256)
    assert 0.15 < good / drafted < 0.9


@covering(choice=CHOICES, options=TIGHT)
def test_drafts_change_nothing_when_everything_else_is_tight(toy_model, choice, options):
    assert_lossless(toy_model, choice, varied_requests(24, seed=1), **options)


@covering(choice=CHOICES, settings=[
    {"match_type": "learned", "max_breadth": 1},
    {"match_type": "learned"},
    {"match_type": "bfs"},
    {"match_type": "prob"},
])  # fmt: skip
def test_ngram_drafts_change_nothing_and_are_accepted(toy_model, choice, settings):
    """Twice: the second time the index has seen all answers, so most guesses are right."""
    requests = varied_requests(16, seed=4)
    plain = plain_run(toy_model, choice, requests).decided()
    tables = {"ngram": {"min_survival": 0.01, **settings}}
    engine = hybrid_engine(toy_model, beside=("ngram",), settings=settings_of(choice), plugin_options=tables).engine
    verify_everything(engine)
    for _ in range(2):
        assert run_requests(engine, requests).decided() == plain
    assert engine.metrics.num_accepted_tokens > 50
    assert not engine.metrics.drafter_faults


@pytest.mark.parametrize("choice", CHOICES, ids="-".join)
def test_prefix_hits_are_the_same_with_and_without_speculation(toy_model, choice):
    """Each turn continues the one before and its answer, whose blocks were computed in another arithmetic: only those
    of the prompts are taken up, and the tokens are those of a server without a cache."""
    answer = plain_run(toy_model, choice, [toy_request("all", range(1, 40), max_tokens=80, ignore_eos=True)])
    text = answer.tokens()["all"]
    everything = settings_of(choice) | {"decode": choice[2]}
    turns = [
        toy_request(f"turn {i}", [*range(1, 40), *text[: 16 * i]], ignore_eos=True, logprobs=2, max_tokens=24)
        for i in range(4)
    ]

    def decide(drafter, **options):
        engine = hybrid_engine(toy_model, drafter, settings=everything, **options).engine
        runs = [run_requests(engine, [turn]) for turn in turns]
        hits = [next(iter(each.outputs.values())).steps[0].cached_tokens for each in runs]
        return [each.decided() for each in runs], hits

    uncached, none = decide(None, prefix_cache=False)
    script = {name: output[0] for each in uncached for name, output in each.items()}
    drafted, hits = decide(NoisyDrafter(script, p=0.8, max_width=8, vocab_size=TOY_VOCAB))
    assert none == [0, 0, 0, 0]
    # 39 tokens of the first prompt fill two blocks of 16; turn 1 computes the third in its own prompt's arithmetic,
    # unless the answers were computed in the same one
    assert hits == ([0, 48, 64, 80] if choice[0] == choice[2] else [0, 32, 48, 64])
    assert drafted == uncached


def test_one_backend_for_all_shares_generated_blocks_as_ever(toy_model):
    first = toy_request("first", range(1, 40), max_tokens=40, ignore_eos=True)
    engine = hybrid_engine(toy_model, settings={"prefill": "sdpa", "decode": "sdpa"}).engine
    text = run_requests(engine, [first]).tokens()["first"]
    again = run_requests(engine, [toy_request("again", [*range(1, 40), *text[:30]], ignore_eos=True)])
    assert again.outputs["again"].steps[0].cached_tokens == 64
