"""The closed list of feature tokens, and what makes a token acceptable.

Owns the core's namespaces and their spelling. Knows nothing about which plugins exist. A token outside these
namespaces belongs to a distribution and begins with its name (`mydist.something`); an unknown token inside
them is an error, so that a typo never becomes permission.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from specserve.config import EngineConfig

CORE = {
    "prefix_cache": "prompts reuse the KV blocks of earlier requests with the same beginning",
    "chunked_prefill": "a long prompt is computed in several steps, beside other requests",
    "logprobs": "responses carry raw log-probabilities of generated and prompt tokens",
    "penalties": "repetition, presence and frequency penalties, logit bias, bad words, min_tokens",
    "graph.full": "decode and verify steps are replayed from one recorded graph",
    "graph.piecewise": "the parts between attention calls are replayed from recorded graphs",
}
"""What the core itself does. A plugin works with these unless it declares a conflict, and none may provide them."""

KERNEL = {
    "kernel.torch": "the model's arithmetic in plain torch",
    "kernel.cpu": "native kernels for CPUs",
    "kernel.cuda": "native kernels for CUDA devices",
}
"""Changes speed and not meaning. A plugin works with these unless it declares a conflict; providers are default-on."""

GUEST = {
    "draft.chain": "guesses the next tokens as one line",
    "draft.tree": "guesses the next tokens as a tree of alternatives",
    "draft.model": "a drafter that computes with weights, and perhaps KV layers, of its own",
    "lora.target": "adapters change the target model's projections, per request",
    "attention.hybrid": "different attention back-ends serve prompt, decode and verify rows",
    "attention.backend": "brings an attention back-end",
    "planner.adaptive": "decides from measurements how much to draft and to verify",
    "verifier.lossless": "replaces the verifier and keeps the target distribution",
    "verifier.lossy": "replaces the verifier and may change which tokens come out",
    "logits.processor": "changes logits before a token is chosen",
    "observer.metrics": "learns from or counts what was committed, and changes nothing",
    "server.routes": "adds routes to the HTTP server",
}
"""What plugins bring. Two plugins that bring these meet, and one of the two must have declared that it works."""

FEATURES = CORE | KERNEL | GUEST
NAMESPACES = frozenset(token.partition(".")[0] for token in FEATURES)

OFF = {
    "prefix_cache": "pass --no-prefix-cache",
    "chunked_prefill": "pass --no-chunked-prefill",
    "graph.full": "pass --graphs none or piecewise",
    "graph.piecewise": "pass --graphs none or full",
}
"""How to do without a feature of the core; the others are always there."""


def is_core(token: str) -> bool:
    """Does a plugin work with this token unless it says otherwise?"""
    return token in CORE or token in KERNEL


def core_features(config: EngineConfig, provided: Iterable[str]) -> tuple[str, ...]:
    """The core's own features under this configuration; plain torch kernels unless a plugin provides others."""
    switched = {
        "prefix_cache": config.prefix_cache,
        "chunked_prefill": config.chunked_prefill,
        "graph.full": config.graphs == "full",
        "graph.piecewise": config.graphs == "piecewise",
    }
    kernels = () if any(token in KERNEL for token in provided) else ("kernel.torch",)
    return (*(token for token in CORE if switched.get(token, True)), *kernels)


def canonical(name: str) -> str:
    """A distribution's name in the normal form of the packaging specification."""
    return re.sub(r"[-_.]+", "-", name).lower()


def belongs_to(token: str, dist: str) -> bool:
    """Is the token in this distribution's own namespace? `my_dist.thing` belongs to `my-dist`."""
    head, rest = token[: len(dist)], token[len(dist) :]
    return canonical(head) == canonical(dist) and rest.startswith(".") and len(rest) > 1


def provide_problem(token: str, dist: str) -> str | None:
    """Why a plugin of distribution `dist` must not provide this token, or None."""
    if token in KERNEL or token in GUEST or (belongs_to(token, dist) and not is_closed(token)):
        return None
    if token in CORE:
        return f"{token} is the core's own feature and cannot be provided by a plugin"
    return unknown(token, [*KERNEL, *GUEST], f"a new feature of {dist} begins with its name: {dist}.something")


def mention_problem(token: str, dists: Collection[str]) -> str | None:
    """Why a plugin must not declare anything about this token, or None. `dists`: distributions with plugins.

    Another distribution's feature may be named before that distribution is installed; what looks like a
    misspelt name of the core's may not.
    """
    if token in FEATURES:
        return None
    if not is_closed(token) and any(belongs_to(token, dist) for dist in dists):
        return None
    head, dot, rest = token.partition(".")
    if dot and rest and head not in NAMESPACES and not suggest(head, NAMESPACES):
        return None
    return unknown(token, FEATURES, "the feature of another distribution begins with that distribution's name")


def is_closed(token: str) -> bool:
    return token.partition(".")[0] in NAMESPACES


def unknown(token: str, allowed: Collection[str], otherwise: str) -> str:
    return f"{token!r} is not a known feature{did_you_mean(token, allowed)} (known: {', '.join(allowed)}; {otherwise})"


def suggest(got: str, allowed: Iterable[str]) -> str | None:
    """The allowed word that `got` most resembles, if any."""
    return next(iter(difflib.get_close_matches(got, list(allowed), n=1, cutoff=0.7)), None)


def did_you_mean(got: str, allowed: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` or nothing: the middle of an error message."""
    close = suggest(got, allowed)
    return f"; did you mean {close!r}?" if close else ""
