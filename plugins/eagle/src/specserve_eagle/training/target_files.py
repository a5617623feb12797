"""A target as its directory has it: who loads it, and its numbers as far as heads need them.

Those of a model that another library computes are known when it is loaded, so that it is loaded first.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from specserve.api.files import RawJson, read_json
from specserve.api.models import ModelConfig, RopeConfig, installed_loader
from specserve.models.read_config import read_config
from specserve.models.text_part import flat
from specserve_eagle.training.differentiable import DifferentiableKernels

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from specserve.api.models import ServedModel

INNER_SIZES = ("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner", "moe_intermediate_size")
NORM_EPS = ("rms_norm_eps", "norm_eps", "layer_norm_eps", "layer_norm_epsilon")
BASES = ("rope_theta", "rotary_emb_base")
"""Names in config.json of what a layer of a head takes over, the first that is there."""


class TargetFiles:
    """Raises ModelError where nobody serves the model."""

    def __init__(self, path: Path, device: str = "cpu", dtype: str = "auto") -> None:
        self.path, self.device, self.dtype = path, device, dtype
        self.loader = installed_loader(path)
        self.on_progress: Callable[[int, int], None] | None = None

    @property
    def library(self) -> str | None:
        """The library that computes the model; None where the engine does."""
        return None if self.loader.served_by is None else self.loader.served_by.library.name

    @cached_property
    def raw(self) -> RawJson:
        """config.json, as a text model has it."""
        where = self.path / "config.json"
        raw = read_json(where)
        return flat(raw, self.loader.families, str(where)) if self.library is None else raw

    @cached_property
    def config(self) -> ModelConfig:
        if self.library is None:
            return read_config(self.path, self.loader.families)
        return llama_like(self.model, self.raw, self.loaded_dtype)

    @cached_property
    def model(self) -> ServedModel:
        """Loaded, and not packed."""
        loader = self.loader._replace(on_progress=self.on_progress)
        kernels = DifferentiableKernels()
        return loader.load(self.path, kernels=kernels, dtype=self.dtype, device=self.device, max_model_len=None)

    @property
    def loaded_dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")


def llama_like(model: ServedModel, raw: RawJson, dtype: str) -> ModelConfig:
    """The numbers of a Llama of this model's sizes, whose layers a head's are like."""

    def first(table: RawJson, names: tuple[str, ...], default: Any) -> Any:
        return next((table[name] for name in names if table.get(name)), default)

    theta = first(raw.get("rope_parameters") or {}, BASES, None) or first(raw, BASES, RopeConfig().rope_theta)
    return ModelConfig(
        family=model.family,
        vocab_size=model.vocab_size,
        hidden_size=model.hidden_size,
        intermediate_size=first(raw, INNER_SIZES, 4 * model.hidden_size),
        num_layers=model.num_layers,
        num_heads=model.num_heads,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        norm_eps=first(raw, NORM_EPS, 1e-6),
        max_position_embeddings=model.max_model_len,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
        tied=False,
        dtype=dtype,
        rope=RopeConfig(rope_theta=theta),
        sliding_windows=(None,) * model.num_layers,
    )
