"""What a GLM with experts says in its config.json that is not served or cannot be; a MiMo is a Qwen2."""

from __future__ import annotations

import pytest
import torch
from changed_files import change_json
from naive_forward import forward, load

from specserve.errors import ModelError
from specserve.models.read_config import read_config
from specserve_workbench.testing.toy import write_checkpoint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_group": 2}, "n_group must be 1, experts in groups are not.*got 2. The plugin transformers computes them"),
        ({"topk_group": 3}, "topk_group must be 1"),
        ({"first_k_dense_replace": -1}, "first_k_dense_replace must be a number of layers; got -1"),
        ({"num_experts_per_tok": 7}, "num_experts_per_tok must be at most the number of experts, 6; got 7"),
        ({"num_local_experts": 5}, "n_routed_experts and num_local_experts must be the same; got"),
        ({"n_shared_experts": 0}, "n_shared_experts must be a whole number, at least 1; got 0"),
        ({"routed_scaling_factor": 0}, "routed_scaling_factor must be a positive number; got 0"),
        ({"n_routed_experts": "6"}, "n_routed_experts must be a whole number, at least 1; got '6'"),
    ],
    ids=str,
)
def test_what_is_not_served_is_refused_by_name(tmp_path, changes, message):
    path = write_checkpoint(tmp_path, architecture="glm4_moe")
    change_json(path / "config.json", **changes)
    with pytest.raises(ModelError, match=message):
        read_config(path)


def test_a_mimo_has_the_logits_of_a_qwen2(tmp_path):
    tokens = [(11 * i + 3) % 300 for i in range(70)]
    mimo, qwen2 = (write_checkpoint(tmp_path / name, architecture=name) for name in ("mimo", "qwen2"))
    assert read_config(mimo).family == "mimo"
    assert torch.equal(forward(load(mimo), tokens), forward(load(qwen2), tokens))
