"""A family of tests whose layers are gated delta nets and attention in turns."""

from __future__ import annotations

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve.models.family import ModelFamily
from specserve.models.gated_delta_net import GatedDeltaNetConfig

NET = GatedDeltaNetConfig(key_heads=2, value_heads=4, key_dim=16, value_dim=8, taps=4, norm_eps=1e-5)


class Recurrent(ModelFamily):
    name = "recurrent"
    architectures = ("RecurrentForCausalLM",)

    def mixers(self, raw, num_layers, where):
        return tuple(None if layer % 3 == 1 else NET for layer in range(num_layers))


class Plugin:
    @hookimpl
    def model_families(self):
        return [Recurrent()]


PLUGIN = InProcessPlugin(Plugin(), PluginDeclaration(name="recurrent", provides={"model.family": "a test's"}))
