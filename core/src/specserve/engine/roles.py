"""What plugins' hooks return when the engine is built: checked against its protocol, and guarded.

One function per role. A role with one owner is collected by `PluginHost.single`, which refuses two.
Knows nothing about the order in which roles are needed: `assembly` owns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.builder import no_lora
from specserve.engine.verifier import DrafterInvariantVerifier
from specserve.errors import ConfigError, PluginError
from specserve.faults import FAULTS, full_summary
from specserve.guards.cache_observer import GuardedCacheObserver
from specserve.guards.lora_planner import GuardedLoraPlanner
from specserve.guards.metric_checks import check_metric
from specserve.guards.observer import GuardedObserver
from specserve.guards.planner import GuardedPlanner
from specserve.guards.processor import GuardedProcessor
from specserve.guards.request_check import GuardedRequestCheck
from specserve.guards.sampler import GuardedSampler
from specserve.guards.verifier import GuardedVerifier
from specserve.plugins.blame import CORE, Role
from specserve.plugins.interface_checks import as_list, check_extends, check_members, check_type
from specserve.plugins.loaded_plugin import BUILTIN
from specserve.protocols import (
    CacheObserver,
    DraftComposer,
    Drafter,
    DrafterNeeds,
    DraftLayers,
    DraftPlanner,
    KernelSet,
    LogitsProcessor,
    LoraPlanner,
    Sampler,
    TargetKeys,
)
from specserve.sampling.processors import MinTokensProcessor

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.batch.batch import Batch
    from specserve.batch.lora_plan import LoraPlan
    from specserve.config import EngineConfig
    from specserve.engine.choose_attention import ChosenAttention
    from specserve.models.served_model import ServedModel
    from specserve.plugins.host import PluginHost
    from specserve.protocols import PlanningRuntime, Verifier
    from specserve.types import Draft


class OwnedKernels(NamedTuple):
    """The kernel set, the plugin that provides it, and its sampler, guarded where it is not the core's own."""

    owner: str
    kernels: KernelSet
    sampler: Sampler


class OwnedVerifier(NamedTuple):
    """The verifier and the plugin that provides it."""

    owner: str
    verifier: Verifier


class OwnedLoraPlanner(NamedTuple):
    """The planner, the plugin that brought it, and its guarded method `plan`."""

    owner: str
    planner: LoraPlanner | None
    plan: Callable[[Batch], LoraPlan | None]
    max_adapters: int | None
    """None without a plugin's planner."""


def make_kernels(config: EngineConfig, host: PluginHost) -> OwnedKernels:
    answer: tuple[str, KernelSet] | None = host.single(
        "make_kernels", config=config, device=config.device, dtype=config.dtype
    )
    if answer is None:
        brings = f"pip install specserve-plugin-{config.device}"
        raise ConfigError(
            f"--device {config.device}: no enabled plugin has kernels for it. Install one ({brings}), enable it where "
            f"it is installed (--plugin {config.device}), or use --device cpu."
        )
    owner, kernels = answer
    found = gave("make_kernels", kernels)
    check_extends(owner, found, kernels, KernelSet)
    check_members(owner, found, kernels, "KernelSet", attributes=("name", "row_tile", "sampler"))
    what = f"has a {type(kernels.sampler).__name__} as the sampler of its kernels"
    check_extends(owner, what, kernels.sampler, Sampler)
    sampler = kernels.sampler if owner == BUILTIN else GuardedSampler(kernels.sampler)
    return OwnedKernels(owner, kernels, sampler)


def make_drafters(config: EngineConfig, host: PluginHost, model: ServedModel) -> list[Drafter]:
    """Every plugin's drafter. Refuses one that needs hidden states of layers that the model does not have."""
    drafters: list[Drafter] = []
    for owner, drafter in host.collect("make_drafter", model=model, config=config):
        check_extends(owner, gave("make_drafter", drafter), drafter, Drafter)
        check_members(owner, gave("make_drafter", drafter), drafter, "Drafter", attributes=("name",))
        check_type(owner, "its drafter's name", drafter.name, str)
        check_type(owner, "its drafter's needs", drafter.needs, DrafterNeeds)
        check_type(owner, "the target rows that its drafter needs", drafter.needs.target_rows, int)
        if drafter.needs.target_rows < 0:
            raise PluginError(
                f"{owner}: the target rows that its drafter needs must be at least 0; got {drafter.needs.target_rows}. "
                f"Repair the plugin, or remove --plugin {owner}."
            )
        if drafter.needs.layers is not None:
            check_type(owner, "the layers that its drafter needs", drafter.needs.layers, DraftLayers)
        if drafter.needs.target_keys is not None:
            check_type(owner, "the target's keys that its drafter needs", drafter.needs.target_keys, TargetKeys)
        if other := next((named for named in drafters if named.name == drafter.name), None):
            raise PluginError(
                f"{owner} {gave('make_drafter', drafter)} named {drafter.name!r}, as another plugin's "
                f"{type(other).__name__} is. Give it another name, or remove --plugin {owner}."
            )
        for layer in drafter.needs.hidden_layers:
            if not -model.num_layers - 1 <= layer <= model.num_layers:
                raise PluginError(
                    f"{owner} needs the hidden states of layer {layer}; this model has layers 0 (the embedding) to "
                    f"{model.num_layers}. Choose a drafter made for this model, or remove --plugin {owner}."
                )
        drafters.append(drafter)
    return drafters


def make_planner(
    config: EngineConfig,
    host: PluginHost,
    vocab_size: int,
    cut: Callable[[Draft], Draft | None],
    runtime: PlanningRuntime,
) -> GuardedPlanner | None:
    """A plugin's planner, guarded; None where no plugin provides one. `cut`: see `GuardedPlanner`. Raises ConfigError
    where the configuration fixes what it decides."""
    answer = host.single("make_draft_planner", config=config, runtime=runtime)
    if answer is None:
        return None
    owner, planner = answer
    check_extends(owner, gave("make_draft_planner", planner), planner, DraftPlanner)
    if planner.composer is not None:
        check_extends(owner, "has a planner with a composer", planner.composer, DraftComposer)
    if config.draft_tokens is not None or config.max_draft_batch is not None:
        raise ConfigError(
            f"draft_tokens and max_draft_batch fix what plugin {owner} decides in every step. "
            f"Leave them out, or remove --plugin {owner}."
        )
    widest = config.max_num_batched_tokens
    return GuardedPlanner(owner, planner, host.faults, max_draft_tokens=widest, vocab_size=vocab_size, cut=cut)


def make_verifier(
    config: EngineConfig, host: PluginHost, eos_token_ids: tuple[int, ...], sampler: Sampler
) -> OwnedVerifier:
    answer = host.single("make_verifier", config=config)
    if answer is None:
        return OwnedVerifier(BUILTIN, DrafterInvariantVerifier(eos_token_ids, sampler))
    owner, verifier = answer
    check_members(
        owner, gave("make_verifier", verifier), verifier, "Verifier",
        attributes=("name", "lossless"), methods=("verify",),
    )  # fmt: skip
    return OwnedVerifier(owner, GuardedVerifier(verifier))


def make_processors(config: EngineConfig, host: PluginHost, eos_token_ids: tuple[int, ...]) -> list[GuardedProcessor]:
    processors = [GuardedProcessor(CORE, MinTokensProcessor(eos_token_ids), host.faults, needed=True)]
    for owner, answer in host.collect("logits_processors", config=config):
        of_core = owner == BUILTIN
        for processor in as_list(owner, "logits_processors", answer):
            what = f"has a {type(processor).__name__} among its logits_processors"
            check_extends(owner, what, processor, LogitsProcessor)
            name = CORE if of_core else owner
            processors.append(GuardedProcessor(name, processor, host.faults, needed=of_core))
    return processors


def make_observers(config: EngineConfig, host: PluginHost) -> list[GuardedObserver]:
    """Calls `metrics` of each once, so that invalid samples are found at start-up."""
    observers = []
    for owner, observer in host.collect("make_observer", config=config):
        has_metrics_alone = getattr(observer, "observe", ...) is None
        methods = ("metrics",) if has_metrics_alone else ("observe", "metrics")
        check_members(owner, gave("make_observer", observer), observer, "Observer", methods=methods)
        try:
            for metric in observer.metrics():
                check_metric(metric)
        except FAULTS as error:
            raise PluginError(
                f"{owner}: its observer {full_summary(error, observer.metrics)}, when it was asked for its metrics. "
                f"See specserve.api.Metric, or remove --plugin {owner}."
            ) from error
        observers.append(GuardedObserver(owner, observer, host.faults))
    return observers


def make_cache_observers(config: EngineConfig, host: PluginHost) -> list[GuardedCacheObserver]:
    observers = []
    for owner, observer in host.collect("make_cache_observer", config=config):
        check_extends(owner, gave("make_cache_observer", observer), observer, CacheObserver)
        observers.append(GuardedCacheObserver(owner, observer, host.faults))
    return observers


def make_lora_planner(config: EngineConfig, host: PluginHost) -> OwnedLoraPlanner:
    """A plugin's planner, guarded; without one, no batch has a plan."""
    answer = host.single("make_lora_planner", config=config)
    if answer is None:
        return OwnedLoraPlanner(BUILTIN, None, no_lora, None)
    owner, planner = answer
    check_extends(owner, gave("make_lora_planner", planner), planner, LoraPlanner)
    guarded = GuardedLoraPlanner(planner, host.faults.part(owner, "LoRA planner", code=planner.plan))
    check_type(owner, "its LoRA planner's max_adapters", planner.max_adapters, int)
    return OwnedLoraPlanner(owner, planner, guarded.plan, planner.max_adapters)


def request_checks(host: PluginHost) -> list[GuardedRequestCheck]:
    return [
        GuardedRequestCheck(plugin, host.faults.part(plugin.name, "request check"))
        for plugin in host.implementers["check_request"]
    ]


def gave(hook: str, answer: object) -> str:
    return f"answers {hook} with a {type(answer).__name__}"


def step_roles(
    kernels: OwnedKernels, attention: ChosenAttention, verifier: OwnedVerifier, lora: OwnedLoraPlanner
) -> list[Role]:
    """The plugins' parts that every step calls; a step's error is attributed to one of them."""
    roles = [
        Role(kernels.kernels, kernels.owner, "kernels", ("specserve.models.projection", "specserve.models.decoder")),
        Role(kernels.kernels.sampler, kernels.owner, "sampler", ("specserve.guards.sampler",)),
        Role(attention.backend, attention.owner, "attention", ("specserve.models.tiled", "specserve.models.runner")),
        Role(verifier.verifier, verifier.owner, "verifier", ("specserve.guards.verifier",)),
        Role(lora.planner, lora.owner, "LoRA planner", ("specserve.guards.lora_planner",)),
    ]
    return [role for role in roles if role.plugin != BUILTIN]
