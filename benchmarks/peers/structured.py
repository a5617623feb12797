"""Structured output in specserve and vLLM: the engines that take part, and their answers to a job.

Owns how each is set up, how they take turns, how fast an answer was and which of its texts are valid. Knows no tables.
"""

from __future__ import annotations

import json
import math
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
    from collections.abc import Iterator

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
    """"plain" or "ngram"."""
    grammar: dict[str, str]
    """Options of specserve's plugin grammar."""


MASKS, FORCED, BESIDE = "specserve, masks", "specserve, forced drafts", "specserve, forced and n-gram drafts"
VARIANTS = {
    VLLM: Variant(VLLM, "plain", {}),
    MASKS: Variant(VLLM, "plain", {"forced_drafts": "false"}),
    FORCED: Variant(VLLM, "plain", {}),
    VLLM_NGRAM: Variant(VLLM_NGRAM, "ngram", {}),
    BESIDE: Variant(VLLM_NGRAM, "ngram", {}),
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
    """One engine's answer to one job."""

    throughput: float
    """Tokens per second, where all requests decode."""
    texts: Texts
    """Of a job with a schema."""


class Engines:
    """All of VARIANTS. One that crashes is asked nothing more."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer) -> None:
        self.running = {name: make_engine(name, settings) for name in VARIANTS}
        self.tokenizer = tokenizer
        self.errors: dict[str, str] = {}
        """By engine, why it crashed."""

    def answers(self, job: StructuredJob) -> dict[str, Answered]:
        """By engine that did not crash. They take turns, a slice each."""
        running = {name: slices(engine, job) for name, engine in self.running.items() if name not in self.errors}
        parts: dict[str, list[Reply]] = {name: [] for name in running}
        while running:
            for name in list(running):
                try:
                    parts[name].append(next(running[name]))
                except StopIteration:
                    del running[name]
                except CrashedError as error:
                    self.errors[name] = (
                        f"{error} ({len(job['prompts'])} requests at temperature {job['temperature']:g})"
                    )
                    del running[name], parts[name]
        return {name: self.answered(job, of_engine) for name, of_engine in parts.items()}

    def answered(self, job: StructuredJob, parts: list[Reply]) -> Answered:
        *timed, last = parts
        seconds, num_tokens = sum(one["seconds"] for one in timed), sum(one["num_tokens"] for one in timed)
        texts = judged(last["outputs"], self.tokenizer) if job["schema"] else Texts()
        return Answered(num_tokens / seconds if seconds else math.nan, texts)

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


def slices(engine: EngineProcess, job: StructuredJob) -> Iterator[Reply]:
    """The replies to a job; the engine stands still between them. Raises CrashedError."""
    reply = engine.answer(job)
    yield reply
    while "outputs" not in reply:
        reply = engine.answer(None)
        yield reply


def jobs_of(prompts: list[list[int]], temperature: float) -> tuple[StructuredJob, StructuredJob]:
    """The same prompts without and under the schema."""
    free: StructuredJob = {"prompts": prompts, "num_tokens": FREE_TOKENS, "temperature": temperature, "schema": ""}
    return free, {**free, "num_tokens": MAX_TOKENS, "schema": json.dumps(SCHEMA)}


def judged(outputs: list[list[int]], tokenizer: Tokenizer) -> Texts:
    refused = [tokens for tokens in outputs if not is_valid(tokenizer.decode(tokens))]
    invalid = tuple(tokenizer.decode(tokens) for tokens in refused if len(tokens) < MAX_TOKENS)
    return Texts(len(outputs) - len(refused), len(refused) - len(invalid), invalid)


def is_valid(text: str) -> bool:
    try:
        valid: bool = Draft202012Validator(SCHEMA).is_valid(json.loads(text))
    except ValueError:
        return False
    return valid
