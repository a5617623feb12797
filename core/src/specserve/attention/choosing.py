"""Which attention backend serves: the one asked for, a plugin's choice, or the best that fits.

Capabilities are the backends' own statements; a choice that cannot work is refused with all its reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ConfigError
from specserve.protocols import AttentionSpec

if TYPE_CHECKING:
    import torch

    from specserve.config import EngineConfig
    from specserve.kv.cache import KVCache
    from specserve.models.decoder import DecoderModel
    from specserve.plugins import PluginHost
    from specserve.protocols import AttentionBackend, AttentionFactory

PHASES = ("prefill", "decode", "verify")


def make_attention(
    config: EngineConfig, host: PluginHost, model: DecoderModel, cache: KVCache, device: torch.device
) -> tuple[str, AttentionBackend]:
    """The owner's name and the chosen backend, built for the model."""
    offers: dict[str, tuple[str, AttentionFactory]] = {}
    for owner, factories in host.collect("attention_backends", config=config):
        offers |= {factory.name: (owner, factory) for factory in factories}
    name = chosen_name(config, host, offers)
    if name not in offers:
        raise ConfigError(f"--attention: no backend is named {name!r}; there are: {', '.join(offers)}.")
    owner, factory = offers[name]
    if reasons := misfits(factory, config):
        raise ConfigError(f"--attention {name} cannot serve this configuration: {'; '.join(reasons)}.")
    spec = AttentionSpec(
        model.num_heads, model.num_kv_heads, model.head_dim, model.scale, cache.block_size, model.sliding_windows
    )
    return owner, factory.build(spec, cache, device, model.dtype)


def chosen_name(config: EngineConfig, host: PluginHost, offers: dict[str, tuple[str, AttentionFactory]]) -> str:
    """--attention, else what a plugin selects, else a guest's backend that fits before the portable one."""
    if config.attention != "auto":
        return config.attention
    answer = host.single("select_attention", config=config, available=list(offers))
    if answer is not None:
        owner, phases = answer
        names = {phases.get(phase) for phase in PHASES}
        if len(names) != 1 or None in names:
            raise ConfigError(
                f"{owner} selects attention {phases}; the core runs one backend for {', '.join(PHASES)}. "
                "Select one composed of others, such as hybrid_attn's."
            )
        return str(names.pop())
    fitting = [name for name, (_, factory) in offers.items() if not misfits(factory, config)]
    guests = [name for name in fitting if offers[name][0] != "builtin"]
    return next(iter([*guests, *fitting, *offers]))


def misfits(factory: AttentionFactory, config: EngineConfig) -> list[str]:
    """Why the backend cannot serve the configuration; empty when it can."""
    can = factory.capabilities
    checks = (
        ("device", config.device, can.devices),
        ("dtype", config.dtype, can.dtypes),
        ("block size", config.block_size, can.block_sizes),
    )
    return [
        f"{what} {got} is not among {', '.join(map(str, allowed))}"
        for what, got, allowed in checks
        if got not in allowed
    ]
