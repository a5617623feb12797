"""`specserve plugins check --load`: what start-up and the first requests with these plugins would say.

They are loaded as `serve` loads them, with a small random model unless one is named, and serve a few requests. All that
start-up refuses is an error here, and so is every fault while requests are served, and an answer that drafts change.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from specserve.errors import ConfigError, PluginError
from specserve.plugins.enabling import find
from specserve_workbench.collected_warnings import collected_warnings
from specserve_workbench.commands.plugins.json_output import print_json
from specserve_workbench.commands.plugins.pairs import engine_config
from specserve_workbench.commands.plugins.trial_answers import answer, differences, some_requests, without_drafts

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from specserve.config import EngineConfig
    from specserve.declare import PluginDeclaration
    from specserve.engine.async_engine import AsyncEngine

SMALL = {"threads": 1, "max_num_seqs": 4, "kv_memory": "64M"}


class Drafted(msgspec.Struct):
    """What a drafter gave."""

    num_draft_tokens: int
    num_accepted_tokens: int


class Loaded(msgspec.Struct):
    """`faults`: what went wrong while requests were served, and answers that depend on drafts; empty where nothing did.
    `drafters`: by name. Seconds are of the same requests, with drafts and without."""

    banner: list[str]
    num_requests: int
    num_tokens: int
    num_draft_tokens: int
    num_accepted_tokens: int
    drafters: dict[str, Drafted]
    seconds: float
    seconds_without_drafts: float
    faults: list[str]

    def summary(self) -> str:
        text = f"{self.num_requests} requests gave {self.num_tokens} tokens"
        if not self.drafters:
            return f"{text}."
        drafters = [drafter_summary(name, drafted) for name, drafted in self.drafters.items()]
        ratio = self.seconds / self.seconds_without_drafts
        times = (
            f"{self.seconds:.2f} s with drafts, {self.seconds_without_drafts:.2f} s without ({ratio:.1f} times as long)"
        )
        return "\n".join([f"{text}, the same with drafts and without; {times}.", *drafters])


def drafter_summary(name: str, drafted: Drafted) -> str:
    if not drafted.num_draft_tokens:
        return f"drafter {name} drafted nothing for these requests; --trace drafts of `specserve generate` shows why."
    return f"drafter {name}: {drafted.num_draft_tokens} tokens drafted, {drafted.num_accepted_tokens} of them accepted."


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
    from specserve_workbench.testing.toy import write_checkpoint  # torch: not for the other commands

    with TemporaryDirectory(prefix="specserve-check-") as folder:
        model = args.model or str(write_checkpoint(Path(folder) / "model"))
        config = msgspec.structs.replace(engine_config(args, plugins=tuple(args.names)), model=model, **SMALL)
        return asyncio.run(serve(config))


async def serve(config: EngineConfig) -> Loaded:
    from specserve.engine.async_engine import AsyncEngine
    from specserve_workbench.served_routes import served_routes
    from specserve_workbench.testing.engines import verify_everything

    with collected_warnings() as faults:
        engine = await AsyncEngine.start(config)
        if not engine.plugins.implementers["make_draft_planner"]:
            verify_everything(engine.engine)  # else it depends on the machine's speed whether anything is drafted
        async with served_routes(engine):
            requests = some_requests(engine)
            plain = without_drafts(requests)
            await answer(engine, plain)  # what a first run allocates is no part of the comparison
            drafted, undrafted = await answer(engine, requests), await answer(engine, plain)
            for observer in engine.engine.parts.guarded_observers:
                observer.metrics()
    found = list(dict.fromkeys(faults)) or [*drafted.errors[:1], *undrafted.errors[:1]]
    return Loaded(
        engine.plugins.banner(),
        len(requests),
        sum(map(len, drafted.tokens.values())),
        engine.metrics.num_draft_tokens,
        engine.metrics.num_accepted_tokens,
        drafts_by_drafter(engine),
        drafted.seconds,
        undrafted.seconds,
        [*found, *differences(drafted, undrafted)],
    )


def drafts_by_drafter(engine: AsyncEngine) -> dict[str, Drafted]:
    metrics = engine.metrics
    return {
        guard.name: Drafted(metrics.draft_tokens_by_drafter[guard.name], metrics.accepted_tokens_by_drafter[guard.name])
        for guard in engine.engine.drafting.guards
    }
