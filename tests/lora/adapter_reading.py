"""Reads adapters for a toy model, as the plugin does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from toy_adapters import linear_shapes

from specserve_lora.adapter import AdapterReader
from specserve_lora.adapter_dir import unconfined_dir
from specserve_lora.errors import AdapterError
from specserve_lora.modules import Module

if TYPE_CHECKING:
    from pathlib import Path


def reader_for(model: Path, **limits: Any) -> AdapterReader:
    modules = {p: Module(p, p, slice(0, rows), columns, rows) for p, (rows, columns) in linear_shapes(model).items()}
    options = {"dtype": torch.float32, "device": torch.device("cpu"), "max_rank": 64, "max_bytes": 2**30}
    return AdapterReader(modules, **(options | limits))


def refusal(model: Path, path: Path, **limits: Any) -> str:
    with pytest.raises(AdapterError) as caught:
        reader_for(model, **limits).read(unconfined_dir(str(path)))
    assert caught.value.status == 400
    assert caught.value.param == "lora_path"
    return str(caught.value)
