"""The tensors of an adapter: those that do not fit are refused, the others are scaled and converted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from adapter_reading import reader_for, refusal
from safetensors.torch import save_file

from specserve_lora.adapter_dir import unconfined_dir
from toy_adapters import linear_shapes, tensors_of, write_adapter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Q = "base_model.model.model.layers.0.self_attn.q_proj"


def rewrite(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path, Path], None]:
    def write(path: Path, model: Path) -> None:
        shapes = {p: s for p, s in linear_shapes(model).items() if p.endswith("q_proj")}
        tensors = tensors_of(shapes, 4)
        change(tensors)
        save_file({name: t.contiguous() for name, t in tensors.items()}, path / "adapter_model.safetensors")

    return write


def to_value(value: float) -> Callable[[dict[str, Any]], None]:
    return lambda t: t[f"{Q}.lora_B.weight"].__setitem__((3, 1), value)


TENSORS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no A": (lambda t: t.pop(f"{Q}.lora_A.weight"), f"tensor {Q}.lora_A.weight is missing"),
    "no B": (lambda t: t.pop(f"{Q}.lora_B.weight"), f"tensor {Q}.lora_B.weight is missing"),
    "no pair": (lambda t: [t.pop(f"{Q}.lora_{x}.weight") for x in "AB"], "is missing"),
    "rank": (
        lambda t: t.update({f"{Q}.lora_{x}.weight": torch.ones(s) for x, s in (("A", (5, 128)), ("B", (128, 5)))}),
        "has shape [5, 128]; rank and model say [4, 128]",
    ),
    "inputs": (lambda t: t.update({f"{Q}.lora_A.weight": torch.ones(4, 64)}), "has shape [4, 64]"),
    "outputs": (lambda t: t.update({f"{Q}.lora_B.weight": torch.ones(64, 4)}), "has shape [64, 4]"),
    "transposed": (lambda t: t.update({f"{Q}.lora_A.weight": torch.ones(128, 4)}), "has shape [128, 4]"),
    "flat": (lambda t: t.update({f"{Q}.lora_A.weight": torch.ones(512)}), "has shape [512]"),
    "extra": (lambda t: t.update({f"{Q}.other": torch.ones(1)}), "adapter_config.json targets no such module"),
    "extra layer": (
        lambda t: t.update({k.replace("layers.0", "layers.2"): v.clone() for k, v in t.items() if "layers.0" in k}),
        "2 tensors that cannot be served",
    ),
    "embedding": (
        lambda t: t.update({"base_model.model.model.embed_tokens.lora_embedding_A": torch.ones(4, 8)}),
        "LoRA of embeddings is not supported",
    ),
    "dora": (lambda t: t.update({f"{Q}.lora_magnitude_vector": torch.ones(128)}), "DoRA is not supported"),
    "bias": (lambda t: t.update({f"{Q}.lora_B.bias": torch.ones(128)}), "biases are not supported"),
    "head": (lambda t: t.update({"base_model.model.lm_head.weight": torch.ones(2)}), "lm_head are not supported"),
    "type": (lambda t: t.update({f"{Q}.lora_A.weight": torch.ones(4, 128, dtype=torch.int8)}), "has type I8; allowed"),
    "double": (lambda t: t.update({f"{Q}.lora_A.weight": torch.ones(4, 128).double()}), "has type F64; allowed"),
    "nan": (to_value(float("nan")), f"tensor {Q}.lora_B.weight has values that are not finite"),
    "inf": (to_value(float("-inf")), "has values that are not finite"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "said"), TENSORS.values(), ids=TENSORS)
def test_tensors_that_do_not_fit_are_refused(toy_model, tmp_path, change, said):
    write_adapter(tmp_path, toy_model, targets=["q_proj"])
    rewrite(change)(tmp_path, toy_model)
    assert said in refusal(toy_model, tmp_path)


def test_values_that_the_models_dtype_cannot_hold_are_refused(toy_model, tmp_path):
    write_adapter(tmp_path, toy_model, lora_alpha=1e9)
    assert reader_for(toy_model).read(unconfined_dir(str(tmp_path)))
    assert "not finite as torch.float16" in refusal(toy_model, tmp_path, dtype=torch.float16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_scale_is_multiplied_in_float32_and_rounded_once(toy_model, tmp_path, dtype):
    write_adapter(tmp_path, toy_model, targets=["q_proj"], dtype=dtype, lora_alpha=3.3)
    shapes = {p: s for p, s in linear_shapes(toy_model).items() if p.endswith("q_proj")}
    expected = {name: t.to(dtype) for name, t in tensors_of(shapes, 4).items()}
    for kind in (torch.float32, torch.bfloat16):
        adapter = reader_for(toy_model, dtype=kind).read(unconfined_dir(str(tmp_path)))
        (part,) = adapter.weights["model.layers.0.self_attn.q_proj"]
        assert torch.equal(part.down, expected[f"{Q}.lora_A.weight"].to(kind))
        assert torch.equal(part.up, (expected[f"{Q}.lora_B.weight"].float() * (3.3 / 4)).to(kind))
        held = [t for parts in adapter.weights.values() for p in parts for t in (p.down, p.up)]
        assert adapter.num_bytes == sum(t.nbytes for t in held)
        assert all(t.untyped_storage().nbytes() == t.nbytes for t in held), "the file's buffer is kept alive"
