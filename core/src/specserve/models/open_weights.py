"""Which format a model's weights are in, and its tensors. Knows nothing about what the tensors mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.errors import ModelError
from specserve.models.formats.safetensors import Safetensors
from specserve.models.weight_files import weight_files
from specserve.models.weight_format import DOWNLOAD_AGAIN, QuantMethod

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from specserve.models.weight_format import WeightFormat, WeightSource

BUILT_IN: tuple[WeightFormat, ...] = (Safetensors(),)
BY_QUANTISED = ("gptq", "awq", "compressed-tensors", "mxfp4")
"""Methods that the plugin of that name reads."""


def open_weights(
    path: Path, quantization: Mapping[str, Any] | None = None, formats: Sequence[WeightFormat] = BUILT_IN
) -> WeightSource:
    """The tensors of the model in directory `path`. quantization: `quantization_config` of its config.json. Raises
    ModelError."""
    where = str(path / "config.json")
    method = quant_method(quantization, formats, where) if quantization else None
    try:
        source = weight_files(path, formats).open(path)
        return source if method is None else method.open(source, quantization or {}, where)
    except OSError as error:
        raise ModelError(f"{path}: its weights cannot be read: {error}. {DOWNLOAD_AGAIN}") from None


def quant_method(quantization: Mapping[str, Any], formats: Sequence[WeightFormat], where: str) -> QuantMethod:
    """The method that reads such weights. ModelError where there is none."""
    methods = {each.name: each for each in formats if isinstance(each, QuantMethod)}
    name = quantization.get("quant_method", "unknown")
    if isinstance(name, str) and name in methods:
        return methods[name]
    allowed = " or ".join(f"{each.name}{f' ({each.reads})' if each.reads else ''}" for each in methods.values())
    raise ModelError(
        f"{where}: quantised weights of quant_method {name!r}; allowed: {allowed or 'none without a plugin'}. The "
        f"plugin quantised reads {', '.join(BY_QUANTISED)}: pip install specserve-plugin-quantised, and do not switch "
        "it off. Or use the unquantised checkpoint."
    )
