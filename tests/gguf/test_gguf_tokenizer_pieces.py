"""Sentencepiece vocabularies of GGUF files, compared with the library sentencepiece and with a slow merger."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import sentencepiece
from gguf_vocabularies import ADDED, NASTY, pieces, sentencepiece_model, texts
from hypothesis import given
from tokenizers import Tokenizer

from specserve_gguf.describe import text_files

BLANK = "\u2581"
NO_ENDS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None}


@cache
def ours(kind: str = "bpe", *, prefix: bool = True) -> Tokenizer:
    return Tokenizer.from_str(text_files(pieces(kind, add_space_prefix=prefix))["tokenizer.json"].decode())


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    found: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return found


def slow_ids(text: str, metadata: dict[str, object]) -> list[int]:
    """The best pair of neighbours is merged until no two are a token: the rule of sentencepiece, without its speed."""
    tokens, scores, types = (metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "scores", "token_type"))
    assert isinstance(tokens, list)
    assert isinstance(scores, list)
    assert isinstance(types, list)
    made = {token: id for id, token in enumerate(tokens) if types[id] in (1, 4)}
    parts = list(text.replace(" ", BLANK))
    while True:
        pairs = [
            (-scores[made[left + right]], place)
            for place, (left, right) in enumerate(pairwise(parts))
            if left + right in made
        ]
        if not pairs:
            break
        _, place = min(pairs)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    found: list[int] = []
    for part in parts:
        found += [made[part]] if part in made else [tokens.index(f"<0x{byte:02X}>") for byte in part.encode()]
    return found


@given(text=texts())
def test_random_texts_have_the_tokens_of_the_slow_merger(text: str) -> None:
    metadata = pieces()
    if not any(token in text for token in (ADDED, "  ", "<s>", "</s>", "<unk>")):
        assert ids(ours(), text) == (slow_ids(f" {text}", metadata) if text else [])


def known_to_both(text: str) -> bool:
    """Sentencepiece matches no control tokens, takes U+2581 for a blank and ends at NUL."""
    return not any(token in text for token in ("<s>", "</s>", "<unk>", BLANK, "\x00", ADDED, "  "))


@given(text=texts().filter(known_to_both))
def test_random_texts_have_the_tokens_of_sentencepiece(text: str) -> None:
    reference = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model())
    assert ids(ours(), text) == reference.encode(text)


@given(text=texts().filter(known_to_both))
def test_random_texts_are_as_probable_as_those_of_sentencepiece(text: str) -> None:
    """Of cuts that are equally probable it may take another one; and the library tokenizers finds tokens of bytes in a
    text, in this kind alone."""
    if "<0x" in text:
        return
    reference = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model("unigram"))
    mine, theirs = ids(ours("unigram"), text), reference.encode(text)
    sums = [sum(map(reference.get_score, found)) for found in (mine, theirs)]
    assert sums[0] == pytest.approx(sums[1], abs=1e-3)
    assert reference.decode(mine) == reference.decode(theirs)
    assert ours("unigram").decode(mine) == reference.decode(theirs)


def test_blanks_too_many_go_where_the_file_says_so() -> None:
    types = pieces("unigram")["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    plain = [1 if kind == 4 else kind for kind in types]  # else blanks of the user's are found first
    content = text_files(pieces("unigram", token_type=plain, remove_extra_whitespaces=True))["tokenizer.json"].decode()
    tokenizer = Tokenizer.from_str(content)
    assert ids(tokenizer, "  a   b ") == ids(ours("unigram"), "a b")


@given(text=texts())
def test_random_texts_come_back(text: str) -> None:
    wanted = text.replace(BLANK, " ")
    assert ours(prefix=False).decode(ids(ours(prefix=False), text), skip_special_tokens=False) == wanted


def test_a_blank_stands_before_a_text_and_behind_each_special_token() -> None:
    tokens = [ours().id_to_token(id) for id in ids(ours(), "a</s>a")]
    assert tokens == ["▁a", "</s>", "▁a"]
    tokens = [ours(prefix=False).id_to_token(id) for id in ids(ours(prefix=False), "a</s>a")]
    assert tokens == ["a", "</s>", "a"]


def test_users_tokens_of_blanks_are_found_in_the_text_as_it_is() -> None:
    tokens = pieces()["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert ids(ours(prefix=False), "a   a") == [tokens.index(token) for token in ("a", "   ", "a")]


def test_text_that_looks_like_a_byte_token_stays_text() -> None:
    tokenizer = ours()
    for text in ("<0x41>", "<0x-1>", "<0xZZ>"):
        found = ids(tokenizer, text)
        assert len(found) > 1
        assert tokenizer.decode(found) == text


def merged(tokens: list[str], text: str) -> list[str | None]:
    """The tokens of a text, of a vocabulary with all bytes and these tokens, the first of which is merged first."""
    every = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *tokens]
    scores = [0.0] * 257 + [-float(place) for place in range(len(tokens))]
    types = [2, *[6] * 256, *[1] * len(tokens)]
    metadata = pieces(**NO_ENDS, tokens=every, scores=scores, token_type=types, add_space_prefix=False)
    tokenizer = Tokenizer.from_str(text_files(metadata)["tokenizer.json"].decode())
    return [tokenizer.id_to_token(id) for id in ids(tokenizer, text)]


def test_merging_makes_no_token_of_a_byte() -> None:
    tokens = ["<", "0", "x", "4", "1", ">", "<0", "<0x", "<0x4", "<0x41"]
    assert merged(tokens, "<0x41>") == ["<0x41", ">"]


def test_merging_makes_tokens_of_up_to_128_characters() -> None:
    tokens = ["a" * 2**power for power in range(9)]
    assert merged(tokens, "a" * 256) == ["a" * 128] * 2


def test_every_id_comes_back_and_bytes_are_bytes() -> None:
    tokens = pieces()["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert [ours().id_to_token(id) for id in range(len(tokens))] == tokens
    smile = [tokens.index(f"<0x{byte:02X}>") for byte in "🙂".encode()]
    assert ours(prefix=False).decode(smile) == "🙂"


def test_tokens_that_stand_around_a_text_have_their_places_in_files_that_do_not_say_them() -> None:
    stated = pieces(bos_token_id=None, eos_token_id=None, unknown_token_id=None)
    assert text_files(stated)["tokenizer.json"] == text_files(pieces())["tokenizer.json"]
    assert Tokenizer.from_str(text_files(stated)["tokenizer.json"].decode()).encode("").ids == [1]


def test_merges_of_the_file_are_used_where_it_has_them() -> None:
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "ab", "\n", "\n\n"]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gemma4",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, *[6] * 256, *[1] * 7],
        "tokenizer.ggml.merges": ["a b", "▁ a", "\n \n"],
        "tokenizer.ggml.unknown_token_id": 0,
    }
    tokenizer = Tokenizer.from_str(text_files(metadata)["tokenizer.json"].decode())
    assert [tokenizer.id_to_token(id) for id in ids(tokenizer, " ab a\n\n")] == ["▁", "ab", "▁a", "\n\n"]
    assert tokenizer.decode(ids(tokenizer, " ab a\n\n é")) == " ab a\n\n é"
    by_name = {**metadata, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gemma4"}
    assert json.loads(text_files(by_name)["tokenizer.json"]) == json.loads(text_files(metadata)["tokenizer.json"])


@pytest.mark.parametrize("stated", [None, False, True])
@pytest.mark.parametrize("eos", ["<eos>", "<turn|>"])
def test_texts_for_gemma_4_begin_with_bos_and_end_where_it_ends_them_whatever_files_say(
    stated: bool | None, eos: str
) -> None:
    """Public files have `<|tool_response>` as a token of the user, `<eos>` as an ordinary one, and no BOS."""
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "a", "b", "<turn|>", "<|tool_response>", "<|tool_call>", "<|im_end|>"]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gemma4",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 1, 3, 2, 1, 1, 3, 4, 4, 1],
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": tokens.index(eos),
        "tokenizer.ggml.unknown_token_id": 3,
        **({} if stated is None else {"tokenizer.ggml.add_bos_token": stated}),
    }
    files = text_files(metadata)
    ends = json.loads(files["generation_config.json"])["eos_token_id"]
    assert sorted(tokens[id] for id in ends) == ["<eos>", "<turn|>", "<|tool_response>"]
    tokenizer = Tokenizer.from_str(files["tokenizer.json"].decode())
    assert tokenizer.encode("ab").tokens == ["<bos>", "a", "b"]
    special = {each["content"] for each in json.loads(files["tokenizer.json"])["added_tokens"] if each["special"]}
    assert special >= {"<eos>", "<turn|>", "<|tool_response>"}
    assert not special & {"<|tool_call>", "<|im_end|>"}
    assert json.loads(files["tokenizer_config.json"])["add_bos_token"] is True


def test_blanks_behind_phi_3s_tokens_belong_to_them() -> None:
    def tokens(architecture: str) -> list[str | None]:
        metadata = {**pieces(), "general.architecture": architecture}
        tokenizer = Tokenizer.from_str(text_files(metadata)["tokenizer.json"].decode())
        return [tokenizer.id_to_token(id) for id in ids(tokenizer, "</s>\n a")]

    assert tokens("phi3") == ["</s>", "▁a"]
    assert tokens("llama") != tokens("phi3")


@pytest.mark.parametrize("text", NASTY)
def test_long_and_strange_texts_are_cut_as_by_the_slow_merger(text: str) -> None:
    if not any(token in text for token in (ADDED, "  ", "<s>", "</s>", "<unk>")):
        assert ids(ours(prefix=False), text) == slow_ids(text, pieces())
