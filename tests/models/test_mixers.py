"""A family of a plugin may have mixers of its own in place of attention: drafts, trees and chunks change nothing."""

from __future__ import annotations

import pytest
import torch

from specserve.api import Mixer
from specserve.api.models import MixerConfig, ModelFamily
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import drafter_plugin, make_engine, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests
from specserve_workbench.testing.toy import write_checkpoint


class TokenShift(Mixer):
    """A token's numbers mixed with those of the token before it (Peng et al., 2023: "RWKV")."""

    reach = 1

    def __init__(self, share):
        self.share, self.token_width, self.out_features = share, len(share), len(share)

    def mix(self, rows, kept, tokens):
        kept.index_copy_(0, tokens.own, rows)
        before = kept.index_select(0, tokens.before[:, 0]).masked_fill_(~tokens.exists, 0.0)
        return (rows.float() * self.share + before.float() * (1 - self.share)).to(rows.dtype)


class ShiftConfig(MixerConfig, frozen=True):
    def input_maps(self, hidden):
        return {"shift.one": (hidden, hidden, False), "shift.two": (2 * hidden, hidden, True)}

    def output_map(self, hidden):
        return {"shift.out": (hidden, 3 * hidden, False)}

    def tensors(self, hidden):
        return {"shift.share.weight": (1, 3 * hidden)}

    def token_width(self, hidden):
        return 3 * hidden

    def make(self, tensors):
        return TokenShift(tensors["shift.share.weight"][0])


class Shifting(ModelFamily):
    name = "shifting"
    architectures = ("ShiftingForCausalLM",)

    def mixers(self, raw, num_layers, where):
        return tuple(ShiftConfig() if layer % 2 else None for layer in range(num_layers))


class Plugin:
    @hookimpl
    def model_families(self):
        return [Shifting()]


PLUGIN = InProcessPlugin(Plugin(), PluginDeclaration(name="shifting", provides={"model.family": "a test's"}))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("plugins", [(), ("cpu",), ("cpu", "graphs")], ids=str)
def test_drafts_chunks_and_neighbours_change_nothing(tmp_path, plugins, dtype):
    path = write_checkpoint(tmp_path / "model", architecture=Shifting(), num_hidden_layers=4)
    requests, given = varied_requests(8), {"plugins": plugins, "dtype": dtype}
    if "graphs" in plugins:
        given |= {"graphs": "piecewise", "graph_buckets": (8, 24)}
    alone = make_engine(path, **given, extra={"shifting": PLUGIN}, max_num_seqs=1, prefix_cache=False).engine
    expected = run_requests(alone, requests)
    noisy = NoisyDrafter(expected.tokens(), p=0.8, max_width=6, vocab_size=TOY_VOCAB)
    extra = {"shifting": PLUGIN, "drafter": drafter_plugin(lambda: noisy)}
    engine = make_engine(path, **given, extra=extra, max_num_batched_tokens=24).engine
    drafted = run_requests(engine, requests)
    assert drafted.decided() == expected.decided()
    assert drafted.metrics.num_accepted_tokens > 20
    if "graphs" in plugins:
        assert drafted.metrics.graph_steps["piecewise", ""] > 10


def test_the_token_before_is_the_one_of_the_text(tmp_path):
    """Against the whole text at once."""
    path = write_checkpoint(tmp_path / "model", architecture=Shifting(), num_hidden_layers=2)
    engine = make_engine(path, extra={"shifting": PLUGIN}, max_num_batched_tokens=7).engine
    (mixer,) = [layer.mixer for layer in engine.runner.model.layers if layer.mixer is not None]
    rows = torch.randn(9, mixer.token_width)
    seen, mix = [], mixer.mix
    mixer.mix = lambda given, kept, tokens: seen.append((given, mix(given, kept, tokens))) or seen[-1][1]
    run_requests(engine, varied_requests(1))
    given, mixed = (torch.cat(each) for each in zip(*seen, strict=True))
    shifted = torch.cat((torch.zeros(1, rows.shape[1]), given[:-1]))
    assert torch.equal(mixed, given * mixer.share + shifted * (1 - mixer.share))
