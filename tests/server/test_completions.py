"""POST /v1/completions: prompts, choices, echo, logprobs, usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from specserve.sampling.seeds import choice_seed
from specserve.types import SpeculationParams

if TYPE_CHECKING:
    from fake_engine import FakeEngine

    from specserve.text.tokenizer import HfTokenizer


def beginnings(tokenizer: HfTokenizer, ids: list[int]) -> list[int]:
    """How many whole characters precede each token."""
    return [len(tokenizer.decode(ids[:i]).rstrip("\ufffd")) for i in range(len(ids))]


async def complete(client: Any, **body: Any) -> Any:
    response = await client.post("/v1/completions", json={"prompt": "def add(", "max_tokens": 99, **body})
    assert response.status == 200, await response.text()
    return await response.json()


async def test_a_string_prompt_gives_text_and_usage(client: Any, engine: FakeEngine) -> None:
    body = await complete(client)
    assert body["object"] == "text_completion"
    assert body["model"] == "fake-model"
    assert body["id"].startswith("cmpl-")
    (choice,) = body["choices"]
    text = {"index": 0, "text": engine.text, "logprobs": None}
    assert choice == {**text, "finish_reason": "length", "stop_reason": None}
    generated = len(engine.tokenizer.encode(engine.text))
    prompt = len(engine.tokenizer.encode("def add("))
    assert body["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


async def test_speculation_statistics_are_summed_over_choices(client: Any) -> None:
    one = (await complete(client))["metrics"]["speculative_decoding"]
    two = (await complete(client, n=2))["metrics"]["speculative_decoding"]
    assert one["mean_acceptance_length"] == two["mean_acceptance_length"] == 2.0
    assert one["draft_acceptance_rate"] == pytest.approx(1 / 3)
    assert two["num_spec_steps"] == 2 * one["num_spec_steps"] == sum(two["acceptance_histogram"])


@pytest.mark.parametrize(
    ("prompt", "count"), [("a b", 1), (["a", "b c"], 2), ([5, 6, 7], 1), ([[5], [6, 7], [8]], 3), (["x"], 1)]
)
async def test_every_form_of_prompt_is_read(client: Any, engine: FakeEngine, prompt: Any, count: int) -> None:
    body = await complete(client, prompt=prompt)
    assert [choice["index"] for choice in body["choices"]] == list(range(count))
    assert len(engine.submitted) == count
    if prompt == [5, 6, 7]:
        assert engine.submitted[0].prompt_token_ids == (5, 6, 7)


async def test_choices_of_one_seed_have_seeds_of_their_own(client: Any, engine: FakeEngine) -> None:
    body = await complete(client, prompt=["a", "b"], n=2, seed=11)
    assert body["usage"]["prompt_tokens"] == 2
    seeds = {request.request_id.rpartition("-")[2]: request.params.seed for request in engine.submitted}
    assert seeds == {str(2 * i + j): choice_seed(11, i, j) for i in range(2) for j in range(2)}
    assert seeds["0"] == 11


async def test_nulls_and_unknown_fields_are_ignored(client: Any, engine: FakeEngine) -> None:
    await complete(client, n=None, stop=None, temperature=None, logit_bias=None, seed=None, best_of=1, mystery=[1])
    params = engine.submitted[0].params
    assert (params.temperature, params.seed, params.stop) == (0.5, None, ())  # the model's own temperature


async def test_every_extra_reaches_the_engine(client: Any, engine: FakeEngine) -> None:
    extras = {
        "temperature": 0, "top_k": -1, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1, "min_tokens": 2,
        "presence_penalty": 0.1, "frequency_penalty": 0.2, "ignore_eos": True, "stop_token_ids": [3],
        "include_stop_str_in_output": True, "allowed_token_ids": [1, 2], "seed": -5, "prompt_logprobs": 3,
        "logit_bias": {"4": -1}, "stop": "zzz",
    }  # fmt: skip
    wish = {"enabled": False, "max_draft_tokens": 2, "drafters": ["ngram", "eagle"]}
    await complete(client, **extras, priority=4, cache_salt="me", speculation=wish)
    (request,) = engine.submitted
    expected = {**extras, "top_k": 0, "stop_token_ids": (3,), "allowed_token_ids": (1, 2), "logit_bias": {4: -1.0}}
    expected["stop"] = ("zzz",)
    assert {name: getattr(request.params, name) for name in expected} == expected
    assert (request.priority, request.adapter, request.cache_salt) == (4, "", "me")
    assert request.speculation == SpeculationParams(enabled=False, max_draft_tokens=2, drafters=("ngram", "eagle"))


async def test_a_bad_word_is_forbidden_with_and_without_a_space(client: Any, engine: FakeEngine) -> None:
    await complete(client, bad_words=["Point"])
    encode = engine.tokenizer.encode
    assert engine.submitted[0].params.bad_words == (tuple(encode("Point")), tuple(encode(" Point")))


async def test_a_stop_string_is_cut_unless_asked_for(client: Any) -> None:
    assert (await complete(client, stop=["wör", "nope"]))["choices"][0]["text"] == "hello "
    kept = (await complete(client, stop="wör", include_stop_str_in_output=True))["choices"][0]
    assert (kept["text"], kept["finish_reason"]) == ("hello wör", "stop")


async def test_echo_shows_the_prompt_of_text_and_of_ids(client: Any, engine: FakeEngine) -> None:
    assert (await complete(client, echo=True))["choices"][0]["text"] == "def add(" + engine.text
    ids = engine.tokenizer.encode("class Point")
    assert (await complete(client, prompt=[ids], echo=True))["choices"][0]["text"] == "class Point" + engine.text


async def test_logprobs_of_a_prompt_are_finite_after_the_first_null(client: Any, engine: FakeEngine) -> None:
    """The request of lm-eval, and the values that it compares."""
    ids = [engine.tokenizer.encode("def add(a, b):"), engine.tokenizer.encode("x = 0")]
    body = await complete(client, prompt=ids, echo=True, logprobs=1, max_tokens=1, temperature=0)
    for prompt, choice in zip(ids, body["choices"], strict=True):
        scored = choice["logprobs"]
        assert len(scored["tokens"]) == len(prompt) + 1
        assert scored["token_logprobs"][0] is scored["top_logprobs"][0] is None
        for value, top in zip(scored["token_logprobs"][1:], scored["top_logprobs"][1:], strict=True):
            assert value == max(top.values())
        assert "".join(scored["tokens"]) == choice["text"]
        assert scored["text_offset"] == [len("".join(scored["tokens"][:i])) for i in range(len(prompt) + 1)]


async def test_echo_and_prompt_logprobs_name_as_many_tokens_as_each_asked_for(client: Any) -> None:
    for echoed, asked in ((1, 3), (3, 1)):
        choice = (await complete(client, prompt=[300, 299], echo=True, logprobs=echoed, prompt_logprobs=asked))[
            "choices"
        ][0]
        assert len(choice["logprobs"]["top_logprobs"][1]) == echoed
        assert len(choice["prompt_logprobs"][1]) == asked


async def test_an_allowed_token_counts_once(client: Any, engine: FakeEngine) -> None:
    await complete(client, allowed_token_ids=[7, 5, 7, 7, 5])
    assert engine.submitted[0].params.allowed_token_ids == (7, 5)


async def test_max_tokens_zero_scores_the_prompt_only(client: Any) -> None:
    body = await complete(client, echo=True, logprobs=0, max_tokens=0)
    assert body["choices"][0]["text"] == "def add("
    assert body["usage"]["completion_tokens"] == 0


async def test_an_impossible_logprob_is_clamped(client: Any) -> None:
    scored = (await complete(client, prompt=[300, 299], logprobs=4))["choices"][0]["logprobs"]
    assert min(scored["top_logprobs"][-1].values()) == -9999.0
    assert len(scored["tokens"]) == len(scored["text_offset"])


async def test_token_ids_come_with_flags_and_drafters_of_accepted_draft_tokens(client: Any, engine: FakeEngine) -> None:
    choice = (await complete(client, return_token_ids=True, prompt_logprobs=1))["choices"][0]
    assert choice["token_ids"] == engine.tokenizer.encode(engine.text)
    assert len(choice["accepted"]) == len(choice["token_ids"])
    assert choice["accepted"][:3] == [True, False, True]
    assert choice["drafted_by"][:3] == ["fake", None, "fake"]
    assert len(choice["drafted_by"]) == len(choice["token_ids"])
    assert choice["text_offset"] == beginnings(engine.tokenizer, choice["token_ids"])
    assert choice["prompt_token_ids"] == engine.tokenizer.encode("def add(")
    assert choice["prompt_logprobs"][0] is None
    assert choice["prompt_logprobs"][1][str(choice["prompt_token_ids"][1])]["rank"] == 1


async def test_offsets_count_from_the_text_that_the_client_sees(client: Any, engine: FakeEngine) -> None:
    choice = (await complete(client, return_token_ids=True, logprobs=0))["choices"][0]
    echoed = (await complete(client, return_token_ids=True, echo=True))["choices"][0]
    assert choice["text_offset"] == choice["logprobs"]["text_offset"]
    assert echoed["text_offset"] == [len("def add(") + offset for offset in choice["text_offset"]]


async def test_a_prompt_can_be_truncated_from_the_left(client: Any, engine: FakeEngine) -> None:
    await complete(client, prompt=list(range(10, 20)), truncate_prompt_tokens=3)
    await complete(client, prompt=[9] * 1000, truncate_prompt_tokens=-1)
    assert engine.submitted[0].prompt_token_ids == (17, 18, 19)
    assert len(engine.submitted[1].prompt_token_ids) == engine.max_model_len - 1
