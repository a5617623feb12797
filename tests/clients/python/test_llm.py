"""`llm`: its command line and its Python interface, with the models of extra-openai-models.yaml."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from people import MAX_TOKENS, Person

MODELS = """\
- model_id: here
  model_name: demo
  api_base: {url}
  api_key_name: here
  supports_schema: true
  supports_tools: true
- model_id: here-completions
  model_name: demo
  api_base: {url}
  api_key_name: here
  completion: true
"""
TOOL = 'def note_age(age: int) -> str:\n    "Notes an age."\n    return f"noted {age}"\n'


@pytest.fixture(scope="module")
def llm(server, tmp_path_factory):
    """`llm(arguments...)`: what the command prints, in a user's folder of its own."""
    folder = tmp_path_factory.mktemp("llm")
    (folder / "extra-openai-models.yaml").write_text(MODELS.format(url=server.v1))
    (folder / "keys.json").write_text(json.dumps({"here": server.key}))
    program = str(Path(sys.executable).with_name("llm"))

    def llm(*arguments: str, code: int = 0) -> str:
        environment = {**os.environ, "LLM_USER_PATH": str(folder)}
        ended = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == code, ended.stderr
        return ended.stdout if code == 0 else ended.stderr

    return llm


def ask(model: str, *arguments: str, tokens: int = 20) -> tuple[str, ...]:
    return ("-m", model, "-o", "temperature", "0", "-o", "max_tokens", str(tokens), *arguments)


def test_a_stream_is_the_whole(llm):
    assert llm(*ask("here", "hello")) == llm(*ask("here", "hello", "--no-stream")) != "\n"


def test_completions_are_continued(llm):
    found = llm(*ask("here-completions", "def add(a, b):"))
    assert found == llm(*ask("here-completions", "def add(a, b):", "--no-stream")) != "\n"


def test_a_conversation_is_continued_and_logged(llm):
    llm(*ask("here", "one"))
    llm(*ask("here", "two", "--continue"))
    first, second = json.loads(llm("logs", "--json", "-n", "2"))
    assert first["conversation_id"] == second["conversation_id"]
    assert second["input_tokens"] > first["input_tokens"]


def test_a_schema_is_followed(llm):
    found = llm(*ask("here", "a person", "--schema", json.dumps(Person.model_json_schema()), tokens=MAX_TOKENS))
    assert Person.model_validate_json(found)


def test_tools_are_offered(llm):
    """Their use is up to the model, and the demo model answers in text."""
    assert llm(*ask("here", "hello", "--functions", TOOL)) != "\n"


def test_a_wrong_request_ends_with_the_servers_message(llm):
    assert "max_tokens: must be at least 1" in llm(*ask("here", "hello", tokens=0), code=1)
