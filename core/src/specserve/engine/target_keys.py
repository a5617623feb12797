"""Lets layers of draft models attend to the target's keys and values, where these lie.

The backend is built as the target's was, over the same cache: once for each shape of heads and each window that the
layers have. Nothing is written.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.attention.by_shape import Member
from specserve.batch.builder import BatchBuilder
from specserve.batch.span import Span
from specserve.errors import ConfigError, PluginError
from specserve.inference import inference
from specserve.models.part import WHOLE_MODEL
from specserve.protocols import KeyPlan, KeyReader, TargetKeyResources, TargetKeys
from specserve_checks.wrong_values import convert

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

    from specserve.batch.request import Request
    from specserve.engine.choose_attention import AttentionChoice
    from specserve.kv.cache import KVCache
    from specserve.models.served_model import ServedModel
    from specserve.protocols import AttentionBackend, Drafter, DraftPlanner


MAX_WINDOW = 2**31 - 1
"""Kernels count keys in 32 bits."""


class TargetCache(NamedTuple):
    """The target's keys and values, and the attention over them."""

    choice: AttentionChoice
    cache: KVCache
    device: torch.device

    def member(self, place: int) -> Member:
        return member_of(self.choice, place)

    def build(self, number: int, keys: TargetKeys, window: int | None) -> AttentionBackend:
        """For all layers of one shape of heads, as if each had this window."""
        spec = self.choice.specs[number]
        spec = msgspec.structs.replace(
            spec,
            num_heads=keys.num_heads,
            scale=keys.scale,
            sliding_windows=(window,) * len(spec.sliding_windows),
            soft_caps=(),
            sinks=(),
        )
        caches = (self.cache, *self.cache.others)
        return self.choice.build_one(spec, caches[number], self.device)


class Read(NamedTuple):
    """Which backend a layer of the draft model reads by, and as which of that one's layers."""

    backend: int
    layer: int


class EngineKeyReader(KeyReader):
    """`target`: whose keys are read."""

    def __init__(self, keys: TargetKeys, target: TargetCache) -> None:
        self.builder = BatchBuilder(target.cache.block_size, target.device)
        self.backends: list[AttentionBackend] = []
        self.reads: list[Read] = []
        """By layer of the draft model."""
        numbers: dict[tuple[int, int | None], int] = {}
        for place, window in zip(keys.sources, keys.sliding_windows, strict=True):
            number, layer = target.member(place)
            if (number, window) not in numbers:
                numbers[number, window] = len(self.backends)
                self.backends.append(target.build(number, keys, window))
            self.reads.append(Read(numbers[number, window], layer))

    @inference
    def plan(self, requests: Sequence[Request]) -> KeyPlan:
        """A query sees what a row at the last computed position would see. Parts: by backend."""
        spans = [Span(request.id, request.computed - 1, 1, 0, 1, request.blocks) for request in requests]
        batch = self.builder.build(spans, [request.tokens for request in requests])
        return KeyPlan(tuple(backend.plan(batch) for backend in self.backends))

    @inference
    def attend(self, layer: int, q: Tensor, plan: KeyPlan) -> Tensor:
        number, own_layer = self.reads[layer]
        return self.backends[number].attend(own_layer, q, plan.parts[number])


def member_of(choice: AttentionChoice, place: int) -> Member:
    return choice.members[place] if choice.members else Member(0, place)


def check_target_keys(model: ServedModel, drafters: Sequence[Drafter], choice: AttentionChoice) -> None:
    """Raises ConfigError or PluginError where a drafter cannot read what it asks for."""
    for drafter in drafters:
        if (keys := drafter.needs.target_keys) is None:
            continue
        if model.part is not WHOLE_MODEL:
            raise ConfigError(
                f"drafter {drafter.name} reads the target's keys and values, and several processes have parts of each, "
                f"of which only this one computes drafts. Remove --plugin {drafter.name} or what divides the model, or "
                "draft with ngram."
            )
        check_values(drafter.name, keys)
        check_layers(drafter.name, keys, choice)


def check_values(name: str, keys: TargetKeys) -> None:
    """What is wrong whatever the target."""

    def wrong(what: object) -> PluginError:
        return PluginError(
            f"drafter {name}, target_keys: {str(what).removesuffix('.')}. Repair the plugin, or remove --plugin {name}."
        )

    convert(msgspec.structs.asdict(keys), TargetKeys, wrong)
    if not (isfinite(keys.scale) and keys.scale > 0):
        raise wrong(f"scale must be a finite number above 0; got {keys.scale}")
    for layer, window in enumerate(keys.sliding_windows):
        if window is not None and not 1 <= window <= MAX_WINDOW:
            raise wrong(
                f"sliding_windows[{layer}] must be from 1 to {MAX_WINDOW}, or None where a query sees all keys; got "
                f"{window}"
            )


def check_layers(name: str, keys: TargetKeys, choice: AttentionChoice) -> None:
    count = len(choice.members) or len(choice.specs[0].sliding_windows)
    if not keys.sources or len(keys.sources) != len(keys.sliding_windows):
        raise PluginError(
            f"drafter {name} reads the target's keys in {len(keys.sources)} layers (sources) with "
            f"{len(keys.sliding_windows)} windows (sliding_windows); give one of each for every layer."
        )
    for place in keys.sources:
        if not 0 <= place < count:
            raise PluginError(
                f"drafter {name} reads the keys of layer {place} of those of the target that have any; there are 0 to "
                f"{count - 1}. Choose a drafter made for this model."
            )
        heads = choice.specs[member_of(choice, place).number].num_kv_heads
        if keys.num_heads < 1 or keys.num_heads % heads:
            raise PluginError(
                f"drafter {name} has {keys.num_heads} query heads, which must be a multiple of the {heads} key heads "
                f"of the target's layer that it reads. Choose a drafter made for this model."
            )


def connect_target_keys(drafters: Sequence[Drafter], target: TargetCache, planner: DraftPlanner) -> None:
    """Give each drafter that asks for it what reads the target's keys and values."""
    for drafter in drafters:
        if (keys := drafter.needs.target_keys) is not None:
            reader = EngineKeyReader(keys, target)
            drafter.connect_target_keys(TargetKeyResources(reader, planner.costs, planner.bounds_depth))
