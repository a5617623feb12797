"""tokenizer.json of sentencepiece vocabularies: `tokenizer.ggml.model = llama`, `gemma4` and `t5`.

Blanks are written as U+2581; characters without a token are written as tokens of bytes, <0x00> to <0xFF>.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_gguf.tokenizer_bytes import bpe
from specserve_gguf.tokenizer_parts import added_tokens, post_processor, tokenizer_json
from specserve_gguf.tokenizer_vocabulary import (
    BYTE,
    CONTROL,
    PREFIX,
    UNKNOWN,
    read_merges,
    special_id,
)

if TYPE_CHECKING:
    from specserve_gguf.text_keys import TextKeys
    from specserve_gguf.tokenizer_vocabulary import Vocabulary

BLANK = "\u2581"
MAX_PIECE = 128
"""Characters of a token that merges may make: every cut of each is tried."""


def scored_json(keys: TextKeys, vocabulary: Vocabulary) -> dict[str, object]:
    """Byte-pair encoding by scores: of two neighbours, those whose token has the highest score are merged first.
    Raises ModelError."""
    if not vocabulary.scores:
        raise keys.broken(f"{PREFIX}scores is missing: without it no text can be turned into tokens")
    return pieces_json(keys, vocabulary, merges_by_score(vocabulary), prefix_by_default=True)


def merged_json(keys: TextKeys, vocabulary: Vocabulary) -> dict[str, object]:
    """As `scored_json`, with merges that the file states. Raises ModelError."""
    merges = read_merges(keys, vocabulary.ids)
    if merges is None:
        raise keys.broken(f"{PREFIX}merges is missing: without it no text can be turned into tokens")
    return pieces_json(keys, vocabulary, merges, prefix_by_default=False)


def pieces_json(
    keys: TextKeys, vocabulary: Vocabulary, merges: list[tuple[str, str]], *, prefix_by_default: bool
) -> dict[str, object]:
    unknown = special_id(keys, vocabulary, "unknown_token_id")
    model = bpe(vocabulary.ids, merges, None if unknown is None else vocabulary.tokens[unknown])
    steps = {
        **blanks_in_and_out(keys, [], prefix_by_default=prefix_by_default),
        "post_processor": post_processor(keys, vocabulary, begins_with_bos=True),
    }
    fallback = {"fuse_unk": True, "byte_fallback": True}
    return tokenizer_json({**model, **fallback}, steps, added_tokens(keys, vocabulary))


def blanks_in_and_out(keys: TextKeys, first: list[dict[str, object]], *, prefix_by_default: bool) -> dict[str, object]:
    """Blanks become U+2581, one is put before the text where the file says so, and back. `first`: normalizers that come
    before that."""
    stated = keys.flag(f"{PREFIX}add_space_prefix")
    prefix = prefix_by_default if stated is None else stated
    normalizers = [*first, {"type": "Replace", "pattern": {"String": " "}, "content": BLANK}]
    decoders: list[dict[str, object]] = [
        {"type": "Replace", "pattern": {"String": BLANK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        normalizers.insert(-1, {"type": "Prepend", "prepend": BLANK})
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
    }


def merges_by_score(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Every pair of tokens that are one together, by that one's score. Control tokens and tokens of bytes are never
    made of text: `<0x41>` in a text is six characters."""
    apart = (UNKNOWN, CONTROL, BYTE)
    ids = {token: id for token, id in vocabulary.ids.items() if vocabulary.types[id] not in apart}
    found = [
        (-vocabulary.scores[id], -len(left), ids[left], (left, token[len(left) :]))
        for token, id in ids.items()
        if len(token) <= MAX_PIECE
        for left in (token[:cut] for cut in range(1, len(token)))
        if left in ids and token[len(left) :] in ids
    ]
    return [pair for *_, pair in sorted(found)]


def unigram_json(keys: TextKeys, vocabulary: Vocabulary) -> dict[str, object]:
    """The most probable pieces of a text: scores are logarithms of probabilities. Raises ModelError."""
    if not vocabulary.scores:
        raise keys.broken(f"{PREFIX}scores is missing: without it no text can be turned into tokens")
    if keys.array(f"{PREFIX}precompiled_charsmap", "a list of bytes"):
        raise keys.broken(f"{PREFIX}precompiled_charsmap changes the text before it is cut, which is not done")
    unknown = special_id(keys, vocabulary, "unknown_token_id")
    if unknown is None:
        raise keys.broken(f"{PREFIX}unknown_token_id is missing, and this kind of tokenizer needs it")
    squeeze = [replaced("^ +| +$", ""), replaced(" {2,}", " ")]
    removes = keys.flag(f"{PREFIX}remove_extra_whitespaces")
    steps = {
        **blanks_in_and_out(keys, squeeze if removes else [], prefix_by_default=True),
        "post_processor": post_processor(keys, vocabulary, begins_with_bos=False),
    }
    model = {
        "type": "Unigram",
        "unk_id": unknown,
        "vocab": list(zip(vocabulary.tokens, vocabulary.scores, strict=True)),
        "byte_fallback": BYTE in vocabulary.types,
    }
    return tokenizer_json(model, steps, added_tokens(keys, vocabulary))


def replaced(expression: str, content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": {"Regex": expression}, "content": content}
