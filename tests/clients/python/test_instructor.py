"""instructor: its modes TOOLS and JSON_SCHEMA, whole and as streams of partial objects."""

from __future__ import annotations

import instructor
import openai
import pytest
from people import MAX_TOKENS, QUESTION, Person

ASK = {
    "model": "demo",
    "messages": [{"role": "user", "content": QUESTION}],
    "max_tokens": MAX_TOKENS,
    "temperature": 0,
    "max_retries": 0,
}


@pytest.fixture(params=["TOOLS", "JSON_SCHEMA"])
def client(request, server):
    with openai.OpenAI(base_url=server.v1, api_key=server.key, max_retries=0) as sdk:
        yield instructor.from_openai(sdk, mode=instructor.Mode[request.param])


def test_an_answer_is_an_object(client):
    person, raw = client.chat.completions.create_with_completion(**ASK, response_model=Person)
    assert isinstance(person, Person)
    assert raw.usage.completion_tokens > 5


def test_partial_objects_grow_into_a_whole_one(client):
    partial = list(client.chat.completions.create_partial(**ASK, response_model=Person))
    assert len(partial) > 1
    assert Person.model_validate(partial[-1].model_dump())
