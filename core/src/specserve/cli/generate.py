"""`specserve generate`: one prompt without a server. Text goes to standard output, statistics to standard error."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

from specserve.cli.drafts_table import drafts_table
from specserve.cli.flags import add_engine_flags
from specserve.cli.generation_stats import GenerationStats
from specserve.cli.layers import load_engine_config
from specserve.cli.progress import shown_progress
from specserve.engine.admission import NO_LIMITS, check_sampling
from specserve.errors import RequestError, SpecserveError
from specserve.types import GenerateRequest, SamplingParams
from specserve_checks.wrong_values import convert

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction
    from collections.abc import Mapping

    from specserve.config import EngineConfig
    from specserve.engine.async_engine import AsyncEngine


EXAMPLES = (('specserve generate "Once upon a time"', "one prompt, without a server"),)


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "generate", help="complete one prompt", description="Complete one prompt and print it token by token."
    )
    parser.add_argument("words", nargs="+", metavar="[MODEL] PROMPT", help="a prompt, or a model and a prompt")
    parser.add_argument("--max-tokens", type=int, default=128, help="default: 128")
    parser.add_argument("--temperature", type=float, help="default: the model's own, else 1; 0 is greedy")
    parser.add_argument("--explain", action="store_true", help="print every step: drafted by whom, verified, accepted")
    add_engine_flags(parser)
    parser.set_defaults(run=run, parser=parser)


def run(args: Namespace) -> int:
    if len(args.words) > 2:
        args.parser.error("expected [MODEL] PROMPT; quote a prompt that has spaces")
    args.model = args.words[0] if len(args.words) == 2 else None
    config = load_engine_config(args)
    check_sampling(sampling_params(args, {}), NO_LIMITS)  # before the model loads
    from specserve.engine.before_loading import check_before_loading  # not for --help

    check_before_loading(config)
    return asyncio.run(generate(config, args.words[-1], args))


async def generate(config: EngineConfig, prompt: str, args: Namespace) -> int:
    from specserve.engine.async_engine import AsyncEngine  # torch, by way of the engine
    from specserve.engine.draft_trace import DraftStep, trace_drafts

    engine = await AsyncEngine.start(config, on_progress=shown_progress())
    steps: list[DraftStep] = []
    if args.explain:
        trace_drafts(engine.engine, steps.append)
    try:
        stats = await print_text(engine, make_request(engine, prompt, args))
    finally:
        await engine.stop()
    if args.explain:
        print(f"\n{drafts_table(steps)}", file=sys.stderr)
    print(f"\n{stats.summary()}", file=sys.stderr, flush=True)
    return 0


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
