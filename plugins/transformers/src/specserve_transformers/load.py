"""Loads a model: creates it without weights, probes it, checks the checkpoint, then puts weights and arithmetic in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.api import ModelError
from specserve.api.models import inference
from specserve_transformers.attention import LayerAttention
from specserve_transformers.create import class_of, create, fill_buffers
from specserve_transformers.install import Installer
from specserve_transformers.interface import ATTENTION
from specserve_transformers.model import TransformersModel
from specserve_transformers.probe import probe, probe_masks
from specserve_transformers.refusals import geometry_of, layer_list_of
from specserve_transformers.stages import Stages
from specserve_transformers.step import Step
from specserve_transformers.weights import WeightPlan

if TYPE_CHECKING:
    from specserve.api.models import LoadRequest

LENGTH_LIMIT = 32768
"""The default context length is at most this, as that of the engine's own models."""
LENGTHS = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")
STRETCHED = ("linear", "dynamic")


@inference
def load(request: LoadRequest) -> TransformersModel:
    """Raises ModelError."""
    where = str(request.path / "config.json")
    model = create(class_of(request.raw, where), request.raw, request.dtype, where)
    length = resolve_length(model.config.get_text_config(), request.max_model_len, where)
    found = probe(model, where)
    geometry = geometry_of(model, found, probe_masks(model, where), length, where)
    stages = Stages(model, found, layer_list_of(model), where)
    plan = WeightPlan(model, request)
    fill_buffers(model, request.device, where)
    step = Step()
    installed = Installer(model, found, plan, request, step, length)
    installed.install(where)
    missing = geometry.head_dim - geometry.v_dim
    for layer, path in enumerate(geometry.paths):
        model.get_submodule(path).__dict__[ATTENTION] = LayerAttention(layer, step, missing)
    return TransformersModel(stages, installed, geometry, request)


def resolve_length(config: Any, asked: int | None, where: str) -> int:
    """The context length to serve: what was asked for, or the model's own, at most 32768."""
    longest = next((each for name in LENGTHS if isinstance(each := getattr(config, name, None), int)), None)
    rotation = getattr(config, "rope_parameters", None) or {}
    if longest is not None and rotation.get("rope_type") in STRETCHED:
        longest = int(longest * max(rotation.get("factor") or 1.0, 1.0))
    if asked is None:
        if longest is None:
            raise ModelError(f"{where}: it says no context length. Pass --max-model-len.")
        return min(longest, LENGTH_LIMIT)
    if longest is not None and not 1 <= asked <= longest:
        raise ModelError(
            f"max_model_len must be between 1 and {longest}, which is what the model's config.json supports; got "
            f"{asked}. Ask for less."
        )
    return asked
