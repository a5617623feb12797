"""The flags of `specserve bench replay`, and what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specserve_bench.given.numbers import positive

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction

DESCRIPTION = """\
Replay texts of your own to drafters: how many of their draft tokens would be accepted if a model wrote these texts.
No model runs. Drafters are those of --plugin and --set, by default ngram.
"""


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser("replay", help="try drafters on texts, without a model", description=DESCRIPTION)
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="texts, folders of texts, or JSONL with prompt and output"
    )
    group = parser.add_argument_group("replay")
    group.add_argument("--tokenizer-of", metavar="MODEL", default="demo", dest="model", help="default: demo")
    group.add_argument(
        "--budgets", nargs="+", type=positive, default=[8, 16, 32], metavar="N",
        help="draft tokens of a step at most; default: 8 16 32",
    )  # fmt: skip
    group.add_argument("--prompt-tokens", type=positive, default=100, metavar="N", help="of a text; default: 100")
    group.add_argument("--max-tokens", type=positive, default=2000, metavar="N", help="of an output; default: 2000")
    group.add_argument("--json", action="store_true", help="print JSON")
    group.add_argument("--plugin", action="append", default=[], metavar="NAME", help="a drafter; may be repeated")
    group.add_argument("--set", action="append", default=[], metavar="NAME.KEY=VALUE", help="an option of a drafter")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from specserve.config import EngineConfig
    from specserve.plugins.settings import parse_settings
    from specserve_bench.given.drafters import candidates
    from specserve_bench.output.table import Progress
    from specserve_bench.replay.run import Runner, print_runs, to_json

    config = EngineConfig(model=args.model, plugins=tuple(args.plugin), plugin_options=parse_settings(args.set))
    runner = Runner(config, candidates(config), args.files, args.prompt_tokens, args.max_tokens)
    with Progress("replay", runner.num_runs(args.budgets)) as progress:
        runs = list(runner.replay(args.budgets, progress.advance))
    if args.json:
        print(to_json(runs))
    else:
        print_runs(runner.traces, runs)
    return 0
