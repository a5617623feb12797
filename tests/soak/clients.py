"""The clients: each draws a case, a way of asking and the moment at which it leaves, for as long as the run lasts."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import aclosing
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import aiohttp

from soak.cases import COMPLETIONS, MOVING, RESPONSES, neutral_fields
from soak.http import BrokenOff, Refused, ask, stream
from soak.words import text
from soak.wrong_bodies import MALFORMED, WRONG

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from soak.answers import Answer
    from soak.cases import Case
    from soak.ledger import Ledger

    Way = Callable[["Run", random.Random, Case, dict[str, Any]], Awaitable[str]]

PATIENCE_SECONDS = 120
"""What takes longer is lost."""


@dataclass(slots=True)
class Run:
    """What all clients share. `session` is another one after a pause."""

    session: aiohttp.ClientSession
    cases: list[Case]
    expected: dict[str, list[Answer]]
    ledger: Ledger
    until: float
    """In the event loop's time."""

    @property
    def goes_on(self) -> bool:
        return asyncio.get_running_loop().time() < self.until


async def client(run: Run, seed: str) -> None:
    """One request after the other until the run's end."""
    rng = random.Random(seed)
    while run.goes_on:
        (way,) = rng.choices(list(WAYS), list(WAYS.values()))
        await one(run, rng, way)
        if rng.random() < 0.1:
            await asyncio.sleep(rng.random() * 0.2)


async def one(run: Run, rng: random.Random, way: Way) -> None:
    """Sends a case; everything that may become of it is counted."""
    case = rng.choice(run.cases)
    body = case.body | neutral_fields(rng)
    run.ledger.requests[case.kind if way not in CASELESS else NAMES[way]] += 1
    run.ledger.ways[NAMES[way]] += 1
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            run.ledger.outcomes[await way(run, rng, case, body)] += 1
    except Refused as error:
        run.ledger.refused[error.status] += 1
        if not is_documented(error, case):
            run.ledger.fail("lost", f"{case.name} ({NAMES[way]}) was refused: {error}", path=case.path, body=body)
        await asyncio.sleep(0.05)
    except (BrokenOff, TimeoutError, aiohttp.ClientError, OSError) as error:
        message = f"{case.name} ({case.kind}, {NAMES[way]}): {type(error).__name__}: {error}"
        run.ledger.fail("lost", message, path=case.path, body=body)
        await asyncio.sleep(0.2)  # it may have ended
    except Exception as error:  # an answer that cannot be read
        run.ledger.fail(
            "wrong", f"{case.name} ({NAMES[way]}): {type(error).__name__}: {error}", path=case.path, body=body
        )


def is_documented(error: Refused, case: Case) -> bool:
    """A full queue, adapters that are all in use, and a name that is unloaded just now."""
    return error.status == 429 or (error.status == 404 and case.model == MOVING)


async def whole(run: Run, rng: random.Random, case: Case, body: dict[str, Any]) -> str:
    answer, raw = await ask(run.session, case.path, body)
    run.ledger.compare(case, body, answer, run.expected[case.name], "whole")
    if case.path == RESPONSES and body["store"]:
        await read_again(run, case, raw)
    return "answered"


async def read_again(run: Run, case: Case, raw: dict[str, Any]) -> None:
    """A stored response is read, and forgotten."""
    async with run.session.get(f"{RESPONSES}/{raw['id']}") as answer:
        if (await answer.json())["output"] != raw["output"]:
            run.ledger.fail("wrong", f"{case.name}: the stored response is another one", body=case.body)
    async with run.session.delete(f"{RESPONSES}/{raw['id']}") as answer:
        assert answer.status == 200


async def streamed(run: Run, rng: random.Random, case: Case, body: dict[str, Any]) -> str:
    return await read_stream(run, case, body, most_events=10**9, pause=0, way="streamed")


async def read_slowly(run: Run, rng: random.Random, case: Case, body: dict[str, Any]) -> str:
    return await read_stream(run, case, body, most_events=10**9, pause=rng.random() * 0.1, way="read slowly")


async def leave_in_the_middle(run: Run, rng: random.Random, case: Case, body: dict[str, Any]) -> str:
    return await read_stream(run, case, body, most_events=rng.randint(1, 12), pause=0, way="left in the middle")


async def leave_at_the_end(run: Run, rng: random.Random, case: Case, body: dict[str, Any]) -> str:
    """With the last event that has a finish reason, before [DONE]."""
    events = stream(run.session, case.path, body)
    async with aclosing(events) as parts:  # type: ignore[type-var]
        async for answer in parts:
            if answer.choices and all(choice.finish is not None for choice in answer.choices.values()):
                break
    run.ledger.compare(case, body, answer, run.expected[case.name], "left at the end")
    return "answered" if answer.ended else "left"


async def read_stream(run: Run, case: Case, body: dict[str, Any], *, most_events: int, pause: float, way: str) -> str:
    num_events = 0
    async with aclosing(stream(run.session, case.path, body)) as parts:  # type: ignore[type-var]
        async for answer in parts:
            num_events += 1
            if num_events >= most_events and not answer.ended:
                break
            if pause:
                await asyncio.sleep(pause)
    run.ledger.compare(case, body, answer, run.expected[case.name], way)
    return "answered" if answer.ended else "left"


async def leave_before(run: Run, rng: random.Random, case: Case, body: dict[str, Any]) -> str:
    """Before the first token, or while it is queued behind others: after no more than some milliseconds."""
    if rng.random() < 0.5:
        body["priority"] = 5
    if rng.random() < 0.5:
        body["stream"] = True
    task = asyncio.create_task(leave_early(run.session, case, body))
    await asyncio.wait([task], timeout=rng.choice((0.0, 0.001, 0.005, 0.02, 0.1)))
    if not task.done():
        task.cancel()
    (result,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(result, Exception):
        raise result
    return "left"


async def leave_early(session: aiohttp.ClientSession, case: Case, body: dict[str, Any]) -> None:
    response = await session.post(case.path, json=body)
    status = response.status
    response.close()
    if status >= 500:
        raise BrokenOff(f"status {status} before the client left")


async def burst(run: Run, rng: random.Random, case: Case, body: dict[str, Any]) -> str:
    """More at once than the queue holds: some are answered 429, all others completely."""
    ways = [one(run, random.Random(rng.random()), way) for way in (whole, streamed, leave_before) for _ in range(12)]
    await asyncio.gather(*ways)
    return "burst"


async def unseeded(run: Run, rng: random.Random, case: Case, body: dict[str, Any]) -> str:
    """Random, so only its length is known."""
    body = {"prompt": text(rng, 2), "max_tokens": 20, "ignore_eos": True, "return_token_ids": True, "temperature": 1}
    answer, _ = await ask(run.session, COMPLETIONS, body)
    if len(answer.choice().token_ids) != 20:
        run.ledger.fail("wrong", "a random request has another length than asked for", body=body, got=answer.plain())
    return "answered"


async def send_wrong_body(run: Run, rng: random.Random, case: Case, body: dict[str, Any]) -> str:
    path, wrong, status = rng.choice(WRONG)
    data = BytesIO(wrong if isinstance(wrong, bytes) else json.dumps(wrong).encode())
    async with run.session.post(path, data=data, headers={"Content-Type": "application/json"}) as answer:
        error = await answer.json()
        if answer.status != status or not error["error"]["message"]:
            run.ledger.fail("refusal", f"POST {path}: {answer.status} in place of {status}", body=wrong, got=error)
    run.ledger.refused[status] += 1
    return "refused as it should be"


async def send_garbage(run: Run, rng: random.Random, case: Case, body: dict[str, Any]) -> str:
    """Not even HTTP, or a body that never comes."""
    url = run.session._base_url  # type: ignore[attr-defined]
    reader, writer = await asyncio.open_connection(url.host, url.port)
    unfinished = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
    data = rng.choice((*MALFORMED, unfinished, b""))
    writer.write(data)
    if data in MALFORMED:
        line = await reader.readline()
        if b" 400 " not in line and line:
            run.ledger.fail("refusal", f"malformed HTTP got {line!r}", body=data)
    writer.close()
    return "refused as it should be"


async def look(run: Run, rng: random.Random, case: Case, body: dict[str, Any]) -> str:
    path = rng.choice(("/v1/models", "/health", "/metrics", "/load", "/v1/plugins", "/version", "/openapi.json"))
    async with run.session.get(path) as answer:
        await answer.read()
        if answer.status != 200:
            run.ledger.fail("lost", f"GET {path}: {answer.status}")
    return "answered"


WAYS = {
    whole: 25.0,
    streamed: 30.0,
    leave_before: 8.0,
    leave_in_the_middle: 8.0,
    leave_at_the_end: 4.0,
    read_slowly: 4.0,
    unseeded: 3.0,
    send_wrong_body: 8.0,
    send_garbage: 2.0,
    look: 6.0,
    burst: 0.3,
}
"""How often each is drawn, as weights."""
NAMES = {way: way.__name__.replace("_", " ") for way in WAYS}
CASELESS = {unseeded, send_wrong_body, send_garbage, look, burst}
