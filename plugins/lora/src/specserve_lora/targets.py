"""Which modules and parameters an adapter may change, at which rank and with which scaling: PEFT's matching rules.

Owns the rules, which are those of PEFT 0.21. Knows nothing of files, nor of how a regular expression is run safely.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from specserve_lora.errors import AdapterError
from specserve_lora.modules import EMBEDDING, HEAD
from specserve_lora.patterns import safe_matcher

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from specserve_lora.config import AdapterConfig
    from specserve_lora.modules import Module, Modules
    from specserve_lora.patterns import MatchLayer

ALL_LINEAR = "all-linear"
UNSUPPORTED = (HEAD, EMBEDDING)
ANY_LAYER_LIST = r".*?\.[^.]*\.(?P<layer>\d+)\."
"""The first numbered list in a path, whatever its name."""
OF_EXPERTS_SINCE = (0, 19)
"""PEFT's version that gave tensors of experts' parameters their layout: before, down and up had each other's sizes."""
V = TypeVar("V")


class Target(NamedTuple):
    """What the adapter changes by one of its names: down [rank, in], up [out, rank], times scaling; of E experts,
    down [E * rank, in] and up [out, rank * E]."""

    module: Module
    rank: int
    scaling: float
    stem: str
    """Of the tensors' names."""
    is_parameter: bool
    """`target_parameters` names it."""


def targets_of(config: AdapterConfig, modules: Modules, source: str) -> list[Target]:
    """Every module and parameter that the configuration names, in the model's order: some by several names."""
    parameters = targeted_parameters(config, modules.parameters)
    check_layout(config, parameters, source)
    paths = [*UNSUPPORTED, *modules.linear, *(module.key for module in parameters)]
    match = safe_matcher(*patterns_of(config), paths, source)
    for path in UNSUPPORTED:
        by_module = is_targeted(config, path, match)
        if by_module or matches(config.target_parameters or (), f"{path}.weight", match):
            field = "target_modules" if by_module else "target_parameters"
            raise AdapterError(
                f"{source}: {field} includes {path}, which is not supported; only the linear layers of "
                "attention and MLP are. Train without it, or name it in exclude_modules.",
                param="lora_path",
                code=field,
            )
    targets = [
        target_of(config, module, path, match)
        for path, module in modules.linear.items()
        if is_targeted(config, path, match)
    ]
    stems = stems_of(parameters)
    targets += [
        target_of(config, module, module.key, match)._replace(stem=stems[module.key], is_parameter=True)
        for module in parameters
    ]
    if not targets:
        raise AdapterError(f"{source}: {nothing_matched(config, modules)}", param="lora_path")
    return targets


def check_layout(config: AdapterConfig, parameters: Iterable[Module], source: str) -> None:
    version = re.match(r"(\d{1,9})\.(\d{1,9})", config.peft_version or "")
    stacks = [module.key for module in parameters if len(module.places) > 1]
    if version and stacks and tuple(map(int, version.groups())) < OF_EXPERTS_SINCE:
        raise AdapterError(
            f"{source}: peft_version is {str(config.peft_version)[:20]}, and tensors of experts' parameters, such as "
            f"{stacks[0]}, are read as PEFT 0.19 and later lay them out. Train the adapter with a later PEFT.",
            param="lora_path",
            code="peft_version",
        )


def nothing_matched(config: AdapterConfig, modules: Modules) -> str:
    wanted = f"target_modules = {str(config.target_modules)[:200]}"
    if config.target_parameters:
        wanted += f", target_parameters = {str(config.target_parameters)[:200]}"
    example = next(reversed(tuple(modules.linear)), "none")  # the last are as the checkpoint names them
    return f"{wanted} matches no linear layer of this model, such as {example}. The adapter is for another model."


def target_of(config: AdapterConfig, module: Module, name: str, match: MatchLayer) -> Target:
    """name: what patterns are matched against."""
    rank = first_match(config.rank_pattern or {}, name, config.r, match)
    alpha = first_match(config.alpha_pattern or {}, name, config.lora_alpha, match)
    return Target(module, rank, alpha / (rank**0.5 if config.use_rslora else rank), module.path, is_parameter=False)


def targeted_parameters(config: AdapterConfig, parameters: Mapping[str, Module]) -> list[Module]:
    """Neither excluded modules nor selected layers matter here."""
    wanted = config.target_parameters or ()
    return [module for key, module in parameters.items() if any(is_suffix(name, key) for name in wanted)]


def stems_of(parameters: Iterable[Module]) -> dict[str, str]:
    """By key. PEFT wraps a module once for each of its parameters, the first one innermost."""
    keys: dict[str, list[str]] = {}
    for module in parameters:
        keys.setdefault(module.path, []).append(module.key)
    return {key: path + ".base_layer" * outer for path, own in keys.items() for outer, key in enumerate(reversed(own))}


def first_match(patterns: Mapping[str, V], path: str, default: V, match: MatchLayer) -> V:
    """The value of the first pattern that matches the path, or a suffix of it that follows a dot."""
    found = (value for key, value in patterns.items() if match("prefix", suffix_pattern(key), path) is not None)
    return next(found, default)


def is_targeted(config: AdapterConfig, path: str, match: MatchLayer) -> bool:
    wanted = config.target_modules
    if wanted is None or (config.exclude_modules and matches(config.exclude_modules, path, match)):
        return False
    if isinstance(wanted, str):
        return path not in UNSUPPORTED if wanted.lower() == ALL_LINEAR else matches(wanted, path, match)
    # a full path counts even where layers_to_transform does not include its layer
    return path in wanted or (matches(wanted, path, match) and in_selected_layers(config, path, match))


def matches(names: str | Iterable[str], path: str, match: MatchLayer) -> bool:
    """A string is a regular expression for the whole path; a list holds paths, or suffixes of them after a dot."""
    if isinstance(names, str):
        return match("full", names, path) is not None
    return any(is_suffix(name, path) for name in names)


def is_suffix(name: str, path: str) -> bool:
    return path == name or path.endswith(f".{name}")


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
