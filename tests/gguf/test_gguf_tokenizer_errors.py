"""Metadata of GGUF files that makes no tokenizer: an error that names the file and the key."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from gguf_vocabularies import byte_level, pieces, trained
from tokenizers import Tokenizer

from specserve.errors import ModelError
from specserve_gguf.describe import text_files

TOKENS, MERGES = trained()
COUNT = len(TOKENS) + 3
NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"model": None}, "tokenizer.ggml.model is None"),
        ({"model": "bert"}, "known: gpt2, llama, gemma4, t5"),
        ({"model": 3}, "tokenizer.ggml.model must be a string; got 3"),
        ({"pre": "gpt-9"}, "tokenizer.ggml.pre is 'gpt-9'.*known: a.x-4.0, bailingmoe.*--tokenizer"),
        ({"pre": ["gpt-2"]}, "tokenizer.ggml.pre must be a string"),
        ({"tokens": None}, "tokenizer.ggml.tokens is missing or empty"),
        ({"tokens": []}, "tokenizer.ggml.tokens is missing or empty"),
        ({"tokens": "abc"}, "tokenizer.ggml.tokens must be a list of strings; got 'abc'"),
        ({"tokens": [1, 2]}, "tokens must be a list of strings; got a list of 2, which begins with 1"),
        ({"tokens": ["a"] * COUNT}, "'a' is token 0 and 1; allowed: once"),
        ({"tokens": ["x" * 1025, *TOKENS[1:], "b", "c", "d"]}, "token 0 has 1025 characters; allowed: at most 1024"),
        ({"tokens": ["a"] * (1 << 20) + ["b"]}, "has 1048577 entries; at most 1048576 are read"),
        ({"token_type": [1]}, f"token_type has 1 entries and tokenizer.ggml.tokens {COUNT}"),
        ({"token_type": [1] * (COUNT + 1)}, f"token_type has {COUNT + 1} entries"),
        ({"token_type": [0] * COUNT}, "token_type of token 0 is 0; allowed: 1 to 6"),
        ({"token_type": [7] * COUNT}, "token_type of token 0 is 7"),
        ({"token_type": [1.0] * COUNT}, "token_type must be a list of integers"),
        ({"token_type": [True] * COUNT}, "token_type must be a list of integers"),
        ({"token_type": [6] * COUNT}, "token 0 stands for a byte and is '!'; allowed: <0x00> to <0xFF>"),
        ({"scores": [0.0]}, "scores has 1 entries"),
        ({"scores": [NAN] * COUNT}, "scores must be a list of finite numbers"),
        ({"scores": [INFINITE] * COUNT}, "scores must be a list of finite numbers"),
        ({"merges": None}, "tokenizer.ggml.merges is missing"),
        ({"merges": ["ab"]}, "merges: entry 0, 'ab', must be two tokens"),
        ({"merges": ["a b c"]}, "merges: entry 0"),
        ({"merges": ["! qq"]}, "merges: entry 0"),
        ({"merges": [""]}, "merges: entry 0"),
        ({"merges": ["q Q"]}, "merges: entry 0, 'q Q'.*joined there"),
        ({"merges": [*MERGES, "x"]}, f"merges: entry {len(MERGES)}"),
        ({"eos_token_id": COUNT}, f"eos_token_id must be the id of a token, 0 to {COUNT - 1}; got {COUNT}"),
        ({"eos_token_id": -1}, "eos_token_id must be the id"),
        ({"eos_token_id": 1 << 63}, "eos_token_id must be the id"),
        ({"eos_token_id": "2"}, "eos_token_id must be an integer"),
        ({"eos_token_id": True}, "eos_token_id must be an integer"),
        ({"bos_token_id": 1.5}, "bos_token_id must be an integer"),
        ({"eot_token_id": COUNT}, "eot_token_id must be the id"),
        ({"padding_token_id": COUNT}, "padding_token_id must be the id"),
        ({"unknown_token_id": COUNT}, "unknown_token_id must be the id"),
        ({"add_bos_token": 1}, "add_bos_token must be true or false; got 1"),
        ({"add_bos_token": True}, "add_bos_token is true, and tokenizer.ggml.bos_token_id names no token"),
        ({"add_eos_token": True, "eos_token_id": None}, "add_eos_token is true, and tokenizer.ggml.eos_token_id"),
        ({"add_bos_token": True, "bos_token_id": COUNT - 1}, "bos_token_id names no token"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_file_and_the_key(changes: dict[str, object], key: str) -> None:
    with pytest.raises(ModelError, match=f"^bad.gguf: .*{key}") as caught:
        text_files(byte_level(**{"pre": "gpt-2", **changes}), "bad.gguf")  # type: ignore[arg-type]
    assert len(str(caught.value)) < 1400


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"scores": None}, "tokenizer.ggml.scores is missing"),
        ({"add_space_prefix": "no"}, "add_space_prefix must be true or false"),
        ({"model": "gemma4"}, "tokenizer.ggml.merges is missing"),
        ({"model": "t5", "unknown_token_id": None}, "unknown_token_id is missing"),
        ({"model": "t5", "precompiled_charsmap": np.ones(8, np.uint8)}, "precompiled_charsmap changes the text"),
        ({"model": "t5", "scores": None}, "tokenizer.ggml.scores is missing"),
    ],
)
def test_a_wrong_value_of_a_sentencepiece_vocabulary_is_an_error(changes: dict[str, object], key: str) -> None:
    with pytest.raises(ModelError, match=f"^bad.gguf: .*{key}"):
        text_files(pieces(**changes), "bad.gguf")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "token", ["<0x-1>", "<0x+1>", "<0x 1>", "<0x1_>", "<0xGG>", "<0x1>", "<0x041>", "0x41", "<0x٣٤>", "<0x41>\n"]
)
def test_a_token_of_a_byte_has_two_hexadecimal_digits_and_nothing_else(token: str) -> None:
    tokens, types = (pieces()[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type"))
    assert isinstance(tokens, list)
    assert isinstance(types, list)
    at = types.index(6)
    tokens = [*tokens[:at], token, *tokens[at + 1 :]]
    with pytest.raises(ModelError, match=f"token {at} stands for a byte"):
        text_files(pieces(tokens=tokens))


def test_arrays_of_numpy_are_as_good_as_lists() -> None:
    types = byte_level()["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    given = byte_level(token_type=np.array(types, np.int32), eos_token_id=np.uint32(3))
    assert text_files(given) == text_files(byte_level(eos_token_id=3))


def test_a_tokenizer_that_the_file_carries_is_used_as_it_is() -> None:
    content = text_files(byte_level("qwen2"))["tokenizer.json"].decode()
    carried = {**byte_level(None, model=None, merges=None), "tokenizer.huggingface.json": content}
    assert text_files(carried)["tokenizer.json"] == content.encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "makes no valid tokenizer"),
        ("[]", "makes no valid tokenizer"),
        ('{"model": 1}', "makes no valid tokenizer"),
        (3, "must be a string"),
        ("[" * 100_000, "makes no valid tokenizer"),
        (Tokenizer.from_str(text_files(pieces())["tokenizer.json"].decode()).to_str(), "token 0 is '<unk>', and"),
    ],
)
def test_a_carried_tokenizer_of_another_model_is_refused(content: object, said: str) -> None:
    with pytest.raises(ModelError, match=rf"tokenizer\.huggingface\.json.* {said}"):
        text_files({**byte_level(), "tokenizer.huggingface.json": content})


@pytest.mark.parametrize(
    ("part", "content", "said"),
    [
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "CAAAAP//////////YWJj"}, "of type Precompiled"),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": ""}, "of type Precompiled"),
        ("pre_tokenizer", {"type": "FixedLength", "length": 0}, "of type FixedLength"),
        (
            "post_processor",
            {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "X", "type_id": 0}}],
                "pair": [],
                "special_tokens": {},
            },
            "makes no valid tokenizer",
        ),
    ],
)
def test_a_carried_tokenizer_that_would_end_the_process_is_refused(part: str, content: object, said: str) -> None:
    carried = json.loads(text_files(byte_level())["tokenizer.json"])
    text = json.dumps({**carried, part: content}).replace("Pre", "\\u0050re")  # the same to who reads JSON
    metadata = {**byte_level(), "tokenizer.huggingface.json": text}
    with pytest.raises(ModelError, match=rf"tokenizer\.huggingface\.json.* {said}"):
        text_files(metadata)


def test_a_carried_tokenizer_with_more_tokens_than_the_file_is_refused() -> None:
    content = text_files(byte_level())["tokenizer.json"].decode()
    fewer = byte_level(tokens=TOKENS, token_type=[1] * len(TOKENS), eos_token_id=0)
    with pytest.raises(ModelError, match=rf"has token {len(TOKENS)}, '<|end|>', which is beyond"):
        text_files({**fewer, "tokenizer.huggingface.json": content})


def test_long_tokens_take_no_time_of_their_square() -> None:
    tokens = ["<unk>", *(chr(0x4E00 + id) * 1024 for id in range(2000))]
    changes = {"tokens": tokens, "token_type": [2, *[1] * 2000], "scores": [0.0] * 2001}
    ids = dict.fromkeys(("bos_token_id", "eos_token_id"), None)
    began = time.process_time()
    text_files(pieces(**changes, **ids))  # type: ignore[arg-type]
    assert time.process_time() - began < 5
