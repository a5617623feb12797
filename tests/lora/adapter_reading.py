"""Reads adapters for a toy model, as the plugin does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from specserve_lora.adapter import AdapterReader
from specserve_lora.adapter_dir import unconfined_dir
from specserve_lora.errors import AdapterError
from specserve_lora.modules import Module, Modules
from specserve_lora.stored_names import Place
from toy_adapters import linear_shapes

if TYPE_CHECKING:
    from pathlib import Path


def reader_for(model: Path, **limits: Any) -> AdapterReader:
    linear = {path: module(path, *shape) for path, shape in linear_shapes(model).items()}
    modules = Modules(linear, {found.key: found for found in linear.values()})
    options = {"dtype": torch.float32, "device": torch.device("cpu"), "max_rank": 64, "max_bytes": 2**30}
    return AdapterReader(modules, **(options | limits))


def module(path: str, rows: int, columns: int) -> Module:
    """A projection of its own."""
    return Module(path, "weight", (Place(path, slice(0, rows)),), columns, rows)


def refusal(model: Path, path: Path, **limits: Any) -> str:
    with pytest.raises(AdapterError) as caught:
        reader_for(model, **limits).read(unconfined_dir(str(path)))
    assert caught.value.status == 400
    assert caught.value.param == "lora_path"
    return str(caught.value)
