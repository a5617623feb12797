"""One prompt from the command line to its text. Text goes to standard output, statistics to standard error.

Every command `generate` has these arguments; its configuration and what it shows besides are its own.
"""

from __future__ import annotations

import sys
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

from specserve.command.generation_stats import GenerationStats
from specserve.engine.admission import NO_LIMITS, check_sampling
from specserve.errors import RequestError, SpecserveError
from specserve.types import GenerateRequest, SamplingParams
from specserve_checks.wrong_values import convert

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from specserve.config import EngineConfig
    from specserve.engine.async_engine import AsyncEngine


def add_request_arguments(parser: ArgumentParser) -> None:
    """All of a request but `seed`, which a command may use for more."""
    parser.add_argument("words", nargs="+", metavar="[MODEL] PROMPT", help="a prompt, or a model and a prompt")
    parser.add_argument("--max-tokens", type=int, default=128, help="default: 128")
    parser.add_argument("--temperature", type=float, help="default: the model's own, else 1; 0 is greedy")
    parser.set_defaults(parser=parser)


def model_and_prompt(args: Namespace) -> tuple[str | None, str]:
    if len(args.words) > 2:
        args.parser.error("expected [MODEL] PROMPT; quote a prompt that has spaces")
    return args.words[0] if len(args.words) == 2 else None, args.words[-1]


def check_before_start(config: EngineConfig, args: Namespace) -> None:
    """What can be wrong is told before the model loads."""
    check_sampling(sampling_params(args, {}), NO_LIMITS)
    from specserve.engine.before_loading import check_before_loading  # not for --help

    check_before_loading(config)


async def complete_prompt(engine: AsyncEngine, prompt: str, args: Namespace) -> GenerationStats:
    """Print the text as it comes. The engine is stopped at the end."""
    try:
        return await print_text(engine, make_request(engine, prompt, args))
    finally:
        await engine.stop()


def make_request(engine: AsyncEngine, prompt: str, args: Namespace) -> GenerateRequest:
    request = GenerateRequest(
        request_id="generate",
        prompt_token_ids=tuple(engine.tokenizer.encode(prompt)),
        params=sampling_params(args, engine.tokenizer.sampling_defaults),
    )
    engine.check(request)
    return request


def sampling_params(args: Namespace, defaults: Mapping[str, float]) -> SamplingParams:
    given = {name: value for name in ("temperature", "seed") if (value := getattr(args, name)) is not None}
    values = {**defaults, **given, "max_tokens": args.max_tokens}
    return convert(values, SamplingParams, lambda wrong: RequestError(str(wrong)))


async def print_text(engine: AsyncEngine, request: GenerateRequest) -> GenerationStats:
    from specserve.text.detokenizer import IncrementalDetokenizer

    detokenizer = IncrementalDetokenizer(engine.tokenizer.stream(request.prompt_token_ids))
    stats = GenerationStats(time.perf_counter())
    async with aclosing(engine.submit(request)) as outputs:
        async for output in outputs:
            if output.finish_reason == "error":
                raise SpecserveError(output.error or "the engine could not finish this request.")
            text, _ = detokenizer.push(
                output.tokens, finish_reason=output.finish_reason, stop_string=output.stop_string
            )
            print(text, end="", flush=True)
            stats.last_token = time.perf_counter()
            stats.first_token = stats.first_token or (stats.last_token if output.tokens else 0.0)
            stats.num_tokens += len(output.tokens)
            stats.speculation = output.stats or stats.speculation
    print(flush=True)
    return stats


def print_stats(stats: GenerationStats) -> None:
    print(f"\n{stats.summary()}", file=sys.stderr, flush=True)
