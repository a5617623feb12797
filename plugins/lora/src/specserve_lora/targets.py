"""Which modules an adapter changes, at which rank and with which scaling: PEFT's matching rules.

Owns the rules, which are those of PEFT 0.21. Knows nothing of files, nor of how a regular expression is run safely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from specserve_lora.errors import AdapterError
from specserve_lora.modules import EMBEDDING, HEAD
from specserve_lora.patterns import safe_matcher

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from specserve_lora.config import AdapterConfig
    from specserve_lora.modules import Module
    from specserve_lora.patterns import MatchLayer

ALL_LINEAR = "all-linear"
UNSUPPORTED = (HEAD, EMBEDDING)
ANY_LAYER_LIST = r".*?\.[^.]*\.(?P<layer>\d+)\."
"""The first numbered list in a path, whatever its name."""
V = TypeVar("V")


class Target(NamedTuple):
    """A module that the adapter changes: down [rank, in], up [out, rank], times scaling."""

    module: Module
    rank: int
    scaling: float


def targets_of(config: AdapterConfig, modules: Mapping[str, Module], max_rank: int, source: str) -> list[Target]:
    """Every module that the adapter changes, in the model's order."""
    match = safe_matcher(*patterns_of(config), [*UNSUPPORTED, *modules], source)
    for path in UNSUPPORTED:
        if is_targeted(config, path, match):
            raise AdapterError(
                f"{source}: target_modules includes {path}, which is not supported; only the linear layers of "
                "attention and MLP are. Train without it, or name it in exclude_modules.",
                param="lora_path",
                code="target_modules",
            )
    targets = [target_of(config, module, match) for path, module in modules.items() if is_targeted(config, path, match)]
    if not targets:
        example = next(iter(modules), "none")
        raise AdapterError(
            f"{source}: target_modules = {str(config.target_modules)[:200]} matches no linear layer of this model, "
            f"such as {example}. The adapter is for another model.",
            param="lora_path",
        )
    check_ranks(targets, max_rank, source)
    return targets


def check_ranks(targets: Sequence[Target], max_rank: int, source: str) -> None:
    widest = max(targets, key=lambda target: target.rank)
    if widest.rank > max_rank:
        raise AdapterError(
            f"{source}: {widest.module.path} has rank {widest.rank}, and lora.max_rank allows {max_rank}.",
            param="lora_path",
            code="max_rank",
        )


def target_of(config: AdapterConfig, module: Module, match: MatchLayer) -> Target:
    rank = first_match(config.rank_pattern or {}, module.path, config.r, match)
    alpha = first_match(config.alpha_pattern or {}, module.path, config.lora_alpha, match)
    return Target(module, rank, alpha / (rank**0.5 if config.use_rslora else rank))


def first_match(patterns: Mapping[str, V], path: str, default: V, match: MatchLayer) -> V:
    """The value of the first pattern that matches the path, or a suffix of it that follows a dot."""
    found = (value for key, value in patterns.items() if match("prefix", suffix_pattern(key), path) is not None)
    return next(found, default)


def is_targeted(config: AdapterConfig, path: str, match: MatchLayer) -> bool:
    wanted = config.target_modules
    if config.exclude_modules and matches(config.exclude_modules, path, match):
        return False
    if isinstance(wanted, str):
        return path not in UNSUPPORTED if wanted.lower() == ALL_LINEAR else matches(wanted, path, match)
    # a full path counts even where layers_to_transform does not include its layer
    return path in wanted or (matches(wanted, path, match) and in_selected_layers(config, path, match))


def matches(names: str | Iterable[str], path: str, match: MatchLayer) -> bool:
    """A string is a regular expression for the whole path; a list holds paths, or suffixes of them after a dot."""
    if isinstance(names, str):
        return match("full", names, path) is not None
    return any(path == name or path.endswith(f".{name}") for name in names)


def in_selected_layers(config: AdapterConfig, path: str, match: MatchLayer) -> bool:
    layers = config.layers_to_transform
    if layers is None or layers == []:
        return True
    for pattern in layer_patterns(config):
        if (layer := match("prefix", pattern, path)) is not None:
            return int(layer) in (layers if isinstance(layers, list) else [layers])
    return False


def layer_patterns(config: AdapterConfig) -> list[str]:
    """Those of `layers_pattern`, whose list may be at the beginning of the path."""
    names = config.layers_pattern or []
    named = [names] if isinstance(names, str) else names
    return [rf"(?:|.*?\.)(?:{name})\.(?P<layer>\d+)\." for name in named] or [ANY_LAYER_LIST]


def suffix_pattern(key: str) -> str:
    return rf"(?:.*\.)?(?:{key})$"


def patterns_of(config: AdapterConfig) -> tuple[set[str], set[tuple[str, str]]]:
    """The adapter's own patterns, and every (kind, pattern) that the rules above may match."""
    full = {names for names in (config.target_modules, config.exclude_modules) if isinstance(names, str)}
    keys = {*(config.rank_pattern or {}), *(config.alpha_pattern or {})}
    lists = config.layers_pattern or []
    own = {*full, *keys, *([lists] if isinstance(lists, str) else lists)}
    prefixes = {*map(suffix_pattern, keys), *layer_patterns(config)}
    return own, {*(("full", pattern) for pattern in full), *(("prefix", pattern) for pattern in prefixes)}
