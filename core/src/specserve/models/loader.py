"""From a model directory to a DecoderModel.

Owns the resolution of dtype and context length; knows nothing about batches, caches or plugins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch

from specserve.errors import ConfigError, ModelError
from specserve.models.arrange import arrange
from specserve.models.checkpoint import Checkpoint
from specserve.models.families import BUILT_IN, family_named
from specserve.models.library import LoadRequest
from specserve.models.open_weights import BUILT_IN as FORMATS
from specserve.models.open_weights import open_weights
from specserve.models.part import WHOLE_MODEL, ModelPart
from specserve.models.read_config import read_config
from specserve.models.rope import rotary_table
from specserve.models.served_length import resolve_length, without_idle_scale
from specserve.models.tensor_names import expected_shapes
from specserve.models.text_part import keep_text
from specserve.models.tied_head import tied_as_stored
from specserve.models.unused_tensors import report_unused
from specserve.models.varied_decoder import VariedDecoder
from specserve.models.weight_reader import Place, WeightReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from specserve.models.config import ModelConfig
    from specserve.models.decoder import DecoderModel
    from specserve.models.family import ModelFamily, StoredAs
    from specserve.models.library import LibraryModel
    from specserve.models.rope import RotaryTable
    from specserve.models.rope_config import RopeConfig
    from specserve.models.served_model import ServedModel
    from specserve.models.weight_format import WeightFormat
    from specserve.protocols import KernelSet

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]


def load_model(
    path: Path,
    *,
    kernels: KernelSet,
    dtype: str = "auto",
    device: str = "cpu",
    max_model_len: int | None = None,
    on_progress: Progress | None = None,
) -> DecoderModel:
    """Load the model in directory `path`, by the engine's own families and formats alone. See `ModelLoader.load`."""
    loader = ModelLoader(on_progress=on_progress)
    return loader.load_decoder(path, kernels=kernels, dtype=dtype, device=device, max_model_len=max_model_len)


class ModelLoader(NamedTuple):
    """`on_progress(bytes_done, bytes_total)` is called per tensor. `part`: what this process loads of the model.
    `served_by`: the library that loads it in place of a family."""

    families: Sequence[ModelFamily] = BUILT_IN
    formats: Sequence[WeightFormat] = FORMATS
    on_progress: Progress | None = None
    part: ModelPart = WHOLE_MODEL
    served_by: LibraryModel | None = None

    def load(
        self,
        path: Path,
        *,
        kernels: KernelSet,
        dtype: str = "auto",
        device: str = "cpu",
        max_model_len: int | None = None,
    ) -> ServedModel:
        """Load the model in directory `path`. Everything that can be wrong is found before weights are allocated; the
        errors are ModelErrors."""
        if self.served_by is None:
            return self.load_decoder(path, kernels=kernels, dtype=dtype, device=device, max_model_len=max_model_len)
        library, raw = self.served_by
        if self.part is not WHOLE_MODEL:
            raise ConfigError(
                f"{path}: {library.name} serves it, whose models cannot be divided among processes. Remove the plugin "
                "that divides the model, or serve an architecture of the engine's own."
            )
        quantization = raw.get("quantization_config") or None
        opened = cache(lambda: Checkpoint(open_weights(path, quantization, self.formats), self.on_progress))
        kind = getattr(torch, library.dtype(raw, str(path / "config.json")) if dtype == "auto" else dtype)
        model = library.load(LoadRequest(path, raw, opened, kernels, kind, torch.device(device), max_model_len))
        opened().finish()
        return model

    def load_decoder(
        self, path: Path, *, kernels: KernelSet, dtype: str, device: str, max_model_len: int | None
    ) -> DecoderModel:
        """A model of one of the families."""
        config = read_config(path, self.families)
        family = family_named(config.family, self.families)
        if config.unknown_fields:
            log.warning("%s", unknown_fields_told(path, config))
        length = resolve_length(config, max_model_len)
        config = without_idle_scale(config, length)
        rotary = main_table(config, length)
        checkpoint = Checkpoint(open_weights(path, config.quantization, self.formats), self.on_progress)
        stored_as = arrange_for(family, config, checkpoint)
        kind: torch.dtype = getattr(torch, config.dtype if dtype == "auto" else dtype)
        config = tied_as_stored(config, checkpoint, kind)
        check_tensors(config, checkpoint)
        own, place = self.part.numbers(config), Place(torch.device(device), kind)
        weights = WeightReader(config, kernels, checkpoint, place, self.part, stored_as).read()
        checkpoint.finish()
        layers = layer_tables(config, length, place.device)
        model = family.decoder(own, kernels, weights, rotary.on(place.device), *([layers] if layers else []))
        if config.is_varied and not isinstance(model, VariedDecoder):
            raise ModelError(
                f"{path}: family {family.name} has layer_attention, value_norm, layer_scales or token_inputs, and its "
                f"decoder, {type(model).__name__}, does not compute them. Set its `decoder` to VariedDecoder, or to a "
                "class derived from it."
            )
        return model


def main_table(config: ModelConfig, length: int) -> RotaryTable:
    """Of `config.rope`, for heads of the layers that have it."""
    having = (layer for layer, rope in enumerate(config.layer_ropes) if rope == config.rope)
    sizes = (config.attention(layer).head_dim for layer in having)
    return rotary_table(msgspec.structs.replace(config, head_dim=next(sizes, config.head_dim)), length)


def layer_tables(config: ModelConfig, length: int, device: torch.device) -> list[RotaryTable | None]:
    """Of `config.layer_ropes`; equal ones are one object."""

    @cache
    def made(rope: RopeConfig, head_dim: int) -> RotaryTable:
        return rotary_table(msgspec.structs.replace(config, rope=rope, head_dim=head_dim), length).on(device)

    ropes = enumerate(config.layer_ropes)
    return [None if rope is None else made(rope, config.attention(layer).head_dim) for layer, rope in ropes]


def arrange_for(family: ModelFamily, config: ModelConfig, checkpoint: Checkpoint) -> Mapping[str, StoredAs]:
    """Give the tensors the names that the model reads, and take no notice of those that it never does. Gives
    `family.stored_as`."""
    if config.is_part:
        keep_text(checkpoint)
    stored_as = family.stored_as(config)
    arrange(checkpoint, stored_as)
    leave_out(checkpoint, family.left_out(config))
    return stored_as


def leave_out(checkpoint: Checkpoint, beginnings: tuple[str, ...]) -> None:
    """Take no notice of the tensors whose names begin so."""
    for name in checkpoint.names:
        if beginnings and name.startswith(beginnings):
            checkpoint.forget(name)


def unknown_fields_told(path: Path, config: ModelConfig) -> str:
    names = ", ".join(config.unknown_fields)
    return (
        f"{path / 'config.json'}: not used: {names}. transformers' class of family {config.family} does not read such "
        "fields either; if another program needs them for this model, its text will be wrong"
    )


def check_tensors(config: ModelConfig, checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors that are read, all of them checked; what is not read is reported or refused."""
    shapes = expected_shapes(config)
    checkpoint.check(shapes)
    report_unused(checkpoint, shapes)
    return shapes
