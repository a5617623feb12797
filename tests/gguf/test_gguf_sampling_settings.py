"""What ends a text, and defaults of sampling, by the metadata of a GGUF file."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from gguf_vocabularies import byte_level, trained

from specserve.errors import ModelError
from specserve.text.sampling_defaults import sampling_defaults
from specserve_gguf.describe import text_files

TOKENS, _ = trained()


def generation(metadata: dict[str, object]) -> dict[str, object]:
    found: dict[str, object] = json.loads(text_files(metadata)["generation_config.json"])
    return found


def ends(names: list[str], *, kind: int = 3, **ids: int) -> list[str]:
    """The ends of a vocabulary with these tokens behind the others; `ids`: keys, by the place in `names`."""
    tokens = [*TOKENS, *names]
    stated: dict[str, object] = {name: len(TOKENS) + place for name, place in ids.items()}
    changes = {"tokens": tokens, "token_type": [*[1] * len(TOKENS), *[kind] * len(names)], "eos_token_id": None}
    found = generation(byte_level(**{**changes, **stated})).get("eos_token_id", [])  # type: ignore[arg-type]
    assert isinstance(found, list)
    return [tokens[id] for id in found]


@pytest.mark.parametrize(
    ("names", "ids", "expected"),
    [
        (["<eos>", "<eot>", "<eom>"], {"eos_token_id": 0, "eot_token_id": 1, "eom_token_id": 2}, "<eos> <eot> <eom>"),
        (["<a>", "<b>"], {"eos_token_id": 0}, "<a>"),
        (["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"], {"eos_token_id": 0}, "<|end_of_text|> <|eot_id|> <|eom_id|>"),
        (["<|endoftext|>", "<|im_start|>", "<|im_end|>"], {"eos_token_id": 2}, "<|im_end|> <|endoftext|>"),
        (["<|im_end|>", "<end>"], {"eos_token_id": 1, "eot_token_id": 1}, "<end>"),
        (["<|end|>", "<|return|>", "<|call|>"], {"eos_token_id": 1}, "<|return|> <|call|>"),
        (["<|endoftext|>", "<|end|>"], {"eos_token_id": 0}, "<|endoftext|> <|end|>"),
        (["<eos>", "<end_of_turn>"], {"eos_token_id": 0}, "<eos> <end_of_turn>"),
        (["<|eot_id|>"], {}, "<|eot_id|>"),
        (["<x>"], {}, ""),
    ],
)
def test_a_text_ends_with_what_the_file_names_or_with_the_end_of_a_turn(
    names: list[str], ids: dict[str, int], expected: str
) -> None:
    assert ends(names, **ids) == expected.split()


def test_only_control_tokens_are_ends_by_their_names() -> None:
    assert ends(["<|im_end|>"], kind=4) == []
    assert ends(["<|im_end|>"], kind=1) == []


def test_sampling_defaults_have_the_names_of_generation_config() -> None:
    stated = {
        "temp": float(np.float32(0.7)),
        "top_k": 20,
        "top_p": np.float32(0.5),
        "min_p": 0.0,
        "penalty_repeat": 1.25,
    }
    metadata = {**byte_level(), **{f"general.sampling.{name}": value for name, value in stated.items()}}
    expected = {"temperature": 0.7, "top_k": 20, "top_p": 0.5, "min_p": 0.0, "repetition_penalty": 1.25}
    assert sampling_defaults("auto", generation(metadata)) == expected
    assert sampling_defaults("auto", generation(byte_level())) == {}
    assert sampling_defaults("auto", generation({**byte_level(), "general.sampling.top_k": -5})) == {"top_k": 0}


def test_defaults_that_are_not_followed_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        text_files({**byte_level(), "general.sampling.mirostat": 2, "general.sampling.sequence": "kp"}, "a.gguf")
    assert "a.gguf: general.sampling.sequence, general.sampling.mirostat: not followed" in caplog.text


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("temp", -0.1, "be a number, 0 to 100; got -0.1"),
        ("temp", float("nan"), "be a finite number"),
        ("temp", "hot", "be a finite number"),
        ("top_p", 1.5, "be a number, 0 to 1"),
        ("min_p", -1, "be a number, 0 to 1"),
        ("top_k", 1.5, "be an integer"),
        ("penalty_repeat", float("inf"), "be a finite number"),
    ],
)
def test_a_default_that_is_none_is_an_error(name: str, value: object, said: str) -> None:
    with pytest.raises(ModelError, match=rf"^bad.gguf: general\.sampling\.{name} must {said}"):
        text_files({**byte_level(), f"general.sampling.{name}": value}, "bad.gguf")
