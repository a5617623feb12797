"""A prompt of ids that ends within a character: its bytes are the prompt's, and are shown once or not at all."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kinds import KINDS

from specserve.text.byte_level import BYTE_OF
from specserve.text.detokenizer import IncrementalDetokenizer
from specserve.text.stop_strings import StopStringMatcher
from specserve.text.tokenizer import HfTokenizer

LETTER = {byte: letter for letter, byte in BYTE_OF.items()}
KINDS_WITH_BYTES = ["llama2", "gemma", "byte_level"]
SNAKE = "🐍".encode()


@cache
def made(kind: str) -> HfTokenizer:
    return HfTokenizer(KINDS[kind]())


def ids_of(kind: str, data: bytes) -> list[int]:
    """A token for each byte."""
    names = [LETTER[byte] if kind == "byte_level" else f"<0x{byte:02X}>" for byte in data]
    return [made(kind)._rust.token_to_id(name) for name in names]


def answer(kind: str, prompt: bytes, generated: bytes) -> str:
    stream = made(kind).stream(ids_of(kind, prompt))
    return "".join(map(stream.push, ids_of(kind, generated)))


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS_WITH_BYTES)
def test_a_character_of_the_prompt_that_the_answer_does_not_complete_is_not_shown(kind: str, cut: int) -> None:
    assert answer(kind, b"hi " + SNAKE[:cut], b"ab") == "ab"
    assert answer(kind, SNAKE[:cut], "漢".encode()) == "漢"


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS_WITH_BYTES)
def test_a_character_that_the_answer_completes_is_shown_whole(kind: str, cut: int) -> None:
    assert answer(kind, b"hi " + SNAKE[:cut], SNAKE[cut:] + b"!") == "🐍!"


@pytest.mark.parametrize("kind", KINDS_WITH_BYTES)
def test_what_the_answer_adds_to_a_character_that_stays_broken_is_not_shown(kind: str) -> None:
    assert answer(kind, SNAKE[:1], SNAKE[1:2] + b"a") == "a"


@pytest.mark.parametrize("kind", KINDS_WITH_BYTES)
def test_broken_bytes_of_the_answer_are_shown_behind_those_of_the_prompt(kind: str) -> None:
    assert answer(kind, SNAKE[:1], b"\xff\xffa") == "\ufffd\ufffda"
    assert answer(kind, b"\xff\xff", b"\xffa") == "\ufffda"  # the prompt's were broken before the answer began


@pytest.mark.parametrize("kind", KINDS_WITH_BYTES)
def test_a_replacement_character_that_the_answer_completes_is_shown(kind: str) -> None:
    mark = "\ufffd".encode()
    assert answer(kind, mark[:1], mark[1:] + b"a") == "\ufffda"
    assert answer(kind, mark[:1], b"a") == "a"


@pytest.mark.parametrize("kind", KINDS_WITH_BYTES)
def test_an_answer_that_ends_within_a_character_ends_before_it(kind: str) -> None:
    assert answer(kind, b"hi", b"ab" + SNAKE[:3]) == "ab"
    assert answer(kind, SNAKE[:1], SNAKE[1:3]) == ""


@pytest.mark.parametrize("kind", KINDS_WITH_BYTES)
def test_special_tokens_within_a_character_do_not_break_it(kind: str) -> None:
    tokenizer = made(kind)
    special = tokenizer._rust.token_to_id("<|end|>" if kind == "byte_level" else "</s>")
    stream = tokenizer.stream([*ids_of(kind, SNAKE[:2]), *[special] * 20])
    assert [stream.push(id) for id in (special, *ids_of(kind, SNAKE[2:]))] == ["", "", "🐍"]


@pytest.mark.parametrize("kind", KINDS_WITH_BYTES)
@given(data=st.binary(max_size=12) | st.text("a漢🐍\ufffd", max_size=5).map(str.encode), cut=st.integers(0, 12))
@settings(deadline=None, max_examples=80)
def test_a_prompt_and_its_answer_are_together_the_whole_text(kind: str, data: bytes, cut: int) -> None:
    prompt, generated = ids_of(kind, data[:cut]), ids_of(kind, data[cut:])
    tokenizer = made(kind)
    echoed, stream = tokenizer.echo_text(prompt), tokenizer.echo_stream(prompt)
    text = echoed + "".join(map(stream.push, generated))
    whole = b"".join([tokenizer.token_bytes(id, first=i == 0) for i, id in enumerate(prompt + generated)])
    assert whole.decode(errors="replace").rstrip("\ufffd") == text.rstrip("\ufffd")
    alone = answer(kind, data[:cut], data[cut:])
    assert text in (echoed + alone, echoed + "\ufffd" + alone)


@pytest.mark.parametrize("kind", KINDS_WITH_BYTES)
def test_a_stop_string_is_not_found_in_the_bytes_of_the_prompt(kind: str) -> None:
    tokenizer, prompt = made(kind), ids_of(kind, SNAKE[:2])
    for stop in ("\ufffd", "\ufffda"):
        matcher = StopStringMatcher((stop,), tokenizer.stream(prompt))
        assert [matcher.push(id) for id in ids_of(kind, b"ab")] == [None, None]
    matcher = StopStringMatcher(("\ufffda",), tokenizer.stream(prompt))
    assert [matcher.push(id) for id in ids_of(kind, b"b\xffa")] == [None, None, "\ufffda"]


@pytest.mark.parametrize("kind", KINDS_WITH_BYTES)
def test_a_stop_string_that_begins_with_the_completed_character_is_found(kind: str) -> None:
    tokenizer, prompt, generated = made(kind), ids_of(kind, SNAKE[:2]), ids_of(kind, SNAKE[2:] + b"a")
    matcher = StopStringMatcher(("🐍a",), tokenizer.stream(prompt))
    assert [matcher.push(id) for id in generated] == [None, None, "🐍a"]
    detokenizer = IncrementalDetokenizer(tokenizer.stream(prompt), ("🐍a",))
    assert detokenizer.push(generated, finish_reason="stop", stop_string="🐍a") == ("", [0, 0, 1])
