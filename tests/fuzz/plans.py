"""A trial as plain data: what `drawing` makes, what is saved as JSON and replayed.

`Plan.requests` is None until they are drawn, because later prompts and stop strings are taken from what earlier
requests say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from specserve.types import SamplingParams, SpeculationParams

if TYPE_CHECKING:
    from pathlib import Path


class ModelPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint. `weights` is a kind of `weights.KINDS`; `config` are keys of config.json."""

    family: str
    seed: int
    dtype: str
    """That the engine computes in."""
    stored: str
    """The dtype of the checkpoint."""
    weights: str = "plain"
    config: dict[str, Any] = {}
    quantised: str | None = None
    """A layout of `quantising.FORMS` that maps of its layers are stored in."""
    eos: tuple[int, ...] | None = None
    """Ends of text in generation_config.json; None leaves the tokenizer's own."""

    @property
    def is_demo(self) -> bool:
        return self.family == "demo"


class EnginePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The engine under test: plugins, their options, and the sizes that decide how a request is cut up."""

    kernels: Literal["torch", "cpu"] = "torch"
    instruction_set: str = "auto"
    cpu_weights: Literal["auto", "int8", "int8-g64", "int4"] = "auto"
    """How the native kernels keep the weights of linear maps."""
    cpu_activations: Literal["auto", "int8", "float"] = "auto"
    """What they multiply weights of few bits by."""
    cpu_kv: Literal["auto", "int8"] = "auto"
    """How they keep keys and values in the cache."""
    threads: int = 1
    attention: str = "auto"
    hybrid: dict[str, str] | None = None
    graphs: Literal["none", "piecewise", "full"] = "none"
    buckets: tuple[int, ...] | None = None
    """Of graphs; None: the engine's own."""
    drafters: tuple[str, ...] = ()
    """Of ngram, repeat, eagle, uno (plugins), oracle, noisy and evil (the fuzzer's own)."""
    ngram: dict[str, Any] = {}
    eagle: dict[str, Any] = {}
    head: Literal["", "dspark", "peagle"] = ""
    """eagle drafts with a random head of this kind, not with the target itself."""
    uno: dict[str, Any] = {}
    """But for its adapter, which the seed makes."""
    grammar: bool = False
    """Some requests have a structured output."""
    corpus: bool = False
    repeat_width: int = 2
    noisy_p: float = 0.7
    hidden_layers: tuple[int, ...] = ()
    """Which the fuzzer's drafters ask for."""
    planner: Literal["own", "all", "chaos", "adaptive"] = "all"
    adaptive: dict[str, Any] = {}
    processor: Literal["apply", "edit"] | None = None
    faulty: tuple[str, ...] = ()
    """Which of processor, planner and observer raise now and then."""
    fault_limit: int = 5
    front: Literal["sync", "async"] = "sync"
    block_size: int = 16
    budget: int = 512
    chunked_prefill: bool = True
    prefix_cache: bool = True
    max_num_seqs: int = 8
    max_draft_tokens: int = 32
    max_model_len: int = 128
    room: float = 4.0
    """How many of the longest possible requests the KV cache holds."""
    max_loaded: int = 4
    """Adapters in memory at once."""
    kv_events: dict[str, Any] | None = None
    """Options of the plugin that publishes changes of the prefix cache; None: without it."""
    ranks: int = 1
    """Processes that share the model."""
    by_transformers: bool = False
    """transformers computes the layers."""
    seed: int = 0
    """Of drafters, planner, faults and slow readers."""


class AdapterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`seeds[v]` makes version v of the adapter's weights."""

    name: str
    seeds: tuple[int, ...]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something done to an adapter before step `at`, or as soon after as its requests allow."""

    at: int
    do: Literal["replace", "unload", "load"]
    name: str


class RequestPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One request, and what happens to it."""

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    speculation: SpeculationParams = SpeculationParams()
    priority: int = 0
    adapter: str | None = None
    salt: str = ""
    arrives: int = 0
    """Before which step; an async front takes half milliseconds."""
    aborted_after: int | None = None
    """Steps, or outputs in an async front."""
    again: bool = False
    """Sent once more under the same id after it was aborted."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    number: int
    mode: Literal["mixed", "pressure", "turns", "choices"]
    """What the requests are like: see `drawing.requests`."""
    model: ModelPlan
    engine: EnginePlan
    adapters: tuple[AdapterPlan, ...] = ()
    events: tuple[Event, ...] = ()
    requests: tuple[RequestPlan, ...] | None = None
    transformers: bool = False
    """Are some of the outputs held against transformers too?"""


def changed(struct: Any, **fields: Any) -> Any:
    """A copy with other values in these fields."""
    return msgspec.structs.replace(struct, **fields)


def save(plan: Plan, file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1))
    return file


def load(file: Path) -> Plan:
    return msgspec.json.decode(file.read_bytes(), type=Plan)


def describe(plan: Plan) -> str:
    """One line for a person."""
    model, engine = plan.model, plan.engine
    of_cpu = f"cpu/{engine.instruction_set}/{engine.cpu_weights}/{engine.cpu_activations}/{engine.cpu_kv}"
    kernels = engine.kernels if engine.kernels == "torch" else of_cpu
    attention = engine.attention if engine.hybrid is None else "/".join(engine.hybrid.values())
    drafters = "+".join(engine.drafters) or "no drafters"
    return (
        f"{model.family} {model.weights} {model.dtype}, {model.quantised or 'not quantised'}, {kernels}, attention "
        f"{attention}, {drafters}, planner {engine.planner}, {engine.front} front, {len(plan.adapters)} adapters, "
        f"{len(plan.requests or ())} requests, blocks of {engine.block_size}, budget {engine.budget}, "
        f"{engine.ranks} ranks, KV events {'no' if engine.kv_events is None else engine.kv_events['encoding']}"
    )
