"""Parts of tokenizer.json that all kinds have in common: added tokens, and what is put around a text.

Source: the JSON of the library tokenizers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_gguf.text_ends import end_ids, is_gemma4
from specserve_gguf.tokenizer_vocabulary import CONTROL, PREFIX, UNKNOWN, USER_DEFINED, special_id

if TYPE_CHECKING:
    from collections.abc import Collection

    from specserve_gguf.text_keys import TextKeys
    from specserve_gguf.tokenizer_vocabulary import Vocabulary

SEQUENCE = {"Sequence": {"id": "A", "type_id": 0}}
PHI3_KEEPS_BLANKS = ("<unk>", "<s>", "<|endoftext|>")


def tokenizer_json(
    model: dict[str, object],
    steps: dict[str, object],
    added: list[dict[str, object]],
) -> dict[str, object]:
    """`steps`: normalizer, pre_tokenizer, post_processor and decoder."""
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **steps, "model": model}


def added_tokens(keys: TextKeys, vocabulary: Vocabulary) -> list[dict[str, object]]:
    """Tokens that are found in a text before it is cut: control tokens, which are special, and those of the user. What
    ends a text is special whatever its type: some files have it as an ordinary token."""
    strips = blanks_belong_to(keys, vocabulary)
    ends = {*end_ids(keys, vocabulary)}
    special = {id for id, kind in enumerate(vocabulary.types) if id in ends or kind in (UNKNOWN, CONTROL)}
    return [
        {
            "id": id,
            "content": vocabulary.tokens[id],
            "single_word": False,
            "lstrip": False,
            "rstrip": id in strips,
            "normalized": False,
            "special": id in special,
        }
        for id in range(len(vocabulary.tokens))
        if (id in special or vocabulary.types[id] == USER_DEFINED) and vocabulary.is_token(id)
    ]


def blanks_belong_to(keys: TextKeys, vocabulary: Vocabulary) -> Collection[int]:
    """Ids of tokens that take the blanks behind them. No GGUF file says it; llama.cpp knows it of Phi-3, as we do."""
    if (keys.text("general.architecture"), keys.text(f"{PREFIX}model")) != ("phi3", "llama"):
        return ()
    return {
        id
        for id, token in enumerate(vocabulary.tokens)
        if vocabulary.types[id] in (CONTROL, USER_DEFINED) and token not in PHI3_KEEPS_BLANKS
    }


def post_processor(keys: TextKeys, vocabulary: Vocabulary, *, begins_with_bos: bool) -> dict[str, object] | None:
    """Puts BOS before a text and EOS behind it, as far as the file says so. `begins_with_bos`: where it does not."""
    stated = adds_bos(keys)
    bos, eos = special_id(keys, vocabulary, "bos_token_id"), special_id(keys, vocabulary, "eos_token_id")
    if bos is None and keys.flag(f"{PREFIX}add_bos_token"):
        raise keys.broken(f"{PREFIX}add_bos_token is true, and {PREFIX}bos_token_id names no token")
    ends_with_eos = bool(keys.flag(f"{PREFIX}add_eos_token"))
    if ends_with_eos and eos is None:
        raise keys.broken(f"{PREFIX}add_eos_token is true, and {PREFIX}eos_token_id names no token")
    first = bos if (begins_with_bos if stated is None else stated) else None
    last = eos if ends_with_eos else None
    if first is None and last is None:
        return None
    before, after = around(vocabulary, first), around(vocabulary, last)
    used = {id for id in (first, last) if id is not None}
    return {
        "type": "TemplateProcessing",
        "single": [*before, SEQUENCE, *after],
        "pair": [*before, SEQUENCE, *after, *before, {"Sequence": {"id": "B", "type_id": 1}}, *after],
        "special_tokens": {
            token: {"id": token, "ids": [id], "tokens": [token]}
            for id, token in ((id, vocabulary.tokens[id]) for id in sorted(used))
        },
    }


def adds_bos(keys: TextKeys) -> bool | None:
    """Gemma 4 needs one: files say false, since its chat template writes it, too."""
    return True if is_gemma4(keys) else keys.flag(f"{PREFIX}add_bos_token")


def around(vocabulary: Vocabulary, id: int | None) -> list[dict[str, object]]:
    return [] if id is None else [{"SpecialToken": {"id": vocabulary.tokens[id], "type_id": 0}}]
