"""Families with layers without attention are lossless: greedy and seeded, chains and trees, in batches of any size,
while requests are preempted, aborted, or begin behind cached blocks.

Beside plugins: tests/models/test_families_beside_plugins.py.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
import torch

from covering import covering_cells
from specserve.kv.cache import KVCache
from specserve.models.read_config import read_config
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request
from specserve_workbench.testing.toy import write_checkpoint

FAMILIES = ("lfm2", "lfm3", "qwen3_5_text")
EVENTS = ("none", "preempted", "aborted", "hits", "hits without a saved state")
SHARED = tuple((7 * i + i * i) % 310 for i in range(100))
MAX_TOKENS = 24


class Chains(NoisyDrafter):
    tree = NoisyDrafter.chain


class Trees(NoisyDrafter):
    chain = NoisyDrafter.tree


DRAFTS = {"chains": Chains, "trees": Trees}


@pytest.fixture(scope="module")
def model_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return cache(lambda family: write_checkpoint(folder / family, architecture=family))


@pytest.fixture(scope="module")
def alone(model_of):
    """What each request gets without drafts, neighbours and cached blocks."""

    @cache
    def expected(family, kernels, dtype, sampling):
        engine = engine_of(model_of(family), kernels, dtype, max_num_seqs=1, prefix_cache=False)
        return run_requests(engine, requests_of(sampling))

    return expected


def engine_of(model, kernels, dtype, drafter=None, **options):
    return make_engine(model, drafter, plugins=("cpu",) * (kernels == "cpu"), dtype=dtype, **options).engine


def requests_of(sampling):
    """Some begin alike: with the whole of a prompt, or with a part behind which no state was saved."""
    begins = (SHARED, SHARED[:70], SHARED[:3], SHARED[40:])
    drawn = {"temperature": 0.9, "top_p": 0.95} if sampling == "seeded" else {}
    return [
        toy_request(
            str(i),
            (*begins[i % 4], *((11 * i + j) % 310 for j in range(1, i % 5 * 8))),
            max_tokens=MAX_TOKENS,
            ignore_eos=True,
            logprobs=(None, 2)[i % 2],
            seed=i,
            **drawn,
        )
        for i in range(36)
    ]


def room_for(model, num_blocks, dtype):
    """As --kv-memory."""
    config, dtype = read_config(model), getattr(torch, dtype)
    keys = KVCache.bytes_per_block(len(config.attention_layers), 16, config.num_kv_heads, config.head_dim, dtype)
    return str(num_blocks * (keys + 16 * sum(config.token_widths) * dtype.itemsize))


def warm_up(engine, event):
    """Blocks of the shared prompt are known; the state behind them is, too, or is not."""
    run_requests(engine, [toy_request("first", SHARED, max_tokens=1)])
    states = engine.scheduler.states
    if event == "hits without a saved state" and states.num_bytes:
        for block_hash in [*states.pool.by_hash]:
            states.forget(block_hash)


def abort_some(engine, requests):
    """Every third request runs a while, beside the others, and is aborted in the middle of a prompt or an answer.
    Returns what the others got."""
    outputs = []
    for request in requests:
        engine.check(request)
        engine.add(request)
    for step in range(3 * len(requests)):
        outputs += engine.step()
        running = [each for each in engine.scheduler.running if int(each.id) % 3 == 0]
        if step % 2 and running:
            engine.abort(running[step % len(running)].id)
    for request in requests[::3]:
        engine.abort(request.request_id)
    while engine.has_work:
        outputs += engine.step()
    engine.check_integrity()
    assert engine.metrics.request_success["abort"] > len(requests) // 6
    return outputs


AXES = {
    "family": FAMILIES,
    "event": EVENTS,
    "drafts": DRAFTS,
    "batch_size": (1, 8, 32),
    "dtype": ("float32", "bfloat16"),
    "sampling": ("greedy", "seeded"),
    "kernels": ("cpu", "torch"),
}
CELLS = [*product(*AXES.values())][::7]
"""No number of values is a multiple of 7: so any two values meet."""


@covering_cells(
    [*AXES], CELLS,
    *(("family", axis) for axis in ("event", "drafts", "batch_size", "dtype", "sampling", "kernels")),
    *(("event", axis) for axis in ("drafts", "batch_size", "dtype", "sampling", "kernels")),
    ("drafts", "sampling"),
)  # fmt: skip
def test_drafts_change_nothing(model_of, alone, family, event, drafts, batch_size, dtype, sampling, kernels):
    model, expected = model_of(family), alone(family, kernels, dtype, sampling)
    requests = requests_of(sampling)
    if batch_size == 1:
        requests = requests[:8]
    drafter = DRAFTS[drafts](expected.tokens(), p=0.8, max_width=6, vocab_size=TOY_VOCAB)
    room = {"kv_memory": room_for(model, 20 + batch_size // 2, dtype)} if event == "preempted" else {}
    limits = {"max_num_seqs": batch_size, "max_num_batched_tokens": 64, **room}
    engine = engine_of(model, kernels, dtype, drafter, prefix_cache=event.startswith("hits"), **limits)
    if event.startswith("hits"):
        warm_up(engine, event)
    if event == "aborted":
        tokens = {}
        for output in abort_some(engine, requests):
            tokens.setdefault(output.request_id, []).extend(output.tokens)
        for request_id, got in tokens.items():
            whole = expected.tokens()[request_id]
            assert got == whole[: len(got)]
            assert len(got) == len(whole) or int(request_id) % 3 == 0
    else:
        served = run_requests(engine, requests)
        assert served.decided() == {each.request_id: expected.decided()[each.request_id] for each in requests}
        cached = served.outputs["0"].steps[0].cached_tokens
        saved = event == "hits" or (event.startswith("hits") and family != "qwen3_5_text")
        assert cached == (96 if saved else 0)
    assert engine.metrics.num_accepted_tokens > 40
    assert not engine.metrics.drafter_faults
    assert (engine.metrics.num_preemptions > 0) == (event == "preempted" and batch_size > 1)
