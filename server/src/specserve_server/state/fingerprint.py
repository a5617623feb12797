"""`system_fingerprint`: the same one promises the same tokens for the same request, where the engine is lossless.

It depends on specserve's version, the model, the configuration and the plugins, with what the engine chose by them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from specserve import __version__

if TYPE_CHECKING:
    from specserve_server.engine_answers import EngineState

CHOSEN = ("model", "config", "kernels", "attention", "verifier")
"""Of the engine's description: what is fixed once it is loaded."""
OF_A_PLUGIN = ("name", "version", "options")


def system_fingerprint(state: EngineState) -> str:
    described = state.description
    chosen = {name: described.get(name) for name in CHOSEN}
    plugins = [{name: plugin.get(name) for name in OF_A_PLUGIN} for plugin in state.plugins if plugin["enabled"]]
    data = msgspec.json.encode([__version__, chosen, plugins], order="sorted")
    return f"fp_{hashlib.sha256(data).hexdigest()[:12]}"
