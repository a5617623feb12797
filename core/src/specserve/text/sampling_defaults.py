"""What the sampling parameters of a request are where it says nothing: the model's own defaults, none, or others."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from specserve.config import SAMPLING_DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Mapping

UNUSED: Mapping[str, object] = {
    **dict.fromkeys(("num_beams", "num_return_sequences", "typical_p", "guidance_scale"), 1),
    **dict.fromkeys(("no_repeat_ngram_size", "epsilon_cutoff", "eta_cutoff", "min_length", "min_new_tokens"), 0),
    **dict.fromkeys(("bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "force_words_ids", "constraints")),
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "sequence_bias", "watermarking_config")),
    **dict.fromkeys(("stop_strings", "max_new_tokens", "max_time", "exponential_decay_length_penalty", "top_h")),
    **dict.fromkeys(("token_healing", "penalty_alpha", "dola_layers")),
}
"""Keys of generation_config.json by which transformers' `generate` chooses other tokens, or ends, and which no default
here follows; with values that change nothing, beside null, false and empty ones."""


def unused_defaults(generation: Mapping[str, object]) -> list[str]:
    """The model's own defaults that are not followed, such as `max_new_tokens = 512`."""
    return [
        f"{name} = {generation[name]!r}"
        for name, neutral in UNUSED.items()
        if generation.get(name) not in (neutral, None, False, [], {})
    ]


def sampling_defaults(setting: str | Mapping[str, float], generation: Mapping[str, object]) -> dict[str, float]:
    """`setting` is EngineConfig.generation_config, `generation` the content of generation_config.json, whose values are
    not checked here."""
    if setting == "none":
        return {}
    given = {name: value for name, value in generation.items() if name in SAMPLING_DEFAULTS and value is not None}
    values = cast("dict[str, float]", given)
    if not isinstance(setting, str):
        values |= setting
    if values.get("top_k") == -1:
        values["top_k"] = 0  # both mean all tokens
    return values
