"""Parts of error messages: an exception's text, a plugin's version, how to start without a plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve import __version__
from specserve.code_places import in_brackets, place_of_error
from specserve.declare import PLUGIN_API
from specserve.faults import error_text

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from specserve.declare import PluginDeclaration


CHANGES = "docs/plugins/version_2.md"
"""The page that says what this version of the plugin API changed."""


def describe_error(error: BaseException) -> str:
    """Its kind, its text and the line of the author's code that raised it."""
    text = error_text(error)
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__) + in_brackets(place_of_error(error))


def unusable_entry_point(point: EntryPoint, what: str, error: BaseException) -> str:
    """`what`: that which it brings."""
    brought_by = f"{point.dist.name} brings" if point.dist is not None else "Installed is"
    return (
        f"{brought_by} {what}, {point.value}, which cannot be used: {describe_error(error)}. "
        "Install the distribution again, or remove it."
    )


def full_name(declaration: PluginDeclaration) -> str:
    return f"plugin {declaration.name} ({declaration.dist} {declaration.version})"


def how_to_disable(name: str) -> str:
    return f"To start without it, remove --plugin {name} or pass --no-plugin {name}."


def other_api(api: int) -> str:
    """What changed is told to those that have to follow it."""
    about = f" ({CHANGES} says what changed)" if api < PLUGIN_API else ""
    return f"made for version {api} of the plugin API; this specserve ({__version__}) has version {PLUGIN_API}{about}"
