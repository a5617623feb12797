"""`specserve plugins check --load`: what start-up and the first requests with these plugins would say.

They are loaded as `serve` loads them, with a small random model unless one is named, and serve a few requests. All that
start-up refuses is an error here, and so is every fault while the requests are served.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from specserve.cli.plugins.json_output import print_json
from specserve.cli.plugins.pairs import engine_config
from specserve.collected_warnings import collected_warnings
from specserve.errors import ConfigError, PluginError
from specserve.plugins.enabling import find

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from specserve.config import EngineConfig
    from specserve.declare import PluginDeclaration
    from specserve.engine.async_engine import AsyncEngine
    from specserve.types import GenerateRequest

SMALL = {"threads": 1, "max_num_seqs": 4, "kv_memory": "64M"}


class Loaded(msgspec.Struct):
    """`faults`: what went wrong while requests were served; empty where nothing did."""

    banner: list[str]
    num_requests: int
    num_tokens: int
    num_draft_tokens: int
    num_accepted_tokens: int
    faults: list[str]

    def summary(self) -> str:
        return (
            f"{self.num_requests} requests gave {self.num_tokens} tokens; "
            f"{self.num_draft_tokens} tokens were drafted, {self.num_accepted_tokens} of them accepted."
        )


def load_plugins(args: Namespace, installed: Mapping[str, PluginDeclaration]) -> int:
    if not args.names:
        raise ConfigError("check --load needs the names of the plugins to load.")
    for name in args.names:
        find(name, installed)
    try:
        loaded = run_plugins(args)
        if loaded.faults:
            raise PluginError(" ".join(loaded.faults))
    except ConfigError as error:
        if not args.json:
            raise
        print_json({"ok": False, "error": str(error)})
        return 2
    if args.json:
        print_json({"ok": True, **msgspec.to_builtins(loaded)})
    else:
        print("\n".join([*loaded.banner, loaded.summary(), "ok."]))
    return 0


def run_plugins(args: Namespace) -> Loaded:
    from specserve.testing.toy import write_checkpoint  # torch: not for the other commands

    with TemporaryDirectory(prefix="specserve-check-") as folder:
        model = args.model or str(write_checkpoint(Path(folder) / "model"))
        config = msgspec.structs.replace(engine_config(args, plugins=tuple(args.names)), model=model, **SMALL)
        return asyncio.run(serve(config))


async def serve(config: EngineConfig) -> Loaded:
    from aiohttp import web

    from specserve.config import ServerConfig
    from specserve.engine.async_engine import AsyncEngine
    from specserve.server.app import make_app
    from specserve.testing.engines import verify_everything

    with collected_warnings() as faults:
        engine = await AsyncEngine.start(config)
        if not engine.plugins.implementers["make_draft_planner"]:
            verify_everything(engine.engine)  # else it depends on the machine's speed whether anything is drafted
        runner = web.AppRunner(make_app(engine, ServerConfig()))
        try:
            await runner.setup()  # the routes of plugins; it listens nowhere
            requests = some_requests(engine)
            counts = await asyncio.gather(*(count_tokens(engine, request, faults) for request in requests))
            for observer in engine.engine.parts.guarded_observers:
                observer.metrics()
        finally:
            await runner.cleanup()
    metrics = engine.metrics
    return Loaded(
        engine.plugins.banner(),
        len(requests),
        sum(counts),
        metrics.num_draft_tokens,
        metrics.num_accepted_tokens,
        list(dict.fromkeys(faults)),
    )


def some_requests(engine: AsyncEngine) -> list[GenerateRequest]:
    """Prompts that repeat themselves, greedy and sampled, and text of one token: drafters have something to say."""
    from specserve.testing.requests import toy_request

    prompt = engine.tokenizer.encode("one two three four, one two three four, one two three four, one two")
    return [
        toy_request("greedy", prompt, max_tokens=24),
        toy_request("sampled", prompt, max_tokens=24, temperature=0.8, seed=1),
        toy_request("penalised", prompt, max_tokens=12, presence_penalty=0.5, logprobs=1),
        toy_request("one token", prompt, max_tokens=24, logit_bias={prompt[0]: 100.0}),
    ]


async def count_tokens(engine: AsyncEngine, request: GenerateRequest, faults: list[str]) -> int:
    count = 0
    async for output in engine.submit(request):
        count += len(output.tokens)
        if output.finish_reason == "error" and not faults:
            faults.append(output.error or "a request ended with an error.")
    return count
