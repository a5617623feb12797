"""Tokens and bytes of log-probabilities are together the text, with tokenizers whose tokens are no texts alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fake_engine import FakeEngine
from tokenizer_kinds import llama2

from specserve.text.tokenizer import HfTokenizer
from specserve.types import TokenLogprobs
from specserve_server.completions.logprobs import completion_logprobs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TEMPLATE = "<s>[INST] {{ messages[0].content }} [/INST]"
SNAKE = ("<0xF0>", "<0x9F>", "<0x90>", "<0x8D>")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    path = tmp_path_factory.mktemp("llama")
    (path / "chat_template.jinja").write_text(TEMPLATE)
    return HfTokenizer(llama2(), path=path)


class Server:
    """Answers with given tokens."""

    def __init__(self, tokenizer: HfTokenizer, connect: Callable[..., Awaitable[Any]]) -> None:
        self.tokenizer, self.connect = tokenizer, connect
        self.engine, self.client = FakeEngine(tokenizer, width=2), None

    def ids(self, *names: str) -> list[int]:
        ids = [self.tokenizer._rust.token_to_id(name) for name in names]
        assert None not in ids
        return ids

    async def post(self, path: str, answer: tuple[str, ...], reason: str = "length", **body: Any) -> Any:
        self.engine.answer_ids, self.engine.reason = tuple(self.ids(*answer)), reason
        self.client = self.client or await self.connect(self.engine)
        response = await self.client.post(path, json={"max_tokens": 99, **body})
        assert response.status == 200, await response.text()
        if body.get("stream"):
            events = (await response.text()).split("\n\n")[:-2]
            return [json.loads(event.removeprefix("data: ")) for event in events]
        return await response.json()

    async def complete(self, prompt: list[str], *answer: str, **body: Any) -> Any:
        return (await self.post("/v1/completions", answer, prompt=self.ids(*prompt), **body))["choices"][0]

    async def chat(self, *answer: str, **body: Any) -> Any:
        asked = {"messages": [{"role": "user", "content": "a"}], "logprobs": True, **body}
        return (await self.post("/v1/chat/completions", answer, **asked))["choices"][0]


@pytest.fixture
def server(llama: HfTokenizer, connect: Callable[..., Awaitable[Any]]) -> Server:
    return Server(llama, connect)


async def test_tokens_of_a_completion_are_together_its_text(server: Server) -> None:
    choice = await server.complete(["▁Hello"], "▁world", "world", "<0x0A>", "▁", "漢", "!", logprobs=2)
    scored = choice["logprobs"]
    assert scored["tokens"] == [" world", "world", "\n", " ", "漢", "!"]
    assert "".join(scored["tokens"]) == choice["text"]
    assert scored["text_offset"] == [len("".join(scored["tokens"][:i])) for i in range(6)]


async def test_every_alternative_that_was_asked_for_is_given(server: Server) -> None:
    answer = ("▁world", "world", "▁b", "b", "<0x62>")
    scored = (await server.complete(["▁Hello"], *answer, logprobs=6))["logprobs"]
    assert [len(top) for top in scored["top_logprobs"]] == [6] * len(answer)
    for name, value, top in zip(scored["tokens"], scored["token_logprobs"], scored["top_logprobs"], strict=True):
        assert top[name] == value


@pytest.mark.parametrize(("chosen", "other"), [("b", "<0x62>"), ("<0x62>", "b")])
def test_alternatives_with_one_text_are_told_apart_by_their_ids(server: Server, chosen: str, other: str) -> None:
    likeliest, chosen_id, again = server.ids(other, chosen, "▁b")
    entry = TokenLogprobs(chosen_id, -2.0, (likeliest, chosen_id, again), (-1.0, -2.0, -3.0))
    (top,) = completion_logprobs(server.tokenizer, [entry], [0], 3, 0).top_logprobs
    assert top == {f"token_id:{likeliest}": -1.0, "b": -2.0, " b": -3.0}
    (top,) = completion_logprobs(server.tokenizer, [entry], [0], 3, 1).top_logprobs  # of a text that begins with it
    assert top == {f"token_id:{likeliest}": -1.0, "b": -2.0, f"token_id:{again}": -3.0}


@pytest.mark.parametrize(
    "prompt", [["<s>", "▁Hello", "▁world"], ["▁Hello", "world"], ["<s>", "<s>", "▁a", "<s>", "▁b"]]
)
@pytest.mark.parametrize("skip", [True, False])
async def test_tokens_of_an_echo_are_together_its_text(server: Server, prompt: list[str], skip: bool) -> None:
    choice = await server.complete(
        prompt, "▁world", "!", logprobs=1, echo=True, skip_special_tokens=skip, prompt_logprobs=1
    )
    scored = choice["logprobs"]
    shown = ["" if skip and name == "<s>" else name for name in scored["tokens"]]
    assert "".join(shown) == choice["text"]
    assert scored["text_offset"] == [len("".join(shown[:i])) for i in range(len(shown))]
    ids = server.ids(*prompt)[1:]
    pairs = zip(choice["prompt_logprobs"][1:], ids, strict=True)
    named = [position[str(id)]["decoded_token"] for position, id in pairs]
    assert named == scored["tokens"][1 : len(prompt)]


async def test_offsets_of_an_echo_count_special_tokens_that_the_client_wrote(server: Server) -> None:
    answer = await server.post("/v1/completions", ("!",), prompt="Hello</s>a", logprobs=0, echo=True)
    choice = answer["choices"][0]
    offsets = dict(zip(choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"], strict=True))
    assert offsets["</s>"] == len("Hello")
    assert offsets["!"] == choice["text"].index("!")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_text_that_begins_with_its_answer_begins_with_its_first_tokens_name(
    server: Server, stream: bool
) -> None:
    asked = {"prompt": server.ids("<s>"), "logprobs": 1, "stream": stream}
    answer = await server.post("/v1/completions", ("</s>", "▁Hello", "▁world", "▁a"), **asked)
    choices = [choice for one in (answer if stream else [answer]) for choice in one["choices"]]
    assert "".join(choice["text"] for choice in choices) == "Hello world a"
    names = [name for choice in choices for name in choice["logprobs"]["tokens"]]
    assert names == ["</s>", "Hello", " world", " a"]
    for choice in choices:
        scored = choice["logprobs"]
        assert all(name in top for name, top in zip(scored["tokens"], scored["top_logprobs"], strict=True))


@pytest.mark.parametrize("reason", ["length", "stop"])
async def test_bytes_of_a_chat_are_together_its_content(server: Server, reason: str) -> None:
    answer = ("▁Hello", "▁world", "<0xE6>", "<0xBC>", "<0xA2>", "▁", "world", "</s>")
    choice = await server.chat(*answer, reason=reason, top_logprobs=3)
    entries = choice["logprobs"]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == choice["message"]["content"]
    assert choice["message"]["content"] == " Hello world漢 world"
    assert entries[-1]["token"] == "</s>"
    assert [entry["token"] for entry in entries[2:5]] == ["bytes:\\xe6", "bytes:\\xbc", "bytes:\\xa2"]
    assert all(len(entry["top_logprobs"]) == 3 for entry in entries)


async def test_names_of_tokenize_are_together_the_text(server: Server) -> None:
    for text in ("Hello world", " Hello", "a  b\n漢🐍"):
        answer = await server.post("/tokenize", (), prompt=text, return_token_strs=True)
        names = [name for name in answer["token_strs"] if not name.startswith("bytes:")]
        assert "".join(names) == text.replace("🐍", "")
        back = await server.post("/detokenize", (), tokens=answer["tokens"])
        assert back == {"prompt": text}


@pytest.mark.parametrize("cut", [1, 2, 3])
async def test_a_character_of_the_prompt_that_stays_broken_is_no_text_of_the_answer(server: Server, cut: int) -> None:
    prompt = ["▁Hello", *SNAKE[:cut]]
    choice = await server.complete(prompt, "▁world", "!", stop="\ufffd", logprobs=0)
    assert (choice["text"], choice["finish_reason"]) == (" world!", "length")
    assert choice["logprobs"]["text_offset"] == [0, 6]
    for extra in ({}, {"n": 2}):
        choice = await server.complete(prompt, "▁world", "!", echo=True, logprobs=0, **extra)
        assert choice["text"] == "Hello\ufffd world!"
        assert choice["logprobs"]["text_offset"][-1] == choice["text"].index("!")


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("echo", [True, False])
@pytest.mark.parametrize("ending", ["▁world", None])
async def test_a_stream_shows_a_cut_character_as_the_whole_response_does(
    server: Server, cut: int, echo: bool, ending: str | None
) -> None:
    answer = ("▁a", "b") if ending else (*SNAKE[cut:], "b")
    asked = {"prompt": server.ids("▁Hello", *SNAKE[:cut]), "n": 2, "echo": echo}
    whole = await server.post("/v1/completions", answer, **asked)
    chunks = await server.post("/v1/completions", answer, stream=True, **asked)
    for choice in whole["choices"]:
        pieces = [one["text"] for chunk in chunks for one in chunk["choices"] if one["index"] == choice["index"]]
        assert "".join(pieces) == choice["text"]
        assert choice["text"] == ("Hello" if echo else "") + (("\ufffd ab" if echo else " ab") if ending else "🐍b")


async def test_a_cut_character_alone_is_echoed_where_the_answer_completes_it(server: Server) -> None:
    assert (await server.complete(list(SNAKE[:3]), SNAKE[3], "!", echo=True))["text"] == "🐍!"
    assert (await server.complete(list(SNAKE[:3]), "!", echo=True))["text"] == "\ufffd!"
    scored = await server.complete(list(SNAKE[:3]), "!", echo=True, logprobs=0, max_tokens=0)
    assert (scored["text"], len(scored["logprobs"]["tokens"])) == ("", 3)
