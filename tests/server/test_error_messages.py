"""What a stranger reads: for each kind of wrong input the whole message, which names the place, what is allowed there
and what was given, in JSON's words."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from yarl import URL

if TYPE_CHECKING:
    from fake_engine import FakeEngine

COMPLETIONS, CHAT, MESSAGES, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"
USER = [{"role": "user", "content": "a"}]
WHOLE: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "a"},
    CHAT: {"messages": USER},
    MESSAGES: {"messages": USER, "max_tokens": 5},
    RESPONSES: {"input": "a"},
}
FOREIGN_WORDS = ("Expected", "array", "`", "$", "int ", "str ", "bool", "enum", "None", "truncated", "Invalid", "dict")
"""Of msgspec and of Python."""
TOOL = {"type": "function", "function": {"name": "f"}}

FIELDS = [
    (COMPLETIONS, {"n": 0}, "n: must be an integer between 1 and 128; got 0."),
    (COMPLETIONS, {"n": "2"}, 'n: must be an integer between 1 and 128; got "2".'),
    (COMPLETIONS, {"n": 1.5}, "n: must be an integer between 1 and 128; got 1.5."),
    (COMPLETIONS, {"max_tokens": 10**12}, "max_tokens: must be an integer between 0 and 2147483647; got "
     "1000000000000."),
    (COMPLETIONS, {"prompt": 5}, "prompt: must be a string or a list of strings, integers of at least 0 or lists of "
     "integers of at least 0; got 5."),
    (COMPLETIONS, {"prompt": [7, -1]}, "prompt[1]: must be an integer between 0 and 2147483647; got -1."),
    (COMPLETIONS, {"prompt": [[7, "a"]]}, 'prompt[0][1]: must be an integer between 0 and 2147483647; got "a".'),
    (COMPLETIONS, {"echo": "yes"}, 'echo: must be true or false; got "yes".'),
    (COMPLETIONS, {"temperature": "hot"}, 'temperature: must be a number; got "hot".'),
    (COMPLETIONS, {"stop": ["x"] * 17}, "stop: must be a list of at most 16 strings of at most 1024 characters; got 17 "
     "entries."),
    (COMPLETIONS, {"stop": "x" * 2000}, "stop: must be a string of at most 1024 characters; got 2000 characters."),
    (COMPLETIONS, {"cache_salt": ""}, 'cache_salt: must be a string of 1 to 256 characters; got "".'),
    (COMPLETIONS, {"logit_bias": {"5": 1, "6": "a"}}, 'logit_bias["6"]: must be a number; got "a".'),
    (COMPLETIONS, {"logit_bias": [5]}, "logit_bias: must be an object of at most 1024 numbers; got [5]."),
    (COMPLETIONS, {"allowed_token_ids": []}, "allowed_token_ids: must be a list of one or more integers of at least 0; "
     "got none."),
    (COMPLETIONS, {"speculation": True}, 'speculation: must be an object with "enabled", '
     '"max_draft_tokens", "drafters"; got true.'),
    (COMPLETIONS, {"speculation": {"drafters": "ngram"}}, 'speculation.drafters: must be a list of at most 64 strings '
     'of at most 1024 characters; got "ngram".'),
    (COMPLETIONS, {"speculation": {"enabled": "no"}}, 'speculation.enabled: must be true or false; got "no".'),
    (COMPLETIONS, {"model": {"a": "b" * 999}}, 'model: must be a string; got {"a":"' + "b" * 53 + "…."),
    (COMPLETIONS, {"suffix": "x"}, 'suffix: "x" is not served: text is not inserted; send the model\'s own '
     "fill-in-the-middle tokens in the prompt."),
    (COMPLETIONS, {"typical_p": 0.5}, "typical_p: 0.5 is not served: this sampler is not served; use temperature, "
     "top_p, top_k or min_p."),
    (COMPLETIONS, {"messages": USER}, "messages: there is no such field here: it is a field of /v1/chat/completions."),
    (COMPLETIONS, {"max_new_tokens": 3}, "max_new_tokens: there is no such field here: send max_tokens."),
    (CHAT, {"messages": "hi"}, 'messages: must be a list of at most 4096 objects with "role", "content", "name", '
     '"tool_calls" and others; got "hi".'),
    (CHAT, {"messages": [{"content": "a"}]}, "messages[0].role: is missing; it must be a string."),
    (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content: must be a string or a list of objects "
     'with "type", "text"; got 5.'),
    (CHAT, {"messages": [*USER, None]}, 'messages[1]: must be an object with "role", "content", "name", "tool_calls" '
     "and others; got null."),
    (CHAT, {"reasoning_effort": "super"}, 'reasoning_effort: must be "high", "low", "max", "medium", "minimal", "none" '
     'or "xhigh"; got "super".'),
    (CHAT, {"tools": [{"type": "function"}]}, 'tools[0].function: is missing; it must be an object with "name", '
     '"description", "parameters", "strict".'),
    (CHAT, {"tools": [{**TOOL, "type": "x"}]}, 'tools[0].type: must be "function"; got "x".'),
    (CHAT, {"tools": [{**TOOL, "function": {"name": "f g"}}]}, "tools[0].function.name: must be a name of 1 to 64 "
     'letters, digits, points, hyphens and underscores; got "f g".'),
    (CHAT, {"tools": [TOOL], "tool_choice": "any"}, 'tool_choice: must be "auto", "none", "required" or an object with '
     '"type", "function"; got "any".'),
    (CHAT, {"documents": [{"text": 5}]}, 'documents[0]["text"]: must be a string; got 5.'),
    (CHAT, {"response_format": "json"}, 'response_format: must be an object with "type", "json_schema", "structures", '
     '"triggers"; got "json".'),
    (CHAT, {"response_format": {"type": "yaml"}}, 'response_format.type: must be "json_object", "json_schema", '
     '"structural_tag" or "text"; got "yaml".'),
    (CHAT, {"guided_choice": []}, "guided_choice: must be a list of 1 to 4096 strings; got none."),
    (MESSAGES, {"max_tokens": 0}, "max_tokens: must be an integer between 1 and 2147483647; got 0."),
    (MESSAGES, {"tool_choice": "auto"}, 'tool_choice: must be an object with "type", "name", '
     '"disable_parallel_tool_use"; got "auto".'),
    (MESSAGES, {"thinking": {"type": "on"}}, 'thinking.type: must be "adaptive", "disabled" or "enabled"; got "on".'),
    (MESSAGES, {"stop": ["a"]}, "stop: there is no such field here: send stop_sequences."),
    (RESPONSES, {"metadata": {"a": 5}}, 'metadata["a"]: must be a string of at most 512 characters; got 5.'),
    (RESPONSES, {"metadata": {"a" * 70: "x"}}, "metadata: each key must be a string of at most 64 characters; got "
     '"' + "a" * 58 + "…."),
    (RESPONSES, {"input": ["a"]}, 'input[0]: must be an object with "type", "id", "role", "content" and others; '
     'got "a".'),
]  # fmt: skip


@pytest.mark.parametrize(("path", "fields", "message"), FIELDS, ids=lambda value: str(value)[:60])
async def test_a_wrong_field_is_explained(
    client: Any, engine: FakeEngine, path: str, fields: dict[str, Any], message: str
) -> None:
    assert await refusal(client, path, json=WHOLE[path] | fields) == message
    assert not [word for word in FOREIGN_WORDS if word in message]
    assert engine.submitted == []


BODIES = [
    (b"", 'the body is empty; send a JSON object, such as {"prompt": ...}.'),
    (b" \n", 'the body is empty; send a JSON object, such as {"prompt": ...}.'),
    (b"[]", 'the body must be a JSON object, such as {"prompt": ...}; got a list.'),
    (b"[" * 100_000, 'the body must be a JSON object, such as {"prompt": ...}; got a list.'),
    (b"null", 'the body must be a JSON object, such as {"prompt": ...}; got null.'),
    (b'"a"', 'the body must be a JSON object, such as {"prompt": ...}; got a string.'),
    (b"-5", 'the body must be a JSON object, such as {"prompt": ...}; got a number.'),
    (b'{"prompt": "a', 'the body is not valid JSON: it ends early, behind {"prompt": "a.'),
    (b'{"prompt": }', "the body is not valid JSON: unexpected '}' at line 1, column 12, near {\"prompt\": }."),
    (b'{\n"prompt": "\xc3\xa4",\n}', "the body is not valid JSON: a comma before } at line 3, column 1, near "
     '{ "prompt": "ä", }.'),
    (b"{'prompt': 'a'}", "the body is not valid JSON: a single quote, where JSON has double quotes, at line 1, column "
     "2, near {'prompt': 'a'}."),
    (b"{\"prompt\": 'a'}", "the body is not valid JSON: a single quote, where JSON has double quotes, at line 1, "
     "column 12, near {\"prompt\": 'a'}."),
    (b'{prompt: "a"}', "the body is not valid JSON: a key that is not in double quotes at line 1, column 2, near "
     '{prompt: "a"}.'),
    (b'{"prompt": "a"} x', "the body is not valid JSON: more text behind the JSON value at line 1, column 17, near "
     '{"prompt": "a"} x.'),
    (b'{"echo": True}', 'the body is not valid JSON: True in place of true at line 1, column 10, near {"echo": True}.'),
    (b'{"top_p": NaN}', "the body is not valid JSON: NaN, which is no number in JSON, at line 1, column 11, near "
     '{"top_p": NaN}.'),
    (b'{"prompt": "a\nb"}', "the body is not valid JSON: a line break, or another control character, within a string "
     r'(JSON writes \n for it) at line 1, column 14, near {"prompt": "a b"}.'),
    (b'{"a": 1 // b\n}', "the body is not valid JSON: a comment, which JSON has not, at line 1, column 9, near "
     '{"a": 1 // b }.'),
    (b"prompt=a&n=1", "the body is not valid JSON: a form or another text in place of JSON, such as {...}, at line 1, "
     "column 1, near prompt=a&n=1."),
    (b'\xef\xbb\xbf{"n": 1}', "the body is not valid JSON: a byte order mark, which JSON must not have, at line 1, "
     'column 1, near \ufeff{"n": 1}.'),
    (b'{"prompt": "\\ud83d"}', "the body is not valid JSON: a string has one half of a surrogate pair, such as "
     r"\ud83d without \ude42."),
    (b'{"prompt": "\xff"}', "the body is not valid UTF-8: byte 0xff at offset 12."),
    (b"\xff\xfe{\x00", "the body is not valid UTF-8: it is UTF-16; send UTF-8."),
    (gzip.compress(b"{}", mtime=0), "the body is not valid UTF-8: it is compressed; send the header Content-Encoding: "
     "gzip with it."),
    (b'{"prompt": "a", "n": 0, "n": 1}', "n: must be an integer between 1 and 128; it is given more than once, once "
     "with another value."),
    (b'{"prompt": "a", "top_p": 1e999}', "top_p: must be a number; got a number that is too large."),
    (b'{"prompt": "a", "logit_bias": {"5": 1e999}}', "logit_bias: must be a number; got a number that is too large."),
    (b'{"prompt": "a", "functions":\n[{"name":  "f"}]}', 'functions: [{"name": "f"}] is not served: send tools.'),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), BODIES, ids=lambda value: str(value)[:60])
async def test_a_body_that_is_no_json_is_explained_with_the_place(client: Any, data: bytes, message: str) -> None:
    assert await refusal(client, COMPLETIONS, data=data) == message


ROUTES = [
    ("POST", "/v1/completion", "did you mean /v1/completions?"),
    ("POST", "/v1/completions/", "did you mean /v1/completions?"),
    ("POST", "//v1/completions", "did you mean /v1/completions?"),
    ("POST", "/chat/completions", "did you mean /v1/chat/completions?"),
    ("POST", "/v1/v1/chat/completions", "did you mean /v1/chat/completions?"),
    ("POST", "/V1/Chat/Completions", "did you mean /v1/chat/completions?"),
    ("POST", "/v1/tokenize", "did you mean /tokenize?"),
    ("POST", "/api/chat", "did you mean /v1/chat/completions?"),
    ("GET", "/v1/model", "did you mean /v1/models?"),
    ("GET", "/metrics/", "did you mean /metrics?"),
    ("POST", "/v1/embeddings", "this server generates text."),
    ("GET", "/%ff%0a", "this server generates text."),
]


@pytest.mark.parametrize(("method", "path", "advice"), ROUTES)
async def test_an_unknown_route_is_repeated_with_the_nearest_one(
    client: Any, method: str, path: str, advice: str
) -> None:
    message = await refusal(client, URL.build(path=path, encoded=True), method)
    shown = URL.build(path=path, encoded=True).raw_path
    assert message == f"{method} {shown}: there is no such route; {advice} /openapi.json lists all routes."


async def test_a_long_path_is_cut_in_its_message(client: Any) -> None:
    message = await refusal(client, "/" + "x" * 3000, "GET")
    assert message.startswith("GET /" + "x" * 98 + "…: there is no such route; ")


async def test_routes_of_plugins_are_meant_too(connect: Any, engine: FakeEngine) -> None:
    async def handler(request: web.Request) -> web.Response:
        raise web.HTTPNotFound(text="there is no rhyme for this.")

    engine.plugins.answers["add_routes"] = lambda app, engine: app.add_routes([web.get("/v1/find_rhyme", handler)])
    client = await connect(engine)
    assert "did you mean /v1/find_rhyme?" in await refusal(client, "/v1/find_ryhme", "GET")
    assert await refusal(client, "/v1/find_rhyme", "GET") == "there is no rhyme for this."


@pytest.mark.parametrize(("method", "path", "message"), [
    ("GET", COMPLETIONS, "GET /v1/completions: this route takes POST, not GET."),
    ("POST", "/health", "POST /health: this route takes GET or HEAD, not POST."),
    ("DELETE", MESSAGES, "DELETE /v1/messages: this route takes POST, not DELETE."),
])  # fmt: skip
async def test_another_method_is_told_which_one_to_use(client: Any, method: str, path: str, message: str) -> None:
    assert await refusal(client, path, method) == message


async def test_a_body_that_is_too_large_is_told_the_limit_and_its_flag(connect: Any, engine: FakeEngine) -> None:
    client = await connect(engine, max_body_bytes=100)
    assert await refusal(client, COMPLETIONS, json={"prompt": "a" * 200}) == (
        "the body is too large: this server takes at most 100 bytes, counted without compression. Send less, or start "
        "it with more --max-body-bytes."
    )


async def test_a_body_that_its_encoding_cannot_read_is_told_so(client: Any) -> None:
    answer = await refusal(client, COMPLETIONS, data=b'{"prompt": "a"}', headers={"Content-Encoding": "gzip"})
    assert answer == "the body could not be read: it ends early, or is not what its Content-Encoding says."


HOW = "send Authorization: Bearer KEY, or x-api-key: KEY."


@pytest.mark.parametrize(("headers", "message"), [
    ({}, f"the API key is missing; {HOW}"),
    ({"Authorization": "Bearer secret"}, f"the API key is wrong: this server has no such key; {HOW}"),
    ({"x-api-key": "secret"}, f"the API key is wrong: this server has no such key; {HOW}"),
    ({"Authorization": "secret"}, "the API key is missing: the header Authorization is there, but not as Bearer KEY; "
     + HOW),
])  # fmt: skip
async def test_a_missing_key_and_a_wrong_one_are_told_apart_and_not_shown(
    connect: Any, engine: FakeEngine, headers: dict[str, str], message: str
) -> None:
    client = await connect(engine, api_key="right")
    assert await refusal(client, "/v1/models", "GET", headers=headers) == message


async def refusal(client: Any, path: str | URL, method: str = "POST", **body: Any) -> str:
    response = await client.request(method, path, **body)
    assert 400 <= response.status < 500
    message: str = (await response.json())["error"]["message"]
    return message
