"""A run against one server, from its settings to its records: warm-up first, then the load."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import ConfigError
from specserve_bench.client.bodies import ROUTES, Asked
from specserve_bench.client.records import DraftCounts
from specserve_bench.client.server_facts import drafted_so_far, served_model, tokenize
from specserve_bench.client.streaming import Sender
from specserve_bench.load.arrivals import arrival_times
from specserve_bench.load.run import Load, Run, run_load
from specserve_bench.prompts.choose import RANDOM, Choice, choose_prompts
from specserve_bench.prompts.random_tokens import VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import aiohttp

    from specserve_bench.client.records import RequestRecord
    from specserve_bench.client.target import Target
    from specserve_bench.prompts.prompt import Prompt
    from specserve_bench.serve.settings import Settings


class Measured(NamedTuple):
    run: Run
    model: str
    drafted: Mapping[str, DraftCounts] | None
    """By drafter, as the server's /metrics counted while the load ran; None where it has no such counters."""


async def measure(target: Target, settings: Settings, on_record: Callable[[RequestRecord], None]) -> Measured:
    """ConfigError where nothing can be measured: no server, no model, or no request of the warm-up was answered."""
    async with target.session() as session:
        model = (await served_model(session, target.url, settings.model)).id
        asked = Asked(
            api=settings.api,
            model=model,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            ignore_eos=settings.ignore_eos,
            further={"return_speculation": True} if settings.speculation else {},
        )
        prompts = await find_prompts(session, target.url, model, settings)
        url = target.url + ROUTES[settings.api]
        warm_up, rest = prompts[: settings.num_warm_up], prompts[settings.num_warm_up :]
        warm_load = Load([0.0] * len(warm_up), settings.concurrency)
        if (await send_all(session, url, asked, warm_up, warm_load, check_warm_up)).interrupted:
            raise KeyboardInterrupt
        before = await drafted_so_far(session, target.url)
        run = await send_all(session, url, asked, rest, load_of(settings), on_record)
        return Measured(run, model, difference(before, await drafted_so_far(session, target.url)))


def load_of(settings: Settings) -> Load:
    rate = math.inf if settings.rate is None else settings.rate
    times = arrival_times(settings.num_requests, rate, settings.burstiness, settings.seed)
    return Load(times, settings.concurrency)


async def find_prompts(session: aiohttp.ClientSession, url: str, model: str, settings: Settings) -> list[Prompt]:
    """Those of the warm-up come first; they are others than the measured ones, but where a file has too few."""
    pool = await tokenize(session, url, model, VOCABULARY) if RANDOM in settings.prompts else None
    choice = Choice(settings.prompts, settings.seed, settings.input_tokens, pool)
    return choose_prompts(choice, settings.num_warm_up + settings.num_requests)


async def send_all(
    session: aiohttp.ClientSession,
    url: str,
    asked: Asked,
    prompts: list[Prompt],
    load: Load,
    on_record: Callable[[RequestRecord], None],
) -> Run:
    bodies = [asked.body(prompt) for prompt in prompts]
    sender = Sender(session, url)
    return await run_load(load, lambda i: sender.send(i, prompts[i].kind, bodies[i]), on_record)


def check_warm_up(record: RequestRecord) -> None:
    if record.failure:
        raise ConfigError(
            f"bench: a request of the warm-up failed: {record.failure.kind}: {record.failure.message}. Nothing was "
            "measured. Measure a server that fails on purpose with --warm-up 0."
        )


def difference(
    before: Mapping[str, DraftCounts] | None, after: Mapping[str, DraftCounts] | None
) -> dict[str, DraftCounts] | None:
    if after is None:
        return None
    grown = {name: counts - (before or {}).get(name, DraftCounts()) for name, counts in after.items()}
    return {name: counts for name, counts in grown.items() if counts.drafted}
