"""Which modules an adapter changes, at which rank and with which scale: PEFT's rules of matching.

Owns the rules (those of PEFT 0.21): paths in, decisions out. Patterns are regular expressions of whoever made the
adapter; how they are tried is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from specserve_lora.errors import AdapterError
from specserve_lora.modules import EMBEDDING, HEAD
from specserve_lora.patterns import tried_safely

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from specserve_lora.config import AdapterConfig
    from specserve_lora.modules import Module
    from specserve_lora.patterns import Try

ALL_LINEAR = "all-linear"
UNSERVED = (HEAD, EMBEDDING)
ANY_LIST = r".*?\.[^.]*\.(?P<layer>\d+)\."
"""The first numbered list, whatever its name."""
V = TypeVar("V")


class Target(NamedTuple):
    """A module with the adapter's part: down [rank, in], up [out, rank], times scale."""

    module: Module
    rank: int
    scale: float


def targets_of(config: AdapterConfig, modules: Mapping[str, Module], max_rank: int, where: str) -> list[Target]:
    """Every module that the adapter changes, in the model's order."""
    tried = tried_safely(*patterns_of(config), [*UNSERVED, *modules], where)
    for path in UNSERVED:
        if is_targeted(config, path, tried):
            raise AdapterError(
                f"{where}: target_modules includes {path}, which is not served; only the linear layers of attention "
                "and MLP are. Train without it, or name it in exclude_modules.",
                param="lora_path",
                code="target_modules",
            )
    targets = [target(config, module, tried) for path, module in modules.items() if is_targeted(config, path, tried)]
    if not targets:
        example = next(iter(modules), "none")
        raise AdapterError(
            f"{where}: target_modules = {str(config.target_modules)[:200]} matches no linear layer of this model, such "
            f"as {example}. The adapter is for another model.",
            param="lora_path",
        )
    widest = max(targets, key=lambda target: target.rank)
    if widest.rank > max_rank:
        raise AdapterError(
            f"{where}: {widest.module.path} has rank {widest.rank}, and lora.max_rank allows {max_rank}.",
            param="lora_path",
            code="max_rank",
        )
    return targets


def target(config: AdapterConfig, module: Module, tried: Try) -> Target:
    rank = first_match(config.rank_pattern or {}, module.path, config.r, tried)
    alpha = first_match(config.alpha_pattern or {}, module.path, config.lora_alpha, tried)
    return Target(module, rank, alpha / (rank**0.5 if config.use_rslora else rank))


def first_match(patterns: Mapping[str, V], path: str, default: V, tried: Try) -> V:
    """The value of the first pattern that is the path or its end from a dot on."""
    found = (value for key, value in patterns.items() if tried("begin", ending(key), path) is not None)
    return next(found, default)


def is_targeted(config: AdapterConfig, path: str, tried: Try) -> bool:
    wanted = config.target_modules
    if config.exclude_modules and matches(config.exclude_modules, path, tried):
        return False
    if isinstance(wanted, str):
        return path not in UNSERVED if wanted.lower() == ALL_LINEAR else matches(wanted, path, tried)
    # a full path is meant as it is, whatever layers are picked
    return path in wanted or (matches(wanted, path, tried) and in_picked_layer(config, path, tried))


def matches(names: str | Iterable[str], path: str, tried: Try) -> bool:
    """A string is a regular expression for the whole path; of a list, one is the path or its end from a dot on."""
    if isinstance(names, str):
        return tried("full", names, path) is not None
    return any(path == name or path.endswith(f".{name}") for name in names)


def in_picked_layer(config: AdapterConfig, path: str, tried: Try) -> bool:
    picked = config.layers_to_transform
    if picked is None or picked == []:
        return True
    for pattern in layer_patterns(config):
        if (layer := tried("begin", pattern, path)) is not None:
            return int(layer) in (picked if isinstance(picked, list) else [picked])
    return False


def layer_patterns(config: AdapterConfig) -> list[str]:
    """Those of `layers_pattern`, whose list may stand first in the path."""
    names = config.layers_pattern or []
    named = [names] if isinstance(names, str) else names
    return [rf"(?:|.*?\.)(?:{name})\.(?P<layer>\d+)\." for name in named] or [ANY_LIST]


def ending(key: str) -> str:
    return rf"(?:.*\.)?(?:{key})$"


def patterns_of(config: AdapterConfig) -> tuple[set[str], set[tuple[str, str]]]:
    """The patterns as they are written, and every (kind, pattern) that the rules above may try."""
    whole = {names for names in (config.target_modules, config.exclude_modules) if isinstance(names, str)}
    keys = {*(config.rank_pattern or {}), *(config.alpha_pattern or {})}
    lists = config.layers_pattern or []
    written = {*whole, *keys, *([lists] if isinstance(lists, str) else lists)}
    begins = {*map(ending, keys), *layer_patterns(config)}
    return written, {*(("full", pattern) for pattern in whole), *(("begin", pattern) for pattern in begins)}
