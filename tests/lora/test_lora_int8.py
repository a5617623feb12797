"""Adapters over weights of few bits or an 8-bit cache: in the model's dtype, and for their requests alone."""

from __future__ import annotations

import pytest

from specserve_workbench.testing.engines import run, run_requests, verify_everything
from specserve_workbench.testing.requests import varied_requests
from toy_adapters import lora_engine, under, write_adapters


@pytest.mark.parametrize("kept", [
    {"weights": "int8"},
    {"weights": "int8-g64"},
    {"weights": "int8", "activations": "int8"},
    {"weights": "int4"},
    {"weights": "int4", "activations": "float", "kv": "int8"},
    {"kv": "int8"},
    {"weights": "int8", "kv": "int8"},
], ids=str)  # fmt: skip
def test_drafts_and_neighbours_change_nothing(toy_model, tmp_path, kept):
    adapters = write_adapters(tmp_path, toy_model, 3)
    requests, names = varied_requests(12), [None, *adapters] * 3
    options = {"plugin_options": {"cpu": kept}, "dtype": "bfloat16"}
    engine, store = lora_engine(toy_model, adapters, beside=("cpu", "ngram"), threads=2, **options)
    verify_everything(engine)
    together = run_requests(engine, under(store, requests, names)).decided()
    assert engine.metrics.num_draft_tokens > 0
    plain, store = lora_engine(toy_model, adapters, beside=("cpu",), **options)
    for request in under(store, requests, names):
        assert run_requests(plain, [request]).decided()[request.request_id] == together[request.request_id]
    base = run(toy_model, requests, plugins=("cpu",), **options).decided()
    same = [together[request.request_id] == base[request.request_id] for request in requests]
    assert same == [name is None for name in names]
