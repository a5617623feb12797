"""The closed list of feature tokens: what the core does itself, what kernels and other plugins may provide.

Owns the core's namespaces. Knows nothing about which plugins exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve.config import EngineConfig

CORE_FEATURES = {
    "prefix_cache": "prompts reuse the KV blocks of earlier requests with the same beginning",
    "chunked_prefill": "a long prompt is computed in several steps, beside other requests",
    "logprobs": "responses carry raw log-probabilities of generated and prompt tokens",
    "penalties": "repetition, presence and frequency penalties, logit bias, bad words, min_tokens",
    "graph.full": "decode and verify steps are replayed from one recorded graph",
    "graph.piecewise": "the parts between attention calls are replayed from recorded graphs",
}
"""What the core itself does. A plugin works with these unless it declares a conflict, and none may provide them."""

KERNEL_FEATURES = {
    "kernel.torch": "the model's arithmetic in plain torch",
    "kernel.cpu": "native kernels for CPUs",
    "kernel.cuda": "native kernels for CUDA devices",
}
"""Changes speed and not meaning. A plugin works with these unless it declares a conflict; providers are default-on."""

REPLAY = "graph.replay"
GRAPH_FEATURES = {REPLAY: "records steps and replays them"}
"""Changes speed and not meaning. A plugin works with these unless it declares a conflict; providers are default-on."""

MODEL_FEATURES = {
    "model.family": "serves models of families that the engine does not have itself",
    "model.library": "serves models that another library computes",
    "model.weights": "reads files of weights in formats that the engine does not have itself",
    "model.files": "makes models of files in other formats, which stand for themselves",
    "model.quantised": "reads quantised weights among the tensors of a file",
}
"""What adds models and changes nothing for others. A plugin works with these unless it declares a conflict; providers
are default-on."""

PLUGIN_FEATURES = {
    "draft.chain": "drafts the next tokens as a chain",
    "draft.tree": "drafts the next tokens as a tree of alternatives",
    "draft.model": "a drafter that computes with weights, and perhaps KV layers, of its own",
    "lora.target": "adapters change the target model's projections, per request",
    "attention.hybrid": "different attention backends serve prompt, decode and verify rows",
    "attention.backend": "brings an attention backend",
    "planner.adaptive": "decides from measurements how much to draft and to verify",
    "verifier.lossless": "replaces the verifier and keeps the target distribution",
    "verifier.lossy": "replaces the verifier and may change which tokens come out",
    "logits.processor": "changes logits before a token is chosen",
    "observer.metrics": "learns from or counts what was committed, and changes nothing",
    "observer.cache": "is told which blocks the prefix cache knows, and changes nothing",
    "server.routes": "adds routes to the HTTP server",
    "parallel.tensor": "several processes compute each layer of the target together",
}
"""What other plugins provide. Where two plugins provide these, one of them must declare the other's compatible."""

FEATURES = CORE_FEATURES | KERNEL_FEATURES | GRAPH_FEATURES | MODEL_FEATURES | PLUGIN_FEATURES
NAMESPACES = frozenset(token.partition(".")[0] for token in FEATURES)

HOW_TO_SWITCH_OFF = {
    "prefix_cache": "pass --no-prefix-cache",
    "chunked_prefill": "pass --no-chunked-prefill",
    "graph.full": "pass --graphs none or piecewise",
    "graph.piecewise": "pass --graphs none",
}
"""The flags that switch a core feature off; the others are always on."""


def needs_no_declaration(token: str) -> bool:
    """Whether a plugin works with this feature unless it declares a conflict."""
    return any(token in group for group in (CORE_FEATURES, KERNEL_FEATURES, GRAPH_FEATURES, MODEL_FEATURES))


def core_features(config: EngineConfig, provided: Iterable[str]) -> tuple[str, ...]:
    """The features of the core under this configuration, with kernel.torch unless a plugin provides kernels."""
    switched = {
        "prefix_cache": config.prefix_cache,
        "chunked_prefill": config.chunked_prefill,
        "graph.full": config.graph_mode == "full",
        "graph.piecewise": config.graph_mode != "none",
    }
    kernels = () if any(token in KERNEL_FEATURES for token in provided) else ("kernel.torch",)
    return (*(token for token in CORE_FEATURES if switched.get(token, True)), *kernels)
