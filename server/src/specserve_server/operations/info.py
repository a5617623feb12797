"""The routes that describe the server: health, load, version, models, plugins."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import UNSET

from specserve import __version__
from specserve.errors import ModelNotFoundError
from specserve_checks.type_words import shown
from specserve_server.operations.answers import Health, Load, ModelList, PluginList, Version
from specserve_server.operations.model_cards import list_models
from specserve_server.state.server_state import loaded_engine, served_model_names, state_of
from specserve_server.wire.json_response import json_response

if TYPE_CHECKING:
    from aiohttp import web

    from specserve_server.operations.answers import ModelCard


async def health(request: web.Request) -> web.Response:
    """While the engine loads: how far it is."""
    state = state_of(request)
    status = state.health
    if status == "ready":
        return json_response(Health(status))
    progress = state.progress.describe() if status == "loading" else UNSET
    return json_response(Health(status, progress), status=503)


async def load(request: web.Request) -> web.Response:
    state = await asyncio.to_thread(loaded_engine(request).read_state)
    return json_response(Load(state.num_requests))


async def version(request: web.Request) -> web.Response:
    return json_response(Version(__version__))


async def models(request: web.Request) -> web.Response:
    return json_response(ModelList("list", await model_cards(request)))


async def get_model(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    for card in await model_cards(request):
        if card.id == name:
            return json_response(card)
    raise ModelNotFoundError(f"no model {shown(name)} is served; /v1/models lists them.", param="model")


async def model_cards(request: web.Request) -> list[ModelCard]:
    return await asyncio.to_thread(list_models, loaded_engine(request), served_model_names(request))


async def plugins(request: web.Request) -> web.Response:
    state = await asyncio.to_thread(loaded_engine(request).read_state)
    return json_response(PluginList("list", state.plugins, state.description))
