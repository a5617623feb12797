"""From an assistant's checkpoint to its layers, and the maps from and to the target's hidden states."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api import ModelError
from specserve.api.models import FLOATS, WHOLE_MODEL, Projection, VariedDecoder, dense, expect, supported_length
from specserve.models.checkpoint import Checkpoint
from specserve.models.loader import arrange_for, check_tensors, layer_tables, main_table
from specserve.models.tied_head import tied_as_stored
from specserve.models.weight_reader import Place, WeightReader
from specserve_eagle.assistant.config import FAMILY, ORDERED, read_assistant
from specserve_eagle.checkpoints.stored import open_stored
from specserve_eagle.draft_weights import finalize

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from torch import Tensor

    from specserve.api import TargetKeys
    from specserve.api.models import DecoderModel, ModelConfig
    from specserve_eagle.assistant.config import Clusters
    from specserve_eagle.options import DraftWeights

PRE, POST = "pre_projection", "post_projection"
CENTROIDS, ORDER = "masked_embedding.centroids", "masked_embedding.token_ordering"


class ClusteredTokens(NamedTuple):
    """centroids: [clusters, H]; tokens: [clusters, tokens of each] int64."""

    centroids: Tensor
    tokens: Tensor
    num_chosen: int
    """Clusters whose tokens get logits."""


class Assistant(NamedTuple):
    """`from_target`: [embedding of the target ; hidden state] -> input of the layers; `to_target`: their normed output
    -> a hidden state as the target's."""

    decoder: VariedDecoder
    from_target: Projection
    to_target: Projection
    clusters: ClusteredTokens | None
    keys: TargetKeys
    max_len: int


def load_assistant(path: Path, target: DecoderModel, kept: DraftWeights = "auto") -> Assistant:
    """Raises ModelError for whatever does not fit the target."""
    config, keys, target_size, clusters = read_assistant(path, target)
    length = min(target.max_model_len, supported_length(config))
    rotary = main_table(config, length)
    checkpoint = Checkpoint(open_stored(path, config.quantization))
    place = Place(target.device, target.dtype)
    maps = {PRE: (config.hidden_size, 2 * target_size), POST: (target_size, config.hidden_size)}
    weights = {name: take(checkpoint, f"{name}.weight", shape).to(*place) for name, shape in maps.items()}
    clustered = None if clusters is None else take_clusters(checkpoint, clusters, config, place)
    stored_as = arrange_for(FAMILY, config, checkpoint)
    config = tied_as_stored(config, checkpoint, target.dtype)
    if clustered is not None and not config.tied:
        raise ModelError(
            f"{path}: lm_head.weight differs from model.embed_tokens.weight, and logits of clusters are computed from "
            "the latter. Use the assistant as it was published."
        )
    refuse_superfluous(checkpoint, check_tensors(config, checkpoint))
    read = WeightReader(config, target.kernels, checkpoint, place, WHOLE_MODEL, stored_as).read()
    decoder = VariedDecoder(
        config, target.kernels, read, rotary.on(place.device), layer_tables(config, length, place.device)
    )
    pre, post = (Projection(name, weights[name], None, target.kernels.linear) for name in (PRE, POST))
    for projection in (*decoder.projections.values(), pre, post):
        finalize(projection, target.kernels, kept, path)
    return Assistant(decoder, pre, post, clustered, keys, length)


def refuse_superfluous(checkpoint: Checkpoint, expected: Collection[str]) -> None:
    """What is left out costs acceptance."""
    extra = checkpoint.names - {*expected, "lm_head.weight"}
    if extra:
        raise ModelError(
            f"{checkpoint.path}: tensor {min(extra)} is not part of the assistant that config.json describes "
            f"({len(extra)} such tensors). Correct config.json ({ORDERED}, say), or download it again."
        )


def take(checkpoint: Checkpoint, name: str, shape: tuple[int, ...], dtypes: tuple[str, ...] = FLOATS) -> Tensor:
    """The tensor, which the checkpoint of the layers then lacks."""
    found = checkpoint.find(name)
    expect(found, name, shape, (found.dtype,) if found.quantised else dtypes, "config.json")
    tensor = dense(checkpoint.take(name))
    checkpoint.forget(name)
    return tensor


def take_clusters(checkpoint: Checkpoint, clusters: Clusters, layers: ModelConfig, place: Place) -> ClusteredTokens:
    centroids = take(checkpoint, f"{CENTROIDS}.weight", (clusters.num_clusters, layers.hidden_size)).to(*place)
    file = checkpoint.find(ORDER).file
    order = take(checkpoint, ORDER, (layers.vocab_size,), ("I64", "I32")).long()
    if not torch.equal(order.sort().values, torch.arange(len(order))):
        raise ModelError(
            f"{file}: {ORDER} must have every token from 0 to {len(order) - 1} once. Download the file again."
        )
    return ClusteredTokens(centroids, order.view(clusters.num_clusters, -1).to(place.device), clusters.num_chosen)
