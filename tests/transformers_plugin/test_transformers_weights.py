"""Checkpoints: what is missing or left over is named, and tensors of older or other forms are read."""

from __future__ import annotations

import pytest
import torch
from architectures import change, write_model
from runs import PROMPTS, greedy, options_of
from safetensors.torch import load_file, save_file

from compressed_checkpoints import write_compressed
from specserve.errors import ModelError
from specserve_workbench.testing.engines import make_engine, run
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import write_checkpoint

REQUESTS = [toy_request(name, prompt, max_tokens=24, ignore_eos=True) for name, prompt in PROMPTS.items()]


def rewrite(path, edit):
    """edit: of the tensors by name, in place."""
    tensors = load_file(path / "model.safetensors")
    edit(tensors)
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    return path


def refusal(path):
    with pytest.raises(ModelError) as error:
        make_engine(path, **options_of())
    return str(error.value)


def test_a_missing_tensor_is_named(tmp_path):
    path = write_model(tmp_path, "GPTNeoXForCausalLM")
    name = "gpt_neox.layers.1.attention.dense.weight"
    assert f"tensor {name} is missing" in refusal(rewrite(path, lambda tensors: tensors.pop(name)))


def test_experts_that_are_missing_are_named(tmp_path):
    path = write_model(tmp_path, "Qwen2MoeForCausalLM")

    def edit(tensors):
        for name in [name for name in tensors if "layers.1.mlp.experts" in name]:
            del tensors[name]

    assert "tensors model.layers.1.mlp.experts.gate_up_proj" in refusal(rewrite(path, edit))


def test_a_tensor_that_nothing_reads_is_refused_where_it_would_change_the_model(tmp_path):
    path = write_model(tmp_path, "Starcoder2ForCausalLM", use_bias=False)
    name = "model.layers.0.self_attn.q_proj.bias"
    rewrite(path, lambda tensors: tensors.update({name: torch.ones(64)}))
    assert f"tensor {name} would change what the model computes" in refusal(path)
    rewrite(path, lambda tensors: tensors.update({name: torch.zeros(64)}))
    assert make_engine(path, **options_of()).engine is not None


def test_a_tensor_of_another_shape_is_refused(tmp_path):
    path = write_model(tmp_path, "GPTNeoXForCausalLM")
    change(path, intermediate_size=128)
    assert "but config.json says" in refusal(path)


def test_names_without_the_base_models_prefix_are_found(tmp_path):
    path = write_model(tmp_path, "GPTNeoXForCausalLM")
    before = greedy(path, num_tokens=8).tokens()

    def edit(tensors):
        for name in [name for name in tensors if name.startswith("gpt_neox.")]:
            tensors[name.removeprefix("gpt_neox.")] = tensors.pop(name)

    assert greedy(rewrite(path, edit), num_tokens=8).tokens() == before


def test_a_tied_head_is_the_embedding_and_another_head_is_itself(tmp_path):
    path = write_model(tmp_path, "Starcoder2ForCausalLM", tie_word_embeddings=True)
    assert "lm_head.weight" not in load_file(path / "model.safetensors")
    tied = greedy(path, num_tokens=8).tokens()
    head = torch.randn(load_file(path / "model.safetensors")["model.embed_tokens.weight"].shape)
    rewrite(path, lambda tensors: tensors.update({"lm_head.weight": head}))
    change(path, tie_word_embeddings=False)
    assert greedy(path, num_tokens=8).tokens() != tied


def test_a_head_that_the_file_holds_twice_is_read_once(tmp_path):
    path = write_model(tmp_path, "Starcoder2ForCausalLM", tie_word_embeddings=True)
    before = greedy(path, num_tokens=8).tokens()
    rewrite(path, lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}))
    model = make_engine(path, **options_of("torch")).engine.runner.model
    assert model.projections["lm_head"].weight.data_ptr() == model.stages.embedding.weight.data_ptr()
    assert greedy(path, num_tokens=8).tokens() == before


@pytest.mark.parametrize("kernels", ["cpu", "torch"])
def test_quantised_weights_are_those_of_the_engines_own_family(tmp_path, kernels):
    source = write_checkpoint(tmp_path / "source", architecture="llama")
    path = write_compressed(source, tmp_path / "model")
    own = run(path, REQUESTS, plugins=("quantised", *(("cpu",) if kernels == "cpu" else ())))
    theirs = run(path, REQUESTS, **options_of(kernels, "quantised"))
    assert theirs.tokens() == own.tokens()


def test_random_weights_are_never_made(tmp_path, monkeypatch):
    from transformers import PreTrainedModel

    path = write_model(tmp_path, "GPTNeoXForCausalLM")
    made = []
    normal = torch.Tensor.normal_

    def count(tensor, *args, **kwargs):
        made.append(tensor.device.type)
        return normal(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "normal_", count)
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", None)
    make_engine(path, **options_of())
    assert set(made) <= {"meta"}


@pytest.mark.parametrize(("name", "routers"), [
    ("AfmoeForCausalLM", ["model.layers.1.mlp.router.gate"]),
    ("Qwen2MoeForCausalLM", []),  # a parameter, which its module multiplies itself
], ids=["a linear map", "a parameter"])  # fmt: skip
def test_weights_of_8_bits_leave_routers_of_experts_in_the_models_dtype(tmp_path, name, routers):
    path = write_model(tmp_path, name)
    model = make_engine(path, **options_of("cpu", cpu={"weights": "int8"})).engine.parts.runner.model
    products = [*model.projections.values(), *model.private]
    assert [each.name for each in products if each.packed.form is None] == routers
