"""Random checkpoints give the same logits and the same best tokens as transformers does."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from naive_forward import forward, load
from parity_cases import CASES
from transformers import AutoModelForCausalLM
from transformers.models.gemma3 import modeling_gemma3
from transformers.utils import logging as transformers_logging

from specserve_workbench.testing.toy import write_checkpoint

transformers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()

PROMPT = torch.randint(0, 300, (40,), generator=torch.Generator().manual_seed(7)).tolist()
TEXT = [*PROMPT, *((i * i + 5 * i + 1) % 300 for i in range(64))]
"""Beyond every window and original context of these cases."""


def reference(path):
    """Experts are added up by slot, in float32."""
    made = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    made.set_experts_implementation("batched_mm")
    return made


@pytest.mark.parametrize("case", CASES)
def test_logits_and_best_tokens_are_those_of_transformers(tmp_path, case):
    path = write_checkpoint(tmp_path, seed=3, **{"architecture": case.split("-")[0]} | CASES[case])
    ours, theirs = forward(load(path), TEXT), reference(path)(torch.tensor([TEXT])).logits[0]
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
    best = ours.argmax(-1)
    assert best.tolist() == theirs.argmax(-1).tolist()
    assert len(best.unique()) > 8, "the toy's choices have collapsed: they would hide mistakes"


def test_gemma_3_caps_scores_where_its_file_says_so(tmp_path, monkeypatch):
    """transformers 5.24 reads the field and has the arithmetic, but does not pass the one to the other."""
    path = write_checkpoint(tmp_path, architecture="gemma3_text", attn_logit_softcapping=0.7)
    plain = reference(path)(torch.tensor([PROMPT])).logits[0]
    monkeypatch.setattr(
        modeling_gemma3, "eager_attention_forward", partial(modeling_gemma3.eager_attention_forward, softcap=0.7)
    )
    theirs = reference(path)(torch.tensor([PROMPT])).logits[0]
    torch.testing.assert_close(forward(load(path), PROMPT), theirs, atol=1e-4, rtol=0)
    assert (plain - theirs).abs().max() > 0.1


NEWER = (
    *("gemma2", "gemma3_text", "granite", "ministral", "ministral3", "olmo2", "olmo3", "phi3", "smollm3"),
    *("gpt_oss", "granitemoe", "mixtral", "olmoe", "qwen3_moe"),
    *("lfm2", "lfm2_moe", "lfm3", "qwen3_5_text"),
    *("qwen3_5_moe_text", "qwen2_moe", "granitemoeshared", "glm4_moe"),
    "gemma4_text",
)
PART = {"partial_rotary_factor": 0.5}


@pytest.mark.parametrize("rope", [PART, {"rope_scaling": {"rope_type": "default", **PART}}], ids=["outside", "inside"])
@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
def test_whole_heads_are_rotated_whatever_the_file_says_of_a_part(tmp_path, architecture, rope):
    path = write_checkpoint(tmp_path, architecture=architecture, **rope)
    theirs = reference(path)(torch.tensor([PROMPT])).logits[0]
    torch.testing.assert_close(forward(load(path), PROMPT), theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
def test_transformers_cannot_run_a_scaled_rotation_of_a_part_of_a_head(tmp_path, architecture):
    """Where it can one day, its logits must become the reference."""
    path = write_checkpoint(tmp_path, architecture=architecture, rope_scaling={"type": "linear", "factor": 2.0}, **PART)
    assert forward(load(path), PROMPT).isfinite().all()
    with pytest.raises(RuntimeError, match="size of tensor"):
        reference(path)(torch.tensor([PROMPT]))


def test_dynamic_rotation_is_that_of_transformers_at_the_served_length(tmp_path):
    rope = {"type": "dynamic", "factor": 4.0}
    path = write_checkpoint(tmp_path, rope_scaling=rope, max_position_embeddings=16)
    ours = forward(load(path, max_model_len=len(PROMPT)), PROMPT)
    torch.testing.assert_close(ours, reference(path)(torch.tensor([PROMPT])).logits[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize(("length", "served"), [(16, 16), (40, 64)])
def test_longrope_is_that_of_transformers_on_its_side_of_the_boundary(tmp_path, length, served):
    short, long = [1.0 + i / 16 for i in range(16)], [2.0 + i for i in range(16)]
    rope = {"type": "longrope", "short_factor": short, "long_factor": long, "original_max_position_embeddings": 16}
    path = write_checkpoint(tmp_path, rope_scaling=rope, max_position_embeddings=64)
    ours = forward(load(path, max_model_len=served), PROMPT[:length])
    theirs = reference(path)(torch.tensor([PROMPT[:length]])).logits[0]
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3", *NEWER])
def test_half_precision_stays_as_near_to_float32_as_transformers_does(tmp_path, architecture, dtype):
    path = write_checkpoint(tmp_path, architecture=architecture, dtype=dtype)
    model = load(path)
    assert model.dtype == getattr(torch, dtype)
    exact = forward(load(path, dtype="float32"), PROMPT)
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=model.dtype).eval()(torch.tensor([PROMPT])).logits[0]
    ours = forward(model, PROMPT)
    # by row: where rounding chooses another expert, a row is far from the exact one, in either program
    our_error, their_error = ((each.float() - exact).abs().mean(-1).median() for each in (ours, theirs))
    assert our_error < 1.2 * their_error


def test_a_later_token_changes_no_earlier_row(tmp_path):
    model = load(write_checkpoint(tmp_path))
    whole, part = forward(model, PROMPT), forward(model, [*PROMPT[:20], 1, 2, 3])
    assert torch.equal(whole[:20], part[:20])


def test_the_pieces_leave_their_inputs_alone(tmp_path):
    model = load(write_checkpoint(tmp_path))
    x, rows = torch.randn(32, model.hidden_size), slice(0, 32)
    attn, kept = torch.randn(32, model.num_heads, model.head_dim), x.clone()
    model.attention_input(0, x, model.rotations(torch.arange(32))[0], rows)
    model.attention_output(0, x, attn, rows)
    model.head(x)
    assert torch.equal(x, kept)
