"""A batch can be sent: what computes it needs nothing of the live requests. Every forward pass reads decoded bytes."""

from __future__ import annotations

import msgspec
import pytest
import torch

from specserve.batch.batch import Batch
from specserve.batch.span import Span
from specserve.batch.transport import receive, send
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests
from specserve_workbench.testing.travelling import let_batches_travel

SETTINGS = {
    "torch": {},
    "native": {"plugins": ("cpu",)},
    "native-bfloat16": {"plugins": ("cpu",), "dtype": "bfloat16"},
    "hybrid": {"plugins": ("hybrid_attn", "cpu")},
    "piecewise": {"graphs": "piecewise"},
    "full": {"graphs": "full"},
    "chunks": {"max_num_batched_tokens": 24, "plugins": ("cpu",)},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_computed_from_bytes_is_what_is_computed_from_requests(toy_model, name):
    settings, requests = SETTINGS[name], varied_requests(12)
    plain = plain_run(toy_model, requests, **settings)
    noisy = NoisyDrafter(plain.tokens(), p=0.8, max_width=6, vocab_size=TOY_VOCAB)
    engine = make_engine(toy_model, noisy, **settings).engine
    received = let_batches_travel(engine)
    drafted = run_requests(engine, requests)
    assert drafted.decided() == plain.decided()
    assert drafted.metrics.num_accepted_tokens > 20
    spans = [span for batch in received for span in batch.spans]
    assert {type(batch) for batch in received} == {Batch}
    assert {type(span) for span in spans} == {Span}
    assert {span.draft is not None and span.draft.parents is not None for span in spans} == {True, False}


def test_a_batch_that_arrived_is_the_one_that_was_sent(toy_model):
    engine = make_engine(toy_model, NoisyDrafter({}, p=0.5, max_width=3, vocab_size=TOY_VOCAB)).engine
    forward, compared = engine.runner.forward, []

    def compare(batch):
        arrived = receive(send(batch), engine.parts.builder)
        for name in Batch.__struct_fields__:
            mine, theirs = getattr(batch, name), getattr(arrived, name)
            if name == "spans":
                mine = [tuple(getattr(span, field) for field in Span.__struct_fields__) for span in mine]
                theirs = [tuple(getattr(span, field) for field in Span.__struct_fields__) for span in theirs]
            if name == "rows":
                mine, theirs = batch.host_rows.tolist(), arrived.host_rows.tolist()
            if isinstance(mine, torch.Tensor):
                mine, theirs = mine.tolist(), theirs.tolist()
            assert mine == theirs, name
            compared.append(name)
        return forward(batch)

    engine.runner.forward = compare
    run_requests(engine, varied_requests(6))
    assert set(compared) == set(Batch.__struct_fields__)


def sent_by_a_run(model, num_requests):
    """An engine, and the bytes of every batch that it computed for `num_requests` requests."""
    engine, sent = make_engine(model).engine, []
    forward = engine.runner.forward
    engine.runner.forward = lambda batch: sent.append(send(batch)) or forward(batch)
    run_requests(engine, varied_requests(num_requests))
    return engine, sent


def test_a_request_is_not_sent(toy_model):
    _, sent = sent_by_a_run(toy_model, 4)
    spans, rows = msgspec.msgpack.decode(sent[0])
    assert {key for span in spans for key in span} == set(Span.__struct_fields__)
    assert len(rows) == 3 * 8 * sum(span["length"] for span in spans)


@pytest.mark.parametrize("change", [lambda rows: rows[:-8], lambda rows: rows + rows, lambda _: b""])
def test_rows_that_do_not_fit_the_spans_are_an_error(toy_model, change):
    engine, sent = sent_by_a_run(toy_model, 1)
    spans, rows = msgspec.msgpack.decode(sent[0])
    with pytest.raises(msgspec.DecodeError, match="hold no three numbers for each of"):
        receive(msgspec.msgpack.encode((spans, change(rows))), engine.parts.builder)


@pytest.mark.parametrize("cut", [0, 1, 40, -1])
def test_bytes_that_are_cut_off_are_an_error(toy_model, cut):
    engine, sent = sent_by_a_run(toy_model, 1)
    with pytest.raises(msgspec.DecodeError):
        receive(sent[0][:cut], engine.parts.builder)
