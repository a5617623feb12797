"""Where the tokens of a prompt lie in its text, which precedes an answer that echoes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.engine_client import ServerTokenizer


class EchoedTokens(NamedTuple):
    offsets: list[int]
    """Where each token begins, in characters."""
    num_first: int
    """How many tokens are up to and with the first one that the text shows."""


def echoed_tokens(tokenizer: ServerTokenizer, text: str, prompt_ids: Sequence[int]) -> EchoedTokens:
    """A special token is part of the text where its name stands there: it may have been added to a client's text, or
    be one that the client wrote."""
    stream = tokenizer.echo_stream((), skip_special_tokens=False)
    offsets: list[int] = []
    position = num_first = 0
    for i, token_id in enumerate(prompt_ids, 1):
        offsets.append(position)
        if tokenizer.shows(token_id) or text.startswith(tokenizer.token_text(token_id) or "\0", position):
            position += len(stream.push(token_id))
            num_first = num_first or i
    return EchoedTokens(offsets, num_first or len(prompt_ids))
