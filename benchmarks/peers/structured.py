"""Structured output in specserve and vLLM: the engines that take part, and their answers to a job.

Owns how each is set up, how fast an answer was and which of its texts are valid. Knows no rounds and no tables.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, NamedTuple

from jsonschema import Draft202012Validator

from benchmarks.lib.records import SCHEMA
from benchmarks.lib.workload import PROMPT_LEN
from benchmarks.peers.engine_process import CrashedError, EngineProcess
from benchmarks.peers.engines import SPECSERVE, Settings, program, specserve_environment, vllm_environment
from benchmarks.peers.make_peers import PEERS
from specserve.models.locate import locate_model

if TYPE_CHECKING:
    from benchmarks.peers.workers.wire import Reply, StructuredJob, StructuredSetup
    from specserve.protocols import Tokenizer

VLLM, VLLM_NGRAM = "vLLM", "vLLM, n-gram"
MAX_TOKENS = 800
"""Of a text under the schema: enough for every engine to complete it."""
FREE_TOKENS = 256
"""Of a text without: about as many as specserve's texts under the schema have."""


class Variant(NamedTuple):
    """An engine as it takes part."""

    against: str
    """Who is compared with it."""
    mode: str
    """"plain" or "lookup" (n-gram speculation)."""
    grammar: dict[str, str]
    """Options of specserve's plugin grammar."""


MASKS, FORCED, BESIDE = "specserve, masks", "specserve, forced drafts", "specserve, forced and n-gram drafts"
VARIANTS = {
    VLLM: Variant(VLLM, "plain", {}),
    MASKS: Variant(VLLM, "plain", {"forced_drafts": "false"}),
    FORCED: Variant(VLLM, "plain", {}),
    VLLM_NGRAM: Variant(VLLM_NGRAM, "lookup", {}),
    BESIDE: Variant(VLLM_NGRAM, "lookup", {}),
}


class Texts(NamedTuple):
    """Whether they are what the schema asks for."""

    num_valid: int = 0
    num_cut: int = 0
    """Incomplete after MAX_TOKENS tokens."""
    invalid: tuple[str, ...] = ()

    def plus(self, other: Texts) -> Texts:
        num_valid, num_cut = self.num_valid + other.num_valid, self.num_cut + other.num_cut
        return Texts(num_valid, num_cut, self.invalid + other.invalid)


class Answered(NamedTuple):
    """One round of one engine."""

    free: float
    """Tokens per second without a schema."""
    structured: float
    """Under the schema."""
    texts: Texts


class Engines:
    """All of VARIANTS. One that crashes is asked nothing more."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer) -> None:
        self.running = {name: make_engine(name, settings) for name in VARIANTS}
        self.tokenizer = tokenizer
        self.errors: dict[str, str] = {}
        """By engine, why it crashed."""

    def answers(self, prompts: list[list[int]], temperature: float) -> dict[str, Answered]:
        """By engine, one after the other."""
        answered: dict[str, Answered] = {}
        for name, engine in self.running.items():
            if name in self.errors:
                continue
            try:
                answered[name] = ask(engine, prompts, temperature, self.tokenizer)
            except CrashedError as error:
                self.errors[name] = f"{error} ({len(prompts)} requests at temperature {temperature:g})"
        return answered

    def close(self) -> None:
        for engine in self.running.values():
            engine.close()


def make_engine(name: str, settings: Settings) -> EngineProcess:
    variant = VARIANTS[name]
    if name in (VLLM, VLLM_NGRAM):
        python, env, worker = str(PEERS / "vllm" / "bin" / "python"), vllm_environment(settings.threads), "vllm"
    else:
        python, env, worker = sys.executable, specserve_environment(), SPECSERVE
    model = str(locate_model(settings.model))
    setup: StructuredSetup = {
        **settings.setup(variant.mode, model),
        "max_len": PROMPT_LEN + MAX_TOKENS + 32,
        "grammar": variant.grammar,
    }
    log_name = name.replace(", ", "-").replace(" ", "-").lower()
    return EngineProcess(program(f"{worker}_structured", log_name, python, env), setup)


def ask(engine: EngineProcess, prompts: list[list[int]], temperature: float, tokenizer: Tokenizer) -> Answered:
    """The same prompts without and under the schema. Raises CrashedError."""
    free: StructuredJob = {"prompts": prompts, "num_tokens": FREE_TOKENS, "temperature": temperature, "schema": ""}
    structured: StructuredJob = {**free, "num_tokens": MAX_TOKENS, "schema": json.dumps(SCHEMA)}
    reply_free, reply = engine.answer(free), engine.answer(structured)
    return Answered(rate(reply_free), rate(reply), judged(reply["outputs"], tokenizer))


def rate(reply: Reply) -> float:
    return reply["num_tokens"] / reply["seconds"]


def judged(outputs: list[list[int]], tokenizer: Tokenizer) -> Texts:
    refused = [tokens for tokens in outputs if not is_valid(tokenizer.decode(tokens))]
    invalid = tuple(tokenizer.decode(tokens) for tokens in refused if len(tokens) < MAX_TOKENS)
    return Texts(len(outputs) - len(refused), len(refused) - len(invalid), invalid)


def is_valid(text: str) -> bool:
    try:
        return Draft202012Validator(SCHEMA).is_valid(json.loads(text))
    except ValueError:
        return False
