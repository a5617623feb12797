"""`grammar.unsupported=validate`: what cannot be enforced is served, and the answer says whether it is kept."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from grammar_cases import grammar_engine, wanted
from schema_suite import CASES
from test_tools import TEMPLATES

from both_forms import FORMS, in_form
from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.errors import ConfigError, RequestError
from specserve.types import SamplingParams
from specserve_grammar.answers import answer_check
from specserve_grammar.grammars import Grammars, load_tokenizer
from specserve_grammar.options import GrammarOptions
from specserve_grammar.validator import Validator
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig
from specserve_workbench.testing.requests import TOY_VOCAB
from specserve_workbench.testing.toy import write_checkpoint
from specserve_workbench.testing.toy_tokenizer import EOS_ID

VALIDATE = GrammarOptions(unsupported="validate", closed_objects=False, whitespace="flexible", cache_size=1000)
BITS = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2, "uniqueItems": True}
"""Two booleans that differ: half of the texts that are written are valid."""
ALIKE = {**BITS, "items": {"const": True}}
"""No answer is valid, and all of it but uniqueItems is enforced."""


@pytest.fixture(scope="module")
def grammars(toy_model):
    return Grammars(load_tokenizer(toy_model, TOY_VOCAB, (EOS_ID,)), VALIDATE, Validator())


def check(grammars, schema, text, **params):
    asked = SamplingParams(structured_output=wanted("json_schema", schema), **params)
    return answer_check(grammars, asked, text)


def test_an_answer_is_checked_for_what_was_not_enforced_and_nothing_else_is_checked(grammars):
    schema = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}
    place = "uniqueItems at /properties/tags/uniqueItems"
    good, bad = (check(grammars, schema, json.dumps({"tags": tags})) for tags in ([1, 2], [1, 1]))
    assert (good.valid, good.unenforced, good.errors) == (True, (place,), ())
    assert (bad.valid, bad.unenforced) == (False, (place,))
    assert bad.errors == (f"/tags: [1,1] has non-unique elements ({place})",)
    assert check(grammars, {"type": "array"}, "[1, 1]") is None


def test_a_text_that_was_cut_off_is_not_valid(grammars):
    found = check(grammars, BITS, "[true, fal")
    assert (found.valid, found.errors) == (False, ("the text ends before the value does",))


def test_keys_are_counted_in_what_was_written(grammars):
    """The grammar counts a key twice that is written twice."""
    schema = {"type": "object", "minProperties": 3}
    assert check(grammars, schema, '{"a": 1, "b": 2, "c": 3}').valid is True
    found = check(grammars, schema, '{"a": 1, "a": 2, "b": 3}')
    assert (found.valid, found.unenforced) == (False, ("minProperties at /minProperties",))


def test_the_public_suite_is_validated_exactly(grammars):
    """Every schema that is taken with something unenforced, and every value of it."""
    served = 0
    for groups in CASES.values():
        for description, schema, values in groups:
            form = wanted("json_schema", json.dumps(schema))
            try:
                unenforced = grammars.find(form).unenforced
            except RequestError:
                continue
            served += bool(unenforced)
            for value, is_valid in values if unenforced else ():
                found = check(grammars, json.dumps(schema), json.dumps(value))
                assert found.valid is is_valid, (description, schema, value, found)
    assert served > 100


def test_a_schema_that_takes_for_ever_to_validate_by_leaves_the_answer_unknown_and_the_next_one_is_validated(toy_model):
    grammars = Grammars(load_tokenizer(toy_model, TOY_VOCAB, (EOS_ID,)), VALIDATE, Validator(seconds=0.2))
    definitions: dict[str, Any] = {"a0": {"type": "object", "not": {"const": 1}}}
    for i in range(1, 60):
        definitions[f"a{i}"] = {"allOf": [{"$ref": f"#/$defs/a{i - 1}"}] * 2}
    endless = {"$defs": definitions, "type": "object", "not": {"not": {"$ref": "#/$defs/a59"}}}
    unknown = check(grammars, endless, "{}")
    assert (unknown.valid, unknown.errors) == (None, ("could not be validated: it took more than 0.2 seconds",))
    assert check(grammars, BITS, "[true, false]").valid is True


def test_the_process_that_validates_is_replaced_where_it_dies(grammars):
    assert check(grammars, BITS, "[true, true]").valid is False
    (worker,) = grammars.validator.workers
    os.kill(worker.pid, signal.SIGKILL)
    assert check(grammars, BITS, "[true, true]").valid is False


def test_numbers_that_python_does_not_read_leave_the_answer_unknown(grammars):
    found = check(grammars, {"type": "array", "uniqueItems": True}, f"[{'9' * 5000}]")
    assert found.valid is None
    assert "could not be validated: Exceeds the limit (4300 digits)" in found.errors[0]


def test_the_values_of_a_structural_tag_are_checked_each_by_its_schema(grammars):
    structures = [{"begin": f"<{name}>", "schema": schema, "end": "</>"} for name, schema in (("a", BITS), ("b", {}))]
    tag = {"structures": structures, "triggers": ["<"]}
    params = SamplingParams(structured_output=wanted("structural_tag", tag))
    texts = {"<a>[true, true]</>": False, "<b>[1, 1]</> <a>[true, false]</>": True, "no tag": True}
    for text, valid in texts.items():
        found = answer_check(grammars, params, text)
        assert found.valid is valid, text
        assert found.unenforced == ("the part that begins with '<a>': uniqueItems at /uniqueItems",)


def test_parts_of_which_all_is_enforced_are_not_validated(grammars):
    """What is not known of them makes nothing of the others unknown."""
    begins = (("<a>", BITS), ("<b>", {"type": "array", "items": {"type": "integer"}}))
    structures = [{"begin": begin, "schema": schema, "end": "</>"} for begin, schema in begins]
    params = SamplingParams(structured_output=wanted("structural_tag", {"structures": structures, "triggers": ["<"]}))
    assert answer_check(grammars, params, f"<b>[{'9' * 5000}]</> <a>[true, false]</>").valid is True


def test_places_are_json_pointers(grammars):
    schema = {"type": "object", "properties": {"a/b~c": {"type": "array", "uniqueItems": True}}}
    found = check(grammars, schema, '{"a/b~c": [1, 1]}')
    place = "uniqueItems at /properties/a~1b~0c/uniqueItems"
    assert found.unenforced == (place,)
    assert found.errors == (f"/a~1b~0c: [1,1] has non-unique elements ({place})",)


def test_without_the_library_the_start_stops_with_what_to_install(toy_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(ConfigError, match=r"pip install 'specserve-plugin-grammar\[validate\]'"):
        grammar_engine(toy_model, grammar={"unsupported": "validate"})


def test_a_schema_by_which_nothing_can_be_validated_is_refused(grammars):
    with pytest.raises(
        RequestError, match=r'answers cannot be validated by it: /contains: 5 is not of types "boolean"'
    ):
        check(grammars, {"type": "array", "contains": 5}, "[]")


@pytest.fixture(scope="module")
def calling_model(tmp_path_factory):
    model = write_checkpoint(tmp_path_factory.mktemp("model"))
    settings = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": TEMPLATES["hermes"]}))
    return model


@pytest.fixture(params=FORMS)
async def client(calling_model, request):
    config = EngineConfig(
        model=str(calling_model),
        plugins=("grammar", "ngram"),
        plugin_options={"grammar": {"unsupported": "validate"}},
        default_plugins=True,
        threads=1,
        kv_memory="64M",
    )
    engine = await AsyncEngine.start(config)
    server = ServerConfig(served_model_name="toy")
    async with (
        in_form(request.param, engine, server) as attached,
        TestClient(TestServer(make_app(attached, server))) as client,
    ):
        yield client


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "bits", "schema": schema}}


async def answer_of(client, path, **body):
    response = await client.post(path, json={"temperature": 0, **body})
    answer = await response.json()
    assert response.status == 200, answer
    return answer


async def last_event(client, path, find, **body):
    response = await client.post(path, json={"temperature": 0, "stream": True, **body})
    lines = (await response.text()).splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return [found for event in events if (found := find(event)) is not None]


MESSAGES = [{"role": "user", "content": "two bits"}]
OF_CHOICES = [
    ("/v1/chat/completions", {"messages": MESSAGES}),
    ("/v1/completions", {"prompt": "bits"}),
]


@pytest.mark.parametrize(("path", "body"), OF_CHOICES)
async def test_each_choice_says_whether_it_is_valid_whole_and_streamed(client, path, body):
    asked = {**body, "n": 3, "max_tokens": 60, "response_format": schema_format(ALIKE)}
    expected = {
        "valid": False,
        "unenforced": ["uniqueItems at /uniqueItems"],
        "errors": ["[true,true] has non-unique elements (uniqueItems at /uniqueItems)"],
    }
    whole = await answer_of(client, path, **asked)
    assert [choice["validation"] for choice in whole["choices"]] == [expected] * 3

    def of_chunk(event):
        return next((choice["validation"] for choice in event["choices"] if "validation" in choice), None)

    assert await last_event(client, path, of_chunk, **asked) == [expected] * 3
    free = await answer_of(client, path, **body, max_tokens=4)
    assert "validation" not in free["choices"][0]


async def test_responses_and_messages_say_it_too(client):
    """`/v1/messages` by the schema of a tool that must be called."""
    form = {"format": {"type": "json_schema", "name": "bits", "schema": ALIKE}}
    asked: dict[str, Any] = {"input": "two bits", "text": form, "max_output_tokens": 60}
    whole = await answer_of(client, "/v1/responses", **asked)
    assert whole["validation"]["valid"] is False
    ends = await last_event(client, "/v1/responses", lambda e: e.get("response", {}).get("validation"), **asked)
    assert ends == [whole["validation"]]
    parameters = {"type": "object", "properties": {"bits": ALIKE}, "required": ["bits"]}
    tools = [{"name": "set", "description": "sets", "input_schema": parameters}]
    asked = {"messages": MESSAGES, "tools": tools, "tool_choice": {"type": "any"}, "max_tokens": 90}
    whole = await answer_of(client, "/v1/messages", **asked)
    place = "uniqueItems at /properties/bits/uniqueItems"
    assert whole["validation"]["unenforced"] == [f'tool "set": {place}']
    assert whole["validation"]["errors"] == [f'tool "set": /bits: [true,true] has non-unique elements ({place})']
    assert await last_event(client, "/v1/messages", lambda e: e.get("validation"), **asked) == [whole["validation"]]
