"""Which tokens end a text: as the model directory says, as far as the model can generate them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from specserve.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokenizers import Tokenizer as RustTokenizer

log = logging.getLogger(__name__)


def stated_ends(path: Path, generation: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[int, ...]:
    """generation_config.json's eos_token_id, else config.json's; empty where both are silent."""
    for name, content in (("generation_config.json", generation), ("config.json", config)):
        found = content.get("eos_token_id")
        ids = [] if found is None else found if isinstance(found, list) else [found]
        if any(type(id) is not int or id < 0 for id in ids):
            raise ModelError(
                f"{path / name}: eos_token_id must be a token id of at least 0, a list of such, or null; "
                f"got {found!r}. Correct the file or download it again."
            )
        if ids:
            return tuple(dict.fromkeys(ids))
    return ()


def ends_of(rust: RustTokenizer, settings: Mapping[str, Any]) -> tuple[int, ...]:
    """The eos_token of tokenizer_config.json, where the tokenizer knows it."""
    token = settings.get("eos_token")
    token = token.get("content") if isinstance(token, dict) else token
    id = rust.token_to_id(token) if isinstance(token, str) else None
    return () if id is None else (id,)


def generable(path: Path, ends: tuple[int, ...], vocab_size: Any) -> tuple[int, ...]:
    """Without those for which the model has no logit: they can neither end a text nor be forbidden."""
    if not isinstance(vocab_size, int):
        return ends
    beyond = [id for id in ends if id >= vocab_size]
    if beyond:
        log.warning(
            "%s: the end tokens %s are left out, since the model's %d tokens are numbered from 0%s",
            path,
            ", ".join(map(str, beyond)),
            vocab_size,
            "" if len(beyond) < len(ends) else "; no token ends a text",
        )
    return tuple(id for id in ends if id < vocab_size)
