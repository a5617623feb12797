"""Everything that can be wrong with an adapter's two files, each with its own words; and what may be odd."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file
from toy_adapters import linear_shapes, tensors_of, write_adapter

from specserve.confine import OutsideRootError
from specserve_lora.adapter import AdapterReader
from specserve_lora.adapter_dir import confined_dir, unconfined_dir
from specserve_lora.errors import AdapterError
from specserve_lora.modules import Module
from specserve_lora.safetensors_file import SafetensorsFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Q = "base_model.model.model.layers.0.self_attn.q_proj"


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


@pytest.mark.parametrize(("config", "said"), [
    ({"peft_type": "IA3"}, "peft_type must be LORA; got 'IA3'"),
    ({"peft_type": None}, "peft_type must be LORA"),
    ({"use_dora": True}, "use_dora = True cannot be served: DoRA"),
    ({"use_qalora": True}, "use_qalora = True cannot be served"),
    ({"bias": "all"}, "bias = all cannot be served"),
    ({"bias": "lora_only"}, "bias = lora_only"),
    ({"lora_bias": True}, "lora_bias = True"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save = ['lm_head'] cannot be served"),
    ({"trainable_token_indices": [1, 2]}, "trainable_token_indices = [1, 2]"),
    ({"target_parameters": ["mlp.x"]}, "target_parameters"),
    ({"fan_in_fan_out": True}, "fan_in_fan_out"),
    ({"layer_replication": [[0, 1]]}, "layer_replication"),
    ({"alora_invocation_tokens": [3]}, "alora_invocation_tokens"),
    ({"kasa_config": {"a": 1}}, "kasa_config"),
    ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights = pissa_niter_4"),
    ({"r": 0}, "Expected `int` >= 1 - at `$.r`"),
    ({"r": "8"}, "Expected `int`, got `str` - at `$.r`"),
    ({"r": 65}, "has rank 65, and lora.max_rank allows 64"),
    ({"lora_alpha": None}, "at `$.lora_alpha`"),
    ({"target_modules": None}, "at `$.target_modules`"),
    ({"target_modules": "q_proj", "layers_to_transform": 1}, "need target_modules to be a list"),
    ({"target_modules": "x" * 5000}, "length <= 4096"),
    ({"rank_pattern": {"q_proj": 0}}, "Expected `int` >= 1"),
    ({"use_rslora": 3}, "at `$.use_rslora`"),
    ({"lora_alpha": 10**400}, "adapter_config.json"),
], ids=str)  # fmt: skip
def test_a_configuration_that_cannot_be_served_is_refused(toy_model, tmp_path, config, said):
    write_adapter(tmp_path, toy_model, targets=["q_proj"], **config)
    assert said in refusal(toy_model, tmp_path)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff{}", b"[" * 10**5, b'{"peft_type": NaN}', b" " * (5 * 2**20)])
def test_a_configuration_that_is_no_json_object_is_refused(toy_model, tmp_path, text):
    write_adapter(tmp_path, toy_model)
    (tmp_path / "adapter_config.json").write_bytes(text)
    assert "adapter_config.json" in refusal(toy_model, tmp_path)


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


def header(content: Any, data: bytes = b"") -> bytes:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(raw)) + raw + data


ENTRY = {"dtype": "F32", "shape": [4, 128], "data_offsets": [0, 2048]}


@pytest.mark.parametrize("content", [
    b"", b"1234567", b"\xff" * 8, b"\xff" * 64, struct.pack("<Q", 100) + b"{}", header(b"[]"), header(b"{"),
    header(b"\xff\xff"), header({"a": 1}), header({"a": ENTRY}), header({"a": ENTRY}, bytes(2047)),
    header({"a": ENTRY | {"shape": [4, 127]}}, bytes(2048)), header({"a": ENTRY | {"shape": [-4, -128]}}, bytes(2048)),
    header({"a": ENTRY | {"data_offsets": [2048, 0]}}, bytes(2048)),
    header({"a": ENTRY | {"data_offsets": [4, 2052]}}, bytes(2048)),
    header({"a": ENTRY | {"data_offsets": [2**63, 2**63 + 2048]}}, bytes(2048)),
    header({"a": ENTRY | {"shape": [2**62, 2**62]}}, bytes(2048)),
    header(b"[" * 10**5), header({"a": {"dtype": "F32"}}), b"\x80\x02}q\x00." + bytes(100),
    header({"a": ENTRY}, bytes(2049)), header({"a": ENTRY, "b": ENTRY}, bytes(2048)),
], ids=range(22))  # fmt: skip
def test_a_file_that_is_no_safetensors_file_is_refused(toy_model, tmp_path, content):
    write_adapter(tmp_path, toy_model)
    (tmp_path / "adapter_model.safetensors").write_bytes(content)
    assert "is truncated or not a safetensors file" in refusal(toy_model, tmp_path)


@pytest.mark.parametrize("left", [0, 5, 100, 3000, -1])
def test_a_file_that_was_cut_is_refused(toy_model, tmp_path, left):
    file = write_adapter(tmp_path, toy_model) / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:left])
    assert "is truncated or not a safetensors file" in refusal(toy_model, tmp_path)


def test_a_file_that_is_cut_while_it_is_read_is_refused(toy_model, tmp_path):
    path = write_adapter(tmp_path, toy_model) / "adapter_model.safetensors"
    with path.open("rb") as opened:
        file = SafetensorsFile(opened, "here")
        os.truncate(path, path.stat().st_size - 1)
        with pytest.raises(AdapterError, match=r"here is truncated .* ends after"):
            file.read()


def test_a_pickle_is_never_read(toy_model, tmp_path):
    write_adapter(tmp_path, toy_model)
    (tmp_path / "adapter_model.safetensors").rename(tmp_path / "adapter_model.bin")
    assert "is a pickle, which runs code of whoever wrote it and is never read" in refusal(toy_model, tmp_path)


def test_what_is_no_regular_file_is_not_opened(toy_model, tmp_path):
    write_adapter(tmp_path, toy_model)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / name).unlink()
        assert f"there is no file {tmp_path}/{name}" in refusal(toy_model, tmp_path)
        os.mkfifo(tmp_path / name)
        assert f"{name} is not a regular file" in refusal(toy_model, tmp_path)
        (tmp_path / name).unlink()
        (tmp_path / name).mkdir()
        assert f"{name} is not a regular file" in refusal(toy_model, tmp_path)
        (tmp_path / name).rmdir()
        write_adapter(tmp_path, toy_model)


def test_a_link_inside_an_adapter_does_not_lead_out_of_the_root(toy_model, tmp_path):
    (tmp_path / "root").mkdir()
    inside, outside = (write_adapter(tmp_path / p, toy_model) for p in ("root/a", "outside"))
    (inside / "adapter_config.json").unlink()
    (inside / "adapter_config.json").symlink_to(outside / "adapter_config.json")
    root = (tmp_path / "root").resolve()
    with pytest.raises(OutsideRootError, match=r"is not inside lora\.root"):
        reader_for(toy_model).read(confined_dir("a", root))
    assert reader_for(toy_model).read(unconfined_dir(str(inside)))


def test_an_adapter_larger_than_all_memory_is_refused_before_it_is_read(toy_model, tmp_path):
    write_adapter(tmp_path, toy_model)
    file = tmp_path / "adapter_model.safetensors"
    file.unlink()
    assert "and lora.max_memory allows 1000 for all adapters" in refusal(toy_model, tmp_path, max_bytes=1000)


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


def test_the_version_follows_both_files_and_nothing_else(toy_model, tmp_path):
    def version(path: str, **config: Any) -> str:
        write_adapter(tmp_path / path, toy_model, **config)
        return reader_for(toy_model).read(unconfined_dir(str(tmp_path / path))).version

    first = version("a")
    assert version("b") == first
    assert len({first, version("c", seed=1), version("d", lora_alpha=8), version("a", seed=2)}) == 4


def test_unknown_fields_are_ignored_and_named(toy_model, tmp_path, caplog):
    write_adapter(tmp_path, toy_model, brand_new=True, lora_dropout=0.1, eva_config={"rho": 2})
    assert reader_for(toy_model).read(unconfined_dir(str(tmp_path)))
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.endswith("were ignored: brand_new")
