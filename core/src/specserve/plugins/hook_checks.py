"""Checks the hook implementations of a plugin against the hook specifications."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from specserve import hookspecs
from specserve.code_places import where_written
from specserve.errors import PluginError
from specserve.plugins.error_messages import how_to_disable
from specserve.plugins.features import KERNEL_FEATURES
from specserve.plugins.interface_checks import is_async
from specserve_checks.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection

    import pluggy

    from specserve.plugins.loaded_plugin import LoadedPlugin

HOOK_ARGUMENTS: dict[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(function).parameters)
    for name, function in vars(hookspecs).items()
    if hasattr(function, f"{hookspecs.PROJECT}_spec")
}
"""The arguments of every hook, by its name."""

HOOK_FEATURES = {
    "model_families": ("model.family",),
    "model_libraries": ("model.library",),
    "weight_formats": ("model.weights", "model.files", "model.quantised"),
    "make_drafter": ("draft.chain", "draft.tree", "draft.model"),
    "make_lora_planner": ("lora.target",),
    "make_draft_planner": ("planner.adaptive",),
    "make_verifier": ("verifier.lossless", "verifier.lossy"),
    "logits_processors": ("logits.processor",),
    "make_observer": ("observer.metrics",),
    "make_cache_observer": ("observer.cache",),
    "add_routes": ("server.routes",),
}
"""The features of which a plugin should declare one, by its hook. Not attention backends: kernels may include them."""

HOOK_OF_FEATURE = {
    **{token: hook for hook, tokens in HOOK_FEATURES.items() for token in tokens},
    "attention.hybrid": "select_attention",
    "attention.backend": "attention_backends",
    **dict.fromkeys(KERNEL_FEATURES, "make_kernels"),
}
"""The hook without which a plugin cannot provide a feature."""


def check_hooks(name: str, manager: pluggy.PluginManager, plugin: object) -> None:
    """Raise PluginError for hooks that would never be called: misspelt ones and those without the marker."""
    callers = manager.get_hookcallers(plugin) or []
    for caller in callers:
        if not caller.has_spec() and not all(each.optionalhook for each in caller.get_hookimpls()):
            where = where_written(caller.get_hookimpls()[0].function)
            raise PluginError(
                f"plugin {name} implements {caller.name!r}{where}, which is not a hook"
                f"{did_you_mean(caller.name, HOOK_ARGUMENTS)} (hooks: {', '.join(HOOK_ARGUMENTS)}). "
                f"Correct the name in the plugin. {how_to_disable(name)}"
            )
    if unmarked := unmarked_hooks(plugin, {caller.name for caller in callers}):
        where = where_written(getattr(plugin, unmarked[0]))
        raise PluginError(
            f"plugin {name} defines {', '.join(unmarked)}{where} without the marker @hookimpl of specserve.api, "
            f"so the core would never call it. Add the marker in the plugin. {how_to_disable(name)}"
        )
    for caller in callers:
        function = caller.get_hookimpls()[0].function
        if is_async(function):
            raise PluginError(
                f"plugin {name}: hook {caller.name}{where_written(function)} must not be async: the engine "
                f"calls it and uses what it returns, and awaits nothing. Write 'def' for 'async def'. "
                f"{how_to_disable(name)}"
            )
    if not callers:
        raise PluginError(
            f"plugin {name} implements no hook: {plugin!r} has no function marked @hookimpl. "
            f"Point its entry point at the module or the class that holds them. {how_to_disable(name)}"
        )


def undeclared_features(plugin: LoadedPlugin) -> list[str]:
    """Features of hooks that a plugin implements without declaring them: no other plugin can declare compatibility."""
    if plugin.declaration is None:
        return []
    return [
        f"{plugin.name} implements {hook} and declares none of its features: "
        f"add {' or '.join(tokens)} to specserve.provides.{plugin.name}."
        for hook, tokens in HOOK_FEATURES.items()
        if plugin.implements(hook) and not any(token in plugin.declaration.provides for token in tokens)
    ]


def features_without_hook(plugin: LoadedPlugin) -> list[str]:
    """Features that a plugin declares and does not provide: others take care of what never happens."""
    if plugin.declaration is None:
        return []
    return [
        f"{plugin.name} declares {token} and has no hook for it: implement {HOOK_OF_FEATURE[token]}, or remove {token} "
        f"from specserve.provides.{plugin.name}."
        for token in plugin.declaration.provides
        if token in HOOK_OF_FEATURE and not plugin.implements(HOOK_OF_FEATURE[token])
    ]


def deprecated_uses(plugin: LoadedPlugin) -> list[str]:
    """Hooks, and arguments of hooks, that a plugin uses and a later version of the plugin API will not have: their
    specifications say so, as pluggy's `warn_on_impl` and `warn_on_impl_args`."""
    found = []
    for hook in HOOK_ARGUMENTS:
        caller = getattr(plugin.manager.hook, hook)
        for implementation in caller.get_hookimpls():
            by_argument = caller.spec.warn_on_impl_args or {}
            for text in (caller.spec.warn_on_impl, *(by_argument.get(name) for name in implementation.argnames)):
                if text is not None:
                    where = where_written(implementation.function)
                    found.append(f"{plugin.name} implements {hook}{where}: {text}.")
    return found


def unmarked_hooks(plugin: object, implemented: Collection[str]) -> list[str]:
    return [hook for hook in HOOK_ARGUMENTS if hook not in implemented and defines_function(plugin, hook)]


def defines_function(plugin: object, name: str) -> bool:
    """Whether the plugin itself defines a function of this name; an imported one does not count."""
    function = getattr(plugin, name, None)
    home = plugin.__name__ if inspect.ismodule(plugin) else type(plugin).__module__
    return inspect.isroutine(function) and function.__module__ == home


def argument_mismatch(name: str, plugin: object, error: pluggy.PluginValidationError) -> str:
    """What is wrong with the hook implementation that pluggy refused."""
    text = " ".join(str(error).split())
    hook = next((hook for hook in HOOK_ARGUMENTS if f"for hook {hook!r}" in text), None)
    if hook is None:
        return f"plugin {name} cannot be registered: {text}. {how_to_disable(name)}"
    takes, function = HOOK_ARGUMENTS[hook], getattr(plugin, hook)
    where = where_written(function)
    unknown = [argument for argument in inspect.signature(function).parameters if argument not in takes]
    if not unknown:
        return f"plugin {name} cannot register its hook {hook}{where}: {text}. {how_to_disable(name)}"
    meant = did_you_mean(unknown[0], takes)
    allowed = f"any of {', '.join(takes)}" if takes else "no argument"
    return (
        f"plugin {name}: hook {hook}{where} takes {', '.join(unknown)}, which the engine does not pass{meant or '.'} "
        f"Let it take {allowed}, by these names. {how_to_disable(name)}"
    )
