"""The interfaces that plugins implement and built-in parts implement alike.

Only signatures and contracts; no implementation and, at run time, no torch. Letters: T rows of a batch or tile,
H hidden size, V vocabulary.
"""

from specserve.batch.processor_state import LogitEdits, ProcessorState
from specserve.protocols.attention import (
    BY_SLOT,
    PHASES,
    Arithmetic,
    AttentionBackend,
    AttentionCapabilities,
    AttentionFactory,
    AttentionNeeds,
    AttentionSpec,
    GraphMode,
    GraphPlan,
    KVLayout,
    Phase,
)
from specserve.protocols.draft_model import (
    DraftGraphs,
    DraftLayers,
    DraftReplays,
    DraftResources,
    LayersFunction,
    TargetCosts,
)
from specserve.protocols.draft_pass import BlockPass, BlockRows, DraftChains, DraftPass, DraftStep
from specserve.protocols.drafter import Drafter, DrafterNeeds
from specserve.protocols.graphs import (
    AdapterLimits,
    Cut,
    GraphAdapters,
    GraphShape,
    Recorder,
    Recording,
    RunLimits,
)
from specserve.protocols.lowrank import AdapterWeights, LoraPlanner, LowRankPart
from specserve.protocols.mixer import Mixer
from specserve.protocols.model import AdaptableModel, AdaptableProjection, Delta, ForwardPass, KernelSet
from specserve.protocols.part import Combine, TensorPart, WholeMap
from specserve.protocols.planner import CostTable, DraftComposer, DraftPlanner, PlanningRuntime
from specserve.protocols.prefix_cache import BlocksRemoved, BlocksStored, CacheChange, CacheCleared, CacheObserver
from specserve.protocols.quantised import Factors, PackedRows, QuantisedWeight, StackedWeight
from specserve.protocols.recurrent import LayerStates, RecurrentMixer
from specserve.protocols.sampling import (
    DraftToken,
    DraftVocabulary,
    LogitsProcessor,
    Sampler,
    ScoredRow,
)
from specserve.protocols.serving import (
    AnswerCheck,
    Metric,
    MetricsSource,
    Observer,
    OutputObserver,
    ResolvedModel,
    TextStream,
    Tokenizer,
)
from specserve.protocols.target_keys import KeyPlan, KeyReader, TargetKeyResources, TargetKeys
from specserve.protocols.target_pass import DraftAdapter, GuessedRows, TargetPass
from specserve.protocols.verifier import Verifier

__all__ = [
    "BY_SLOT",
    "PHASES",
    "AdaptableModel",
    "AdaptableProjection",
    "AdapterLimits",
    "AdapterWeights",
    "AnswerCheck",
    "Arithmetic",
    "AttentionBackend",
    "AttentionCapabilities",
    "AttentionFactory",
    "AttentionNeeds",
    "AttentionSpec",
    "BlockPass",
    "BlockRows",
    "BlocksRemoved",
    "BlocksStored",
    "CacheChange",
    "CacheCleared",
    "CacheObserver",
    "Combine",
    "CostTable",
    "Cut",
    "Delta",
    "DraftAdapter",
    "DraftChains",
    "DraftComposer",
    "DraftGraphs",
    "DraftLayers",
    "DraftPass",
    "DraftPlanner",
    "DraftReplays",
    "DraftResources",
    "DraftStep",
    "DraftToken",
    "DraftVocabulary",
    "Drafter",
    "DrafterNeeds",
    "Factors",
    "ForwardPass",
    "GraphAdapters",
    "GraphMode",
    "GraphPlan",
    "GraphShape",
    "GuessedRows",
    "KVLayout",
    "KernelSet",
    "KeyPlan",
    "KeyReader",
    "LayerStates",
    "LayersFunction",
    "LogitEdits",
    "LogitsProcessor",
    "LoraPlanner",
    "LowRankPart",
    "Metric",
    "MetricsSource",
    "Mixer",
    "Observer",
    "OutputObserver",
    "PackedRows",
    "Phase",
    "PlanningRuntime",
    "ProcessorState",
    "QuantisedWeight",
    "Recorder",
    "Recording",
    "RecurrentMixer",
    "ResolvedModel",
    "RunLimits",
    "Sampler",
    "ScoredRow",
    "StackedWeight",
    "TargetCosts",
    "TargetKeyResources",
    "TargetKeys",
    "TargetPass",
    "TensorPart",
    "TextStream",
    "Tokenizer",
    "Verifier",
    "WholeMap",
]
