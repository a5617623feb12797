"""The numbers of an assistant, compared with those of its target. Knows nothing about tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.api import ModelError, TargetKeys
from specserve.api.files import read_json
from specserve.models.config_fields import check_fields
from specserve.models.families.gemma4 import Gemma4
from specserve.models.read_config import parse_config
from specserve_eagle.assistant.family import AssistantLayers

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.api.files import RawJson
    from specserve.api.models import DecoderModel, ModelConfig

FAMILY = AssistantLayers()
BACKBONE, ORDERED = "backbone_hidden_size", "use_ordered_embeddings"
CENTROIDS, CHOSEN = "num_centroids", "centroid_intermediate_top_k"
ABSENT = {BACKBONE: 1536, ORDERED: False, CENTROIDS: 2048, CHOSEN: 32}
ANOTHER_TARGET = "Use the assistant that was trained for this model."


class Clusters(NamedTuple):
    """Tokens in clusters of equal size; logits are computed for those of the likeliest clusters."""

    num_clusters: int
    num_chosen: int


class AssistantConfig(NamedTuple):
    layers: ModelConfig
    keys: TargetKeys
    target_size: int
    """Numbers of the target's hidden state."""
    clusters: Clusters | None


def read_assistant(path: Path, target: DecoderModel) -> AssistantConfig:
    """Raises ModelError for whatever does not fit the target."""
    file = path / "config.json"
    where, raw = str(file), read_json(file)
    known = ABSENT | {key: value for key, value in raw.items() if value is not None}
    inner = raw.get("text_config")
    if not isinstance(inner, dict):
        raise ModelError(f"{where}: text_config must be a table with the assistant's layers; got {inner!r}.")
    text = own_text(raw, inner)
    layers = parse_config(text, {}, where=where, families=(FAMILY,))
    check_fields(text, FAMILY, where)
    check_target(layers, whole(known, BACKBONE, where), target, where)
    return AssistantConfig(layers, keys_of(layers, target, where), known[BACKBONE], clusters_of(known, layers, where))


def own_text(raw: RawJson, inner: RawJson) -> RawJson:
    """The layers as a model of their own."""
    outside = {key: raw[key] for key in ("dtype", "torch_dtype", "quantization_config") if raw.get(key) is not None}
    named = {"architectures": list(FAMILY.architectures), "model_type": FAMILY.name}
    return {**inner, **outside, "tie_word_embeddings": raw.get("tie_word_embeddings", True), **named}


def check_target(layers: ModelConfig, backbone: int, target: DecoderModel, where: str) -> None:
    if target.config.family != Gemma4.name:
        raise ModelError(
            f"{where}: an assistant reads keys and values of Gemma 4; the target is of family {target.config.family}. "
            f"{ANOTHER_TARGET}"
        )
    if backbone != target.hidden_size:
        raise ModelError(
            f"{where}: {BACKBONE} must be the hidden size of the target, {target.hidden_size}; got {backbone}. "
            f"{ANOTHER_TARGET}"
        )
    if layers.vocab_size != target.vocab_size:
        raise ModelError(
            f"{where}: vocab_size must be that of the target, {target.vocab_size}; got {layers.vocab_size}. "
            f"{ANOTHER_TARGET}"
        )


def keys_of(layers: ModelConfig, target: DecoderModel, where: str) -> TargetKeys:
    """Each layer reads the last of the target's layers that has keys and values of its own and is of its kind. As in
    transformers, a layer with a window sees one key more than its file says: the query's own position has none. A
    window wider than the longest context hides nothing, and may be too large a number for a kernel."""
    windows, longest, sources = layers.sliding_windows, target.max_model_len, []
    for layer, window in enumerate(windows):
        kind = "without a window" if window is None else "with a window"
        alike = (each for each in target.cache_layers if each not in target.kv_sources)
        source = max((n for n in alike if (target.config.sliding_windows[n] is None) == (window is None)), default=None)
        if source is None:
            raise ModelError(
                f"{where}: layer {layer} is {kind}, and none of the target's layers with keys and values is. "
                f"{ANOTHER_TARGET}"
            )
        ours, theirs = layers.attention(layer).shape, target.config.attention(source).shape
        if ours != theirs:
            raise ModelError(
                f"{where}: layer {layer}, {kind}, reads {ours.num_kv_heads} key heads of {ours.head_dim} numbers; the "
                f"target's layer {source} has {theirs.num_kv_heads} of {theirs.head_dim}. {ANOTHER_TARGET}"
            )
        sources.append(target.cache_layers[source])
    return TargetKeys(
        num_heads=layers.num_heads,
        scale=1.0,
        sources=tuple(sources),
        sliding_windows=tuple(None if window is None else min(window + 1, longest) for window in windows),
    )


def clusters_of(known: RawJson, layers: ModelConfig, where: str) -> Clusters | None:
    if not isinstance(known[ORDERED], bool):
        raise ModelError(f"{where}: {ORDERED} must be true or false; got {known[ORDERED]!r}. Correct the file.")
    if not known[ORDERED]:
        return None
    count, chosen = whole(known, CENTROIDS, where), whole(known, CHOSEN, where)
    if layers.vocab_size % count or chosen > count:
        raise ModelError(
            f"{where}: {CENTROIDS} must divide vocab_size, {layers.vocab_size}, and {CHOSEN} be at most {CENTROIDS}; "
            f"got {count} and {chosen}. Correct the file."
        )
    return Clusters(count, chosen)


def whole(known: RawJson, key: str, where: str) -> int:
    value = known[key]
    if type(value) is not int or value < 1:
        raise ModelError(f"{where}: {key} must be a whole number, at least 1; got {value!r}. Correct the file.")
    return value
