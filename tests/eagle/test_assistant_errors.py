"""What is wrong with an assistant, or does not fit its target, stops the start by name."""

from __future__ import annotations

import json
import re

import pytest
import torch
from eagle_engines import eagle_options
from safetensors.torch import load_file
from toy_assistants import CLUSTERED, FULL, SLIDING, WEIGHTS, change_assistant, write_assistant, write_gemma4

from specserve.config import EngineConfig
from specserve.errors import ConfigError, ModelError
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.loader import load_model
from specserve.models.served_model import ServedModel
from specserve_eagle.assistant.load import load_assistant
from specserve_eagle.checkpoints import read_head_config
from specserve_eagle.cli import main
from specserve_eagle.load import drafter_at
from specserve_eagle.options import EagleOptions
from specserve_workbench.testing.engines import make_engine
from specserve_workbench.testing.toy import write_checkpoint


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_gemma4(tmp_path_factory.mktemp("target") / "target")


@pytest.fixture(scope="module")
def loaded(target):
    return load_model(target, kernels=TorchKernels())


def refused(path, loaded, match):
    with pytest.raises(ModelError, match=match):
        load_assistant(path, loaded)


@pytest.mark.parametrize("clustered", [{}, CLUSTERED], ids=["all logits", "clusters"])
def test_every_missing_tensor_is_named(target, loaded, tmp_path, clustered):
    names = load_file(write_assistant(tmp_path / "all", target, **clustered) / WEIGHTS)
    assert len(names) > 30
    for number, name in enumerate(names):
        path = write_assistant(tmp_path / str(number), target, **clustered)
        change_assistant(path, **{name: None})
        refused(path, loaded, f"{re.escape(name)} is missing")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"pre_projection.weight": torch.ones(48, 128)}, r"pre_projection.weight .*48, 256"),
        ({"post_projection.weight": torch.ones(48, 128)}, r"post_projection.weight .*128, 48"),
        ({"model.layers.0.self_attn.q_proj.weight": torch.ones(8, 48)}, r"layers.0.self_attn.q_proj.weight .*64, 48"),
        ({"masked_embedding.centroids.weight": torch.ones(10, 48)}, r"tensor masked_embedding.centroids.weight is not"),
        ({"model.layers.0.self_attn.sinks": torch.ones(4)}, "sinks would change what the model computes"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_a_tensor_that_does_not_fit_is_named(target, loaded, tmp_path, tensors, message):
    path = write_assistant(tmp_path, target)
    change_assistant(path, **tensors)
    refused(path, loaded, message)


def test_keys_and_values_that_published_files_may_have_are_left_out(target, loaded, tmp_path):
    path = write_assistant(tmp_path, target)
    change_assistant(path, **{"model.layers.0.self_attn.k_proj.weight": torch.ones(32, 48)})
    load_assistant(path, loaded)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backbone_hidden_size": 64}, "backbone_hidden_size must be the hidden size of the target, 128; got 64. Use"),
        ({"backbone_hidden_size": None}, "hidden size of the target, 128; got 1536"),
        ({"backbone_hidden_size": "128"}, "backbone_hidden_size must be a whole number, at least 1; got '128'"),
        ({"text_config": None}, "text_config must be a table"),
        ({"use_ordered_embeddings": "no"}, "use_ordered_embeddings must be true or false; got 'no'"),
        (CLUSTERED | {"num_centroids": 7}, "num_centroids must divide vocab_size, 320, .*got 7 and 3"),
        (CLUSTERED | {"centroid_intermediate_top_k": 11}, "be at most num_centroids; got 10 and 11"),
        (CLUSTERED | {"num_centroids": 0}, "num_centroids must be a whole number, at least 1; got 0"),
    ],
    ids=str,
)
def test_numbers_that_do_not_fit_are_named(target, loaded, tmp_path, changes, message):
    path = write_assistant(tmp_path, target)
    raw = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(raw | changes))
    refused(path, loaded, message)


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        ({"vocab_size": 640}, "vocab_size must be that of the target, 320; got 640"),
        (
            {"head_dim": 32},
            r"layer 0, with a window, reads 2 key heads of 32 numbers; the target's layer 2 has 2 of 16",
        ),
        ({"num_key_value_heads": 1}, "layer 0, with a window, reads 1 key heads"),
        ({"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 320}, "no hidden_size_per_layer_input; got"),
        ({"use_double_wide_mlp": True}, r"no use_double_wide_mlp; got text_config.use_double_wide_mlp = True"),
        (
            {"num_kv_shared_layers": 2},
            r"all layers of an assistant \(3\) read .* got text_config.num_kv_shared_layers = 2",
        ),
        ({"hidden_activation": "relu"}, "hidden_activation must be gelu_pytorch_tanh; got 'relu'"),
    ],
    ids=str,
)
def test_layers_that_do_not_fit_are_named(target, loaded, tmp_path, inner, message):
    path = write_assistant(tmp_path, target)
    raw = json.loads((path / "config.json").read_text())
    raw["text_config"] |= inner
    (path / "config.json").write_text(json.dumps(raw))
    refused(path, loaded, message)


def test_a_key_that_is_absent_has_its_published_value_or_is_named(target, loaded, tmp_path):
    """Each of them. Gemma 4's own defaults fit no toy, but for the number of layers that share keys."""
    path = write_assistant(tmp_path, target)
    raw = json.loads((path / "config.json").read_text())
    told = {}
    for key in raw["text_config"]:
        text = {other: value for other, value in raw["text_config"].items() if other != key}
        (path / "config.json").write_text(json.dumps(raw | {"text_config": text}))
        try:
            load_assistant(path, loaded)
        except ModelError as error:
            told[key] = str(error)
    assert "num_kv_shared_layers" not in told
    assert {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size"} <= told.keys()
    assert "num_hidden_layers" in told["num_hidden_layers"]


@pytest.mark.parametrize("window", [2**31 - 1, 2**31, 2**63])
def test_a_window_beyond_every_context_is_as_wide_as_the_longest(target, loaded, tmp_path, window):
    """Kernels count keys in 32 bits."""
    keys = load_assistant(write_assistant(tmp_path, target, inner={"sliding_window": window}), loaded).keys
    assert keys.sliding_windows == (loaded.max_model_len, None, None)


def test_a_target_without_layers_of_a_kind_is_refused(tmp_path):
    target = write_gemma4(tmp_path / "target", layer_types=[FULL] * 5)
    loaded = load_model(target, kernels=TorchKernels())
    path = write_assistant(tmp_path / "assistant", target)
    refused(path, loaded, "layer 0 is with a window, and none of the target's layers with keys and values is")
    full = write_assistant(tmp_path / "full", target, inner={"layer_types": [FULL] * 3})
    assert load_assistant(full, loaded).keys.sources == (2, 2, 2)


def test_each_layer_reads_the_last_of_its_kind_that_has_keys(target, loaded, tmp_path):
    inner = {"layer_types": [FULL, SLIDING, FULL]}
    keys = load_assistant(write_assistant(tmp_path, target, inner=inner), loaded).keys
    assert (keys.sources, keys.sliding_windows) == ((1, 2, 1), (None, 41, None))


def test_an_order_that_lacks_a_token_is_refused(target, loaded, tmp_path):
    path = write_assistant(tmp_path, target, **CLUSTERED)
    change_assistant(path, **{"masked_embedding.token_ordering": torch.zeros(320, dtype=torch.int64)})
    refused(path, loaded, "token_ordering must have every token from 0 to 319 once")
    change_assistant(path, **{"masked_embedding.token_ordering": torch.arange(310)})
    refused(path, loaded, r"token_ordering has shape \[310\], but config.json says \[320\]")


def test_clusters_need_the_embedding_as_the_head(target, loaded, tmp_path):
    path = write_assistant(tmp_path, target, **CLUSTERED)
    change_assistant(path, **{"lm_head.weight": torch.ones(320, 48)})
    refused(path, loaded, "lm_head.weight differs from model.embed_tokens.weight")


def test_a_target_of_another_family_is_refused(target, tmp_path):
    other = write_checkpoint(tmp_path / "gemma3", architecture="gemma3_text")
    assistant = write_assistant(tmp_path / "assistant", target)
    with pytest.raises(ModelError, match="keys and values of Gemma 4; the target is of family gemma3_text"):
        make_engine(other, **eagle_options(assistant))


def test_a_target_that_a_library_serves_is_refused(target, tmp_path):
    path = write_assistant(tmp_path, target)
    with pytest.raises(ConfigError, match=r"is an assistant, which reads its target's .*; .* n-gram drafts"):
        drafter_at(path, EngineConfig(model=str(target)), EagleOptions(model=str(path)), ServedModel())


def test_an_assistant_is_not_read_as_a_head(target, loaded, tmp_path):
    with pytest.raises(ModelError, match=r"is an assistant.* neither trained nor measured"):
        read_head_config(write_assistant(tmp_path, target), loaded.config)


def test_an_evaluation_of_an_assistant_is_refused_before_its_target_is_loaded(target, tmp_path, capsys):
    """That one would be refused, too, and another target be no help."""
    path = write_assistant(tmp_path / "assistant", target)
    (tmp_path / "text.txt").write_text("held out")
    args = ["--target", str(target), "--head", str(path), "--data", str(tmp_path / "text.txt"), "--threads", "1"]
    assert main(["eval", *args]) == 2
    assert f"{path} is an assistant" in (told := capsys.readouterr().err)
    assert "neither trained nor measured" in told
