"""What plugins are written with: hooks, declarations, the interfaces that hooks return, settings, requests and errors.

Plugins import `specserve.api` and its modules, and no other part of the core. Its names are those of the plugin API,
whose version is `PLUGIN_API`. Without torch, but for `attention`, `batch`, `graphs`, `models` and `sampling` in here.
"""

from specserve import protocols
from specserve.config import BLOCK_SIZES, EngineConfig, parse_bytes
from specserve.declare import PLUGIN_API, Compatible, Conflict, InProcessPlugin, PluginDeclaration, Provides
from specserve.errors import (
    ConfigError,
    ModelError,
    PluginError,
    QueueFullError,
    RequestError,
    ShuttingDownError,
    SpecserveError,
)
from specserve.faults import FAULTS, BadAnswerError, RequestFault, reason_of
from specserve.hookspecs import PluginOptions, hookimpl
from specserve.namespaces import adapter_id, adapter_name
from specserve.protocols import *
from specserve.types import (
    Draft,
    DrafterStats,
    ForwardOutput,
    GenerateRequest,
    GraphUse,
    PlannerStats,
    Reasoning,
    RequestOutput,
    SamplingParams,
    SpanVerdict,
    SpeculationParams,
    SpeculationStats,
    StructuredOutput,
    TokenLogprobs,
    Verdict,
)
from specserve_checks.json_types import JsonObject

__all__ = [
    "BLOCK_SIZES",
    "FAULTS",
    "PLUGIN_API",
    "BadAnswerError",
    "Compatible",
    "ConfigError",
    "Conflict",
    "Draft",
    "DrafterStats",
    "EngineConfig",
    "ForwardOutput",
    "GenerateRequest",
    "GraphUse",
    "InProcessPlugin",
    "JsonObject",
    "ModelError",
    "PlannerStats",
    "PluginDeclaration",
    "PluginError",
    "PluginOptions",
    "Provides",
    "QueueFullError",
    "Reasoning",
    "RequestError",
    "RequestFault",
    "RequestOutput",
    "SamplingParams",
    "ShuttingDownError",
    "SpanVerdict",
    "SpecserveError",
    "SpeculationParams",
    "SpeculationStats",
    "StructuredOutput",
    "TokenLogprobs",
    "Verdict",
    "adapter_id",
    "adapter_name",
    "hookimpl",
    "parse_bytes",
    "reason_of",
]
__all__ += protocols.__all__
