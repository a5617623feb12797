"""The configuration of the engine with some of the drafters that are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from specserve.config import EngineConfig
    from specserve_bench.sweep.cells import Setting


def with_setting(config: EngineConfig, setting: Setting, every: tuple[str, ...]) -> EngineConfig:
    """`config` with these drafters alone, of all that are compared."""
    others = {name for name in every if name not in setting.drafters}
    plugins = [name for name in config.plugins if name not in every]
    options = {name: own for name, own in config.plugin_options.items() if name not in others}
    return msgspec.structs.replace(config, plugins=(*plugins, *setting.drafters), plugin_options=options)
