"""The worked example of weight formats, taken from its page: installed, served, and compared with safetensors."""

from __future__ import annotations

import importlib
import json

import numpy as np
import pytest
import torch
from doc_examples import check_page_types, install_page
from safetensors.torch import load_file, save_file

from specserve.config import EngineConfig
from specserve.engine.before_loading import check_before_loading
from specserve.errors import ModelError
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.loader import ModelLoader
from specserve.models.open_weights import BUILT_IN, open_weights
from specserve.protocols import QuantisedWeight
from specserve_workbench.doctor.case import Case
from specserve_workbench.doctor.model_directory import weights as rows_of_weights
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import drafter_plugin, make_engine, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests

PAGE = "weight_format.md"
MODULES = ("formats", "formats.plugin", "formats.npz", "formats.int8", "formats.compat")
DOWN = "model.layers.1.mlp.down_proj"


@pytest.fixture
def installed(site, monkeypatch):
    files = install_page(site, PAGE)
    for name in MODULES:
        monkeypatch.delitem(importlib.sys.modules, name, raising=False)
    return files


def write_int8(source, out, change=dict):
    """`source` as bitsandbytes stores it, and the same numbers in float32: two directories."""
    plain = out.with_name(f"{out.name}-plain")
    config = json.loads((source / "config.json").read_text())
    stored, stands_for = {}, {}
    for name, tensor in load_file(source / "model.safetensors").items():
        stored[name] = stands_for[name] = tensor.float()
        if name.endswith("_proj.weight"):
            largest = tensor.float().abs().amax(1)
            stored[name] = (tensor * 127 / largest[:, None]).round().to(torch.int8)
            stored[name.replace("weight", "SCB")] = largest
            stored[name.replace("weight", "weight_format")] = torch.tensor(0, dtype=torch.uint8)
            stands_for[name] = stored[name] * (largest[:, None] / 127)
    stored |= change()
    settings = {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False}
    for path, tensors, more in ((plain, stands_for, {}), (out, stored, {"quantization_config": settings})):
        path.mkdir()
        for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            if (source / file).exists():
                (path / file).write_bytes((source / file).read_bytes())
        (path / "config.json").write_text(json.dumps(config | {"torch_dtype": "float32"} | more))
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path / "model.safetensors")
    return out, plain


def as_npz(source, out, shards=1):
    """The directory `source` with the same weights in archives of numpy."""
    out.mkdir()
    for file in source.iterdir():
        if file.suffix != ".safetensors":
            (out / file.name).write_bytes(file.read_bytes())
    tensors = [(name, tensor.numpy()) for name, tensor in load_file(source / "model.safetensors").items()]
    for shard in range(shards):
        np.savez(out / f"weights{shard}.npz", **dict(tensors[shard::shards]))
    return out


@pytest.mark.parametrize("shards", [1, 3])
def test_a_model_in_npz_files_is_the_model_itself(installed, beside_ours, toy_model, tmp_path, shards):
    path = as_npz(toy_model, tmp_path / "npz", shards)
    given = {"default_plugins": True, "dtype": "bfloat16"}
    ours = run_requests(make_engine(path, **given).engine, varied_requests(8))
    theirs = run_requests(make_engine(toy_model, **given).engine, varied_requests(8))
    assert ours.decided() == theirs.decided()


@pytest.mark.parametrize("native", [False, True], ids=["torch", "native"])
def test_an_int8_model_is_what_its_integers_stand_for(installed, beside_ours, toy_model, tmp_path, native):
    path, plain = write_int8(toy_model, tmp_path / "int8")
    kernels = ("cpu",) if native else ()
    ours = run(path, varied_requests(8), plugins=("formats", *kernels), dtype="float32")
    theirs = run(plain, varied_requests(8), plugins=kernels, dtype="float32")
    assert ours.tokens() == theirs.tokens()


def test_its_integers_reach_the_kernels(installed, toy_model, tmp_path):
    path, plain = write_int8(toy_model, tmp_path / "int8")
    source = open_weights(path, json.loads((path / "config.json").read_text())["quantization_config"], formats())
    read = source.read(f"{DOWN}.weight")
    expected = load_file(plain / "model.safetensors")[f"{DOWN}.weight"]
    assert isinstance(read, QuantisedWeight)
    assert torch.equal(read.dense(), expected)
    assert torch.equal(source.read(f"{DOWN}.weight", slice(8, 40)).dense(), expected[8:40])


def formats():
    return [*BUILT_IN, *importlib.import_module("formats.plugin").weight_formats()]


def test_drafts_chunks_and_neighbours_change_nothing(installed, beside_ours, toy_model, tmp_path):
    path, _ = write_int8(toy_model, tmp_path / "int8")
    given = {"default_plugins": True, "dtype": "bfloat16"}
    requests = varied_requests(16)
    plain = run_requests(make_engine(path, **given, max_num_seqs=1, prefix_cache=False).engine, requests)
    noisy = NoisyDrafter(plain.tokens(), p=0.8, max_width=6, vocab_size=TOY_VOCAB)
    given |= {"extra": {"drafter": drafter_plugin(lambda: noisy)}, "max_num_batched_tokens": 24}
    drafted = run_requests(make_engine(path, **given).engine, requests)
    assert drafted.decided() == plain.decided()
    assert drafted.metrics.num_accepted_tokens > 20


def test_safetensors_are_read_where_both_are(installed, toy_model, tmp_path):
    path = as_npz(toy_model, tmp_path / "npz")
    (path / "model.safetensors").write_bytes((toy_model / "model.safetensors").read_bytes())
    (path / "weights0.npz").write_bytes(b"broken")
    assert make_engine(path, plugins=("formats",)).engine


def test_progress_ends_at_the_size_of_the_tensors(installed, toy_model, tmp_path):
    seen = []
    loader = ModelLoader(formats=formats(), on_progress=lambda done, total: seen.append((done, total)))
    for path in (as_npz(toy_model, tmp_path / "npz"), write_int8(toy_model, tmp_path / "int8")[0]):
        loader.load(path, kernels=TorchKernels())
        assert seen[-1][0] == seen[-1][1] > 600_000
        assert all(done < total for done, total in seen[:-1])
        seen.clear()


def test_without_the_plugin_a_format_is_refused_by_name(toy_model, tmp_path):
    with pytest.raises(
        ModelError, match=r"has no weights: neither model.safetensors nor model.safetensors.index.json\."
    ):
        make_engine(as_npz(toy_model, tmp_path / "npz"))
    with pytest.raises(ModelError, match=r"of quant_method 'bitsandbytes'; allowed: none without a plugin\. The"):
        make_engine(write_int8(toy_model, tmp_path / "int8")[0])


def test_an_error_names_all_formats_that_are_read(installed, toy_model, tmp_path):
    path = as_npz(toy_model, tmp_path / "npz")
    (path / "weights0.npz").unlink()
    with pytest.raises(ModelError, match=r"nor model.safetensors.index.json nor \*.npz\. Download"):
        make_engine(path, plugins=("formats",))
    config = json.loads((path / "config.json").read_text()) | {"quantization_config": {"quant_method": "awq"}}
    (path / "config.json").write_text(json.dumps(config))
    allowed = (
        r"of quant_method 'awq'; allowed: bitsandbytes \(load_in_8bit\)\. .* pip install specserve-plugin-quantised"
    )
    with pytest.raises(ModelError, match=allowed):
        make_engine(path, plugins=("formats",))


def test_the_check_before_loading_leaves_files_to_the_plugin(installed, toy_model, tmp_path):
    path = as_npz(toy_model, tmp_path / "npz")
    check_before_loading(EngineConfig(model=str(path), plugins=("formats",)))
    with pytest.raises(ModelError, match="has no weights"):
        check_before_loading(EngineConfig(model=str(path), no_plugins=("formats",)))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is no .npz archive: File is not a zip file"), (b"PK\x03\x04 and no more", "is no .npz archive")],
)
def test_a_broken_archive_is_named(installed, toy_model, tmp_path, content, message):
    path = as_npz(toy_model, tmp_path / "npz")
    (path / "weights0.npz").write_bytes(content)
    with pytest.raises(ModelError, match=f"weights0.npz {message}"):
        make_engine(path, plugins=("formats",))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({f"{DOWN}.SCB": torch.ones(320)}, r"SCB has shape \[320\], but .*weight says \[128\]"),
        ({f"{DOWN}.SCB": torch.ones(128).half()}, "SCB has type F16; allowed: F32"),
        ({f"{DOWN}.weight": torch.zeros(128, 320)}, "weight has type F32; allowed: I8"),
        ({f"{DOWN}.weight_format": torch.tensor(1).byte()}, "weight_format is not 0"),
    ],
    ids=str,
)
def test_tensors_that_do_not_fit_are_refused_by_name(installed, toy_model, tmp_path, tensors, message):
    path, _ = write_int8(toy_model, tmp_path / "int8", change=lambda: tensors)
    with pytest.raises(ModelError, match=message):
        make_engine(path, plugins=("formats",))


@pytest.mark.parametrize("settings", [{"load_in_8bit": False}, {"load_in_4bit": True}], ids=str)
def test_settings_that_are_not_read_are_refused_by_name(installed, toy_model, tmp_path, settings):
    path, _ = write_int8(toy_model, tmp_path / "int8")
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"] |= settings
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"config.json: quantization_config: only weights with load_in_8bit = true"):
        make_engine(path, plugins=("formats",))


def test_doctor_reads_the_formats(installed, toy_model, tmp_path):
    (row,) = rows_of_weights(Case(EngineConfig(model=str(as_npz(toy_model, tmp_path / "npz"))), None))
    assert (row.status, "F32" in row.found) == ("ok", True)
    path, _ = write_int8(toy_model, tmp_path / "int8")
    case = Case(EngineConfig(model=str(path)), None)
    (row,) = rows_of_weights(case)
    assert (row.status, "14 I8" in row.found) == ("ok", True)
    assert case.weights().stored == sum(t.nbytes for t in load_file(path / "model.safetensors").values())


def test_the_page_is_well_typed(tmp_path):
    check_page_types(PAGE, tmp_path)
