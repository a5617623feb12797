"""Engines with recurrent layers: drafts, chunks, preemption, faults and cached prefixes change no token."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
import torch
from recurrent_family import PLUGIN, Recurrent

from specserve.errors import ConfigError
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import drafter_plugin, make_engine, run_requests, verify_everything
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

PROMPT = tuple((7 * i + 3) % 300 for i in range(100))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("recurrent"), architecture=Recurrent(), num_hidden_layers=3)


@pytest.fixture(scope="module")
def alone(model):
    """What each request gets without drafts and neighbours, by dtype."""
    return {
        dtype: run_requests(engine_of(model, dtype, max_num_seqs=1), requests()) for dtype in ("float32", "bfloat16")
    }


def requests():
    return varied_requests(10)


def engine_of(model, dtype="float32", drafter=None, **options):
    extra = {"recurrent": PLUGIN} | ({} if drafter is None else {"drafter": drafter_plugin(lambda: drafter)})
    return make_engine(model, extra=extra, dtype=dtype, **options).engine


LIMITS = ("in chunks", "preempted", "no saved states", "piecewise graphs", "native kernels")


def limits_of(model, name, dtype):
    match name:
        case "in chunks":
            return {"max_num_batched_tokens": 24}
        case "preempted":
            block = 2 * 16 * 2 * 32 * getattr(torch, dtype).itemsize  # of one layer with attention
            return {"max_num_seqs": 10, "kv_memory": str(27 * block), "max_model_len": 430}
        case "no saved states":
            with pytest.raises(ConfigError) as raised:
                engine_of(model, dtype, NoisyDrafter({}, p=0.5, max_width=2, vocab_size=TOY_VOCAB), state_memory="1K")
            return {"state_memory": re.search(r"take (\d+) bytes", str(raised.value))[1]}
        case "piecewise graphs":
            return {"plugins": ("cpu", "graphs"), "graphs": "piecewise", "graph_buckets": (8, 64)}
        case "native kernels":
            return {"plugins": ("cpu",), "max_num_batched_tokens": 24, "threads": 2}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", LIMITS)
def test_drafts_change_nothing(model, alone, dtype, name):
    expected, limits = alone[dtype], limits_of(model, name, dtype)
    if "plugins" in limits:
        expected = run_requests(engine_of(model, dtype, plugins=("cpu",), max_num_seqs=1), requests())
    noisy = NoisyDrafter(expected.tokens(), p=0.8, max_width=6, vocab_size=TOY_VOCAB)
    engine = engine_of(model, dtype, noisy, **limits)
    for _ in range(2):  # the second time with what is cached
        drafted = run_requests(engine, requests())
        assert drafted.decided() == expected.decided()
    assert drafted.metrics.num_accepted_tokens > 60
    assert (drafted.metrics.num_preemptions > 0) == (name == "preempted")
    if name != "preempted":  # its blocks are evicted
        assert (drafted.metrics.prefix_cache_hits > 0) == (name != "no saved states")


def test_kernel_sets_may_have_a_mixer_of_their_own(model):
    mixers = {type(mixer).__name__ for mixer in engine_of(model, plugins=("cpu",)).runner.model.recurrent}
    assert mixers == {"NativeDeltaNet"}


class Answer(NamedTuple):
    tokens: list[int]
    cached_tokens: int


def answer_of(engine, prompt, max_tokens=24):
    outputs = []
    engine.run([toy_request("r", prompt, max_tokens=max_tokens, ignore_eos=True)], outputs.append)
    return Answer([token for output in outputs for token in output.tokens], outputs[0].cached_tokens)


def test_a_hit_goes_to_the_last_saved_state(model):
    engine = engine_of(model)
    first = answer_of(engine, PROMPT)
    assert answer_of(engine, PROMPT).tokens == first.tokens
    assert engine.metrics.prefix_cache_hits == 96
    assert answer_of(engine, PROMPT[:70]).cached_tokens == 0  # blocks are known, but no state behind them is
    assert not engine.scheduler.states.pool.pins, "no request starts from a saved state any more"
    turn = (*PROMPT, *first.tokens, 5, 6, 7)
    answer = answer_of(engine, turn)
    assert answer.cached_tokens == 112  # the newest state of an answer is saved
    assert answer.tokens == answer_of(engine_of(model, prefix_cache=False), turn).tokens


def test_of_an_answer_only_the_newest_state_is_kept(model):
    engine = engine_of(model)
    answer_of(engine, PROMPT[:20], max_tokens=200)
    assert engine.metrics.states_saved == 2
    assert engine.metrics.states_running == 0


def test_long_prompts_have_states_within(model):
    engine = engine_of(model, max_num_batched_tokens=1024)
    prompt = tuple((5 * i) % 290 for i in range(700))
    answer_of(engine, prompt)
    output = answer_of(engine, (*prompt[:600], 1, 2, 3))
    assert output.cached_tokens == 512
    assert output.tokens == answer_of(engine_of(model, prefix_cache=False), (*prompt[:600], 1, 2, 3)).tokens


def test_a_forgotten_block_takes_its_state_with_it(model):
    engine = engine_of(model)
    answer_of(engine, PROMPT)
    assert engine.metrics.states_saved
    engine.reset_prefix_cache()
    assert engine.scheduler.states.num_saved == 0
    assert answer_of(engine, PROMPT).cached_tokens == 0


def test_steps_that_raise_are_computed_again_from_the_same_states(model, alone):
    noisy = NoisyDrafter(alone["float32"].tokens(), p=0.8, max_width=6, vocab_size=TOY_VOCAB)
    engine = engine_of(model, drafter=noisy)
    forward, calls = engine.runner.forward, []

    def failing(batch):
        output = forward(batch)
        calls.append(batch)
        if len(calls) % 3 == 0 and len(batch.spans) > 1:
            raise RuntimeError("this step was computed, and its answer is lost")
        return output

    engine.runner.forward = failing
    assert run_requests(engine, requests()).decided() == alone["float32"].decided()
    assert engine.metrics.faults.counts


def test_an_aborted_request_gives_its_states_back(model):
    engine = engine_of(model)
    for number in range(3):
        request = toy_request(f"r{number}", PROMPT, max_tokens=50, ignore_eos=True)
        engine.check(request)
        engine.add(request)
    for _ in range(4):
        engine.step()
    assert engine.metrics.states_running == 3
    for number in range(3):
        engine.abort(f"r{number}")
    assert engine.metrics.states_running == 0
    engine.check_integrity()


def test_too_little_memory_is_refused_with_what_is_needed(model):
    with pytest.raises(
        ConfigError, match=r"the states of 8 requests take \d+ bytes, and there is room for 102400. Give"
    ):
        engine_of(model, state_memory="100K")
    assert engine_of(model, state_memory="100K", max_num_seqs=1).metrics


def test_drafts_wider_than_what_can_be_followed_are_cut(model, alone):
    noisy = NoisyDrafter(alone["float32"].tokens(), p=0.9, max_width=6, vocab_size=TOY_VOCAB)
    engine = verify_everything(engine_of(model, drafter=noisy, max_draft_tokens=3))
    assert run_requests(engine, requests()).decided() == alone["float32"].decided()
    assert engine.metrics.num_accepted_tokens > 60
    assert not engine.metrics.drafter_faults
    assert max(engine.metrics.accepted_per_position) == 2


def test_states_of_no_draft_tokens_are_smaller(model):
    plain, drafting = (
        engine_of(model),
        engine_of(model, drafter=NoisyDrafter({}, p=0.5, max_width=2, vocab_size=TOY_VOCAB)),
    )
    assert 0 < plain.metrics.state_bytes < drafting.metrics.state_bytes
    assert all(layer.trails.numel() == 0 for layer in plain.runner.model.layer_states)
