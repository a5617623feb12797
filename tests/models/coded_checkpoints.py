"""Models whose weights have few bits, in a format of the tests, and the same numbers in a dense checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from zlib import crc32

import torch
from coded_forms import FORMS, TABLE, Form, Numbers, coded, rows_of
from safetensors.torch import save_file

from specserve.api.models import ALL_ROWS, QuantMethod, WeightSource, dense
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve.models.open_weights import BUILT_IN, open_weights
from specserve.protocols.quantised import Activations, Factors, QuantisedWeight

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

STEPS = Numbers(torch.float16, torch.uint8, 8)
MIXED: dict[str, Form] = {
    "q_proj": Form(tuple(range(16)), 32, STEPS, STEPS),
    "k_proj": Form(tuple(range(16)), 32, STEPS, STEPS),
    "v_proj": FORMS["6 bits, signed steps"],
    "o_proj": Form(tuple(range(32)), 32, STEPS, STEPS),
    "gate_proj": Form(TABLE, 32, Numbers(torch.float16)),
    "up_proj": FORMS["4 bits"],
    "down_proj": FORMS["6 bits, signed steps"],
    "embed_tokens": FORMS["6 bits, signed steps"],
    "lm_head": FORMS["8 bits"],
}
"""By the last part of a map's name."""


def of_size(weight: QuantisedWeight, size: float) -> QuantisedWeight:
    """The same weight times the power of two that brings the mean of its squares near size squared."""
    factor = 2.0 ** torch.log2(size / weight.dense().float().std()).round().item()

    def scaled(numbers: Tensor | Factors) -> Tensor | Factors:
        return numbers._replace(units=numbers.units * factor) if isinstance(numbers, Factors) else numbers * factor

    return weight.with_numbers(weight.integers, scaled)


class CodedWeights(QuantMethod):
    """Random weights of these forms, by name, in place of those that are stored; those of other names are as stored."""

    name = "coded"

    def __init__(self, forms: Mapping[str, Form], activations: Activations = "int8") -> None:
        self.forms, self.activations = forms, activations

    def open(self, stored: WeightSource, settings: object, where: str) -> WeightSource:
        return CodedSource(self, stored)

    def form(self, name: str) -> Form | None:
        return self.forms.get(name.removesuffix(".weight").rpartition(".")[2]) if name.endswith(".weight") else None


class CodedSource(WeightSource):
    def __init__(self, method: CodedWeights, stored: WeightSource) -> None:
        self.path, self.method, self.stored = stored.path, method, stored
        self.tensors = {
            name: tensor._replace(dtype="CODED", quantised=True) if method.form(name) else tensor
            for name, tensor in stored.tensors.items()
        }

    def read(self, name: str, rows: slice = ALL_ROWS) -> Tensor | QuantisedWeight:
        form, seed = self.method.form(name), crc32(name.encode())
        if form is None:
            return self.stored.read(name, rows)
        size = dense(self.stored.read(name)).float().std().item()
        weight = coded(form, *self.tensors[name].shape, seed=seed, activations=self.method.activations)
        return rows_of(of_size(weight, size), rows)


def write_coded(source: Path, out: Path) -> Path:
    """A model that `formats` read, from one in safetensors."""
    return changed_copy(source, out, {"quantization_config": {"quant_method": "coded"}})


def write_dense(source: Path, out: Path, method: CodedWeights) -> Path:
    """The same numbers in float32."""
    opened = method.open(open_weights(source), {}, "")
    changed_copy(source, out, {"torch_dtype": "float32"})
    save_file({name: dense(opened.read(name)).float().contiguous() for name in opened.tensors},
              out / "model.safetensors", {"format": "pt"})  # fmt: skip
    return out


def changed_copy(source: Path, out: Path, config: Mapping[str, object]) -> Path:
    out.mkdir()
    for file in source.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    (out / "config.json").write_text(json.dumps(json.loads((source / "config.json").read_text()) | config))
    return out


def formats(method: CodedWeights) -> tuple[Any, ...]:
    return (*BUILT_IN, method)


def format_plugin(method: CodedWeights) -> dict[str, InProcessPlugin]:
    """`extra` of an engine that reads the format."""

    class Plugin:
        @hookimpl
        def weight_formats(self) -> list[QuantMethod]:
            return [method]

    declaration = PluginDeclaration(name="coded", provides={"model.weights": "a test's format"})
    return {"coded": InProcessPlugin(Plugin(), declaration)}
