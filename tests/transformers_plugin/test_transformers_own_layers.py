"""Layers that are those of the engine's own decoders are computed by one, with its bits; all others by their class."""

from __future__ import annotations

import pytest
import torch
from architectures import SERVED, write_model
from runs import options_of
from transformers.models.llama import modeling_llama

from covering import covering
from specserve_transformers import interface
from specserve_transformers.model import OwnPass
from specserve_transformers.own_decoder import as_rotations, rotated
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, run
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests

OWN = {
    "Exaone4ForCausalLM": None,
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "GemmaForCausalLM": None,
    "LlamaForCausalLM": "llama",
    "Olmo2ForCausalLM": "olmo2",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "SeedOssForCausalLM": None,
    "SmolLM3ForCausalLM": "smollm3",
}
"""By architecture, the engine's family of its own, where there is one."""
HEAD_DIM = {"head_dim": 16}
SIZED = {
    name: HEAD_DIM if name in ("Gemma3ForCausalLM", "LlamaForCausalLM", "Qwen3ForCausalLM") else {} for name in OWN
}


def model_of(path, kernels="cpu", **options):
    return make_engine(path, **options_of(kernels), **options).engine.runner.model


@covering(
    name=[name for name, family in OWN.items() if family],
    arithmetic=["torch-float32", "torch-bfloat16", "cpu-float32", "cpu-bfloat16"],
)
def test_they_have_the_bits_of_the_engines_own_family(tmp_path, name, arithmetic):
    kernels, dtype = arithmetic.split("-")
    if (name, dtype) == ("Gemma2ForCausalLM", "bfloat16"):
        pytest.skip("its class bounds logits in bfloat16, the engine in float32")
    path = write_model(tmp_path, name, dtype=getattr(torch, dtype), **SIZED[name])
    requests = varied_requests(8)
    family = run(path, requests, dtype=dtype, plugins=("cpu",) if kernels == "cpu" else ())
    assert run(path, requests, dtype=dtype, **options_of(kernels)).decided() == family.decided()


@pytest.mark.parametrize("name", OWN)
def test_drafts_change_nothing_in_them(tmp_path, name):
    path, requests = write_model(tmp_path, name, **SIZED[name]), varied_requests(8)
    assert model_of(path).decoder is not None
    alone = run(path, requests, max_num_seqs=1, **options_of())
    noisy = NoisyDrafter(alone.tokens(), p=0.8, max_width=6, vocab_size=TOY_VOCAB)
    drafted = run(path, requests, noisy, max_num_batched_tokens=24, **options_of())
    assert drafted.decided() == alone.decided()
    assert drafted.metrics.num_accepted_tokens > 20


@pytest.mark.sweep
@pytest.mark.parametrize("kernels", ["cpu", "torch"])
@pytest.mark.parametrize("name", SERVED)
def test_no_other_architecture_is_taken_for_one(tmp_path, name, kernels):
    assert (model_of(write_model(tmp_path, name), kernels).decoder is not None) == (name in OWN)


# --- what no such layer has --------------------------------------------------------------------------------


def with_result(function):
    """A class's forward, whose result goes through the function."""

    def change(forward):
        def changed(self, *args, **kwargs):
            out = forward(self, *args, **kwargs)
            return (function(out[0]), *out[1:]) if isinstance(out, tuple) else function(out)

        return changed

    return change


def other_positions(forward):
    def changed(self, hidden_states, position_embeddings=None, **kwargs):
        cos, sin = position_embeddings
        return forward(self, hidden_states, position_embeddings=(cos, -sin), **kwargs)

    return changed


def of_last_layer(forward):
    scaled = with_result(lambda x: x * 1.0078125)(forward)
    return lambda self, *args, **kwargs: (scaled if self.layer_idx else forward)(self, *args, **kwargs)


def late_bound(forward):
    """Changes no number of a trial."""
    return with_result(lambda x: x.clamp(-1e30, 1e30))(forward)


CHANGES = {
    "a multiple of attention": ("LlamaAttention", with_result(lambda x: x * 1.0078125)),
    "a multiple of the last attention": ("LlamaAttention", of_last_layer),
    "a multiple of a layer": ("LlamaDecoderLayer", with_result(lambda x: x * 2.0)),
    "a rotation to the other side": ("LlamaAttention", other_positions),
    "a bound of attention": ("LlamaAttention", late_bound),
    "a bound of a layer": ("LlamaDecoderLayer", late_bound),
    "a bound of an MLP": ("LlamaMLP", late_bound),
}


@covering(what=CHANGES, kernels=["cpu", "torch"])
def test_layers_with_anything_else_are_computed_by_their_class(tmp_path, monkeypatch, what, kernels):
    name, change = CHANGES[what]
    path = write_model(tmp_path, "LlamaForCausalLM", **HEAD_DIM)
    assert model_of(path, kernels).decoder is not None
    found = getattr(modeling_llama, name)
    monkeypatch.setattr(found, "forward", change(inner_of(found.forward)))
    assert model_of(path, kernels).decoder is None


def test_layers_with_other_values_are_computed_by_their_class(tmp_path, monkeypatch):
    attend = interface.attend

    def doubled(module, q, k, v, *args, **settings):
        return attend(module, q, k, v * 2, *args, **settings)

    monkeypatch.setattr(interface, "attend", doubled)
    assert model_of(write_model(tmp_path, "LlamaForCausalLM", **HEAD_DIM)).decoder is None


def inner_of(forward):
    """Without wrappers for old names of arguments."""
    return inner_of(forward.__wrapped__) if hasattr(forward, "__wrapped__") else forward


def test_bounds_of_queries_are_seen_where_no_number_reaches_them(tmp_path):
    """Olmo is a Llama with layer norms, and may bound queries, keys and values."""
    assert model_of(write_model(tmp_path, "OlmoForCausalLM", clip_qkv=1e6)).installed.blocks == ()


def test_hidden_states_after_the_layers_are_the_class_own(tmp_path):
    """Gemma 2 bounds its logits."""
    engine = make_engine(write_model(tmp_path, "Gemma2ForCausalLM"), **options_of()).engine
    assert isinstance(engine.runner.passes, OwnPass)
    assert not engine.runner.model.stages.plain_head


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_part_of_a_head_is_rotated_as_transformers_rotates_it(dtype):
    x, positions = torch.randn((3, 2, 16)).to(dtype), torch.tensor([4, 0, 9])
    cos, sin = (torch.randn((1, 10, 4)).repeat(1, 1, 2) for _ in range(2))
    ours = {each.cos.dtype: rotated(x, each, positions) for each in as_rotations(cos, sin, dtype)}
    heads = x[None, ..., :8].transpose(1, 2)
    theirs, _ = modeling_llama.apply_rotary_pos_emb(
        heads, heads, *(each[:, positions].to(dtype) for each in (cos, sin))
    )
    assert torch.equal(ours[dtype][..., :8], theirs[0].transpose(0, 1))
    assert all(torch.equal(each[..., 8:], x[..., 8:]) and each.dtype == dtype for each in ours.values())
