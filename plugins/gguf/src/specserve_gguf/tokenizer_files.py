"""tokenizer.json and tokenizer_config.json of a GGUF file: of its vocabulary, or as it carries them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from specserve.api import ModelError
from specserve_gguf.text_keys import ANOTHER_TOKENIZER, cut
from specserve_gguf.tokenizer_bytes import byte_level_json
from specserve_gguf.tokenizer_carried import read_by_library
from specserve_gguf.tokenizer_parts import adds_bos
from specserve_gguf.tokenizer_pieces import merged_json, scored_json, unigram_json
from specserve_gguf.tokenizer_vocabulary import NORMAL, PREFIX, SPECIAL_KEYS, special_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizers import Tokenizer

    from specserve_gguf.text_keys import TextKeys
    from specserve_gguf.tokenizer_vocabulary import Vocabulary

KINDS: dict[str, Callable[[TextKeys, Vocabulary], dict[str, object]]] = {
    "gpt2": byte_level_json,
    "llama": scored_json,
    "gemma4": merged_json,
    "t5": unigram_json,
}
"""By `tokenizer.ggml.model`."""
PIECES_BY_MERGES = ("gemma4", "sarvam-moe")
"""Values of `tokenizer.ggml.pre` with which a vocabulary of kind gpt2 is not byte-level."""
CARRIED = "tokenizer.huggingface.json"


def tokenizer_file(keys: TextKeys, vocabulary: Vocabulary) -> bytes:
    """The content of tokenizer.json, which the library was seen to read. Raises ModelError."""
    carried = keys.text(CARRIED)
    content = made(keys, vocabulary) if carried is None else carried
    rust = read_by_library(keys, content, "the vocabulary" if carried is None else CARRIED)
    check_ids(keys, vocabulary, rust, CARRIED if carried is not None else f"{PREFIX}tokens")
    return content.encode()


def made(keys: TextKeys, vocabulary: Vocabulary) -> str:
    kind = keys.text(f"{PREFIX}model")
    if kind == "gpt2" and keys.text(f"{PREFIX}pre") in PIECES_BY_MERGES:
        kind = "gemma4"
    make = KINDS.get(kind or "")
    if make is None:
        allowed = ", ".join(KINDS)
        raise ModelError(
            f"{keys.file}: {PREFIX}model is {cut(kind)}, a kind of tokenizer that is not known; known: {allowed}. "
            f"{ANOTHER_TOKENIZER}"
        )
    return json.dumps(make(keys, vocabulary), ensure_ascii=False)


def check_ids(keys: TextKeys, vocabulary: Vocabulary, rust: Tokenizer, what: str) -> None:
    """Each token of the vocabulary has its id: a tokenizer of another model would give nonsense, unnoticed."""
    for id, token in enumerate(vocabulary.tokens):
        found = rust.id_to_token(id)
        if found != token and vocabulary.types[id] == NORMAL and vocabulary.is_token(id):
            raise keys.broken(f"{what}: token {id} is {cut(found)}, and {PREFIX}tokens has {cut(token)} there")
    beyond = rust.id_to_token(len(vocabulary.tokens))
    if beyond is not None:
        raise keys.broken(f"{what} has token {len(vocabulary.tokens)}, {cut(beyond)}, which is beyond {PREFIX}tokens")


def tokenizer_settings(keys: TextKeys, vocabulary: Vocabulary) -> dict[str, object]:
    """What tokenizer_config.json says, without a chat template."""
    ids = {name: special_id(keys, vocabulary, key) for name, key in SPECIAL_KEYS.items()}
    named = {name: vocabulary.tokens[id] for name, id in ids.items() if id is not None}
    flags = {"add_bos_token": adds_bos(keys), "add_eos_token": keys.flag(f"{PREFIX}add_eos_token")}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **named,
        **{name: flag for name, flag in flags.items() if flag is not None},
    }
