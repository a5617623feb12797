"""Where a text begins: its first token is written in another way than later ones, by some tokenizers without its blank.

Special tokens that are skipped do not count: the text behind `<s>` begins with the token that follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.engine_client import ServerTokenizer


class TextBeginning:
    """Of one text, whose tokens are passed in order."""

    __slots__ = ("_begun", "_skip", "_tokenizer")

    def __init__(self, tokenizer: ServerTokenizer, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._begun = False

    def count(self, token_ids: Sequence[int]) -> int:
        """How many of these tokens are up to and with the first one that the text shows."""
        if self._begun:
            return 0
        for i, token_id in enumerate(token_ids, 1):
            if self._tokenizer.shows(token_id, skip_special_tokens=self._skip):
                self._begun = True
                return i
        return len(token_ids)


def token_names(tokenizer: ServerTokenizer, token_ids: Sequence[int], skip_special_tokens: bool = True) -> list[str]:
    """Of all tokens of a text: put together they are the text."""
    num_first = TextBeginning(tokenizer, skip_special_tokens).count(token_ids)
    later = {id: tokenizer.token_text(id) for id in set(token_ids[num_first:])}
    first = [tokenizer.token_text(id, first=True) for id in token_ids[:num_first]]
    return first + [later[id] for id in token_ids[num_first:]]
