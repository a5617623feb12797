"""Models: families, formats of weights, decoders as data, draft heads, and passes over their layers."""

from specserve.engine.model_roles import installed_formats, installed_loader
from specserve.inference import inference
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.block_head import BlockHead, MarkovHead
from specserve.models.config import ModelConfig, Multipliers, SwigluClamp
from specserve.models.decoder import AttentionInput, DecoderLayer, DecoderModel, DecoderWeights, Rotation
from specserve.models.draft_head import DraftHead
from specserve.models.experts_config import ExpertsConfig
from specserve.models.family import LayerTraits, ModelFamily
from specserve.models.gated_delta_net import GatedDeltaNet, GatedDeltaNetConfig
from specserve.models.layer_attention import OF_TARGET, LayerAttention, TokenInputs
from specserve.models.library import LoadRequest, ModelLibrary
from specserve.models.lowrank_delta import LowRankDelta
from specserve.models.mixer import MixerConfig
from specserve.models.mlp import DenseMlp, MixtureOfExperts, Mlp, SharedExpert, dense_mlp
from specserve.models.part import WHOLE_MODEL, ModelPart
from specserve.models.projection import NO_BATCH, BatchRows, Projection, Router, WideRouter
from specserve.models.quantised import dense
from specserve.models.recurrence import TokenByToken
from specserve.models.rope import RotaryTable, rotary_table, supported_length
from specserve.models.rope_config import RopeConfig
from specserve.models.served_model import ServedModel
from specserve.models.short_conv import ShortConv, ShortConvConfig
from specserve.models.target_norm import TargetNorm
from specserve.models.tiled import NO_TAPS, TiledPass, copy_tap, forward_pass, in_tiles
from specserve.models.varied_decoder import VariedDecoder
from specserve.models.weight_format import (
    ALL_ROWS,
    FLOATS,
    QuantMethod,
    StoredTensor,
    WeightFiles,
    WeightFormat,
    WeightSource,
    expect,
)
from specserve.protocols.part import StoredAs, WholeMap
from specserve.protocols.quantised import Activations, Factors, PackedRows, QuantisedWeight, StackedWeight, numbers_of

__all__ = [
    "ALL_ROWS",
    "FLOATS",
    "NO_BATCH",
    "NO_TAPS",
    "OF_TARGET",
    "WHOLE_MODEL",
    "Activations",
    "AttentionInput",
    "BatchRows",
    "BlockHead",
    "DecoderLayer",
    "DecoderModel",
    "DecoderWeights",
    "DenseMlp",
    "DraftHead",
    "ExpertsConfig",
    "Factors",
    "GatedDeltaNet",
    "GatedDeltaNetConfig",
    "LayerAttention",
    "LayerTraits",
    "LoadRequest",
    "LowRankDelta",
    "MarkovHead",
    "MixerConfig",
    "MixtureOfExperts",
    "Mlp",
    "ModelConfig",
    "ModelFamily",
    "ModelLibrary",
    "ModelPart",
    "Multipliers",
    "PackedRows",
    "Projection",
    "QuantMethod",
    "QuantisedWeight",
    "RopeConfig",
    "RotaryTable",
    "Rotation",
    "Router",
    "ServedModel",
    "SharedExpert",
    "ShortConv",
    "ShortConvConfig",
    "StackedWeight",
    "StoredAs",
    "StoredTensor",
    "SwigluClamp",
    "TargetNorm",
    "TiledPass",
    "TokenByToken",
    "TokenInputs",
    "TorchKernels",
    "VariedDecoder",
    "WeightFiles",
    "WeightFormat",
    "WeightSource",
    "WholeMap",
    "WideRouter",
    "copy_tap",
    "dense",
    "dense_mlp",
    "expect",
    "forward_pass",
    "in_tiles",
    "inference",
    "installed_formats",
    "installed_loader",
    "numbers_of",
    "rotary_table",
    "supported_length",
]
