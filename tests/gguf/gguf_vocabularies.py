"""Small vocabularies as GGUF files have them: metadata in a mapping, and a text that has something of everything."""

from __future__ import annotations

import io
import json
from functools import cache
from typing import TYPE_CHECKING

import sentencepiece
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

TEXT = (
    "def add(a, b):\n    return a + b\n\n\nclass Point:\n\tx = 0\r\n\r\n"
    "# naïve café 漢字かな 한국어 Привет שלום مرحبا 🙂🚀\n"
    "It's 12345 and 3.14; they'RE 1 22 333. I'll CAN'T HTTPServer iPhone   spaces     here!!! ??? ... --- === $x <tag>"
)
NASTY = (
    *("", " ", "   x", "\n\n\n x\r\n", "\t\tx\t", " \n \n", "12 345  6", "３½Ⅻ²٣", "ſ 'ſ I'LL 'D", "foo's Foo's FOO'S"),
    *("e\u0301 é A\u030a \u212a", "👩\u200d👩\u200d👧\u200d👦 😶\u200d🌫\ufe0f 👍🏽", "ǅǈʰª", "नमस्ते สวัสดี"),
    *("\x00\x01\x7f\x80\x85\u2028", "\u00a0x\u2003y\u3000z\u200b\ufeff", "\U0010ffff\ue000", "▁ ▁▁ x▁y Ġ Ċ"),
    *("<0x41><0x-1>", "a/b\\c//d;\n/e", "=" * 70, " " * 33 + "x", "ab " * 40, "<s>[INST] hi</s>"),
    "x<|end|>y<|tool|> z <unk>",
)
SPECIAL, ADDED = "<|end|>", "<|tool|>"


def texts() -> SearchStrategy[str]:
    """Random Unicode, and pieces of the text that the vocabularies know."""
    pieces = st.sampled_from([*TEXT.split(" "), *NASTY, " ", "\n", SPECIAL, ADDED, "1", "'s", "e\u0301"])
    return st.one_of(st.text(st.characters(codec="utf-8"), max_size=40), st.lists(pieces, max_size=12).map("".join))


@cache
def trained() -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level vocabulary. No text was cut for it, so merges go across every place where a
    pre-tokenizer may cut."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False, min_frequency=1)
    tokenizer.train_from_iterator([TEXT, *(line for line in TEXT.split("\n")), *NASTY, *TEXT.split(" ")], trainer)
    vocab = tokenizer.get_vocab()
    tokens = sorted(vocab, key=vocab.__getitem__)
    return tokens, [f"{left} {right}" for left, right in merges_of(tokenizer)]


def merges_of(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    merges: list[tuple[str, str]] = json.loads(tokenizer.to_str())["model"]["merges"]
    return merges


def byte_level(pre: str | None = "gpt-2", **changes: object) -> dict[str, object]:
    """Metadata of a byte-level vocabulary: a control token, one of the user, and a row without a token behind them."""
    tokens, merges = trained()
    extra = [SPECIAL, ADDED, f"[PAD{len(tokens) + 2}]"]
    found: dict[str, object] = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [*tokens, *extra],
        "tokenizer.ggml.token_type": [*[1] * len(tokens), 3, 4, 5],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": len(tokens),
    }
    if pre is not None:
        found["tokenizer.ggml.pre"] = pre
    return with_changes(found, changes)


def with_changes(metadata: dict[str, object], changes: dict[str, object]) -> dict[str, object]:
    """`changes`: by names without `tokenizer.ggml.`; None takes the key away."""
    whole = {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    return {key: value for key, value in {**metadata, **whole}.items() if value is not None}


@cache
def sentencepiece_model(kind: str = "bpe") -> bytes:
    """Of the library sentencepiece, with bytes for characters that it does not know, and no normalization."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.split("\n") * 3),
        model_writer=written,
        model_type=kind,
        vocab_size=420,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=[ADDED, "  ", "   "],
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    return written.getvalue()


def pieces(kind: str = "bpe", **changes: object) -> dict[str, object]:
    """Metadata as converters write it from a sentencepiece model."""
    model = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(kind))
    ids = range(model.get_piece_size())
    tokens = [model.id_to_piece(id) for id in ids]
    types = [type_of(model, id, tokens[id]) for id in ids]
    found: dict[str, object] = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama" if kind == "bpe" else "t5",
        "tokenizer.ggml.tokens": [
            token.replace("▁", " ") if kind == 4 else token for token, kind in zip(tokens, types, strict=True)
        ],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": [model.get_score(id) for id in ids],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return with_changes(found, changes)


def type_of(model: sentencepiece.SentencePieceProcessor, id: int, token: str) -> int:
    if model.is_unknown(id):
        return 2
    if model.is_control(id):
        return 3
    if model.is_byte(id):
        return 6
    return 4 if token == ADDED or (not token.strip("▁ ") and len(token) > 1 and model.get_score(id) == 0) else 1
