"""generation_config.json of a GGUF file: which tokens end a text, and the model's defaults of sampling."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from specserve_gguf.text_ends import end_ids
from specserve_gguf.tokenizer_vocabulary import special_id

if TYPE_CHECKING:
    from specserve_gguf.text_keys import TextKeys
    from specserve_gguf.tokenizer_vocabulary import Vocabulary

log = logging.getLogger(__name__)

SAMPLING = "general.sampling."
DEFAULTS = {
    "temp": ("temperature", 0.0, 100.0),
    "top_p": ("top_p", 0.0, 1.0),
    "min_p": ("min_p", 0.0, 1.0),
    "penalty_repeat": ("repetition_penalty", 0.0, 100.0),
}
"""Names here and in generation_config.json, and bounds."""
NOT_FOLLOWED = ("sequence", "xtc_probability", "xtc_threshold", "penalty_last_n", "mirostat")


def generation_settings(keys: TextKeys, vocabulary: Vocabulary) -> dict[str, object]:
    """Raises ModelError."""
    ends = end_ids(keys, vocabulary)
    starts = {
        name: id
        for name in ("bos_token_id", "pad_token_id")
        if (id := special_id(keys, vocabulary, name.replace("pad_", "padding_"))) is not None
    }
    return {**starts, **({"eos_token_id": ends} if ends else {}), **sampling_defaults(keys)}


def sampling_defaults(keys: TextKeys) -> dict[str, object]:
    """Under the names of generation_config.json. Raises ModelError."""
    found: dict[str, object] = {}
    for key, (name, low, high) in DEFAULTS.items():
        value = keys.number(f"{SAMPLING}{key}")
        if value is None:
            continue
        if not low <= value <= high:
            raise keys.wrong(f"{SAMPLING}{key}", f"be a number, {low:g} to {high:g}")
        found[name] = float(str(np.float32(value)))  # files have 32 bits: the shortest decimal of these
    top_k = keys.integer(f"{SAMPLING}top_k")
    if top_k is not None:
        found["top_k"] = max(top_k, 0)  # here, too, all tokens are what 0 and less mean
    ignored = [f"{SAMPLING}{name}" for name in NOT_FOLLOWED if keys.value(f"{SAMPLING}{name}") is not None]
    if ignored:
        log.warning("%s: %s: not followed", keys.file, ", ".join(ignored))
    return found
