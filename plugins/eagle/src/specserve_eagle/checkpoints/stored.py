"""The tensors of a draft model, quantised or not, in every format that an installed plugin reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.api.models import installed_formats
from specserve.models.formats.safetensors import Safetensors
from specserve.models.open_weights import BUILT_IN, open_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from specserve.api.models import WeightFormat, WeightSource


def open_stored(path: Path, quantization: Mapping[str, Any] | None) -> WeightSource:
    """The tensors in directory `path`. Raises ModelError."""
    return open_weights(path, quantization, formats_for(path, quantization))


def formats_for(path: Path, quantization: Mapping[str, Any] | None) -> Sequence[WeightFormat]:
    """For directory `path`. quantization: `quantization_config` of config.json. Plugins are loaded only for what they
    read."""
    return BUILT_IN if not quantization and Safetensors().files(path) else installed_formats()
