"""Models with short convolutions and recurrent layers: a long prompt has the same bits in chunks of every size.

Compared are what the whole blocks of the cache hold in every layer, the recurrent states behind the prompt, and the
tokens and log-probabilities that follow.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch

from covering import covering_cells
from specserve_workbench.testing.engines import make_engine
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from specserve.batch.request import Request
    from specserve.engine.engine import Engine
    from specserve.types import RequestOutput

PROMPT = tuple((7 * i + i * i) % 310 for i in range(3000))
FAMILIES = ("lfm2", "lfm3", "qwen3_5_text")
ARITHMETICS = ("cpu-float32", "cpu-bfloat16", "torch-float32", "torch-bfloat16")
SIZES = (1, 7, 15, 17, 61, 127, 255, 257, 1499, 2999)
"""One token, primes, one less and one more than a block and than the interval of saved states, all but one token."""
LENGTHS = (*range(1, 300), *range(300, 3000, 13))


class Bits(NamedTuple):
    cached: list[torch.Tensor]
    states: list[torch.Tensor]
    answer: list[RequestOutput]


@pytest.fixture(scope="module")
def engine_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")

    @cache
    def make(family, arithmetic):
        kernels, dtype = arithmetic.split("-")
        model = write_checkpoint(folder / family, architecture=family, max_position_embeddings=4096)
        limits = {"max_num_seqs": 1, "max_num_batched_tokens": len(PROMPT), "prefix_cache": False, "kv_memory": "16M"}
        return make_engine(model, plugins=("cpu",) * (kernels == "cpu"), dtype=dtype, **limits).engine

    return make


@pytest.fixture(scope="module")
def whole(engine_of):
    return cache(lambda family, arithmetic: bits_of(engine_of(family, arithmetic), PROMPT, len(PROMPT)))


def bits_of(engine: Engine, prompt: tuple[int, ...], size: int) -> Bits:
    engine.scheduler.token_budget = size
    live = engine.add(toy_request("r", prompt, max_tokens=4, ignore_eos=True, logprobs=5))
    steps, outputs = 0, []
    while not outputs:
        outputs, steps = engine.step(), steps + 1
    assert steps == -(-len(prompt) // size)
    cached, states = cached_bits(engine, live), state_bits(engine, live)
    while engine.has_work:
        outputs += engine.step()
    return Bits(cached, states, [each for each in outputs if each.request_id == "r"])


def cached_bits(engine: Engine, live: Request) -> list[torch.Tensor]:
    """What each layer keeps of the tokens of the request's whole blocks, by block."""
    kv = engine.parts.cache
    blocks = torch.tensor(live.blocks[: live.prompt_len // kv.block_size], dtype=torch.int64)
    of_tokens = [each.view(kv.num_blocks, -1) for each in kv.token_states]
    return [each.index_select(0, blocks) for each in (*(part for layer in kv.blocks for part in layer), *of_tokens)]


def state_bits(engine: Engine, live: Request) -> list[torch.Tensor]:
    layers = engine.runner.model.layer_states
    return [layer.states[engine.scheduler.states.running[live.id].source].clone() for layer in layers]


def assert_same(bits: Bits, expected: Bits) -> None:
    for ours, theirs in zip(bits.cached + bits.states, expected.cached + expected.states, strict=True):
        assert torch.equal(ours, theirs)
    assert decided(bits) == decided(expected)


def decided(bits: Bits) -> list[object]:
    return [(output.tokens, output.logprobs) for output in bits.answer]


def cells():
    for family in FAMILIES:
        for arithmetic in ARITHMETICS:
            for size in SIZES:
                if arithmetic.startswith("cpu") or size > 60:
                    yield family, arithmetic, size


@covering_cells(["family", "arithmetic", "size"], list(cells()), ("family", "arithmetic"), ("family", "size"))
def test_chunks_of_any_size_have_the_bits_of_the_whole_prompt(engine_of, whole, family, arithmetic, size):
    expected = whole(family, arithmetic)
    assert len(expected.states) == (family == "qwen3_5_text")
    assert all(each.any() for each in expected.cached + expected.states)
    assert_same(bits_of(engine_of(family, arithmetic), PROMPT, size), expected)


@pytest.mark.sweep
@pytest.mark.parametrize("begin", range(1, len(PROMPT), 300))
@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_of_every_size_have_the_bits_of_the_whole_prompt(engine_of, whole, family, begin):
    for size in range(begin, min(begin + 300, len(PROMPT))):
        arithmetic = ARITHMETICS[size % 2]
        assert_same(bits_of(engine_of(family, arithmetic), PROMPT, size), whole(family, arithmetic))


@pytest.mark.sweep
@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_of_every_length_have_the_same_bits_in_chunks(engine_of, whole, family):
    for length in LENGTHS:
        arithmetic = ARITHMETICS[length // 7 % 2]
        engine, prompt = engine_of(family, arithmetic), PROMPT[:length]
        bits, at_once = bits_of(engine, prompt, 1 + 97 * length % 211), bits_of(engine, prompt, length)
        assert_same(bits, at_once)
        for ours, longer in zip(bits.cached, whole(family, arithmetic).cached, strict=True):
            assert torch.equal(ours, longer[: len(ours)])
