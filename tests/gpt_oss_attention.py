"""A family with gpt-oss's attention and a Llama's MLP: sinks, biases, heads of 64, every other layer a window, YaRN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve.models.config import Multipliers
from specserve.models.family import LayerTraits, ModelFamily
from specserve.models.kinds_of_layers import kinds, windows

if TYPE_CHECKING:
    from collections.abc import Mapping


class GptOssAttention(ModelFamily):
    """`score_cap` caps scores, too, which gpt-oss does not."""

    name = "gpt_oss_attention"
    architectures = ("GptOssAttentionForCausalLM",)
    reads = ("score_cap",)
    toy: Mapping[str, Any] = {
        "head_dim": 64,
        "sliding_window": 24,
        "rope_theta": 150_000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 64,
        },
    }

    def traits(self, raw):
        return LayerTraits(
            qkv_bias=True, o_bias=True, sinks=True, multipliers=Multipliers(score_cap=raw.get("score_cap"))
        )

    def sliding_windows(self, raw, num_layers, where):
        return windows(raw, kinds(raw, num_layers, 2, where), where)

    def check(self, raw, where):
        pass


FAMILY = GptOssAttention()


class Families:
    @hookimpl
    def model_families(self):
        return [FAMILY]


def family_plugin():
    return InProcessPlugin(Families(), PluginDeclaration(name="sunk", provides={"model.family": "a test's family"}))
