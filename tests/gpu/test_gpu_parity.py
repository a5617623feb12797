"""On the device: the logits of transformers, token by token, for every family."""

from __future__ import annotations

import pytest
import torch

from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan
from specserve_workbench.testing.engines import make_engine, run
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import write_checkpoint

pytestmark = pytest.mark.gpu
PROMPT = torch.randint(0, 300, (200,), generator=torch.Generator().manual_seed(7)).tolist()
FAMILIES = {
    "llama": {},
    "mistral": {"sliding_window": 32},
    "qwen2": {},
    "qwen3": {},
    "gemma2": {"sliding_window": 32},
}


def our_logits(model, dtype, tokens):
    """[tokens, V] of one prefill, on an engine's runner."""
    engine = make_engine(model, device="cuda", dtype=dtype, max_num_batched_tokens=512).engine
    wire = toy_request("parity", tokens)
    request = Request.admit(wire, seed=0, arrival=0.0, order=0, max_len=len(tokens))
    builder, n = engine.parts.builder, len(tokens)
    request.blocks = list(range(-(-n // builder.block_size)))
    return engine.runner.forward(builder.schedule([ScheduledSpan.of(request, 0, n, scored=n)])).logits


def reference(model, dtype):
    from transformers import AutoModelForCausalLM

    kind = getattr(torch, dtype)
    return AutoModelForCausalLM.from_pretrained(model, dtype=kind, attn_implementation="eager").eval().to("cuda")


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_logits_are_those_of_transformers(tmp_path, family):
    model = write_checkpoint(tmp_path / "model", architecture=family, **FAMILIES[family])
    with torch.inference_mode():
        theirs = reference(model, "float32")(torch.tensor([PROMPT], device="cuda")).logits[0]
    torch.testing.assert_close(our_logits(model, "float32", PROMPT), theirs, atol=1e-3, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_logits_are_as_near_to_float32_as_those_of_transformers(tmp_path, family):
    model = write_checkpoint(tmp_path / "model", architecture=family, **FAMILIES[family])
    exact = our_logits(model, "float32", PROMPT)
    with torch.inference_mode():
        theirs = reference(model, "bfloat16")(torch.tensor([PROMPT], device="cuda")).logits[0].float()
    our_error = (our_logits(model, "bfloat16", PROMPT) - exact).abs().mean()
    assert our_error < 1.5 * (theirs - exact).abs().mean()


def test_the_device_generates_what_the_cpu_generates_in_float32(toy_model):
    requests = [toy_request(str(i), PROMPT[: 5 + 20 * i], max_tokens=24, ignore_eos=True) for i in range(8)]
    expected = run(toy_model, requests, dtype="float32").tokens()
    assert run(toy_model, requests, dtype="float32", device="cuda").tokens() == expected
