"""Files of models with a shared expert: its width, its gate, and whether the weights of experts sum to one."""

from __future__ import annotations

import conversion
import pytest
import torch
from safetensors.torch import load_file

from specserve.api import ModelError
from specserve.models.checkpoint import Checkpoint
from specserve.models.locate import locate_model
from specserve.models.read_config import read_config
from specserve_gguf.source import Gguf
from specserve_workbench.testing.toy import write_checkpoint

GATE = "model.layers.1.mlp.shared_expert_gate.weight"


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def directory(tmp_path, family, kind="F32", extra=None, **changes):
    original = write_checkpoint(tmp_path / "model", architecture=family, num_experts_per_tok=2, **changes)
    return locate_model(str(conversion.convert(original, tmp_path / "model.gguf", kind, extra=extra)))


@pytest.mark.parametrize("as_vector", [True, False])
def test_a_gate_may_be_a_vector_or_a_matrix_of_one_row(tmp_path, monkeypatch, as_vector):
    def written(*asked):
        for each in converted(*asked):
            is_gate = as_vector and "ffn_gate_inp_shexp" in each.name
            yield each._replace(numbers=each.numbers.squeeze(0)) if is_gate else each

    converted = conversion.converted
    monkeypatch.setattr(conversion, "converted", written)
    found = Checkpoint(Gguf().open(directory(tmp_path, "qwen2_moe"))).take(GATE)
    assert found.shape == (1, 128)
    assert torch.equal(found, load_file(tmp_path / "model/model.safetensors")[GATE])


def test_quantised_files_keep_the_shared_expert_packed_and_its_gate_as_it_is(tmp_path):
    made = directory(tmp_path, "qwen2_moe", "Q8_0", moe_intermediate_size=64, shared_expert_intermediate_size=96)
    checkpoint = Checkpoint(Gguf().open(made))
    assert checkpoint.find("model.layers.1.mlp.shared_expert.down_proj.weight").quantised
    assert not checkpoint.find(GATE).quantised


def test_weights_of_experts_sum_to_one_where_the_file_says_so(tmp_path):
    assert not read_config(directory(tmp_path / "unsaid", "qwen2_moe")).experts.renormalised
    assert read_config(
        directory(tmp_path / "said", "qwen2_moe", extra={"expert_weights_norm": True})
    ).experts.renormalised


def test_a_granite_without_the_width_has_no_shared_expert(tmp_path):
    assert read_config(directory(tmp_path / "with", "granitemoeshared")).experts.shared_size == 56
    assert read_config(directory(tmp_path / "without", "granitemoe")).experts.shared_size is None


@pytest.mark.parametrize("family", ["qwen2_moe", "granitemoeshared"])
def test_a_width_that_is_none_is_refused_by_name(tmp_path, family):
    with pytest.raises(ModelError, match=r"moe\.expert_shared_feed_forward_length must be a whole number, at least 1"):
        directory(tmp_path, family, extra={"expert_shared_feed_forward_length": 0})
