"""Values of every field of `SamplingParams`: none, one, many, both ends of the admitted range."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from native_cases import randn
from sampling_reference import EOS, admitted

from specserve.engine.admission import EngineLimits, check_sampling
from specserve.errors import RequestError
from specserve.types import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.request import Request

VOCABS = (1, 2, 3, 63, 64, 65, 320, 8192)
TINY = 5e-324


def values_of(vocab_size: int) -> dict[str, tuple[Any, ...]]:
    """The fields that a row's token depends on; the first value of each has no effect."""
    last, middle, other = vocab_size - 1, vocab_size // 2, 1 % vocab_size
    many = {t % vocab_size: (-100.0, 100.0, 0.5)[t % 3] for t in range(1024)}
    long_words = tuple((t % vocab_size,) * (2 + t % 4) for t in range(256))
    return {
        "temperature": (1.0, 0.0, TINY, math.nextafter(1e-5, 0), 1e-5, math.nextafter(1e-5, 1), 0.7, 100.0),
        "top_k": (0, -1, 1, 2, vocab_size, vocab_size + 1, 2**31 - 1),
        "top_p": (1.0, TINY, 1e-9, 0.5, 0.9, math.nextafter(1.0, 0)),
        "min_p": (0.0, TINY, 1e-9, 0.5, 1.0),
        "repetition_penalty": (1.0, 0.01, 1.2, 100.0),
        "presence_penalty": (0.0, -2.0, 2.0),
        "frequency_penalty": (0.0, -2.0, 2.0),
        "logit_bias": (None, {}, {0: 100.0}, {last: -100.0}, many),
        "allowed_token_ids": (None, (middle,), (last, 0, last), tuple(range(vocab_size))),
        "bad_words": (
            (),
            ((middle,),),
            ((0,), (0,)),
            ((0,) * 400,),
            ((other,) * 2, (other,) * 3, (0, last)),
            long_words,
        ),
        "stop_token_ids": ((), (0,), (last, middle, last)),
        "min_tokens": (0, 1, 30),
        "seed": (0, 1, -1, -(2**63), 2**63, 2**64 - 1),
        "max_tokens": (30, 31, 2**31 - 1),
    }


# these decide what is reported, when a text ends, or what a plugin enforces, and of themselves no row's token
REPORTED: dict[str, tuple[Any, ...]] = {
    "logprobs": (None, 0, 1, 20),
    "prompt_logprobs": (None, 0, 20),
    "stop": ((), ("e",), tuple("abcdefghijklmnop"), ("no such text " * 40,)),
    "include_stop_str_in_output": (False, True),
    "skip_special_tokens": (True, False),
    "ignore_eos": (False, True),
    "structured_output": (None,),
}


def is_admitted(vocab_size: int, params: dict[str, Any]) -> bool:
    try:
        check_sampling(SamplingParams(**params), EngineLimits(vocab_size, 999, 999, ends(vocab_size)))
    except RequestError:
        return False
    return True


def ends(vocab_size: int) -> tuple[int, ...]:
    return tuple(t for t in EOS if t < vocab_size)


def request_of(
    vocab_size: int, params: dict[str, Any], prompt: Sequence[int] = (0,), generated: Sequence[int] = ()
) -> Request:
    params = {"max_tokens": 30, **params}
    return admitted(
        vocab_size,
        eos=ends(vocab_size),
        prompt=[t % vocab_size for t in prompt],
        generated=[t % vocab_size for t in generated],
        **{"seed": 0, **params},
    )


def logits_of(kind: str, vocab_size: int) -> Tensor:
    """[V], of one row."""
    x = randn(vocab_size, seed=vocab_size, scale=3.0)
    tokens = torch.arange(vocab_size)
    return {
        "ties": lambda: (2 * x).round() / 2,
        "flat": lambda: torch.zeros(vocab_size),
        "half out": lambda: x.masked_fill(tokens % 2 == 0, -math.inf),
        "one left": lambda: x.masked_fill(tokens != vocab_size // 2, -math.inf),
        "none left": lambda: torch.full((vocab_size,), -math.inf),
        "infinite": lambda: x.masked_fill(tokens == vocab_size // 2, math.inf),
        "huge": lambda: x * 1e37,
        "tiny": lambda: x * 1e-38,
        "some NaN": lambda: x.masked_fill(tokens % 3 == 1, math.nan),
        "all NaN": lambda: torch.full((vocab_size,), math.nan),
    }.get(kind, lambda: x)()


KINDS = (
    "plain",
    "ties",
    "flat",
    "half out",
    "one left",
    "none left",
    "infinite",
    "huge",
    "tiny",
    "some NaN",
    "all NaN",
)
