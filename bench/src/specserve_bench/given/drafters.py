"""Which drafters are compared: those that a configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ConfigError
from specserve.plugins.discovery import discover

if TYPE_CHECKING:
    from specserve.config import EngineConfig

WITHOUT_OPTIONS = "ngram"
"""The drafter that needs nothing but the text."""


def candidates(config: EngineConfig) -> tuple[str, ...]:
    """Those drafters that the configuration names, or has options for; without any the one that needs no options."""
    drafters = [name for name, plugin in discover().items() if any(t.startswith("draft.") for t in plugin.provides)]
    wanted = {*config.plugins, *config.plugin_options}
    found = tuple(name for name in (*config.plugins, *drafters) if name in drafters and name in wanted)
    if not found and WITHOUT_OPTIONS in drafters and WITHOUT_OPTIONS not in config.no_plugins:
        found = (WITHOUT_OPTIONS,)
    if not found:
        raise ConfigError(
            f"bench: there is no drafter to compare; installed are {', '.join(drafters) or 'none'}. "
            "Name some, such as --plugin ngram."
        )
    return tuple(dict.fromkeys(found))
