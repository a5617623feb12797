"""Is this an answer that the server may give? OpenAI's shapes, sums and lengths, for whole bodies and streams.

`check_answer` is told what was sent and judges what came; it knows no engine and no expected tokens.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from body_strategies import CHAT, COMPLETIONS, TOKENIZE

if TYPE_CHECKING:
    from body_strategies import Shot

STATUSES = (200, 400, 404, 413, 429)
FINISHES = ("stop", "length")
LEGACY = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


class Answer(NamedTuple):
    status: int
    content_type: str
    data: bytes
    seconds: float


def check_answer(shot: Shot, answer: Answer) -> None:
    assert answer.status in STATUSES, answer
    if answer.status != 200:
        assert not shot.clean, answer.data
        return check_refusal(shot, answer) if answer.content_type == "text/plain" else check_error(answer)
    if shot.path in (COMPLETIONS, CHAT):
        sent = json.loads(shot.data)
        choices, usage = read_choices(sent, answer)
        check_choices(shot.path, sent, choices)
        return check_usage(sent, choices, usage)
    content = json.loads(answer.data)
    if shot.path == TOKENIZE:
        assert content["count"] == len(content["tokens"])
        assert content["token_strs"] is None or len(content["token_strs"]) == content["count"]
    else:
        assert isinstance(content["prompt"], str)
    return None


def check_error(answer: Answer) -> None:
    assert answer.content_type == "application/json"
    (error,) = json.loads(answer.data).values()
    assert error.keys() == {"message", "type", "param", "code"}
    assert 0 < len(error["message"]) <= 1000
    assert "internal error" not in error["message"]
    assert error["type"] in ("invalid_request_error", "rate_limit_error")
    assert error["param"] is None or isinstance(error["param"], str)


def check_refusal(shot: Shot, answer: Answer) -> None:
    """aiohttp's own words, which it has where a body is not what its Content-Encoding says and comes with its head."""
    assert answer.status == 400
    assert shot.headers.get("Content-Encoding") in ("gzip", "deflate")


def read_choices(sent: dict[str, Any], answer: Answer) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The choices by index, a stream's put together again, and the usage where it must be."""
    if not sent.get("stream"):
        assert answer.content_type == "application/json"
        content = json.loads(answer.data)
        assert [choice["index"] for choice in content["choices"]] == list(range(len(content["choices"])))
        return [flat(choice) for choice in content["choices"]], content["usage"]
    assert answer.content_type == "text/event-stream"
    *events, done, end = answer.data.decode().split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    wants_usage = (sent.get("stream_options") or {}).get("include_usage")
    usage = chunks.pop()["usage"] if wants_usage else None
    return join_chunks(chunks), usage


def flat(choice: dict[str, Any]) -> dict[str, Any]:
    """Chat's choices and chunks as those of completions."""
    said = choice.pop("message", None) or choice.pop("delta", None)
    if said is not None:
        choice["text"] = said["content"]
    return choice


def join_chunks(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Texts and lists of an index joined; only the last chunk of an index has a finish_reason."""
    joined: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        choice = flat(choice)
        whole = joined.get(choice["index"])
        if whole is None:
            joined[choice["index"]] = choice
            continue
        assert whole["finish_reason"] is None, "a chunk after the last one"
        for key, value in choice.items():
            whole[key] = join_values(whole.get(key), value) if key != "index" else value
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
        assert choice["finish_reason"] in FINISHES
        assert isinstance(choice["text"], str)
        if sent.get("return_token_ids"):
            assert len(choice["token_ids"]) == len(choice["accepted"]) == len(choice["text_offset"])
            assert choice["text_offset"] == sorted(choice["text_offset"])
        if choice["logprobs"] is not None and path == COMPLETIONS:
            check_legacy(sent, choice)
        elif choice["logprobs"] is not None:
            check_chat(sent, choice)


def check_legacy(sent: dict[str, Any], choice: dict[str, Any]) -> None:
    names, values, tops, offsets = map(choice["logprobs"].get, LEGACY)
    assert len(names) == len(values) == len(tops) == len(offsets)
    assert all(value is None or -9999 <= value <= 0 for value in values)
    assert all(value is not None for value in values[1:])
    assert all(top is None or 1 <= len(top) <= sent["logprobs"] + 1 for top in tops)
    if sent.get("return_token_ids"):
        prompt_ids = choice["prompt_token_ids"] if sent.get("echo") else []
        assert len(names) == len(prompt_ids) + len(choice["token_ids"])
    if (sent.get("prompt_logprobs") is not None) and "prompt_token_ids" in choice:
        assert len(choice["prompt_logprobs"]) == len(choice["prompt_token_ids"])


def check_chat(sent: dict[str, Any], choice: dict[str, Any]) -> None:
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
    most = sent.get("max_completion_tokens")
    most = sent.get("max_tokens") if most is None else most
    assert most is None or usage["completion_tokens"] <= most * len(choices)
    if sent.get("return_token_ids"):
        assert usage["completion_tokens"] == sum(len(choice["token_ids"]) for choice in choices)
