"""generation_config.json of a GGUF file: which tokens end a text, and the model's defaults of sampling."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from specserve_gguf.tokenizer_vocabulary import CONTROL, special_id

if TYPE_CHECKING:
    from specserve_gguf.text_keys import TextKeys
    from specserve_gguf.tokenizer_vocabulary import Vocabulary

log = logging.getLogger(__name__)

SAMPLING = "general.sampling."
END_OF_TURN = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<|END_OF_TURN_TOKEN|>",
    "<｜end▁of▁sentence｜>",
    "<|return|>",
    "<|call|>",
)
"""Control tokens that end a text in every model that has them, where the file names no end of turn."""
END_OF_MESSAGE = ("<|eom_id|>",)
HARMONY = {"<|return|>", "<|call|>"}
"""In vocabularies with both, `<|end|>` ends a message and more may follow."""
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


def end_ids(keys: TextKeys, vocabulary: Vocabulary) -> list[int]:
    """EOS, the end of a turn and of a message; by their names where the file does not give these two."""
    found = [special_id(keys, vocabulary, "eos_token_id")]
    for key, names in (("eot_token_id", END_OF_TURN), ("eom_token_id", END_OF_MESSAGE)):
        stated = special_id(keys, vocabulary, key)
        found += ends_by_name(vocabulary, names) if stated is None else [stated]
    return list(dict.fromkeys(id for id in found if id is not None))


def ends_by_name(vocabulary: Vocabulary, names: tuple[str, ...]) -> list[int]:
    by_name = {vocabulary.tokens[id]: id for id in vocabulary.of_type(CONTROL) if vocabulary.tokens[id] in names}
    if by_name.keys() >= HARMONY:
        by_name.pop("<|end|>", None)
    return sorted(by_name.values())


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
