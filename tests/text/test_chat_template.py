"""Chat templates: where they come from, what they may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from specserve.errors import ModelError, RequestError
from specserve.text.chat_template import ChatTemplate, find_chat_template

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.text.tokenizer import HfTokenizer

MESSAGES = [{"role": "user", "content": "<hi> & ä"}]


def test_a_template_of_the_directory_renders(tokenizer: HfTokenizer) -> None:
    assert tokenizer.render_chat(MESSAGES) == "user: <hi> & ä\n"


def test_blocks_are_trimmed_and_loop_controls_work() -> None:
    source = "{% for m in messages %}\n  {% if loop.index > 1 %}{% break %}{% endif %}\n{{ m.content | tojson }}\n"
    source += "{% endfor %}"
    assert ChatTemplate(source).render(MESSAGES * 2, {}) == '"<hi> & ä"\n'


def test_the_jinja_file_wins_over_the_settings(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}file")
    template = find_chat_template(tmp_path, {"chat_template": "settings", "bos_token": {"content": "<s>"}})
    assert template is not None
    assert template.render(MESSAGES, {}) == "<s>file"


def test_a_named_list_gives_its_default(tmp_path: Path) -> None:
    named = [{"name": "tools", "template": "no"}, {"name": "default", "template": "yes"}]
    template = find_chat_template(tmp_path, {"chat_template": named})
    assert template is not None
    assert template.render(MESSAGES, {}) == "yes"


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
def test_whatever_a_template_does_wrong_is_a_request_error(source: str) -> None:
    with pytest.raises(RequestError, match="template") as caught:
        ChatTemplate(source).render(MESSAGES, {})
    assert caught.value.param == "messages"


def test_no_template_is_said_and_a_broken_one_stops_the_start(tmp_path: Path) -> None:
    assert find_chat_template(tmp_path, {}) is None
    with pytest.raises(RequestError, match="no chat template"):
        ChatTemplate.render_or_refuse(None, MESSAGES, {})
    with pytest.raises(ModelError, match="not valid"):
        find_chat_template(tmp_path, {"chat_template": "{% if %}"})


def test_the_time_is_available() -> None:
    assert len(ChatTemplate("{{ strftime_now('%Y') }}").render([], {})) == 4
