"""GET /v1/plugins/pairs: any two installed plugins, whether they would run together under this configuration, and why.

/v1/plugins says it of those that run. Reads declarations alone and imports no plugin.
"""

from __future__ import annotations

import asyncio
from itertools import combinations
from typing import TYPE_CHECKING

import msgspec

from specserve.config import EngineConfig
from specserve.errors import PluginError
from specserve.plugins.discovery import discover
from specserve.plugins.rules import resolve
from specserve.plugins.verdicts import verdict
from specserve_server.operations.answers import PluginPair, PluginPairs
from specserve_server.state.server_state import loaded_engine
from specserve_server.wire.json_response import json_response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from specserve_checks.json_types import JsonValue
    from specserve_server.engine_client import EngineClient


async def plugin_pairs(request: web.Request) -> web.Response:
    return json_response(PluginPairs("list", await asyncio.to_thread(judge_installed, loaded_engine(request))))


def judge_installed(engine: EngineClient) -> list[PluginPair]:
    installed = discover()
    config = engine_config(engine.read_state().description)

    def judge(*names: str) -> PluginPair:
        """Both as if they were enabled, and no other one."""
        left, right = names
        own = msgspec.structs.replace(config, plugins=names, no_plugins=(), default_plugins=False)
        try:
            findings = resolve([installed[left], installed[right]], own).findings
        except PluginError as error:
            return PluginPair((left, right), "unusable", str(error))
        found = next(finding for finding in findings if (finding.left, finding.right) == names)
        return PluginPair((left, right), found.kind, verdict(found))

    return [judge(*names) for names in combinations(installed, 2)]


def engine_config(description: Mapping[str, JsonValue]) -> EngineConfig:
    """The one that the engine tells. What the server adds to it is left out."""
    told = msgspec.to_builtins(description.get("config", {}))
    return msgspec.convert({name: told[name] for name in EngineConfig.__struct_fields__ if name in told}, EngineConfig)
