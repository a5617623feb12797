"""Tokenizers of the kinds that models have, made in memory: by the name of the kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = ("Hello", "hello", "world", "a", "b", "ab", "!", "naïve", "漢", "\ufffd")
BLANK = "▁"


def byte_fallback(decoder: decoders.Decoder) -> Tokenizer:
    """Words with and without a blank before them, every letter of them, and a token for every byte."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), BLANK, BLANK * 2]
    names += [blank + word for word in WORDS for blank in ("", BLANK)] + sorted(set("".join(WORDS)))
    vocab = {name: i for i, name in enumerate(dict.fromkeys(names))}
    merges = [(BLANK, BLANK), (BLANK, "a"), ("a", "b")]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)])
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def llama2() -> Tokenizer:
    """Mistral 7B's, Phi-3's, ...: the text loses the blank that it begins with."""
    blanks, strip = decoders.Replace(BLANK, " "), decoders.Strip(" ", 1, 0)
    return byte_fallback(decoders.Sequence([blanks, decoders.ByteFallback(), decoders.Fuse(), strip]))


def gemma() -> Tokenizer:
    return byte_fallback(decoders.Sequence([decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]))


def metaspace() -> Tokenizer:
    names = ["<unk>", *(blank + word for word in WORDS for blank in ("", BLANK)), BLANK]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(
        [" 漢 水 江 海 湖 沙 法 油 é é" + " ".join(WORDS)], trainer
    )  # all begin with one byte
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    return tokenizer


def word_piece() -> Tokenizer:
    names = ["[PAD]", "[UNK]", *(mark + word for word in WORDS for mark in ("", "##")), ".", "'", "do not"]
    tokenizer = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]"])
    return tokenizer


def word_ends() -> Tokenizer:
    """GPT's first: a word's last token has a mark, of which the last one of a text gives no blank."""
    names = [word + mark for word in WORDS for mark in ("", "</w>")]
    tokenizer = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    tokenizer.decoder = decoders.BPEDecoder()
    return tokenizer


def no_decoder() -> Tokenizer:
    return Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "a"))


KINDS: dict[str, Callable[[], Tokenizer]] = {
    make.__name__: make for make in (llama2, gemma, metaspace, byte_level, word_piece, word_ends, no_decoder)
}
STEADY_KINDS = [name for name in KINDS if name != "word_ends"]
"""In which a token adds the same to every text that does not begin with it."""
