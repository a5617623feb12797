"""The rotation of queries and keys: what keys and tensors of a file say of it, as `rope_parameters` in config.json."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from specserve_gguf.cursor import broken
from specserve_gguf.keys import MAX_HEAD
from specserve_gguf.model_file import read_rows

if TYPE_CHECKING:
    from specserve_gguf.keys import Keys
    from specserve_gguf.model_file import ModelFile

FREQUENCIES = "rope_freqs.weight"
ORIGINAL = "rope.scaling.original_context_length"
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""What all Llamas with such factors have."""


def rotation(keys: Keys, head_dim: int, theta: float) -> dict[str, Any]:
    """theta: the base where the file says nothing."""
    found: dict[str, Any] = {"rope_type": "default", "rope_theta": keys.number("rope.freq_base", theta)}
    rotated = keys.whole("rope.dimension_count", head_dim)
    if rotated != head_dim:
        found["partial_rotary_factor"] = share_of(rotated, head_dim)
    return found | scaling(keys, found["rope_theta"])


def share_of(rotated: int, head_dim: int) -> float:
    """The share of a head that is so many whole numbers again."""
    share = rotated / head_dim
    return share if int(head_dim * share) == rotated else math.nextafter(share, 1.0)


def scaling(keys: Keys, theta: float) -> dict[str, Any]:
    if FREQUENCIES in keys.file.tensors:
        return by_frequency(numbers(keys.file, FREQUENCIES), theta, keys.whole("context_length"))
    kind = keys.text("rope.scaling.type", "none")
    if kind == "none":
        return {}
    factor = keys.number("rope.scaling.factor", 1.0)
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        return yarn(keys, factor)
    raise keys.wrong("rope.scaling.type", "none, linear or yarn")


def yarn(keys: Keys, factor: float) -> dict[str, Any]:
    found = {
        "rope_type": "yarn",
        "factor": factor,
        "beta_fast": keys.number("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": keys.number("rope.scaling.yarn_beta_slow", 1.0),
    }
    if keys.value(ORIGINAL) is not None:
        found["original_max_position_embeddings"] = keys.whole(ORIGINAL)
    if keys.value("rope.scaling.yarn_log_multiplier") is not None:  # of cosines and of scores: they cancel each other
        found |= dict.fromkeys(("mscale", "mscale_all_dim"), keys.number("rope.scaling.yarn_log_multiplier"))
    return found


def by_frequency(factors: list[float], theta: float, length: int) -> dict[str, Any]:
    """factors: what each frequency is divided by. They are Llama 3's where its rule gives the same numbers."""
    known = {"rope_type": "llama3", "factor": max(factors), **LLAMA3}
    if np.allclose(factors, llama3_factors(known, theta, len(factors)), rtol=1e-5):
        return known
    return {
        "rope_type": "longrope",
        "short_factor": factors,
        "long_factor": factors,
        "attention_factor": 1.0,
        "original_max_position_embeddings": length,
    }


def llama3_factors(rule: dict[str, Any], theta: float, count: int) -> np.ndarray:
    """Llama 3.1's rule (config.json of Meta's models, 2024): long waves are divided, short ones are not."""
    frequencies = theta ** -(np.arange(count) / count)
    turns = rule["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    low, high = rule["low_freq_factor"], rule["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    factors: np.ndarray = 1 / ((1 - smooth) / rule["factor"] + smooth)
    return factors


def numbers(file: ModelFile, name: str) -> list[float]:
    """Of a tensor of factors. Raises ModelError."""
    tensor = file.tensors[name]
    if tensor.info.type.name != "F32" or len(tensor.info.shape) != 1 or tensor.info.shape[0] > MAX_HEAD:
        kind = f"{tensor.info.type.name} {list(tensor.info.shape)}"
        raise broken(tensor.file, f"tensor {name} must be F32 and of one dimension, at most {MAX_HEAD}; got {kind}")
    found = read_rows(tensor, slice(None)).view(np.float32).flatten()
    if not (np.isfinite(found) & (found > 0)).all():
        raise broken(tensor.file, f"tensor {name} must have positive numbers")
    return [float(each) for each in found]
