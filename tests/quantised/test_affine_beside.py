"""Weights of 4 bits beside drafts and adapters, and of draft models."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from affine_checkpoints import Form, write_affine
from specserve.config import EngineConfig
from specserve_eagle.checkpoints import kind_of
from specserve_workbench.doctor.case import Case
from specserve_workbench.doctor.model_directory import weights as rows_of_weights
from specserve_workbench.testing.engines import make_engine, run, run_requests, verify_everything
from specserve_workbench.testing.requests import varied_requests
from specserve_workbench.testing.toy import write_checkpoint
from toy_adapters import lora_engine, under, write_adapters

FORMS = [Form("gptq", group_size=64), Form("gptq", ordered=True), Form("awq"), Form("pack-quantized", symmetric=True)]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("kernels", [(), ("cpu",)], ids=["torch", "cpu"])
def test_adapters_and_drafts_change_nothing_for_others(toy_model, tmp_path, form, kernels):
    path = write_affine(toy_model, tmp_path / "model", form).path
    adapters = write_adapters(tmp_path, toy_model, 3)
    requests, names = varied_requests(8), [None, *adapters] * 2
    beside = ("quantised", *kernels)
    engine, store = lora_engine(path, adapters, beside=(*beside, "ngram"), dtype="bfloat16")
    verify_everything(engine)
    together = run_requests(engine, under(store, requests, names)).decided()
    assert engine.metrics.num_draft_tokens > 0
    plain, store = lora_engine(path, adapters, beside=beside, dtype="bfloat16")
    for request in under(store, requests, names):
        assert run_requests(plain, [request]).decided()[request.request_id] == together[request.request_id]
    base = run(path, requests, plugins=beside, dtype="bfloat16").decided()
    same = [together[request.request_id] == base[request.request_id] for request in requests]
    assert same == [name is None for name in names]


def test_an_adapter_adds_to_the_numbers_that_the_integers_stand_for(toy_model, tmp_path):
    written = write_affine(toy_model, tmp_path / "model", FORMS[0])
    adapters = write_adapters(tmp_path, toy_model, 1)
    texts = []
    for path in (written.path, written.plain):
        engine, store = lora_engine(path, adapters, beside=("quantised",), dtype="float32")
        texts.append(run_requests(engine, under(store, varied_requests(4), [*adapters] * 4)).decided())
    assert texts[0] == texts[1]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_draft_model_may_be_stored_so(toy_model, tmp_path, form):
    path = write_affine(toy_model, tmp_path / "draft", form).path
    assert kind_of(path) == "standalone"
    options = {"plugins": ("eagle",), "plugin_options": {"eagle": {"model": str(path), "steps": 3}}}
    engine = verify_everything(make_engine(toy_model, **options).engine)
    drafted = run_requests(engine, varied_requests(6))
    assert drafted.decided() == run(toy_model, varied_requests(6)).decided()
    assert engine.metrics.num_accepted_tokens > 10


def test_it_is_served_with_the_default_plugins(toy_model, tmp_path):
    path = write_affine(toy_model, tmp_path / "model", FORMS[0]).path
    engine = make_engine(path, default_plugins=True).engine
    assert all(run_requests(engine, varied_requests(2)).tokens().values())


@pytest.mark.parametrize("family", ["phi3", "gemma2", "mixtral", "qwen3_moe"])
@pytest.mark.parametrize("form", [FORMS[0], FORMS[3]], ids=str)
def test_families_with_matrices_of_their_own_may_be_stored_so(tmp_path, family, form):
    """One for several projections, and those of experts."""
    written = write_affine(write_checkpoint(tmp_path / "source", architecture=family), tmp_path / "model", form)
    ours = run(written.path, varied_requests(4), plugins=("quantised",), dtype="float32")
    assert ours.decided() == run(written.plain, varied_requests(4), dtype="float32").decided()


def test_biases_of_zeros_are_passed_over(toy_model, tmp_path):
    """AutoGPTQ writes one for every map."""
    written = write_affine(toy_model, tmp_path / "model", FORMS[0])
    file = written.path / "model.safetensors"
    biases = {f"{stem}.bias": torch.zeros(len(each.scales)).half() for stem, each in written.numbers.items()}
    save_file(load_file(file) | biases, file)
    ours = run(written.path, varied_requests(2), plugins=("quantised",), dtype="float32")
    assert ours.decided() == run(written.plain, varied_requests(2), dtype="float32").decided()


@pytest.mark.parametrize(("form", "counted"), [(FORMS[0], "14 I4"), (FORMS[1], "F32")], ids=str)
def test_doctor_tells_what_the_files_hold(toy_model, tmp_path, form, counted):
    path = write_affine(toy_model, tmp_path / "model", form).path
    case = Case(EngineConfig(model=str(path)), None)
    (row,) = rows_of_weights(case)
    assert (row.status, counted in row.found) == ("ok", True)
    assert case.weights().stored == sum(tensor.nbytes for tensor in load_file(path / "model.safetensors").values())
