"""Padding rows: they belong to no request, write nothing, and change no bit of the others, whatever is in them."""

from __future__ import annotations

import pytest
import torch

from specserve_graphs.static_rows import PADDING_SLOT
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests

BUCKETS = (7, 40, 64)
"""Numbers of rows that hardly any step has."""


def poisoned(engine):
    """The engine, whose padding rows are NaN from the embedding on, and how many there were."""
    runner, counts = engine.runner, []
    forward = runner.forward

    def watched(batch):
        for passes in (runner.pieces, *runner.full_passes.values()):
            if not hasattr(passes, "unpoisoned"):
                passes.unpoisoned = passes.embed
                passes.embed = lambda padded, embed=passes.unpoisoned: poison(embed(padded), current)
        current[0] = batch.num_rows
        for tensor in (runner.memory.x, runner.memory.logits, runner.memory.attended, *runner.memory.hidden.values()):
            tensor.fill_(float("nan"))
        output = forward(batch)
        counts.append(current[1])
        return output

    current = [0, 0]
    runner.forward = watched
    return engine, counts


def poison(x, current):
    current[1] = len(x) - current[0]
    x[current[0] :] = float("nan")
    return x


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("mode", ["full", "piecewise"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_padding_of_nan_changes_nothing(toy_model, mode, dtype):
    requests = varied_requests(14)
    plain = run(toy_model, requests, dtype=dtype)
    drafter = NoisyDrafter(plain.tokens(), p=0.7, max_width=6, vocab_size=TOY_VOCAB)
    options = {"max_num_batched_tokens": 64, "graphs": mode, "graph_buckets": BUCKETS, "dtype": dtype}
    engine, counts = poisoned(make_engine(toy_model, drafter, **options).engine)
    found = run_requests(engine, requests)
    assert found.decided() == plain.decided()
    assert sum(count > 0 for count in counts) > len(counts) // 2, "there was padding"
    assert torch.isfinite(engine.parts.cache.data).all()


def test_the_cache_has_the_bits_that_eager_steps_give_it(toy_model):
    """Also in blocks that nobody holds: padding writes to no slot."""
    requests = varied_requests(10)
    engines = {
        graphs: make_engine(
            toy_model, plugins=("cpu",), graphs=graphs, graph_buckets=BUCKETS, max_num_batched_tokens=64
        ).engine
        for graphs in ("none", "piecewise", "full")
    }
    for engine in engines.values():
        run_requests(engine, requests)
    expected = engines["none"].parts.cache.data
    assert expected.abs().sum() > 0
    for graphs in ("piecewise", "full"):
        assert torch.equal(engines[graphs].parts.cache.data, expected), graphs


def test_padding_rows_have_no_slot(toy_model):
    engine = make_engine(
        toy_model, plugins=("cpu",), graphs="full", graph_buckets=(16,), max_num_batched_tokens=16
    ).engine
    run_requests(engine, varied_requests(2))
    ids, positions, slots = engine.runner.memory.rows.view(16)
    assert slots[-8:].tolist() == [PADDING_SLOT] * 8
    assert positions[-8:].tolist() == ids[-8:].tolist() == [0] * 8
