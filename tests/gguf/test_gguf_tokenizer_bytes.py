"""Byte-level vocabularies of GGUF files: the tokens are those of the model's own tokenizer."""

from __future__ import annotations

import json
import logging
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

import pytest
from gguf_vocabularies import ADDED, NASTY, SPECIAL, byte_level, texts, trained
from hypothesis import given
from tokenizers import AddedToken, Regex, Tokenizer, pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from transformers.models.cohere.tokenization_cohere import CohereTokenizer
from transformers.models.gpt2.tokenization_gpt2 import GPT2Tokenizer
from transformers.models.gpt_neox.tokenization_gpt_neox import GPTNeoXTokenizer
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer
from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer

from specserve.errors import RequestError
from specserve.text.tokenizer import HfTokenizer
from specserve_gguf.describe import text_files
from specserve_gguf.tokenizer_splits import PRE_TOKENIZERS

if TYPE_CHECKING:
    from pathlib import Path

CLASSES = {
    "gpt-2": GPT2Tokenizer,
    "qwen2": Qwen2Tokenizer,
    "qwen35": Qwen3_5Tokenizer,
    "command-r": CohereTokenizer,
    "olmo": GPTNeoXTokenizer,
}
"""transformers' own definitions of these models' tokenizers."""
SPLITS = {pre: GGUF_PRE_TOKENIZER_SPLITS[pre] for pre in ("llama-bpe", "tekken", "gpt-4o", "dbrx", "minimax-m2")}


@cache
def ours(pre: str) -> Tokenizer:
    return Tokenizer.from_str(text_files(byte_level(pre))["tokenizer.json"].decode())


@cache
def reference(pre: str) -> Tokenizer:
    """The same vocabulary in transformers' tokenizer of that name."""
    tokens, merges = trained()
    vocab = {token: id for id, token in enumerate([*tokens, SPECIAL, ADDED])}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    made: Tokenizer = CLASSES.get(pre, GPT2Tokenizer)(vocab=vocab, merges=pairs, unk_token=SPECIAL)._tokenizer
    if pre in SPLITS:
        steps = [pre_tokenizers.Split(Regex(SPLITS[pre]), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
        made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    made.add_special_tokens([AddedToken(SPECIAL, normalized=False, special=True)])
    made.add_tokens([AddedToken(ADDED, normalized=False)])
    return made


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    found: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return found


@pytest.mark.parametrize("pre", [*CLASSES, *SPLITS])
def test_random_texts_have_the_tokens_of_transformers_tokenizer(pre: str) -> None:
    mine, theirs = ours(pre), reference(pre)
    merges_any = json.loads(mine.to_str())["model"]["ignore_merges"]
    assert merges_any == (pre in ("llama-bpe", "tekken"))

    @given(text=texts())
    def check(text: str) -> None:
        # A whole piece that is a token is rare in texts; those tokenizers are compared below.
        assert ids(mine, text) == ids(theirs, text) or merges_any

    for text in NASTY:
        assert ids(mine, text) == ids(theirs, text) or merges_any, text
    check()


@pytest.mark.parametrize("pre", ["llama-bpe", "tekken"])
@given(text=texts())
def test_a_piece_that_is_a_token_needs_no_merges_in_llama_3(pre: str, text: str) -> None:
    theirs = json.loads(reference(pre).to_str())
    theirs["model"]["ignore_merges"] = True
    assert ids(ours(pre), text) == ids(Tokenizer.from_str(json.dumps(theirs)), text)


def test_a_token_that_no_merge_makes_is_found_where_merges_are_ignored() -> None:
    tokens, types = [byte_level()[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type")]
    assert isinstance(tokens, list)
    assert isinstance(types, list)
    tokens, types = [*tokens[:-1], "qzj"], [*types[:-1], 1]
    for pre, found in (("llama-bpe", 1), ("qwen2", 3)):
        content = text_files(byte_level(pre, tokens=tokens, token_type=types))["tokenizer.json"]
        assert len(ids(Tokenizer.from_str(content.decode()), "qzj")) == found


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("smollm", "ab  12 c", "ab|ĠĠ|1|2|Ġc"),
        ("smollm", "x½Ⅻ", "x|Â½|âħ«"),
        ("llama-bpe", "I'LL 12345", "I|'LL|Ġ|123|45"),
        ("deepseek-llm", "hi 你好!\n12", "hi|Ġ|ä½łå¥½|!|Ċ|1|2"),
        ("deepseek-coder", "a  b=1\n", "a|Ġ|Ġb|=|1|Ċ"),
        ("deepseek-v3", "1234漢字ab !x\n\n", "123|4|æ¼¢åŃĹ|ab|Ġ!|x|ĊĊ"),
        ("falcon", "a$12345 b`", "a|$|123|45|Ġb|`"),
        ("gpt-4o", "HTTPServer's a/\n", "HTTPServer's|Ġa|/Ċ"),
        ("gpt-4o", "x;\n/y", "x|;Ċ/|y"),
        ("tekken", "fooBar12", "foo|Bar|1|2"),
        ("seed-coder", "x;\n\ny", "x|;|ĊĊ|y"),
        ("bailingmoe", "x\n\ny'S", "x|ĊĊ|y|'S"),
        ("minicpm5", "12345 x", "123|45|Ġx"),
        ("tiny_aya", "x1234567", "x|1|234|567"),
        ("bloom", "a.b c", "a|.|b|Ġc"),
        ("viking", "a12 b", "a|1|2|Ġb"),
        ("jais-2", "a     b", "a|ĠĠĠĠ|Ġb"),
        ("exaone-moe", "ab cd\n\ne", "abĠcd|ĊĊ|e"),
        ("default", "a+12345", "a|+|123|45"),
    ],
)
def test_a_text_is_cut_as_the_file_names_it(pre: str, text: str, pieces: str) -> None:
    cut = ours(pre).pre_tokenizer.pre_tokenize_str(text)
    assert "|".join(piece for piece, _ in cut) == pieces


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_text_comes_back_through_every_pre_tokenizer(pre: str) -> None:
    for text in NASTY:
        wanted = unicodedata.normalize("NFC", text) if PRE_TOKENIZERS[pre].nfc else text
        assert ours(pre).decode(ids(ours(pre), text), skip_special_tokens=False) == wanted


def test_each_token_has_its_own_id_and_rows_without_a_token_have_none() -> None:
    tokens, _ = trained()
    tokenizer = ours("qwen2")
    whole = [*tokens, SPECIAL, ADDED]
    assert [tokenizer.id_to_token(id) for id in range(len(whole))] == whole
    assert [tokenizer.token_to_id(token) for token in whole] == list(range(len(whole)))
    assert tokenizer.id_to_token(len(whole)) is None
    assert len(ids(tokenizer, f"[PAD{len(whole)}]")) > 1
    assert {id: token.special for id, token in tokenizer.get_added_tokens_decoder().items()} == {
        len(tokens): True,
        len(tokens) + 1: False,
    }


def test_the_directory_is_read_as_any_other(tmp_path: Path) -> None:
    for name, content in text_files(byte_level("qwen2", add_bos_token=True, bos_token_id=5)).items():
        (tmp_path / name).write_bytes(content)
    tokenizer = HfTokenizer.from_dir(tmp_path)
    assert tokenizer.encode("a")[0] == 5
    assert tokenizer.encode("a", add_special_tokens=False)[0] != 5
    assert tokenizer.decode(tokenizer.encode(f"naïve 🙂{SPECIAL}{ADDED}")[1:]) == f"naïve 🙂{ADDED}"
    assert tokenizer.eos_token_ids == (len(trained()[0]),)
    with pytest.raises(RequestError, match="surrogate"):
        tokenizer.encode("\ud800")


@pytest.mark.parametrize("key", ["eos_token_id", "eot_token_id", "eom_token_id"])
@pytest.mark.parametrize("kind", [1, 4])
def test_what_ends_a_text_is_special_whatever_its_type(key: str, kind: int) -> None:
    end = len(trained()[0])
    types = [*[1] * end, kind, 4, 5]
    changes = {"eos_token_id": end + 1, "token_type": types, key: end}
    tokenizer = Tokenizer.from_str(text_files(byte_level(**changes))["tokenizer.json"].decode())  # type: ignore[arg-type]
    assert ids(tokenizer, f"a{SPECIAL}")[-1] == end
    assert tokenizer.get_added_tokens_decoder()[end].special


def test_what_stands_around_a_text_is_what_the_file_says() -> None:
    def whole(pre: str, **changes: object) -> list[int]:
        content = text_files(byte_level(pre, **changes))["tokenizer.json"]
        found: list[int] = Tokenizer.from_str(content.decode()).encode("").ids
        return found

    eos = len(trained()[0])
    assert whole("qwen2", bos_token_id=5) == []
    assert whole("llama-bpe", bos_token_id=5) == [5]
    assert whole("llama-bpe", bos_token_id=5, add_bos_token=False) == []
    assert whole("qwen2", bos_token_id=5, add_bos_token=True, add_eos_token=True) == [5, eos]


def test_bytes_without_a_token_are_left_out_and_never_the_unknown_token() -> None:
    tokens, merges = trained()
    kept = [token for token in tokens if "ð" not in token]
    fewer = [merge for merge in merges if "ð" not in merge]
    changes = {"tokens": kept, "token_type": None, "merges": fewer, "eos_token_id": 0, "unknown_token_id": 0}
    content = text_files(byte_level("gpt-2", **changes))["tokenizer.json"].decode()
    assert 0 not in ids(Tokenizer.from_str(content), "🙂")


def test_a_file_that_names_no_pre_tokenizer_is_read_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        content = text_files(byte_level(None), "old.gguf")["tokenizer.json"]
    assert "old.gguf does not say how text is cut" in caplog.text
    assert content == text_files(byte_level("default"))["tokenizer.json"]
    assert json.loads(content)["pre_tokenizer"] != json.loads(ours("gpt-2").to_str())["pre_tokenizer"]
