"""The attention of gpt-oss without its experts: sinks, biases, windows and rotation are those of transformers."""

from __future__ import annotations

import pytest
import torch
from naive_forward import attention
from transformers.models.gpt_oss.configuration_gpt_oss import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssRotaryEmbedding

from gpt_oss_attention import FAMILY
from specserve.errors import ModelError
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.loader import ModelLoader
from specserve.models.projection import NO_BATCH
from specserve_workbench.testing.toy import write_checkpoint

LENGTH = 32
ROPE = FAMILY.toy["rope_scaling"] | {"rope_theta": FAMILY.toy["rope_theta"]}


def their_config(**changes):
    sizes = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
    given = {"num_hidden_layers": 2, "sliding_window": 24, "max_position_embeddings": 512, "rope_parameters": ROPE}
    return GptOssConfig(**sizes, **given | changes, attn_implementation="eager")


@pytest.fixture
def model(tmp_path):
    path = write_checkpoint(tmp_path, architecture=FAMILY)
    return ModelLoader(families=[FAMILY]).load(path, kernels=TorchKernels(), dtype="float32", max_model_len=512)


def test_the_rotation_is_that_of_transformers(model):
    positions = torch.arange(512)
    cos, sin = GptOssRotaryEmbedding(their_config())(torch.zeros(1), positions[None])
    half = cos.shape[-1]
    ours = model.rotary
    torch.testing.assert_close(ours.cos[:, 0, :half], cos[0], atol=1e-4, rtol=0)
    torch.testing.assert_close(ours.sin[:, 0, half:], sin[0], atol=1e-4, rtol=0)
    assert ours.cos[0, 0, 0] == pytest.approx(0.1 * torch.log(torch.tensor(32.0)) + 1), "the attention factor"


@pytest.mark.parametrize("layer", [0, 1])
def test_a_layers_attention_is_that_of_transformers(model, layer):
    """Layer 0 has the window."""
    config, weights = their_config(), model.layers[layer]
    theirs = GptOssAttention(config, layer).eval()
    names = ("q_proj", "k_proj", "v_proj")
    state = {f"{name}.weight": weights.qkv_proj.weight[weights.qkv_proj.parts[name]] for name in names}
    state |= {f"{name}.bias": weights.qkv_proj.bias[weights.qkv_proj.parts[name]] for name in names}
    state |= {"o_proj.weight": weights.o_proj.weight, "o_proj.bias": weights.o_proj.bias, "sinks": weights.sinks}
    theirs.load_state_dict(state)
    x = torch.randn(LENGTH, 128, generator=torch.Generator().manual_seed(0))
    positions = torch.arange(LENGTH)
    distance = positions[:, None] - positions
    hidden = (distance < 0) | (distance >= (24 if layer == 0 else LENGTH))
    mask = torch.zeros(LENGTH, LENGTH).masked_fill(hidden, float("-inf"))
    normed = model.normed(x, weights.input_norm)
    with torch.inference_mode():
        rotation = GptOssRotaryEmbedding(config)(x, positions[None])
        expected, _ = theirs(normed[None], rotation, mask[None, None])
        q, k, v, _ = model.attention_input(layer, x, model.rotations(positions)[layer], NO_BATCH)
        got = weights.o_proj(attention(model, layer, q, k, v).flatten(1))
    torch.testing.assert_close(got, expected[0], atol=1e-5, rtol=0)
    assert (model.sliding_windows[layer] is None) == (layer == 1)


def test_sinks_are_read_in_float32_whatever_the_models_dtype(tmp_path):
    path = write_checkpoint(tmp_path, architecture=FAMILY)
    half, full = (
        ModelLoader(families=[FAMILY]).load(path, kernels=TorchKernels(), dtype=dtype)
        for dtype in ("bfloat16", "float32")
    )
    assert half.sinks[0].dtype == torch.float32
    assert torch.equal(half.sinks[0], full.sinks[0])


def test_sinks_of_another_count_are_refused(tmp_path):
    path = write_checkpoint(tmp_path, architecture=FAMILY)
    file = path / "config.json"
    file.write_text(file.read_text().replace('"num_attention_heads": 4', '"num_attention_heads": 2'))
    with pytest.raises(ModelError, match=r"has shape \[\d+"):
        ModelLoader(families=[FAMILY]).load(path, kernels=TorchKernels())
