"""Chat templates: where they are found, and what they may do."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import transformers
from tiny_tokenizer import write_model_dir

from specserve.errors import ModelError, RequestError
from specserve_server.templates.chat_template import ChatTemplate
from specserve_server.templates.model_template import read_model_template
from specserve_server.templates.template_files import find_chat_template

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = [{"role": "user", "content": "<hi> & ä"}]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    write_model_dir(path)
    return path


def test_the_template_of_a_model_directory_is_rendered(model_dir: Path) -> None:
    assert read_model_template(model_dir).render(MESSAGES) == "user: <hi> & ä\n"


def test_blocks_are_trimmed_and_loop_controls_work() -> None:
    source = "{% for m in messages %}\n  {% if loop.index > 1 %}{% break %}{% endif %}\n{{ m.content | tojson }}\n"
    source += "{% endfor %}"
    assert ChatTemplate(source).render(MESSAGES * 2) == '"<hi> & ä"\n'


def test_chat_template_jinja_goes_before_tokenizer_config(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}file")
    template = find_chat_template(tmp_path, {"chat_template": "settings", "bos_token": {"content": "<s>"}})
    assert template is not None
    assert template.render(MESSAGES) == "<s>file"


def test_of_several_named_templates_the_default_one_is_used(tmp_path: Path) -> None:
    named = [{"name": "tools", "template": "no"}, {"name": "default", "template": "yes"}]
    template = find_chat_template(tmp_path, {"chat_template": named})
    assert template is not None
    assert template.render(MESSAGES) == "yes"


FORMS = {
    "json": "{{ messages | tojson(indent=2) }}{{ messages | tojson(ensure_ascii=True, separators=(',', ':')) }}"
    "{{ {'b': 1, 'a': 2} | tojson(sort_keys=True) }}",
    "generation": "{% set x = 1 %}\n{% for m in messages %}\n  {% generation %}\n {{ m.content }}{% set x = 2 %}\n"
    "  {% endgeneration %}\n{% endfor %}{% generation %}{% set x = 3 %}{% endgeneration %}{{ x }}",
    "tools": [
        {"name": "default", "template": "\n {% set ns = namespace(a=1) %} {{ messages[0].content }} {{ ns.a }}\n\n"},
        {"name": "tool_use", "template": "\n  {% macro f(t) %}<{{ t.function.name }}>{% endmacro %}"
         "{% for t in tools %}{{ f(t) }}{% endfor %}\n  "},
    ],
}  # fmt: skip
TOOL = {"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("tools", [[], [TOOL, TOOL]], ids=["no tools", "tools"])
@pytest.mark.parametrize("form", FORMS)
def test_templates_render_as_in_transformers(model_dir: Path, tmp_path: Path, form: str, tools: list[Any]) -> None:
    settings = json.loads((model_dir / "tokenizer_config.json").read_text()) | {"chat_template": FORMS[form]}
    shutil.copy(model_dir / "tokenizer.json", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
    expected = reference.apply_chat_template(MESSAGES, tools=tools or None, tokenize=False)
    assert read_model_template(tmp_path).render(MESSAGES, tools=tools) == expected
    reference.save_pretrained(tmp_path / "saved")  # templates in files of their own
    (tmp_path / "saved" / "tokenizer.json").write_bytes((tmp_path / "tokenizer.json").read_bytes())
    assert read_model_template(tmp_path / "saved").render(MESSAGES, tools=tools) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no system role') }}",
        "{{ messages[0].missing.deeper }}",
        "{{ ''.__class__.__mro__ }}{{ messages.append(1) }}",
        "{{ 1 / 0 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_whatever_a_template_raises_is_a_request_error(source: str) -> None:
    with pytest.raises(RequestError, match="template") as caught:
        ChatTemplate(source).render(MESSAGES)
    assert caught.value.param == "messages"


def test_a_model_without_a_template_refuses_messages(model_dir: Path, tmp_path: Path) -> None:
    assert find_chat_template(tmp_path, {}) is None
    shutil.copy(model_dir / "tokenizer.json", tmp_path)
    with pytest.raises(RequestError, match="no chat template"):
        read_model_template(tmp_path).render(MESSAGES)


def test_an_invalid_template_stops_start_up(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not valid"):
        find_chat_template(tmp_path, {"chat_template": "{% if %}"})


def test_a_template_may_ask_for_the_date() -> None:
    assert len(ChatTemplate("{{ strftime_now('%Y') }}").render([])) == 4
