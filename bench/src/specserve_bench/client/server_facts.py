"""What a server says of itself before and after a run: its models, and its counts of draft tokens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from specserve.errors import ConfigError
from specserve_bench.client.answers import ALL
from specserve_bench.client.records import DraftCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTERS = {
    "specserve_draft_tokens_total": DraftCounts(drafted=1),
    "specserve_accepted_draft_tokens_total": DraftCounts(accepted=1),
    "vllm:spec_decode_num_draft_tokens_total": DraftCounts(drafted=1),
    "vllm:spec_decode_num_accepted_tokens_total": DraftCounts(accepted=1),
}
SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>[0-9.eE+-]+)$")
DRAFTER = re.compile(r'\bdrafter="(?P<name>[^"]*)"')


class Model(msgspec.Struct, frozen=True):
    id: str
    max_model_len: int | None = None


class Models(msgspec.Struct, frozen=True):
    data: list[Model] = []


class Tokens(msgspec.Struct, frozen=True):
    tokens: list[int]


async def served_model(session: aiohttp.ClientSession, url: str, wanted: str | None) -> Model:
    """The first one, or that of the wanted name. ConfigError where the server cannot be asked."""
    if wanted is not None:
        return Model(wanted)
    try:
        async with session.get(f"{url}/v1/models") as answer:
            text = await answer.read()
            if answer.status != 200:
                raise ConfigError(
                    f"bench: {url}/v1/models answered {answer.status}: {text[:200].decode(errors='replace')}. "
                    + ("Set OPENAI_API_KEY or pass --api-key." if answer.status in (401, 403) else "Pass --model NAME.")
                )
        models = msgspec.json.decode(text, type=Models).data
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise ConfigError(f"bench: no server answers at {url}: {type(error).__name__}: {error}.") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"bench: {url}/v1/models is no list of models: {error}. Pass --model NAME.") from None
    if not models:
        raise ConfigError(f"bench: {url} serves no model; its /v1/models is empty.")
    return models[0]


async def tokenize(session: aiohttp.ClientSession, url: str, model: str, text: str) -> list[int] | None:
    """By the server's POST /tokenize; None where it has none."""
    body = msgspec.json.encode({"model": model, "prompt": text, "add_special_tokens": False})
    try:
        async with session.post(f"{url}/tokenize", data=body) as answer:
            return msgspec.json.decode(await answer.read(), type=Tokens).tokens if answer.status == 200 else None
    except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError):
        return None


async def drafted_so_far(session: aiohttp.ClientSession, url: str) -> dict[str, DraftCounts] | None:
    """Of all requests since the server's start, by drafter, from GET /metrics; None where it has no such counters."""
    try:
        async with session.get(f"{url}/metrics") as answer:
            text = await answer.text(errors="replace") if answer.status == 200 else ""
    except (aiohttp.ClientError, OSError, TimeoutError):
        return None
    return drafted_in(text)


def drafted_in(text: str) -> dict[str, DraftCounts] | None:
    """From Prometheus' text format. Counts by drafter go before those of all."""
    counts: dict[str, DraftCounts] = {}
    for name, drafter, value in samples(text):
        unit = COUNTERS[name]
        more = DraftCounts(unit.drafted * value, unit.accepted * value)
        counts[drafter] = counts.get(drafter, DraftCounts()) + more
    if len(counts) > 1:
        counts.pop(ALL, None)
    return counts or None


def samples(text: str) -> Iterator[tuple[str, str, int]]:
    """Counter, drafter, value."""
    for line in text.splitlines():
        match = SAMPLE.match(line)
        if match and match["name"] in COUNTERS:
            drafter = DRAFTER.search(match["labels"] or "")
            yield match["name"], drafter["name"] if drafter else ALL, int(float(match["value"]))
