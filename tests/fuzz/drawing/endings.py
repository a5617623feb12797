"""Has something happen in the middle of an answer that is known: a stop, a bad word, a bias, the last forced token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuzz.plans import changed

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fuzz.drawing.prompts import Tokens
    from specserve.types import SamplingParams

KINDS = ("stop", "stop", "stop", "stop_token", "bad_word", "bias", "min_tokens")


def interrupted(
    rng: random.Random, params: SamplingParams, answer: Tokens, decode: Callable[[Tokens, bool], str]
) -> SamplingParams:
    """`answer`: at least two tokens, what `params` gave."""
    at = rng.randrange(len(answer) - 1)
    fields: dict[str, Any] = {}
    match rng.choice(KINDS):
        case "stop":
            text = decode(answer, params.skip_special_tokens)
            begin = rng.randrange(max(1, len(text)))
            if piece := text[begin : begin + rng.choice((1, 2, 4, 9))]:
                fields["stop"] = (piece, *params.stop[:2])
        case "stop_token":
            fields["stop_token_ids"] = (answer[at],)
        case "bad_word":
            fields["bad_words"] = (answer[at : at + rng.choice((1, 2, 3))],)
        case "bias":
            fields["logit_bias"] = {answer[at]: rng.choice((-100.0, -2.0, 5.0))}
        case "min_tokens":
            fields["min_tokens"] = min(at + 1, params.max_tokens)
    return changed(params, **fields)
