"""Chat templates of GGUF files: as the file has them, and run in the server's sandbox like any other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from gguf_vocabularies import byte_level

from specserve.errors import ModelError, RequestError
from specserve_gguf.describe import text_files
from specserve_server.templates.model_template import read_model_template

if TYPE_CHECKING:
    from pathlib import Path

    from specserve_server.templates.model_template import ModelTemplate

MESSAGES = [{"role": "user", "content": "hi"}]
PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}\n"


def served(path: Path, **templates: object) -> ModelTemplate:
    """`templates`: keys of the file, with dots for underlines of the first two."""
    for name, content in text_files({**byte_level(), **templates}).items():
        (path / name).write_bytes(content)
    return read_model_template(path)


def test_the_template_is_the_files_and_knows_its_special_tokens(tmp_path: Path) -> None:
    template = served(tmp_path, **{"tokenizer.chat_template": PLAIN})
    assert (tmp_path / "chat_template.jinja").read_text(encoding="utf-8") == PLAIN
    assert template.render(MESSAGES) == "<user>hi<|end|>"


def test_named_templates_are_used_for_what_their_names_say(tmp_path: Path) -> None:
    named = {
        "tokenizer.chat_template": PLAIN,
        "tokenizer.chat_templates": ["tool_use"],
        "tokenizer.chat_template.tool_use": "tools: {{ tools | length }}",
    }
    template = served(tmp_path, **named)
    assert template.render(MESSAGES) == "<user>hi<|end|>"
    assert template.render(MESSAGES, tools=[{"name": "f"}]) == "tools: 1"


def test_a_file_without_a_template_is_served_without_one(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no chat template"):
        served(tmp_path).render(MESSAGES)


def test_the_name_of_a_template_is_no_place_in_the_file_system() -> None:
    evil = {"tokenizer.chat_templates": ["../../evil"], "tokenizer.chat_template.../../evil": "x"}
    files = text_files({**byte_level(), **evil})
    assert set(files) == {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}
    assert json.loads(files["tokenizer_config.json"])["chat_template"] == [{"name": "../../evil", "template": "x"}]


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('touch MARK') }}",
        "{{ raise_exception.__globals__['__builtins__']['open']('MARK', 'w') }}",
        "{{ self.__init__.__globals__.__builtins__.__import__('os').system('touch MARK') }}",
        "{{ messages.__class__.__base__.__subclasses__()[100] }}",
        "{{ (messages|attr('__class__')).__bases__ }}",
        "{{ '{0.__class__.__init__.__globals__}'.format(cycler) }}",
        "{{ lipsum.__globals__['os'].popen('touch MARK').read() }}",
        "{{ messages.clear() }}",
        "{% include '/etc/passwd' %}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
    ],
)
def test_an_evil_template_of_a_file_runs_no_code(tmp_path: Path, source: str) -> None:
    mark = tmp_path / "mark"
    template = source.replace("MARK", str(mark))
    with pytest.raises((RequestError, ModelError), match="chat template"):
        served(tmp_path, **{"tokenizer.chat_template": template}).render(MESSAGES)
    assert not mark.exists()
    assert MESSAGES == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tokenizer.chat_template": ["a"]}, "tokenizer.chat_template must be a string"),
        ({"tokenizer.chat_templates": "tool_use"}, "tokenizer.chat_templates must be a list of strings"),
        (
            {"tokenizer.chat_templates": [str(n) for n in range(65)]},
            "tokenizer.chat_templates has 65 entries; at most 64",
        ),
        (
            {"tokenizer.chat_templates": ["a"], "tokenizer.chat_template.a": 1},
            "tokenizer.chat_template.a must be a string; got 1",
        ),
    ],
)
def test_a_template_that_is_no_text_is_an_error(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ModelError, match=f"^bad.gguf: {said}"):
        text_files({**byte_level(), **changes}, "bad.gguf")
