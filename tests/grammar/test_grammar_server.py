"""Structured output over HTTP: every field that asks for it, pydantic models of the SDK, streams, wrong bodies."""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Any, Literal

import openai
import pydantic
import pytest
from aiohttp.test_utils import TestClient, TestServer
from grammar_cases import PERSON
from jsonschema import Draft202012Validator

from both_forms import FORMS, in_form
from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.errors import RequestError
from specserve_grammar.grammars import Grammars, load_tokenizer
from specserve_grammar.options import GrammarOptions
from specserve_server.app.application import make_app
from specserve_server.bodies.requests import SamplingBody
from specserve_server.config import ServerConfig
from specserve_server.generation.structured_output import structured_output
from specserve_server.wire.decode_body import decode_body
from specserve_workbench.testing.requests import TOY_VOCAB
from specserve_workbench.testing.toy_tokenizer import EOS_ID

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "the author of this file"}]
RESPONSE_FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
REGEX = "[a-f]{3}-[0-9]{4}"
TAG = {"triggers": ["<"], "structures": [{"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}]}


@pytest.fixture(params=FORMS)
async def client(demo_model, request):
    config = EngineConfig(
        model=str(demo_model), plugins=("grammar", "ngram"), default_plugins=True, threads=1, kv_memory="64M"
    )
    engine = await AsyncEngine.start(config)
    server = ServerConfig(served_model_name="demo")
    async with (
        in_form(request.param, engine, server) as attached,
        TestClient(TestServer(make_app(attached, server))) as client,
    ):
        yield client


async def text_of(client: Any, path: str, **fields: Any) -> str:
    body = {"max_tokens": 100, "temperature": 0, **fields}
    body |= {"messages": MESSAGES} if path == CHAT else {"prompt": "author = "}
    response = await client.post(path, json=body)
    answer = await response.json()
    assert response.status == 200, answer
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "stop", choice
    return str(choice["message"]["content"] if path == CHAT else choice["text"])


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_every_field_that_asks_for_a_form_is_obeyed(client, path):
    for fields in (
        {"response_format": RESPONSE_FORMAT},
        {"structured_outputs": {"json": PERSON}},
        {"structured_outputs": {"json": json.dumps(PERSON)}},
        {"guided_json": PERSON},
    ):
        Draft202012Validator(PERSON).validate(json.loads(await text_of(client, path, **fields)))
    for fields in ({"structured_outputs": {"regex": REGEX}}, {"guided_regex": REGEX}):
        assert re.fullmatch(REGEX, await text_of(client, path, **fields))
    for fields in ({"structured_outputs": {"choice": ["yes", "no"]}}, {"guided_choice": ["yes", "no"]}):
        assert await text_of(client, path, **fields) in ("yes", "no")
    grammar = 'root ::= "SELECT " [a-z]{1,5} " FROM " [a-z]{1,5}'
    for fields in ({"structured_outputs": {"grammar": grammar}}, {"guided_grammar": grammar}):
        assert re.fullmatch("SELECT [a-z]{1,5} FROM [a-z]{1,5}", await text_of(client, path, **fields))
    response = await client.post(
        COMPLETIONS, json={"prompt": "x", "max_tokens": 30, "response_format": {"type": "structural_tag", **TAG}}
    )
    assert response.status == 200


async def test_free_text_stays_free(client):
    free = {"prompt": "def add(a, b):", "max_tokens": 12, "temperature": 0}
    texts = [
        (await (await client.post(COMPLETIONS, json={**free, **fields})).json())["choices"][0]["text"]
        for fields in ({}, {"response_format": {"type": "text"}}, {"response_format": None, "guided_json": None})
    ]
    assert len(set(texts)) == 1


async def test_a_stream_has_the_text_of_the_whole(client):
    whole = await text_of(client, CHAT, response_format=RESPONSE_FORMAT)
    body = {
        "messages": MESSAGES,
        "temperature": 0,
        "max_tokens": 100,
        "stream": True,
        "response_format": RESPONSE_FORMAT,
    }
    async with client.post(CHAT, json=body) as response:
        lines = [line async for line in response.content if line.startswith(b"data: {")]
    deltas = [json.loads(line[6:])["choices"][0]["delta"]["content"] for line in lines]
    assert "".join(deltas) == whole


async def test_speculation_changes_no_token_of_it(client):
    texts = {
        await text_of(
            client, CHAT, response_format=RESPONSE_FORMAT, temperature=0.9, seed=5, speculation={"enabled": on}
        )
        for on in (True, False)
    }
    assert len(texts) == 1


class Colour(Enum):
    RED, GREEN = "red", "green"


class Address(pydantic.BaseModel):
    street: str = pydantic.Field(max_length=12)
    number: int = pydantic.Field(ge=1, le=999)


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=10)
    colour: Colour
    kind: Literal["a", "b"]
    address: Address | None = None
    scores: list[int] = pydantic.Field(max_length=3)


async def test_the_sdk_parses_pydantic_models(client):
    async with openai.AsyncOpenAI(base_url=str(client.make_url("/v1")), api_key="x", max_retries=0) as sdk:
        for seed in range(8):
            completion = await sdk.chat.completions.parse(
                model="demo", messages=MESSAGES, response_format=Person, max_tokens=400, seed=seed
            )
            parsed = completion.choices[0].message.parsed
            assert isinstance(parsed, Person)


WRONG = (
    ({"response_format": {"type": "yaml"}}, "response_format", 'or "text"; got "yaml"'),
    ({"response_format": {"type": "json_schema"}}, "response_format", "needs"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format", "needs"),
    ({"response_format": {**RESPONSE_FORMAT, "json_schema": {"schema": {"type": "x"}}}}, "response_format", "type: x"),
    ({"response_format": {"type": "structural_tag"}}, "response_format", "needs structures and triggers"),
    ({"structured_outputs": {}}, "structured_outputs", "give one of json, json_object, regex"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "the text has one form"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs", "a list of 1 to 4096 strings; got none"),
    ({"structured_outputs": {"json": {"enum": []}}}, "structured_outputs", "no value satisfies the schema"),
    ({"guided_regex": "a+", "response_format": {"type": "json_object"}}, "guided_regex", "response_format and guided"),
    ({"guided_regex": "("}, "guided_regex", "unclosed group"),
    ({"guided_choice": "yes"}, "guided_choice", 'a list of 1 to 4096 strings; got "yes"'),
)  # fmt: skip


async def test_wrong_bodies_are_answered_with_the_field_and_the_reason(client):
    for fields, param, reason in WRONG:
        for path, more in ((CHAT, {"messages": MESSAGES}), (COMPLETIONS, {"prompt": "x"})):
            response = await client.post(path, json={**more, **fields})
            error = (await response.json())["error"]
            assert (response.status, error["param"]) == (400, param), (fields, error)
            assert reason in error["message"], error


async def test_no_possible_token_is_a_stated_end(client):
    body = {"prompt": "x", "guided_choice": ["hello"], "allowed_token_ids": [77], "max_tokens": 5}
    response = await client.post(COMPLETIONS, json=body)
    assert response.status == 500
    assert "left no token to choose from" in (await response.json())["error"]["message"]
    assert await text_of(client, COMPLETIONS, guided_choice=["hello"]) == "hello"


OPEN = {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["a", "b"]}


@pytest.mark.parametrize(
    ("asked", "whitespace", "closed"),
    [({}, "", None), ({"disable_any_whitespace": True}, "fixed", None),
     ({"disable_additional_properties": True, "disable_any_whitespace": False}, "", True)],
)  # fmt: skip
def test_a_request_says_how_json_is_written(asked, whitespace, closed, toy_model):
    asked = {"json": OPEN, **asked}
    body = decode_body(json.dumps({"prompt": "x", "structured_outputs": asked}).encode(), SamplingBody)
    form = structured_output(body)
    assert (form.whitespace, form.closed_objects) == (whitespace, closed)
    tokenizer = load_tokenizer(toy_model, TOY_VOCAB, (EOS_ID,))
    grammars = Grammars(tokenizer, GrammarOptions(whitespace="flexible", closed_objects=False))
    for text, is_allowed in (
        ('{"a": 1, "b": 2}', True),
        ('{ "a":1,"b" : 2}', whitespace != "fixed"),
        ('{"a": 1, "b": 2, "c": 3}', not closed),
    ):
        matcher = grammars.matcher(form)
        tokens = tokenizer.tokenize_str(text)
        assert (matcher.try_consume_tokens(tokens) == len(tokens)) == is_allowed, text


def test_a_pattern_of_whitespace_is_refused():
    body = decode_body(b'{"prompt": "x", "structured_outputs": {"json": {}, "whitespace_pattern": " "}}', SamplingBody)
    with pytest.raises(RequestError, match="whitespace_pattern is not served"):
        structured_output(body)
