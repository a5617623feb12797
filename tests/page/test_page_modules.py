"""What the page computes: bodies, measures, comparisons, snippets, events, each by its module in node."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from fake_server import STEPS, node, step, token
from node import STATIC, call, needs_node

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_node
NASTY = (
    'it\'s "quoted"',
    "two\nlines\r\n\ttab",
    "$HOME `id` $(id) ${x} !! \\ \\n \\u0041 %s",
    "'; echo hacked #",
    "\x00\x07\x1b[31m",
    "漢 🙂 \u202e \u2028 \ud800 é",
    "'''\"\"\"",
    "{}[]#\\",
    "",
)
URL = "http://127.0.0.1:8000/v1/completions"


def nasty_bodies() -> list[dict[str, Any]]:
    base = {
        "model": "m's $x",
        "stop": ["'", "\n"],
        "n": 1,
        "temperature": 0.5,
        "flag": True,
        "off": False,
        "none": None,
    }
    return [{**base, "prompt": prompt, "deep": {prompt: [[], {}, [prompt]]}} for prompt in NASTY]


def test_curl_sends_every_prompt_as_it_is(tmp_path: Path) -> None:
    """The command runs in a shell, with a program in the place of curl that writes down what it was given."""
    fake = tmp_path / "curl"
    fake.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    fake.chmod(0o755)
    snippets = call("snippets.js", "return a[1].map((body) => m.curl(a[0], body, true));", URL, nasty_bodies())
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SPECSERVE_API_KEY": "k e'y"}
    for snippet, body in zip(snippets, nasty_bodies(), strict=True):
        ran = subprocess.run(["sh"], input=snippet, env=environ, capture_output=True, text=True, check=True)
        arguments = json.loads(ran.stdout)
        assert arguments[:4] == ["-N", URL, "-H", "Authorization: Bearer k e'y"]
        assert json.loads(arguments[-1]) == {**body, "stream": True}
        assert ran.stderr == ""


def test_python_has_every_prompt_as_it_is() -> None:
    snippets = call("snippets.js", "return a[1].map((body) => m.python(a[0], body, true));", URL, nasty_bodies())
    for snippet, body in zip(snippets, nasty_bodies(), strict=True):
        assert snippet.isprintable() or set(filter(lambda c: not c.isprintable(), snippet)) == {"\n"}
        tree = ast.parse(snippet)
        (assigned,) = [one for one in tree.body if isinstance(one, ast.Assign) and one.targets[0].id == "body"]  # type: ignore[attr-defined]
        assert ast.literal_eval(assigned.value) == body


def test_the_python_program_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import urllib.request

    def urlopen(request: Any) -> io.BytesIO:
        echoed = {"data": json.loads(request.data), "url": request.full_url, "key": request.headers["Authorization"]}
        return io.BytesIO(json.dumps({"choices": [echoed]}).encode())

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    monkeypatch.setenv("SPECSERVE_API_KEY", "k")
    body = nasty_bodies()[0]
    exec(call("snippets.js", "return m.python(a[0], a[1], true);", URL, body), {})
    assert ast.literal_eval(capsys.readouterr().out) == {"data": body, "url": URL, "key": "Bearer k"}


def test_no_snippet_names_a_key_where_there_is_none() -> None:
    both = call("snippets.js", "return m.curl(a[0], {}, false) + m.python(a[0], {}, false);", URL)
    assert "SPECSERVE_API_KEY" not in both
    assert "import os" not in both


def test_settings_become_a_body_and_what_is_empty_is_not_sent() -> None:
    typed = {
        "model": "toy",
        "max_tokens": "20",
        "temperature": "0",
        "top_p": "",
        "seed": "7",
        "stop": "a\n\\n\n\n\\\\n",
        "speculation": True,
        "max_draft_tokens": "4",
        "system": "be kind",
        "more": '{"min_tokens": 2, "seed": 8}',
        "tools": '[{"type": "function"}]',
        "tool_choice": "required",
        "form": "json_schema",
        "form_text": '{"type": "object"}',
    }
    body = call("body.js", "return m.chatBody(a[0], [{role: 'user', content: 'hi'}]);", typed)
    assert body == {
        "model": "toy",
        "max_tokens": 20,
        "temperature": 0,
        "seed": 8,
        "stop": ["a", "\n", "\\n"],
        "speculation": {"max_draft_tokens": 4},
        "min_tokens": 2,
        "tools": [{"type": "function"}],
        "tool_choice": "required",
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
        "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}],
    }
    off = call("body.js", "return m.completionBody({speculation: false, form: 'regex', form_text: 'a+'}, 'x');")
    assert off == {"speculation": {"enabled": False}, "structured_outputs": {"regex": "a+"}, "prompt": "x"}
    choice = call("body.js", "return m.commonFields({form: 'choice', form_text: 'yes\\nno\\n'});")
    assert choice == {"structured_outputs": {"choice": ["yes", "no"]}}


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"temperature": "warm"}, "temperature"),
        ({"seed": "1.5"}, "seed"),
        ({"seed": "9007199254740993"}, "seed"),
        ({"form": "json_schema", "form_text": ""}, "form_text"),
        ({"form": "json_schema", "form_text": "{"}, "form_text"),
        ({"more": "{'a': 1}"}, "more"),
    ],
)
def test_a_setting_that_cannot_be_sent_is_named(typed: dict[str, str], field: str) -> None:
    body = "try { m.commonFields(a[0]); } catch (error) { return [error.field, error.message]; }"
    named, message = call("body.js", body, typed)
    assert named == field
    assert message


def test_answers_are_measured_by_their_steps() -> None:
    body = """
      const { Answer } = await import(a[1]);
      const answer = new Answer(1000);
      a[0].forEach((step, i) => answer.add(
        { choices: [{ delta: { content: "x" }, speculation: { steps: [step] } }] }, 1100 + 500 * i));
      const measures = m.measure(answer);
      return { ...measures, drafters: Object.fromEntries(measures.drafters) };
    """
    assert call("measure.js", body, STEPS, (STATIC / "answer.js").as_uri()) == {
        "numTokens": 6,
        "numSteps": 3,
        "tokensPerSecond": 5.0,  # the first one came with the prompt
        "acceptance": 0.75,
        "tokensPerStep": 2.0,
        "firstMilliseconds": 100,
        "drafters": {"ngram": {"drafted": 2, "accepted": 2}, "eagle": {"drafted": 2, "accepted": 1}},
    }


def test_pieces_of_a_tool_call_and_of_reasoning_are_put_together() -> None:
    chunks = [
        {"choices": [{"delta": {"reasoning": "hm"}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": '{"a'}}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '": 1}'}}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": {"completion_tokens": 9}},
    ]
    body = """
      const answer = new m.Answer();
      a[0].forEach((chunk, i) => answer.add(chunk, i));
      return [answer.reasoning, answer.calls, answer.finishReason, answer.numTokens];
    """
    assert call("answer.js", body, chunks) == ["hm", [{"name": "f", "arguments": '{"a": 1}'}], "tool_calls", 9]


@pytest.mark.parametrize(
    ("left", "right", "complete", "found"),
    [
        ([1, 2, 3], [1, 2, 3], True, (3, True)),
        ([1, 2, 3], [1, 2], False, None),
        ([1, 2, 3], [1, 2], True, (2, False)),
        ([1, 2, 3], [1, 9], False, (1, False)),
        ([], [], False, None),
    ],
)
def test_two_texts_are_compared_token_by_token(
    left: list[int], right: list[int], complete: bool, found: tuple[int, bool] | None
) -> None:
    sides = [[token(id, "same") for id in side] for side in (left, right)]
    told = call("compare.js", "return m.comparison(a[0][0], a[0][1], a[1]);", sides, complete)
    assert (told and (told["place"], told["isEqual"])) == found


def test_events_are_read_however_they_are_cut() -> None:
    text = 'data: {"a": 1}\n\n: comment\n\n: more\ndata:two\r\ndata: lines\r\n\r\nevent: x\ndata: é🙂\n\ndata: cut off'
    body = """
      const bytes = new TextEncoder().encode(a[0]);
      const readings = [];
      for (const size of [1, 2, 3, 7, bytes.length]) {
        const cut = new ReadableStream({ start(controller) {
          for (let i = 0; i < bytes.length; i += size) controller.enqueue(bytes.slice(i, i + size));
          controller.close();
        } });
        const data = [];
        for await (const one of m.eventData(cut)) data.push(one);
        readings.push(data);
      }
      return readings;
    """
    assert call("sse.js", body, text) == [['{"a": 1}', "two\nlines", "é🙂"]] * 5


def test_characters_that_hide_or_command_are_shown() -> None:
    text = "a\x1b[31mb\x00\x7f\u202ec\u200b\ufeff\U000e0041\n\té漢🙂"
    assert call("visible.js", "return m.visible(a[0]);", text) == (
        "a␛[31mb␀␡⟨U+202E⟩c⟨U+200B⟩⟨U+FEFF⟩⟨U+E0041⟩\n\té漢🙂"
    )


def test_a_character_of_several_tokens_is_shown_at_its_last() -> None:
    texts = ["a", "bytes:\\xf0\\x9f", "bytes:\\x99\\x82", "b", "bytes:\\xff", "c"]
    body = "const pieces = new m.Pieces(); return a[0].map((text) => pieces.next(text));"
    assert call("pieces.js", body, texts) == ["a", "", "🙂", "b", "\ufffd", "c"]


def test_a_draft_is_shown_as_a_tree() -> None:
    places = [None, 0, None, 1, 0]
    draft = [node(i, "x", "ngram", survival=None, accepted=False, parent=p) for i, p in enumerate(places)]
    told = step([token(1, "x")], draft)["draft"]
    order, depths = call("draft_tree.js", "return [m.inTreeOrder(a[0]), m.depthsOf(a[0])];", told)
    assert (order, depths) == ([0, 1, 3, 4, 2], [0, 1, 0, 2, 1])
