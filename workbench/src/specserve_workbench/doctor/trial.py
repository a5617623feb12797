"""The same requests in several engines, with and without drafts, and what differs.

Requests run one at a time: what a reader sees is the speed of one stream. They run in rounds, of which the fastest
counts, since other programs disturb short ones. A round ends after `ROUND_SECONDS`, whatever is done by then, so that
slow machines get an answer, too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.engine.assembly import assemble
from specserve.errors import SpecserveError
from specserve.plugins.host import PluginHost
from specserve.types import GenerateRequest, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve.config import EngineConfig
    from specserve.declare import InProcessPlugin
    from specserve.engine.engine import Engine
    from specserve.text.tokenizer import HfTokenizer
    from specserve.types import RequestOutput

ROUND_SECONDS, WARM_UP_SECONDS = 1.0, 0.5
MAX_TOKENS = 64
WARM_UP, WARM_UP_TOKENS = "warm-up", 16
SAMPLED = {"temperature": 0.8, "seed": 1}

ACCOUNT = """class Account:
    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def deposit(self, amount):
        self.balance += amount
        return self.balance

    def withdraw(self"""
SETTINGS = '''def read_settings(path):
    """Read the settings from a file."""
    with open(path) as file:
        return json.load(file)


def write_settings(path, settings):
    """Write the settings to a file."""
    with open(path, "w") as file:'''
RIVER = "The river is long. The river is cold. The river is deep. The river"
NUMBERS = "for i in range(10):\n    print(i)\n\nfor j in range(20):\n    print(j)\n\nfor k in"
PROMPTS = {
    "greedy 1": (ACCOUNT, {"temperature": 0.0}),
    "seeded 1": (SETTINGS, SAMPLED),
    "greedy 2": (RIVER, {"temperature": 0.0}),
    "seeded 2": (NUMBERS, SAMPLED),
}
"""Each prompt once in a round, and each round with a salt of its own: drafters that learn have not seen the answer."""


class Round(NamedTuple):
    """Tokens by request."""

    tokens: dict[str, list[int]]
    seconds: float

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.tokens.values()))


class Trial:
    """An engine, and the rounds that it has run. Raises ConfigError where none starts."""

    def __init__(self, config: EngineConfig, extra: Mapping[str, InProcessPlugin] | None = None) -> None:
        assembled = assemble(config, PluginHost.start(config, extra))
        self.engine, self.description = assembled.engine, assembled.description
        limits = self.engine.parts.limits
        self.vocab_size = limits.vocab_size
        self.requests = make_requests(assembled.tokenizer, limits.max_model_len)
        self.rounds: list[Round] = []

    def warm_up(self) -> None:
        """Touches weights and memory, with text that no other request has."""
        first = self.requests[0]
        params = msgspec.structs.replace(first.params, max_tokens=min(WARM_UP_TOKENS, first.params.max_tokens))
        ids = first.prompt_token_ids[::-1]
        request = GenerateRequest(request_id=WARM_UP, prompt_token_ids=ids, params=params, cache_salt=WARM_UP)
        run_until(self.engine, [request], time.perf_counter() + WARM_UP_SECONDS)

    def run_round(self, like: Round | None = None) -> Round:
        """`like`: ask for as many tokens as this round gave. Raises SpecserveError where a request fails."""
        salt = f"round {len(self.rounds)}"
        requests = [with_length(each, like, salt) for each in self.requests]
        began = time.perf_counter()
        tokens = run_until(self.engine, [each for each in requests if each is not None], began + ROUND_SECONDS)
        self.rounds.append(Round(tokens, time.perf_counter() - began))
        return self.rounds[-1]

    @property
    def drafters(self) -> str:
        names = self.description["drafters"]
        return ", ".join(map(str, names)) if isinstance(names, list) else ""

    @property
    def tokens_per_second(self) -> float:
        return max(each.num_tokens / max(each.seconds, 1e-9) for each in self.rounds)


def make_requests(tokenizer: HfTokenizer, max_model_len: int) -> list[GenerateRequest]:
    requests = []
    for name, (prompt, sampling) in PROMPTS.items():
        ids = tuple(tokenizer.encode(prompt)[: max_model_len // 2])
        limits = {"max_tokens": min(MAX_TOKENS, max_model_len - len(ids)), "ignore_eos": True}
        params = msgspec.convert({**sampling, **limits}, SamplingParams)
        requests.append(GenerateRequest(request_id=name, prompt_token_ids=ids, params=params))
    return requests


def with_length(request: GenerateRequest, like: Round | None, salt: str) -> GenerateRequest | None:
    """The request for as many tokens as `like` has of it; None where it has none."""
    params = request.params
    if like is not None:
        length = len(like.tokens.get(request.request_id, ()))
        if not length:
            return None
        params = msgspec.structs.replace(params, max_tokens=length)
    return msgspec.structs.replace(request, params=params, cache_salt=salt)


def run_until(engine: Engine, requests: Sequence[GenerateRequest], deadline: float) -> dict[str, list[int]]:
    """Their tokens; those of a request that the deadline cut are its first ones."""
    tokens: dict[str, list[int]] = {}
    for request in requests:
        if time.perf_counter() >= deadline:
            break
        own: list[int] = []
        tokens[request.request_id] = own
        engine.check(request)
        engine.add(request)
        while engine.has_work and time.perf_counter() < deadline:
            for output in engine.step():
                own += checked(output)
        engine.abort(request.request_id)
    return tokens


def checked(output: RequestOutput) -> tuple[int, ...]:
    if output.finish_reason == "error":
        raise SpecserveError(output.error or "the engine could not finish a request.")
    return output.tokens
