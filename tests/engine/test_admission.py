"""Every limit a client can hit is named before anything is allocated."""

from __future__ import annotations

import math

import pytest

from specserve.engine.admission import EngineLimits, check_request
from specserve.errors import QueueFullError, RequestError
from specserve.types import GenerateRequest, SpeculationParams, StructuredOutput
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request

LIMITS = EngineLimits(vocab_size=320, max_model_len=100, cache_tokens=80, eos_token_ids=(317,))

BAD = [
    ("max_tokens", {"max_tokens": 0}, "between 1 and"),
    ("max_tokens", {"max_tokens": 2**31}, "got 2147483648"),
    ("min_tokens", {"min_tokens": -1}, "between 0 and 16"),
    ("min_tokens", {"min_tokens": 17}, "between 0 and 16, which is max_tokens; got 17"),
    ("temperature", {"temperature": -0.1}, "between 0 and 100; got -0.1"),
    ("temperature", {"temperature": math.nan}, "got nan"),
    ("temperature", {"temperature": math.inf}, "got inf"),
    ("top_k", {"top_k": -2}, "between -1 and"),
    ("top_p", {"top_p": 0.0}, "above 0 and at most 1"),
    ("top_p", {"top_p": 1.01}, "above 0 and at most 1"),
    ("top_p", {"top_p": math.nan}, "got nan"),
    ("min_p", {"min_p": 1.5}, "between 0 and 1; got"),
    ("min_p", {"min_p": -0.5}, "between 0 and 1; got"),
    ("repetition_penalty", {"repetition_penalty": 0.0}, "between 0.01 and 100"),
    ("repetition_penalty", {"repetition_penalty": math.nan}, "got nan"),
    ("presence_penalty", {"presence_penalty": 2.1}, "between -2 and 2; got"),
    ("frequency_penalty", {"frequency_penalty": -2.1}, "between -2 and 2; got"),
    ("seed", {"seed": 2**64}, "between"),
    ("seed", {"seed": -(2**63) - 1}, "between"),
    ("logprobs", {"logprobs": 21}, "between 0 and 20"),
    ("prompt_logprobs", {"prompt_logprobs": -1}, "between 0 and 20"),
    ("stop", {"stop": ("x",) * 17}, "at most 16 entries are allowed; got 17"),
    ("stop", {"stop": ("x", "")}, "must not be empty"),
    ("stop_token_ids", {"stop_token_ids": (320,)}, "between 0 and 319; got 320"),
    ("logit_bias", {"logit_bias": {-1: 0.0}}, "between 0 and 319; got -1"),
    ("logit_bias", {"logit_bias": {1: 100.5}}, "between -100 and 100; got 100.5"),
    ("logit_bias", {"logit_bias": {1: math.nan}}, "got nan"),
    ("logit_bias", {"logit_bias": dict.fromkeys(range(1025), 1.0)}, "at most 1024"),
    ("allowed_token_ids", {"allowed_token_ids": ()}, "at least one token"),
    ("allowed_token_ids", {"allowed_token_ids": (5, 999)}, "got 999"),
    ("allowed_token_ids", {"allowed_token_ids": (5,), "bad_words": ((5,),)}, "forbid every one"),
    ("allowed_token_ids", {"allowed_token_ids": (317,), "min_tokens": 3}, "forbid every one"),
    ("bad_words", {"bad_words": ((1,), ())}, "must not be empty"),
    ("bad_words", {"bad_words": ((1, 320),)}, "got 320"),
    ("bad_words", {"bad_words": ((1,),) * 257}, "at most 128 words, which are 256 token sequences"),
]


@pytest.mark.parametrize(("param", "params", "message"), BAD)
def test_a_value_out_of_range_is_refused_by_name_with_what_is_allowed(param, params, message):
    with pytest.raises(RequestError) as refusal:
        check_request(toy_request("r", [1, 2], **params), LIMITS)
    assert refusal.value.param == param
    assert str(refusal.value).startswith(f"{param}: ")
    assert message in str(refusal.value)
    assert refusal.value.status == 400


@pytest.mark.parametrize(("prompt", "message", "code"), [
    ([], "no tokens; give at least one", None),
    ([320], "between 0 and 319; got 320", None),
    ([-1], "between 0 and 319; got -1", None),
    ([1] * 100, "This model's maximum context length is 100 tokens. The prompt has 100", "context_length_exceeded"),
    ([1] * 80, "length is 80 tokens, as many as the KV cache holds. The prompt has 80", "context_length_exceeded"),
])  # fmt: skip
def test_a_prompt_that_cannot_be_served_is_refused_with_its_length(prompt, message, code):
    with pytest.raises(RequestError) as refusal:
        check_request(toy_request("r", prompt), LIMITS)
    assert message in str(refusal.value)
    assert (refusal.value.param, refusal.value.code) == ("prompt", code)


def test_a_negative_number_of_draft_tokens_is_refused():
    request = toy_request("r", [1], speculation=SpeculationParams(max_draft_tokens=-1))
    with pytest.raises(RequestError, match="at least 0; got -1") as refusal:
        check_request(request, LIMITS)
    assert refusal.value.param == "speculation.max_draft_tokens"


@pytest.mark.parametrize(
    ("adapter", "message"),
    [("a@1", "adapter: no enabled plugin serves adapters, such as --plugin lora; got 'a@1'"), ("a\0b", "no NUL")],
    ids=repr,
)
def test_an_adapter_that_nobody_computes_is_refused_and_never_served_by_the_base(adapter, message):
    request = GenerateRequest(request_id="r", prompt_token_ids=(1, 2), adapter=adapter)
    with pytest.raises(RequestError, match=message) as refusal:
        check_request(request, LIMITS)
    assert refusal.value.param == "adapter"
    if "NUL" not in message:
        check_request(request, LIMITS._replace(serves_adapters=True))


@pytest.mark.parametrize("params", [
    {"max_tokens": 1, "min_tokens": 1, "temperature": 100.0, "top_k": -1, "top_p": 1.0, "min_p": 1.0},
    {"presence_penalty": -2.0, "frequency_penalty": 2.0, "repetition_penalty": 100.0, "seed": -(2**63)},
    {"logprobs": 20, "prompt_logprobs": 0, "seed": 2**64 - 1, "logit_bias": {0: -100.0, 319: 100.0}},
    {"stop": ("x",) * 16, "bad_words": ((0,), (319,)), "allowed_token_ids": (318, 319), "stop_token_ids": (0,)},
])  # fmt: skip
def test_every_limit_itself_is_allowed(toy_model, params):
    request = toy_request("r", [1, 2, 3], **params)
    check_request(request, LIMITS)
    assert run_requests(make_engine(toy_model).engine, [request]).outputs["r"].finish_reason in ("stop", "length")


def test_the_longest_prompt_of_a_context_gets_its_one_token(toy_model):
    engine = make_engine(toy_model, max_model_len=50).engine
    outcome = run_requests(engine, [toy_request("r", [1] * 49, ignore_eos=True)])
    assert (len(outcome.outputs["r"].tokens), outcome.outputs["r"].finish_reason) == (1, "length")
    with pytest.raises(RequestError, match="maximum context length is 50 tokens"):
        engine.check(toy_request("r", [1] * 50))


def test_the_longest_prompt_of_a_cache_gets_its_one_token(toy_model):
    engine = make_engine(toy_model, kv_memory="40K", block_size=4).engine
    size = engine.parts.limits.cache_tokens
    assert size < 100
    outcome = run_requests(engine, [toy_request("r", [1] * (size - 1), ignore_eos=True)])
    assert (len(outcome.outputs["r"].tokens), outcome.outputs["r"].finish_reason) == (1, "length")
    with pytest.raises(RequestError, match=f"maximum context length is {size} tokens, as many as the KV cache"):
        engine.check(toy_request("r", [1] * size))


def test_a_full_queue_is_an_error_that_says_to_try_again(toy_model):
    engine = make_engine(toy_model, max_waiting=2).engine
    for name in "ab":
        engine.check(toy_request(name, [1]))
        engine.add(toy_request(name, [1]))
    with pytest.raises(QueueFullError, match="2 requests are waiting already") as refusal:
        engine.check(toy_request("c", [1]))
    assert (refusal.value.status, refusal.value.code, refusal.value.retry_after) == (429, "queue_full", 1)
    engine.step()  # both run now
    engine.check(toy_request("c", [1]))


def test_a_refused_request_leaves_the_engine_idle(toy_model):
    engine = make_engine(toy_model).engine
    with pytest.raises(RequestError):
        engine.run([toy_request("r", [1], top_p=2.0)], lambda output: None)
    assert not engine.has_work
    engine.check_integrity()


def test_a_prompt_that_is_too_long_is_told_which_fields_keep_its_end() -> None:
    with pytest.raises(RequestError, match=r"truncate_prompt_tokens -1 .* /v1/completions .* truncation auto"):
        check_request(toy_request("r", [1] * 100), LIMITS)


@pytest.mark.parametrize(("param", "kind", "served", "message"), [
    ("tool_choice", "structural_tag", (), "tool_choice: this server cannot enforce that the model calls a tool. Leave "
     "tool_choice out, so that the model may choose, or start it with --plugin grammar, after pip install "
     "specserve-plugin-grammar."),
    ("response_format", "json_object", (), "response_format: this server cannot enforce a text in the form "
     "json_object. Leave response_format out, or start it with --plugin grammar, after pip install "
     "specserve-plugin-grammar."),
    ("guided_regex", "regex", ("choice", "json_object"), "guided_regex: this server cannot enforce a text in the form "
     "regex; its plugins enforce only choice, json_object. Leave guided_regex out, or start it with --plugin grammar, "
     "after pip install specserve-plugin-grammar."),
])  # fmt: skip
def test_a_form_that_no_plugin_enforces_is_refused_with_what_to_do(param, kind, served, message) -> None:
    wanted = StructuredOutput(kind=kind, text="", param=param)
    with pytest.raises(RequestError) as refusal:
        check_request(toy_request("r", [1], structured_output=wanted), LIMITS._replace(output_kinds=frozenset(served)))
    assert str(refusal.value) == message
