"""Families whose layers need `VariedDecoder`, and what it does not compute."""

from __future__ import annotations

import pytest
from naive_forward import TorchKernels

from specserve.api import ModelError
from specserve.models.config import Multipliers, QueryScale
from specserve.models.decoder import DecoderModel
from specserve.models.families.llama import Llama
from specserve.models.family import LayerTraits
from specserve.models.layer_attention import LayerAttention, TokenInputs
from specserve.models.loader import ModelLoader
from specserve.models.varied_decoder import VariedDecoder
from specserve_workbench.testing.toy import write_checkpoint

TRAITS = {
    "value_norm": {"value_norm": True},
    "layer_scales": {"layer_scales": True},
    "token_inputs": {"token_inputs": TokenInputs(size=8, vocab_size=320)},
}
NOT_COMPUTED = {
    "attention_gate": {"attention_gate": "head"},
    "query_scale": {"query_scale": QueryScale(beta=0.1, length=16)},
    "all heads": {"qk_norm": True, "qk_norm_of": "all heads"},
}


class Varied(Llama):
    name, architectures = "varied", ("VariedForCausalLM",)
    decoder = VariedDecoder

    def __init__(self, decoder=VariedDecoder, layer=None, width=None, **traits):
        self.decoder, self.layer, self.width, self.own = decoder, layer, width, traits

    def traits(self, raw):
        return LayerTraits(multipliers=Multipliers(attention=0.25), **self.own)

    def layer_attention(self, raw, num_layers, where):
        return (self.layer,) * num_layers if self.layer else ()

    def inner_sizes(self, raw, num_layers):
        return (self.width,) * num_layers if self.width else ()


def load(path, family):
    write_checkpoint(path, architecture=family)
    options = {"dtype": "float32", "device": "cpu", "max_model_len": None}
    return ModelLoader(families=(family,)).load_decoder(path, kernels=TorchKernels(), **options)


@pytest.mark.parametrize("traits", [*TRAITS.values(), {"layer": LayerAttention(num_kv_heads=1, head_dim=8)}], ids=str)
def test_a_decoder_that_ignores_what_its_family_has_is_refused(tmp_path, traits):
    with pytest.raises(ModelError, match=r"decoder, DecoderModel, does not compute them\. Set its `decoder` to Varied"):
        load(tmp_path / "plain", Varied(DecoderModel, **traits))
    assert isinstance(load(tmp_path / "varied", Varied(**traits)), VariedDecoder)


@pytest.mark.parametrize("name", NOT_COMPUTED)
def test_what_the_decoder_does_not_compute_is_refused(tmp_path, name):
    with pytest.raises(ModelError, match=f"family varied: VariedDecoder does not compute .*{name}"):
        load(tmp_path, Varied(value_norm=True, **NOT_COMPUTED[name]))


def test_kernel_sets_are_told_of_widths_by_layer(tmp_path):
    assert load(tmp_path, Varied(DecoderModel, width=32)).config.beyond_llama == {"widths by layer"}
