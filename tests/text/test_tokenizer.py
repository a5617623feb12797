"""Ids to text and back, and a token at a time."""

from __future__ import annotations

import json
import shutil
import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specserve.errors import ModelError, RequestError
from specserve.text.tokenizer import LONG_TEXT, HfTokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def streamed(tokenizer: HfTokenizer, ids: Sequence[int], prompt: Sequence[int] = ()) -> list[str]:
    stream = tokenizer.stream(prompt)
    return [stream.push(token_id) for token_id in ids]


@given(text=st.text(st.characters(codec="utf-8")))
def test_a_stream_gives_the_whole_text(tokenizer: HfTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    # A text that ends in U+FFFD itself looks like a character that is not complete.
    assert "".join(streamed(tokenizer, ids)) == text.rstrip("\ufffd") or "\ufffd" in text


@given(text=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\ufffd")), cut=st.integers(0, 50))
def test_a_stream_continues_after_a_prompt_cut_anywhere(tokenizer: HfTokenizer, text: str, cut: int) -> None:
    ids = tokenizer.encode(text)
    texts = streamed(tokenizer, ids[cut:], ids[:cut])
    assert text.endswith("".join(texts))
    assert len("".join(texts)) >= len(tokenizer.decode(ids[cut:]).lstrip("\ufffd"))


def test_an_incomplete_character_waits_for_its_last_byte(tokenizer: HfTokenizer) -> None:
    texts = streamed(tokenizer, tokenizer.encode("\U0001f40d"))
    assert len(texts) > 1
    assert texts == [""] * (len(texts) - 1) + ["\U0001f40d"]


def test_bytes_that_are_no_character_are_shown_and_the_next_character_is_whole(tokenizer: HfTokenizer) -> None:
    ids = tokenizer.encode("\U0001f40d")
    text = "".join(streamed(tokenizer, [ids[-1]] * 48 + ids))
    assert text.startswith("\ufffd" * 48)
    assert text.endswith("\U0001f40d")


@pytest.mark.parametrize("text", ["", "def add(a, b):\n    return a", "naïve <|end|> 漢字"])
def test_encoding_in_the_background_gives_the_same_ids_without_special_ones(tokenizer: HfTokenizer, text: str) -> None:
    assert tokenizer.encode_in_background(text) == tokenizer.encode(text, add_special_tokens=False)
    with pytest.raises(RequestError, match="half of a surrogate pair"):
        tokenizer.encode_in_background("\ud800")


def test_half_a_surrogate_pair_is_a_request_error(tokenizer: HfTokenizer) -> None:
    with pytest.raises(RequestError, match="Unicode"):
        tokenizer.encode("\ud800")


def test_special_tokens_are_skipped_only_when_asked(tokenizer: HfTokenizer) -> None:
    ids = tokenizer.encode("a<|end|>b")
    assert "".join(streamed(tokenizer, ids)) == "ab"
    stream = tokenizer.stream((), skip_special_tokens=False)
    assert "".join(stream.push(i) for i in ids) == "a<|end|>b"


def test_a_part_of_a_character_is_named_by_its_bytes(tokenizer: HfTokenizer) -> None:
    ids = tokenizer.encode("\U0001f40d")
    assert b"".join(tokenizer.token_bytes(i) for i in ids) == "\U0001f40d".encode()
    assert tokenizer.token_text(ids[-1]) == "bytes:\\x8d"


def test_the_directory_gives_eos_ids_and_sampling_defaults(tokenizer: HfTokenizer) -> None:
    assert tokenizer.eos_token_ids == (7, 9)
    assert tokenizer.sampling_defaults == {"temperature": 0.5}


def test_eos_falls_back_to_config_and_then_to_the_tokenizer(model_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(model_dir, tmp_path, dirs_exist_ok=True)
    (tmp_path / "generation_config.json").unlink()
    assert HfTokenizer.from_dir(tmp_path).eos_token_ids == (7,)
    (tmp_path / "config.json").write_text(json.dumps({}))
    tokenizer = HfTokenizer.from_dir(tmp_path)
    assert tokenizer.decode(tokenizer.eos_token_ids, skip_special_tokens=False) == "<|end|>"


@pytest.mark.parametrize("content", [None, "", "{}", "not json"])
def test_a_missing_or_broken_tokenizer_is_a_model_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        HfTokenizer.from_dir(tmp_path)


@pytest.mark.parametrize("extra", [-1, 0, 1, 500])
@pytest.mark.parametrize("special", [True, False])
def test_a_long_text_has_the_tokens_of_its_pieces_whichever_way_it_is_encoded(
    tokenizer: HfTokenizer, extra: int, special: bool
) -> None:
    text = ("def wörld():\n    return '🙂'\n" * 400)[: LONG_TEXT + extra]
    expected = tokenizer._rust.encode(text, add_special_tokens=special).ids
    assert tokenizer.encode(text, add_special_tokens=special) == expected


def test_other_threads_run_while_a_long_text_is_encoded(tokenizer: HfTokenizer) -> None:
    ticks, encoding = 0, threading.Thread(target=tokenizer.encode, args=("a b " * 300_000,))
    encoding.start()
    while encoding.is_alive():
        time.sleep(0.001)
        ticks += 1
    assert ticks > 20  # the lock held to the end would leave one or two
