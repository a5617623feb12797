"""Builds an engine from a configuration and its plugins, in the order that each part needs.

Load, kernels, adapt_model, drafter, KV sized after all weights, attention, planner. A role that only one
plugin may own is asked through `PluginHost.single`, which refuses two.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from specserve.admission import Limits
from specserve.batch import BatchBuilder
from specserve.calibration import Calibration
from specserve.config import EngineConfig, parse_bytes
from specserve.costs import measure_costs
from specserve.drafting import Drafting, NoDraft
from specserve.engine import Engine, EngineParts
from specserve.errors import ConfigError, PluginError
from specserve.kv.blocks import BlockPool
from specserve.kv.cache import KVCache
from specserve.metrics import EngineMetrics
from specserve.models.config import read_config
from specserve.models.loader import load_model
from specserve.models.locate import locate_model
from specserve.planning import CostPlanner, VerifyAll
from specserve.protocols import AttentionFactory, AttentionSpec, Drafter, DraftPlanner
from specserve.runner import Runner
from specserve.sampling.processors import MinTokensProcessor
from specserve.scheduler import Scheduler
from specserve.text.tokenizer import HfTokenizer
from specserve.verifier import DrafterInvariantVerifier

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.models.decoder import DecoderModel
    from specserve.plugins import PluginHost
    from specserve.protocols import AttentionBackend, KernelSet, Verifier

logger = logging.getLogger(__name__)
SHARE_OF_FREE_MEMORY = 0.25
ROW_INVARIANT_DEVICES = ("cpu",)


class Assembled(NamedTuple):
    """An engine and the names that describe it."""

    engine: Engine
    config: EngineConfig
    """With every `auto` and None resolved."""
    tokenizer: HfTokenizer
    description: dict[str, Any]


def assemble(
    config: EngineConfig, host: PluginHost, on_progress: Callable[[int, int], None] | None = None
) -> Assembled:
    """Load everything and make the engine. Raises ConfigError and its kind."""
    path = locate_model(config.model)
    model_config = read_config(path)
    config = resolved(config, model_config.dtype)
    torch.set_num_threads(config.threads or 1)
    device = pick_device(config.device)
    tokenizer = HfTokenizer.from_dir(path)
    kernels_owner, kernels = owned(host.single("make_kernels", config=config, device=config.device, dtype=config.dtype))
    model = load_model(
        path,
        kernels=kernels,
        dtype=config.dtype,
        device=config.device,
        max_model_len=config.max_model_len,
        on_progress=on_progress,
    )
    host.collect("adapt_model", model=model, config=config)
    drafter = one_drafter(host.collect("make_drafter", model=model, config=config))
    cache = make_cache(config, model, drafter)
    attention_owner, attention = make_attention(config, host, model, cache, device)
    runner = Runner(model, kernels, attention, drafter.needs.hidden_layers if drafter else ())
    builder = BatchBuilder(config.block_size, device)
    planner = make_planner(config, host, drafter, runner, builder, cache, device)
    metrics = EngineMetrics()
    verifier: Verifier = (
        host.single("make_verifier", config=config) or ("", DrafterInvariantVerifier(tokenizer.eos_token_ids))
    )[1]
    config = msgspec_replace(config, max_model_len=model.max_model_len)
    parts = EngineParts(
        scheduler=Scheduler(
            pool=BlockPool(cache.num_blocks),
            builder=builder,
            planner=planner,
            metrics=metrics,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            chunked_prefill=config.chunked_prefill,
            prefix_cache=config.prefix_cache,
            arithmetic=f"{kernels.name}/{attention.name}/{config.dtype}",
        ),
        runner=runner,
        verifier=verifier,
        drafting=NoDraft()
        if drafter is None
        else Drafting(
            drafter, planner, metrics, vocab_size=model.vocab_size, fault_limit=config.draft_fault_limit
        ),
        planner=planner,
        cache=cache,
        processors=[
            MinTokensProcessor(tokenizer.eos_token_ids),
            *(p for _, some in host.collect("logits_processors", config=config) for p in some),
        ],
        observers=[observer for _, observer in host.collect("make_observer", config=config)],
        tokenizer=tokenizer,
        metrics=metrics,
        limits=Limits(model.vocab_size, model.max_model_len, cache.num_blocks * cache.block_size),
        max_waiting=config.max_waiting,
    )
    description = {
        "model": config.model,
        "kernels": f"{kernels.name} ({kernels_owner})",
        "attention": f"{attention.name} ({attention_owner})",
        "drafter": drafter.name if drafter else None,
        "verifier": verifier.name,
        "lossless": verifier.lossless,
        "row_invariant": config.device in ROW_INVARIANT_DEVICES,
        "kv_cache_tokens": cache.num_blocks * cache.block_size,
        "config": config,
    }
    return Assembled(Engine(parts), config, tokenizer, description)


def msgspec_replace(config: EngineConfig, **changes: Any) -> EngineConfig:
    import msgspec

    return msgspec.structs.replace(config, **changes)


def owned(answer: tuple[str, Any] | None) -> tuple[str, KernelSet]:
    assert answer is not None, "the built-in plugin always offers kernels"
    return answer


def resolved(config: EngineConfig, model_dtype: str) -> EngineConfig:
    """Every `auto` settled."""
    threads = config.threads or len(os.sched_getaffinity(0))
    dtype = model_dtype if config.dtype == "auto" else config.dtype
    return msgspec_replace(config, threads=threads, dtype=dtype)


def pick_device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch sees no CUDA device here. Use --device cpu, or install a CUDA build.")
    return torch.device(name)


def one_drafter(answers: list[tuple[str, Drafter]]) -> Drafter | None:
    if len(answers) > 1:
        names = " and ".join(name for name, _ in answers)
        raise PluginError(f"{names} both bring a drafter; enable one of them.")
    return answers[0][1] if answers else None


def make_cache(config: EngineConfig, model: DecoderModel, drafter: Drafter | None) -> KVCache:
    """Size the KV cache: what was asked for, or what the configured requests can fill at most."""
    layers = model.num_layers + (drafter.needs.kv_layers if drafter else 0)
    per_block = KVCache.bytes_per_block(
        layers, config.block_size, model.num_kv_heads, model.head_dim, model.dtype
    )
    if config.kv_memory is not None:
        num_blocks = parse_bytes(config.kv_memory) // per_block
    else:
        wanted = config.max_num_seqs * -(-(model.max_model_len + config.max_draft_tokens) // config.block_size)
        num_blocks = min(wanted, int(free_memory(config.device) * SHARE_OF_FREE_MEMORY) // per_block)
    if num_blocks < 2:
        raise ConfigError(
            f"the KV cache needs at least two blocks of {per_block} bytes; got room for {num_blocks}. "
            "Give more with --kv-memory, or choose a smaller --block-size."
        )
    return KVCache(
        num_layers=layers,
        num_blocks=num_blocks,
        block_size=config.block_size,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        dtype=model.dtype,
        device=model.device,
    )


def free_memory(device: str) -> int:
    """Bytes that an allocation could get now."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def make_attention(
    config: EngineConfig, host: PluginHost, model: DecoderModel, cache: KVCache, device: torch.device
) -> tuple[str, AttentionBackend]:
    """The chosen backend, built; refuses one that cannot serve this configuration, with all its reasons."""
    offers: dict[str, tuple[str, AttentionFactory]] = {}
    for owner, factories in host.collect("attention_backends", config=config):
        for factory in factories:
            offers[factory.name] = (owner, factory)
    fitting = {name: offer for name, offer in offers.items() if not misfits(offer[1], config)}
    name = config.attention
    if name == "auto":  # a guest's backend goes before the portable one
        name = next((n for n, (owner, _) in fitting.items() if owner != "builtin"), next(iter(fitting), "none"))
    if name not in offers:
        raise ConfigError(f"--attention: no backend is named {name!r}; there are: {', '.join(offers)}.")
    if name not in fitting:
        reasons = "; ".join(misfits(offers[name][1], config))
        raise ConfigError(f"--attention {name} cannot serve this configuration: {reasons}.")
    spec = AttentionSpec(
        model.num_heads,
        model.num_kv_heads,
        model.head_dim,
        model.scale,
        cache.block_size,
        model.sliding_windows,
    )
    owner, factory = offers[name]
    return owner, factory.build(spec, cache, device, model.dtype)


def misfits(factory: AttentionFactory, config: EngineConfig) -> list[str]:
    """Why the backend cannot serve the configuration; empty when it can."""
    can = factory.capabilities
    checks = (
        ("device", config.device, can.devices),
        ("dtype", config.dtype, can.dtypes),
        ("block size", config.block_size, can.block_sizes),
    )
    return [
        f"{what} {got} is not among {', '.join(map(str, allowed))}" for what, got, allowed in checks if got not in allowed
    ]


def make_planner(
    config: EngineConfig,
    host: PluginHost,
    drafter: Drafter | None,
    runner: Runner,
    builder: BatchBuilder,
    cache: KVCache,
    device: torch.device,
) -> DraftPlanner:
    answer = host.single("make_draft_planner", config=config)
    if answer is not None:
        planner: DraftPlanner = answer[1]
        return planner
    if drafter is None:
        return VerifyAll(0)
    costs = measure_costs(
        runner,
        builder,
        num_blocks=cache.num_blocks,
        most_rows=config.max_num_batched_tokens,
        wait=torch.cuda.synchronize if device.type == "cuda" else lambda: None,
    )
    return CostPlanner(config.max_draft_tokens, costs, Calibration())
