"""The vocabulary of a GGUF file: tokens with their types, scores and merges, checked. Knows no kind of tokenizer.

Source: docs/gguf.md of ggml; the types are those of sentencepiece.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specserve_gguf.text_keys import cut

if TYPE_CHECKING:
    from specserve_gguf.text_keys import TextKeys

PREFIX = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
MAX_TOKENS = 1 << 20
MAX_LENGTH = 1024
"""Characters of a token: the longest of known vocabularies has 128 letters."""
MAX_MERGES = 1 << 22
PADDING = re.compile(r"\[PAD(0|[1-9][0-9]{0,8})\]")
BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
SPECIAL_KEYS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
"""Special tokens, by their names in tokenizer_config.json."""
SENTENCEPIECE_IDS = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
"""Of sentencepiece vocabularies, in files that do not say them."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Token id i is entry i of each list."""

    tokens: list[str]
    types: list[int]
    scores: list[float]
    """Empty where the file has none; the higher the better."""

    @property
    def ids(self) -> dict[str, int]:
        """Without the entries that only fill up the model's rows: nothing is written with those."""
        return {token: id for id, token in enumerate(self.tokens) if self.is_token(id)}

    def is_token(self, id: int) -> bool:
        """Whether a text may have it. Converters write `[PAD17]` for rows 17 without a token, as unused or, older ones,
        as user-defined."""
        token = self.tokens[id]
        return bool(token) and (self.types[id] in (NORMAL, CONTROL) or token != f"[PAD{id}]")

    def of_type(self, kind: int) -> list[int]:
        return [id for id, own in enumerate(self.types) if own == kind and self.is_token(id)]


def read_vocabulary(keys: TextKeys) -> Vocabulary:
    """Raises ModelError."""
    tokens = keys.texts(f"{PREFIX}tokens")
    if not tokens:
        raise keys.broken(f"{PREFIX}tokens is missing or empty: the file has no vocabulary")
    if len(tokens) > MAX_TOKENS:
        raise keys.broken(f"{PREFIX}tokens has {len(tokens)} entries; at most {MAX_TOKENS} are read")
    types = keys.integers(f"{PREFIX}token_type")
    scores = keys.numbers(f"{PREFIX}scores")
    check_lengths(keys, len(tokens), types, scores)
    vocabulary = Vocabulary(tokens, types or [NORMAL] * len(tokens), scores or [])
    check_tokens(keys, vocabulary)
    return vocabulary


def check_lengths(keys: TextKeys, count: int, types: list[int] | None, scores: list[float] | None) -> None:
    for name, values in (("token_type", types), ("scores", scores)):
        if values and len(values) != count:
            raise keys.broken(f"{PREFIX}{name} has {len(values)} entries and {PREFIX}tokens {count}; allowed: as many")
    for id, kind in enumerate(types or ()):
        if not NORMAL <= kind <= BYTE:
            raise keys.broken(f"{PREFIX}token_type of token {id} is {kind}; allowed: 1 to 6")


def check_tokens(keys: TextKeys, vocabulary: Vocabulary) -> None:
    seen: dict[str, int] = {}
    for id, token in enumerate(vocabulary.tokens):
        if len(token) > MAX_LENGTH:
            size = f"{len(token)} characters; allowed: at most {MAX_LENGTH}"
            raise keys.broken(f"{PREFIX}tokens: token {id} has {size}")
        if vocabulary.types[id] == BYTE and not BYTE_TOKEN.fullmatch(token):
            raise keys.broken(
                f"{PREFIX}tokens: token {id} stands for a byte and is {cut(token)}; allowed: <0x00> to <0xFF>"
            )
        if not vocabulary.is_token(id):
            continue
        if token in seen:
            raise keys.broken(f"{PREFIX}tokens: {cut(token)} is token {seen[token]} and {id}; allowed: once")
        seen[token] = id


def read_merges(keys: TextKeys, ids: dict[str, int]) -> list[tuple[str, str]] | None:
    """Pairs of tokens, first the pair that is merged first; None where the file has none. Raises ModelError."""
    lines = keys.texts(f"{PREFIX}merges")
    if lines is None:
        return None
    if len(lines) > MAX_MERGES:
        raise keys.broken(f"{PREFIX}merges has {len(lines)} entries; at most {MAX_MERGES} are read")
    merges = []
    for place, line in enumerate(lines):
        left, blank, right = line[:1], *line[1:].partition(" ")[1:]  # the first token may begin with a blank
        left += line[1:].partition(" ")[0]
        if not blank or any(token not in ids for token in (left, right, left + right)):
            raise keys.broken(
                f"{PREFIX}merges: entry {place}, {cut(line)}, must be two tokens with a blank between them, both in "
                f"{PREFIX}tokens and joined there, too"
            )
        merges.append((left, right))
    return merges


def special_id(keys: TextKeys, vocabulary: Vocabulary, name: str) -> int | None:
    """`name`: such as bos_token_id. Raises ModelError where the file names no token of its vocabulary."""
    id = keys.integer(f"{PREFIX}{name}")
    if id is None:
        id = SENTENCEPIECE_IDS.get(name) if keys.text(f"{PREFIX}model") == "llama" else None
        known = id is not None and id < len(vocabulary.tokens) and vocabulary.types[id] in (UNKNOWN, CONTROL)
        return id if known else None
    if not 0 <= id < len(vocabulary.tokens):
        raise keys.wrong(f"{PREFIX}{name}", f"be the id of a token, 0 to {len(vocabulary.tokens) - 1}")
    return id if vocabulary.is_token(id) else None
