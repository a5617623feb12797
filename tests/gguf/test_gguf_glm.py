"""What files of GLM cannot say is refused by name."""

from __future__ import annotations

import pytest
from conversion import convert

from specserve.api import ModelError
from specserve.models.locate import locate_model
from specserve.models.read_config import read_config
from specserve_gguf.source import Gguf
from specserve_workbench.testing.toy import write_checkpoint


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("expert_gating_func", 1, r"glm4moe\.expert_gating_func must be 2, by sigmoids; got 1"),
        ("expert_gating_func", [1, 1, 1], r"glm4moe\.expert_gating_func must be 2, by sigmoids"),
        ("expert_gating_func", [2, 3], r"glm4moe\.expert_gating_func must be a whole number"),
        ("leading_dense_block_count", 513, r"glm4moe\.leading_dense_block_count must be a whole number, at most 512"),
        ("nextn_predict_layers", 2, r"glm4moe\.nextn_predict_layers must be a whole number, at most 1; got 2"),
        ("expert_group_count", 4, "n_group must be 1, experts in groups are not served by this family; got 4"),
        ("expert_used_count", 7, r"num_experts_per_tok must be .*; got 7"),
    ],
)
def test_what_a_file_cannot_say_is_refused_by_name(tmp_path, monkeypatch, key, value, message):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = write_checkpoint(tmp_path / "model", architecture="glm4_moe")
    with pytest.raises(ModelError, match=message):
        read_config(locate_model(str(convert(model, tmp_path / "model.gguf", extra={key: value}))))


@pytest.mark.parametrize("extra", [{"expert_gating_func": 0}, {"rope.dimension_sections": [8, 4, 4, 0]}])
def test_what_changes_nothing_in_text_is_read_without_a_warning(tmp_path, monkeypatch, caplog, extra):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = write_checkpoint(tmp_path / "model", architecture="glm4_moe", first_k_dense_replace=1)
    made = locate_model(str(convert(model, tmp_path / "model.gguf", extra=extra)))
    Gguf().open(made)
    assert "not used" not in caplog.text
    assert read_config(made).experts == read_config(model).experts
