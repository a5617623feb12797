"""A family of decoders: which checkpoints are of it, and what it has that others do not.

Plugins answer the hook `model_families` with such objects; the engine's own are in `specserve.models.families`. Knows
nothing about where tensors lie and nothing about kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from specserve.errors import ModelError
from specserve.models.config import Activation, GateOf, Multipliers, NormPlaces, SwigluClamp
from specserve.models.decoder import DecoderModel
from specserve.models.windows import refuse_windows
from specserve.protocols.part import StoredAs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from specserve.model_files import RawJson
    from specserve.models.config import ModelConfig, QueryScale
    from specserve.models.decoder import DecoderWeights
    from specserve.models.experts_config import ExpertsConfig
    from specserve.models.layer_attention import LayerAttention, TokenInputs
    from specserve.models.mixer import MixerConfig
    from specserve.models.rope import RotaryTable
    from specserve.protocols import KernelSet

__all__ = ["LayerTraits", "ModelFamily", "StoredAs", "positive"]


class LayerTraits(NamedTuple):
    """What the layers have beyond plain linear maps and two norms, by the names that `ModelConfig` has for it."""

    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    """A norm of queries and keys, before the rotation."""
    qk_norm_of: Literal["head", "all heads"] = "head"
    norm_places: NormPlaces = "before"
    """With "before", the norms are `input_layernorm` and `post_attention_layernorm`; behind attention and the MLP they
    are `post_attention_layernorm` and `post_feedforward_layernorm`, and around them that before the MLP is
    `pre_feedforward_layernorm`."""
    wide_norms: bool = False
    norm_offset: float = 0.0
    activation: Activation = "silu"
    clamp: SwigluClamp = SwigluClamp()
    sinks: bool = False
    attention_gate: GateOf | None = None
    query_scale: QueryScale | None = None
    value_norm: bool = False
    layer_scales: bool = False
    token_inputs: TokenInputs | None = None
    multipliers: Multipliers = Multipliers()


def positive(raw: RawJson, key: str) -> float:
    """A number of config.json that the arithmetic multiplies or divides by. Raises ModelError."""
    value = raw.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
        return float(value)
    raise ModelError(f"config.json: {key} must be a positive number; got {value!r}. Correct the file.")


class ModelFamily:
    """A decoder of Llama's kind, as far as nothing else is said.

    A subclass has a `name` and `architectures`; everything else has a default. The names of tensors are those of Llama
    in Hugging Face format (`model.layers.0.self_attn.q_proj`), wherever the checkpoint has them.
    """

    name: str
    """`model_type` in config.json."""
    architectures: tuple[str, ...]
    """Classes that `architectures` in config.json may name."""
    within: tuple[str, ...] = ()
    """Classes of models that read images, too, and whose text part is of this family where its `model_type` says so:
    see `specserve.models.text_part`."""
    absent: Mapping[str, Any] = {}
    """What keys of config.json mean that are not there."""
    reads: tuple[str, ...] = ()
    """Keys of config.json that no other family reads; with their values in `ModelConfig.own`."""
    activations: tuple[str, ...] = ("silu", "swish")
    """What the activation may be, in config.json."""
    activation_key: str = "hidden_act"
    """Its key there."""
    rotates_parts: bool = False
    """Whether `partial_rotary_factor` holds for a plain rotation, too; it does beside the other types."""
    decoder: Callable[[ModelConfig, KernelSet, DecoderWeights, RotaryTable], DecoderModel] = DecoderModel
    """Computes the pieces of a layer. A class of the family's own runs piece by piece, with any kernels: kernel sets
    fuse the layers of `DecoderModel` alone."""
    toy: Mapping[str, Any] = {}
    """Keys of config.json of a small random model for tests, beyond those that all have."""

    def renamed(self, raw: RawJson) -> RawJson:
        """raw: config.json, with what is `absent` -> the same by the keys that other families have, which the other
        methods are given."""
        return raw

    def traits(self, raw: RawJson) -> LayerTraits:
        """raw: config.json, with what is `absent`."""
        return LayerTraits()

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        """Per layer: how many keys a query sees, itself included; None for all. `where` names the file in errors, which
        are ModelErrors."""
        return (None,) * num_layers

    def layer_attention(self, raw: RawJson, num_layers: int, where: str) -> tuple[LayerAttention, ...]:
        """Per layer: the sizes of its heads, and whose keys and values it reads; empty where layers do not differ."""
        return ()

    def inner_sizes(self, raw: RawJson, num_layers: int) -> tuple[int, ...]:
        """Per layer: the width of its MLP; empty where all have `intermediate_size`."""
        return ()

    def experts(self, raw: RawJson, num_layers: int) -> ExpertsConfig | None:
        """The layers' mixtures of experts, where they have them. ModelErrors where config.json is wrong."""
        return None

    def mixers(self, raw: RawJson, num_layers: int, where: str) -> tuple[MixerConfig | None, ...]:
        """Per layer: what it has in place of attention, None for attention; empty where all layers have that."""
        return ()

    def main_rotation(self, raw: RawJson) -> RawJson:
        """The keys of config.json that the rotation of layers without a window is read from."""
        return raw

    def rotations(self, raw: RawJson, num_layers: int, where: str) -> tuple[RawJson | None, ...]:
        """Per layer, the keys of config.json that its rotation is read from, and None for no rotation; empty where all
        layers have that of `raw`."""
        return ()

    def check(self, raw: RawJson, where: str) -> None:
        """Raise ModelError for what would change the arithmetic and is not implemented. raw: config.json as it is."""
        refuse_windows(raw, self.name, where)

    def stored_as(self, config: ModelConfig) -> Mapping[str, StoredAs]:
        """Linear maps and norms that the checkpoint has under another name, or as rows of a larger matrix; and single
        tensors, by names that end with `.weight` or `.bias`."""
        return {}

    def left_out(self, config: ModelConfig) -> tuple[str, ...]:
        """How names of tensors begin that a file may have and the model never reads."""
        return ()
