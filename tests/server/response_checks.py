"""Checks of any response: OpenAI's format, sums and lengths, for full bodies and streams.

`check_response` compares a response with its request; it knows no engine and no expected tokens.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from body_strategies import CHAT, COMPLETIONS, TOKENIZE

if TYPE_CHECKING:
    from body_strategies import FuzzCase

STATUSES = (200, 400, 404, 413, 429)
FINISH_REASONS = ("stop", "length")
LOGPROB_LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


class Response(NamedTuple):
    status: int
    content_type: str
    data: bytes
    seconds: float


def check_response(case: FuzzCase, response: Response) -> None:
    assert response.status in STATUSES, response
    if response.status != 200:
        assert not case.valid, response.data
        if response.content_type == "text/plain":
            return check_plain_text_error(case, response)
        return check_error(response)
    if case.path in (COMPLETIONS, CHAT):
        sent = json.loads(case.data)
        choices, usage = read_choices(sent, response)
        check_choices(case.path, sent, choices)
        return check_usage(sent, choices, usage)
    content = json.loads(response.data)
    if case.path == TOKENIZE:
        assert content["count"] == len(content["tokens"])
        assert content["token_strs"] is None or len(content["token_strs"]) == content["count"]
    else:
        assert isinstance(content["prompt"], str)
    return None


def check_error(response: Response) -> None:
    assert response.content_type == "application/json"
    (error,) = json.loads(response.data).values()
    assert error.keys() == {"message", "type", "param", "code"}
    assert 0 < len(error["message"]) <= 1000
    assert "internal error" not in error["message"]
    assert error["type"] in ("invalid_request_error", "rate_limit_error")
    assert error["param"] is None or isinstance(error["param"], str)


def check_plain_text_error(case: FuzzCase, response: Response) -> None:
    """aiohttp answers itself where a body does not match its Content-Encoding and arrives together with the headers."""
    assert response.status == 400
    assert case.headers.get("Content-Encoding") in ("gzip", "deflate")


def read_choices(sent: dict[str, Any], response: Response) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The choices by index, those of a stream joined, and the usage where it must be."""
    if not sent.get("stream"):
        assert response.content_type == "application/json"
        content = json.loads(response.data)
        assert [choice["index"] for choice in content["choices"]] == list(range(len(content["choices"])))
        return [as_completion(choice) for choice in content["choices"]], content["usage"]
    assert response.content_type == "text/event-stream"
    *events, done, end = response.data.decode().split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    wants_usage = (sent.get("stream_options") or {}).get("include_usage")
    usage = chunks.pop()["usage"] if wants_usage else None
    return join_chunks(chunks), usage


def as_completion(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice or chunk of chat in the format of completions."""
    message = choice.pop("message", None) or choice.pop("delta", None)
    if message is not None:
        choice["text"] = message["content"]
    return choice


def without_speculation(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice without what drafts may change."""
    return {key: value for key, value in choice.items() if key not in ("accepted", "drafted_by", "speculation")}


def join_chunks(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Texts and lists of an index joined; only the last chunk of an index has a finish_reason."""
    joined: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        choice = as_completion(choice)
        joined_choice = joined.get(choice["index"])
        if joined_choice is None:
            joined[choice["index"]] = choice
            continue
        assert joined_choice["finish_reason"] is None, "a chunk after the last one"
        for key, value in choice.items():
            joined_choice[key] = join_values(joined_choice.get(key), value) if key != "index" else value
    assert sorted(joined) == list(range(len(joined)))
    return [joined[index] for index in sorted(joined)]


def join_values(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return {key: join_values(one[key], other[key]) for key in one}
    return other if one is None else one if other is None else one + other


def check_choices(path: str, sent: dict[str, Any], choices: list[dict[str, Any]]) -> None:
    prompt = sent.get("prompt")
    several = isinstance(prompt, list) and not isinstance(prompt[0], int)
    assert len(choices) == (len(prompt) if several else 1) * (sent.get("n") or 1)
    for choice in choices:
        assert choice["finish_reason"] in FINISH_REASONS
        assert isinstance(choice["text"], str)
        assert ("speculation" in choice) == bool(sent.get("return_speculation"))
        if sent.get("return_token_ids"):
            check_steps(choice)
            assert len(choice["token_ids"]) == len(choice["accepted"]) == len(choice["text_offset"])
            assert [name is not None for name in choice["drafted_by"]] == choice["accepted"]
            assert choice["text_offset"] == sorted(choice["text_offset"])
        if choice["logprobs"] is not None and path == COMPLETIONS:
            check_completion_logprobs(sent, choice)
        elif choice["logprobs"] is not None:
            check_chat_logprobs(sent, choice)


def check_steps(choice: dict[str, Any]) -> None:
    """What return_speculation tells is what return_token_ids does, and each step's draft leads to its tokens."""
    steps = choice.get("speculation", {}).get("steps")
    if steps is None:
        return
    tokens = [token for step in steps for token in step["tokens"]]
    assert [token["id"] for token in tokens] == choice["token_ids"]
    assert [token["drafter"] for token in tokens] == choice["drafted_by"]
    for step in steps:
        draft, last, path = step["draft"], None, []
        assert bool(draft) == (step["stopped"] != "no_draft")
        for place, node in enumerate(draft):
            assert node["parent"] is None or 0 <= node["parent"] < place
            assert node["survival"] is None or 0 <= node["survival"] <= 1
            if node["accepted"]:
                assert node["parent"] == last
                last = place
                path.append((node["id"], node["text"], node["drafter"]))
        added = [(token["id"], token["text"], token["drafter"]) for token in step["tokens"]]
        assert added[: len(path)] == path
        assert len(added) - len(path) == (step["stopped"] != "finished")
        assert not any(name for _, _, name in added[len(path) :])


def check_completion_logprobs(sent: dict[str, Any], choice: dict[str, Any]) -> None:
    names, values, tops, offsets = map(choice["logprobs"].get, LOGPROB_LISTS)
    assert len(names) == len(values) == len(tops) == len(offsets)
    assert all(value is None or -9999 <= value <= 0 for value in values)
    assert all(value is not None for value in values[1:])
    assert all(top is None or 1 <= len(top) <= sent["logprobs"] + 1 for top in tops)
    if sent.get("return_token_ids"):
        prompt_ids = choice["prompt_token_ids"] if sent.get("echo") else []
        assert len(names) == len(prompt_ids) + len(choice["token_ids"])
    if (sent.get("prompt_logprobs") is not None) and "prompt_token_ids" in choice:
        assert len(choice["prompt_logprobs"]) == len(choice["prompt_token_ids"])


def check_chat_logprobs(sent: dict[str, Any], choice: dict[str, Any]) -> None:
    entries = choice["logprobs"]["content"]
    assert all(-9999 <= entry["logprob"] <= 0 for entry in entries)
    assert all(len(entry["top_logprobs"]) == (sent.get("top_logprobs") or 0) for entry in entries)
    if sent.get("return_token_ids"):
        assert len(entries) == len(choice["token_ids"])


def check_usage(sent: dict[str, Any], choices: list[dict[str, Any]], usage: dict[str, Any] | None) -> None:
    if usage is None:
        return
    assert usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"]
    assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]
    max_tokens = sent.get("max_completion_tokens")
    max_tokens = sent.get("max_tokens") if max_tokens is None else max_tokens
    assert max_tokens is None or usage["completion_tokens"] <= max_tokens * len(choices)
    if sent.get("return_token_ids"):
        assert usage["completion_tokens"] == sum(len(choice["token_ids"]) for choice in choices)
