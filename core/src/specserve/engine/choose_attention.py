"""Chooses the attention backend: the one that `--attention` names, a plugin's choice, or the best that fits.

A choice that cannot work is refused with all its reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch

from specserve.attention.by_shape import AttentionByShape, Member, members_of
from specserve.attention.fitting import best_fit, cuts_drafts, layout_for, misfits, none_fits, unknown
from specserve.engine.size_cache import CacheShape
from specserve.errors import ConfigError, PluginError
from specserve.plugins.interface_checks import as_list, check_members, check_type
from specserve.protocols import PHASES, AttentionCapabilities, AttentionNeeds, AttentionSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve.config import EngineConfig
    from specserve.kv.cache import KVCache
    from specserve.kv.head_shape import HeadShape
    from specserve.models.served_model import ServedModel
    from specserve.plugins.host import PluginHost
    from specserve.protocols import AttentionBackend, AttentionFactory, Drafter, DraftLayers, GraphMode, KVLayout

FACTORY_PARTS = {"attributes": ("name", "capabilities"), "methods": ("build",)}
BACKEND_PARTS = {
    "attributes": ("name", "arithmetic", "writable_cache"),
    "methods": ("backend_for", "graph_plan", "plan", "forward", "attend", "write", "mix", "mix_states"),
}


class ChosenAttention(NamedTuple):
    """A backend for the model, and the plugin that provides it."""

    backend: AttentionBackend
    owner: str
    row_invariant: bool
    chains_only: bool
    """Drafts must not branch: the backend could not keep siblings apart."""
    cuts_drafts: bool
    """Whether some are expected to branch, and are cut."""
    graphs: tuple[GraphMode, ...]
    """The kinds of graphs that it states to serve."""
    layout: KVLayout

    @property
    def description(self) -> str:
        cut = "; no tree mask, so drafts are cut to chains" if self.cuts_drafts else ""
        kept = f"; KV cache in {self.layout.dtype}" if self.layout.dtype is not None else ""
        return f"{self.backend.name} ({self.owner}{cut}{kept})"


class AttentionChoice(NamedTuple):
    """A backend's factory, before there is a cache: how keys and values lie in it is part of the choice."""

    owner: str
    factory: AttentionFactory
    needs: AttentionNeeds
    specs: tuple[AttentionSpec, ...]
    """One, or one for each shape of heads that layers have."""
    members: tuple[Member, ...] = ()
    """By layer, where there are several."""

    def cache_shape(self, dtype: torch.dtype, token_widths: tuple[int, ...]) -> CacheShape:
        """dtype: the model's."""
        others = tuple(CacheShape.of(spec, dtype) for spec in self.specs[1:])
        return CacheShape.of(self.specs[0], dtype, token_widths)._replace(others=others)

    def build(self, cache: KVCache, device: torch.device) -> ChosenAttention:
        caches = (cache, *cache.others)
        backends = [self.build_one(spec, each, device) for spec, each in zip(self.specs, caches, strict=True)]
        backend = AttentionByShape(backends, self.members) if self.members else backends[0]
        can = self.factory.capabilities
        return ChosenAttention(
            backend,
            self.owner,
            can.row_invariant,
            chains_only=not can.tree_mask,
            cuts_drafts=cuts_drafts(can, self.needs),
            graphs=() if self.members else can.graphs,
            layout=self.specs[0].kv_layout,
        )

    def build_one(self, spec: AttentionSpec, cache: KVCache, device: torch.device) -> AttentionBackend:
        """For layers of one shape of heads."""
        backend = self.factory.build(spec, cache, device, getattr(torch, self.needs.dtype))
        check(self.owner, backend, BACKEND_PARTS, "AttentionBackend")
        return backend


def check_attention_name(config: EngineConfig, host: PluginHost) -> None:
    """Before the model is loaded. Raises ConfigError for a backend that nobody brings."""
    if config.attention != "auto":
        check_offered(config.attention, offered(host)[1])


def check_offered(name: str, offers: Mapping[str, AttentionFactory]) -> None:
    if name not in offers:
        raise ConfigError(f"--attention: {unknown(name, offers)}.")


def choose_attention(
    config: EngineConfig, host: PluginHost, model: ServedModel, drafters: Sequence[Drafter]
) -> AttentionChoice:
    """The attention of the target."""
    specs = by_shape(spec_of(config, model), model.head_shapes)
    needs = needs_of(config, specs, drafts=bool(drafters), trees=has_trees(host, drafters))
    read = any(drafter.needs.target_keys is not None for drafter in drafters)
    needs = msgspec.structs.replace(needs, attend_only=read)
    choice = checked_choice(host, config, model.part.agree_on_attention(needs), specs)
    return choice if len(specs) == 1 else choice._replace(members=tuple(members_of(model.head_shapes)))


def choose_draft_attention(config: EngineConfig, host: PluginHost, layers: DraftLayers) -> AttentionChoice:
    """The attention of a draft model, by the same rules. All its rows are of the phase decode."""
    spec = msgspec.structs.replace(spec_of(config, layers), first_key=int(layers.reads_hidden))
    needs = needs_of(config, [spec], drafts=False, trees=layers.has_trees)
    needs = msgspec.structs.replace(needs, first_key=spec.first_key, phases=("decode",))
    return checked_choice(host, config, needs, [spec])


def checked_choice(
    host: PluginHost, config: EngineConfig, needs: AttentionNeeds, specs: Sequence[AttentionSpec]
) -> AttentionChoice:
    """Raises ConfigError where the chosen backend does not fit."""
    owners, offers = offered(host)
    owner, factory = choose(config, host, needs, owners, offers)
    if reasons := misfits(factory.capabilities, needs):
        whose = "this configuration" if needs.phases == PHASES else "the layers of a draft model"
        raise ConfigError(f"attention {factory.name} cannot serve {whose}: {'; '.join(reasons)}.")
    for other in offers.values():
        check_asked_for(other, factory, needs)
    layout = layout_for(factory.capabilities, needs)
    assert layout is not None, "a backend without a layout is a misfit"
    laid_out = tuple(msgspec.structs.replace(spec, kv_layout=layout) for spec in specs)
    return AttentionChoice(owner, factory, needs, laid_out)


def has_trees(host: PluginHost, drafters: Sequence[Drafter]) -> bool:
    return bool(drafters) and "draft.tree" in host.features


def spec_of(config: EngineConfig, layers: ServedModel | DraftLayers) -> AttentionSpec:
    return AttentionSpec(
        layers.num_heads,
        layers.num_kv_heads,
        layers.head_dim,
        layers.scale,
        config.block_size,
        layers.sliding_windows,
        soft_caps=layers.soft_caps,
        sinks=layers.sinks,
    )


def by_shape(spec: AttentionSpec, shapes: Sequence[HeadShape]) -> list[AttentionSpec]:
    """spec: of all layers; shapes: of each one's heads, or empty -> one for each shape, of the layers that have it."""
    if not shapes:
        return [spec]
    specs = []
    for shape in dict.fromkeys(shapes):
        own = [layer for layer, each in enumerate(shapes) if each == shape]
        windows, caps, sinks = (
            tuple(of_layers[layer] for layer in own if of_layers)
            for of_layers in (spec.sliding_windows, spec.soft_caps, spec.sinks)
        )
        specs.append(
            msgspec.structs.replace(spec, **shape._asdict(), sliding_windows=windows, soft_caps=caps, sinks=sinks)
        )
    return specs


def needs_of(config: EngineConfig, specs: Sequence[AttentionSpec], *, drafts: bool, trees: bool) -> AttentionNeeds:
    spec = specs[0]
    return AttentionNeeds(
        device=config.device,
        dtype=config.dtype,
        block_size=config.block_size,
        head_dim=spec.head_dim,
        head_bytes=spec.head_dim * getattr(torch, config.dtype).itemsize,
        graphs=config.graphs,
        drafts=drafts,
        trees=trees,
        soft_caps=any(cap is not None for spec in specs for cap in spec.soft_caps),
        sinks=any(sinks is not None for spec in specs for sinks in spec.sinks),
        other_head_dims=tuple(spec.head_dim for spec in specs[1:]),
    )


def offered(host: PluginHost) -> tuple[dict[str, str], dict[str, AttentionFactory]]:
    """Owners and backends, by the backend's name."""
    owners: dict[str, str] = {}
    offers: dict[str, AttentionFactory] = {}
    for owner, factories in host.collect("attention_backends"):
        for factory in as_list(owner, "attention_backends", factories):
            check_factory(owner, factory)
            if factory.name in offers:
                raise PluginError(
                    f"{owner} and {owners[factory.name]} both bring an attention backend named {factory.name!r}. "
                    f"Keep one: remove --plugin or pass --no-plugin for {owner} or {owners[factory.name]}."
                )
            owners[factory.name], offers[factory.name] = owner, factory
    return owners, offers


def choose(
    config: EngineConfig,
    host: PluginHost,
    needs: AttentionNeeds,
    owners: Mapping[str, str],
    offers: dict[str, AttentionFactory],
) -> tuple[str, AttentionFactory]:
    """The owner's name and the backend: --attention's, a plugin's, else the best that fits. A plugin's choice and
    --attention exclude each other."""
    selected = host.single("select_attention", available=offers, needs=needs)
    if selected is not None:
        if config.attention != "auto":
            raise ConfigError(
                f"--attention {config.attention}: plugin {selected[0]} chooses the attention backend. "
                f"Leave --attention at auto, or remove --plugin {selected[0]}."
            )
        check_factory(*selected)
        return selected
    if config.attention != "auto":
        check_offered(config.attention, offers)
        return owners[config.attention], offers[config.attention]
    best = best_fit(offers, needs, needs.phases)
    if best is None:
        raise ConfigError(f"--attention auto: {none_fits(offers, needs)}.")
    return owners[best.name], best


def check_asked_for(offer: AttentionFactory, chosen: AttentionFactory, needs: AttentionNeeds) -> None:
    """Raises ConfigError where an option asks for this backend, and the chosen one does not obey it."""
    ignored = [option for option in offer.capabilities.asked_for if option not in chosen.capabilities.asked_for]
    if not ignored:
        return
    reasons = misfits(offer.capabilities, needs)
    why = f", and {offer.name} cannot serve: {'; '.join(reasons)}" if reasons else ""
    raise ConfigError(
        f"{', '.join(ignored)} is obeyed by attention {offer.name} alone; got attention {chosen.name}{why}. Leave the "
        f"option at its default, or have {offer.name} chosen."
    )


def check_factory(owner: str, factory: AttentionFactory) -> None:
    check(owner, factory, FACTORY_PARTS, "AttentionFactory")
    check_type(owner, "the capabilities of its attention backend", factory.capabilities, AttentionCapabilities)


def check(owner: str, thing: object, parts: dict[str, tuple[str, ...]], kind: str) -> None:
    check_members(owner, f"brings a {type(thing).__name__} for attention", thing, kind, **parts)
