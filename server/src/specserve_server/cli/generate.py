"""`specserve generate`: one prompt without a server, with a flag for every option of the engine."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from specserve.command.complete_prompt import (
    add_request_arguments,
    check_before_start,
    complete_prompt,
    model_and_prompt,
    print_stats,
)
from specserve_server.cli.drafts_table import drafts_table
from specserve_server.cli.flags import add_engine_flags
from specserve_server.cli.layers import load_engine_config
from specserve_server.cli.progress import shown_progress

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction

    from specserve.config import EngineConfig


EXAMPLES = (('specserve generate "Once upon a time"', "one prompt, without a server"),)


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "generate", help="complete one prompt", description="Complete one prompt and print it token by token."
    )
    add_request_arguments(parser)
    parser.add_argument("--explain", action="store_true", help="print every step: drafted by whom, verified, accepted")
    add_engine_flags(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    args.model, prompt = model_and_prompt(args)
    config = load_engine_config(args)
    check_before_start(config, args)
    return asyncio.run(generate(config, prompt, args))


async def generate(config: EngineConfig, prompt: str, args: Namespace) -> int:
    from specserve.engine.async_engine import AsyncEngine  # torch, by way of the engine
    from specserve_server.cli.draft_trace import DraftStep, trace_drafts, trace_if_asked

    engine = await AsyncEngine.start(config, on_progress=shown_progress())
    trace_if_asked(engine.engine)
    steps: list[DraftStep] = []
    if args.explain:
        trace_drafts(engine.engine, steps.append)
    stats = await complete_prompt(engine, prompt, args)
    if args.explain:
        print(f"\n{drafts_table(steps)}", file=sys.stderr)
    print_stats(stats)
    return 0
