"""What a token adds to a text: names, bytes and streams add up to what the library decodes, whatever the decoder."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kinds import KINDS, STEADY_KINDS
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import models

from specserve.text.tokenizer import HfTokenizer


@cache
def made(kind: str) -> HfTokenizer:
    return HfTokenizer(KINDS[kind]())


def ids_of(kind: str, *names: str) -> list[int]:
    rust = made(kind)._rust
    ids = [rust.token_to_id(name) for name in names]
    assert None not in ids
    return ids


def is_whole(data: bytes) -> bool:
    """The library gives every byte of a run a mark of its own where we, as Python, mark each broken character once."""
    try:
        return bool(data.decode()) or not data
    except UnicodeDecodeError:
        return False


def joined_bytes(tokenizer: HfTokenizer, ids: list[int], skip: bool = True) -> bytes:
    first = next((i for i, id in enumerate(ids) if tokenizer.shows(id, skip_special_tokens=skip)), 0)
    pieces = (tokenizer.token_bytes(id, first=i <= first, skip_special_tokens=skip) for i, id in enumerate(ids))
    return b"".join(pieces)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("kind", STEADY_KINDS)
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_bytes_of_tokens_add_up_to_what_the_library_decodes(kind: str, skip: bool, data: st.DataObject) -> None:
    tokenizer = made(kind)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size), max_size=12))  # the last id is no token
    found = joined_bytes(tokenizer, ids, skip)
    if is_whole(found):
        assert found.decode() == tokenizer._rust.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_a_stream_of_any_tokens_gives_what_the_library_decodes(kind: str, data: st.DataObject) -> None:
    tokenizer = made(kind)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size), max_size=12))
    stream = tokenizer.stream(())
    text = "".join(map(stream.push, ids))
    whole = tokenizer._rust.decode(ids)
    if "\ufffd" not in whole:
        assert text == whole


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_a_stream_behind_any_prompt_gives_the_rest_of_the_whole_text(kind: str, data: st.DataObject) -> None:
    tokenizer = made(kind)
    tokens = st.lists(st.integers(0, tokenizer.vocab_size), max_size=12)
    prompt, answer = data.draw(tokens), data.draw(tokens)
    stream = tokenizer.echo_stream(prompt)
    text = tokenizer.echo_text(prompt) + "".join(map(stream.push, answer))
    assert text == tokenizer.echo_text(prompt + answer)


@pytest.mark.parametrize("kind", ["llama2", "gemma", "byte_level", "metaspace"])
@given(text=st.text(st.sampled_from("ab Hello漢é🙂\n")))
@settings(deadline=None, max_examples=60)
def test_bytes_of_an_encoded_text_are_the_text(kind: str, text: str) -> None:
    tokenizer = made(kind)
    ids = tokenizer.encode(text)
    assert joined_bytes(tokenizer, ids).decode() == tokenizer._rust.decode(ids)


@pytest.mark.parametrize("kind", ["llama2", "metaspace"])
def test_words_with_and_without_their_blank_have_different_names(kind: str) -> None:
    tokenizer = made(kind)
    with_blank, without = ids_of(kind, "▁world", "world")
    assert [tokenizer.token_text(id) for id in (with_blank, without)] == [" world", "world"]
    assert tokenizer.token_bytes(with_blank) == b" world"
    assert tokenizer.token_text(with_blank, first=True) == "world"  # as the text shows it


def test_a_byte_that_is_a_character_has_its_name_and_another_has_its_number() -> None:
    tokenizer = made("llama2")
    newline, letter, part = ids_of("llama2", "<0x0A>", "<0x41>", "<0xE6>")
    assert [tokenizer.token_text(id) for id in (newline, letter, part)] == ["\n", "A", "bytes:\\xe6"]
    assert tokenizer.token_bytes(part) == b"\xe6"


def test_a_token_of_a_blank_and_a_part_of_a_character_has_both_as_bytes() -> None:
    tokenizer = made("byte_level")
    (id,) = ids_of("byte_level", "Ġæ")
    assert tokenizer.token_bytes(id) == b" \xe6"
    assert tokenizer.token_text(id) == "bytes:\\x20\\xe6"


@pytest.mark.parametrize("kind", ["llama2", "gemma"])
def test_a_token_that_is_the_replacement_character_is_named_by_it(kind: str) -> None:
    (id,) = ids_of(kind, "\ufffd")
    assert made(kind).token_text(id) == "\ufffd"
    assert made(kind).token_bytes(id) == b"\xef\xbf\xbd"


def test_a_special_token_keeps_its_name_and_adds_no_bytes_unless_it_is_shown() -> None:
    tokenizer = made("llama2")
    (end,) = ids_of("llama2", "</s>")
    assert tokenizer.token_text(end) == "</s>"
    assert tokenizer.token_bytes(end) == b""
    assert tokenizer.token_bytes(end, skip_special_tokens=False) == b"</s>"


@pytest.mark.parametrize("token", ["<0x\ufffd\ufffd>", "<0x-\ufffd>", "\ufffd<0x-1>", "<0x\ufffd1>"])
def test_a_token_that_only_looks_like_a_byte_is_the_text_that_it_is(token: str) -> None:
    tokenizer = HfTokenizer(RustTokenizer(models.BPE(vocab={token: 0}, merges=[])))
    assert tokenizer.token_bytes(0) == token.encode()
