"""The EOS tokens of a model: as its directory states them, without those that the model cannot generate."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from specserve.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokenizers import Tokenizer as RustTokenizer

log = logging.getLogger(__name__)


def configured_eos_ids(path: Path, generation: Mapping[str, object], config: Mapping[str, object]) -> tuple[int, ...]:
    """generation_config.json's eos_token_id, else config.json's; empty where neither has one."""
    for name, content in (("generation_config.json", generation), ("config.json", config)):
        stated = content.get("eos_token_id")
        if stated is None:
            continue
        candidates = stated if isinstance(stated, list) else [stated]
        ids = [id for id in candidates if type(id) is int and id >= 0]
        if len(ids) < len(candidates):
            raise ModelError(
                f"{path / name}: eos_token_id must be a token id of at least 0, a list of such, or null; "
                f"got {stated!r}. Correct the file or download it again."
            )
        if ids:
            return tuple(dict.fromkeys(ids))
    return ()


def tokenizer_eos_ids(rust: RustTokenizer, settings: Mapping[str, object]) -> tuple[int, ...]:
    """The eos_token of tokenizer_config.json, where the tokenizer knows it."""
    token = settings.get("eos_token")
    token = token.get("content") if isinstance(token, dict) else token
    id = rust.token_to_id(token) if isinstance(token, str) else None
    return () if id is None else (id,)


def drop_beyond_vocab(path: Path, ids: tuple[int, ...], vocab_size: object) -> tuple[int, ...]:
    """Without the ids for which the model has no logit: they can neither end a text nor be banned."""
    if not isinstance(vocab_size, int):
        return ids
    beyond = [id for id in ids if id >= vocab_size]
    if beyond:
        log.warning(
            "%s: the EOS tokens %s are ignored, since the model has %d tokens, numbered from 0%s",
            path,
            ", ".join(map(str, beyond)),
            vocab_size,
            "" if len(beyond) < len(ids) else "; no token ends a text",
        )
    return tuple(id for id in ids if id < vocab_size)
