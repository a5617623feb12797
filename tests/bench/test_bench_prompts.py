"""What is asked, and the bodies that ask it."""

from __future__ import annotations

import json

import pytest

from specserve.errors import ConfigError
from specserve_bench.client.bodies import Asked
from specserve_bench.client.target import parse_url
from specserve_bench.prompts.built_in import KINDS, built_in
from specserve_bench.prompts.choose import Choice, choose_prompts
from specserve_bench.prompts.prompt import Prompt

POOL = list(range(100, 180))


def choose(*names, count=6, pool=POOL, seed=0):
    return choose_prompts(Choice(names, seed, 24, pool), count)


@pytest.mark.parametrize("kind", KINDS)
def test_built_in_prompts_are_the_same_everywhere_and_differ_among_themselves(kind):
    texts = [built_in(kind, number, 0).text for number in range(50)]
    assert texts == [built_in(kind, number, 0).text for number in range(50)]
    assert len(set(texts)) > 40
    assert built_in(kind, 0, 0) != built_in(kind, 0, 1)


def test_an_edit_holds_what_its_answer_repeats():
    text = built_in("edit", 1, 0).text
    source, _, rest = text.partition("# Task")
    assert rest.endswith(source.partition("\n")[0])


def test_kinds_and_files_come_in_turn(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "one"}\n\n{"prompt": "two", "max_tokens": 7, "kind": "logs"}\n')
    prompts = choose("code", str(path), count=6)
    assert [prompt.kind for prompt in prompts] == ["code", "mine", "code", "logs", "code", "mine"]
    assert (prompts[1].text, prompts[3].max_tokens, prompts[5].text) == ("one", 7, "one")


def test_random_prompts_have_their_length_and_begin_differently():
    prompts = choose("random", count=20)
    assert {len(prompt.token_ids) for prompt in prompts} == {24}
    assert len({prompt.token_ids[:4] for prompt in prompts}) == 20
    assert all(token in POOL for prompt in prompts for token in prompt.token_ids)
    assert choose("random", seed=1) != choose("random")


def test_random_prompts_need_a_tokenizer():
    with pytest.raises(ConfigError, match="POST /tokenize"):
        choose("random", pool=None)


def test_a_sharegpt_file_gives_what_people_asked_first(tmp_path):
    path = tmp_path / "share.json"
    conversations = [
        [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "Because."}],
        [{"from": "gpt", "value": "Hello"}, {"from": "human", "value": "Hi"}],
        [{"from": "human", "value": "unanswered"}],
    ]
    path.write_text(json.dumps([{"id": "x", "conversations": each} for each in conversations]))
    assert [prompt.text for prompt in choose(str(path), count=2)] == ["Why?", "Why?"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"prompt": "x"}\n{"prompt": 3}', r"a\.jsonl:2: Expected `str \| null`"),
        ("a.jsonl", '{"prompt": "x", "messages": []}', "one of prompt and messages"),
        ("a.jsonl", "{}", "one of prompt and messages"),
        ("a.jsonl", "\n", "holds no prompt"),
        ("a.json", '[{"conversations": 3}]', "no ShareGPT file"),
        ("a.json", "[]", "holds no prompt"),
        ("a.jsonl", None, "is not readable: No such file"),
        ("a.txt", "x", "code, edit, chat, json, random, or a file"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        choose(str(path))


def test_bodies_hold_what_was_asked():
    asked = Asked(model="m", max_tokens=9, temperature=0.5, ignore_eos=True)
    body = json.loads(asked.body(Prompt(kind="code", text="def")))
    assert body == {
        "prompt": "def",
        "model": "m",
        "max_tokens": 9,
        "temperature": 0.5,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert json.loads(asked.body(Prompt(kind="random", token_ids=(1, 2), max_tokens=3)))["prompt"] == [1, 2]
    assert json.loads(asked.body(Prompt(kind="code", text="x", max_tokens=3)))["max_tokens"] == 3


def test_what_is_not_asked_is_the_servers():
    assert json.loads(Asked().body(Prompt(kind="code", text="x"))).keys() == {
        "prompt",
        "max_tokens",
        "stream",
        "stream_options",
    }


def test_a_chat_has_messages():
    chat = Asked(api="chat")
    assert json.loads(chat.body(Prompt(kind="chat", text="x")))["messages"] == [{"role": "user", "content": "x"}]
    own = ({"role": "system", "content": "y"},)
    assert json.loads(chat.body(Prompt(kind="chat", messages=own)))["messages"] == list(own)


def test_prompts_that_a_route_does_not_take_are_refused():
    with pytest.raises(ConfigError, match="leave out --api chat"):
        Asked(api="chat").body(Prompt(kind="random", token_ids=(1,)))
    with pytest.raises(ConfigError, match="add --api chat"):
        Asked().body(Prompt(kind="x", messages=()))


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://example.org/v1/", "https://example.org"),
        ("http://example.org/team/v1", "http://example.org/team"),
        ("http://[::1]:9/", "http://[::1]:9"),
    ],
)
def test_an_address_may_be_written_in_several_ways(text, url):
    assert parse_url(text) == url


@pytest.mark.parametrize("text", ["", "http://", "ftp://x", "http://x:port", "http://x:0", "http://x:99999"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ConfigError, match="URL must be http"):
        parse_url(text)
