"""Frozen configuration of the engine.

Owns names, defaults, bounds and their errors; imports no torch. A plugin's own options are its own Struct,
filled from `plugin_options[NAME]`; the core knows none of them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

import msgspec

from specserve.errors import ConfigError
from specserve.limits import MAX_CONFIGURED_LOGPROBS, MAX_LOGPROBS, MAX_SEED, MIN_SEED
from specserve_checks.allowed_values import AtLeast, Between, Form, OneOf, Unset, check_fields

DTYPES = ("auto", "float32", "bfloat16", "float16")
DEVICES = ("cpu", "cuda")
GRAPHS = ("auto", "none", "piecewise", "full")
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64)
MAX_THREADS = 1024
"""Torch crashes where the system cannot give it the threads."""
BYTES, BUCKETS = Form("bytes, with K, M or G"), Form("ascending, at most max_num_batched_tokens")
CACHE_DEFAULT = "what max_num_seqs full contexts need, at most a quarter of free memory"
DEMO_MODEL = "demo"
SAMPLING_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""The sampling parameters that a model may have defaults for."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that shapes an engine. Sizes are in tokens unless the name says otherwise."""

    model: str = DEMO_MODEL
    """A directory in Hugging Face format, a name from the entry-point group `specserve.models`, or a hub id."""
    dtype: Annotated[str, OneOf(DTYPES)] = "auto"
    device: Annotated[str, OneOf(DEVICES)] = "cpu"
    threads: Annotated[int | None, Between(1, MAX_THREADS), Unset("the cores that this process may use")] = None
    """CPU threads; None: the number of cores this process may use."""
    max_num_seqs: Annotated[int, AtLeast(1)] = 64
    max_num_batched_tokens: Annotated[int, AtLeast(1)] = 512
    """The budget of one step: decode and prefill rows and draft tokens together."""
    max_model_len: Annotated[int | None, AtLeast(1), Unset("the model's own, at most 32768")] = None
    """Context length; None: the model's own, at most 32768."""
    max_waiting: Annotated[int, AtLeast(1)] = 1024
    stream_interval: Annotated[int, AtLeast(1)] = 1
    """A request's first tokens reach its reader at once, later ones when they are so many or the last."""
    block_size: Annotated[int, OneOf(BLOCK_SIZES)] = 16
    kv_memory: Annotated[str | None, BYTES, Unset(CACHE_DEFAULT)] = None
    """Bytes for the KV cache, with K, M or G; None: what max_num_seqs full contexts need, at most a quarter of
    free memory."""
    state_memory: Annotated[str | None, BYTES, Unset("four states per request, at most a tenth of free memory")] = None
    """Bytes for the states of recurrent layers, those of running requests and those saved for the prefix cache, with K,
    M or G; None: the former, and four more for each of max_num_seqs, at most a tenth of free memory."""
    tokenizer: Annotated[str | None, Unset("the model's")] = None
    """A directory with a tokenizer.json; None: the model's."""
    generation_config: Annotated[str | dict[str, float], Form("auto, none or an object")] = "auto"
    """Defaults of sampling parameters. auto: the model's generation_config.json; none: no defaults of the model; a
    table: these over the model's."""
    seed: Annotated[int | None, Between(MIN_SEED, MAX_SEED), Unset("random")] = None
    """From which the seeds of requests without one are derived, in order of arrival; None: at random."""
    max_logprobs: Annotated[int, Between(0, MAX_CONFIGURED_LOGPROBS)] = MAX_LOGPROBS
    """The largest `logprobs`, `top_logprobs` and `prompt_logprobs` of a request."""
    prefix_cache: bool = True
    chunked_prefill: bool = True
    max_draft_tokens: Annotated[int, AtLeast(0)] = 32
    """The widest draft of one request."""
    draft_tokens: Annotated[int | None, AtLeast(0), Unset("what a plugin decides in every step, else 4")] = None
    """A fixed number of draft tokens per request and step, at most max_draft_tokens. Where this or max_draft_batch is
    set, the plugin adaptive is not enabled by default."""
    max_draft_batch: Annotated[int | None, AtLeast(0), Unset("what a plugin decides in every step, else 8")] = None
    """Running requests up to which a fixed number of draft tokens is drafted for each; with more, for none."""
    attention: str = "auto"
    graphs: Annotated[str, OneOf(GRAPHS)] = "auto"
    """What is recorded and replayed: full graphs of decode and verify steps and piecewise ones of the others,
    piecewise ones of all steps, or none. auto: full on CUDA, none on CPUs, where they gain nothing."""
    graph_buckets: Annotated[tuple[int, ...] | None, BUCKETS, Unset("four per doubling")] = None
    """The numbers of rows that steps are padded to; None: four per doubling, up to max_num_batched_tokens."""
    graph_memory: Annotated[str | None, BYTES, Unset("at most a tenth of free memory")] = None
    """Bytes for graphs and their buffers, with K, M or G; None: at most a tenth of free memory."""
    graph_warm_up: bool = False
    """Record graphs at start-up instead of when a step first needs them."""
    draft_fault_limit: Annotated[int, AtLeast(1)] = 5
    """Faulty steps in a row after which a drafter is switched off."""
    fault_limit: Annotated[int, AtLeast(1)] = 5
    """Faulty calls in a row after which any other part of a plugin is switched off: observer, planner, processor."""
    plugins: tuple[str, ...] = ()
    no_plugins: tuple[str, ...] = ()
    default_plugins: bool = True
    allow_undeclared: bool = False
    plugin_options: dict[str, dict[str, Any]] = {}

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        check_generation_config(self.generation_config)
        if self.graph_buckets is not None:
            check_buckets(self.graph_buckets, self.max_num_batched_tokens)
        for name in ("kv_memory", "state_memory", "graph_memory"):
            if (size := getattr(self, name)) is not None:
                parse_bytes(size, name)

    @property
    def graph_mode(self) -> str:
        """`graphs`, with auto resolved: none, piecewise or full."""
        if self.graphs != "auto":
            return self.graphs
        return "full" if self.device == "cuda" else "none"


def check_generation_config(setting: str | dict[str, float]) -> None:
    if isinstance(setting, str):
        if problem := OneOf(("auto", "none")).problem("generation_config", setting):
            raise ConfigError(problem)
        return
    for name in setting:
        if name not in SAMPLING_DEFAULTS:
            raise ConfigError(f"generation_config has {', '.join(SAMPLING_DEFAULTS)}; got {name!r}.")


def check_buckets(buckets: tuple[int, ...], max_rows: int) -> None:
    what = "graph_buckets are ascending numbers of rows, such as 1,2,4,8"
    if not buckets or buckets[0] < 1 or any(one >= other for one, other in pairwise(buckets)):
        raise ConfigError(f"{what}; got {','.join(map(str, buckets)) or 'none'}.")
    if buckets[-1] > max_rows:
        raise ConfigError(
            f"graph_buckets end at {buckets[-1]} rows, and no step has more than {max_rows}, max_num_batched_tokens. "
            f"Leave out what is above {max_rows}, or raise max_num_batched_tokens."
        )


def parse_bytes(text: str, name: str = "a memory size") -> int:
    """`"512M"` -> 536870912. Suffixes K, M, G are powers of 1024; no suffix is bytes. `name`: the option."""
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:].upper(), 1)
    digits = text[:-1] if scale > 1 else text
    try:
        size = int(float(digits) * scale)
    except (ValueError, OverflowError):
        size = 0
    if not 0 < size < 2**63:
        raise ConfigError(f"{name} must be a positive number with K, M or G, such as 512M or 2G; got {text!r}.")
    return size
