"""Random adapters in PEFT's format, written without PEFT, and engines that serve them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from safetensors.torch import save_file

from specserve.models.read_config import read_config
from specserve.models.tensor_names import expected_shapes
from specserve_workbench.testing.engines import make_engine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from specserve.types import GenerateRequest

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def linear_shapes(model: Path) -> dict[str, tuple[int, int]]:
    """(out, in) by module path."""
    shapes = expected_shapes(read_config(model))
    linear = ("_proj.weight", "mlp.gate.weight")
    return {n.removesuffix(".weight"): s for n, s in shapes.items() if n.endswith(linear)}


def tensors_of(shapes: Mapping[str, tuple[int, int]], rank: int, *, seed: int = 0, size: float = 0.3) -> dict[str, Any]:
    """Pairs for these modules. `size` is about how large their sum is beside what the model computes."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for path, (rows, columns) in shapes.items():
        down = torch.randn(rank, columns, generator=generator) / columns**0.5
        up = torch.randn(rows, rank, generator=generator) * size / rank**0.5
        tensors |= {f"base_model.model.{path}.lora_A.weight": down, f"base_model.model.{path}.lora_B.weight": up}
    return tensors


def write_adapter(
    path: Path,
    model: Path,
    *,
    rank: int = 4,
    targets: Iterable[str] = ALL,
    seed: int = 0,
    size: float = 0.3,
    dtype: torch.dtype = torch.float32,
    tensors: Mapping[str, Any] | None = None,
    **config: Any,
) -> Path:
    """An adapter directory; `config` overrides adapter_config.json, `tensors` the file's."""
    path.mkdir(parents=True, exist_ok=True)
    targets = list(targets)
    raw = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": targets, "bias": "none"} | config
    (path / "adapter_config.json").write_text(json.dumps(raw))
    chosen = {p: s for p, s in linear_shapes(model).items() if p.rpartition(".")[2] in targets}
    if tensors is None:
        tensors = {name: t.to(dtype) for name, t in tensors_of(chosen, rank, seed=seed, size=size).items()}
    save_file(dict(tensors), path / "adapter_model.safetensors")
    return path


def write_adapters(path: Path, model: Path, count: int) -> dict[str, Path]:
    """`count` of mixed ranks and targets by name."""
    kinds = [("q_proj", "v_proj"), ALL, ("o_proj",), ("gate_proj", "up_proj", "down_proj"), ("k_proj", "down_proj")]
    ranks = (1, 8, 3, 16, 33, 2)
    return {
        f"a{i}": write_adapter(path / f"a{i}", model, rank=ranks[i % 6], targets=kinds[i % 5], seed=i, size=0.5)
        for i in range(count)
    }


def lora_options(adapters: Mapping[str, Path], **settings: Any) -> dict[str, Any]:
    return {"lora": {"adapters": {name: str(path) for name, path in adapters.items()}, **settings}}


def lora_engine(model, adapters, drafter=None, *, beside=(), settings=None, **options):
    """`settings`: lora's options; `beside`: other plugins. Returns the assembled engine and lora's plugin."""
    tables = lora_options(adapters, **{"max_loaded": 64} | (settings or {})) | options.pop("plugin_options", {})
    assembled = make_engine(model, drafter, plugins=("lora", *beside), plugin_options=tables, **options)
    return assembled.engine, lora_of(assembled.engine)


def lora_of(engine: Any) -> Any:
    """The store of an engine's lora plugin."""
    (observer,) = [o for o in engine.parts.observers if type(o).__name__ == "LoraObserver"]
    return observer.store


def under(store: Any, requests: Iterable[GenerateRequest], names: Iterable[str | None]) -> list[GenerateRequest]:
    """Each request under the adapter of its name, which stays pinned; None and "" are the base model."""
    found = []
    for request, name in zip(requests, names, strict=True):
        adapter = store.pin(name).id if name else ""
        found.append(msgspec.structs.replace(request, adapter=adapter))
    return found
