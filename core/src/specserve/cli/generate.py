"""`specserve generate`: one prompt, text as it comes, and what speculation did; no server.

Owns its flags and the report on standard error. The engine is the one that serves.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specserve.cli.flags import add_engine_flags, load_configuration, report_progress
from specserve.engine.admission import EngineLimits, check_sampling
from specserve.errors import SpecserveError
from specserve.types import GenerateRequest, SamplingParams

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction
    from collections.abc import Mapping

    from specserve.config import EngineConfig
    from specserve.engine.async_engine import AsyncEngine
    from specserve.types import SpeculationFigures

NO_LIMITS = EngineLimits(vocab_size=2**31, max_model_len=2**31, cache_tokens=2**31)
"""Of a model that is not loaded yet."""


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "generate", help="complete one prompt", description="Complete one prompt and print it as it comes."
    )
    parser.add_argument("words", nargs="+", metavar="[MODEL] PROMPT", help="a prompt, or a model and a prompt")
    parser.add_argument("--max-tokens", type=int, default=128, help="default: 128")
    parser.add_argument("--temperature", type=float, help="default: the model's own, else 1; 0 is greedy")
    parser.add_argument("--seed", type=int, help="makes a sampled text repeatable")
    add_engine_flags(parser)
    parser.set_defaults(run=run, parser=parser)


def run(args: Namespace) -> int:
    if len(args.words) > 2:
        args.parser.error("expected [MODEL] PROMPT; quote a prompt that has spaces")
    args.model = args.words[0] if len(args.words) == 2 else None
    config = load_configuration(args).engine
    check_sampling(sampling_params(args, {}), NO_LIMITS)  # before the model loads
    return asyncio.run(generate(config, args.words[-1], args))


async def generate(config: EngineConfig, prompt: str, args: Namespace) -> int:
    from specserve.engine.async_engine import AsyncEngine  # torch, by way of the engine

    engine = await AsyncEngine.start(config, on_progress=report_progress)
    try:
        report = await print_text(engine, make_request(engine, prompt, args))
    finally:
        await engine.stop()
    print(f"\n{report.line()}", file=sys.stderr, flush=True)
    return 0


@dataclass(slots=True)
class Report:
    """Times are seconds of time.perf_counter."""

    asked: float
    first: float = 0.0
    last: float = 0.0
    num_tokens: int = 0
    figures: SpeculationFigures | None = None

    def line(self) -> str:
        seconds = self.last - self.asked
        parts = [
            f"{self.num_tokens} tokens in {seconds:.2f} s, {self.num_tokens / max(seconds, 1e-9):.1f} tokens/s, "
            f"first after {self.first - self.asked:.3f} s"
        ]
        if self.figures is not None and self.figures.num_spec_steps:
            steps, accepted = self.figures.num_spec_steps, self.figures.num_accepted_draft_tokens
            parts.append(f"mean acceptance length {1 + accepted / steps:.2f} over {steps} verify steps")
            parts.append(f"{accepted} of {self.figures.num_draft_tokens} drafts accepted")
        else:
            parts.append("no drafts")
        return "; ".join(parts)


def make_request(engine: AsyncEngine, prompt: str, args: Namespace) -> GenerateRequest:
    request = GenerateRequest(
        request_id="generate",
        prompt_token_ids=tuple(engine.tokenizer.encode(prompt)),
        params=sampling_params(args, engine.tokenizer.sampling_defaults),
    )
    engine.check(request)
    return request


def sampling_params(args: Namespace, defaults: Mapping[str, Any]) -> SamplingParams:
    asked = {name: value for name in ("temperature", "seed") if (value := getattr(args, name)) is not None}
    return SamplingParams(**{**defaults, **asked, "max_tokens": args.max_tokens})


async def print_text(engine: AsyncEngine, request: GenerateRequest) -> Report:
    from specserve.text.detokenizer import IncrementalDetokenizer

    detokenizer = IncrementalDetokenizer(engine.tokenizer.stream(request.prompt_token_ids))
    report = Report(time.perf_counter())
    async with aclosing(engine.submit(request)) as outputs:
        async for output in outputs:
            if output.finish_reason == "error":
                raise SpecserveError(output.error or "the engine could not finish this request.")
            text, _ = detokenizer.push(output.tokens, finish_reason=output.finish_reason, stop_string=output.stop_string)
            print(text, end="", flush=True)
            report.last = time.perf_counter()
            report.first = report.first or (report.last if output.tokens else 0.0)
            report.num_tokens += len(output.tokens)
            report.figures = output.figures or report.figures
    print(flush=True)
    return report
