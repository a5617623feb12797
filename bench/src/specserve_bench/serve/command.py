"""The flags of `specserve bench serve`, and what it prints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from specserve_bench.given.numbers import above_zero, not_negative, positive

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction

    from specserve_bench.serve.settings import Settings

DESCRIPTION = """\
Send requests to a server with the OpenAI API and measure its answers. Exit code 1 where a request failed.
"""


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser("serve", help="measure a server under load", description=DESCRIPTION)
    parser.add_argument("url", metavar="URL", help="such as http://127.0.0.1:8000")
    parser.add_argument("--model", metavar="NAME", help="default: the first that the server lists")
    parser.add_argument("--api", choices=("completions", "chat"), default="completions", help="default: completions")
    add_prompt_flags(parser)
    add_load_flags(parser)
    add_connection_flags(parser)
    parser.add_argument(
        "--speculation", action="store_true", help="ask why steps accept no more draft tokens; answers get longer"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write JSON with a record of each request")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write a report with plots")
    parser.set_defaults(run=run)


def add_prompt_flags(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("prompts")
    group.add_argument(
        "--prompts", nargs="+", metavar="KIND|FILE", default=["code", "edit", "chat", "json"],
        help="in turn: code, edit, chat, json, random, a ShareGPT file (.json) or a file of lines (.jsonl); "
        "default: code edit chat json",
    )  # fmt: skip
    group.add_argument(
        "--input-tokens", type=positive, default=256, metavar="N", help="of random prompts; default: 256"
    )
    group.add_argument("--max-tokens", type=positive, default=128, metavar="N", help="of an answer; default: 128")
    group.add_argument("--temperature", type=float, metavar="T", help="default: the server's")
    group.add_argument("--ignore-eos", action="store_true", help="have every answer be --max-tokens long")


def add_load_flags(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("load")
    group.add_argument("--requests", type=positive, default=64, metavar="N", help="default: 64")
    group.add_argument(
        "--concurrency", type=positive, metavar="N", help="requests at once; default: 8, with --rate any"
    )
    group.add_argument(
        "--rate", type=above_zero, metavar="R", help="requests per second; default: as they are answered"
    )
    group.add_argument(
        "--burstiness", type=above_zero, default=1.0, metavar="B",
        help="of arrivals at a rate: 1 is Poisson, below in bursts, above more even; default: 1",
    )  # fmt: skip
    group.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of arrivals and of prompts that are made; default: 0"
    )
    group.add_argument(
        "--warm-up", type=not_negative, default=4, metavar="N", help="requests before, not measured; default: 4"
    )
    group.add_argument(
        "--slo",
        nargs="+",
        default=[],
        metavar="NAME=MS",
        help="what a good request keeps: ttft, tpot, e2e; default: none",
    )


def add_connection_flags(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("connection")
    group.add_argument("--api-key", metavar="KEY", help="default: OPENAI_API_KEY of the environment")
    group.add_argument("--timeout", type=above_zero, default=600.0, metavar="SECONDS", help="per request; default: 600")
    group.add_argument("--ca-file", type=Path, metavar="FILE", help="certificates to trust; default: the system's")
    group.add_argument("--insecure", action="store_true", help="trust every certificate")


def run(args: Namespace) -> int:
    import asyncio  # with aiohttp and rich: not for --help

    from specserve_bench.client.target import Target, parse_url
    from specserve_bench.output.files import check_files
    from specserve_bench.output.plots import require_matplotlib
    from specserve_bench.output.table import Progress
    from specserve_bench.serve.finish import finish
    from specserve_bench.serve.measure import measure

    key = args.api_key or os.environ.get("OPENAI_API_KEY")
    target = Target(parse_url(args.url), key, args.timeout, args.ca_file, args.insecure)
    settings = settings_of(args)
    if args.report:
        require_matplotlib()
    check_files(args.out, args.report)
    with Progress(target.url, settings.num_requests) as progress:
        measured = asyncio.run(measure(target, settings, progress.advance))
    return finish(args, target.url, settings, measured)


def settings_of(args: Namespace) -> Settings:
    from specserve_bench.figures.objectives import parse_objectives
    from specserve_bench.serve.settings import Settings

    return Settings(
        api=args.api,
        model=args.model,
        prompts=tuple(args.prompts),
        num_requests=args.requests,
        concurrency=args.concurrency or (8 if args.rate is None else None),
        rate=args.rate,
        burstiness=args.burstiness,
        seed=args.seed,
        input_tokens=args.input_tokens,
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        ignore_eos=args.ignore_eos,
        num_warm_up=args.warm_up,
        objectives=parse_objectives(args.slo),
        speculation=args.speculation,
    )
