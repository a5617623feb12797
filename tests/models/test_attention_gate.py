"""Gates of attention: one of each head, or of each of its numbers, in any family and on any kernel set."""

from __future__ import annotations

import pytest
import torch
from changed_files import change_tensors
from naive_forward import forward
from safetensors.torch import load_file

from specserve.api.models import LayerTraits, ModelFamily
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.loader import ModelLoader
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import drafter_plugin, make_engine, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

PROMPT = [(11 * i + 3) % 300 for i in range(40)]


class Gated(ModelFamily):
    """A Llama with gates."""

    def __init__(self, gate):
        self.gate, self.name, self.architectures = gate, f"gated-{gate}", (f"Gated{gate}ForCausalLM",)

    def traits(self, raw):
        return LayerTraits(attention_gate=self.gate)


def logits(path, family):
    loader = ModelLoader(families=(family,))
    model = loader.load_decoder(path, kernels=TorchKernels(), dtype="auto", device="cpu", max_model_len=None)
    return forward(model, PROMPT)


def with_gates(path, family, gates):
    """gates: [2, 4 heads, 128], by layer. The other tensors are the same in all families; gates of numbers are stored
    behind the query of their head."""
    others = load_file(write_checkpoint(path / "plain", architecture=Gated(None)) / "model.safetensors")
    write_checkpoint(path, architecture=family)
    attention = [f"model.layers.{layer}.self_attn" for layer in range(2)]
    if family.gate == "head":
        own = {f"{name}.g_proj.weight": each for name, each in zip(attention, gates, strict=True)}
    else:
        queries = [others[f"{name}.q_proj.weight"].view(4, 32, 128) for name in attention]
        wide = [each[:, None].expand(4, 32, 128) for each in gates]
        own = {
            f"{name}.q_proj.weight": torch.cat(both, 1).flatten(0, 1)
            for name, both in zip(attention, zip(queries, wide, strict=True), strict=True)
        }
    assert load_file(path / "model.safetensors").keys() == others.keys() | own.keys()
    return change_tensors(path, **others | own)


def test_a_head_is_multiplied_by_its_gate(tmp_path):
    """A gate of zero is the half of a head: as if the rows of the output map were halved."""
    family = Gated("head")
    path, plain = with_gates(tmp_path / "gated", family, torch.zeros(2, 4, 128)), tmp_path / "gated" / "plain"
    tensors = load_file(plain / "model.safetensors")
    change_tensors(plain, **{name: numbers / 2 for name, numbers in tensors.items() if "o_proj" in name})
    torch.testing.assert_close(logits(path, family), logits(plain, Gated(None)), atol=1e-5, rtol=0)


def test_gates_of_numbers_that_are_alike_are_gates_of_heads(tmp_path):
    gates = torch.randn(2, 4, 128, generator=torch.Generator().manual_seed(3)) / 8
    head, number = Gated("head"), Gated("number")
    by_head = logits(with_gates(tmp_path / "head", head, gates), head)
    torch.testing.assert_close(
        by_head, logits(with_gates(tmp_path / "number", number, gates), number), atol=1e-4, rtol=0
    )
    assert (by_head - logits(with_gates(tmp_path / "other", head, -gates), head)).abs().max() > 0.1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("plugins", [(), ("cpu",)], ids=str)
def test_drafts_chunks_and_neighbours_change_nothing(tmp_path, plugins, dtype):
    family = Gated("number")

    class Plugin:
        @hookimpl
        def model_families(self):
            return [family]

    own = {"gated": InProcessPlugin(Plugin(), PluginDeclaration(name="gated", provides={"model.family": "a test's"}))}
    path = write_checkpoint(tmp_path / "model", architecture=family)
    requests, given = varied_requests(12), {"plugins": plugins, "dtype": dtype}
    alone = make_engine(path, **given, extra=own, max_num_seqs=1, prefix_cache=False).engine
    expected = run_requests(alone, requests)
    noisy = NoisyDrafter(expected.tokens(), p=0.8, max_width=6, vocab_size=TOY_VOCAB)
    extra = own | {"drafter": drafter_plugin(lambda: noisy)}
    drafted = run_requests(make_engine(path, **given, extra=extra, max_num_batched_tokens=24).engine, requests)
    assert drafted.decided() == expected.decided()
    assert drafted.metrics.num_accepted_tokens > 20
