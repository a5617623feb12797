"""What each token adds to a text, in bytes.

A decoder treats the first token of a text in its own way (Llama 2's drops its leading space), so a token is decoded
behind another one, and what that one gives alone is taken off. Knows neither requests nor special tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.text.byte_level import bytes_of_token

if TYPE_CHECKING:
    from tokenizers import Tokenizer as RustTokenizer

REPLACEMENT = "\ufffd"
STEADY = frozenset({"ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Sequence", "Strip", "WordPiece"})
"""Decoders in which what a token adds depends on whether it is the first one, and on nothing else of its text."""


class TokenPieces:
    """Pieces of a text add up to the text. Safe to share between threads."""

    def __init__(self, rust: RustTokenizer) -> None:
        self._rust = rust
        self._steady = decoder_types(rust) <= STEADY
        self._neighbour = plain_token(rust)
        self._known: dict[tuple[int, bool], bytes] = {}

    def is_token(self, token_id: int) -> bool:
        """False for the ids by which a model's vocabulary is padded: they have no text and are no neighbours."""
        return self._rust.id_to_token(token_id) is not None

    def piece(self, token_id: int, before: int | None) -> bytes:
        """`before`: the token that precedes it in the text, None where the text begins with it."""
        if before is not None and not self._steady:
            return self._compute(token_id, before)
        key = (token_id, before is None)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._compute(token_id, None if before is None else self._neighbour)
        return known

    def named_piece(self, token_id: int, *, first: bool) -> bytes:
        """The text of a token whose neighbour is not known; `first`: the text begins with it."""
        return self.piece(token_id, None if first else self._neighbour)

    def _compute(self, token_id: int, before: int | None) -> bytes:
        text = self._decode([token_id])
        if before is not None:
            ahead, both = self._decode([before]), self._decode([before, token_id])
            text = both[len(ahead) :] if both.startswith(ahead) else text
        if REPLACEMENT not in text:
            return text.encode()
        found = bytes_of_token(self._rust.id_to_token(token_id) or "")
        return text.encode() if found is None else found

    def _decode(self, ids: list[int]) -> str:
        text: str = self._rust.decode(ids, skip_special_tokens=False)
        return text


class DecoderState(msgspec.Struct, frozen=True):
    """As the library writes it: one decoder, or a sequence of them."""

    type: str
    decoders: tuple[DecoderState, ...] = ()


def decoder_types(rust: RustTokenizer) -> set[str]:
    """The names of the decoder and of those that it is made of; none of a tokenizer without one: blanks join tokens."""
    if rust.decoder is None:
        return set()
    return nested_types(msgspec.json.decode(rust.decoder.__getstate__(), type=DecoderState))


def nested_types(decoder: DecoderState) -> set[str]:
    return {decoder.type}.union(*map(nested_types, decoder.decoders))


def plain_token(rust: RustTokenizer) -> int | None:
    """A token whose text is its name in the vocabulary; None where there is none."""
    for token_id in range(rust.get_vocab_size(with_added_tokens=True)):
        name = rust.id_to_token(token_id)
        if name and name.isascii() and rust.decode([token_id], skip_special_tokens=False) == name:
            return token_id
    return None
