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
    KVLayout,
    Phase,
)
from specserve.protocols.draft_model import (
    ChainPass,
    DraftChains,
    DraftFusingKernels,
    DraftLayers,
    DraftPass,
    DraftRows,
    DraftRuntime,
    DraftSequence,
    DraftStep,
    Feed,
    TargetCosts,
)
from specserve.protocols.lowrank import AdapterWeights, LoraPlanner, LowRankPart
from specserve.protocols.model import AdaptableModel, Delta, ForwardPass, KernelSet, Projection
from specserve.protocols.sampling import DraftSampler, DraftToken, DraftVocabulary, LogitsProcessor, Sampler, ScoredRow
from specserve.protocols.serving import Metric, Observer, ResolvedModel, TextStream, Tokenizer
from specserve.protocols.speculation import CostLearner, Drafter, DrafterNeeds, DraftPlanner, ModelDrafter, Verifier

__all__ = [
    "BY_SLOT",
    "PHASES",
    "AdaptableModel",
    "AdapterWeights",
    "Arithmetic",
    "AttentionBackend",
    "AttentionCapabilities",
    "AttentionFactory",
    "AttentionNeeds",
    "AttentionSpec",
    "ChainPass",
    "CostLearner",
    "Delta",
    "DraftChains",
    "DraftFusingKernels",
    "DraftLayers",
    "DraftPass",
    "DraftPlanner",
    "DraftRows",
    "DraftRuntime",
    "DraftSampler",
    "DraftSequence",
    "DraftStep",
    "DraftToken",
    "DraftVocabulary",
    "Drafter",
    "DrafterNeeds",
    "Feed",
    "ForwardPass",
    "KVLayout",
    "KernelSet",
    "LogitEdits",
    "LogitsProcessor",
    "LoraPlanner",
    "LowRankPart",
    "Metric",
    "ModelDrafter",
    "Observer",
    "Phase",
    "ProcessorState",
    "Projection",
    "ResolvedModel",
    "Sampler",
    "ScoredRow",
    "TargetCosts",
    "TextStream",
    "Tokenizer",
    "Verifier",
]
