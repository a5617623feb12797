"""A request under an adapter is the same request in any batch: beside other adapters, the base, with a full cache."""

from __future__ import annotations

import msgspec
import pytest

from covering import covering
from specserve.errors import RequestError
from specserve_workbench.testing.engines import run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests
from toy_adapters import lora_engine, under, write_adapter

pytestmark = pytest.mark.usefixtures("each_kernel_set")


def spread(adapters, count):
    """A name for each of `count` requests: the base, then every adapter, over and over."""
    names = [None, *adapters]
    return [names[i % len(names)] for i in range(count)]


@covering(each_kernel_set=["torch", "cpu"], dtype=["float32", "bfloat16"], indirect=["each_kernel_set"])
def test_eight_adapters_and_the_base_give_each_request_what_it_gets_alone(toy_model, adapters, dtype):
    requests = varied_requests(36)
    options = {"dtype": dtype, "prefix_cache": False}
    engine, store = lora_engine(toy_model, adapters, max_num_seqs=18, max_num_batched_tokens=200, **options)
    requests = under(store, requests, spread(adapters, len(requests)))
    together = run_requests(engine, requests).decided()
    for request in requests:
        assert run_requests(engine, [request]).decided()[request.request_id] == together[request.request_id]


def test_adapters_differ_from_each_other_and_the_base_is_as_without_the_plugin(toy_model, adapters):
    engine, store = lora_engine(toy_model, adapters)
    requests = [toy_request(str(i), range(3, 20), logprobs=2) for i in range(9)]
    together = run_requests(engine, under(store, requests, spread(adapters, 9)))
    assert len({tuple(tokens) for tokens in together.tokens().values()}) == 9
    assert together.decided()["0"] == run(toy_model, requests[:1]).decided()["0"]


@covering(indirect=["each_kernel_set"], each_kernel_set=["torch", "cpu"], options=[
    {"max_num_batched_tokens": 24},
    {"block_size": 1},
    {"threads": 2},
    {"chunked_prefill": False},
    {"kv_memory": "440K"},
])  # fmt: skip
def test_chunks_threads_and_preemption_change_nothing(toy_model, adapters, options):
    requests = varied_requests(24, seed=3)
    plain, store = lora_engine(toy_model, adapters)
    expected = run_requests(plain, under(store, requests, spread(adapters, 24))).decided()
    engine, store = lora_engine(toy_model, adapters, **options)
    tight = run_requests(engine, under(store, requests, spread(adapters, 24)))
    assert tight.decided() == expected
    assert bool(tight.metrics.num_preemptions) == ("kv_memory" in options)


def test_the_prefix_cache_crosses_neither_adapters_nor_versions(toy_model, adapters, tmp_path):
    prompt = range(3, 67)
    engine, store = lora_engine(toy_model, {"x": adapters["a1"], "y": adapters["a2"]})

    def served(name):
        (request,) = under(store, [toy_request("r", prompt, logprobs=1)], [name])
        output = run_requests(engine, [request]).outputs["r"]
        return output.tokens, output.steps[0].cached_tokens

    first = {name: served(name) for name in (None, "x", "y")}
    assert {cached for _, cached in first.values()} == {0}
    assert {name: served(name) for name in first} == {name: (tokens, 48) for name, (tokens, _) in first.items()}
    from specserve_lora.adapter_dir import unconfined_dir

    other = write_adapter(tmp_path, toy_model, seed=99)
    store.load("x", unconfined_dir(str(other)), replace=True)
    tokens, cached = served("x")
    assert cached == 0
    assert tokens != first["x"][0]
    store.load("x", unconfined_dir(str(adapters["a1"])), replace=True)
    assert served("x") == (first["x"][0], 48)


def test_a_salt_stands_behind_the_adapter(toy_model, adapters):
    engine, store = lora_engine(toy_model, adapters)
    plain = under(store, [toy_request("a", range(3, 67)), toy_request("b", range(3, 67))], ["a1", None])
    salted = [msgspec.structs.replace(r, cache_salt="salt") for r in plain]
    expected = run_requests(engine, plain)
    got = run_requests(engine, salted)
    assert got.tokens() == expected.tokens()
    assert [output.steps[0].cached_tokens for output in got.outputs.values()] == [0, 0]


def test_an_adapter_that_is_not_loaded_is_an_error_and_never_the_base(toy_model, adapters):
    engine, _ = lora_engine(toy_model, adapters)
    request = msgspec.structs.replace(toy_request("r", range(3, 9)), adapter="a1@0123456789abcdef")
    with pytest.raises(RequestError, match="adapter 'a1@0123456789abcdef' is not loaded") as refusal:
        engine.check(request)
    assert refusal.value.param == "adapter"
    good = toy_request("g", range(3, 9))
    assert run_requests(engine, [good]).tokens(), "a salt, or nothing, is the base model's"
