"""`speculation.drafters` of every API, with the engine in this process and in one of its own: who drafted, and the same
text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from test_speculation_told import FIXED, PROMPT, serving

if TYPE_CHECKING:
    from pathlib import Path

USER = [{"role": "user", "content": PROMPT}]
ASKED: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": PROMPT, "max_tokens": 24, "ignore_eos": True},
    "/v1/chat/completions": {"messages": USER, "max_tokens": 24, "ignore_eos": True},
    "/v1/responses": {"input": PROMPT, "max_output_tokens": 24},
    "/v1/messages": {"messages": USER, "max_tokens": 24},
}
LISTS: dict[str, tuple[list[str] | None, set[str]]] = {
    "all": (None, {"eagle"}),
    "one": (["ngram"], {"ngram"}),
    "the other": (["eagle"], {"eagle"}),
    "none": ([], set()),
}


@pytest.mark.parametrize("form", ["direct", "process"])
async def test_only_the_named_drafters_draft_and_the_text_stays(toy_model: Path, form: str) -> None:
    async with serving(toy_model, "eagle", "ngram", form=form, **FIXED) as client:
        for path, body in ASKED.items():
            texts = set()
            for name, (names, expected) in LISTS.items():
                fields = {**body, "temperature": 0, "speculation": {"drafters": names}}
                response = await client.post(path, json=fields, headers={"anthropic-version": "2023-06-01"})
                answer = await response.json()
                assert response.status == 200, answer
                drafters = answer.get("metrics", {}).get("speculative_decoding", {}).get("drafters", {})
                assert {*drafters} == expected, (path, name)
                texts.add(str(text_of(answer)))
            assert len(texts) == 1


def text_of(answer: dict[str, Any]) -> Any:
    """Whatever the API calls it."""
    if "output" in answer:
        return answer["output"][0]["content"]
    (choice,) = answer.get("choices", [answer])
    return choice.get("text") or choice.get("message") or choice["content"]


@pytest.mark.parametrize("form", ["direct", "process"])
async def test_an_unknown_drafter_is_refused_with_those_that_are_served(toy_model: Path, form: str) -> None:
    async with serving(toy_model, "eagle", "ngram", form=form) as client:
        for path, body in ASKED.items():
            response = await client.post(path, json={**body, "speculation": {"drafters": ["ngram", "suffix"]}})
            error = (await response.json())["error"]
            message = "speculation.drafters: must name drafters of this server, which are eagle, ngram; got 'suffix'."
            assert (response.status, error["message"]) == (400, message)
