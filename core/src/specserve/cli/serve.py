"""`specserve serve`: an HTTP server over one engine. Owns its flags; imports the server only when it runs."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import msgspec

from specserve.cli.flags import add_engine_flags
from specserve.cli.layers import load_configuration
from specserve.cli.progress import report_progress

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction
    from collections.abc import Mapping

    from specserve.config import EngineConfig
    from specserve.engine.async_engine import AsyncEngine
    from specserve.json_types import JsonValue

SERVER_FIELDS = ("host", "port", "api_key", "served_model_name", "drain_seconds", "max_body_bytes", "strict_fields")


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser("serve", help="serve a model over HTTP", description="Serve a model over HTTP.")
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="a directory, a known name or a hub id; default: demo"
    )
    group = parser.add_argument_group("server")
    group.add_argument("--host", help="default: 127.0.0.1, reachable from this machine only")
    group.add_argument("--port", type=int, help="default: 8000; 0 picks a free one")
    group.add_argument("--api-key", help="clients must send it as a bearer token; /health and /ping need none")
    group.add_argument("--served-model-name", help="the model's name in the API")
    group.add_argument("--drain-seconds", type=float, help="how long running requests may continue after SIGTERM")
    group.add_argument("--max-body-bytes", type=int, help="maximum size of a request body")
    group.add_argument(
        "--strict-fields", action="store_true", default=None, help="refuse fields of requests that nobody defines"
    )
    add_engine_flags(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    configuration = load_configuration(args, SERVER_FIELDS)
    from specserve.server.run import serve  # aiohttp: not for --help

    return asyncio.run(serve(lambda: start_engine(configuration.engine), configuration.server))


async def start_engine(config: EngineConfig) -> AsyncEngine:
    """Load it, then print on standard error what was chosen."""
    from specserve.engine.async_engine import AsyncEngine  # torch, by way of the engine

    engine = await AsyncEngine.start(config, on_progress=report_progress)
    lines = [*banner(engine.describe()), *(f"specserve: {line}" for line in engine.plugins.banner())]
    print("\n".join(lines), file=sys.stderr, flush=True)
    return engine


def banner(description: Mapping[str, JsonValue]) -> list[str]:
    """One line for each choice; the full configuration is in /v1/plugins."""
    return [f"specserve: {key} = {plain_text(value)}" for key, value in description.items() if key != "config"]


def plain_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
